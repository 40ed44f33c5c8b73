//! The order of one review: read, decide, apply an effect, read again. `decide` contains the decisions.
//!
//! A review reserves the deletion first. Then it reads the health of all members again, moves leadership, and allows the deletion. So
//! every allow relies on facts that were read after the reservation, and a review of another member finds the reservation. A review
//! may be dropped at any point; its reservation expires.

use std::time::{Duration, SystemTime};

use admission::{Cause, Mode, OnUnknown, Request, Ruling};
use futures_util::future::join;
use tokio::time::Instant;

use super::config::{Config, EtcdClusterConfig, NamespaceMatch};
use super::decide::{self, Allowed, Decision, EarlyOutcome, Outcome, Reason, UnknownCause, Warning};
use super::effects::Effects;
use super::facts::{FactReader, Facts};
use super::group::{self, Group};
use super::input::{Effect, Input, Progress};
use super::kube_reader::{KubeReader, Namespace, PODS, json};
use super::kube_state::KubeState;
use super::messages;
use super::overrides::{self, Override};
use super::owners::Owners;
use super::pod::Pod;
use super::removal::{Removal, RemovalKind, ReviewedPod};
use super::reservations;
#[cfg(test)]
use super::table::Table;
use crate::identity;
use ::config::SelectorExt as _;
use cluster::etcd::Id;
use cluster::fleet::Part;
use cluster::writer::{Lease, TransferResult, WriteResult, Writer};
use cluster::{Clients, cause};

/// Time for one read of Kubernetes. A busy API server needs less, and two reads leave time for the members.
const KUBE_TIMEOUT: Duration = Duration::from_secs(2);

/// The reads of one review. Each one but the first follows an effect or a write conflict.
const MAX_READS: usize = 12;

/// Time to reserve a deletion that is allowed in any case. Teardown and repair wait no longer.
const RESERVE_TIMEOUT: Duration = Duration::from_secs(1);

/// Time that is kept for that reservation if an Unknown verdict is allowed.
const RESERVE_TIME: Duration = Duration::from_millis(400);

/// One review.
#[derive(Clone, Copy)]
pub(super) struct Reviewer<'r> {
    config: &'r Config,
    clients: &'r Clients,
    began: SystemTime,
    /// The end of reads, decisions and effects.
    end: Instant,
    /// The end of reservations for deletions that are allowed in any case.
    reserve_end: Instant,
}

/// The result of one read.
struct CurrentState {
    state: KubeState,
    facts: Facts,
}

/// A pod and its etcd cluster.
struct Member<'m> {
    pod: Pod,
    entry: &'m EtcdClusterConfig,
    group: Group,
    lease: Lease,
}

/// The pod under review and its etcd cluster.
struct Subject<'s, 'r> {
    removal: &'s Removal,
    pod: Pod,
    entry: &'r EtcdClusterConfig,
    group: Group,
    lease: Lease,
}

/// The outcome of a review.
pub(super) struct Reviewed<'r> {
    pub(super) outcome: Outcome,
    /// Whether the deletion must be reserved, because other reviews may count this member.
    must_reserve: bool,
    /// The facts of a decision by the answers of members.
    basis: Option<Box<Basis<'r>>>,
}

/// The facts that the message of a decision shows.
struct Basis<'r> {
    entry: &'r EtcdClusterConfig,
    pod: Pod,
    facts: Facts,
    progress: Progress,
}

impl From<Outcome> for Reviewed<'_> {
    fn from(outcome: Outcome) -> Self {
        Self { outcome, must_reserve: false, basis: None }
    }
}

impl From<EarlyOutcome> for Reviewed<'_> {
    fn from(EarlyOutcome { outcome, must_reserve }: EarlyOutcome) -> Self {
        Self { outcome, must_reserve, basis: None }
    }
}

