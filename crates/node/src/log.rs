//! Log lines on standard error.

use std::io;

use clap::{Args, ValueEnum};
use config::Problem;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, fmt};

/// Flags of the log.
#[derive(Debug, Clone, Args)]
pub(crate) struct LogFlags {
    /// Log level: error, warn, info, debug, trace; per module: info,node=debug
    #[arg(long = "log-level", value_name = "FILTER", default_value = "info,kube_client=off", value_parser = parse_filter)]
    filter: Targets,
    /// Log format
    #[arg(long = "log-format", value_enum, default_value_t, value_name = "FORMAT")]
    format: LogFormat,
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum LogFormat {
    /// One JSON object a line.
    #[default]
    Json,
    /// Plain text.
    Text,
}

impl LogFlags {
    /// Starts logging; called once per process.
    pub(crate) fn start(&self) -> Result<(), Vec<Problem>> {
        let lines = fmt::layer().with_writer(io::stderr).with_ansi(false);
        let lines = match self.format {
            LogFormat::Json => {
                lines.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed()
            }
            LogFormat::Text => lines.boxed(),
        };
        tracing_subscriber::registry()
            .with(lines.with_filter(self.filter.clone()))
            .try_init()
            .map_err(|error| vec![Problem::new("could not start logging").why(error.to_string())])
    }
}

/// Rejects unknown levels: [`Targets`] takes any other word for the name of a module, so a typing error would turn the log off.
fn parse_filter(text: &str) -> Result<Targets, String> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    for part in text.split(',').map(str::trim) {
        let level = part.split_once('=').map_or(part, |(_, level)| level);
        if !LEVELS.contains(&level.to_ascii_lowercase().as_str()) {
            return Err(format!("{level:?} is not a log level (one of {})", LEVELS.join(", ")));
        }
    }
    text.replace(char::is_whitespace, "").parse().map_err(|error| format!("{error}"))
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn a_filter_is_a_level_or_a_level_per_module() {
        let filter = parse_filter("warn, node=debug").unwrap();
        assert!(filter.would_enable("node::label", &Level::DEBUG));
        assert!(!filter.would_enable("guards", &Level::INFO));
        for (text, level) in [("inof", "inof"), ("node=loud", "loud"), ("", "")] {
            let error = parse_filter(text).unwrap_err();
            assert!(error.starts_with(&format!("{level:?} is not a log level")), "{error}");
        }
    }
}
