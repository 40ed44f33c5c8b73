//! The texts of rulings: for users, for programs, and for the audit log.
//!
//! A denied eviction is a 429 with the cause of a PDB, so `kubectl drain` retries. It prints the message each time, so the message of
//! an eviction is a single line. A denied deletion is a 403, because clients retry a 429 without showing it.

mod members;
mod remedy;

use std::time::SystemTime;

use admission::{Cause, Code, Denial, DenialCause, Ruling, Verdict, one_line};

use super::config::Config;
use super::input::{Input, Quorum};
use super::overrides::{self, DELETE_ANYWAY, DeniedRequest, Override};
use super::pod::Pod;
use super::removal::{Removal, RemovalKind};
use super::table::{MemberState, Row, Table};
use crate::message::Message;
use cluster::cause;

pub(super) use members::{health, role, state_name};

/// The start of every warning.
pub(super) const PREFIX: &str = "etcd: ";

/// The first code of every denied eviction, because `kubectl drain` looks for it (`policy/v1`: `DisruptionBudgetCause`). The next code
/// has the reason.
const DISRUPTION_BUDGET: &str = "DisruptionBudget";

/// Members in a message at most. etcd recommends seven.
const MAX_ROWS: usize = 20;

/// The reason of a denial. Its name is the code in `details.causes`. The page of reason codes is generated from these lines, with an
/// example from `cases`, or from here if no case has the first line of a denial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// The deletion was allowed repeatedly and failed elsewhere, so other members go first for a minute.
    /// Example: cannot delete pod db/etcd-1: deleting it has failed repeatedly since 2026-11-21T10:00:00Z; for a minute, other members go first
    Backoff,
    /// etcd raised the CORRUPT alarm without naming a member.
    /// Example: deleting pod db/etcd-1 is not safe: etcd raised the CORRUPT alarm without naming a member, so no member can be trusted
    Corrupt,
    /// The member's data is lost with its pod.
    DataLoss,
    /// The leader is killed without the time to transfer leadership.
    /// Example: cannot delete pod db/etcd-0: it is the leader and is killed at once (grace period 0); writes stop until the next election
    KilledLeader,
    /// The pod is the leader, and leadership can't be transferred or `onLeaderDelete` forbids the deletion.
    Leader,
    /// Leadership was transferred, and no time was left to check the members again. A retry is enough.
    /// Example: cannot delete pod db/etcd-0 yet: leadership was transferred to etcd-1, and no time was left to check the members again
    LeadershipMoved,
    /// Another member is transferring leadership to this one.
    /// Example: cannot delete pod db/etcd-1: etcd-0 is transferring leadership to it
    LeadershipTransfer,
    /// The etcd cluster has learners, unstarted members or a downgrade.
    /// Example: cannot delete pod db/etcd-1: the membership is changing: learners: 1
    MembershipChange,
    /// The pod of an eviction does not exist. `kubectl drain` goes on to the next pod.
    NotFound,
    /// Durward could not record the deletion where its other replicas see it.
    NotReserved,
    /// The other members would not be a quorum.
    Quorum,
    /// The etcd cluster has no quorum, and this member still answers.
    QuorumLost,
    /// The request is about a `StatefulSet`, PVC or PDB of an etcd cluster.
    /// Example: cannot delete PVC db/data-etcd-1: it holds the data of etcd member etcd-1
    Related,
    /// The owner does not create the pod again, and the other members would keep counting this member.
    /// Example: cannot delete pod db/etcd-1: its owner does not create its pod again, and the other member would be 1 of 2 forever
    ScaledAway,
    /// The etcd cluster has so few members that each deletion interrupts it.
    SmallCluster,
    /// One or two members vote, and more may be expected.
    /// Example: cannot delete pod db/etcd-1: only 2 members vote, and the expected number of members is not configured
    UndeclaredSize,
    /// The quorum could not be checked, for the reason in the message.
    Unknown,
}