impl Reviewed<'_> {
    fn unread(why: Cause) -> Self {
        Outcome::unknown(UnknownCause::Unread(why)).into()
    }

    /// Returns the states of the members by name.
    #[cfg(test)]
    pub(super) fn states(&self) -> Vec<(String, super::table::MemberState)> {
        let table = self.basis.as_ref().map(|basis| Table::of(&basis.facts));
        let rows = table.into_iter().flat_map(|table| table.rows);
        rows.map(|row| (row.name, row.state)).collect()
    }

    /// Renders the outcome.
    pub(super) fn ruling(&self, config: &Config, removal: &Removal, now: SystemTime) -> Ruling {
        match self.basis.as_deref() {
            Some(Basis { entry, pod, facts, progress }) => {
                let input = Input { config, entry, removal, pod, facts, progress };
                messages::member_ruling(input, &self.outcome)
            }
            None => messages::ruling(config, removal, &self.outcome, now),
        }
    }
}

impl<'r> Reviewer<'r> {
    pub(super) fn new(config: &'r Config, clients: &'r Clients, deadline: Instant) -> Self {
        Self { config, clients, began: clients.context.now(), end: deadline, reserve_end: deadline }
    }

    /// Reviews the deletion or eviction of a pod.
    ///
    /// A review can come from a stranger. Nothing is written and no member is asked unless the API server returns the pod with the
    /// uid of the review. Its stored state decides, so addresses and owners are never those of the review.
    pub(super) async fn review_pod(&self, kind: RemovalKind, request: &Request<'_>) -> Ruling {
        let removal = match Removal::read(self.config, kind, request) {
            Ok(removal) => removal,
            Err(why) => return Ruling::unknown(why),
        };
        let reviewed = self.review_removal(&removal, request).await;
        reviewed.ruling(self.config, &removal, self.now())
    }

    /// Decides about a removal.
    pub(super) async fn review_removal(&self, removal: &Removal, request: &Request<'_>) -> Reviewed<'r> {
        if let Some(outcome) = decide::exempt(self.config, removal, request) {
            return outcome.into();
        }
        if let Some(reviewed) = &removal.pod
            && !self.may_be_member(&removal.namespace, reviewed)
        {
            return Outcome::allow(Allowed::Unselected).into();
        }
        // Boxed, because this future is large, and most pods belong to no etcd cluster.
        Box::pin(self.review_stored(removal)).await
    }

    /// Decides by the stored pod and its etcd cluster.
    async fn review_stored(&self, removal: &Removal) -> Reviewed<'r> {
        let json = match self.stored_pod(removal).await {
            Ok(Some(json)) => json,
            Ok(None) => return decide::missing(removal).into(),
            Err(why) => return decide::unread(self.config, removal, &why, self.now()).into(),
        };
        let member = match self.member(&json).await {
            Ok(Some(member)) => member,
            Ok(None) => return Outcome::allow(Allowed::Unselected).into(),
            Err(why) => return self.unknown_membership(&json, why),
        };
        let Member { pod, entry, group, lease } = member;
        let subject = Subject { removal, pod, entry, group, lease };
        let reviewed = match decide::from_pod(self.config, subject.removal, &subject.pod, self.now()) {
            Some(early) => early.into(),
            None if subject.pod.is_deleting => return self.review_deleting(&subject).await.into(),
            None => self.with_reserve_time(subject.removal).review_member(&subject).await,
        };
        self.finish(&subject, reviewed).await
    }

    /// Whether an entry may select the pod of a review.
    fn may_be_member(&self, namespace: &str, reviewed: &ReviewedPod) -> bool {
        let mut entries = self.config.clusters.iter().filter(|entry| entry.namespaces.may_match(namespace));
        entries.any(|entry| entry.selector.matches(&reviewed.labels))
    }

    /// Returns the stored pod in JSON, unless it is another pod than that of the review. The review of an eviction contains no pod, but
    /// its preconditions can contain a uid.
    async fn stored_pod(&self, removal: &Removal) -> Result<Option<String>, Cause> {
        let found = self.kube().find(&PODS, &removal.namespace, &removal.name, Part::Whole).await?;
        let uid = removal.pod.as_ref().map(|reviewed| &reviewed.uid).or(removal.only_uid.as_ref());
        identity::reviewed(found, uid.map(String::as_str))
            .map(|object| json(&object).map(str::to_owned))
            .transpose()
    }

