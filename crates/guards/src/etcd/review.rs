//! The order of one review: read, decide, apply an effect, read again. `decide` contains the decisions.
//!
//! A review reserves the deletion first, and names the successor of a leader. Then it reads the health of all members again, moves
//! leadership, and allows the deletion. So every allow relies on facts that were read after the reservation, and a review of another
//! member finds the reservation. A review may be dropped at any point; its reservation expires.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use admission::{Cause, Mode, OnUnknown, Request, Ruling};
use futures_util::future::{join, join_all};
use tokio::time::{Instant, sleep};

use super::config::{Config, EtcdClusterConfig, NamespaceMatch};
use super::decide::{self, Allowed, Decision, EarlyOutcome, Outcome, Reason, UnknownCause, Warning};
use super::effects::{self, Effects};
use super::facts::{FactReader, Facts};
use super::group::{self, Group};
use super::input::{Effect, Input, Progress};
use super::kube_reader::{KubeReader, PODS, json};
use super::kube_state::KubeState;
use super::messages;
use super::overrides::{self, Override};
use super::owners::Owners;
use super::pod::Pod;
use super::removal::{Removal, RemovalKind, ReviewedPod};
use super::reservations::{ReviewTimes, Validity, reservation};
use super::table::Table;
use crate::identity;
use ::config::SelectorExt as _;
use cluster::etcd::Id;
use cluster::fleet::Part;
use cluster::writer::{Lease, Reservations, TransferResult, WriteResult, Writer};
use cluster::{Clients, cause};

/// Time for one read of Kubernetes. A busy API server needs less, and two reads leave time for the members.
const KUBE_TIMEOUT: Duration = Duration::from_secs(2);

/// The reads of one review. Each one but the first follows an effect or a write conflict.
const MAX_READS: usize = 12;

/// Time to reserve a deletion that is allowed in any case. Teardown and repair wait no longer.
const RESERVE_TIMEOUT: Duration = Duration::from_secs(1);

/// Time that is kept for that reservation if an Unknown verdict is allowed.
const RESERVE_TIME: Duration = Duration::from_millis(400);

