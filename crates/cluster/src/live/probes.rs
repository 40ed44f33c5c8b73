//! Health probes: once a minute, one object of each kind that guards read is requested from each cluster. A missing permission
//! or a revoked token is then noticed before a deletion needs it.
//!
//! Probes use the path and verb of a review: a `SelfSubjectAccessReview` through Karmada's proxy is a POST and needs another
//! permission. A cluster that fails does not make Durward unready, since every replica sees the same failure.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use admission::Cause;
use futures_util::StreamExt as _;
use futures_util::stream;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::fleet_client::FleetClient;
use super::pool::Priority;
use crate::fleet::{Cluster, ClusterHealth, Fleet, ListQuery, ProbeTargets};
use crate::{Resource, cause, lock};

/// A revoked token is refused after about a minute, so more probes would not notice it earlier.
const INTERVAL: Duration = Duration::from_secs(60);

/// For each request of a probe, and for the list of the fleet.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Clusters that are probed at once: as many as there are permits for probes.
const CONCURRENCY: usize = 32;

/// Log lines for one round of probes: if the network fails, thousands of clusters fail for the same reason.
const MAX_LOG_LINES: usize = 20;

/// Runs the probes and keeps their last results. Dropping it stops them.
#[derive(Default)]
pub(super) struct Prober(Mutex<Option<Probes>>);

/// The probes of some targets.
struct Probes {
    targets: ProbeTargets,
    task: AbortHandle,
    health: Arc<Mutex<Vec<ClusterHealth>>>,
}

impl Drop for Probes {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Prober {
    /// Replaces the targets. Probes of the same targets continue.
    pub(super) fn start(&self, targets: ProbeTargets, fleet: Arc<FleetClient>, runtime: &Handle) {
        let mut probes = lock(&self.0);
        if probes.as_ref().is_some_and(|probes| probes.targets == targets) {
            return;
        }
        let health = Arc::default();
        let task = runtime.spawn(run(targets.clone(), fleet, Arc::clone(&health))).abort_handle();
        *probes = Some(Probes { targets, task, health });
    }

    pub(super) fn health(&self) -> Vec<ClusterHealth> {
        lock(&self.0).as_ref().map(|probes| lock(&probes.health).clone()).unwrap_or_default()
    }
}

async fn run(targets: ProbeTargets, fleet: Arc<FleetClient>, health: Arc<Mutex<Vec<ClusterHealth>>>) {
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let new = probe_all(&targets, &fleet).await;
        log_changes(&std::mem::replace(&mut *lock(&health), new.clone()), &new);
    }
}

/// Probes every cluster. The local one is the first.
async fn probe_all(targets: &ProbeTargets, fleet: &FleetClient) -> Vec<ClusterHealth> {
    let mut clusters = vec![Cluster::Local];
    let list_failure = match fleet.members(&targets.fleet, Instant::now() + TIMEOUT).await {
        Ok(members) => {
            clusters.extend(members.iter().map(|member| member.cluster.clone()));
            None
        }
        Err(cause) => Some(cause),
    };
    let probes = clusters.into_iter().enumerate();
    let probes = probes.map(async |(at, of)| (at, probe(of, &targets.resources, fleet).await));
    // Unordered, since a cluster that hangs would delay the start of the next.
    let mut health: Vec<_> = stream::iter(probes).buffer_unordered(CONCURRENCY).collect().await;
    health.sort_by_key(|(at, _)| *at);
    let mut health: Vec<ClusterHealth> = health.into_iter().map(|(_, health)| health).collect();
    if let (Some(cause), Some(local)) = (list_failure, health.first_mut()) {
        let resource = match targets.fleet {
            Fleet::Secrets { .. } => Resource::SECRETS,
            Fleet::None | Fleet::Karmada | Fleet::Contexts(_) => Resource::CLUSTERS,
        };
        local.failures.insert(0, (resource, cause));
    }
    health
}

async fn probe(of: Cluster, resources: &[Resource], fleet: &FleetClient) -> ClusterHealth {
    let mut failures: Vec<(Resource, Cause)> = Vec::new();
    for resource in resources {
        // If the cluster itself fails, each further kind would take its whole timeout.
        let last = failures.last().map(|(_, cause)| cause).filter(|cause| cause::is_of_cluster(cause.code));
        let answer = if let Some(cause) = last {
            Err(cause.clone())
        } else {
            let query = ListQuery { limit: 1, ..ListQuery::new(resource) };
            fleet.list(&of, query, Priority::Probe, Instant::now() + TIMEOUT).await
        };
        if let Err(cause) = answer {
            failures.push((resource.clone(), cause));
        }
    }
    ClusterHealth { cluster: of.name().to_owned(), failures }
}

/// Logs the clusters whose health changed.
fn log_changes(old: &[ClusterHealth], new: &[ClusterHealth]) {
    let codes = |health: &ClusterHealth| -> Vec<(Resource, &'static str)> {
        health.failures.iter().map(|(resource, cause)| (resource.clone(), cause.code)).collect()
    };
    let before: HashMap<&str, _> =
        old.iter().map(|health| (health.cluster.as_str(), codes(health))).collect();
    let is_changed = |health: &&ClusterHealth| {
        before.get(health.cluster.as_str()).cloned().unwrap_or_default() != codes(health)
    };
    let changed: Vec<&ClusterHealth> = new.iter().filter(is_changed).collect();
    for health in changed.iter().take(MAX_LOG_LINES) {
        match health.failures.first() {
            None => tracing::info!(cluster = health.cluster, "cluster can be read again"),
            Some((resource, cause)) => tracing::warn!(
                cluster = health.cluster,
                cause = cause.code,
                kinds = health.failures.len(),
                "{resource} cannot be read: {}",
                cause.text
            ),
        }
    }
    if changed.len() > MAX_LOG_LINES {
        tracing::warn!("the health of {} more clusters changed", changed.len() - MAX_LOG_LINES);
    }
}
