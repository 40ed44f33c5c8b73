//! The etcd guard on a real node: members run in pods of a `StatefulSet`, and Durward runs in pods too.
//!
//! In the area `etcd` the case ends members itself. Here a kubelet ends them, and the cases measure what this costs
//! the clients of etcd. One case deploys a manifest that many documents copy, and others follow the runbooks.

mod environment;
mod random_deletions;
mod rolling_update;
mod runbooks;
mod upstream_manifest;
