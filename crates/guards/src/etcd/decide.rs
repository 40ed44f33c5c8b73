//! The decision, pure: what the request alone decides, what the state of things in Kubernetes decides, and what the members decide.
//!
//! Three steps, so that nobody is asked whose answer changes nothing. What must never be held up (teardown, repair, what a node
//! has begun) is let through by the first two, by the state of things; who asks may narrow that and never suffices.
//!
//! The last step is the rule of the quorum: a member that can be counted on goes only if the others are a quorum without it. What
//! was not seen is neither healthy nor gone: where it could change the verdict, the verdict is Unknown.

use std::time::SystemTime;

use admission::{Cause, Request, Ruling};

use super::config::{Config, Ensemble, Leader, Membership, Weight};
use super::facts::Facts;
use super::glass::{self, Glass};
use super::ground::{Ground, Namespace, Standing};
use super::notes::Hold;
use super::pod::{Etcd, Pod};
use super::table::{Row, State, Table};
use super::target::{Deed, Target};
use super::tell::{self, Said};
use crate::exempt::Exemption;
use crate::world::cause;
use crate::world::etcd::Id;

/// What comes after a look.
#[derive(Debug)]
pub(super) enum Step {
    /// It is decided.
    Rule(Ruling),
    /// Something has to be done first; then everything is looked at again.
    Act(Effect),
}

/// What is done before a member may go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Effect {
    /// Note that it is on its way out, from now.
    Reserve,
    /// Note that it hands leadership over to the pod with this uid, before it goes; what is noted already does not begin anew.
    Appoint {
        /// The pod's uid.
        to: String,
    },
    /// Have it hand over to this one.
    Move {
        /// To whom.
        to: Id,
        /// The same for people.
        name: String,
    },
}

/// What has been done so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Done {
    /// It would be noted that the pod is on its way out, if anything were done.
    pub(super) is_reserved: bool,
    /// Why that could not be noted.
    pub(super) unnoted: Option<Cause>,
    /// Those who cannot take the leadership.
    pub(super) refused: Vec<Id>,
    /// Leadership cannot be moved here.
    pub(super) is_unmovable: bool,
    /// It would hand over to this one, if anything were done.
    pub(super) pretended: Option<String>,
    /// It has handed over to this one.
    pub(super) moved: Option<String>,
}

/// What the request alone decides.
#[derive(Debug)]
pub(super) enum Opened {
    /// It is decided.
    Rule(Ruling),
    /// The pod decides.
    Look(Target),
}

/// Looks at the request alone.
pub(super) fn open(config: &Config, deed: Deed, request: &Request<'_>) -> Opened {
    let target = match Target::read(config, deed, request) {
        Ok(target) => target,
        Err(cause) => return Opened::Rule(Ruling::unknown(cause)),
    };
    if let Exemption::By(part) = config.terms.exempt.of(request) {
        return Opened::Rule(Ruling::allow().audit("exempt", part));
    }
    if target.namespace == config.terms.install_namespace {
        return Opened::Rule(Ruling::allow().audit("exempt", "installNamespace"));
    }
    Opened::Look(target)
}

/// What the pod by itself decides, before anything else is looked at.
pub(super) fn of_pod(config: &Config, target: &Target, pod: &Pod, now: SystemTime) -> Option<Ruling> {
    let allowed = |why: &str| Some(Ruling::allow().audit("allowed", why));
    if pod.is_mirror() {
        return Some(tell::mirror(target));
    }
    if pod.is_going && (target.by_kubelet || target.grace != Some(0)) {
        return allowed("its pod is being deleted already");
    }
    if pod.etcd == Etcd::Down {
        return allowed("no etcd runs in it");
    }
    match glass::judge(config, &pod.name, &pod.annotations, now) {
        Glass::Broken { reason, until } => Some(tell::glass_broken(&target.told(), &reason, &until)),
        Glass::Whole | Glass::Refused(_) => None,
    }
}

