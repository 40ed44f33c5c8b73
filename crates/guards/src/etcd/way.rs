//! The way of one review: look, decide, act, look again. What is decided stands in `decide.rs`; here is only the order of things
//! and the time that they have.
//!
//! The order is: note that the pod leaves, and for a leader to whom it hands over; read everyone's health again, hand over, let it
//! go. So whatever lets a member go was seen after its departure was noted, and whoever decides about another one has seen that
//! note. The review may end at any point, and be dropped: what is noted by then runs out.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use admission::{Cause, Mode, OnUnknown, Request, Ruling, Verdict};
use futures_util::future::{join, join_all};
use k8s_openapi::jiff::Timestamp;
use tokio::time::{Instant, sleep, timeout_at};

use super::above;
use super::act::{self, Act};
use super::config::{Book, Config, Ensemble, Within};
use super::decide::{self, Case, Done, Effect, Opened, Step, Unasked};
use super::facts::{Facts, Gathering};
use super::glass::{self, Override};
use super::ground::{GRACE, Ground, Look};
use super::group::{self, Chosen, Group};
use super::notes::{Hold, Note, When};
use super::pod::Pod;
use super::table::Table;
use super::target::{Deed, Target};
use super::tell;
use ::config::SelectorExt as _;
use cluster::etcd::Id;
use cluster::writer::{Lease, Reservation, Reservations, TransferResult, WriteResult, Writer};
use cluster::{Clients, cause};

/// Kept of the review's time for deciding and answering: a tenth, and no more than this.
const FOR_THE_ANSWER: Duration = Duration::from_millis(200);

/// Kubernetes is waited for at most this long in each look: enough for a busy API server, and two looks leave time for the
/// members.
const GROUND: Duration = Duration::from_secs(2);

/// Looks at most; each but the first follows something that was done, or that somebody else was faster.
const LOOKS: usize = 12;

/// How long a departure is noted for at most where it goes in any case. Teardown and repair wait for nothing.
const BESIDE: Duration = Duration::from_secs(1);

/// Kept for that of the review's time where whoever asks may have what nobody can say.
const FOR_THE_NOTE: Duration = Duration::from_millis(400);

/// How often it is looked whether the others have seen the new leader.
const POLL: Duration = Duration::from_millis(50);

/// One review.
#[derive(Clone, Copy)]
pub(super) struct Way<'w> {
    config: &'w Config,
    clients: &'w Clients,
    /// Until when it may look, decide and act.
    end: Instant,
    /// Until when it may note what goes in any case.
    last: Instant,
}

/// What one look brought.
struct Seen {
    ground: Ground,
    facts: Facts,
}

/// The pod and what it is a part of.
struct Subject<'s> {
    target: &'s Target,
    pod: Pod,
    ensemble: &'s Ensemble,
    group: Group,
    lease: Lease,
}

impl<'w> Way<'w> {
    pub(super) fn new(config: &'w Config, clients: &'w Clients, deadline: Instant) -> Self {
        let left = deadline.saturating_duration_since(Instant::now());
        let end = deadline - FOR_THE_ANSWER.min(left / 10);
        Self { config, clients, end, last: end }
    }