impl Reason {
    /// Returns the consequence of an override.
    fn consequence(self) -> &'static str {
        match self {
            Self::Quorum | Self::SmallCluster => "etcd stops serving",
            Self::QuorumLost | Self::Corrupt => "can lose all data",
            Self::DataLoss => "loses the member's data",
            Self::KilledLeader | Self::Leader => "writes stop until the next election",
            _ => "",
        }
    }

    /// Whether the denial ends by itself within a minute.
    fn is_temporary(self) -> bool {
        matches!(self, Self::Backoff | Self::LeadershipMoved | Self::LeadershipTransfer)
    }
}

/// Returns a warning about a pod.
pub(super) fn pod_warning(pod: &Pod, text: &str) -> String {
    format!("{PREFIX}pod {}: {text}", pod.full_name())
}

/// Builds the rulings about one pod with a table.
pub(super) struct Messages<'m> {
    input: Input<'m>,
    table: &'m Table,
}

impl<'m> Messages<'m> {
    pub(super) fn new(input: Input<'m>, table: &'m Table) -> Self {
        Self { input, table }
    }

    /// Returns a warning about the pod.
    pub(super) fn warning(&self, text: &str) -> String {
        pod_warning(self.input.pod, text)
    }

    pub(super) fn allow(&self, why: &str) -> Ruling {
        self.audited(Ruling::allow().audit("allowed", why))
    }

    /// Adds the problems of the etcd cluster and the member to an allow.
    pub(super) fn add_warnings(&self, mut ruling: Ruling) -> Ruling {
        for note in &self.table.notes {
            ruling.warnings.push(format!("{PREFIX}cluster {}: {note}", self.table.cluster));
        }
        let me = self.table.row(&self.input.pod.uid);
        if let Some(Row { state: MemberState::Unhealthy(why), .. }) = me {
            ruling.warnings.push(self.warning(why));
        }
        if let Some(name) = &self.input.progress.moved_to {
            ruling.warnings.push(self.warning(&format!("leadership was transferred to {name}")));
            ruling.audit.set("moved-leader", name);
        }
        ruling
    }

    fn audited(&self, ruling: Ruling) -> Ruling {
        let members: Vec<String> = self.table.rows.iter().map(|row| members::line(self.table, row)).collect();
        let ruling = ruling.audit("etcd-cluster", &self.table.cluster).audit("members", members.join("; "));
        if self.table.is_degraded { ruling.audit("read-from", "health and metrics") } else { ruling }
    }

    pub(super) fn deny(&self, reason: Reason, why: &str) -> Ruling {
        let removal = self.input.removal;
        let summary = match reason {
            _ if removal.kind == RemovalKind::Update => format!("{}: {why}", removal.doing()),
            Reason::Quorum => format!("{} would break etcd quorum: {why}", removal.doing()),
            Reason::Corrupt => format!("{} is not safe: {why}", removal.doing()),
            Reason::QuorumLost => why.to_owned(),
            _ => format!("{}: {why}", removal.denied_effect("")),
        };
        let denial = self.denial(reason, why, &summary, &[]);
        self.audited(Ruling::deny(denial)).audit("denied", why)
    }

    /// Denies a deletion with too few healthy others.
    pub(super) fn deny_quorum(&self, quorum: Quorum, healthy: usize) -> Ruling {
        let needed = if quorum.needed == 1 { "1 is".to_owned() } else { format!("{} are", quorum.needed) };
        let why = format!("{healthy} of {} members would be left, {needed} needed", quorum.voters);
        self.deny(Reason::Quorum, &self.with_culprits(why))
    }

    /// Denies the deletion of a member that is left after the quorum is lost.
    pub(super) fn deny_lost(&self) -> Ruling {
        let Self { input: Input { pod, .. }, table } = self;
        let why = format!(
            "etcd cluster {} has already lost quorum, and pod {} still answers",
            table.cluster, pod.name
        );
        self.deny(Reason::QuorumLost, &self.with_culprits(why))
    }