/// What Kubernetes says decides.
pub(super) fn of_ground(config: &Config, target: &Target, pod: &Pod, ground: &Ground) -> Option<Ruling> {
    let allowed = |why: &str| Some(Ruling::allow().audit("allowed", why));
    if let Ok(namespace) = &ground.namespace {
        if namespace.is_going {
            return allowed("its namespace is being deleted");
        }
        if let Some(ruling) = of_namespace(config, target, namespace, ground.now) {
            return Some(ruling);
        }
    }
    match &ground.owner {
        Ok(Standing::Going) => return allowed("its StatefulSet is being deleted or gone"),
        Ok(Standing::Ends) => return allowed("its StatefulSet is to have no pods"),
        Ok(Standing::Stands(_) | Standing::None) | Err(_) => {}
    }
    if matches!(&ground.has_node, Ok(false)) {
        return allowed("its node is gone");
    }
    let pods = match &ground.pods {
        Ok(pods) => pods,
        Err(why) => return Some(tell::unseen(config, target, why, ground.now)),
    };
    let Some(listed) = pods.iter().find(|listed| listed.uid == pod.uid) else {
        let text = format!(
            "the pods that Durward sees in namespace {:?} do not hold this one; try again, and if that stays so, Durward looks at another cluster",
            target.namespace
        );
        return Some(tell::unseen(config, target, &Cause::new(cause::UNCLEAR, text), ground.now));
    };
    // It did not yet when the review was made.
    if listed.has_ended { allowed("its pod has ended") } else { None }
}

fn of_namespace(config: &Config, target: &Target, namespace: &Namespace, now: SystemTime) -> Option<Ruling> {
    if config.terms.exempt.selects(&namespace.labels) {
        return Some(Ruling::allow().audit("exempt", "exempt.namespaceSelector"));
    }
    match glass::judge(config, &target.namespace, &namespace.annotations, now) {
        Glass::Broken { reason, until } => Some(tell::glass_broken(&target.told(), &reason, &until)),
        Glass::Whole | Glass::Refused(_) => None,
    }
}

/// Everything that the last step looks at.
#[derive(Clone, Copy)]
pub(super) struct Case<'c> {
    pub(super) config: &'c Config,
    pub(super) ensemble: &'c Ensemble,
    pub(super) target: &'c Target,
    pub(super) pod: &'c Pod,
    pub(super) facts: &'c Facts,
    pub(super) done: &'c Done,
}

impl Case<'_> {
    /// Why its departure cannot be noted.
    fn unnoted(&self) -> Option<&Cause> {
        self.facts.book_unread.as_ref().or(self.done.unnoted.as_ref())
    }

    /// Whether it is noted, so that an allow may rest on it.
    fn is_noted(&self) -> bool {
        self.done.is_reserved || self.facts.note.hold == Hold::Fresh
    }
}

/// How many have to be left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Quorum {
    /// How many vote once the pod is gone.
    pub(super) of: usize,
    /// How many of them are a quorum.
    pub(super) needed: usize,
    /// Whether the member leaves the list.
    pub(super) leaves: bool,
}

impl Quorum {
    fn of(voters: usize, leaves: bool) -> Self {
        let of = if leaves { voters.saturating_sub(1) } else { voters };
        Self { of, needed: of / 2 + 1, leaves }
    }

    /// Whether every deletion is an outage: no quorum is left even by healthy others.
    fn is_small(self) -> bool {
        let others = if self.leaves { self.of } else { self.of.saturating_sub(1) };
        others < self.needed
    }
}

/// Rules with what the members say.
pub(super) fn close(case: Case<'_>) -> Step {
    let table = Table::of(case.config, case.facts);
    let said = Said::new(case, &table);
    let Some(me) = table.row(&case.pod.uid) else {
        let why = Cause::new(cause::UNCLEAR, "its pod is not among those of the ensemble");
        return Step::Rule(said.unknown(vec![why]));
    };
    match &me.state {
        State::Learner => Step::Rule(
            said.allow("it does not vote")
                .warn(said.voice("it is a learner, and has no vote that could be missed")),
        ),
        State::Stranger(_) if me.is_rival => Step::Rule(said.unknown(vec![mixed()])),
        State::Stranger(why) => Step::Rule(
            said.allow("it is no member")
                .warn(said.voice(&format!("{why}: the ensemble {} does not miss it", table.ensemble))),
        ),
        State::Silent(why) => of_silent(case, &table, me, why, &said),
        // It is going already: only its time is made shorter.
        State::Leaving(_) => Step::Rule(of_going(case, &table, me, &said)),
        State::Absent => Step::Rule(said.unknown(vec![Cause::new(cause::UNCLEAR, "its pod has no member")])),
        State::Healthy | State::Unfit(_) | State::Corrupt => of_voter(case, &table, me, &said),
    }
}

/// Some of its pods are of another ensemble, which misses them.
fn mixed() -> Cause {
    let text =
        "pods of two ensembles are in one group; give each ensemble an entry with a selector of its own";
    Cause::new(cause::UNCLEAR, text)
}

/// How many have to be left. One that is not well may not get done what takes it out of the list.
fn quorum(case: Case<'_>, me: &Row, voters: usize) -> Quorum {
    Quorum::of(voters, leaves(case) && me.state == State::Healthy)
}

