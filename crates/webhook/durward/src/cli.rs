//! The command line: joins the arguments of all commands. Each command owns its arguments and its code.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use console::exit::Stop;

use crate::commands::{
    annotate, certs, config_command, convert, demo, diff, docs, doctor, impact, inject, manifests, review,
    serve, snapshot, unregister, version,
};
use crate::usage;

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "durward",
    version,
    about = "Stop Kubernetes deletions that would cause an outage",
    after_help = "Try it:\n  durward demo\n\nInstall it in a cluster (the chart creates and renews the certificates):\n  durward config init --guard deletion --chart --kubeconfig FILE > values.yaml\n  helm install durward charts/durward --namespace durward-system --create-namespace --values values.yaml --wait\n\nRun it without a cluster:\n  durward config init --guard deletion > durward.yaml\n  durward certs new --service durward.durward-system --out tls\n  durward config check durward.yaml\n  durward serve --config durward.yaml",
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 110
)]
pub(crate) struct Cli {
    /// Print results and errors only, no notes
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    /// The command to run.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The command to run.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a self-contained demo on localhost (no cluster needed)
    #[command(
        after_help = "Examples:\n  durward demo\n  durward demo --keep\n  cargo run -- demo\n\nThe last one builds it first, in a clone of the repository.\n\nExit code: 0 every verdict as expected, 1 otherwise, 2 bad input."
    )]
    Demo(demo::Args),
    /// Run the webhook server
    #[command(
        after_help = "Example:\n  durward serve --config durward.yaml --bind-address 127.0.0.1:8443 --log-format text\n\nSignals: SIGHUP reloads the configuration, SIGTERM drains and stops, a second SIGTERM stops at once.\n\nExit code: 0 stopped by a signal, 1 fault, 2 bad configuration."
    )]
    Serve(serve::Args),
    /// Check manifests against policies and CRDs, without a cluster
    #[command(
        after_help = "Examples:\n  durward check manifests/ policies/\n  helm template shop/ | durward check - --with policies/ -n shop\n  durward check manifests/ --with policies/ --old ../main/manifests -o text -o json=report.json\n\nThe command evaluates ValidatingAdmissionPolicies with their bindings as an API server of this version does. It checks custom resources with the schemas and rules of their CRDs. It checks CRDs as the API server does when they are created, or updated with --old. It checks only the structure of built-in kinds. It needs no cluster.\n\nExit code: 0 pass, 1 violations, 2 bad input, 3 could not decide."
    )]
    Check(check::Args),
    /// Convert CRDs to a version that API servers accept
    #[command(
        subcommand,
        after_help = "Example:\n  durward convert crd examples/kubernetesclusters/crd-v1beta1.yaml\n\nKubernetes 1.22 removed CRDs of apiextensions.k8s.io/v1beta1."
    )]
    Convert(convert::ConvertCommand),
    /// Show which changes of a CRD break existing objects
    #[command(
        subcommand,
        after_help = "Example:\n  durward diff crd examples/kubernetesclusters/crd.yaml examples/kubernetesclusters/crd-undeclared.yaml\n\nThe exit code is that of the subcommand."
    )]
    Diff(diff::DiffCommand),
    /// Evaluate AdmissionReview files offline
    #[command(
        after_help = "Example:\n  durward review examples/lxcfs/reviews/*.json --config examples/lxcfs/durward.yaml --snapshot examples/lxcfs/healthy -v\n\nExit code: 0 all allowed, 1 denied, 2 bad input, 3 could not check."
    )]
    Review(review::Args),
    /// Show manifests with LXCFS mounts added
    #[command(
        after_help = "Example:\n  durward inject deployment.yaml --config durward.yaml --namespace-labels team=shop --diff\n\nA document that does not change keeps its text. Comments of a changed YAML document are lost.\n\nExit code: 0 also if --diff prints a diff, 2 bad input."
    )]
    Inject(inject::Args),
    /// Show what a deletion, or a change of manifests, would remove
    #[command(
        after_help = "Examples:\n  kubectl durward impact ns/shop --kubeconfig karmada-admin.config --config durward.yaml\n  durward impact crd/widgets.example.org --config durward.yaml -o json\n  durward impact ns shop web\n  durward impact ns -l team=shop -o name\n  durward impact --diff examples/deletion/change/old examples/deletion/change/new --snapshot examples/deletion/healthy\n  kubectl durward impact --all -o html > fleet.html\n\n--diff needs rendered manifests. It reports namespaces and CRDs that only OLD has, and what Argo CD deletes with Applications and ApplicationSets that only OLD has.\n\nWithout --config, the command detects whether the cluster is a Karmada control plane.\n\nExit code: 0 nothing in use, 1 in use, 2 bad input, 3 could not check."
    )]
    Impact(impact::Args),
    /// Allow one deletion that a guard denies
    #[command(
        after_help = "Examples:\n  durward override ns/shop --reason 'moved to m9' --for 2h\n  durward override pod/etcd-1 -n db --reason 'disk is gone' --for 30m --dry-run\n  durward override configmaps/app -n shop --reason 'moved' --for 2h --dry-run\n  durward override --list\n  durward override ns/shop --remove\n\nThe command sets annotations that last at most 24 hours. They have no effect if the guard has overrides: permission. Then a user with the verb break-glass on guards.durward.dev sets the annotation durward.dev/break-glass=NAME, which does not expire.\n\nExit code: 0 done, 1 could not annotate or list, 2 bad input."
    )]
    Override(annotate::OverrideArgs),
    /// Stop an unreachable member cluster from blocking deletions
    #[command(
        after_help = "Examples:\n  durward acknowledge m5 --reason 'link cut, ticket 81' --for 7d --kubeconfig karmada-admin.config\n  durward acknowledge m3 m7 --reason 'power work' --for 12h\n  durward acknowledge m3 --remove\n\nThe command sets annotations on each Cluster that last at most 30 days.\n\nExit code: 0 done, 1 could not annotate or list, 2 bad input."
    )]
    Acknowledge(annotate::AcknowledgeArgs),
    /// Check a running installation and suggest fixes
    #[command(
        after_help = "Examples:\n  kubectl durward doctor -n durward-system\n  kubectl durward doctor etcd -n durward-system --watch\n  durward doctor etcd --snapshot incident --config durward.yaml\n  durward doctor lxcfs --local\n  durward doctor audit --audit-log examples/audit/audit.log\n\nWith -n, kubectl runs it in Durward's pod. It checks the permissions of the account that it uses, and etcd members can be unreachable from elsewhere. It changes nothing. Without --config it detects the fleet, and expects the defaults of lxcfs. The part audit runs only if you name it, and needs your kubeconfig or audit logs.\n\nExit code: 0 no problems, 1 problems found (audit: something would be denied), 2 bad input, 3 a part could not be checked."
    )]
    Doctor(doctor::Args),
    /// Record cluster state to replay a decision elsewhere
    #[command(
        after_help = "Examples:\n  durward snapshot --out incident ns/shop --config durward.yaml\n  durward impact ns/shop --snapshot incident --config durward.yaml\n  durward doctor etcd --snapshot incident --config durward.yaml\n\nAll etcd clusters of the configuration are always recorded.\n\nExit code: 0 everything was read, 1 something could not be read (the snapshot says what), 2 bad input."
    )]
    Snapshot(snapshot::Args),
    /// Print webhook configurations and permissions
    #[command(
        after_help = "Examples:\n  durward manifests --config durward.yaml --only rbac | kubectl apply -f -\n  durward manifests --config durward.yaml --only webhooks | kubectl apply -f -\n  durward manifests --config durward.yaml --target karmada --only rbac,members | kubectl --kubeconfig karmada-admin.config apply -f -\n\nApply the webhook configuration last, when Durward is ready: the API server then begins to call it. If guards run on two API servers, print the manifests of each: --target cluster, --target karmada."
    )]
    Manifests(manifests::Args),
    /// Delete Durward's webhooks and policies in API servers
    #[command(
        after_help = "Example:\n  durward unregister --config durward.yaml\n\nAPI servers then don't call Durward any more, and a running Durward creates none of these objects again. The command can be repeated.\n\nExit code: 0 removed, 1 could not remove, 2 bad input."
    )]
    Unregister(unregister::Args),
    /// Create and check the configuration file
    #[command(
        subcommand,
        after_help = "Examples:\n  durward config init --guard deletion > durward.yaml\n  durward config check durward.yaml"
    )]
    Config(config_command::ConfigCommand),
    /// Create certificates
    #[command(
        subcommand,
        after_help = "Examples:\n  durward certs new --service durward.durward-system --out tls\n  durward certs csr --signer example.com/serving --service durward.durward-system --out tls"
    )]
    Certs(certs::CertsCommand),
    /// Print shell completions
    #[command(
        alias = "completion",
        after_help = "Examples:\n  durward completions bash > /etc/bash_completion.d/durward\n  durward completions --kubectl > /usr/local/bin/kubectl_complete-durward"
    )]
    Completions(docs::CompletionsArgs),
    /// Print the manual pages
    #[command(after_help = "Example:\n  durward man --out /usr/local/share/man/man1")]
    Man(docs::ManArgs),
    /// Print the version
    #[command(after_help = "Example:\n  durward version -o json")]
    Version(version::Args),
    /// Completes a command line for kubectl
    #[command(name = "__complete", hide = true)]
    Complete(docs::CompleteArgs),
}

