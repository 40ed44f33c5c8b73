//! The binary as people run it: arguments in, standard output, standard error and exit code out.

mod certs;
mod commands;
mod configuration;
mod harness;
mod inject;
mod manifests;
mod reload;
mod review;
mod serve;
