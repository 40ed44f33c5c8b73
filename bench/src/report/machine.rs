//! The circumstances of a run: machine, commit, date, and load at its start.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// The circumstances of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) hardware: String,
    pub(crate) software: String,
    pub(crate) commit: String,
    pub(crate) date: String,
    /// The load averages at the start: a machine without other work has less than 1 for the first minute.
    pub(crate) load: String,
}

impl Machine {
    pub(crate) fn now() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let field = |path: &str, key: &str| {
            let text = read(path);
            let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default();
            line.split_once(':').map_or("", |(_, value)| value.trim()).to_owned()
        };
        let memory = field("/proc/meminfo", "MemTotal");
        let kib: f64 = memory.split_whitespace().next().and_then(|kib| kib.parse().ok()).unwrap_or_default();
        let commit = output("git", &["rev-parse", "--short=12", "HEAD"]);
        let changes =
            if output("git", &["status", "--porcelain"]).is_empty() { "" } else { ", with changes" };
        Self {
            // This process can run on one of the processors only.
            hardware: format!(
                "{} cores of {}, {:.0} GiB",
                output("getconf", &["_NPROCESSORS_ONLN"]),
                field("/proc/cpuinfo", "model name"),
                kib / 1024.0 / 1024.0
            ),
            software: format!(
                "Linux {}, {}, {}",
                read("/proc/sys/kernel/osrelease").trim(),
                output("rustc", &["--version"]),
                output("go", &["env", "GOVERSION"])
            ),
            commit: format!("{commit}{changes}"),
            date: output("date", &["-u", "+%Y-%m-%d"]),
            load: read("/proc/loadavg").split_whitespace().take(3).collect::<Vec<_>>().join(" "),
        }
    }
}

/// Returns the output of a command in this directory, or nothing if it fails.
fn output(program: &str, arguments: &[&str]) -> String {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(program).args(arguments).current_dir(directory).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}
