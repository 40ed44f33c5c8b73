//! The order of one review: read, decide, apply an effect, read again. `decide` contains the decisions.
//!
//! A review reserves the deletion first. Then it reads the health of all members again, moves leadership, and allows the deletion. So
//! every allow relies on facts that were read after the reservation, and a review of another member finds the reservation. A review
//! may be dropped at any point; its reservation expires. A dry run takes the same steps without a writer.

use std::time::{Duration, SystemTime};

use admission::{Cause, Mode, OnUnknown, Request, Ruling};
use futures_util::future::join;
use tokio::time::Instant;

use super::config::{Config, NamespaceMatch};
use super::decide::{self, Allowed, Decision, Reason, UnknownCause, Warning};
use super::effects::Effects;
use super::facts::FactReader;
use super::group::{self, Group, Member};
use super::input::{Input, Progress, Round};
use super::kube_reader::{KubeReader, Namespace, PODS, json};
use super::kube_state::KubeState;
use super::messages::{self, About};
use super::owners::Owners;
use super::pod::Pod;
use super::removal::Removal;
use super::reservations;
use super::wire;
use crate::identity;
use ::config::SelectorExt as _;
use cluster::fleet::Part;
use cluster::writer::{WriteResult, Writer};
use cluster::{Clients, cause};

/// Time for one read of Kubernetes. A busy API server needs less, and two reads leave time for the members.
const KUBE_TIMEOUT: Duration = Duration::from_secs(2);

/// The rounds of one review. Each one but the first follows an effect or a write conflict.
const MAX_ROUNDS: usize = 12;

/// Time to reserve a deletion that is allowed in any case. Teardown and repair wait no longer.
const RESERVE_TIMEOUT: Duration = Duration::from_secs(1);

/// Time that is kept for that reservation if an Unknown verdict is allowed.
const RESERVE_TIME: Duration = Duration::from_millis(400);

/// One review of a removal.
pub(super) struct Review<'r> {
    config: &'r Config,
    clients: &'r Clients,
    removal: &'r Removal,
    /// Absent in a dry run.
    writer: Option<&'r dyn Writer>,
    began: SystemTime,
    /// The end of reads, decisions and effects.
    end: Instant,
    /// The end of reservations for deletions that are allowed in any case.
    reserve_end: Instant,
}

/// A decision, and what its message shows: the pod if its etcd cluster is known, and the members if they were asked.
pub(super) struct Reviewed<'r> {
    pub(super) decision: Decision,
    member: Option<Member<'r>>,
    members: Option<(Round, Progress)>,
}

impl From<Decision> for Reviewed<'_> {
    fn from(decision: Decision) -> Self {
        Self { decision, member: None, members: None }
    }
}

impl<'r> Reviewed<'r> {
    /// Renders the decision.
    pub(super) fn ruling(&self, config: &Config, removal: &Removal, now: SystemTime) -> Ruling {
        let members = self.members.as_ref();
        let input = self.member.as_ref().zip(members).map(|(member, (round, progress))| Input {
            config,
            entry: member.entry,
            removal,
            pod: &member.pod,
            facts: &round.facts,
            table: &round.table,
            progress,
        });
        let pod = self.member.as_ref().map(|member| &member.pod).or(removal.pod.as_ref());
        messages::ruling(&About { config, removal, pod, now, members: input }, &self.decision)
    }

    /// Adds the pod.
    pub(super) fn of(self, member: Member<'r>) -> Self {
        Self { member: Some(member), ..self }
    }

    /// Returns the states of the members by name.
    #[cfg(test)]
    pub(super) fn states(&self) -> Vec<(String, super::table::MemberState)> {
        let rows = self.members.iter().flat_map(|(round, _)| &round.table.rows);
        rows.map(|row| (row.name.clone(), row.state.clone())).collect()
    }
}

impl<'r> Review<'r> {
    /// A review can come from a stranger. Nothing is written and no member is asked unless the API server returns the pod with the
    /// uid of the review. Its stored state decides, so addresses and owners are never those of the review.
    pub(super) fn new(
        config: &'r Config,
        clients: &'r Clients,
        removal: &'r Removal,
        deadline: Instant,
    ) -> Self {
        // In audit mode denials do not bind, so effects do not happen either.
        let is_dry_run = removal.dry_run || config.common_config.settle_policy.mode == Mode::Audit;
        let writer = clients.writer.as_deref().filter(|_| !is_dry_run);
        let began = clients.context.now();
        let review = Self { config, clients, removal, writer, began, end: deadline, reserve_end: deadline };
        let left = deadline.saturating_duration_since(Instant::now());
        let is_kept = writer.is_some() && review.allows_unknown();
        let kept = if is_kept { RESERVE_TIME.min(left / 10) } else { Duration::ZERO };
        Self { end: deadline - kept, ..review }
    }

