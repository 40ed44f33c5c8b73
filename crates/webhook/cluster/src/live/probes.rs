//! Health probes: once a minute, one namespace is requested from each cluster. A revoked token or an unreachable cluster is then noticed
//! before a deletion needs it.
//!
//! A cluster that fails does not make Durward unready, since every replica sees the same failure.

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
use crate::fleet::{Cluster, ClusterHealth, Fleet, ListQuery};
use crate::{Resource, lock};

/// A revoked token is refused after about a minute, so more probes would not notice it earlier.
const INTERVAL: Duration = Duration::from_secs(60);

/// For each request of a probe, and for the list of the fleet.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Clusters that are probed at once, so that probes take few of the permits for requests.
const CONCURRENCY: usize = 32;

/// Log lines for one round of probes: if the network fails, thousands of clusters fail for the same reason.
const MAX_LOG_LINES: usize = 20;

/// Runs the probes and keeps their last results. Dropping it stops them.
#[derive(Default)]
pub(super) struct FleetProber(Mutex<Option<Probes>>);

/// The probes of a fleet.
struct Probes {
    of: Fleet,
    task: AbortHandle,
    health: Arc<Mutex<Vec<ClusterHealth>>>,
}

impl Drop for Probes {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FleetProber {
    /// Probes another fleet, or none. Probes of the same fleet continue.
    pub(super) fn start(&self, of: Option<Fleet>, client: &Arc<FleetClient>, runtime: &Handle) {
        let mut probes = lock(&self.0);
        if probes.as_ref().map(|probes| &probes.of) == of.as_ref() {
            return;
        }
        *probes = of.map(|of| {
            let health = Arc::default();
            let task = runtime.spawn(run(of.clone(), Arc::clone(client), Arc::clone(&health)));
            Probes { of, task: task.abort_handle(), health }
        });
    }

    pub(super) fn health(&self) -> Vec<ClusterHealth> {
        lock(&self.0).as_ref().map(|probes| lock(&probes.health).clone()).unwrap_or_default()
    }
}

async fn run(of: Fleet, client: Arc<FleetClient>, health: Arc<Mutex<Vec<ClusterHealth>>>) {
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let new = probe_all(&of, &client).await;
        log_changes(&std::mem::replace(&mut *lock(&health), new.clone()), &new);
    }
}

/// Probes every cluster. The local one is the first. A fleet that can't be listed is a failure of it.
async fn probe_all(of: &Fleet, client: &FleetClient) -> Vec<ClusterHealth> {
    let mut clusters = vec![Cluster::Local];
    let list_failure = match client.members(of, Instant::now() + TIMEOUT).await {
        Ok(members) => {
            clusters.extend(members.iter().map(|member| member.cluster.clone()));
            None
        }
        Err(cause) => Some(cause),
    };
    let probes = clusters.into_iter().enumerate();
    let probes = probes.map(async |(at, of)| (at, probe(of, client).await));
    // Unordered, since a cluster that hangs would delay the start of the next.
    let mut health: Vec<_> = stream::iter(probes).buffer_unordered(CONCURRENCY).collect().await;
    health.sort_by_key(|(at, _)| *at);
    let mut health: Vec<ClusterHealth> = health.into_iter().map(|(_, health)| health).collect();
    if let (Some(cause), Some(local)) = (list_failure, health.first_mut()) {
        local.failure = Some(cause);
    }
    health
}

async fn probe(of: Cluster, client: &FleetClient) -> ClusterHealth {
    let query = ListQuery { limit: 1, ..ListQuery::new(&Resource::NAMESPACES) };
    let failure = client.list(&of, query, Instant::now() + TIMEOUT).await.err();
    ClusterHealth { cluster: of.name().to_owned(), failure }
}

/// Logs the clusters whose health changed.
fn log_changes(old: &[ClusterHealth], new: &[ClusterHealth]) {
    let code = |health: &ClusterHealth| health.failure.as_ref().map(|cause: &Cause| cause.code);
    let before: HashMap<&str, _> = old.iter().map(|health| (health.cluster.as_str(), code(health))).collect();
    let is_changed = |health: &&ClusterHealth| {
        before.get(health.cluster.as_str()).copied().unwrap_or_default() != code(health)
    };
    let changed: Vec<&ClusterHealth> = new.iter().filter(is_changed).collect();
    for health in changed.iter().take(MAX_LOG_LINES) {
        let cluster = health.cluster.as_str();
        match &health.failure {
            None => tracing::info!(cluster, "cluster can be read again"),
            Some(cause) => {
                tracing::warn!(cluster, cause = cause.code, "cluster cannot be read: {}", cause.text);
            }
        }
    }
    if changed.len() > MAX_LOG_LINES {
        tracing::warn!("the health of {} more clusters changed", changed.len() - MAX_LOG_LINES);
    }
}
