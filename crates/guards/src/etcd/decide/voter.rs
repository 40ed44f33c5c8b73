//! The decision about a member that answers and votes: the quorum, and the warnings of the configuration.

use admission::{Cause, Ruling, Verdict};

use super::super::config::{LeaderPolicy, Severity};
use super::super::input::{Input, Quorum};
use super::super::messages::Messages;
use super::super::size::SizeSource;
use super::super::table::{MemberState, Row, Table};
use super::leader::{LEADS, decide_leader};
use super::{Decision, allow_reserved};
use cluster::cause;

/// The denial for the remaining members after the quorum is lost.
const LOST: &str = "the quorum is lost, and it is one of the members that are left";

/// Decides about a member that answers and votes.
pub(super) fn decide_voter(input: Input<'_>, table: &Table, me: &Row, messages: &Messages<'_>) -> Decision {
    let voters = match &table.voters {
        Ok(voters) => *voters,
        Err(_) if table.is_leaderless && !table.has_working_quorum => {
            return Decision::Ruling(messages.deny("QuorumLost", LOST));
        }
        Err(why) => return Decision::Ruling(messages.unknown(vec![why.clone()])),
    };
    let voter = Voter { input, table, me, messages, voters, quorum: input.quorum(me, voters) };
    let has_quorum = voter.healthy() >= voter.quorum.needed;
    let mut ruling =
        if has_quorum { messages.allow("the others are a quorum") } else { voter.without_quorum() };
    if ruling.verdict != Verdict::Allow {
        return Decision::Ruling(ruling);
    }
    let allow = |ruling| allow_reserved(input, table, me, messages, messages.add_warnings(ruling));
    if me.state == MemberState::Corrupt && !table.leads(me) {
        let text = "its data is corrupt; the new pod needs empty data, or a new member";
        return allow(ruling.warn(messages.warning(text)));
    }
    for (severity, reason, text) in concerns(input, table, me) {
        match severity {
            Severity::Warn => ruling.warnings.push(messages.warning(&text)),
            Severity::Deny => return Decision::Ruling(messages.deny(reason, &text)),
        }
    }
    // If the deletion interrupts etcd anyway, a transfer is useless.
    if table.leads(me) && (has_quorum || !voter.is_outage()) {
        return decide_leader(input, table, me, ruling, messages);
    }
    allow(ruling)
}

/// A voter, and the quorum after its deletion.
struct Voter<'v> {
    input: Input<'v>,
    table: &'v Table,
    me: &'v Row,
    messages: &'v Messages<'v>,
    voters: usize,
    quorum: Quorum,
}

impl Voter<'_> {
    fn healthy(&self) -> usize {
        self.table.healthy_without(&self.me.uid)
    }

    /// Rules without a healthy quorum of the others.
    fn without_quorum(&self) -> Ruling {
        let Self { table, messages, voters, .. } = self;
        let is_corrupt = self.me.state == MemberState::Corrupt;
        if self.is_outage() {
            return self.outage();
        }
        if is_corrupt && table.has_lost_quorum_without(self.me) {
            let text = "its data is corrupt, and the ensemble has no quorum now";
            return messages.allow("its data is corrupt").warn(messages.warning(text));
        }
        if is_corrupt && !table.has_working_quorum {
            let text = "no linearizable read came about anywhere, and it may be one of those that the quorum stands on";
            return messages.unknown(vec![Cause::new(cause::NO_QUORUM, text)]);
        }
        if let Some(corruption) = table.corruption.filter(|_| !table.is_leaderless) {
            return messages.deny("Quorum", corruption);
        }
        if table.may_be_small()
            && self.quorum.is_impossible()
            && let Some(ruling) = self.undeclared_size()
        {
            return ruling;
        }
        let unknown = unknown_members(table, &self.me.uid);
        if self.healthy() + unknown.len() >= self.quorum.needed {
            return messages.unknown(unknown);
        }
        if table.is_leaderless {
            return messages.deny("QuorumLost", LOST);
        }
        if table.is_temporarily_small() {
            let text = format!(
                "{voters} of the {} members that {} is to have vote now, and none of them can be missed",
                table.expected.members, table.cluster
            );
            return messages.deny("Quorum", &text);
        }
        messages.deny("Quorum", &messages.too_few(self.quorum, self.healthy()))
    }

    /// Whether each deletion interrupts etcd by its declared size, and not only while a member is replaced.
    fn is_outage(&self) -> bool {
        self.table.is_small() && self.quorum.is_impossible()
    }

    /// Rules for so few voters that each deletion interrupts etcd if no more are meant to exist, which is not known. Three members
    /// look the same while the third one is replaced, and then neither of the two can be deleted.
    fn undeclared_size(&self) -> Option<Ruling> {
        let Self { table, messages, voters, .. } = self;
        let SizeSource::Unread(why) = &table.expected.source else {
            let vote = if *voters == 1 {
                "only 1 member votes,".to_owned()
            } else {
                format!("only {voters} members vote,")
            };
            let text = format!(
                "{vote} and nobody says that {} is to have no more: while another one is being replaced, none of them can be missed",
                table.cluster
            );
            return (!table.is_leaderless).then(|| messages.deny("Untold", &text));
        };
        // The unread size matters only if the deletion would be allowed.
        let ruling = self.outage();
        if ruling.verdict != Verdict::Allow {
            return Some(ruling);
        }
        let text = format!("how many members it is to have cannot be seen: {}", why.text);
        Some(messages.unknown(vec![Cause::new(why.code, text)]))
    }

    /// Rules for so few members that each deletion interrupts etcd.
    fn outage(&self) -> Ruling {
        let Self { input, table, me, messages, voters, .. } = self;
        // Without a quorum the other one of two cannot remove this member from the list.
        if input.facts.surplus.contains(&input.pod.uid) && (*voters == 1 || !table.is_leaderless) {
            return messages.deny("ScaledAway", scaled_away(*voters));
        }
        if input.config.warnings.small_cluster == Severity::Deny {
            return messages.deny("SmallEnsemble", &small(*voters));
        }
        if *voters > 1 {
            // The other one of two may be broken, and then this one has the only data.
            if table.is_leaderless {
                return messages.deny("QuorumLost", LOST);
            }
            // A single member has no successor.
            if table.leads(me) && input.denies_leader() {
                return messages.deny("Leader", LEADS);
            }
            if let Some(ruling) = self.without_other() {
                return ruling;
            }
        }
        messages.allow("every deletion here is an outage").warn(messages.warning(&small(*voters)))
    }

    /// Returns why one of two members cannot be deleted: the data must always be in one of them.
    fn without_other(&self) -> Option<Ruling> {
        let Self { table, me, messages, .. } = self;
        let mut others = table.rows.iter().filter(|row| row.uid != me.uid && row.may_vote());
        if others.clone().any(|row| row.is_leaving) {
            let text = "the other member is on its way out, and one of the two has to be there";
            return Some(messages.deny("Quorum", text));
        }
        // Corrupt data needs no protection.
        if me.state == MemberState::Corrupt || others.any(|row| row.state == MemberState::Healthy) {
            return None;
        }
        if let Some(corruption) = table.corruption {
            return Some(messages.deny("Quorum", corruption));
        }
        let unknown = unknown_members(table, &me.uid);
        if !unknown.is_empty() {
            return Some(messages.unknown(unknown));
        }
        let text = "the other member is not healthy, and one of the two has to be there";
        Some(messages.deny("Quorum", text))
    }
}