    /// Decides about the removal.
    pub(super) async fn run(&self, request: &Request<'_>) -> Reviewed<'r> {
        if let Some(decision) = decide::exempt(self.config, self.removal, request) {
            return decision.into();
        }
        // The first entry that selects a pod of this namespace and these labels may be its own.
        let is_selected =
            |labels| group::entries(self.config, &self.removal.namespace, labels).next().is_some();
        if self.removal.pod.as_ref().is_some_and(|pod| !is_selected(&pod.labels)) {
            return Decision::allow(Allowed::Unselected).into();
        }
        // Boxed, because this future is large, and most pods belong to no etcd cluster.
        Box::pin(self.review_stored()).await
    }

    /// Decides by the stored pod and its etcd cluster.
    async fn review_stored(&self) -> Reviewed<'r> {
        let stored = match self.stored_pod().await {
            Ok(Some(stored)) => stored,
            Ok(None) => return decide::missing(self.removal).into(),
            Err(why) => return decide::unread(self.config, self.removal, &why, self.now()).into(),
        };
        let member = match self.member(&stored).await {
            Ok(Some(member)) => member,
            Ok(None) => return Decision::allow(Allowed::Unselected).into(),
            // An override needs no etcd cluster.
            Err(why) => {
                let pod = Pod::of(&stored, 0);
                let overridden = decide::overridden(self.config, &pod.name, &pod.annotations, self.now());
                return overridden.unwrap_or_else(|| Decision::unknown(UnknownCause::Unread(why))).into();
            }
        };
        let reviewed = match decide::from_pod(self.config, self.removal, &member.pod, self.now()) {
            Some(decision) => decision.into(),
            None if member.pod.is_deleting => return Reviewed::from(self.review_deleting(&member).await),
            None => self.review_member(&member, None).await,
        };
        self.reserve_allowed(&member, reviewed).await.of(member)
    }

    /// Returns the stored pod, unless it is another pod than that of the review. The review of an eviction contains no pod, but its
    /// preconditions can contain a uid.
    async fn stored_pod(&self) -> Result<Option<wire::Pod>, Cause> {
        let Removal { namespace, name, pod, only_uid, .. } = self.removal;
        let found = self.kube().find(&PODS, namespace, name, Part::Whole).await?;
        let uid = pod.as_ref().map(|pod| &pod.uid).or(only_uid.as_ref());
        let found = identity::reviewed(found, uid.map(String::as_str));
        found.map(|object| wire::read(json(&object)?, "the pod")).transpose()
    }

