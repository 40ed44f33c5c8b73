//! Runs the commands of documentation pages: the lines with `$` of a page's `console` blocks, by bash. The lines below a
//! command must be in its output.
//!
//! `kubectl`, `durward` and the plugin `kubectl-durward` in PATH are those of the run, and they use the case's cluster. The
//! objects in the commands are the page's own examples (`db/etcd-1`, `shop`), which the case creates by these names.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use e2e::binaries::Binary;
use e2e::prelude::*;
use e2e::supervisor::Tool;
use regex::Regex;

use super::objects::contains_all;

/// The time of one command, for example `kubectl delete namespace`, which waits for the end.
const WITHIN: Duration = Duration::from_secs(180);

/// How often a busy machine can be late with the answer that a page shows.
const LATE: u32 = 9;

/// A fenced block of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Block {
    /// The last heading before it.
    heading: String,
    language: String,
    text: String,
}

impl Block {
    /// Returns the commands of a `console` block, each with the output below it. A line that ends in a backslash continues
    /// in the next line.
    fn commands(&self) -> Vec<(String, Vec<String>)> {
        let text = self.text.replace("\\\n", " ");
        let mut commands: Vec<(String, Vec<String>)> = Vec::new();
        for line in text.lines().filter(|_| self.language == "console") {
            if let Some(command) = line.strip_prefix("$ ") {
                commands.push((command.to_owned(), Vec::new()));
            } else if let Some((_, output)) = commands.last_mut() {
                output.push(line.to_owned());
            }
        }
        commands
    }
}

