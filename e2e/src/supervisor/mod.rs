//! The supervisor: one process beside the tests that starts every other process and ends it, whatever happens to
//! the tests.
//!
//! A test that panics, is interrupted or is killed cannot clean up after itself. The supervisor can: it holds the
//! reading end of a pipe whose writing end only the test process has, and when that closes it ends every
//! part, gives back what it took from the host (addresses on the loopback device, cgroups, links into network
//! namespaces) and removes the run's folder. It stands in a session of its own, so Ctrl-C does not reach it. Before it starts anything it
//! writes it down; if the supervisor itself is killed, the next run reads that journal and does the rest
//! ([`journal`]).
//!
//! - [`order`]: what is said over the pipe, one JSON document per line
//! - [`house`]: the supervisor's side, and the whole of the `e2e-supervisor` binary
//! - [`client`]: the tests' side
//! - [`journal`], [`process`]: what is written down, and how a process is known again
//! - `loopback`, `cgroup`, `link`: what is taken from the host, and how it is given back
//! - [`host`]: what this host looks like, for a comparison of before and after

mod cgroup;
mod child;
pub mod client;
pub mod host_state;
pub mod journal;
mod link;
mod loopback;
pub mod process;
pub mod program;
pub mod protocol;

pub(crate) use cgroup::lack as cgroup_lack;
pub use client::{Output, Process, Supervisor, Tool};
pub use protocol::Exit;