/// Whether its pod takes the member out of the list when it goes: it is a hook that does, and given no time it does not run.
fn leaves(case: Case<'_>) -> bool {
    let is_to = match case.ensemble.membership {
        Membership::Auto => case.pod.leaves,
        Membership::Kept => false,
        Membership::Removed => true,
    };
    is_to && grace(case) > 0
}

/// How long its pod has to end, in seconds.
fn grace(case: Case<'_>) -> i64 {
    case.target.grace.unwrap_or(case.pod.grace)
}

/// Its time is made shorter while it ends: nothing that can be stopped, and worth a warning if it still leads.
fn of_going(case: Case<'_>, table: &Table, me: &Row, said: &Said<'_>) -> Ruling {
    let ruling = said.allow("its pod is being deleted already");
    if table.leads(me) && case.target.grace == Some(0) {
        return ruling.warn(said.voice(
            "it still leads, and is killed before it can hand over: writes stop until another is elected",
        ));
    }
    ruling
}

/// A member that does not answer is let go where it cannot be missed, or where it is as good as certain that it is not there. It may
/// be back the next moment, so it is noted like any other.
fn of_silent(case: Case<'_>, table: &Table, me: &Row, why: &Cause, said: &Said<'_>) -> Step {
    // Of which of two it is, it does not say.
    if table.is_mixed() {
        return Step::Rule(said.unknown(vec![why.clone(), mixed()]));
    }
    let healthy = table.healthy_beside(&me.uid);
    let quorum = table.voters.as_ref().ok().map(|voters| quorum(case, me, *voters));
    let is_the_port = table.rows.iter().any(Row::answers);
    // A connection is refused by firewalls too, and where Durward has the wrong port. A quorum that works without enough others has
    // this one in it; and under a leader that nobody sees it may be the leader.
    let is_short = |quorum: Quorum| table.possible_beside(&me.uid) < quorum.needed;
    let is_needed = table.works && (table.has_hidden_leader() || quorum.is_none_or(is_short));
    if why.code == cause::NOT_LISTENING && is_the_port && !is_needed {
        let ruling = said.allow("no etcd listens in it");
        let holds = quorum.is_some_and(|quorum| healthy >= quorum.needed);
        let ruling = if holds { ruling } else { ruling.warn(said.voice("the others are no quorum now")) };
        return goes(case, table, me, said, ruling);
    }
    let unknown = || Step::Rule(said.unknown(vec![why.clone()]));
    match quorum {
        // A leader that answers others and not Durward would be killed without handing over.
        Some(quorum) if healthy >= quorum.needed && table.has_hidden_leader() => unknown(),
        Some(quorum) if healthy >= quorum.needed => {
            goes(case, table, me, said, said.allow("it does not answer, and the others are a quorum"))
        }
        // So many know of no leader that the rest, this one among them, cannot be a quorum.
        _ if table.has_lost_quorum_beside(me) => {
            let ruling = said.allow("the quorum is lost and it does not answer");
            let text = "the quorum is lost, and this member does not answer";
            goes(case, table, me, said, ruling.warn(said.voice(text)))
        }
        _ => unknown(),
    }
}

/// What Durward failed to see of members that may be well.
fn unseen(table: &Table, uid: &str) -> Vec<Cause> {
    let down =
        [cause::UNREACHABLE, cause::TIMEOUT, cause::NOT_LISTENING, cause::NO_ADDRESS, cause::NO_QUORUM];
    let others = table.rows.iter().filter(|row| row.uid != uid);
    let silent = others.filter_map(|row| match &row.state {
        State::Silent(why) if !down.contains(&why.code) => Some(why.clone()),
        _ => None,
    });
    silent.collect()
}

