//! Logs to standard error as JSON or text. The filter can be changed while the server runs.

use std::io;
use std::sync::{Arc, Mutex};

use admission::lock;
use config::Problem;
use console::output::Style;
use server::LogControl;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, Registry, fmt, reload};

use crate::args::LogFormat;

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Starts logging. Called once per process.
pub(crate) fn start(filter: &str, format: LogFormat) -> Result<Arc<dyn LogControl>, Problem> {
    let targets = parse(filter).map_err(|why| {
        Problem::new(format!("--log-level {filter:?}"))
            .why(why)
            .next("write for instance: info, or info,server=debug")
    })?;
    let (filtering, handle) = reload::Layer::new(targets);
    let lines = fmt::layer().with_writer(io::stderr).with_ansi(Style::stderr().uses_color());
    let lines = match format {
        LogFormat::Json => {
            lines.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed()
        }
        LogFormat::Text => lines.boxed(),
    };
    let subscriber = tracing_subscriber::registry().with(lines.with_filter(filtering));
    subscriber
        .try_init()
        .map_err(|error| Problem::new("logging cannot be started").why(error.to_string()))?;
    Ok(Arc::new(Control { handle, filter: Mutex::new(filter.to_owned()) }))
}

struct Control {
    handle: reload::Handle<Targets, Registry>,
    filter: Mutex<String>,
}

impl LogControl for Control {
    fn filter(&self) -> String {
        lock(&self.filter).clone()
    }

    fn set_filter(&self, filter: &str) -> Result<(), String> {
        let targets = parse(filter)?;
        self.handle.reload(targets).map_err(|error| error.to_string())?;
        filter.clone_into(&mut lock(&self.filter));
        Ok(())
    }
}

/// Parses a filter. The library takes an unknown level as the name of a target and enables all its levels, so a typo would
/// silence the rest of the log.
fn parse(filter: &str) -> Result<Targets, String> {
    for part in filter.split(',').map(str::trim) {
        let level = part.split_once('=').map_or(part, |(_, level)| level);
        if !LEVELS.contains(&level.to_ascii_lowercase().as_str()) {
            return Err(format!("{level:?} is not a log level; levels are {}", LEVELS.join(", ")));
        }
    }
    let spaceless: String = filter.chars().filter(|c| !c.is_whitespace()).collect();
    spaceless.parse::<Targets>().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn a_filter_is_a_level_or_a_level_for_a_part() {
        let targets = parse("warn, server=debug").unwrap();
        assert!(targets.would_enable("server::tls", &Level::DEBUG));
        assert!(!targets.would_enable("guards", &Level::INFO));
        assert!(!parse("off").unwrap().would_enable("server", &Level::ERROR));
    }

    #[test]
    fn reports_a_typo_in_a_filter() {
        assert_eq!(
            parse("inof").unwrap_err(),
            "\"inof\" is not a log level; levels are off, error, warn, info, debug, trace"
        );
        assert!(parse("server=loud").is_err());
        assert!(parse("").is_err());
    }
}
