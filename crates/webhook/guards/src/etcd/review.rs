//! The order of one review: read, decide, apply an effect, read again. `decide` contains the decisions.
//!
//! A review reserves the deletion first. Then it reads the health of all members again, moves leadership, and allows the deletion. So
//! every allow relies on facts that were read after the reservation, and a review of another member finds the reservation. A review
//! may be dropped at any point; its reservation expires. A dry run takes the same steps with a writer that does nothing.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use admission::{Mode, OnUnknown, Request};
use tokio::time::Instant;

use super::NAME;
use super::config::Config;
use super::decide::{self, Allowed, Decision, DenyReason, UnknownCause, Warning};
use super::effects::Effects;
use super::facts::{FactReader, Facts};
use super::group;
use super::input::{Effect, Progress, Round};
use super::kube_reader::KubeReader;
use super::kube_state::KubeState;
use super::member::{Member, stored_pod};
use super::removal::Removal;
use super::reviewed::Reviewed;
use super::unchecked::{self, RESERVE_TIMEOUT};
use crate::overrides::{self, Override};
use cluster::Clients;
use cluster::writer::{DryRun, Writer};

/// Time for one read of Kubernetes. A busy API server needs less, and two reads leave time for the members.
const KUBE_TIMEOUT: Duration = Duration::from_secs(2);

/// The rounds of one review. Each one but the first follows an effect or a write conflict.
const MAX_ROUNDS: usize = 12;

/// Time that is kept for a reservation if an Unknown verdict is allowed.
const RESERVE_TIME: Duration = Duration::from_millis(400);

/// One review of a removal.
pub(super) struct Review<'r> {
    config: &'r Config,
    clients: &'r Clients,
    removal: &'r Removal,
    writer: Option<&'r dyn Writer>,
    began: SystemTime,
    /// The end of reads, decisions and effects.
    end: Instant,
    /// The end of reservations for deletions that are allowed in any case.
    reserve_end: Instant,
}