    /// Adds what is wrong with the other members.
    fn with_culprits(&self, why: String) -> String {
        match members::culprits(self.table, &self.input.pod.uid) {
            Some(culprits) => format!("{why}; {culprits}"),
            None => why,
        }
    }

    pub(super) fn unknown(&self, causes: Vec<Cause>) -> Ruling {
        let removal = self.input.removal;
        let texts = causes.iter().map(|cause| cause.text.as_str());
        let why = texts.collect::<Vec<_>>().join("; ");
        let is_unreserved = causes.iter().any(|why| why.code == cause::NOT_RESERVED);
        let (reason, summary) = if is_unreserved {
            (Reason::NotReserved, format!("{}: {why}", removal.denied_effect(" safely")))
        } else {
            (Reason::Unknown, unknown_summary(removal, &causes))
        };
        let denial = self.denial(reason, &why, &summary, &causes);
        self.audited(Ruling::new(Verdict::Unknown(causes)).refuse_with(denial))
    }

    fn denial(&self, reason: Reason, why: &str, summary: &str, causes: &[Cause]) -> Denial {
        let Input { config, pod, removal, facts, .. } = self.input;
        let mut message = Message::new(summary);
        let is_abnormal = |row: &&Row| row.uid != pod.uid && row.state != MemberState::Healthy;
        let abnormal: Vec<&Row> = self.table.rows.iter().filter(is_abnormal).take(MAX_ROWS).collect();
        if abnormal.len() > 1 {
            for row in abnormal {
                message = message.detail(&members::line(self.table, row));
            }
        }
        let current = overrides::judge(config, &pod.name, &pod.annotations, facts.now);
        message = overrides::add_invalid(message, &current);
        message = remedy::add(message, self.input, self.table, reason, causes);
        if !reason.is_temporary() {
            let name = (pod.namespace.as_str(), pod.name.as_str());
            let consequence = reason.consequence();
            message =
                overrides::add(message, config, removal.denied(), name, (&current, facts.now), consequence);
        }
        denial(removal.kind, &message, self.details(reason, why))
    }

    fn details(&self, reason: Reason, why: &str) -> Vec<DenialCause> {
        let members = self.table.rows.iter().map(|row| DenialCause {
            reason: state_name(&row.state).to_owned(),
            message: one_line(&members::line(self.table, row)),
            field: one_line(&row.name),
        });
        std::iter::once(detail(reason, why, &self.table.cluster)).chain(members).collect()
    }
}

fn detail(reason: Reason, why: &str, field: &str) -> DenialCause {
    DenialCause { reason: format!("{reason:?}"), message: one_line(why), field: one_line(field) }
}

fn denial(kind: RemovalKind, message: &Message, mut causes: Vec<DenialCause>) -> Denial {
    match kind {
        RemovalKind::Delete | RemovalKind::Update => {
            Denial { causes, ..Denial::forbidden(message.to_string()) }
        }
        RemovalKind::Evict => {
            let message = message.summary().to_owned();
            let (reason, field) = (DISRUPTION_BUDGET.to_owned(), String::new());
            causes.insert(0, DenialCause { reason, message: message.clone(), field });
            Denial { code: Code::TooManyRequests, message, causes }
        }
    }
}

/// Returns the first line about the first cause. The others are in the details.
fn unknown_summary(removal: &Removal, causes: &[Cause]) -> String {
    let first = causes.first().map_or_else(String::new, |cause| members::without_request(&cause.text));
    let more = match causes.len() {
        0 | 1 => String::new(),
        many => format!(" (and {} more)", many - 1),
    };
    format!("cannot check etcd quorum for {}: {first}{more}", removal.full_name())
}

