//! Binary `durward`: runs the command that the command line names.

mod args;
mod certificates;
mod cli;
mod clients;
mod commands;
mod documents;
mod file;
#[cfg(test)]
mod reference;
mod registration;
mod run;
mod usage;

use std::path::Path;
use std::process::ExitCode;

use console::exit::{Outcome, Stop};
use console::output;

use cli::{Cli, Command};
use commands::{
    annotate, certs, config_command, convert, demo, diff, docs, doctor, impact, inject, manifests, review,
    serve, snapshot, unregister, version,
};

fn main() -> ExitCode {
    // TLS needs one crypto provider for the process. The call fails only if the provider is installed already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let line: Vec<_> = std::env::args_os().collect();
    let outcome = cli::parse(&line).and_then(run);
    let exit = outcome.unwrap_or_else(|Stop { exit, problems }| {
        output::problems(&problems);
        exit
    });
    ExitCode::from(exit.code())
}

fn run(cli: Cli) -> Outcome {
    if cli.quiet {
        output::be_quiet();
    }
    let parser = || cli::command(Path::new("durward"));
    match cli.command {
        Command::Demo(args) => demo::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Convert(command) => convert::run(&command),
        Command::Diff(command) => diff::run(&command),
        Command::Review(args) => review::run(&args),
        Command::Inject(args) => inject::run(&args),
        Command::Impact(args) => impact::run(&args),
        Command::Override(args) => annotate::run_override(&args),
        Command::Acknowledge(args) => annotate::run_acknowledge(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Snapshot(args) => snapshot::run(&args),
        Command::Manifests(args) => manifests::run(&args),
        Command::Unregister(args) => unregister::run(&args),
        Command::Config(command) => config_command::run(&command),
        Command::Certs(command) => certs::run(&command),
        Command::Completions(args) => docs::completions(&args, parser()),
        Command::Man(args) => docs::man(&args, parser()),
        Command::Version(args) => version::run(&args),
        Command::Complete(args) => docs::complete(&args, &cli::command(Path::new("kubectl-durward"))),
    }
}
