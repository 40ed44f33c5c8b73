//! The flags of the log.

use clap::Args;
use config::Problem;
use logging::{LogFormat, Targets, parse_filter};

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

impl LogFlags {
    /// Starts logging; called once per process.
    pub(crate) fn start(&self) -> Result<(), Vec<Problem>> {
        logging::start(self.filter.clone(), self.format, false)
            .map(drop)
            .map_err(|error| vec![Problem::new("could not start logging").why(error.to_string())])
    }
}
