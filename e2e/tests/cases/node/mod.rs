//! What needs pods that run: cases on the one-node cluster.

pub(crate) mod basics;
pub(crate) mod kubelet;
pub(crate) mod local_cluster;
pub(crate) mod lxcfs;