/// The commands in the groups of `--help`.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Everyday", &["impact", "check", "diff", "override", "acknowledge", "doctor"]),
    ("More", &["review", "inject", "convert", "snapshot", "unregister"]),
    ("Setup", &["demo", "config", "certs", "manifests"]),
    ("Server", &["serve"]),
    ("Other", &["completions", "man", "version"]),
];

/// Replaces the flat list of commands in the help by groups.
fn with_groups(command: clap::Command) -> clap::Command {
    let mut groups = String::new();
    for (title, names) in GROUPS {
        // Writing to a `String` cannot fail.
        let _ = writeln!(groups, "{title}:");
        for inner in names.iter().filter_map(|name| command.find_subcommand(name)) {
            let about = inner.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(groups, "  {:<12} {about}", inner.get_name());
        }
        groups.push('\n');
    }
    let template =
        format!("{{about}}\n\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}{{after-help}}");
    command.help_template(template)
}

/// Parses a command line whose first word is the program name.
pub(crate) fn parse(line: &[OsString]) -> Result<Cli, Stop> {
    try_parse(line).map_err(|error| usage::stop(&error, &called(line), line))
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
    with_groups(Cli::command()).bin_name(if plugin { "kubectl durward" } else { "durward" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parser_is_valid() {
        command(Path::new("durward")).debug_assert();
    }

    #[test]
    fn every_command_is_in_one_group() {
        let command = command(Path::new("durward"));
        for inner in command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
            let groups = GROUPS.iter().filter(|(_, names)| names.contains(&inner.get_name()));
            assert_eq!(groups.count(), 1, "{}", inner.get_name());
        }
    }

    #[test]
    fn help_texts_are_short_and_imperative() {
        fn check(command: &clap::Command, judge: &dyn Fn(String, String)) {
            for inner in command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
                let name = format!("{} {}", command.get_name(), inner.get_name());
                judge(name.clone(), inner.get_about().map(ToString::to_string).unwrap_or_default());
                for argument in inner.get_arguments().filter(|argument| !argument.is_hide_set()) {
                    let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
                    judge(format!("{name} {}", argument.get_id()), help);
                }
                check(inner, judge);
            }
        }
        let descriptive =
            ["Prints", "Shows", "Tells", "Lists", "Writes", "Makes", "Runs", "Creates", "The ", "A "];
        let wrong = std::cell::RefCell::new(Vec::new());
        check(&command(Path::new("durward")), &|name, help| {
            let is_short = (1..=70).contains(&help.chars().count()) && !help.ends_with('.');
            let begins = help.starts_with(|c: char| c.is_uppercase() || c == '-');
            if !is_short || !begins || descriptive.iter().any(|word| help.starts_with(word)) {
                wrong.borrow_mut().push(format!("{name}: {help}"));
            }
        });
        assert_eq!(wrong.into_inner(), [""; 0]);
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
            error.starts_with("unknown command \"srve\": did you mean serve?\n    usage: durward"),
            "{error}"
        );
    }

    #[test]
    fn suggests_no_hidden_command_and_knows_completion() {
        let error = error_text(&["durward", "completio"]);
        assert!(error.contains("did you mean") && !error.contains("__complete"), "{error}");
        let line = ["durward", "completion", "bash"].map(Into::into);
        assert!(matches!(parse(&line).unwrap().command, Command::Completions(_)));
    }

    #[test]
    fn a_command_of_a_later_version_does_not_exist() {
        assert!(error_text(&["durward", "test"]).starts_with("unknown command \"test\""));
    }

    #[test]
    fn a_wrong_flag_suggests_the_nearest() {
        let error = error_text(&["durward", "serve", "--config", "f", "--bind-adress", "x"]);
        assert!(error.starts_with("unknown flag \"--bind-adress\": did you mean --bind-address?"), "{error}");
    }

    #[test]
    fn a_missing_flag_is_named_with_the_usage() {
        let error = error_text(&["durward", "serve"]);
        assert!(error.starts_with("--config <FILE> is required\n    usage: durward serve"), "{error}");
    }

    #[test]
    fn reports_a_wrong_value_with_the_allowed_values() {
        let error = error_text(&["durward", "review", "-c", "f", "-o", "xml"]);
        assert!(
            error.contains("invalid value \"xml\" for --output <FORMAT>: must be one of: text, json, yaml"),
            "{error}"
        );
        let error = error_text(&["durward", "serve", "-c", "f", "--bind-address", "8443"]);
        assert!(
            error.contains("invalid value \"8443\" for --bind-address <ADDRESS>: invalid socket address"),
            "{error}"
        );
    }

    #[test]
    fn names_the_help_of_the_command_for_a_wrong_value() {
        for (line, help) in [
            (&["durward", "impact", "ns/Shop"][..], "durward impact --help"),
            (&["durward", "manifests", "-c", "f", "--only", "bogus"], "durward manifests --help"),
            (&["durward", "doctor", "fleet", "-o", "impact"], "durward doctor --help"),
            (&["kubectl-durward", "impact", "ns/Shop"], "kubectl durward impact --help"),
        ] {
            let error = error_text(line);
            assert!(error.ends_with(&format!("\n    see: {help}")), "{error}");
        }
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
        assert_eq!(words(&["certs", ""]), ["new", "csr", ":4"]);
        assert_eq!(words(&["serve", "--tls-"]), ["--tls-cert", "--tls-key", ":4"]);
        assert_eq!(words(&["review", "-o", ""]), ["text", "json", "yaml", ":4"]);
        assert_eq!(words(&["review", "--config", ""]), [":0"]);
        assert_eq!(words(&["review", ""]), [":0"]);
        assert_eq!(words(&["completions", "z"]), ["zsh", ":4"]);
        assert!(!words(&[""]).contains(&"__complete".to_owned()));
    }
}
