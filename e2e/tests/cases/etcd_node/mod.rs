//! The etcd guard on a real node, where members run in pods of a `StatefulSet` and a kubelet ends them, with
//! Durward in pods too.
//!
//! The etcd clusters of the room `etcd` are processes whose end the case decides. Here it is seen what an end costs
//! those who use the etcd cluster, and that what people wrote for etcd ten years ago is guarded as it stands.

pub(crate) mod document;
pub(crate) mod rolling;

mod house;
