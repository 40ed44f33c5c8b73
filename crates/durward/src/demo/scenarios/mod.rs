//! Scenarios, one file for each guard.

pub(super) mod deletion;
pub(super) mod etcd;
pub(super) mod lxcfs;
