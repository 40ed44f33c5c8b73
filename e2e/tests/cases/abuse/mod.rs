//! Attacks, each by a client with only the access that it needs.

mod client_certificates;
mod deletion;
mod deletion_strangers;
mod etcd_operations;
mod etcd_strangers;
mod etcd_variants;
mod install;
mod overrides;
pub(super) mod server;

use e2e::controlplane::User;
use e2e::prelude::*;

use super::objects::allow;

/// Returns a user who can do nothing but this to objects of one API group. The user and the role have the same name.
fn user_with(
    cluster: &Cluster,
    name: &str,
    group: &str,
    (resources, verbs): (&[&str], &[&str]),
) -> Result<User> {
    let rules = json!([{"apiGroups": [group], "resources": resources, "verbs": verbs}]);
    allow(cluster, name, &rules, name)?;
    cluster.user(name, &[])
}
