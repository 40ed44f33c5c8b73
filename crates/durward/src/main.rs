//! `durward`: the command line, the configuration file, and the assembly of guards, world and server.

mod certs;
mod cli;
mod config_command;
mod demo;
mod docs;
mod doctor;
mod documents;
mod ensembles;
mod exit;
mod file;
mod fleet;
mod guards_command;
mod impact;
mod inject;
mod input;
mod log;
mod lxcfs;
mod manifests;
mod output;
mod plan;
mod reload;
mod review;
mod rounds;
mod serve;
mod snapshot;
mod usage;
mod version;
mod world;
mod worlds;

use std::process::ExitCode;

use cli::{Certs, Cli, Command, Doctor};
use exit::{Outcome, Stop};

fn main() -> ExitCode {
    // One provider for the whole process, before anything speaks TLS; it can only be there already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let line: Vec<_> = std::env::args_os().collect();
    let parsed = cli::parse(&line).map_err(|error| usage::stop(&error, &cli::called(&line)));
    let outcome = parsed.and_then(run);
    let exit = outcome.unwrap_or_else(|Stop { exit, problems }| {
        output::problems(&problems);
        exit
    });
    ExitCode::from(exit.code())
}

fn run(cli: Cli) -> Outcome {
    match cli.command {
        Command::Demo(args) => demo::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Review(args) => review::run(&args),
        Command::Inject(args) => inject::run(&args),
        Command::Impact(args) => impact::run(&args),
        Command::Doctor(Doctor::Fleet(args)) => doctor::fleet(&args),
        Command::Doctor(Doctor::Etcd(args)) => doctor::etcd(&args),
        Command::Doctor(Doctor::Lxcfs(args)) => doctor::lxcfs(&args),
        Command::Snapshot(args) => snapshot::run(&args),
        Command::LxcfsDevice(args) => lxcfs::device(&args),
        Command::LxcfsNode(args) => lxcfs::node(&args),
        Command::Manifests(args) => manifests::run(&args),
        Command::Config(args) => config_command::run(&args),
        Command::Guards(args) => guards_command::run(&args),
        Command::Certs(Certs::New(args)) => certs::new(&args),
        Command::Certs(Certs::Show(args)) => certs::show(&args),
        Command::Completions(args) => docs::completions(&args),
        Command::Man(args) => docs::man(&args),
        Command::Version(args) => version::run(&args),
        Command::Complete(args) => docs::complete(&args),
    }
}
