//! The door under load: CPU per review and p99 beside a bare hyper + rustls echo of the same bytes, and resident memory.
//!
//! Both servers run as processes of their own, pinned to the same core, one after another in several rounds; the load comes
//! from the other core. CPU time is the kernel's own count for the server's threads. A figure past its limit ends the run
//! with exit code 1.
//!
//! `make bench`, or `cargo build --release -p durward && cargo run --release -p durward-bench`

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark's output is its product")]

mod echo;
mod load;
mod memory;
mod peer;
mod review;
mod speed;

use std::error::Error;
use std::process::{Command, ExitCode};

/// Errors end the run; nobody handles them.
type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// The core that servers get, and the one that the load comes from.
const SERVER_CORE: &str = "0";
const LOAD_CORE: &str = "1";

fn main() -> ExitCode {
    let done = match std::env::args().nth(1).as_deref() {
        Some("echo") => echo::serve(),
        Some("measure") => measure(),
        None => pinned(),
        Some(other) => Err(format!("{other:?} is none of: echo, measure, or nothing").into()),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::from(2)
        }
    }
}

/// Starts the measuring on its own core.
fn pinned() -> Result<bool> {
    let own = std::env::current_exe()?;
    let status = Command::new("taskset").args(["-c", LOAD_CORE]).arg(own).arg("measure").status();
    Ok(status.map_err(|error| format!("taskset (package util-linux) did not start: {error}"))?.success())
}

fn measure() -> Result<bool> {
    let folder = peer::Folder::new()?;
    let speed = speed::measure(&folder)?;
    let memory = memory::measure(&folder)?;
    Ok(speed && memory)
}
