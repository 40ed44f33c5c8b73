//! kube-scheduler, as it comes.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;

use super::Ground;
use crate::controlplane::Cluster;
use crate::keeper::{Keeper, Part, Tool};
use crate::parts::Binary;

/// Starts it, and waits for nothing: a pod that is there before it is scheduled when it comes.
pub(super) fn start(keeper: &Arc<Keeper>, ground: &Arc<Ground>, cluster: &Cluster) -> Result<Part> {
    let user = cluster.certified("system:kube-scheduler", None)?;
    let tool = Tool::new("kube-scheduler", Binary::Scheduler.path(keeper)?)
        .grace(Duration::ZERO)
        .flag("kubeconfig", user.kubectl.kubeconfig().display())
        .flag("leader-elect", false)
        .flag("secure-port", 0);
    keeper.start_part(ground.in_network(tool))
}
