//! The command line: joins the arguments of all commands. Each command owns its arguments and its code.

use std::ffi::OsString;
use std::path::Path;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::exit::Stop;
use crate::{
    certs, config_command, demo, docs, doctor, guards_command, impact, inject, manifests, review, serve,
    snapshot, usage, version,
};

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "durward",
    version,
    about = "Keeper of the Kubernetes API server's door: one admission webhook server, several guards.",
    after_help = "Try it first:\n  durward demo\n\nThen:\n  durward certs new --service durward.durward-system --out tls\n  durward config defaults > durward.yaml\n  durward config check durward.yaml\n  durward serve --config durward.yaml",
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 110
)]
pub(crate) struct Cli {
    /// The command to run.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The command to run.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Shows the whole product in a few seconds: a real server on loopback, real reviews over HTTPS
    #[command(after_help = "Example:\n  durward demo --keep")]
    Demo(demo::Args),
    /// Runs the webhook server
    #[command(
        after_help = "Example:\n  durward serve --config durward.yaml --bind-address 127.0.0.1:8443 --log-format text\n\nSIGHUP reads the configuration again; SIGTERM drains and leaves; a second SIGTERM leaves at once."
    )]
    Serve(serve::Args),
    /// Answers admission reviews without a server
    #[command(
        after_help = "Example:\n  durward review examples/lxcfs/reviews/*.json --config examples/lxcfs/durward.yaml --snapshot examples/lxcfs/healthy -v\n\nExit code: 0 all allowed, 1 something denied, 2 bad input."
    )]
    Review(review::Args),
    /// Prints pods and workloads as they are after the LXCFS guard
    #[command(
        after_help = "Example:\n  durward inject deployment.yaml --config durward.yaml --namespace-labels team=shop --diff\n\nA document that does not change keeps its text. One that does is written anew, in YAML without its comments."
    )]
    Inject(inject::Args),
    /// Tells what a deletion would reach in every cluster, and deletes nothing
    #[command(
        after_help = "Examples:\n  kubectl durward impact ns/shop --kubeconfig karmada-admin.config --config durward.yaml\n  durward impact crd/widgets.example.org --config durward.yaml -o json\n  durward impact ns --all\n\nWithout --config the fleet is found out: Karmada's, if its API answers, or else this cluster alone.\n\nExit code: 0 nothing in use, 1 something in use or unknown (nobody answers), 2 bad input."
    )]
    Impact(impact::Args),
    /// Looks at the live installation and tells what to mend, why, and by which command
    #[command(
        subcommand,
        after_help = "Examples:\n  durward doctor fleet --config durward.yaml\n  durward doctor lxcfs --config durward.yaml\n  kubectl -n durward-system exec deploy/durward -- durward doctor etcd --config /etc/durward/durward.yaml"
    )]
    Doctor(doctor::Command),
    /// Writes what guards see of the clusters to disk, so that their verdict can be replayed
    #[command(
        after_help = "Examples:\n  durward snapshot --out incident ns/shop --config durward.yaml\n  durward impact ns/shop --snapshot incident --config durward.yaml\n  durward doctor etcd --snapshot incident --config durward.yaml\n\nOf etcd ensembles all are recorded that the file names, whatever is named here.\n\nExit code: 0 everything was read, 1 something could not be (it is in the recording as that), 2 bad input, also a name that does not exist."
    )]
    Snapshot(snapshot::Args),
    /// Prints webhook configurations and RBAC for the guards that the file turns on, and with --image what runs Durward
    #[command(
        after_help = "Examples:\n  durward manifests --config durward.yaml | kubectl apply -f -\n  durward manifests --config durward.yaml --image registry.example.com/durward:1 | kubectl apply -f -\n  durward manifests --config durward.yaml --only karmada | kubectl --kubeconfig karmada-admin.config apply -f -\n\nA file whose guards are asked by two API servers, this cluster's and Karmada's, is printed for one at a time: --only cluster, --only karmada."
    )]
    Manifests(manifests::Args),
    /// Tells about the configuration file
    #[command(subcommand, after_help = "Example:\n  durward config check durward.yaml")]
    Config(config_command::Command),
    /// Lists what each guard protects, needs and leaves alone, by default or as a configuration file has it
    #[command(after_help = "Examples:\n  durward guards --config durward.yaml\n  durward guards -o json")]
    Guards(guards_command::Args),
    /// Makes and reads certificates
    #[command(
        subcommand,
        after_help = "Example:\n  durward certs new --out certs --service durward.durward-system\n  durward certs show certs"
    )]
    Certs(certs::Command),
    /// Prints completions for a shell, or for kubectl
    #[command(
        after_help = "Examples:\n  durward completions bash > /etc/bash_completion.d/durward\n  durward completions --kubectl > /usr/local/bin/kubectl_complete-durward && chmod +x /usr/local/bin/kubectl_complete-durward"
    )]
    Completions(docs::CompletionsArgs),
    /// Prints the manual page, or writes one for each command
    #[command(after_help = "Example:\n  durward man --out /usr/local/share/man/man1")]
    Man(docs::ManArgs),
    /// Tells the version
    #[command(after_help = "Example:\n  durward version -o json")]
    Version(version::Args),
    /// Completes a command line for kubectl
    #[command(name = "__complete", hide = true)]
    Complete(docs::CompleteArgs),
}

/// Parses a command line whose first word is the program name.
pub(crate) fn parse(line: &[OsString]) -> Result<Cli, Stop> {
    try_parse(line).map_err(|error| usage::stop(&error, &called(line)))
}

