//! The order of one review: read, decide, apply an effect, read again. `decide` contains the decisions.
//!
//! A review reserves the deletion first, and names the successor of a leader. Then it reads the health of all members again, moves
//! leadership, and allows the deletion. So every allow relies on facts that were read after the reservation, and a review of another
//! member finds the reservation. A review may be dropped at any point; its reservation expires.

use std::collections::BTreeSet;
use std::time::Duration;

use admission::{Cause, Mode, OnUnknown, Request, Ruling, Verdict};
use futures_util::future::{join, join_all};
use tokio::time::{Instant, sleep};

use super::config::{Config, EtcdClusterConfig, NamespaceMatch};
use super::decide::{self, Decision, EarlyRuling, Next};
use super::effects::{self, Effects};
use super::facts::{FactReader, Facts};
use super::group::{self, Group};
use super::input::{Effect, Input, Progress};
use super::kube_reader::{KubeReader, PODS, json};
use super::kube_state::KubeState;
use super::messages;
use super::namespaces;
use super::overrides::{self, Override};
use super::owners::Owners;
use super::pod::Pod;
use super::related;
use super::removal::{Removal, RemovalKind, ReviewedPod, malformed};
use super::reservations::{ReviewTimes, Validity, reservation};
use super::table::Table;
use super::update::{self, Change};
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
struct Subject<'s> {
    removal: &'s Removal,
    pod: Pod,
    entry: &'s EtcdClusterConfig,
    group: Group,
    lease: Lease,
}

/// Returns the ruling for a pod that no entry selects.
fn unselected() -> Ruling {
    Ruling::allow().audit("allowed", "it belongs to no configured etcd cluster")
}

impl<'r> Reviewer<'r> {
    pub(super) fn new(config: &'r Config, clients: &'r Clients, deadline: Instant) -> Self {
        Self { config, clients, end: deadline, reserve_end: deadline }
    }

    /// Reviews a request that is not about a pod.
    pub(super) async fn review_related(&self, request: &Request<'_>) -> Ruling {
        related::review(self.config, self.kube(), request, self.clients.context.now()).await
    }

    /// Reviews an update of a namespace.
    pub(super) async fn review_namespace(&self, request: &Request<'_>) -> Ruling {
        namespaces::review(self.config, self.kube(), request, self.clients.context.now()).await
    }

