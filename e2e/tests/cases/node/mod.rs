//! The node of the tests itself: pods run on it, and nothing of it remains on the host.

mod kubelet;
mod local_cluster;
mod lxcfs;
mod pods;
