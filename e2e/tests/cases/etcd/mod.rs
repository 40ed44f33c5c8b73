//! The etcd guard on real etcd clusters, of three lines of etcd, in a real API server.
//!
//! Each case has an etcd cluster of its own: members are processes on loopback addresses, their pods are objects
//! that carry those addresses ([`e2e::etcd cluster`]).

pub(crate) mod beforehand;
pub(crate) mod down;
pub(crate) mod drain;
pub(crate) mod ensembles;
pub(crate) mod leader;
pub(crate) mod quorum;
pub(crate) mod reservations;
pub(crate) mod stances;
pub(crate) mod teardown;
pub(crate) mod trust;

pub(in crate::cases) mod house;

mod attempt;
