//! Keeps Durward's webhook configurations and the Secret of its CA up to date in API servers, with the permissions for that.

pub(crate) mod permissions;
pub(crate) mod secret;
pub(crate) mod self_managed;
pub(crate) mod unregister;
pub(crate) mod webhooks;

use std::path::Path;

use cluster::live::Access;

/// The file that the kubelet mounts into every pod with a service account.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// Returns how to reach the cluster where Durward runs: the cluster of the pod, or else the one that guards read.
pub(crate) fn home(common: &Access) -> Access {
    let is_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() && Path::new(TOKEN).exists();
    if is_pod { Access::default() } else { common.clone() }
}