    /// Returns a reviewer that keeps time for a reservation if an Unknown verdict is allowed.
    fn with_reserve_time(self, removal: &Removal) -> Self {
        let left = self.end.saturating_duration_since(Instant::now());
        let is_needed = self.allows_unknown(removal) && !self.is_dry_run(removal);
        let kept = if is_needed { RESERVE_TIME.min(left / 10) } else { Duration::ZERO };
        Self { end: self.end - kept, ..self }
    }

    fn now(&self) -> SystemTime {
        self.clients.context.now()
    }

    /// Decides about a pod whose etcd cluster is unknown. An override allows it anyway.
    fn unknown_membership(&self, json: &str, why: Cause) -> Reviewed<'r> {
        let pod = Pod::read(json, 0).ok();
        let overridden =
            pod.and_then(|pod| decide::overridden(self.config, &pod.name, &pod.annotations, self.now()));
        overridden.map_or_else(|| Reviewed::unread(why), Reviewed::from)
    }

    /// Adds what is wrong with the override annotations of the namespace.
    fn add_namespace_warnings(&self, removal: &Removal, state: &KubeState, outcome: Outcome) -> Outcome {
        let Ok(namespace) = &state.namespace else { return outcome };
        match overrides::judge(self.config, &removal.namespace, &namespace.annotations, state.now) {
            Override::Invalid(wrong) if !outcome.is_allowed() => {
                outcome.warn(Warning::NamespaceOverride(wrong))
            }
            _ => outcome,
        }
    }

    fn kube(&self) -> KubeReader<'r> {
        self.kube_until(self.end.min(Instant::now() + KUBE_TIMEOUT))
    }

    fn kube_until(&self, end: Instant) -> KubeReader<'r> {
        KubeReader { clients: self.clients, end }
    }

    fn facts<'s>(&'s self, subject: &'s Subject<'_, '_>) -> FactReader<'s> {
        FactReader { clients: self.clients, config: self.config, group: &subject.group, end: self.end }
    }

    /// Whether the review changes nothing, and its effects count as done. In audit mode denials do not bind, so effects do not
    /// happen either.
    fn is_dry_run(&self, removal: &Removal) -> bool {
        self.clients.writer.is_none()
            || removal.dry_run
            || self.config.common_config.settle_policy.mode == Mode::Audit
    }

    /// Whether the configuration allows an Unknown verdict.
    fn allows_unknown(&self, removal: &Removal) -> bool {
        let policy = &self.config.common_config.settle_policy;
        let on_unknown = if removal.by_controller { policy.controllers } else { policy.users };
        on_unknown == OnUnknown::Allow
    }

    /// Ends every review of a pod in a known etcd cluster. A pod that is allowed without a quorum check, or although the check failed,
    /// is reserved as well. It is allowed even if that fails.
    async fn finish(&self, subject: &Subject<'_, '_>, mut reviewed: Reviewed<'r>) -> Reviewed<'r> {
        let removal = subject.removal;
        let is_allowed_unknown = reviewed.outcome.is_unknown() && self.allows_unknown(removal);
        if self.is_dry_run(removal) || !(reviewed.must_reserve || is_allowed_unknown) {
            return reviewed;
        }
        let Some(writer) = self.clients.writer.as_deref() else { return reviewed };
        if let Err(why) = self.reserve_allowed(subject, writer).await {
            reviewed.outcome = reviewed.outcome.warn(Warning::Unreserved(why));
        }
        reviewed
    }

    /// Reserves a deletion that is allowed in any case, in the time that is left, also if another pod holds the reservation. A teardown
    /// and a pod that never had a node need none.
    async fn reserve_allowed(&self, subject: &Subject<'_, '_>, writer: &dyn Writer) -> Result<(), Cause> {
        let Subject { pod, lease, .. } = subject;
        let end = self.reserve_end.min(Instant::now() + RESERVE_TIMEOUT);
        let kube = self.kube_until(end);
        let (namespace, mut read) = join(kube.namespace(&pod.namespace), kube.lease(lease)).await;
        if pod.node.is_empty() || self.is_torn_down(subject, kube, namespace.as_ref().ok()).await {
            return Ok(());
        }
        let uid = namespace.as_ref().ok().map(|namespace| namespace.uid.as_str());
        let effects = Effects { writer, lease, end };
        loop {
            let stored = read?;
            let own = stored.reservation.as_ref().filter(|held| held.uid == pod.uid);
            if own.is_some_and(|own| reservations::is_fresh(own, self.began)) {
                return Ok(());
            }
            match effects.reserve(&stored, pod, uid, self.now()).await {
                WriteResult::Written => return Ok(()),
                WriteResult::Failed(why) => return Err(why),
                WriteResult::Conflict if Instant::now() < end => read = kube.lease(lease).await,
                WriteResult::Conflict => return Err(Cause::new(cause::TIMEOUT, "no time was left")),
            }
        }
    }

    /// Whether the whole etcd cluster or the pod's node is removed. Unreadable objects are not.
    async fn is_torn_down(
        &self,
        subject: &Subject<'_, '_>,
        kube: KubeReader<'_>,
        namespace: Option<&Namespace>,
    ) -> bool {
        let pod = &subject.pod;
        let owner = Owners::read_one(kube, subject.entry, pod);
        let (owner, has_node) = join(owner, kube.has_node(&pod.node)).await;
        // With several owners, this one removes only a part of the etcd cluster.
        let is_removed = subject.group.has_one_owner() && owner.is_ok_and(|owner| owner.has_no_pods_left());
        is_removed
            || namespace.is_some_and(|namespace| namespace.is_deleting)
            || matches!(has_node, Ok(false))
    }

    /// Finds the etcd cluster of a pod.
    async fn member(&self, json: &str) -> Result<Option<Member<'r>>, Cause> {
        let pod = Pod::read(json, 0)?;
        let mut namespace = None;
        for entry in group::entries(self.config, &pod) {
            if let NamespaceMatch::Labeled(selector) = &entry.namespaces {
                let namespace = match &mut namespace {
                    Some(namespace) => namespace,
                    none => none.insert(self.kube().namespace(&pod.namespace).await?),
                };
                if !selector.matches(&namespace.labels) {
                    continue;
                }
            }
            // The port may identify the container of etcd.
            let pod = Pod::read(json, entry.port)?;
            let group = Group::of(entry, &pod);
            let lease = group.lease(&self.config.common_config.namespace);
            return Ok(Some(Member { pod, entry, group, lease }));
        }
        Ok(None)
    }

    /// Reviews a request that shortens the grace period of a pod. It is allowed, with a warning if the member leads.
    async fn review_deleting(&self, subject: &Subject<'_, '_>) -> Outcome {
        let outcome = Outcome::allow(Allowed::AlreadyDeleting);
        match self.facts(subject).status(&subject.pod).await {
            Ok(status) if status.leader == Some(status.member) => outcome.warn(Warning::StillLeads),
            Ok(_) | Err(_) => outcome,
        }
    }

    /// Reads Kubernetes and the members. Returns an early outcome if the members need not be asked.
    async fn read(&self, subject: &Subject<'_, '_>) -> Result<CurrentState, Box<EarlyOutcome>> {
        let Subject { removal, pod, entry, group, lease } = subject;
        let state = KubeState::read(self.kube(), entry, group, pod, (self.began, lease)).await;
        if let Some(early) = decide::from_kube_state(self.config, removal, pod, &state) {
            return Err(Box::new(early));
        }
        let facts = self.facts(subject).about(&pod.uid, &state).await;
        Ok(CurrentState { state, facts })
    }

    async fn review_member(&self, subject: &Subject<'_, 'r>) -> Reviewed<'r> {
        let mut progress = Progress::default();
        let mut move_error = None;
        for _ in 0..MAX_READS {
            if Instant::now() >= self.end {
                break;
            }
            let current = match self.read(subject).await {
                Ok(current) => current,
                Err(early) => return (*early).into(),
            };
            let mut decision = self.decide(subject, &current, &progress);
            if matches!(decision, Decision::Effect(Effect::Reserve))
                && let WriteResult::Failed(why) = self.reserve(subject, &current.state).await
            {
                progress.reservation_error = Some(why);
                decision = self.decide(subject, &current, &progress);
            }
            let (to, name) = match decision {
                Decision::Outcome(outcome) => {
                    let outcome = self.add_namespace_warnings(subject.removal, &current.state, outcome);
                    let (entry, pod, facts) = (subject.entry, subject.pod.clone(), current.facts);
                    let basis = Some(Box::new(Basis { entry, pod, facts, progress }));
                    return Reviewed { outcome, must_reserve: false, basis };
                }
                Decision::Effect(Effect::Reserve) => continue,
                Decision::Effect(Effect::MoveLeader { to, name }) => (to, name),
            };
            match self.move_leader(subject, &current.facts, to).await {
                TransferResult::Transferred => progress.moved_to = Some(name),
                TransferResult::NotLeader => {}
                TransferResult::BadTarget => progress.unable_to_lead.push(to),
                TransferResult::Unsupported => progress.cannot_move_leader = true,
                // The next read may show that leadership moved. If not, one retry follows.
                TransferResult::Unknown(why) => {
                    if let Some(first) = move_error.replace(why) {
                        return Reviewed::unread(first);
                    }
                }
            }
        }
        Reviewed::from(match progress.moved_to {
            Some(to) => Outcome::deny(Reason::LeadershipMoved { to }),
            None => Outcome::unknown(UnknownCause::OutOfTime),
        })
    }

    fn decide(&self, subject: &Subject<'_, '_>, current: &CurrentState, progress: &Progress) -> Decision {
        let Subject { removal, pod, entry, .. } = subject;
        let input = Input { config: self.config, entry, removal, pod, facts: &current.facts, progress };
        let decision = if self.is_dry_run(removal) {
            Decision::Outcome(decide::dry_run(input))
        } else {
            decide::decide(input)
        };
        match decision {
            Decision::Outcome(outcome) => {
                Decision::Outcome(decide::unknown_owner(pod, &current.state, outcome))
            }
            effect @ Decision::Effect(_) => effect,
        }
    }

    /// Writes the reservation over the Lease that the decision used. After a conflict, everything is read again.
    async fn reserve(&self, subject: &Subject<'_, '_>, state: &KubeState) -> WriteResult {
        let read = match &state.lease {
            Ok(read) => read,
            Err(why) => return WriteResult::Failed(why.clone()),
        };
        // Reviews without a writer are dry runs, which never get here.
        let Some(writer) = self.clients.writer.as_deref() else { return WriteResult::Conflict };
        let effects = Effects { writer, lease: &subject.lease, end: self.kube().end };
        effects.reserve(read, &subject.pod, state.namespace_uid(), self.now()).await
    }

    async fn move_leader(&self, subject: &Subject<'_, '_>, facts: &Facts, to: Id) -> TransferResult {
        // Reviews without a writer are dry runs, which never get here.
        let Some(writer) = self.clients.writer.as_deref() else { return TransferResult::Unsupported };
        // The list may have a newer address than the first read.
        let listed = facts.pods.iter().find(|listed| listed.pod.uid == subject.pod.uid);
        let leader = subject.group.peer(listed.map_or(&subject.pod, |listed| &listed.pod));
        let effects = Effects { writer, lease: &subject.lease, end: self.end };
        effects.move_leader(&leader, to, facts, self.facts(subject)).await
    }
}
