//! Logs to standard error as JSON or text.

use std::io;

use clap::ValueEnum;
pub use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};
use tracing_subscriber::{Layer as _, Registry, fmt, reload};

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum LogFormat {
    /// One JSON object per line
    #[default]
    Json,
    /// Text
    Text,
}

/// A handle that changes the filter while the process runs.
pub type Handle = reload::Handle<Targets, Registry>;

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Starts logging. Called once per process.
pub fn start(filter: Targets, format: LogFormat, uses_color: bool) -> Result<Handle, TryInitError> {
    let (filter, handle) = reload::Layer::new(filter);
    let lines = fmt::layer().with_writer(io::stderr).with_ansi(uses_color);
    let lines = match format {
        LogFormat::Json => {
            lines.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed()
        }
        LogFormat::Text => lines.boxed(),
    };
    tracing_subscriber::registry().with(lines.with_filter(filter)).try_init()?;
    Ok(handle)
}

/// Parses a filter. The library takes an unknown level as the name of a target and enables all its levels, so a typo would
/// silence the rest of the log.
pub fn parse_filter(text: &str) -> Result<Targets, String> {
    for part in text.split(',').map(str::trim) {
        let level = part.split_once('=').map_or(part, |(_, level)| level);
        if !LEVELS.contains(&level.to_ascii_lowercase().as_str()) {
            return Err(format!("{level:?} is not a log level; levels are {}", LEVELS.join(", ")));
        }
    }
    let spaceless: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    spaceless.parse::<Targets>().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn a_filter_is_a_level_or_a_level_for_a_part() {
        let targets = parse_filter("warn, server=debug").unwrap();
        assert!(targets.would_enable("server::tls", &Level::DEBUG));
        assert!(!targets.would_enable("guards", &Level::INFO));
        assert!(!parse_filter("off").unwrap().would_enable("server", &Level::ERROR));
    }

    #[test]
    fn reports_a_typo_in_a_filter() {
        assert_eq!(
            parse_filter("inof").unwrap_err(),
            "\"inof\" is not a log level; levels are off, error, warn, info, debug, trace"
        );
        for text in ["server=loud", ""] {
            assert!(parse_filter(text).is_err(), "{text:?}");
        }
    }
}
