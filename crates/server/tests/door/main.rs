//! The door from outside: every test starts a server on free loopback ports, with a certificate made on the spot, and talks to
//! it over a real TLS connection in hand-written HTTP/1.1.

// Test code may stop at the first thing that is not as it should be.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

mod admin;
mod certificates;
mod deadlines;
mod exits;
mod full;
mod keys;
mod leaving;
mod limits;
mod lines;
mod reviews;
mod start;
mod tls;
