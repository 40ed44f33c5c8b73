//! Command `serve`: starts the server with the guards of the configuration file, and runs until a signal.

use std::path::PathBuf;

use config::Problem;
use console::exit::{Outcome, Stop};
#[cfg(unix)]
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::args::{ClusterArgs, LogArgs, ServerArgs};
use crate::file::{File, Purpose};
use crate::run::log;
use crate::run::serve::start;

/// `serve`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Configuration file
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: PathBuf,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

/// `serve`
pub(crate) fn run(args: &Args) -> Outcome {
    let purpose = Purpose::Serving {
        cert_given: args.server.tls_cert.is_some(),
        key_given: args.server.tls_key.is_some(),
    };
    let file = File::load(&args.config, purpose)?;
    let log = log::start(args.log.level.as_ref().unwrap_or(&file.log), args.log.format)?;
    #[cfg(unix)]
    raise_open_files();
    let runtime = runtime()?;
    let (server, cluster) = (args.server.clone(), args.cluster.clone());
    // `block_on` polls its future on the main thread, so each new connection would wake a worker and the main thread. A task needs only
    // a worker.
    let server = runtime.spawn(async move { start((&server, &cluster), purpose, file, log).await });
    let outcome = runtime
        .block_on(server)
        .unwrap_or_else(|error| Err(Stop::fault(Problem::new("the server failed").why(error.to_string()))));
    // A file read that hangs must not keep the process from exiting.
    runtime.shutdown_background();
    outcome
}

/// Raises the limit of open files to the highest one that the process may set, as every program in Go does. Each connection needs a
/// file, and some systems allow only 1,024 at first.
#[cfg(unix)]
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::debug!(reason = %error, "the limit of open files stays as it is");
    }
}

/// Creates a runtime with as many threads as the cgroup quota allows, which the standard library counts.
fn runtime() -> Result<tokio::runtime::Runtime, Stop> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("durward")
        .build()
        .map_err(|error| Stop::fault(Problem::new("cannot start threads").why(error.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raises_the_limit_of_open_files() {
        let limit = getrlimit(Resource::Nofile);
        let less = limit.maximum.map(|maximum| maximum - 1);
        setrlimit(Resource::Nofile, Rlimit { current: less, ..limit }).unwrap();
        raise_open_files();
        assert_eq!(getrlimit(Resource::Nofile).current, limit.maximum);
    }
}
