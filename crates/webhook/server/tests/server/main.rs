//! Tests of a running server. Each starts one on free loopback ports with a new certificate, and sends HTTP/1.1 over TLS.

// A test can stop at the first failure.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

mod admin;
mod certificates;
mod connection_limit;
mod deadlines;
mod keys;
mod limits;
mod log;
mod refusals;
mod reviews;
mod shutdown;
mod start;
mod tls;