    /// Reviews the deletion or eviction of a pod, or an update that counts as one.
    ///
    /// A review can come from a stranger. Nothing is written and no member is asked unless the API server returns the pod with the
    /// uid of the review. Its stored state decides, so addresses and owners are never those of the review.
    pub(super) async fn review_pod(&self, kind: RemovalKind, request: &Request<'_>) -> Ruling {
        let mut removal = match decide::from_request(self.config, kind, request) {
            Next::Rule(ruling) => return ruling,
            Next::ReadFacts(removal) => removal,
        };
        if let Some(ReviewedPod { json, .. }) = &removal.pod
            && let Ok(pod) = Pod::read(json, 0)
            && group::entries(self.config, &pod).next().is_none()
        {
            return unselected();
        }
        let json = match self.stored_pod(&removal).await {
            Ok(Some(json)) => json,
            Ok(None) => return decide::missing(self.config, &removal, self.clients.context.now()),
            Err(why) => return decide::unread(self.config, &removal, &why, self.clients.context.now()),
        };
        let member = match self.member(&json).await {
            Ok(Some(member)) => member,
            Ok(None) => return unselected(),
            Err(why) => return self.unknown_membership(&removal, &json, &why),
        };
        if kind == RemovalKind::Update {
            match self.changes(&removal, &member).await {
                Ok(changes) if changes.is_empty() => {
                    return Ruling::allow().audit("allowed", "the pod stays in the guard");
                }
                Ok(changes) => removal.changes = changes,
                Err(why) => return self.unknown(&removal, &why),
            }
        }
        let Member { pod, entry, group, lease } = member;
        let subject = Subject { removal: &removal, pod, entry, group, lease };
        let early = match decide::from_pod(self.config, &removal, &subject.pod, self.clients.context.now()) {
            Some(early) => early,
            None if subject.pod.is_deleting => return self.review_deleting(&subject).await,
            None => self.with_reserve_time(&removal).review_member(&subject).await,
        };
        self.finish(&subject, early).await
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

    /// Returns the changes of an update that count as a removal.
    async fn changes(&self, removal: &Removal, member: &Member<'_>) -> Result<Vec<Change>, Cause> {
        let Some(ReviewedPod { json: old, new: Some(new), .. }) = &removal.pod else {
            return Err(malformed("it has no object"));
        };
        let port = member.entry.port;
        let (old, new) = (Pod::read(old, port)?, Pod::read(new, port)?);
        update::changes(self.config, self.kube(), member.entry, &old, &new).await
    }

    /// Returns a reviewer that keeps time for a reservation if an Unknown verdict is allowed.
    fn with_reserve_time(self, removal: &Removal) -> Self {
        let left = self.end.saturating_duration_since(Instant::now());
        let is_needed = self.allows_unknown(removal) && !self.is_dry_run(removal);
        let kept = if is_needed { RESERVE_TIME.min(left / 10) } else { Duration::ZERO };
        Self { end: self.end - kept, ..self }
    }

    fn unknown(&self, removal: &Removal, why: &Cause) -> Ruling {
        messages::unknown_removal(self.config, removal, why, self.clients.context.now())
    }

    /// Rules on a pod whose etcd cluster is unknown. An override allows it anyway.
    fn unknown_membership(&self, removal: &Removal, json: &str, why: &Cause) -> Ruling {
        let now = self.clients.context.now();
        let judged =
            Pod::read(json, 0).map(|pod| overrides::judge(self.config, &pod.name, &pod.annotations, now));
        match judged {
            Ok(Override::Active { reason, until }) => {
                messages::overridden(&removal.full_name(), &reason, &until)
            }
            Ok(Override::None | Override::Invalid(_)) | Err(_) => self.unknown(removal, why),
        }
    }

    /// Adds what is wrong with the override annotations of the namespace.
    fn add_namespace_warnings(&self, removal: &Removal, state: &KubeState, ruling: Ruling) -> Ruling {
        let Ok(namespace) = &state.namespace else { return ruling };
        match overrides::judge(self.config, &removal.namespace, &namespace.annotations, state.now) {
            Override::Invalid(wrong) if ruling.verdict != Verdict::Allow => {
                ruling.warn(messages::namespace_override(&removal.namespace, &wrong))
            }
            _ => ruling,
        }
    }

    fn kube(&self) -> KubeReader<'r> {
        self.kube_until(self.end.min(Instant::now() + KUBE_TIMEOUT))
    }