    /// Finds the etcd cluster of a pod.
    async fn member(&self, stored: &wire::Pod) -> Result<Option<Member<'r>>, Cause> {
        let wire::Metadata { namespace, labels, .. } = &stored.metadata;
        let mut read = None;
        for entry in group::entries(self.config, namespace, labels.as_ref().unwrap_or(&group::NO_LABELS)) {
            if let NamespaceMatch::Labeled(selector) = &entry.namespaces {
                let read = match &mut read {
                    Some(read) => read,
                    none => none.insert(self.kube().namespace(namespace).await?),
                };
                if !selector.matches(&read.labels) {
                    continue;
                }
            }
            let pod = Pod::of(stored, entry.port);
            let group = Group::of(entry, &pod);
            let lease = group.lease(&self.config.common_config.namespace);
            return Ok(Some(Member { pod, entry, group, lease }));
        }
        Ok(None)
    }

    /// Reviews a request that shortens the grace period of a pod. It is allowed, with a warning if the member leads.
    async fn review_deleting(&self, member: &Member<'_>) -> Decision {
        let decision = Decision::allow(Allowed::AlreadyDeleting);
        match self.reader(member).status(&member.pod).await {
            Ok(status) if status.leader == Some(status.member) => decision.warn(Warning::StillLeads),
            Ok(_) | Err(_) => decision,
        }
    }

    /// Decides by the members. After an effect, everything is read again; a dry run only assumes its effects. `first` is the first
    /// round, if it was read already.
    pub(super) async fn review_member(&self, member: &Member<'r>, first: Option<Round>) -> Reviewed<'r> {
        let mut progress = Progress::default();
        let mut known = first;
        for _ in 0..MAX_ROUNDS {
            let mut round = match known.take() {
                Some(round) => round,
                None if Instant::now() >= self.end => break,
                None => match self.read(member).await {
                    Ok(round) => round,
                    Err(decision) => return (*decision).into(),
                },
            };
            let (facts, table) = (&round.facts, &round.table);
            let Member { pod, entry, .. } = member;
            let (config, removal) = (self.config, self.removal);
            let input = Input { config, entry, removal, pod, facts, table, progress: &progress };
            let effect = match decide::decide(input) {
                Ok(decision) => {
                    let decision = decide::with_state(config, removal, pod, &round.state, decision);
                    return Reviewed { decision, member: None, members: Some((round, progress)) };
                }
                Err(effect) => effect,
            };
            let effects = Effects { writer: self.writer, member, end: self.end, now: self.now() };
            let must_read = effects.apply(effect, &mut round, &mut progress, self.reader(member)).await;
            if let Some(why) = progress.failed_transfer() {
                return Decision::unknown(UnknownCause::Unread(why)).into();
            }
            known = Some(round).filter(|_| !must_read);
        }
        let decision = match progress.moved_to {
            Some(to) => Decision::deny(Reason::LeadershipMoved { to }),
            None => Decision::unknown(UnknownCause::OutOfTime),
        };
        decision.into()
    }

    /// Reads Kubernetes and the members. Returns an early decision if the members need not be asked.
    async fn read(&self, member: &Member<'_>) -> Result<Round, Box<Decision>> {
        let Member { pod, entry, group, lease } = member;
        let state = KubeState::read(self.kube(), entry, group, pod, (self.began, lease)).await;
        if let Some(early) = decide::from_kube_state(self.config, self.removal, pod, &state) {
            return Err(Box::new(early));
        }
        let facts = self.reader(member).about(&pod.uid, &state).await;
        Ok(Round::new(state, facts))
    }

    /// Reserves a pod that is allowed without a quorum check, or although the check failed. It is allowed even if that fails.
    async fn reserve_allowed(&self, member: &Member<'_>, mut reviewed: Reviewed<'r>) -> Reviewed<'r> {
        let decision = &reviewed.decision;
        let is_unchecked = decision.is_overridden() || decision.is_unknown() && self.allows_unknown();
        if let Some(writer) = self.writer.filter(|_| is_unchecked)
            && let Err(why) = self.reserve(member, writer).await
        {
            reviewed.decision = reviewed.decision.warn(Warning::Unreserved(why));
        }
        reviewed
    }

    /// Reserves a deletion that is allowed in any case, in the time that is left, also if another pod holds the reservation. A teardown
    /// and a pod that never had a node need none.
    async fn reserve(&self, member: &Member<'_>, writer: &dyn Writer) -> Result<(), Cause> {
        let Member { pod, lease, .. } = member;
        let end = self.reserve_end.min(Instant::now() + RESERVE_TIMEOUT);
        let kube = KubeReader { clients: self.clients, end };
        let (namespace, mut read) = join(kube.namespace(&pod.namespace), kube.lease(lease)).await;
        if pod.node.is_empty() || is_torn_down(member, kube, namespace.as_ref().ok()).await {
            return Ok(());
        }
        let uid = namespace.as_ref().ok().map(|namespace| namespace.uid.as_str());
        loop {
            let stored = read?;
            let own = stored.reservation.as_ref().filter(|held| held.uid == pod.uid);
            if own.is_some_and(|own| reservations::is_fresh(own, self.began)) {
                return Ok(());
            }
            let effects = Effects { writer: Some(writer), member, end, now: self.now() };
            match effects.reserve(&stored, uid).await {
                WriteResult::Written => return Ok(()),
                WriteResult::Failed(why) => return Err(why),
                WriteResult::Conflict if Instant::now() < end => read = kube.lease(lease).await,
                WriteResult::Conflict => return Err(Cause::new(cause::TIMEOUT, "no time was left")),
            }
        }
    }

    fn now(&self) -> SystemTime {
        self.clients.context.now()
    }

    fn kube(&self) -> KubeReader<'r> {
        KubeReader { clients: self.clients, end: self.end.min(Instant::now() + KUBE_TIMEOUT) }
    }

    fn reader<'s>(&'s self, member: &'s Member<'_>) -> FactReader<'s> {
        FactReader { clients: self.clients, config: self.config, group: &member.group, end: self.end }
    }

    /// Whether the configuration allows an Unknown verdict.
    fn allows_unknown(&self) -> bool {
        let policy = &self.config.common_config.settle_policy;
        let on_unknown = if self.removal.by_controller { policy.controllers } else { policy.users };
        on_unknown == OnUnknown::Allow
    }
}

/// Whether the whole etcd cluster or the pod's node is removed. Unreadable objects are not.
async fn is_torn_down(member: &Member<'_>, kube: KubeReader<'_>, namespace: Option<&Namespace>) -> bool {
    let Member { pod, entry, group, .. } = member;
    let (owner, has_node) = join(Owners::read_one(kube, entry, pod), kube.has_node(&pod.node)).await;
    // With several owners, this one removes only a part of the etcd cluster.
    let is_removed = group.has_one_owner() && owner.is_ok_and(|owner| owner.has_no_pods_left());
    is_removed || namespace.is_some_and(|namespace| namespace.is_deleting) || matches!(has_node, Ok(false))
}
