//! kube-scheduler with its defaults.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;

use super::Sandbox;
use crate::binaries::Binary;
use crate::controlplane::Cluster;
use crate::supervisor::{Process, Supervisor, Tool};

/// Starts it and waits for nothing.
pub(super) fn start(
    supervisor: &Arc<Supervisor>,
    sandbox: &Arc<Sandbox>,
    cluster: &Cluster,
) -> Result<Process> {
    let user = cluster.certified("system:kube-scheduler", None)?;
    let tool = Tool::new("kube-scheduler", Binary::Scheduler.path(supervisor)?)
        .grace(Duration::ZERO)
        .flag("kubeconfig", user.kubectl.kubeconfig().display())
        .flag("leader-elect", false)
        .flag("secure-port", 0);
    supervisor.start_process(sandbox.in_network(tool))
}