impl<'r> Review<'r> {
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
        let kept = if review.allows_unknown() { RESERVE_TIME.min(left / 10) } else { Duration::ZERO };
        Self { end: deadline - kept, ..review }
    }

    /// Decides about the removal. It writes, and asks members, only after the API server has returned the pod of the review.
    pub(super) async fn run(&self, request: &Request<'_>) -> Reviewed<'r> {
        if let Some(decision) = decide::exempt(self.config, self.removal, request) {
            return self.reviewed(decision, Override::None);
        }
        // The first entry that selects a pod of this namespace and these labels may be its own.
        let is_selected =
            |labels| group::entries(self.config, &self.removal.namespace, labels).next().is_some();
        if self.removal.pod.as_ref().is_some_and(|pod| !is_selected(&pod.labels)) {
            return self.reviewed(Decision::allow(Allowed::Unselected), Override::None);
        }
        // Boxed, because this future is large, and most pods belong to no etcd cluster.
        Box::pin(self.review_stored()).await
    }

    /// Decides by the stored pod and its etcd cluster.
    async fn review_stored(&self) -> Reviewed<'r> {
        let stored = match stored_pod(self.kube(), self.removal).await {
            Ok(Some(stored)) => stored,
            stored => {
                let pod = self.removal.pod.as_ref();
                let by = pod.map_or(Override::None, |pod| self.override_of(&pod.name, &pod.annotations));
                let missing = |_| decide::missing(self.removal);
                let unread = |why| decide::unread(self.removal, &why, &by);
                return self.reviewed(stored.map_or_else(unread, missing), by);
            }
        };
        let annotations = stored.metadata.annotations.clone().unwrap_or_default();
        let by = self.override_of(&stored.metadata.name, &annotations);
        let member = match Member::find(self.kube(), self.config, &stored).await {
            Ok(Some(member)) => member,
            Ok(None) => return self.reviewed(Decision::allow(Allowed::Unselected), by),
            // An override needs no etcd cluster.
            Err(why) => {
                let unread = || Decision::unknown(UnknownCause::Unread(why));
                return self.reviewed(decide::overridden(&by).unwrap_or_else(unread), by);
            }
        };
        let mut reviewed = match decide::from_pod(self.removal, &member.pod, &by) {
            None if member.pod.is_deleting => self.reviewed(self.review_deleting(&member).await, by),
            None => {
                let (decision, members) = self.review_member(&member, None).await;
                Reviewed { members, ..self.reviewed(decision, by) }
            }
            Some(decision) => self.reviewed(decision, by),
        };
        self.reserve_unchecked(&member, &mut reviewed.decision).await;
        Reviewed { member: Some(member), ..reviewed }
    }

    /// Reviews a request that shortens the grace period of a pod. It is allowed, with a warning if the member leads.
    async fn review_deleting(&self, member: &Member<'_>) -> Decision {
        let decision = Decision::allow(Allowed::AlreadyDeleting);
        match self.reader(member).status(&member.pod).await {
            Ok(status) if status.leader == Some(status.member) => decision.warn(Warning::StillLeads),
            Ok(_) | Err(_) => decision,
        }
    }

    /// Returns what a deletion would get by facts that were read before.
    pub(super) async fn review_read(
        &self,
        member: Member<'r>,
        state: KubeState,
        facts: &Facts,
    ) -> Reviewed<'r> {
        let pod = &member.pod;
        let by = self.override_of(&pod.name, &pod.annotations);
        let namespace_override = self.namespace_override(&state);
        let early = decide::from_pod(self.removal, pod, &by)
            .or_else(|| decide::from_kube_state(pod, &state, &namespace_override));
        let reviewed = if let Some(decision) = early {
            self.reviewed(decision, by)
        } else {
            let round = Round::new(state, namespace_override, facts.clone().about(&pod.uid));
            let (decision, members) = self.review_member(&member, Some(round)).await;
            Reviewed { members, ..self.reviewed(decision, by) }
        };
        Reviewed { member: Some(member), ..reviewed }
    }

    /// Decides by the members, and returns what they answered last. After an effect, everything is read again. `first` is the first
    /// round, if it was read already.
    async fn review_member(
        &self,
        member: &Member<'_>,
        first: Option<Round>,
    ) -> (Decision, Option<(Round, Progress)>) {
        let mut progress = Progress { is_dry_run: self.writer.is_none(), ..Progress::default() };
        let mut known = first;
        for _ in 0..MAX_ROUNDS {
            let round = match known.take() {
                Some(round) => round,
                None if Instant::now() >= self.end => break,
                None => match self.read(member).await {
                    Ok(round) => round,
                    Err(early) => return (*early, None),
                },
            };
            let Member { pod, entry, .. } = member;
            let input = round.input(self.config, entry, self.removal, pod, &progress);
            let effect = match decide::decide(input) {
                Ok(decision) => {
                    let decision = decide::with_state(pod, &round.state, &round.namespace_override, decision);
                    return (decision, Some((round, progress)));
                }
                Err(effect) => effect,
            };
            let end = if effect == Effect::Reserve { self.kube().end } else { self.end };
            let effects = self.effects(member, end);
            let must_read = effects.apply(effect, &round, &mut progress, self.reader(member)).await;
            if let Some(why) = progress.failed_transfer() {
                return (Decision::unknown(UnknownCause::Unread(why)), None);
            }
            known = Some(round).filter(|_| progress.is_dry_run || !must_read);
        }
        let decision = match progress.moved_to {
            Some(to) => Decision::deny(DenyReason::LeadershipMoved { to }),
            None => Decision::unknown(UnknownCause::OutOfTime),
        };
        (decision, None)
    }

    /// Reads Kubernetes and the members. Returns an early decision if the members need not be asked.
    async fn read(&self, member: &Member<'_>) -> Result<Round, Box<Decision>> {
        let Member { pod, entry, group, lease } = member;
        let state = KubeState::read(self.kube(), entry, group, pod, (self.began, lease)).await;
        let namespace_override = self.namespace_override(&state);
        if let Some(early) = decide::from_kube_state(pod, &state, &namespace_override) {
            return Err(Box::new(early));
        }
        let facts = self.reader(member).about(&pod.uid, &state).await;
        Ok(Round::new(state, namespace_override, facts))
    }

    /// Reserves a pod that is allowed without a quorum check, or although the check failed. It is allowed even if that fails.
    async fn reserve_unchecked(&self, member: &Member<'_>, decision: &mut Decision) {
        let is_unchecked = decision.is_overridden() || decision.is_unknown() && self.allows_unknown();
        if !is_unchecked || self.writer.is_none() {
            return;
        }
        let end = self.reserve_end.min(Instant::now() + RESERVE_TIMEOUT);
        let kube = KubeReader { clients: self.clients, end };
        let reserved = unchecked::reserve(&self.effects(member, end), kube, self.began).await;
        decision.warnings.extend(reserved.err().map(Warning::Unreserved));
    }

    fn reviewed(&self, decision: Decision, pod_override: Override) -> Reviewed<'r> {
        let Self { config, removal, .. } = *self;
        let now = self.clients.context.now();
        Reviewed { config, removal, now, decision, pod_override, member: None, members: None }
    }

    /// Judges the override annotations of an object. No other place does.
    fn override_of(&self, name: &str, annotations: &BTreeMap<String, String>) -> Override {
        overrides::judge(NAME, self.config.overrides, name, annotations, self.clients.context.now())
    }

    fn namespace_override(&self, state: &KubeState) -> Override {
        let namespace = state.namespace.as_ref().ok();
        namespace.map_or(Override::None, |namespace| {
            self.override_of(&self.removal.namespace, &namespace.annotations)
        })
    }

    fn effects<'s>(&'s self, member: &'s Member<'_>, end: Instant) -> Effects<'s> {
        Effects { writer: self.writer.unwrap_or(&DryRun), member, end, now: self.clients.context.now() }
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