/// The interval of reads after a leadership transfer.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// One review.
#[derive(Clone, Copy)]
pub(super) struct Reviewer<'r> {
    config: &'r Config,
    clients: &'r Clients,
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
    pub(super) fn states(&self, config: &Config) -> Vec<(String, super::table::MemberState)> {
        let table = self.basis.as_ref().map(|basis| Table::of(config, &basis.facts));
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
        Self { config, clients, end: deadline, reserve_end: deadline }
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

    /// Whether an entry may select the pod of a review. The whole pod is read only for an entry without a selector.
    fn may_be_member(&self, namespace: &str, reviewed: &ReviewedPod) -> bool {
        let mut entries = self.config.clusters.iter().filter(|entry| entry.namespaces.may_match(namespace));
        let runs_etcd = || Pod::read(&reviewed.json, 0).map_or(true, |pod| pod.runs_etcd);
        entries.any(|entry| group::selects(entry, &reviewed.labels, runs_etcd))
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

    fn effects<'s>(
        &self,
        subject: &'s Subject<'_, '_>,
        writer: &'s dyn Writer,
        reader: KubeReader<'s>,
    ) -> Effects<'s> {
        Effects { writer, reader, store: self.config.coordination, lease: &subject.lease }
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

    /// Reserves a deletion that is allowed in any case, in the time that is left. A teardown needs no reservation.
    async fn reserve_allowed(&self, subject: &Subject<'_, '_>, writer: &dyn Writer) -> Result<(), Cause> {
        let kube = self.kube_until(self.reserve_end.min(Instant::now() + RESERVE_TIMEOUT));
        let read = self.reservations(subject, kube);
        let (is_torn_down, read) = join(self.is_torn_down(subject, kube), read).await;
        if is_torn_down {
            return Ok(());
        }
        let now = self.now();
        let entry = |reservations: &Reservations| {
            let now = self.now();
            let times =
                ReviewTimes { now, end: now + self.reserve_end.saturating_duration_since(Instant::now()) };
            let status = times.status(reservations, &subject.pod.uid);
            let entry = reservation(&subject.pod, &status, now, times.end)?;
            Ok(Some(entry).filter(|_| !status.is_active()))
        };
        match self.effects(subject, writer, kube).reserve(read?, now, entry).await {
            Some(WriteResult::Written) | None => Ok(()),
            Some(WriteResult::Failed(why)) => Err(why),
            Some(WriteResult::Conflict) => Err(Cause::new(cause::TIMEOUT, "no time was left")),
        }
    }

    /// Whether the whole etcd cluster or the pod's node is removed. Unreadable objects are not.
    async fn is_torn_down(&self, subject: &Subject<'_, '_>, kube: KubeReader<'_>) -> bool {
        let pod = &subject.pod;
        let (namespace, (owner, has_node)) = join(
            kube.namespace(&pod.namespace),
            join(Owners::read_one(kube, subject.entry, pod), kube.has_node(&pod.node)),
        )
        .await;
        // With several owners, this one removes only a part of the etcd cluster.
        let is_removed = subject.group.has_one_owner() && owner.is_ok_and(|owner| owner.has_no_pods_left());
        is_removed || namespace.is_ok_and(|namespace| namespace.is_deleting) || matches!(has_node, Ok(false))
    }

    async fn reservations(
        &self,
        subject: &Subject<'_, '_>,
        kube: KubeReader<'_>,
    ) -> Result<Reservations, Cause> {
        effects::read(self.config.coordination, kube, &subject.lease).await
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
        let Subject { removal, pod, entry, group, .. } = subject;
        let kube = self.kube();
        let state = KubeState::read(kube, entry, group, pod, self.reservations(subject, kube)).await;
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
            let snapshot = match self.read(subject).await {
                Ok(snapshot) => snapshot,
                Err(early) => return (*early).into(),
            };
            let effect = loop {
                let effect = match self.decide(subject, &snapshot, &progress) {
                    Decision::Outcome(outcome) => {
                        let outcome = self.add_namespace_warnings(subject.removal, &snapshot.state, outcome);
                        let (entry, pod, facts) = (subject.entry, subject.pod.clone(), snapshot.facts);
                        let basis = Some(Box::new(Basis { entry, pod, facts, progress }));
                        return Reviewed { outcome, must_reserve: false, basis };
                    }
                    Decision::Effect(effect) => effect,
                };
                match self.reserve(subject, &snapshot, &effect).await {
                    // The next decision does without a reservation.
                    Some(WriteResult::Failed(why)) => progress.reservation_error = Some(why),
                    Some(WriteResult::Written | WriteResult::Conflict) | None => break effect,
                }
            };
            if let Effect::MoveLeader { to, name } = effect {
                match self.move_leader(subject, &snapshot.facts, to).await {
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
        }
        Reviewed::from(match progress.moved_to {
            Some(to) => Outcome::deny(Reason::LeadershipMoved { to }),
            None => Outcome::unknown(UnknownCause::OutOfTime),
        })
    }

    fn decide(&self, subject: &Subject<'_, '_>, snapshot: &CurrentState, progress: &Progress) -> Decision {
        let Subject { removal, pod, entry, .. } = subject;
        let input = Input { config: self.config, entry, removal, pod, facts: &snapshot.facts, progress };
        let decision = if self.is_dry_run(removal) {
            Decision::Outcome(decide::dry_run(input))
        } else {
            decide::decide(input)
        };
        match decision {
            Decision::Outcome(outcome) => {
                Decision::Outcome(decide::unknown_owner(pod, &snapshot.state, outcome))
            }
            effect @ Decision::Effect(_) => effect,
        }
    }

    /// Writes the reservation that an effect needs over the reservations that the decision used. After a conflict it retries, as long
    /// as the others changed no reservation of this etcd cluster.
    async fn reserve(
        &self,
        subject: &Subject<'_, '_>,
        snapshot: &CurrentState,
        effect: &Effect,
    ) -> Option<WriteResult> {
        let (facts, pod) = (&snapshot.facts, &subject.pod);
        let successor = match effect {
            Effect::MoveLeader { .. } => return None,
            Effect::Reserve => None,
            Effect::AddSuccessor { uid } => Some(uid),
        };
        let read = match &snapshot.state.reservations {
            Ok(read) => read,
            Err(why) => return Some(WriteResult::Failed(why.clone())),
        };
        let entry = |current: &Reservations| {
            let is_same = |uid: &str| current.of(uid) == read.of(uid);
            if !is_same(&pod.uid) || !facts.pods.iter().all(|pod| is_same(&pod.pod.uid)) {
                return Ok(None);
            }
            let mut entry = reservation(pod, &facts.reservation, facts.now, facts.end)?;
            if let Some(uid) = successor {
                let previous = read.of(&pod.uid).filter(|_| facts.reservation.validity != Validity::Expired);
                entry.since = previous.map_or(entry.since, |previous| previous.since);
                entry.to.push(uid.clone());
            }
            Ok(Some(entry))
        };
        let writer = self.clients.writer.as_deref()?;
        let effects = self.effects(subject, writer, self.kube());
        Some(effects.reserve(read.clone(), facts.now, entry).await.unwrap_or(WriteResult::Conflict))
    }

    /// Moves leadership, and waits until most members report the new leader.
    async fn move_leader(&self, subject: &Subject<'_, '_>, facts: &Facts, to: Id) -> TransferResult {
        // Reviews without a writer are dry runs, which never get here.
        let Some(writer) = self.clients.writer.as_deref() else { return TransferResult::Unsupported };
        // The list may have a newer address than the first read.
        let listed = facts.pods.iter().find(|listed| listed.pod.uid == subject.pod.uid);
        let leader = subject.group.peer(listed.map_or(&subject.pod, |listed| &listed.pod));
        let effects = self.effects(subject, writer, self.kube_until(self.end));
        let moved = effects.move_leader(&leader, to).await;
        if moved != TransferResult::Transferred {
            return moved;
        }
        let majority = Table::of(self.config, facts).voters.map_or(usize::MAX, |voters| voters / 2 + 1);
        let reader = self.facts(subject);
        while Instant::now() < self.end {
            let statuses = join_all(facts.pods.iter().map(|pod| reader.status(&pod.pod))).await;
            let following = statuses.into_iter().flatten().filter(|status| status.leader == Some(to));
            let following: BTreeSet<Id> = following.map(|status| status.member).collect();
            if following.len() >= majority {
                break;
            }
            sleep(POLL_INTERVAL).await;
        }
        TransferResult::Transferred
    }
}
