//! The decision, pure: what the request alone decides, what the state of things in Kubernetes decides, and what the members decide.
//!
//! Three steps, so that nobody is asked whose answer changes nothing. What must never be held up (teardown, repair, what a node
//! has begun) is let through by the first two, by the state of things; who asks may narrow that and never suffices.
//!
//! The last step is the rule of the quorum: a member that can be counted on goes only if the others are a quorum without it. What
//! was not seen is neither healthy nor gone: where it could change the verdict, the verdict is Unknown.

mod leader;
mod open;
mod silent;
#[cfg(test)]
mod tests;
mod voter;

use admission::{Cause, Ruling};

use super::config::{Config, Ensemble, Membership};
use super::facts::Facts;
use super::notes::Hold;
use super::pod::Pod;
use super::table::{Row, State, Table};
use super::target::Target;
use super::tell::Said;
use cluster::cause;
use cluster::etcd::Id;

pub(super) use leader::{is_refused, successor};
pub(super) use open::{Opened, Unasked, of_ground, of_maker, of_pod, open};
use silent::of_silent;
use voter::of_voter;

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
        // It may be promoted, or be taken into the list, before its pod is marked as deleted; so both are noted.
        State::Learner => {
            let text = "it is a learner, and has no vote that could be missed";
            goes(case, &table, me, &said, said.allow("it does not vote").warn(said.voice(text)))
        }
        State::Rival(_) => Step::Rule(said.unknown(vec![mixed()])),
        State::Stranger(why) => {
            let text = format!("{why}: the ensemble {} does not miss it", table.ensemble);
            goes(case, &table, me, &said, said.allow("it is no member").warn(said.voice(&text)))
        }
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

/// What is said of a leader that is going and gets no time.
pub(super) const STILL_LEADS: &str =
    "it still leads and is killed before it can hand over: writes stop until another is elected";

/// Its time is made shorter while it ends: nothing that can be stopped, and worth a warning if it still leads.
fn of_going(case: Case<'_>, table: &Table, me: &Row, said: &Said<'_>) -> Ruling {
    let ruling = said.allow("its pod is being deleted already");
    if table.leads(me) && case.target.grace == Some(0) {
        return ruling.warn(said.voice(STILL_LEADS));
    }
    ruling
}

/// Lets it go once it is noted that it leaves, so that whoever decides about another one counts it as gone, however well it is by
/// then. Where that cannot be noted, only one goes on which nobody counts.
fn goes(case: Case<'_>, table: &Table, me: &Row, said: &Said<'_>, ruling: Ruling) -> Step {
    if let Some(giver) = giver(case, table) {
        let text = format!("leadership is on its way to it from {}", giver.name);
        return Step::Rule(said.deny("LeadershipComes", &text));
    }
    let is_counted_on = me.state == State::Healthy || table.leads(me);
    match case.unnoted() {
        Some(why) if is_counted_on => Step::Rule(said.unknown(vec![not_reserved(why)])),
        Some(why) => Step::Rule(ruling.warn(said.voice(&let_no_other(why)))),
        None if case.is_noted() => Step::Rule(ruling),
        None if is_counted_on && case.facts.note.rests => Step::Rule(in_vain(case, said)),
        None => Step::Act(Effect::Reserve),
    }
}

/// It has held the others up for long enough, and is not noted anew. One on which nobody counts holds up no more than it does anyway.
fn in_vain(case: Case<'_>, said: &Said<'_>) -> Ruling {
    let since = case.facts.note.first.map_or_else(String::new, |first| format!(" since {first:.0}"));
    let text = format!(
        "it has been asked for in vain{since}, and nobody else of the ensemble could go meanwhile: for a minute others go first"
    );
    said.deny("Again", &text)
}

/// The leader that is about to hand over to it, unless another one is seen to lead by now.
fn giver<'t>(case: Case<'_>, table: &'t Table) -> Option<&'t Row> {
    let giver = table.row(case.facts.giver.as_deref()?)?;
    let leads = |row: &Row| row.uid != giver.uid && row.answers() && table.leads(row);
    (!table.rows.iter().any(leads)).then_some(giver)
}

/// Why a departure could not be noted.
pub(super) fn not_reserved(why: &Cause) -> Cause {
    Cause::new(cause::NOT_RESERVED, format!("it cannot be noted that it leaves: {}", why.text))
}

/// What whoever lets it go all the same has to know.
pub(super) fn let_no_other(why: &Cause) -> String {
    format!("{}; let no other go until this one is back", not_reserved(why).text)
}