/// A member that answers and votes.
fn of_voter(case: Case<'_>, table: &Table, me: &Row, said: &Said<'_>) -> Step {
    let is_corrupt = me.state == State::Corrupt;
    let voters = match &table.voters {
        Ok(voters) => *voters,
        Err(_) if table.is_lost && !table.works => {
            return Step::Rule(
                said.deny("QuorumLost", "the quorum is lost, and it is one of the members that are left"),
            );
        }
        Err(why) => return Step::Rule(said.unknown(vec![why.clone()])),
    };
    let quorum = quorum(case, me, voters);
    let healthy = table.healthy_beside(&me.uid);
    let mut ruling = said.allow("the others are a quorum");
    if healthy < quorum.needed {
        let blind = unseen(table, &me.uid);
        if quorum.is_small() {
            if case.config.small == Weight::Deny {
                return Step::Rule(said.deny("SmallEnsemble", &small(voters)));
            }
            // Of two the other one may be what is broken, and then this one is all that there is.
            if voters > 1 && table.is_lost {
                return Step::Rule(
                    said.deny("QuorumLost", "the quorum is lost, and it is one of the members that are left"),
                );
            }
            // With nobody beside it that could lead, there is nothing to refuse it for.
            if voters > 1 && table.leads(me) && is_refused(case) {
                return Step::Rule(said.deny("Leader", LEADS));
            }
            ruling = said.allow("every deletion here is an outage").warn(said.voice(&small(voters)));
        } else if is_corrupt && table.has_lost_quorum_beside(me) {
            ruling = said
                .allow("its data is corrupt")
                .warn(said.voice("its data is corrupt, and the others are no quorum now"));
        } else if is_corrupt && !table.works {
            let text = "no linearizable read came about anywhere, and it may be one of those that the quorum stands on";
            return Step::Rule(said.unknown(vec![Cause::new(cause::NO_QUORUM, text)]));
        } else if table.is_in_doubt && !table.is_lost {
            return Step::Rule(said.deny("Quorum", IN_DOUBT));
        } else if healthy + blind.len() >= quorum.needed {
            return Step::Rule(said.unknown(blind));
        } else if table.is_lost {
            return Step::Rule(
                said.deny("QuorumLost", "the quorum is lost, and it is one of the members that are left"),
            );
        } else {
            return Step::Rule(said.deny("Quorum", &said.short_of(quorum, healthy)));
        }
    }
    if is_corrupt && !table.leads(me) {
        let text = "its data is corrupt; the new pod needs empty data, or a new member";
        return goes(case, table, me, said, said.beside(ruling.warn(said.voice(text))));
    }
    for (weight, reason, text) in weights(case, table, me) {
        match weight {
            Weight::Warn => ruling.warnings.push(said.voice(&text)),
            Weight::Deny => return Step::Rule(said.deny(reason, &text)),
        }
    }
    if table.leads(me) && !(quorum.is_small() && healthy < quorum.needed) {
        return of_leader(case, table, me, ruling, said);
    }
    goes(case, table, me, said, said.beside(ruling))
}

/// Lets it go once it is noted that it leaves, so that whoever decides about another one counts it as gone, however well it is by
/// then. Where that cannot be noted, only one goes on which nobody counts.
fn goes(case: Case<'_>, table: &Table, me: &Row, said: &Said<'_>, ruling: Ruling) -> Step {
    if let Some(giver) = giver(case, table) {
        let text = format!("leadership is on its way to it from {}", giver.name);
        return Step::Rule(said.deny("LeadershipComes", &text));
    }
    match case.unnoted() {
        Some(why) if me.state == State::Healthy || table.leads(me) => {
            Step::Rule(said.unknown(vec![not_reserved(why)]))
        }
        Some(why) => {
            let text = not_reserved(why).text;
            Step::Rule(ruling.warn(said.voice(&format!("{text}; let no other go until this one is back"))))
        }
        None if case.is_noted() => Step::Rule(ruling),
        None => Step::Act(Effect::Reserve),
    }
}

/// The leader that is about to hand over to it, unless another one is seen to lead by now.
fn giver<'t>(case: Case<'_>, table: &'t Table) -> Option<&'t Row> {
    let giver = table.row(case.facts.giver.as_deref()?)?;
    let leads = |row: &Row| row.uid != giver.uid && row.answers() && table.leads(row);
    (!table.rows.iter().any(leads)).then_some(giver)
}

/// Why a member whose data may be the corrupt one's cannot be replaced yet.
const IN_DOUBT: &str = "the alarm CORRUPT names no member, so that none can be counted on: find out whose data differs (etcdctl endpoint hashkv), take that member out of the list (etcdctl member remove), and its pod may go";

/// Why people are refused a leader.
const LEADS: &str = "it leads the ensemble, and leaders are not deleted here (leader: refuse)";

/// Whether leaders are refused here. A controller that is refused one for good would never come to the end of a rolling update.
fn is_refused(case: Case<'_>) -> bool {
    case.ensemble.leader == Leader::Refuse && !case.target.by_controller
}

/// Why a departure could not be noted.
pub(super) fn not_reserved(why: &Cause) -> Cause {
    Cause::new(cause::NOT_RESERVED, format!("it cannot be noted that it leaves: {}", why.text))
}