/// Returns the ruling for a pod whose etcd cluster could not be read.
pub(super) fn unknown_removal(config: &Config, removal: &Removal, why: &Cause, now: SystemTime) -> Ruling {
    // The review of an eviction contains no pod.
    let pod = removal.pod.as_ref().and_then(|pod| Pod::read(&pod.json, 0).ok());
    let current =
        pod.map_or(Override::None, |pod| overrides::judge(config, &pod.name, &pod.annotations, now));
    let name = (removal.namespace.as_str(), removal.name.as_str());
    let message = Message::new(&unknown_summary(removal, std::slice::from_ref(why)));
    let message = remedy::add_for_cause(overrides::add_invalid(message, &current), config, why);
    let message = overrides::add(message, config, removal.denied(), name, (&current, now), "");
    let denial = denial(removal.kind, &message, vec![detail(Reason::Unknown, &why.text, why.code)]);
    Ruling::unknown(why.clone()).refuse_with(denial)
}

/// Returns the ruling after a leadership transfer without time for another read.
pub(super) fn leader_moved(removal: &Removal, name: &str) -> Ruling {
    let why =
        format!("leadership was transferred to {name}, and no time was left to check the members again");
    let summary = format!("{}: {why}", removal.denied_effect(" yet"));
    let message = Message::new(&summary).next("retry");
    Ruling::deny(denial(removal.kind, &message, vec![detail(Reason::LeadershipMoved, &why, name)]))
        .audit("denied", why)
        .audit("moved-leader", name)
}

/// Returns the ruling for the eviction of a pod that does not exist.
pub(super) fn missing_pod(removal: &Removal) -> Ruling {
    let why = "it does not exist in the cluster that Durward reads";
    let causes = vec![detail(Reason::NotFound, why, "")];
    let message = format!("cannot evict {}: {why}", removal.full_name());
    Ruling::deny(Denial { code: Code::NotFound, message, causes }).audit("denied", why)
}

/// Returns the ruling for the mirror pod of a static pod.
pub(super) fn mirror_pod(removal: &Removal) -> Ruling {
    let text = format!(
        "{} is the mirror of a static pod: its etcd keeps running, and the kubelet creates the pod again",
        removal.full_name()
    );
    Ruling::allow().warn(format!("{PREFIX}{text}")).audit("allowed", "it is a mirror pod")
}

/// Returns the ruling for an object with an active override.
pub(super) fn overridden(what: &str, reason: &str, until: &str) -> Ruling {
    let text = format!("{what} is not checked: {DELETE_ANYWAY} is set until {until}: {reason}");
    Ruling::allow().warn(format!("{PREFIX}{text}")).audit("override", format!("until {until}: {reason}"))
}

/// Returns the denial for an object that is not a pod. `effect` is the start of its first line.
pub(super) fn deny_related(
    config: &Config,
    effect: &str,
    denied: DeniedRequest,
    (why, next): (&str, &str),
    (name, current): ((&str, &str), &Override),
    now: SystemTime,
) -> Ruling {
    let mut message = Message::new(&format!("{effect}: {why}"));
    message = overrides::add_invalid(message, current);
    if !next.is_empty() {
        message = message.next(next);
    }
    let message = overrides::add(message, config, denied, name, (current, now), "");
    let causes = vec![detail(Reason::Related, why, "")];
    Ruling::deny(Denial { causes, ..Denial::forbidden(message.to_string()) }).audit("denied", why)
}

/// Returns the ruling for an object that is not a pod and could not be checked.
pub(super) fn unknown_related(
    config: &Config,
    what: &str,
    denied: DeniedRequest,
    why: &Cause,
    name: (&str, &str),
    now: SystemTime,
) -> Ruling {
    let text = members::without_request(&why.text);
    let message = Message::new(&format!("cannot check etcd quorum for {what}: {text}"));
    let message = remedy::add_for_cause(message, config, why);
    let message = overrides::add(message, config, denied, name, (&Override::None, now), "");
    let causes = vec![detail(Reason::Unknown, &why.text, why.code)];
    Ruling::unknown(why.clone()).refuse_with(Denial { causes, ..Denial::forbidden(message.to_string()) })
}

/// Returns the warning about invalid override annotations of a namespace.
pub(super) fn namespace_override(namespace: &str, wrong: &str) -> String {
    format!("{PREFIX}namespace {namespace:?}: Override ignored: {wrong}")
}