    fn kube_until(&self, end: Instant) -> KubeReader<'r> {
        KubeReader { clients: self.clients, end }
    }

    fn facts<'s>(&'s self, subject: &'s Subject<'_>) -> FactReader<'s> {
        FactReader { clients: self.clients, config: self.config, group: &subject.group, end: self.end }
    }

    fn effects<'s>(
        &self,
        subject: &'s Subject<'_>,
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
    async fn finish(
        &self,
        subject: &Subject<'_>,
        EarlyRuling { ruling, must_reserve }: EarlyRuling,
    ) -> Ruling {
        let removal = subject.removal;
        let is_allowed_unknown =
            matches!(ruling.verdict, Verdict::Unknown(_)) && self.allows_unknown(removal);
        if self.is_dry_run(removal) || !(must_reserve || is_allowed_unknown) {
            return ruling;
        }
        let Some(writer) = self.clients.writer.as_deref() else { return ruling };
        match self.reserve_allowed(subject, writer).await {
            Ok(()) => ruling,
            Err(why) => ruling.warn(messages::pod_warning(&subject.pod, &decide::unreserved_warning(&why))),
        }
    }

    /// Reserves a deletion that is allowed in any case, in the time that is left. A teardown needs no reservation.
    async fn reserve_allowed(&self, subject: &Subject<'_>, writer: &dyn Writer) -> Result<(), Cause> {
        let kube = self.kube_until(self.reserve_end.min(Instant::now() + RESERVE_TIMEOUT));
        let read = self.reservations(subject, kube);
        let (is_torn_down, read) = join(self.is_torn_down(subject, kube), read).await;
        if is_torn_down {
            return Ok(());
        }
        let now = self.clients.context.now();
        let entry = |reservations: &Reservations| {
            let now = self.clients.context.now();
            let times =
                ReviewTimes { now, end: now + self.reserve_end.saturating_duration_since(Instant::now()) };
            let status = times.status(reservations, &subject.pod.uid);
            let entry = reservation(&subject.pod, &status, now, times.end)?;
            Ok(Some(entry).filter(|_| status.validity != Validity::Active))
        };
        match self.effects(subject, writer, kube).reserve(read?, now, entry).await {
            Some(WriteResult::Written) | None => Ok(()),
            Some(WriteResult::Failed(why)) => Err(why),
            Some(WriteResult::Conflict) => Err(Cause::new(cause::TIMEOUT, "no time was left")),
        }
    }

    /// Whether the whole etcd cluster or the pod's node is removed. Unreadable objects are not.
    async fn is_torn_down(&self, subject: &Subject<'_>, kube: KubeReader<'_>) -> bool {
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

    async fn reservations(&self, subject: &Subject<'_>, kube: KubeReader<'_>) -> Result<Reservations, Cause> {
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
    async fn review_deleting(&self, subject: &Subject<'_>) -> Ruling {
        let ruling = Ruling::allow().audit("allowed", "the pod is already being deleted");
        match self.facts(subject).status(&subject.pod).await {
            Ok(status) if status.leader == Some(status.member) => {
                ruling.warn(messages::pod_warning(&subject.pod, decide::STILL_LEADS))
            }
            Ok(_) | Err(_) => ruling,
        }
    }

    /// Reads Kubernetes and the members. Returns an early ruling if the members need not be asked.
    async fn read(&self, subject: &Subject<'_>) -> Result<CurrentState, Box<EarlyRuling>> {
        let Subject { removal, pod, entry, group, .. } = subject;
        let kube = self.kube();
        let state = KubeState::read(kube, entry, group, pod, self.reservations(subject, kube)).await;
        if let Some(early) = decide::from_kube_state(self.config, removal, pod, &state) {
            return Err(Box::new(early));
        }
        let facts = self.facts(subject).about(&pod.uid, &state).await;
        match decide::from_view(&pod.uid, &facts) {
            Some(early) => Err(Box::new(early)),
            None => Ok(CurrentState { state, facts }),
        }
    }

    async fn review_member(&self, subject: &Subject<'_>) -> EarlyRuling {
        let mut progress = Progress::default();
        let mut move_error = None;
        for _ in 0..MAX_READS {
            if Instant::now() >= self.end {
                break;
            }
            let snapshot = match self.read(subject).await {
                Ok(snapshot) => snapshot,
                Err(early) => return *early,
            };
            let effect = loop {
                let effect = match self.decide(subject, &snapshot, &progress) {
                    Decision::Ruling(ruling) => {
                        let ruling = self.add_namespace_warnings(subject.removal, &snapshot.state, ruling);
                        return EarlyRuling::unreserved(ruling);
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
                            return EarlyRuling::unreserved(self.unknown(subject.removal, &first));
                        }
                    }
                }
            }
        }
        if let Some(name) = &progress.moved_to {
            return EarlyRuling::unreserved(messages::leader_moved(subject.removal, name));
        }
        let text = "Durward ran out of time";
        EarlyRuling::unreserved(self.unknown(subject.removal, &Cause::new(cause::TIMEOUT, text)))
    }

    fn decide(&self, subject: &Subject<'_>, snapshot: &CurrentState, progress: &Progress) -> Decision {
        let Subject { removal, pod, entry, .. } = subject;
        let input = Input { config: self.config, entry, removal, pod, facts: &snapshot.facts, progress };
        let decision = if self.is_dry_run(removal) {
            Decision::Ruling(decide::dry_run(input))
        } else {
            decide::decide(input)
        };
        match decision {
            Decision::Ruling(ruling) => {
                Decision::Ruling(decide::unknown_owner(self.config, removal, pod, &snapshot.state, ruling))
            }
            effect @ Decision::Effect(_) => effect,
        }
    }

    /// Writes the reservation that an effect needs over the reservations that the decision used. After a conflict it retries, as long
    /// as the others changed no reservation of this etcd cluster.
    async fn reserve(
        &self,
        subject: &Subject<'_>,
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
    async fn move_leader(&self, subject: &Subject<'_>, facts: &Facts, to: Id) -> TransferResult {
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
