//! The circumstances of a run: machine, commit, date, and load at its start.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// The circumstances of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) memory: String,
    pub(crate) kernel: String,
    pub(crate) rust: String,
    pub(crate) go: String,
    pub(crate) commit: String,
    pub(crate) date: String,
    /// The load averages at the start: a machine without other work has less than 1 for the first minute.
    pub(crate) load: String,
}

impl Machine {
    pub(crate) fn now() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, key: &str| {
            let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default();
            line.split_once(':').map_or("", |(_, value)| value.trim()).to_owned()
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal");
        let gib =
            memory.split_whitespace().next().and_then(|kib| kib.parse::<f64>().ok()).unwrap_or_default();
        let changed = !output("git", &["status", "--porcelain"]).is_empty();
        let commit = output("git", &["rev-parse", "--short=12", "HEAD"]);
        Self {
            cpu: field(&read("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(0, usize::from).max(online()),
            memory: format!("{:.0} GiB", gib / 1024.0 / 1024.0),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            rust: rustc(),
            go: output("go", &["env", "GOVERSION"]),
            commit: if changed { format!("{commit}, with uncommitted changes") } else { commit },
            date: output("date", &["-u", "+%Y-%m-%d"]),
            load: read("/proc/loadavg").split_whitespace().take(3).collect::<Vec<_>>().join(" "),
        }
    }
}

/// Returns the version of rustc: `1.95.0`.
pub(crate) fn rustc() -> String {
    output("rustc", &["--version"]).split_whitespace().nth(1).unwrap_or_default().to_owned()
}

/// Returns the number of processors. This process can run on one of them only.
fn online() -> usize {
    output("getconf", &["_NPROCESSORS_ONLN"]).parse().unwrap_or_default()
}

/// Returns the output of a command in this directory, or nothing if it fails.
fn output(program: &str, arguments: &[&str]) -> String {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(program).args(arguments).current_dir(directory).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}
