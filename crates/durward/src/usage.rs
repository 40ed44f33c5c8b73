//! What is wrong with a command line, as a [`Problem`] like everything else that a person is told.

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use config::Problem;

use crate::cli::{rendered, variable};
use crate::exit::{Exit, Stop};
use crate::output;

/// Turns what the parser says into what is told: help and version are data, the rest is a problem. `command` is what was called,
/// with its subcommands.
pub(crate) fn stop(error: &Error, command: &str) -> Stop {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let text = error.render();
            let shown = if output::Style::of_stdout().is_coloured() {
                text.ansi().to_string()
            } else {
                text.to_string()
            };
            output::data(&rendered(&shown)).err().unwrap_or(Stop { exit: Exit::Done, problems: Vec::new() })
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            output::note(rendered(&error.render().to_string()));
            Stop { exit: Exit::Bad, problems: Vec::new() }
        }
        _ => problem(error, command).into(),
    }
}

fn problem(error: &Error, command: &str) -> Problem {
    let context = |kind| error.get(kind).map(text);
    let (what, why) = match error.kind() {
        ErrorKind::InvalidSubcommand => (
            format!("there is no command {:?}", context(ContextKind::InvalidSubcommand).unwrap_or_default()),
            None,
        ),
        ErrorKind::UnknownArgument => {
            (format!("there is no flag {:?}", context(ContextKind::InvalidArg).unwrap_or_default()), None)
        }
        ErrorKind::MissingRequiredArgument => {
            let flag = context(ContextKind::InvalidArg).unwrap_or_default();
            let why = variable(command, &flag)
                .map(|variable| format!("and so is ${variable}, which stands for it"));
            (format!("{flag} is missing"), why)
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let flag = context(ContextKind::InvalidArg).unwrap_or_default();
            let value = context(ContextKind::InvalidValue).unwrap_or_default();
            let allowed = context(ContextKind::ValidValue).map(|words| format!("allowed: {words}"));
            let source = std::error::Error::source(error).map(ToString::to_string);
            let what = if value.is_empty() {
                format!("{flag}: a value is missing")
            } else {
                format!("{flag}: {value:?}")
            };
            (what, source.or(allowed).or_else(|| Some("cannot stand here".to_owned())))
        }
        ErrorKind::ArgumentConflict => {
            let one = context(ContextKind::InvalidArg).unwrap_or_default();
            (one, context(ContextKind::PriorArg).map(|other| format!("does not go with {other}")))
        }
        _ => {
            let text = error.render().to_string();
            let first = text.lines().next().unwrap_or_default();
            (first.strip_prefix("error: ").unwrap_or(first).to_owned(), None)
        }
    };
    let suggested =
        [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue]
            .into_iter()
            .find_map(context)
            .map(|near| format!("did you mean {near}?"));
    let why = match (why, suggested) {
        (Some(why), Some(suggested)) => Some(format!("{why}; {suggested}")),
        (why, suggested) => why.or(suggested),
    };
    let usage = context(ContextKind::Usage).map(|usage| usage.trim().replace("Usage:", "usage:"));
    let next = usage.unwrap_or_else(|| format!("see: {command} --help"));
    Problem { what, place: None, why, next: Some(next) }
}

fn text(value: &ContextValue) -> String {
    match value {
        ContextValue::Strings(all) => all.join(", "),
        ContextValue::StyledStrs(all) => all.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(line: &[&str]) -> String {
        let line: Vec<_> = line.iter().map(Into::into).collect();
        let error = crate::cli::parse(&line).unwrap_err();
        problem(&error, &crate::cli::called(&line)).to_string()
    }

    #[test]
    fn a_wrong_command_suggests_the_nearest() {
        let told = told(&["durward", "srve"]);
        assert!(
            told.starts_with("there is no command \"srve\": did you mean serve?\n    usage: durward"),
            "{told}"
        );
    }

    #[test]
    fn a_command_of_a_later_version_does_not_exist() {
        assert!(told(&["durward", "convert"]).starts_with("there is no command \"convert\""));
    }

    #[test]
    fn a_wrong_flag_suggests_the_nearest() {
        let told = told(&["durward", "serve", "--config", "f", "--lissten", "x"]);
        assert!(told.starts_with("there is no flag \"--lissten\": did you mean --listen?"), "{told}");
    }

    #[test]
    fn a_missing_flag_is_named_with_the_usage() {
        let told = told(&["durward", "serve"]);
        assert!(told.starts_with("--config <FILE> is missing\n    usage: durward serve"), "{told}");
    }

    #[test]
    fn a_missing_flag_that_the_environment_could_give_is_named_with_the_variable() {
        let told = told(&["durward", "lxcfs-node", "--config", "f"]);
        assert!(told.starts_with("--node <NAME> is missing: and so is $NODE_NAME"), "{told}");
    }

    #[test]
    fn a_wrong_value_is_told_with_what_is_allowed() {
        let told_word = told(&["durward", "review", "-c", "f", "-o", "yaml"]);
        assert!(told_word.contains("\"yaml\": allowed: text, json"), "{told_word}");
        let told_address = told(&["durward", "serve", "-c", "f", "--listen", "8443"]);
        assert!(
            told_address.contains("--listen <ADDRESS>: \"8443\": invalid socket address"),
            "{told_address}"
        );
    }

    #[test]
    fn a_wrong_value_leads_to_the_help_of_its_command() {
        for (line, help) in [
            (&["durward", "impact", "shop"][..], "durward impact --help"),
            (&["durward", "manifests", "-c", "f", "--only", "bogus"], "durward manifests --help"),
            (&["durward", "doctor", "fleet", "-o", "impact"], "durward doctor fleet --help"),
            (&["kubectl-durward", "impact", "shop"], "kubectl durward impact --help"),
        ] {
            let told = told(line);
            assert!(told.ends_with(&format!("\n    see: {help}")), "{told}");
        }
        assert!(told(&["durward", "impact", "shop"]).contains("did you mean ns/shop?"));
    }

    #[test]
    fn named_kubectl_durward_it_speaks_of_kubectl_durward() {
        assert!(told(&["/usr/local/bin/kubectl-durward", "serve"]).contains("usage: kubectl durward serve"));
    }
}
