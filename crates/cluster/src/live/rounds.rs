//! Every minute each cluster is asked for one object of each kind that guards read there, so that a missing permission or a
//! revoked token is seen before somebody deletes something.
//!
//! By the same path and the same verb as a review's questions: a `SelfSubjectAccessReview` through Karmada's proxy is a POST and
//! needs another permission. A cluster that fails does not make Durward unready: every replica sees the same one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use admission::Cause;
use futures_util::StreamExt as _;
use futures_util::stream;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::clusters::Clusters;
use super::lanes::For;
use crate::fleet::{Cluster, ClusterHealth, Fleet, ListQuery, Part, ProbeTargets};
use crate::{Resource, cause};

/// As often as Karmada's own look at members would be noticed late: a token is revoked for about a minute before it bites.
const EVERY: Duration = Duration::from_secs(60);

/// For each question of a round, and for the list of the fleet.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Clusters that are asked at once, as many as rounds have places.
const AT_ONCE: usize = 32;

/// Lines in the log for one round: when the network breaks, five thousand clusters fail for the same reason.
const LINES: usize = 20;

/// The rounds that are being made, and how the last one went.
#[derive(Default)]
pub(super) struct Keeper {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    rounds: Option<ProbeTargets>,
    task: Option<AbortHandle>,
    /// Which rounds these are: a round of earlier ones that ends late has nothing to say.
    generation: u64,
    health: Vec<ClusterHealth>,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = &state.task {
            task.abort();
        }
    }
}

impl Keeper {
    /// Makes these rounds from now on. The same ones go on as they are.
    pub(super) fn go(&self, rounds: ProbeTargets, clusters: Arc<Clusters>, runtime: &Handle) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.rounds.as_ref() == Some(&rounds) {
            return;
        }
        if let Some(task) = state.task.take() {
            task.abort();
        }
        state.generation += 1;
        state.health.clear();
        state.rounds = Some(rounds.clone());
        let task = keep(rounds, clusters, Arc::clone(&self.state), state.generation);
        state.task = Some(runtime.spawn(task).abort_handle());
    }

    pub(super) fn health(&self) -> Vec<ClusterHealth> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).health.clone()
    }
}

async fn keep(rounds: ProbeTargets, clusters: Arc<Clusters>, state: Arc<Mutex<State>>, generation: u64) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let health = round(&rounds, &clusters).await;
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.generation != generation {
            return;
        }
        let old = std::mem::replace(&mut state.health, health);
        tell(&old, &state.health);
    }
}

/// One round. Here is a cluster too, and the first.
async fn round(rounds: &ProbeTargets, clusters: &Clusters) -> Vec<ClusterHealth> {
    let mut whom = vec![Cluster::Local];
    let members = clusters.members(&rounds.fleet, Instant::now() + ANSWER_WITHIN).await;
    let unlisted = match members {
        Ok(members) => {
            whom.extend(members.iter().map(|member| member.cluster.clone()));
            None
        }
        Err(cause) => Some(cause),
    };
    let asked = whom.into_iter().enumerate();
    let asked = asked.map(async |(at, of)| (at, visit(of, &rounds.resources, clusters).await));
    // Not in their order: one that hangs would keep the next ones from being begun.
    let mut visited: Vec<(usize, ClusterHealth)> =
        stream::iter(asked).buffer_unordered(AT_ONCE).collect().await;
    visited.sort_by_key(|(at, _)| *at);
    let mut health: Vec<ClusterHealth> = visited.into_iter().map(|(_, health)| health).collect();
    if let (Some(cause), Some(here)) = (unlisted, health.first_mut()) {
        here.failures.insert(0, (list_of(&rounds.fleet), cause));
    }
    health
}

/// What a fleet is a list of.
fn list_of(fleet: &Fleet) -> Resource {
    match fleet {
        Fleet::Secrets { .. } => Resource::SECRETS,
        Fleet::None | Fleet::Karmada | Fleet::Contexts(_) => Resource::CLUSTERS,
    }
}

async fn visit(of: Cluster, resources: &[Resource], clusters: &Clusters) -> ClusterHealth {
    let mut failures: Vec<(Resource, Cause)> = Vec::new();
    for resource in resources {
        // A cluster that is not there is not there for the next kind either, and each would take its whole time.
        let is_away =
            failures.last().filter(|(_, cause)| is_of_cluster(cause)).map(|(_, cause)| cause.clone());
        let answer = if let Some(cause) = is_away {
            Err(cause)
        } else {
            let query = ListQuery {
                resource,
                namespace: "",
                field_selector: "",
                part: Part::Metadata,
                limit: 1,
                continue_token: None,
            };
            clusters.list(&of, query, For::Round, Instant::now() + ANSWER_WITHIN).await
        };
        if let Err(cause) = answer {
            failures.push((resource.clone(), cause));
        }
    }
    ClusterHealth { cluster: of.name().to_owned(), failures }
}

fn is_of_cluster(found: &Cause) -> bool {
    matches!(
        found.code,
        cause::UNREACHABLE
            | cause::TIMEOUT
            | cause::CREDENTIALS
            | cause::NO_ENDPOINT
            | cause::VANISHED
            | cause::REFUSED
    )
}

/// Says what has changed since the last round.
fn tell(old: &[ClusterHealth], new: &[ClusterHealth]) {
    let signs = |health: &ClusterHealth| -> Vec<(Resource, &'static str)> {
        health.failures.iter().map(|(resource, cause)| (resource.clone(), cause.code)).collect()
    };
    let before: HashMap<&str, _> =
        old.iter().map(|health| (health.cluster.as_str(), signs(health))).collect();
    let changed: Vec<&ClusterHealth> = new
        .iter()
        .filter(|health| before.get(health.cluster.as_str()).cloned().unwrap_or_default() != signs(health))
        .collect();
    for health in changed.iter().take(LINES) {
        match health.failures.first() {
            None => tracing::info!(cluster = health.cluster, "can be read again"),
            Some((resource, cause)) => tracing::warn!(
                cluster = health.cluster,
                cause = cause.code,
                kinds = health.failures.len(),
                "{resource} cannot be read: {}",
                cause.text
            ),
        }
    }
    if changed.len() > LINES {
        tracing::warn!("{} more clusters have changed", changed.len() - LINES);
    }
}
