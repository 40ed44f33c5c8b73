//! Runs the commands of documentation pages: the lines with `$` of a page's `console` blocks, unchanged, by bash.
//!
//! `kubectl`, `durward` and the plugin `kubectl-durward` in PATH are those of the run, and they use the case's cluster. The
//! objects in the commands are the page's own examples (`db/etcd-1`, `shop`), which the case creates by these names.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use e2e::binaries::Binary;
use e2e::prelude::*;
use e2e::supervisor::Tool;

/// The time of one command, for example `kubectl delete namespace`, which waits for the end.
const WITHIN: Duration = Duration::from_secs(180);

/// A fenced block of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    /// The last heading before it.
    pub(crate) heading: String,
    pub(crate) language: String,
    pub(crate) text: String,
}

impl Block {
    /// Returns the commands of a `console` block. A line that ends in a backslash continues in the next line.
    pub(crate) fn commands(&self) -> Vec<String> {
        let text = self.text.replace("\\\n", " ");
        let lines = text.lines().filter(|_| self.language == "console");
        lines.filter_map(|line| line.strip_prefix("$ ")).map(ToOwned::to_owned).collect()
    }
}

/// Returns the blocks of a page, `runbooks/override.md` for example. In a list, blocks are indented.
pub(crate) fn blocks(page: &str) -> Result<Vec<Block>> {
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
        Ok(Self { context, cluster, directory: directory.to_owned(), programs })
    }

    /// Runs a command and returns its output, whatever its exit code.
    pub(crate) fn run(&self, command: &str) -> Result<Output> {
        let path = std::env::var("PATH").unwrap_or_default();
        let cache = self.programs.join("cache");
        let tool = Tool::new("page", "bash")
            .arguments(["-euo", "pipefail", "-c", command])
            .directory(&self.directory)
            .environment("PATH", format!("{}:{path}", self.programs.display()))
            .environment("KUBECACHEDIR", cache.display().to_string())
            .environment("KUBECONFIG", self.cluster.kubectl().kubeconfig().display().to_string());
        self.context.supervisor()?.run(tool, WITHIN)
    }

    /// Runs all commands of a page for which `prepare` returns true, and expects success. `prepare` gets the heading and the
    /// command, and brings the cluster into the state that the page describes.
    pub(crate) fn run_page(
        &self,
        page: &str,
        mut prepare: impl FnMut(&str, &str) -> Result<bool>,
    ) -> Result<()> {
        let mut count = 0;
        for block in blocks(page)? {
            for command in block.commands() {
                let place = || format!("docs/src/{page}, {:?}: {command}", block.heading);
                if prepare(&block.heading, &command).with_context(place)? {
                    let output = self.run(&command)?;
                    // The doctor also reports etcd clusters of other cases.
                    if !(command.contains("durward doctor") && output.code() == Some(1)) {
                        output.succeeded().with_context(place)?;
                    }
                    count += 1;
                }
            }
        }
        ensure!(count > 0, "no command of docs/src/{page} was run");
        Ok(())
    }
}
