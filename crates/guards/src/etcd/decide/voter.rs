//! A member that answers and votes: the rule of the quorum, and what weighs beside it.

use admission::{Cause, Ruling, Verdict};

use super::super::config::{Leader, Weight};
use super::super::makers::Size;
use super::super::table::{Row, State, Table};
use super::super::tell::Said;
use super::leader::{LEADS, is_refused, of_leader};
use super::{Case, Quorum, Step, goes, leaves, quorum};
use cluster::cause;

/// Why those who are left of a lost quorum stay.
const LOST: &str = "the quorum is lost, and it is one of the members that are left";

/// A member that answers and votes.
pub(super) fn of_voter(case: Case<'_>, table: &Table, me: &Row, said: &Said<'_>) -> Step {
    let voters = match &table.voters {
        Ok(voters) => *voters,
        Err(_) if table.is_lost && !table.works => return Step::Rule(said.deny("QuorumLost", LOST)),
        Err(why) => return Step::Rule(said.unknown(vec![why.clone()])),
    };
    let quorum = quorum(case, me, voters);
    let is_short = table.healthy_beside(&me.uid) < quorum.needed;
    let mut ruling =
        if is_short { short(case, table, me, said, voters) } else { said.allow("the others are a quorum") };
    if ruling.verdict != Verdict::Allow {
        return Step::Rule(ruling);
    }
    if me.state == State::Corrupt && !table.leads(me) {
        let text = "its data is corrupt; the new pod needs empty data, or a new member";
        return goes(case, table, me, said, said.beside(ruling.warn(said.voice(text))));
    }
    for (weight, reason, text) in weights(case, table, me) {
        match weight {
            Weight::Warn => ruling.warnings.push(said.voice(&text)),
            Weight::Deny => return Step::Rule(said.deny(reason, &text)),
        }
    }
    // Where it is an outage in any case, leadership is gone with the quorum.
    if table.leads(me) && !(is_outage(table, quorum) && is_short) {
        return of_leader(case, table, me, ruling, said);
    }
    goes(case, table, me, said, said.beside(ruling))
}

/// The others are no quorum that is known to be well: what may go nevertheless, and why the rest may not.
fn short(case: Case<'_>, table: &Table, me: &Row, said: &Said<'_>, voters: usize) -> Ruling {
    let quorum = quorum(case, me, voters);
    let healthy = table.healthy_beside(&me.uid);
    if is_outage(table, quorum) {
        return outage(case, table, me, said, voters);
    }
    if me.state == State::Corrupt && table.has_lost_quorum_beside(me) {
        let text = "its data is corrupt, and the ensemble has no quorum now";
        return said.allow("its data is corrupt").warn(said.voice(text));
    }
    if me.state == State::Corrupt && !table.works {
        let text =
            "no linearizable read came about anywhere, and it may be one of those that the quorum stands on";
        return said.unknown(vec![Cause::new(cause::NO_QUORUM, text)]);
    }
    if let Some(doubt) = table.doubt.filter(|_| !table.is_lost) {
        return said.deny("Quorum", doubt);
    }
    if table.may_be_small()
        && quorum.is_small()
        && let Some(ruling) = untold(case, table, me, said, voters)
    {
        return ruling;
    }
    let blind = unseen(table, &me.uid);
    if healthy + blind.len() >= quorum.needed {
        return said.unknown(blind);
    }
    if table.is_lost {
        return said.deny("QuorumLost", LOST);
    }
    if table.is_small_for_now() {
        let text = format!(
            "{voters} of the {} members that {} is to have vote now, and none of them can be missed",
            table.meant, table.ensemble
        );
        return said.deny("Quorum", &text);
    }
    said.deny("Quorum", &said.short_of(quorum, healthy))
}

/// Whether every deletion is known to be an outage, and not merely until a member that is learning or was taken out votes again.
fn is_outage(table: &Table, quorum: Quorum) -> bool {
    table.is_small() && quorum.is_small()
}

