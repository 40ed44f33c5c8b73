//! Shell completions and man pages, generated from the command line parser.

use std::fs;
use std::path::Path;
use std::path::PathBuf;

use clap_complete::Shell;
use clap_mangen::Man as Page;
use config::Problem;
use console::exit::{Exit, Outcome};
use console::output;

/// `completions`
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    /// Shell
    #[arg(value_enum, required_unless_present = "kubectl")]
    pub(crate) shell: Option<Shell>,
    /// Print the script kubectl_complete-durward, for `kubectl durward`
    #[arg(long, conflicts_with = "shell")]
    pub(crate) kubectl: bool,
}

/// `man`
#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// Write one page per command into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

/// `__complete`
#[derive(Debug, clap::Args)]
pub(crate) struct CompleteArgs {
    /// The words of the command line; the last one is incomplete.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<String>,
}

/// kubectl completes a plugin by running a program named `kubectl_complete-<plugin>` with the words so far
/// (`k8s.io/kubectl/pkg/cmd/plugin/plugin_completion.go`).
const KUBECTL: &str = "#!/bin/sh\n# Completion of `kubectl durward`. Save it as an executable kubectl_complete-durward in the PATH.\nexec kubectl-durward __complete \"$@\"\n";

/// Values of cobra's `ShellCompDirective`: without file names, and with file names.
const ONLY_THESE: &str = ":4";
const FILES: &str = ":0";

/// `completions`
pub(crate) fn completions(args: &CompletionsArgs, mut command: clap::Command) -> Outcome {
    let Some(shell) = args.shell else {
        output::data(KUBECTL)?;
        return Ok(Exit::Done);
    };
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut command, "durward", &mut out);
    output::data(&String::from_utf8_lossy(&out))?;
    Ok(Exit::Done)
}

/// `man`
pub(crate) fn man(args: &ManArgs, mut command: clap::Command) -> Outcome {
    command.build();
    let Some(dir) = &args.out else {
        output::data(&page(command)?)?;
        return Ok(Exit::Done);
    };
    let cannot = |path: &Path, error: std::io::Error| {
        Problem::new(format!("{} cannot be written", path.display())).why(error.to_string())
    };
    fs::create_dir_all(dir).map_err(|error| cannot(dir, error))?;
    let mut written = Vec::new();
    for (name, command) in pages("durward", command) {
        let path = dir.join(format!("{name}.1"));
        fs::write(&path, page(command)?).map_err(|error| cannot(&path, error))?;
        written.push(path.display().to_string());
    }
    output::data(&output::lines(written))?;
    Ok(Exit::Done)
}

/// Returns a page for the command and for each visible subcommand.
fn pages(name: &str, command: clap::Command) -> Vec<(String, clap::Command)> {
    let below: Vec<_> = command
        .get_subcommands()
        .filter(|inner| !inner.is_hide_set() && inner.get_name() != "help")
        .flat_map(|inner| pages(&format!("{name}-{}", inner.get_name()), inner.clone()))
        .collect();
    let own = command.display_name(name.to_owned());
    std::iter::once((name.to_owned(), own)).chain(below).collect()
}

fn page(command: clap::Command) -> Result<String, Problem> {
    let mut out = Vec::new();
    let rendered = Page::new(command).render(&mut out);
    rendered.map_err(|error| Problem::new("the manual page cannot be written").why(error.to_string()))?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// `__complete`
pub(crate) fn complete(args: &CompleteArgs, command: &clap::Command) -> Outcome {
    output::data(&candidates(&args.words, command))?;
    Ok(Exit::Done)
}

/// Returns the candidates for the last word, one a line with its help, and cobra's directive.
pub(crate) fn candidates(words: &[String], root: &clap::Command) -> String {
    let (last, before) =
        words.split_last().map_or(("", [].as_slice()), |(last, before)| (last.as_str(), before));
    let mut command = root;
    for word in before.iter().filter(|word| !word.starts_with('-')) {
        command = command.find_subcommand(word).unwrap_or(command);
    }
    let flag =
        before.last().and_then(|word| named(command, word)).filter(|flag| flag.get_action().takes_values());
    if let Some(flag) = flag {
        let values: Vec<_> = flag
            .get_possible_values()
            .iter()
            .map(|v| (v.get_name().to_owned(), help(v.get_help())))
            .collect();
        return lines(values, last, flag.get_possible_values().is_empty());
    }
    if last.starts_with('-') {
        let flags = command.get_arguments().filter(|flag| !flag.is_hide_set());
        let named = flags.filter_map(|flag| Some((format!("--{}", flag.get_long()?), help(flag.get_help()))));
        return lines(named.collect(), last, false);
    }
    let below = command.get_subcommands().filter(|inner| !inner.is_hide_set());
    let mut found: Vec<_> =
        below.map(|inner| (inner.get_name().to_owned(), help(inner.get_about()))).collect();
    for positional in command.get_positionals() {
        found.extend(
            positional.get_possible_values().iter().map(|v| (v.get_name().to_owned(), help(v.get_help()))),
        );
    }
    let takes_files = found.is_empty() && command.get_positionals().next().is_some();
    lines(found, last, takes_files)
}

/// Returns the flag that a word names.
fn named<'c>(command: &'c clap::Command, word: &str) -> Option<&'c clap::Arg> {
    command.get_arguments().find(|flag| {
        let long = flag.get_long().is_some_and(|long| word.strip_prefix("--") == Some(long));
        long || flag
            .get_short()
            .is_some_and(|short| word.strip_prefix('-') == Some(short.encode_utf8(&mut [0; 4])))
    })
}

fn help(text: Option<&clap::builder::StyledStr>) -> String {
    text.map(ToString::to_string).unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

fn lines(found: Vec<(String, String)>, begin: &str, takes_files: bool) -> String {
    let matching = found.into_iter().filter(|(word, _)| word.starts_with(begin));
    let mut out: String = matching
        .map(|(word, help)| if help.is_empty() { format!("{word}\n") } else { format!("{word}\t{help}\n") })
        .collect();
    out.push_str(if takes_files { FILES } else { ONLY_THESE });
    out.push('\n');
    out
}
