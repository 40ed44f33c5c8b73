//! The decision about a member that answers and votes: the quorum, and the warnings of the configuration.

use admission::{Cause, Ruling, Verdict};

use super::super::config::{LeaderPolicy, Severity};
use super::super::input::{Input, Quorum};
use super::super::messages::{Messages, Reason};
use super::super::size::SizeSource;
use super::super::table::{MemberState, Row, Table};
use super::leader::{LEADS, decide_leader};
use super::{Decision, allow_reserved};
use cluster::cause;

/// Decides about a member that answers and votes.
pub(super) fn decide_voter(input: Input<'_>, table: &Table, me: &Row, messages: &Messages<'_>) -> Decision {
    let voters = match &table.voters {
        Ok(voters) => *voters,
        Err(_) if table.is_leaderless && !table.has_working_quorum => {
            return Decision::Ruling(messages.deny_lost());
        }
        Err(why) => return Decision::Ruling(messages.unknown(vec![why.clone()])),
    };
    let voter = Voter { input, table, me, messages, voters, quorum: input.quorum(me, voters) };
    let has_quorum = voter.healthy() >= voter.quorum.needed;
    let mut ruling =
        if has_quorum { messages.allow("the other members have quorum") } else { voter.without_quorum() };
    if ruling.verdict != Verdict::Allow {
        return Decision::Ruling(ruling);
    }
    let allow = |ruling| allow_reserved(input, table, me, messages, messages.add_warnings(ruling));
    if me.state == MemberState::Corrupt && !table.leads(me) {
        let text = "its data is corrupt; the new pod needs empty data";
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
            let text = "its data is corrupt, and the cluster has no quorum";
            return messages.allow("its data is corrupt").warn(messages.warning(text));
        }
        if is_corrupt && !table.has_working_quorum {
            let text = "no member serves linearizable reads, and quorum may depend on this member";
            return messages.unknown(vec![Cause::new(cause::NO_QUORUM, text)]);
        }
        if let Some(corruption) = table.corruption.filter(|_| !table.is_leaderless) {
            return messages.deny(Reason::Corrupt, corruption);
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
            return messages.deny_lost();
        }
        if table.is_temporarily_small() {
            let text = format!(
                "only {voters} of {} expected members vote, so all of them are needed",
                table.expected.members
            );
            return messages.deny(Reason::Quorum, &text);
        }
        messages.deny_quorum(self.quorum, self.healthy())
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
            let vote =
                if *voters == 1 { "1 member votes".to_owned() } else { format!("{voters} members vote") };
            let text = format!("only {vote}, and the expected number of members is not configured");
            return (!table.is_leaderless).then(|| messages.deny(Reason::UndeclaredSize, &text));
        };
        // The unread size matters only if the deletion would be allowed.
        let ruling = self.outage();
        if ruling.verdict != Verdict::Allow {
            return Some(ruling);
        }
        let text = format!("cannot read the expected number of members: {}", why.text);
        Some(messages.unknown(vec![Cause::new(why.code, text)]))
    }

    /// Rules for so few members that each deletion interrupts etcd.
    fn outage(&self) -> Ruling {
        let Self { input, table, me, messages, voters, .. } = self;
        // Without a quorum the other one of two cannot remove this member from the list.
        if input.facts.surplus.contains(&input.pod.uid) && (*voters == 1 || !table.is_leaderless) {
            return messages.deny(Reason::ScaledAway, scaled_away(*voters));
        }
        if input.config.warnings.small_cluster == Severity::Deny {
            return messages.deny(Reason::SmallCluster, &small(*voters));
        }
        if *voters > 1 {
            // The other one of two may be broken, and then this one has the only data.
            if table.is_leaderless {
                return messages.deny_lost();
            }
            // A single member has no successor.
            if table.leads(me) && input.denies_leader() {
                return messages.deny(Reason::Leader, LEADS);
            }
            if let Some(ruling) = self.without_other() {
                return ruling;
            }
        }
        messages.allow("every deletion interrupts this cluster").warn(messages.warning(&small(*voters)))
    }

    /// Returns why one of two members cannot be deleted: the data must always be in one of them.
    fn without_other(&self) -> Option<Ruling> {
        let Self { table, me, messages, .. } = self;
        let mut others = table.rows.iter().filter(|row| row.uid != me.uid && row.may_vote());
        if others.clone().any(|row| row.is_leaving) {
            let text = "the other member is leaving, and one of the two must stay";
            return Some(messages.deny(Reason::Quorum, text));
        }
        // Corrupt data needs no protection.
        if me.state == MemberState::Corrupt || others.any(|row| row.state == MemberState::Healthy) {
            return None;
        }
        if let Some(corruption) = table.corruption {
            return Some(messages.deny(Reason::Corrupt, corruption));
        }
        let unknown = unknown_members(table, &me.uid);
        if !unknown.is_empty() {
            return Some(messages.unknown(unknown));
        }
        let text = "the other member is not healthy, and one of the two must stay";
        Some(messages.deny(Reason::Quorum, text))
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
        "it is the only member, and its owner does not create its pod again"
    } else {
        "its owner does not create its pod again, and the other member would be 1 of 2 forever"
    }
}

fn small(voters: usize) -> String {
    let members = if voters == 1 {
        "it is the only member".to_owned()
    } else {
        format!("the cluster has {voters} members")
    };
    format!("{members}; reads and writes fail until its pod is back")
}

/// Returns what else is wrong: membership changes, and data that is lost. The configuration decides between warning and denial.
fn concerns(input: Input<'_>, table: &Table, me: &Row) -> Vec<(Severity, Reason, String)> {
    let config = input.config;
    let mut concerns = Vec::new();
    if !table.changes.is_empty() {
        let text = format!("the membership is changing: {}", table.changes.join(", "));
        concerns.push((config.warnings.membership_change, Reason::MembershipChange, text));
    }
    if !input.pod.keeps_data && !input.removes_member() && !input.removal.is_restart() {
        let text = "none of its volumes outlives the pod, so its data is lost";
        concerns.push((config.warnings.data_loss, Reason::DataLoss, text.to_owned()));
    }
    if input.facts.scaled_away.contains(&input.pod.uid) && !input.removes_member() {
        let text = "its StatefulSet was scaled down and deletes its PVC (persistentVolumeClaimRetentionPolicy.whenScaled: Delete), so its data is lost";
        concerns.push((config.warnings.data_loss, Reason::DataLoss, text.to_owned()));
    }
    if table.leads(me)
        && input.removal.grace == Some(0)
        && input.entry.on_leader_delete == LeaderPolicy::Allow
    {
        let text =
            "it is the leader and is killed at once (grace period 0); writes stop until the next election";
        concerns.push((config.warnings.data_loss, Reason::KilledLeader, text.to_owned()));
    }
    concerns
}
