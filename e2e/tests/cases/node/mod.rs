//! What needs pods that run: cases on the one-node cluster.

pub(crate) mod basics;
