//! Tests of the binary: arguments in; standard output, standard error and exit code out.
#![allow(clippy::unwrap_used, clippy::panic, reason = "all of this is a test, its helpers included")]

mod annotate;
mod audit;
mod certs;
mod check;
mod check_bad_crds;
mod check_bad_input;
mod check_built_in;
mod check_cases;
mod check_custom_resources;
mod check_definitions;
mod check_facts;
mod check_recorded;
mod check_strangers;
mod check_strict;
mod commands;
mod configuration;
mod convert;
mod diff;
mod diff_live;
mod doctor;
mod etcd;
mod fleet;
mod harness;
mod in_use;
mod inject;
mod lxcfs;
mod manifests;
mod pages;
mod paths;
mod reload;
mod removal;
mod review;
mod schema;
mod serve;
