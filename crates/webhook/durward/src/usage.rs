//! Reports errors of the command line as a [`Problem`], like all other errors.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use config::Problem;
use console::exit::{Exit, Stop};
use console::output;

/// Handles the parser's error. Help and version are printed as data; everything else is a problem. `command` is the called
/// command with its subcommands.
pub(crate) fn stop(error: &Error, command: &str, line: &[OsString]) -> Stop {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let text = error.render();
            let shown =
                if output::Style::stdout().uses_color() { text.ansi().to_string() } else { text.to_string() };
            output::data(&rendered(&shown)).err().unwrap_or(Stop { exit: Exit::Done, problems: Vec::new() })
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            output::note(rendered(&error.render().to_string()));
            Stop { exit: Exit::Bad, problems: Vec::new() }
        }
        _ => removed(error, command).unwrap_or_else(|| problem(error, command, line)).into(),
    }
}

/// Words that users try, and the command for them.
const MEANT: [(&[&str], &str); 6] = [
    (&["delete", "rm", "remove"], "to preview a deletion: durward impact ns/NAME"),
    (&["init"], "to create a configuration file: durward config init --guard NAME"),
    (
        &["validate", "lint"],
        "to check manifests: durward check PATH; a configuration file: durward config check FILE",
    ),
    (&["test", "evaluate"], "to evaluate an AdmissionReview: durward review FILE"),
    (&["install", "apply"], "to print what to apply: durward manifests --config FILE"),
    (&["run", "start", "server"], "to run the server: durward serve --config FILE"),
];

/// Commands of earlier releases, with the command that does the same.
const REMOVED_COMMANDS: &[(&str, &str)] = &[
    (
        "guards",
        "durward config check FILE prints what each guard covers; durward manifests prints its permissions and webhooks",
    ),
    (
        "certs show",
        "durward doctor install shows the certificates in use; openssl x509 -in FILE -noout -text shows a file",
    ),
];

/// Flags of earlier releases with their command, and their successor.
const REMOVED_FLAGS: &[(&str, &str)] = &[
    (
        "serve --debug-bind-address",
        "to change the log filter, set log in the configuration file, which is reloaded",
    ),
    ("unregister --delete", "unregister always deletes: leave the flag out"),
];

/// Flags of webhooks that users write themselves, and what replaces each of them in `durward serve`.
const FLAGS_MEANT: [(&[&str], &str); 5] = [
    (
        &["--cert-dir"],
        "with server.tls.selfManaged, Durward creates its certificate; for files: --tls-cert FILE --tls-key FILE",
    ),
    (
        &["--tls-cert-file", "--tls-private-key-file", "--tls-key-file"],
        "for files: --tls-cert FILE --tls-key FILE",
    ),
    (&["--port", "--secure-port"], "the address with the port: --bind-address 0.0.0.0:8443"),
    (&["--health-probe-bind-address"], "/livez, /readyz and /metrics: --metrics-bind-address 0.0.0.0:8080"),
    (&["--sidecar-config-file"], "the configuration file: --config FILE; for LXCFS its section guards.lxcfs"),
];

/// Returns the problem of a command or a flag of an earlier release.
fn removed(error: &Error, command: &str) -> Option<Problem> {
    let (kind, all, sort) = match error.kind() {
        ErrorKind::InvalidSubcommand => (ContextKind::InvalidSubcommand, REMOVED_COMMANDS, "command"),
        ErrorKind::UnknownArgument => (ContextKind::InvalidArg, REMOVED_FLAGS, "flag"),
        _ => return None,
    };
    let word = text(error.get(kind)?);
    let (_, path) = command.rsplit_once("durward").unwrap_or_default();
    let named = format!("{path} {word}");
    let (removed, next) = all.iter().find(|(removed, _)| *removed == named.trim())?;
    let shown = if sort == "flag" { &word } else { *removed };
    Some(Problem::new(format!("{sort} {shown:?} was removed")).next(*next))
}