/// The expected end of a command of a page.
pub(crate) enum Expect {
    /// Exit code 0 and the output on the page.
    Success,
    /// Exit code 1 and the output on the page.
    Failure,
    /// Exit code 1, and this text in the output.
    Report(&'static str),
    /// No finding of the doctor about objects with this text in their name. It also reports objects of other cases, with
    /// exit code 1.
    NoFinding(&'static str),
    /// The case runs the command itself, or can't run it.
    Skip,
}

impl Expect {
    fn check(&self, output: Output, page: &[String]) -> Result<()> {
        let text = format!("{}{}", output.stdout, output.stderr);
        let findings: Vec<&str> = text.lines().filter(|line| line.starts_with("- ")).collect();
        match self {
            Self::Report(expected) => {
                output.exited_with(1)?;
                contains_all(&text, &[expected])
            }
            Self::NoFinding(name) if output.code() == Some(1) && !findings.is_empty() => {
                let is_named = findings.iter().any(|finding| finding.contains(name));
                ensure!(!is_named, "a finding names {name}: {text}");
                Ok(())
            }
            Self::Failure => {
                output.exited_with(1)?;
                shows(&text, page)
            }
            Self::Success | Self::NoFinding(_) | Self::Skip => {
                output.succeeded()?;
                shows(&text, page)
            }
        }
    }
}

/// Expects the lines of a page in this order in an output. `…` stands for other lines, and in a line for other text. Only times differ from run to run, and
/// the order of the errors of an object, which the API server lists as `* spec: …`.
fn shows(output: &str, page: &[String]) -> Result<()> {
    static TIMES: Lazy<Regex> = Lazy::new();
    let times = TIMES.get(|| Ok(Regex::new(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|\d+ days\b")?))?;
    let line = |line: &str| times.replace_all(line.trim(), "TIME").into_owned();
    let printed: Vec<String> = output.lines().map(line).collect();
    let mut lines = printed.iter();
    let mut shown = page.iter().filter(|line| line.trim() != "…").map(|shown| line(shown));
    let missing = shown.find(|shown| {
        if shown.starts_with("* ") {
            !printed.contains(shown)
        } else {
            !lines.any(|printed| is_like(printed, shown))
        }
    });
    ensure!(missing.is_none(), "the page has the line {missing:?}, and the output is {output}");
    Ok(())
}

/// Returns whether a line is the line of a page, in which `…` stands for any text.
fn is_like(printed: &str, shown: &str) -> bool {
    let mut parts = shown.split('…');
    let begin = parts.next().unwrap_or_default();
    let Some(mut rest) = printed.strip_prefix(begin) else { return false };
    let Some(end) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(end)
}

/// Returns the first block in this language below a heading of a page.
pub(crate) fn block(page: &str, language: &str, heading: &str) -> Result<String> {
    let mut blocks = blocks(page)?.into_iter();
    let block = blocks.find(|block| block.language == language && block.heading == heading);
    Ok(block.with_context(|| format!("docs/src/{page} has no {language} below {heading:?}"))?.text)
}

/// Returns the commands below a heading of a page.
pub(crate) fn commands(page: &str, heading: &str) -> Result<Vec<String>> {
    let blocks = blocks(page)?.into_iter().filter(|block| block.heading == heading);
    Ok(blocks.flat_map(|block| block.commands()).map(|(command, _)| command).collect())
}

/// Returns the blocks of a page, `runbooks/override.md` for example. In a list, blocks are indented.
fn blocks(page: &str) -> Result<Vec<Block>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src").join(page);
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let (mut blocks, mut heading) = (Vec::new(), String::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let indent = line.len() - line.trim_start().len();
        if let Some(language) = line.trim_start().strip_prefix("```") {
            let block = lines.by_ref().take_while(|line| line.trim() != "```");
            let text: String = block.flat_map(|line| [line.get(indent..).unwrap_or(""), "\n"]).collect();
            blocks.push(Block { heading: heading.clone(), language: language.to_owned(), text });
        } else if line.starts_with('#') {
            line.trim_start_matches(['#', ' ']).clone_into(&mut heading);
        }
    }
    Ok(blocks)
}

/// A directory and a PATH to run commands in.
pub(crate) struct Shell<'a> {
    context: &'a TestContext,
    cluster: &'a Cluster,
    directory: PathBuf,
    programs: PathBuf,
    /// The process whose network and files the commands use, instead of those of this host.
    machine: Option<i32>,
}

impl<'a> Shell<'a> {
    /// Makes a shell in this directory, which has the files that the page refers to.
    pub(crate) fn new(context: &'a TestContext, cluster: &'a Cluster, directory: &Path) -> Result<Self> {
        let programs = context.directory("programs")?;
        let durward = context.durward_program()?;
        let kubectl = Binary::Kubectl.path(&context.supervisor()?)?;
        for (name, program) in [("kubectl", &kubectl), ("durward", &durward), ("kubectl-durward", &durward)] {
            symlink(program, programs.join(name))?;
        }
        Ok(Self { context, cluster, directory: directory.to_owned(), programs, machine: None })
    }

    /// Runs commands with the network and the files of a process, in `/etc/durward` if it exists. `systemctl` is this program.
    pub(crate) fn on(mut self, machine: i32, systemctl: &Path) -> Result<Self> {
        symlink(systemctl, self.programs.join("systemctl"))?;
        self.machine = Some(machine);
        Ok(self)
    }

    /// Adds the pinned Helm to PATH, and the chart of this checkout to the directory.
    pub(crate) fn with_helm(self) -> Result<Self> {
        symlink(Binary::Helm.path(&self.context.supervisor()?)?, self.programs.join("helm"))?;
        symlink(Helm::chart().parent().context("the chart has no parent")?, self.directory.join("charts"))?;
        Ok(self)
    }

    /// Runs a command and returns its output, whatever its exit code.
    pub(crate) fn run(&self, command: &str) -> Result<Output> {
        let path = std::env::var("PATH").unwrap_or_default();
        let cache = self.programs.join("cache");
        let tool = match self.machine {
            None => Tool::new("page", "bash").arguments(["-euo", "pipefail", "-c", command]),
            Some(pid) => Tool::new("page", "nsenter")
                .arguments([&format!("--target={pid}"), "--net", "--mount", "bash", "-euo", "pipefail", "-c"])
                .argument(format!("cd /etc/durward 2>/dev/null || cd /\n{command}")),
        };
        let tool = tool
            .directory(&self.directory)
            .environment("PATH", format!("{}:{path}", self.programs.display()))
            .environment("KUBECACHEDIR", cache.display().to_string())
            .environment("KUBECONFIG", self.cluster.kubectl().kubeconfig().display().to_string());
        self.context.supervisor()?.run(tool, WITHIN)
    }

    /// Applies the webhook configurations again, as the page [Durward is down](../docs/src/runbooks/durward-down.md) does.
    pub(crate) fn restore_webhooks(&self) -> Result<()> {
        let command = "durward manifests --config durward.yaml --only webhooks | kubectl apply -f -";
        self.run(command)?.succeeded().map(drop)
    }

    /// Runs a command, and again if it is denied because a busy machine did not answer in time.
    fn run_in_time(&self, command: &str, expected: &Expect) -> Result<Output> {
        for _ in 0..LATE {
            let printed = self.run(command)?;
            let has_page = matches!(expected, Expect::Success | Expect::Failure);
            if !has_page || printed.is_success() || !printed.stderr.contains("no answer in ") {
                return Ok(printed);
            }
        }
        self.run(command)
    }

    /// Runs the commands of a page. `prepare` gets the heading and the command. It brings the cluster into the state that the
    /// page describes, replaces placeholders in the command, and returns the expected result.
    pub(crate) fn run_page(
        &self,
        page: &str,
        mut prepare: impl FnMut(&str, &mut String) -> Result<Expect>,
    ) -> Result<()> {
        let mut count = 0;
        for block in blocks(page)? {
            for (mut command, output) in block.commands() {
                let place = format!("docs/src/{page}, {:?}: {command}", block.heading);
                let expected = prepare(&block.heading, &mut command).with_context(|| place.clone())?;
                if !matches!(expected, Expect::Skip) {
                    let result = self.run_in_time(&command, &expected);
                    result.and_then(|printed| expected.check(printed, &output)).context(place)?;
                    count += 1;
                }
            }
        }
        ensure!(count > 0, "no command of docs/src/{page} was run");
        Ok(())
    }
}
