//! A member that does not answer. It may be gone, or well and out of Durward's sight.

use admission::Cause;

use super::super::table::{Row, Table};
use super::super::tell::Said;
use super::{Case, Quorum, Step, goes, mixed, quorum};
use cluster::cause;

/// A member that does not answer is let go where it cannot be missed, or where it is as good as certain that it is not there. It may
/// be back the next moment, so it is noted like any other.
pub(super) fn of_silent(case: Case<'_>, table: &Table, me: &Row, why: &Cause, said: &Said<'_>) -> Step {
    // Of which of two it is, it does not say.
    if table.is_mixed() {
        return Step::Rule(said.unknown(vec![why.clone(), mixed()]));
    }
    let healthy = table.healthy_beside(&me.uid);
    let quorum = table.voters.as_ref().ok().map(|voters| quorum(case, me, *voters));
    let is_the_port = table.rows.iter().any(Row::answers);
    // A connection is refused by firewalls too, and where Durward has the wrong port. A quorum that works has this one in it unless
    // so many others are seen at work as are one; and under a leader that nobody sees it may be the leader. That no read came about
    // for a moment tells nothing, and one member that misses a leader may be cut off from this one: so it is let go for a quorum
    // that is lost only if those who miss a leader leave none to the rest, or all the rest refuse as well. A leader that is dead is
    // forgotten within an election timeout.
    let is_spared = |quorum: Quorum| table.carrying_beside(&me.uid) >= quorum.needed;
    let is_missed = if table.works {
        !quorum.is_some_and(is_spared)
    } else {
        !table.has_lost_quorum_beside(me) && !table.is_dead_beside(me, case.facts)
    };
    let is_needed = table.has_hidden_leader() || is_missed;
    if why.code == cause::NOT_LISTENING && is_the_port && !is_needed {
        let ruling = said.allow("nothing listens on its client port");
        let holds = quorum.is_some_and(|quorum| healthy >= quorum.needed);
        let ruling =
            if holds { ruling } else { ruling.warn(said.voice("the others are not known to be a quorum")) };
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
