//! The etcd guard on real ensembles, of three lines of etcd, in a real API server.
//!
//! Each case has an ensemble of its own: members are processes on loopback addresses, their pods are objects
//! that carry those addresses ([`e2e::ensemble`]).

pub(crate) mod ensembles;
