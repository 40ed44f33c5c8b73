//! Runs a program on the core of measured processes.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Result, SERVER_CORE, kernel, pinned};

/// Time between two reads of the memory.
const INTERVAL: Duration = Duration::from_millis(1);

/// A command line. Exit codes 0 and 1 are results: without and with violations.
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    /// The file for standard output.
    pub(crate) output: PathBuf,
}

impl Program {
    /// Returns the time from start to exit.
    pub(crate) fn time(&self) -> Result<Duration> {
        let start = Instant::now();
        let mut child = self.command()?.spawn().map_err(|error| not_started(&error))?;
        let status = child.wait()?;
        let time = start.elapsed();
        self.succeeded(status.code())?;
        Ok(time)
    }

    /// Returns the peak resident memory in bytes. This run is not timed, because reading the memory disturbs it.
    pub(crate) fn peak(&self) -> Result<f64> {
        let mut child = self.command()?.spawn().map_err(|error| not_started(&error))?;
        let process = child.id().to_string();
        let mut peak = 0.0;
        let status = loop {
            // A process that has exited has no memory. Before `taskset` starts the program, the memory is that of `taskset`.
            peak = kernel::peak(&process).unwrap_or(0.0).max(peak);
            if let Some(status) = child.try_wait()? {
                break status;
            }
            std::thread::sleep(INTERVAL);
        };
        self.succeeded(status.code())?;
        Ok(peak)
    }

    fn command(&self) -> Result<Command> {
        let mut command = pinned(SERVER_CORE, &self.path);
        command.args(&self.arguments);
        command.stdin(Stdio::null()).stdout(File::create(&self.output)?).stderr(File::create(self.errors())?);
        Ok(command)
    }

    /// The file for standard error.
    fn errors(&self) -> PathBuf {
        self.output.with_extension("errors")
    }

    fn succeeded(&self, code: Option<i32>) -> Result<()> {
        if matches!(code, Some(0 | 1)) {
            return Ok(());
        }
        let errors = std::fs::read_to_string(self.errors())?;
        let name = self.path.file_name().map_or(self.path.as_path(), Path::new);
        Err(format!("{} ended with {code:?}: {errors}", name.display()).into())
    }
}

fn not_started(error: &std::io::Error) -> String {
    format!("taskset (package util-linux) did not start: {error}")
}