/// One of so few that every deletion is an outage, if they are all that there are to be: whether they are is not known. Two voters
/// and two pods are what three look like too while the third one is repaired, and then neither of them can be missed.
fn untold(case: Case<'_>, table: &Table, me: &Row, said: &Said<'_>, voters: usize) -> Option<Ruling> {
    let Size::Unread(why) = &table.size else {
        let text = format!(
            "{} and nobody says that {} is to have no more: while another one is being replaced, none of them can be missed",
            if voters == 1 {
                "only 1 member votes,".to_owned()
            } else {
                format!("only {voters} members vote,")
            },
            table.ensemble
        );
        return (!table.is_lost).then(|| said.deny("Untold", &text));
    };
    // Only what would pass rests on it.
    let small = outage(case, table, me, said, voters);
    if small.verdict != Verdict::Allow {
        return Some(small);
    }
    let text = format!("how many members it is to have cannot be seen: {}", why.text);
    Some(said.unknown(vec![Cause::new(why.code, text)]))
}

/// One of so few that every deletion is an outage.
fn outage(case: Case<'_>, table: &Table, me: &Row, said: &Said<'_>, voters: usize) -> Ruling {
    // Of two without a quorum the other one is not to be asked to take it out.
    if case.facts.surplus.contains(&case.pod.uid) && (voters == 1 || !table.is_lost) {
        return said.deny("ScaledAway", scaled_away(voters));
    }
    if case.config.small == Weight::Deny {
        return said.deny("SmallEnsemble", &small(voters));
    }
    // Of two the other one may be what is broken, and then this one is all that there is.
    if voters > 1 && table.is_lost {
        return said.deny("QuorumLost", LOST);
    }
    // With nobody beside it that could lead, there is nothing to refuse it for.
    if voters > 1 && table.leads(me) && is_refused(case) {
        return said.deny("Leader", LEADS);
    }
    if voters > 1
        && let Some(ruling) = both(table, me, said)
    {
        return ruling;
    }
    said.allow("every deletion here is an outage").warn(said.voice(&small(voters)))
}

/// Of two members the one goes while the other is there, so that the data is never in neither.
fn both(table: &Table, me: &Row, said: &Said<'_>) -> Option<Ruling> {
    let is_member = |row: &&Row| !matches!(row.state, State::Learner | State::Stranger(_) | State::Rival(_));
    let mut others = table.rows.iter().filter(|row| row.uid != me.uid).filter(is_member);
    if others.clone().any(|row| row.is_leaving) {
        return Some(
            said.deny("Quorum", "the other member is on its way out, and one of the two has to be there"),
        );
    }
    // Nobody waits for the sake of data that is corrupt.
    if me.state == State::Corrupt || others.any(|row| row.state == State::Healthy) {
        return None;
    }
    if let Some(doubt) = table.doubt {
        return Some(said.deny("Quorum", doubt));
    }
    let blind = unseen(table, &me.uid);
    if !blind.is_empty() {
        return Some(said.unknown(blind));
    }
    Some(said.deny("Quorum", "the other member is not healthy, and one of the two has to be there"))
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

/// Why one that does not come back stays for now.
fn scaled_away(voters: usize) -> &'static str {
    if voters == 1 {
        "it is the only member, and does not come back: what makes its pod is not to have it any more"
    } else {
        "it does not come back, as what makes its pod is not to have it any more, and stays in etcd's list: the other one by itself would be 1 of 2 for ever"
    }
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
    if case.facts.scaled_away.contains(&case.pod.uid) && !leaves(case) {
        let text = "its StatefulSet was scaled down and deletes its claim with it (persistentVolumeClaimRetentionPolicy.whenScaled: Delete): what the member has written is lost, and it stays in the list";
        weights.push((case.config.data_safety, "DataLoss", text.to_owned()));
    }
    if table.leads(me) && case.target.grace == Some(0) && case.ensemble.leader == Leader::Allow {
        let text = "it leads and is killed at once (grace period 0), before it can hand over: writes stop until another is elected";
        weights.push((case.config.data_safety, "KilledLeader", text.to_owned()));
    }
    weights
}