    fn writer(&self) -> Option<&'w dyn Writer> {
        self.clients.writer.as_deref()
    }

    /// The same that ends sooner where somebody may have what nobody can say: that is noted afterwards.
    fn with_time_to_note(self, target: &Target) -> Self {
        let left = self.end.saturating_duration_since(Instant::now());
        let is_needed = self.passes_unknown(target) && !self.is_pretending(target);
        let kept = if is_needed { FOR_THE_NOTE.min(left / 10) } else { Duration::ZERO };
        Self { end: self.end - kept, ..self }
    }

    fn unseen(&self, target: &Target, why: &Cause) -> Ruling {
        tell::unseen(self.config, target, why, self.clients.context.now())
    }

    /// A pod of which nobody can say whether it is in an ensemble. Whoever wants it gone in spite of all need not know.
    fn unplaced(&self, target: &Target, json: &str, why: &Cause) -> Ruling {
        let now = self.clients.context.now();
        let tried = Pod::read(json, 0).map(|pod| glass::judge(self.config, &pod.name, &pod.annotations, now));
        match tried {
            Ok(Override::Active { reason, until }) => tell::glass_broken(&target.told(), &reason, &until),
            Ok(Override::None | Override::Invalid(_)) | Err(_) => self.unseen(target, why),
        }
    }

    /// The ruling, and what is wrong with the annotations of a namespace that was to let its members go.
    fn beside(&self, target: &Target, ground: &Ground, ruling: Ruling) -> Ruling {
        let Ok(namespace) = &ground.namespace else { return ruling };
        match glass::judge(self.config, &target.namespace, &namespace.annotations, ground.now) {
            Override::Invalid(wrong) if ruling.verdict != Verdict::Allow => {
                ruling.warn(tell::of_namespace(&target.namespace, &wrong))
            }
            _ => ruling,
        }
    }

    fn look(&self) -> Look<'w> {
        Look { clients: self.clients, end: self.end.min(Instant::now() + GROUND) }
    }

    /// What is about more than one pod.
    pub(super) async fn of_others(&self, request: &Request<'_>) -> Ruling {
        above::rule(self.config, self.look(), request, self.clients.context.now()).await
    }

    /// A pod that is deleted or evicted.
    pub(super) async fn of_pod(&self, deed: Deed, request: &Request<'_>) -> Ruling {
        let target = match decide::open(self.config, deed, request) {
            Opened::Rule(ruling) => return ruling,
            Opened::Look(target) => target,
        };
        let json = match &target.pod {
            Some(json) => json.clone(),
            None => match self.look().pod(&target.namespace, &target.name).await {
                Ok(Some(json)) => json,
                Ok(None) => return Ruling::allow().audit("allowed", "there is no such pod"),
                Err(why) => return self.unseen(&target, &why),
            },
        };
        let subject = match self.subject(&target, &json).await {
            Ok(Some(subject)) => subject,
            Ok(None) => return Ruling::allow().audit("allowed", "it is in no ensemble"),
            Err(why) => return self.unplaced(&target, &json, &why),
        };
        if target.only.as_ref().is_some_and(|only| *only != subject.pod.uid) {
            let why = "it is meant for another pod of that name, so that the API server refuses it (preconditions.uid)";
            return Ruling::allow().audit("allowed", why);
        }
        let unasked = match decide::of_pod(self.config, &target, &subject.pod, self.clients.context.now()) {
            Some(unasked) => unasked,
            None if subject.pod.is_going => return self.of_going(&subject).await,
            None => self.with_time_to_note(&target).of_member(&subject).await,
        };
        self.leaves(&subject, unasked).await
    }

    /// The one way out of all rulings of a pod whose ensemble is known: who goes without a rule of the quorum, or although nobody can
    /// say whether it may, is noted like all others, for whoever decides about the next one. It goes also where that fails.
    async fn leaves(&self, subject: &Subject<'_>, Unasked { ruling, is_missed }: Unasked) -> Ruling {
        let target = subject.target;
        let goes_unknown = matches!(ruling.verdict, Verdict::Unknown(_)) && self.passes_unknown(target);
        if self.is_pretending(target) || !(is_missed || goes_unknown) {
            return ruling;
        }
        let Some(writer) = self.writer() else { return ruling };
        match self.note_beside(subject, writer).await {
            Ok(()) => ruling,
            Err(why) => ruling.warn(tell::voice(&subject.pod, &decide::let_no_other(&why))),
        }
    }

    /// Notes that a pod leaves that goes in any case, with what time is left, and asks no member. What is torn down is missed by nobody.
    async fn note_beside(&self, subject: &Subject<'_>, writer: &dyn Writer) -> Result<(), Cause> {
        let end = self.last.min(Instant::now() + BESIDE);
        let look = Look { clients: self.clients, end };
        let (is_torn_down, mut read) = join(self.is_torn_down(subject, look), self.book(subject, look)).await;
        if is_torn_down {
            return Ok(());
        }
        let late = || Cause::new(cause::TIMEOUT, "there was no time left");
        let act = Act { end, ..self.act(subject, writer) };
        let mut turn = None;
        loop {
            let book = read?;
            let now = self.clients.context.now();
            let ends = now + self.last.saturating_duration_since(Instant::now());
            let note = When { now, ends }.note(&book, &subject.pod.uid);
            if note.hold == Hold::Fresh {
                return Ok(());
            }
            let entry = entry(&subject.pod, &note, now, ends)?;
            let written = timeout_at(end + GRACE, act.note(&book, entry, now));
            match written.await.map_err(|_| late())? {
                WriteResult::Written => return Ok(()),
                WriteResult::Failed(why) => return Err(why),
                WriteResult::Conflict if Instant::now() >= end => return Err(late()),
                WriteResult::Conflict => {}
            }
            if turn.is_none() {
                turn = Some(timeout_at(end, act::turn(act.lease)).await.map_err(|_| late())?);
            }
            read = self.book(subject, look).await;
        }
    }

    /// Whether nothing of the ensemble, or of the pod's node, is to be left. What cannot be seen is not.
    async fn is_torn_down(&self, subject: &Subject<'_>, look: Look<'_>) -> bool {
        let pod = &subject.pod;
        let (namespace, (owner, node)) = join(
            look.namespace(&pod.namespace),
            join(look.stands(subject.ensemble, pod), look.has_node(&pod.node)),
        )
        .await;
        // One of several takes a part of the ensemble only, and who makes the others is not looked at here.
        let ends = subject.group.is_of_one_set() && owner.is_ok_and(|owner| owner.has_no_pods_left());
        ends || namespace.is_ok_and(|namespace| namespace.is_going) || matches!(node, Ok(false))
    }

    /// Who is on the way out.
    async fn book(&self, subject: &Subject<'_>, look: Look<'_>) -> Result<Reservations, Cause> {
        match self.config.reservation {
            Book::Lease => look.book(&subject.lease).await,
            Book::Local => Ok(act::local(&subject.lease)),
        }
    }

    /// Which ensemble the pod is of; none where it is in none.
    async fn subject<'s>(&self, target: &'s Target, json: &str) -> Result<Option<Subject<'s>>, Cause>
    where
        'w: 's,
    {
        let mut pod = Pod::read(json, 0)?;
        let mut chosen = None;
        let mut namespace = None;
        for (ensemble, is_chosen) in group::entry(self.config, &pod, json) {
            if is_chosen == Chosen::Yes {
                chosen = Some(ensemble);
                break;
            }
            if namespace.is_none() {
                namespace = Some(self.look().namespace(&pod.namespace).await?);
            }
            let labels = namespace.as_ref().map(|namespace| namespace.labels.clone()).unwrap_or_default();
            if matches!(&ensemble.within, Within::Labelled(selector) if selector.matches(&labels)) {
                chosen = Some(ensemble);
                break;
            }
        }
        let Some(ensemble) = chosen else { return Ok(None) };
        // Which of its containers etcd is may depend on the port.
        pod = Pod::read(json, ensemble.port)?;
        let group = Group::of(ensemble, &pod);
        let lease = group.lease(&self.config.common_config.install_namespace);
        Ok(Some(Subject { target, pod, ensemble, group, lease }))
    }

    /// Its time is made shorter while it ends: that cannot be stopped, and is worth a warning if it leads.
    async fn of_going(&self, subject: &Subject<'_>) -> Ruling {
        let ruling = Ruling::allow().audit("allowed", "its pod is being deleted already");
        match self.gathering(subject).status(&subject.pod).await {
            Ok(status) if status.leader == Some(status.member) => {
                ruling.warn(tell::voice(&subject.pod, decide::STILL_LEADS))
            }
            Ok(_) | Err(_) => ruling,
        }
    }

    fn gathering<'s>(&'s self, subject: &'s Subject<'_>) -> Gathering<'s> {
        Gathering { clients: self.clients, config: self.config, group: &subject.group, end: self.end }
    }

    /// Looks at Kubernetes and at the members; an error is a ruling that needs no member.
    async fn see(&self, subject: &Subject<'_>) -> Result<Seen, Box<Unasked>> {
        let lease = (self.config.reservation == Book::Lease).then_some(&subject.lease);
        let Subject { target, pod, ensemble, group, .. } = subject;
        let mut ground = self.look().about(ensemble, group, pod, lease).await;
        if lease.is_none() {
            ground.book = Ok(act::local(&subject.lease));
        }
        if let Some(unasked) = decide::of_ground(self.config, target, pod, &ground) {
            return Err(Box::new(unasked));
        }
        let pods = ground.pods.as_deref().unwrap_or_default();
        let facts = self.gathering(subject).about(&pod.uid, &ground, pods).await;
        Ok(Seen { ground, facts })
    }

    async fn of_member(&self, subject: &Subject<'_>) -> Unasked {
        let mut done = Done::default();
        let mut unmoved = None;
        for _ in 0..LOOKS {
            if Instant::now() >= self.end {
                break;
            }
            let seen = match self.see(subject).await {
                Ok(seen) => seen,
                Err(unasked) => return *unasked,
            };
            let effect = loop {
                let effect = match self.decided(subject, &seen, &mut done) {
                    Step::Rule(ruling) => {
                        return Unasked::free(self.beside(subject.target, &seen.ground, ruling));
                    }
                    Step::Act(effect) => effect,
                };
                match self.note(subject, &seen, &effect).await {
                    // What is decided now does without.
                    Some(WriteResult::Failed(why)) => done.unnoted = Some(why),
                    Some(WriteResult::Written | WriteResult::Conflict) | None => break effect,
                }
            };
            if let Effect::Move { to, name } = effect {
                match self.hand_over(subject, &seen.facts, to).await {
                    TransferResult::Transferred => done.moved = Some(name),
                    TransferResult::NotLeader => {}
                    TransferResult::BadTarget => done.refused.push(to),
                    TransferResult::Unsupported => done.is_unmovable = true,
                    TransferResult::Unknown(why) => {
                        // One more look may show that it did. If it leads still, it is told once more, and not again.
                        if let Some(before) = unmoved.replace(why) {
                            return Unasked::free(self.unseen(subject.target, &before));
                        }
                    }
                }
            }
        }
        if let Some(name) = &done.moved {
            return Unasked::free(tell::moved(subject.target, name));
        }
        let text = "Durward had no time left to be sure; try again";
        Unasked::free(self.unseen(subject.target, &Cause::new(cause::TIMEOUT, text)))
    }

    /// Whether nothing is to be changed this time: what would be done counts as done, and is told. In audit mode a refusal does not
    /// bind, and nothing else does.
    fn is_pretending(&self, target: &Target) -> bool {
        self.clients.writer.is_none()
            || target.dry_run
            || self.config.common_config.settle_policy.mode == Mode::Audit
    }

    /// Decides.
    fn decided(&self, subject: &Subject<'_>, seen: &Seen, done: &mut Done) -> Step {
        let Subject { target, pod, ensemble, .. } = subject;
        let is_pretending = self.is_pretending(target);
        loop {
            let case = Case { config: self.config, ensemble, target, pod, facts: &seen.facts, done };
            match decide::close(case) {
                Step::Act(Effect::Reserve | Effect::Appoint { .. }) if is_pretending => {
                    done.is_reserved = true;
                }
                Step::Act(Effect::Move { name, .. }) if is_pretending => done.pretended = Some(name),
                Step::Rule(ruling) => return Step::Rule(decide::of_maker(pod, &seen.ground, ruling)),
                step @ Step::Act(_) => return step,
            }
        }
    }

    /// Whether somebody may have what nobody can say, as the configuration has it.
    fn passes_unknown(&self, target: &Target) -> bool {
        let settle_policy = &self.config.common_config.settle_policy;
        let when = if target.by_controller { settle_policy.controllers } else { settle_policy.users };
        when == OnUnknown::Allow
    }

    fn act<'s>(&'s self, subject: &'s Subject<'_>, writer: &'s dyn Writer) -> Act<'s> {
        Act { writer, book: self.config.reservation, lease: &subject.lease, end: self.end }
    }

    /// Notes what is to be noted, if anything.
    async fn note(&self, subject: &Subject<'_>, seen: &Seen, effect: &Effect) -> Option<WriteResult> {
        let (facts, pod) = (&seen.facts, &subject.pod);
        let read = match &seen.ground.book {
            Ok(read) => read,
            Err(why) => return Some(WriteResult::Failed(why.clone())),
        };
        let mut entry = match entry(pod, &facts.note, facts.now, facts.ends) {
            Ok(entry) => entry,
            Err(why) => return Some(WriteResult::Failed(why)),
        };
        match effect {
            Effect::Move { .. } => return None,
            Effect::Reserve => {}
            Effect::Appoint { to } => {
                let before = read.of(&pod.uid).filter(|_| facts.note.hold != Hold::Void);
                entry.since = before.map_or(entry.since, |before| before.since);
                entry.to.push(to.clone());
            }
        }
        let act = Act { end: self.end.min(Instant::now() + GROUND), ..self.act(subject, self.writer()?) };
        Some(self.written(&act, subject, seen, read, entry).await)
    }

    /// Writes over what the decision rested on, or over what others wrote since, if that is about other ensembles.
    async fn written(
        &self,
        act: &Act<'_>,
        subject: &Subject<'_>,
        seen: &Seen,
        read: &Reservations,
        entry: Reservation,
    ) -> WriteResult {
        let now = seen.ground.now;
        let first = act.note(read, entry.clone(), now).await;
        if first != WriteResult::Conflict {
            return first;
        }
        let Ok(_turn) = timeout_at(act.end, act::turn(act.lease)).await else { return WriteResult::Conflict };
        while Instant::now() < act.end {
            let book = self.book(subject, self.look()).await;
            let Ok(book) = book else { return WriteResult::Conflict };
            let is_same = |uid: &str| book.of(uid) == read.of(uid);
            if !is_same(&subject.pod.uid) || !seen.facts.seen.iter().all(|seen| is_same(&seen.pod.uid)) {
                return WriteResult::Conflict;
            }
            let written = act.note(&book, entry.clone(), now).await;
            if written != WriteResult::Conflict {
                return written;
            }
        }
        WriteResult::Conflict
    }

    /// Has the leader hand over, and waits until most of the members have seen it.
    async fn hand_over(&self, subject: &Subject<'_>, facts: &Facts, to: Id) -> TransferResult {
        // Without hands nobody gets here: it is pretended before.
        let Some(writer) = self.writer() else { return TransferResult::Unsupported };
        let act = self.act(subject, writer);
        let moved = act.transfer_leadership(&subject.group.peer(&current(subject, facts)), to).await;
        if moved != TransferResult::Transferred {
            return moved;
        }
        let most = Table::of(self.config, facts).voters.map_or(usize::MAX, |voters| voters / 2 + 1);
        let gathering = self.gathering(subject);
        while Instant::now() < self.end {
            let asked = facts.seen.iter().map(|seen| gathering.status(&seen.pod));
            let saw: BTreeSet<Id> = join_all(asked)
                .await
                .into_iter()
                .flatten()
                .filter(|status| status.leader == Some(to))
                .map(|status| status.member)
                .collect();
            if saw.len() >= most {
                break;
            }
            sleep(POLL).await;
        }
        TransferResult::Transferred
    }
}

/// What is noted of a pod for a review that ends then, with what is known of it already.
fn entry(pod: &Pod, note: &Note, now: SystemTime, ends: SystemTime) -> Result<Reservation, Cause> {
    let time = |time: SystemTime| {
        Timestamp::try_from(time)
            .map_err(|error| Cause::new(cause::NOT_RESERVED, format!("the time is none: {error}")))
    };
    let mut entry = Reservation::new(&pod.uid, &pod.name, time(ends)?);
    entry.first = Some(note.first.map_or_else(|| time(now), Ok)?);
    // Another review of it may have chosen differently, and tell it to hand over at this moment.
    entry.to.clone_from(&note.to);
    Ok(entry)
}

/// The pod as it was listed: its address may be younger than what the review brought.
fn current(subject: &Subject<'_>, facts: &Facts) -> Pod {
    let listed = facts.seen.iter().find(|seen| seen.pod.uid == subject.pod.uid);
    listed.map_or_else(|| subject.pod.clone(), |seen| seen.pod.clone())
}
