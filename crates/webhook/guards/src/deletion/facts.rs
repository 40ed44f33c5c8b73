//! Reads the facts of a review: the list of the fleet, and the facts of each cluster.
//!
//! Clusters are read concurrently, each until its own deadline, all by the deadline of the review. The module spawns no task, so
//! a review that is dropped stops reading. `cluster::live` bounds the requests to an API server; this module bounds the clusters
//! that are read at once, so that memory does not grow with the fleet.

use std::sync::Arc;
use std::time::Duration;

use admission::Cause;
use futures_util::future::join;
use futures_util::stream::{self, StreamExt as _};
use tokio::time::{Instant, sleep};

use super::acknowledge;
use super::case::Case;
use super::cluster_facts::ClusterFacts;
use super::config::Config;
use super::karmada::EXECUTION_PREFIX;
use super::target::Target;
use crate::identity;
use cluster::fleet::{Cluster, Fleet, FleetMember, GetQuery, ListQuery, MembersResult, Object, Part};
use cluster::{Clients, Pages, Resource, cause};

/// The facts that a decision needs.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    /// The member clusters of the fleet.
    pub(super) members: MembersResult,
    /// The clusters that were read: the local one first, then the members in the order of the list.
    pub(super) clusters: Vec<ClusterFacts>,
}

/// The progress of reading the members.
#[derive(Debug, Clone, Copy)]
pub struct ReadProgress<'p> {
    /// The cluster that was read last, or whose deadline passed.
    pub cluster: &'p str,
    /// The number of clusters that were read.
    pub done: usize,
    /// The number of clusters.
    pub of: usize,
}

/// Clusters that are read at once. The live client has permits for 400 requests. Therefore clusters that do not answer, with one request
/// each, cannot take all permits.
const MAX_CONCURRENT: usize = 360;

/// The part of the time of a review that a member has: a third. A member that does not answer then leaves time for another
/// attempt, and for members whose turn comes after it.
const MEMBER_PARTS: u32 = 3;

/// The delay before a member is read again after Durward lacked capacity. It doubles.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Reads the facts of one review.
pub(super) struct FactsReader<'f> {
    /// The clients of the control plane.
    pub(super) clients: &'f Clients,
    /// The configuration of the guard.
    pub(super) config: &'f Config,
    /// Called after each member.
    pub(super) progress: &'f (dyn Fn(ReadProgress<'_>) + Sync),
}

