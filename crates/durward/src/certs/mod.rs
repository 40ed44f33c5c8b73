//! Certificates: made for a start and read.
//!
//! Elliptic curve P-256 throughout. A running server reads its files itself; this is for people.

pub(crate) mod door;
mod facts;
mod fit;
mod make;
mod pem;
mod show;
mod sources;
mod time;

use crate::exit::Outcome;

pub(crate) use facts::Facts;
pub(crate) use fit::{is_for, server_name, signs};
pub(crate) use make::{Authority, Names};
pub(crate) use pem::{Pem, bundle};
pub(crate) use time::{days_until, now};

/// `certs`
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Makes an authority and a serving certificate
    #[command(
        after_help = "Example:\n  durward certs new --out certs --service durward.durward-system --address 10.0.0.7\n\nWrites ca.crt, ca.key, tls.crt, tls.key. Keep ca.key where the server does not see it."
    )]
    New(make::Args),
    /// Tells what certificates hold, whether they fit together, and when they end
    #[command(
        after_help = "Examples:\n  durward certs show certs\n  kubectl get mutatingwebhookconfiguration durward -o yaml | durward certs show -\n\nExit code: 0 all well, 1 expired or do not fit, 2 bad input."
    )]
    Show(show::Args),
}

/// `certs`
pub(crate) fn run(command: &Command) -> Outcome {
    match command {
        Command::New(args) => make::new(args),
        Command::Show(args) => show::show(args),
    }
}
