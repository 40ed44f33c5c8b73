//! A member that leads: it hands over before it goes.

use admission::Ruling;

use super::super::config::Leader;
use super::super::notes::Hold;
use super::super::table::{Row, State, Table};
use super::super::tell::Said;
use super::{Case, Effect, Step, goes, grace, in_vain, not_reserved};
use cluster::etcd::Id;

/// Why people are refused a leader.
pub(super) const LEADS: &str = "it leads the ensemble, and leaders are not deleted here (leader: refuse)";

/// Whether leaders are refused here. A controller that is refused one for good would never come to the end of a rolling update.
pub(in super::super) fn is_refused(case: Case<'_>) -> bool {
    case.ensemble.leader == Leader::Refuse && !case.target.by_controller
}

/// The leader.
pub(super) fn of_leader(case: Case<'_>, table: &Table, me: &Row, ruling: Ruling, said: &Said<'_>) -> Step {
    let (done, by_controller) = (case.done, case.target.by_controller);
    let goes = |ruling: Ruling| goes(case, table, me, said, said.beside(ruling));
    match case.ensemble.leader {
        Leader::Allow => {
            return goes(ruling.warn(said.voice("it leads: the ensemble elects another when it is gone")));
        }
        Leader::Refuse if is_refused(case) => return Step::Rule(said.deny("Leader", LEADS)),
        Leader::Refuse | Leader::Transfer => {}
    }
    if done.is_unmovable || table.is_poor {
        let grace = grace(case);
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
    let next = successor(table, me, &done.refused, &note.to);
    let Some((next, to)) = next.and_then(|next| Some((next, next.id?))) else {
        return Step::Rule(said.deny("Leader", "it leads the ensemble, and no other member can take over"));
    };
    if let Some(why) = case.unnoted() {
        return Step::Rule(said.unknown(vec![not_reserved(why)]));
    }
    // Before it hands over for nothing.
    if note.rests {
        return Step::Rule(in_vain(case, said));
    }
    // Nobody lets the next one go from when that is noted until this review has ended.
    if done.is_reserved || (note.hold >= Hold::Lasting && note.to.contains(&next.uid)) {
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
pub(in super::super) fn successor<'t>(
    table: &'t Table,
    me: &Row,
    refused: &[Id],
    noted: &[String],
) -> Option<&'t Row> {
    let can = |row: &&Row| {
        row.uid != me.uid && row.state == State::Healthy && row.id.is_some_and(|id| !refused.contains(&id))
    };
    table.rows.iter().filter(can).min_by_key(|row| {
        let (lag, is_other) = (row.lag.unwrap_or(0), !noted.contains(&row.uid));
        (row.is_cordoned, lag / ABREAST, !row.is_updated, is_other, lag, row.id)
    })
}