impl FactsReader<'_> {
    /// Returns the stored object of a review, unless it is another one. Nothing else is read before this.
    pub(super) async fn stored(&self, target: &Target, deadline: Instant) -> Result<Option<Object>, Cause> {
        // The rest of the time is for the fleet.
        let end = half(deadline);
        let query = GetQuery { address: target.address(), part: Part::Metadata };
        let found = self.clients.reader.get_object(&Cluster::Local, query, end.into_std()).await?;
        Ok(identity::reviewed(found, target.reviewed_uid.as_deref()))
    }

    /// Reads the facts of a case. Without `reads_clusters`, reads only what decides whether the fleet needs a part of Karmada.
    pub(super) async fn read(&self, case: &Case<'_>, end: Instant, reads_clusters: bool) -> Facts {
        // A list that took more than half of the time would leave too little for its members.
        let list_end = half(end);
        // Its answer is required for an allow, and it does not delay the members.
        let local = self.cluster(&Cluster::Local, case, end);
        if !case.reads_fleet() {
            return Facts { members: Ok(Arc::from([])), clusters: vec![local.await] };
        }
        let Some(part) = case.part else {
            let members = async {
                let list = self.members(list_end).await;
                let facts = match &list {
                    Ok(members) => self.each_member(case, members, end).await,
                    Err(_) => Vec::new(),
                };
                (list, facts)
            };
            let (local, (members, clusters)) = join(local, members).await;
            return Facts { members, clusters: std::iter::once(local).chain(clusters).collect() };
        };
        // The list decides whether any cluster is read.
        let list = self.members(list_end).await;
        if list.as_ref().map_or(true, |members| part.is_needed(members)) {
            return Facts { members: list, clusters: Vec::new() };
        }
        // No member cluster has it.
        let local = if reads_clusters { local.await } else { ClusterFacts::default() };
        Facts { members: Ok(Arc::from([])), clusters: vec![local] }
    }

    /// Returns the list of the fleet.
    pub(super) async fn members(&self, deadline: Instant) -> MembersResult {
        if self.config.fleet == Fleet::None {
            return Ok(Arc::from([]));
        }
        let members = self.clients.reader.members(&self.config.fleet, deadline.into_std()).await?;
        if members.is_empty() && self.config.is_karmada() {
            self.check_empty_fleet(deadline).await?;
        }
        Ok(members)
    }

    /// Fails if an execution namespace exists. Karmada removes that of a Cluster before the Cluster, so an empty list of Clusters is
    /// then wrong: for example, the `APIService` leads to another server, or the control plane was restored without its Clusters.
    async fn check_empty_fleet(&self, deadline: Instant) -> Result<(), Cause> {
        let reader = self.clients.reader.as_ref();
        let query = ListQuery::new(&Resource::NAMESPACES);
        let mut pages = Pages::new(reader, &Cluster::Local, query, deadline.into_std());
        while let Some(page) = pages.next().await? {
            if let Some(space) = page.objects.iter().find(|space| space.name.starts_with(EXECUTION_PREFIX)) {
                let text = format!("the list of Clusters is empty, but namespace {} exists", space.name);
                return Err(Cause::new(cause::STALE_FLEET, text));
            }
        }
        Ok(())
    }

    /// Reads the members, and returns their facts in the order of the list.
    async fn each_member(&self, case: &Case<'_>, members: &[FleetMember], end: Instant) -> Vec<ClusterFacts> {
        let start = Instant::now();
        let longest = end.saturating_duration_since(start) / MEMBER_PARTS;
        // Members that need not answer come last, so that an unreachable region does not delay the others. The batches of them
        // share the rest of the time.
        let is_last =
            |member: &FleetMember| matches!(acknowledge::find(self.config, member, case.now), Some(Ok(_)));
        let (last, mut order): (Vec<_>, Vec<_>) =
            members.iter().enumerate().partition(|(_, member)| is_last(member));
        let (first, batches) = (order.len(), last.len().div_ceil(MAX_CONCURRENT));
        let batches = u32::try_from(batches).unwrap_or(u32::MAX).max(1);
        order.extend(last);
        let read = async |(turn, (at, member)): (usize, (usize, &'_ FleetMember))| {
            let batches = if turn < first { 1 } else { batches };
            let facts = self.member(case, &member.cluster, (end, longest), batches).await;
            (at, ClusterFacts { member: member.clone(), ..facts })
        };
        let mut reads =
            stream::iter(order.into_iter().enumerate().map(read)).buffer_unordered(MAX_CONCURRENT);
        let mut facts = Vec::with_capacity(members.len());
        while let Some((at, read_facts)) = reads.next().await {
            let (cluster, done) = (read_facts.member.cluster.name(), facts.len() + 1);
            (self.progress)(ReadProgress { cluster, done, of: members.len() });
            facts.push((at, read_facts));
        }
        facts.sort_by_key(|(at, _)| *at);
        facts.into_iter().map(|(_, facts)| facts).collect()
    }

    /// Reads one member, which has one of `batches` equal parts of the time, and at most `longest`. If Durward lacks capacity, it tries again until the
    /// end: requests to clusters that do not answer free their permits at their deadlines.
    async fn member(
        &self,
        case: &Case<'_>,
        cluster: &Cluster,
        (end, longest): (Instant, Duration),
        batches: u32,
    ) -> ClusterFacts {
        let time = longest.min(end.saturating_duration_since(Instant::now()) / batches);
        let mut delay = RETRY_DELAY;
        loop {
            let start = Instant::now();
            if start >= end {
                let text = format!("Durward had no time left to check {cluster}");
                return ClusterFacts::unknown(Cause::new(cause::OVERLOADED, text));
            }
            let facts = self.cluster(cluster, case, end.min(start + time)).await;
            let is_final = !facts.is_overloaded() || self.clients.context.is_snapshot;
            if is_final || Instant::now() + delay >= end {
                return facts;
            }
            sleep(delay).await;
            delay *= 2;
        }
    }
}

/// Returns the middle of the time from now to `end`.
pub(super) fn half(end: Instant) -> Instant {
    let now = Instant::now();
    now + end.saturating_duration_since(now) / 2
}