fn small(voters: usize) -> String {
    let what = if voters == 1 {
        "it is the only member".to_owned()
    } else {
        format!("the ensemble has {voters} members")
    };
    format!("{what}: nothing can be read or written until its pod is back")
}

/// What weighs beside the quorum: members that are being added, and data that is lost.
fn weights(case: Case<'_>, table: &Table, me: &Row) -> Vec<(Weight, &'static str, String)> {
    let mut weights = Vec::new();
    if !table.changes.is_empty() {
        let text = format!("its membership is changing: {}", table.changes.join(", "));
        weights.push((case.config.membership_change, "MembershipChange", text));
    }
    if !case.pod.keeps_data && !leaves(case) {
        let text = "none of its volumes outlives the pod: what the member has written is lost, and it cannot come back under its id";
        weights.push((case.config.data_safety, "DataLoss", text.to_owned()));
    }
    if table.leads(me) && case.target.grace == Some(0) && case.ensemble.leader == Leader::Allow {
        let text = "it leads and is killed at once (grace period 0), before it can hand over: writes stop until another is elected";
        weights.push((case.config.data_safety, "KilledLeader", text.to_owned()));
    }
    weights
}

/// The leader.
fn of_leader(case: Case<'_>, table: &Table, me: &Row, ruling: Ruling, said: &Said<'_>) -> Step {
    let (done, by_controller) = (case.done, case.target.by_controller);
    let goes = |ruling: Ruling| goes(case, table, me, said, said.beside(ruling));
    match case.ensemble.leader {
        Leader::Allow => {
            return goes(ruling.warn(said.voice("it leads: the ensemble elects another when it is gone")));
        }
        // A controller that is refused the leader for good would never come to the end of a rolling update.
        Leader::Refuse if !by_controller => {
            return Step::Rule(
                said.deny(
                    "Leader",
                    "it leads the ensemble, and leaders are not deleted here (leader: refuse)",
                ),
            );
        }
        Leader::Refuse | Leader::Transfer => {}
    }
    if done.is_unmovable || table.is_poor {
        let grace = case.target.grace.unwrap_or(case.pod.grace);
        if by_controller && grace > 0 {
            let text = format!(
                "it leads and cannot be asked to hand over; it has {grace} s to do so by itself when it is ended"
            );
            return goes(ruling.warn(said.voice(&text)));
        }
        return Step::Rule(said.deny("Leader", "it leads the ensemble, and this etcd cannot be asked to hand over (before 3.3, or without its JSON gateway)"));
    }
    if let Some(name) = &done.pretended {
        let text = format!("it leads, and would hand over to {name} first");
        return goes(ruling.warn(said.voice(&text)));
    }
    let note = &case.facts.note;
    let next = successor(table, me, &done.refused, note.to.as_deref());
    let Some((next, to)) = next.and_then(|next| Some((next, next.id?))) else {
        return Step::Rule(said.deny("Leader", "it leads the ensemble, and no other member can take over"));
    };
    if let Some(why) = case.unnoted() {
        return Step::Rule(said.unknown(vec![not_reserved(why)]));
    }
    // Nobody lets the next one go from when that is noted until this review has ended.
    if done.is_reserved || (note.hold >= Hold::Lasting && note.to.as_ref() == Some(&next.uid)) {
        return Step::Act(Effect::Move { to, name: next.name.clone() });
    }
    // Noted anew while it still counts, a leader that never hands over and is asked for again and again would hold up all others.
    if note.hold == Hold::Ending {
        let text = "it leads the ensemble, and what was noted of it before ends while leadership moves";
        return Step::Rule(said.deny("Again", text));
    }
    Step::Act(Effect::Appoint { to: next.uid.clone() })
}

/// Entries by which members may differ and be equally good: what is written while they are asked.
const ABREAST: u64 = 100;

/// The most caught-up of those who can lead. On a node that is being emptied it would soon have to hand over again; so would a
/// pod that its `StatefulSet` is going to replace. Of those that are equally good the one that is noted already.
fn successor<'t>(table: &'t Table, me: &Row, refused: &[Id], noted: Option<&str>) -> Option<&'t Row> {
    let can = |row: &&Row| {
        row.uid != me.uid && row.state == State::Healthy && row.id.is_some_and(|id| !refused.contains(&id))
    };
    table.rows.iter().filter(can).min_by_key(|row| {
        let (lag, is_other) = (row.lag.unwrap_or(0), noted != Some(row.uid.as_str()));
        (row.is_cordoned, lag / ABREAST, !row.is_updated, is_other, lag, row.id)
    })
}

#[cfg(test)]
mod tests;