/// Returns why members that may be healthy did not answer. Causes that mean that a member is down are left out.
fn unknown_members(table: &Table, uid: &str) -> Vec<Cause> {
    const DOWN: [&str; 5] =
        [cause::UNREACHABLE, cause::TIMEOUT, cause::NOT_LISTENING, cause::NO_ADDRESS, cause::NO_QUORUM];
    let others = table.rows.iter().filter(|row| row.uid != uid);
    let unknown = others.filter_map(|row| match &row.state {
        MemberState::NoResponse(why) if !DOWN.contains(&why.code) => Some(why.clone()),
        _ => None,
    });
    unknown.collect()
}

/// Returns the denial for a member that does not come back.
fn scaled_away(voters: usize) -> &'static str {
    if voters == 1 {
        "it is the only member, and does not come back: what makes its pod is not to have it any more"
    } else {
        "it does not come back, as what makes its pod is not to have it any more, and stays in etcd's list: the other one by itself would be 1 of 2 for ever"
    }
}

fn small(voters: usize) -> String {
    let members = if voters == 1 {
        "it is the only member".to_owned()
    } else {
        format!("the ensemble has {voters} members")
    };
    format!("{members}: nothing can be read or written until its pod is back")
}

/// Returns what else is wrong: membership changes, and data that is lost. The configuration decides between warning and denial.
fn concerns(input: Input<'_>, table: &Table, me: &Row) -> Vec<(Severity, &'static str, String)> {
    let config = input.config;
    let mut concerns = Vec::new();
    if !table.changes.is_empty() {
        let text = format!("its membership is changing: {}", table.changes.join(", "));
        concerns.push((config.warnings.membership_change, "MembershipChange", text));
    }
    if !input.pod.keeps_data && !input.removes_member() {
        let text = "none of its volumes outlives the pod: what the member has written is lost, and it cannot come back under its id";
        concerns.push((config.warnings.data_loss, "DataLoss", text.to_owned()));
    }
    if input.facts.scaled_away.contains(&input.pod.uid) && !input.removes_member() {
        let text = "its StatefulSet was scaled down and deletes its claim with it (persistentVolumeClaimRetentionPolicy.whenScaled: Delete): what the member has written is lost, and it stays in the list";
        concerns.push((config.warnings.data_loss, "DataLoss", text.to_owned()));
    }
    if table.leads(me)
        && input.removal.grace == Some(0)
        && input.entry.on_leader_delete == LeaderPolicy::Allow
    {
        let text = "it leads and is killed at once (grace period 0), before it can hand over: writes stop until another is elected";
        concerns.push((config.warnings.data_loss, "KilledLeader", text.to_owned()));
    }
    concerns
}
