//! The binary `durward-node`: arguments in, log lines, sockets and exit code out.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code, including the helpers")]

mod device_plugin;
mod harness;
mod label;
