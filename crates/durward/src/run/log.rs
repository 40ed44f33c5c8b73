//! Starts the log, and changes its filter while the server runs.

use std::sync::{Arc, Mutex};

use admission::lock;
use config::Problem;
use console::output::Style;
use logging::{Handle, LogFormat, parse_filter};
use server::LogControl;

/// Starts logging. Called once per process.
pub(crate) fn start(filter: &str, format: LogFormat) -> Result<Arc<dyn LogControl>, Problem> {
    let targets = parse_filter(filter).map_err(|why| {
        Problem::new(format!("--log-level {filter:?}"))
            .why(why)
            .next("write for instance: info, or info,server=debug")
    })?;
    let handle = logging::start(targets, format, Style::stderr().uses_color())
        .map_err(|error| Problem::new("logging cannot be started").why(error.to_string()))?;
    Ok(Arc::new(Control { handle, filter: Mutex::new(filter.to_owned()) }))
}

struct Control {
    handle: Handle,
    filter: Mutex<String>,
}

impl LogControl for Control {
    fn filter(&self) -> String {
        lock(&self.filter).clone()
    }

    fn set_filter(&self, filter: &str) -> Result<(), String> {
        let targets = parse_filter(filter)?;
        self.handle.reload(targets).map_err(|error| error.to_string())?;
        filter.clone_into(&mut lock(&self.filter));
        Ok(())
    }
}
