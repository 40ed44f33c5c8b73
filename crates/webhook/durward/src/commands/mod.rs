//! The commands: one module each, with its arguments and a function `run`. `check` is a crate of its own.

pub(crate) mod annotate;
pub(crate) mod certs;
pub(crate) mod config_command;
pub(crate) mod convert;
pub(crate) mod demo;
pub(crate) mod diff;
pub(crate) mod docs;
pub(crate) mod doctor;
pub(crate) mod impact;
pub(crate) mod inject;
pub(crate) mod manifests;
pub(crate) mod review;
pub(crate) mod serve;
pub(crate) mod snapshot;
pub(crate) mod unregister;
pub(crate) mod version;
