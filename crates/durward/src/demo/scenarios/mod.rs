//! A file for each guard.

pub(super) mod lxcfs;