fn try_parse(line: &[OsString]) -> Result<Cli, clap::Error> {
    let parser = usage::keep_examples_whole(command(line.first().map_or(Path::new("durward"), Path::new)));
    Cli::from_arg_matches(&parser.try_get_matches_from(line)?)
}

/// Returns the command that a line names, as far as it exists: `durward doctor fleet`.
fn called(line: &[OsString]) -> String {
    let root = command(line.first().map_or(Path::new("durward"), Path::new));
    let mut called = root.get_bin_name().unwrap_or("durward").to_owned();
    let mut at = &root;
    for word in line.get(1..).unwrap_or_default() {
        let Some(inner) = at.find_subcommand(word) else { break };
        called = format!("{called} {}", inner.get_name());
        at = inner;
    }
    called
}

/// Returns the parser. Called as `kubectl-durward`, it calls itself `kubectl durward` in help and errors.
pub(crate) fn command(program: &Path) -> clap::Command {
    let plugin = program.file_stem().is_some_and(|name| name == "kubectl-durward");
    Cli::command().bin_name(if plugin { "kubectl durward" } else { "durward" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parser_is_valid() {
        command(Path::new("durward")).debug_assert();
    }

    #[test]
    fn never_wraps_examples() {
        fn check(line: &[&str], command: &clap::Command) {
            let asked: Vec<_> = line.iter().chain(&["--help"]).map(Into::into).collect();
            let error = usage::rendered(&try_parse(&asked).unwrap_err().render().to_string());
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for example in help.lines().filter(|line| line.starts_with("  ")) {
                assert!(error.lines().any(|line| line == example), "{example}\nis not whole in\n{error}");
            }
            for inner in command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
                check(&[line, &[inner.get_name()]].concat(), inner);
            }
        }
        check(&["durward"], &command(Path::new("durward")));
    }

    #[test]
    fn every_command_has_an_example() {
        fn check(command: &clap::Command) {
            for inner in command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
                let help = inner.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.contains("Example"), "{} has no example", inner.get_name());
                check(inner);
            }
        }
        check(&command(Path::new("durward")));
    }

    fn error_text(line: &[&str]) -> String {
        let line: Vec<_> = line.iter().map(Into::into).collect();
        parse(&line).unwrap_err().problems[0].to_string()
    }

    #[test]
    fn a_wrong_command_suggests_the_nearest() {
        let error = error_text(&["durward", "srve"]);
        assert!(
            error.starts_with("there is no command \"srve\": did you mean serve?\n    usage: durward"),
            "{error}"
        );
    }

    #[test]
    fn a_command_of_a_later_version_does_not_exist() {
        assert!(error_text(&["durward", "convert"]).starts_with("there is no command \"convert\""));
    }

    #[test]
    fn a_wrong_flag_suggests_the_nearest() {
        let error = error_text(&["durward", "serve", "--config", "f", "--bind-adress", "x"]);
        assert!(
            error.starts_with("there is no flag \"--bind-adress\": did you mean --bind-address?"),
            "{error}"
        );
    }

    #[test]
    fn a_missing_flag_is_named_with_the_usage() {
        let error = error_text(&["durward", "serve"]);
        assert!(error.starts_with("--config <FILE> is missing\n    usage: durward serve"), "{error}");
    }

    #[test]
    fn reports_a_wrong_value_with_the_allowed_values() {
        let error = error_text(&["durward", "review", "-c", "f", "-o", "yaml"]);
        assert!(error.contains("\"yaml\": allowed: text, json"), "{error}");
        let error = error_text(&["durward", "serve", "-c", "f", "--bind-address", "8443"]);
        assert!(error.contains("--bind-address <ADDRESS>: \"8443\": invalid socket address"), "{error}");
    }

    #[test]
    fn names_the_help_of_the_command_for_a_wrong_value() {
        for (line, help) in [
            (&["durward", "impact", "shop"][..], "durward impact --help"),
            (&["durward", "manifests", "-c", "f", "--only", "bogus"], "durward manifests --help"),
            (&["durward", "doctor", "fleet", "-o", "impact"], "durward doctor fleet --help"),
            (&["kubectl-durward", "impact", "shop"], "kubectl durward impact --help"),
        ] {
            let error = error_text(line);
            assert!(error.ends_with(&format!("\n    see: {help}")), "{error}");
        }
        assert!(error_text(&["durward", "impact", "shop"]).contains("did you mean ns/shop?"));
    }

    #[test]
    fn errors_name_kubectl_durward_if_called_by_that_name() {
        assert!(
            error_text(&["/usr/local/bin/kubectl-durward", "serve"]).contains("usage: kubectl durward serve")
        );
    }

    fn words(line: &[&str]) -> Vec<String> {
        let words: Vec<_> = line.iter().map(|&word| word.to_owned()).collect();
        docs::candidates(&words, &command(Path::new("kubectl-durward")))
            .lines()
            .map(|line| line.split('\t').next().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn tab_completes_commands_flags_values_and_files() {
        assert_eq!(words(&["rev"]), ["review", ":4"]);
        assert_eq!(words(&["certs", ""]), ["new", "show", ":4"]);
        assert_eq!(words(&["serve", "--tls-"]), ["--tls-cert", "--tls-key", ":4"]);
        assert_eq!(words(&["review", "-o", ""]), ["text", "json", ":4"]);
        assert_eq!(words(&["review", "--config", ""]), [":0"]);
        assert_eq!(words(&["review", ""]), [":0"]);
        assert_eq!(words(&["completions", "z"]), ["zsh", ":4"]);
        assert!(!words(&[""]).contains(&"__complete".to_owned()));
    }
}