fn problem(error: &Error, command: &str, line: &[OsString]) -> Problem {
    let context = |kind| error.get(kind).map(text);
    let flag = || context(ContextKind::InvalidArg).unwrap_or_default();
    let (what, why) = match error.kind() {
        ErrorKind::InvalidSubcommand => (
            format!("unknown command {:?}", context(ContextKind::InvalidSubcommand).unwrap_or_default()),
            None,
        ),
        ErrorKind::UnknownArgument if flag().starts_with('-') => (format!("unknown flag {:?}", flag()), None),
        ErrorKind::UnknownArgument => {
            (format!("unexpected argument {:?}", flag()), with_slash(line, &flag()))
        }
        ErrorKind::MissingRequiredArgument => {
            let missing = flag();
            let verb = if missing.contains(", ") { "are" } else { "is" };
            (format!("{missing} {verb} required"), None)
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let value = context(ContextKind::InvalidValue).unwrap_or_default();
            let allowed = context(ContextKind::ValidValue).filter(|words| !words.is_empty());
            let allowed = allowed.map(|words| format!("must be one of: {words}"));
            let source = std::error::Error::source(error).map(ToString::to_string);
            let what = if value.is_empty() {
                format!("{} needs a value", flag())
            } else {
                format!("invalid value {value:?} for {}", flag())
            };
            (what, source.or(allowed))
        }
        ErrorKind::ArgumentConflict => {
            let other = context(ContextKind::PriorArg).unwrap_or_default();
            (format!("{} cannot be used with {other}", flag()), None)
        }
        _ => {
            // It begins with words of clap: clap_builder, src/error/format.rs, start_error.
            let text = error.render().to_string();
            let first = text.lines().next().unwrap_or_default();
            (first.strip_prefix("error: ").unwrap_or(first).to_owned(), None)
        }
    };
    let suggested =
        [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue]
            .into_iter()
            .find_map(|kind| error.get(kind).map(without_hidden))
            .filter(|near| !near.is_empty())
            .map(|near| format!("did you mean {near}?"));
    let why = match (why, suggested) {
        (Some(why), Some(suggested)) => Some(format!("{why}; {suggested}")),
        (why, suggested) => why.or(suggested),
    };
    let usage = context(ContextKind::Usage).map(|usage| usage.trim().replace("Usage:", "usage:"));
    let next = usage.unwrap_or_else(|| format!("see: {command} --help"));
    let meant = context(ContextKind::InvalidSubcommand).and_then(|word| {
        MEANT.iter().find(|(words, _)| words.contains(&word.as_str())).map(|(_, next)| (*next).to_owned())
    });
    let unknown = (error.kind() == ErrorKind::UnknownArgument && command.ends_with(" serve")).then(flag);
    let flag_meant = unknown.and_then(|flag| {
        let (_, next) = FLAGS_MEANT.iter().find(|(flags, _)| flags.contains(&flag.as_str()))?;
        Some((*next).to_owned())
    });
    let next = meant.or(flag_meant).unwrap_or(next);
    Problem { what, place: None, why, next: Some(next) }
}

/// Returns suggestions without the hidden commands.
fn without_hidden(value: &ContextValue) -> String {
    match value {
        ContextValue::Strings(all) => {
            let shown: Vec<_> =
                all.iter().filter(|word| !word.starts_with("__")).map(String::as_str).collect();
            shown.join(", ")
        }
        other => text(other),
    }
}

/// Suggests `pod/etcd-1` for `pod etcd-1`, if the argument follows a word that is not a flag's value.
fn with_slash(line: &[OsString], argument: &str) -> Option<String> {
    let words: Vec<&str> = line.iter().filter_map(|word| word.to_str()).collect();
    let [_, _, kind, ..] = words[..] else { return None };
    let follows = words.windows(2).any(|pair| pair == [kind, argument]);
    (follows && !kind.starts_with('-')).then(|| format!("did you mean {kind}/{argument}?"))
}

fn text(value: &ContextValue) -> String {
    match value {
        ContextValue::Strings(all) => all.join(", "),
        ContextValue::StyledStrs(all) => all.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
        other => other.to_string(),
    }
}

/// Replaces a space at which the parser must not break a line. [`rendered`] restores the spaces.
const HELD: char = '\u{a0}';

/// Returns the parser with a help text in which lines of examples are not wrapped, so that they can be copied.
pub(crate) fn keep_examples_whole(command: clap::Command) -> clap::Command {
    let held = command.get_after_help().map(|help| {
        let text = help.to_string();
        let lines: Vec<_> = text
            .split('\n')
            .map(|line| if line.starts_with("  ") { line.replace(' ', "\u{a0}") } else { line.to_owned() })
            .collect();
        lines.join("\n")
    });
    let command = match held {
        Some(held) => command.after_help(held),
        None => command,
    };
    command.mut_subcommands(keep_examples_whole)
}

/// Returns the parser's text with its spaces restored.
pub(crate) fn rendered(text: &str) -> String {
    text.replace(HELD, " ")
}
