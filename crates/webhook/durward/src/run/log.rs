//! Starts the log, and changes its filter while the server runs.

use config::Problem;
use console::output::Style;
use logging::{Handle, LogFormat, parse_filter};

/// Starts logging. Called once per process.
pub(crate) fn start(filter: &str, format: LogFormat) -> Result<Handle, Problem> {
    let targets = parse_filter(filter).map_err(|why| {
        Problem::new(format!("--log-level {filter:?}"))
            .why(why)
            .next("write for instance: info, or info,server=debug")
    })?;
    logging::start(targets, format, Style::stderr().uses_color())
        .map_err(|error| Problem::new("logging cannot be started").why(error.to_string()))
}

/// Replaces the filter by that of a new file.
pub(crate) fn change(handle: &Handle, filter: &str) {
    let changed =
        parse_filter(filter).and_then(|targets| handle.reload(targets).map_err(|error| error.to_string()));
    match changed {
        Ok(()) => tracing::info!(filter, "log filter changed"),
        Err(why) => tracing::error!(filter, reason = why, "the log filter cannot be changed"),
    }
}
