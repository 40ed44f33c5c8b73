//! The cluster's DNS: `CoreDNS` as a process in the node's network, at the address that pods use.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use super::{DNS, Sandbox};
use crate::binaries::Binary;
use crate::certificates::write;
use crate::controlplane::Cluster;
use crate::daemon::{Daemon, accepts};
use crate::supervisor::{Supervisor, Tool};
use crate::wait::{Poll, eventually};

/// Its user.
const USER: &str = "system:coredns";

/// It takes a second on an idle machine.
const PERMITTED_WITHIN: Duration = Duration::from_secs(60);

/// Starts it and waits for nothing. It listens when it has read the cluster's Services.
pub(super) fn start(
    supervisor: &Arc<Supervisor>,
    sandbox: &Arc<Sandbox>,
    cluster: &Cluster,
) -> Result<Daemon> {
    permit(cluster)?;
    let directory = sandbox.directory().join("coredns");
    let user = cluster.certified(USER, None)?;
    // Tests use the node's own address.
    let config = format!(
        ".:53 {{\n  bind {DNS} {}\n  errors\n  kubernetes cluster.local in-addr.arpa {{\n    kubeconfig {}\n    pods insecure\n    ttl 1\n  }}\n}}\n",
        sandbox.address(),
        user.kubectl.kubeconfig().display()
    );
    let config = write(&directory, "Corefile", &config)?;
    let tool = Tool::new("coredns", Binary::CoreDns.path(supervisor)?)
        .grace(Duration::ZERO)
        .argument("-conf")
        .argument(config.display().to_string());
    Daemon::start(supervisor, sandbox.in_network(tool), accepts((sandbox.address(), 53)))
}

/// Gives it its permissions, and reserves its address by a Service.
fn permit(cluster: &Cluster) -> Result<()> {
    let objects = [
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": USER},
            "rules": [
                {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
                {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
            ],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": USER},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": USER},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}],
        }),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "kube-dns", "namespace": "kube-system"},
            "spec": {"clusterIP": DNS, "ports": [
                {"name": "dns", "port": 53, "protocol": "UDP"},
                {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
            ]},
        }),
    ];
    let paths = [
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        "/api/v1/namespaces/kube-system/services",
    ];
    for (path, object) in paths.iter().zip(&objects) {
        // A new API server can lack kube-system and the range of Service addresses for a moment.
        eventually(format_args!("what CoreDNS needs at {path}"), PERMITTED_WITHIN, || {
            let answer = cluster.api().create(path, object)?;
            Ok(if answer.is_success() { Poll::Ready(()) } else { Poll::Pending(answer.message().to_owned()) })
        })?;
    }
    Ok(())
}
