//! The etcd guard with real etcd clusters of three releases and a real API server.
//!
//! Each case has its own etcd cluster. Members are processes on loopback addresses, and their pods are objects with
//! these addresses ([`e2e::etcd_cluster`]).

mod clusters;
mod commands;
pub(in crate::cases) mod configuration;
mod drain;
pub(in crate::cases) mod environment;
mod leader;
mod outage;
pub(in crate::cases) mod quorum;
pub(in crate::cases) mod requests;
mod reservations;
pub(in crate::cases) mod teardown;
mod trust;
