//! The texts of rulings: for users, for programs, and for the audit log.
//!
//! A denied eviction is a 429 with the cause of a PDB, so `kubectl drain` retries. It prints the message each time, so the message of
//! an eviction is a single line. A denied deletion is a 403, because clients retry a 429 without showing it.

mod members;
mod remedy;
mod texts;

use admission::{Cause, Code, Denial, DenialCause, OVERRIDE, Ruling, Verdict, one_line};

use super::NAME;
use super::decide::{Allowed, Conclusion, DenyReason, UnknownCause, Warning};
use super::group::NO_LABELS;
use super::input::Input;
use super::removal::{Removal, RemovalKind};
use super::reviewed::Reviewed;
use super::table::{MemberState, Row, TOO_FEW_ANSWERS};
use crate::exempt;
use crate::message::Message;
use crate::overrides::{self, Overridable};
use cluster::cause;

pub(super) use members::{health, role, state_name};
pub(super) use texts::{change, note};

/// The start of every warning.
pub(super) const PREFIX: &str = "etcd: ";

/// The first code of every denied eviction, because `kubectl drain` looks for it (`policy/v1`: `DisruptionBudgetCause`). The next code
/// has the reason.
const DISRUPTION_BUDGET: &str = "DisruptionBudget";

/// Members in a message at most. etcd recommends seven.
const MAX_ROWS: usize = 20;

/// The code of a denial in `details.causes`: the name of the variant. The page of reason codes is generated from these lines, with an
/// example from `cases`, or from here if no case has the first line of a denial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReasonCode {
    /// The deletion was allowed repeatedly and failed elsewhere, so other members go first.
    /// Example: cannot delete pod db/etcd-1: deleting it has failed repeatedly since 2026-11-21T10:00:00Z; other members go first, retry in a minute
    Backoff,
    /// etcd raised the CORRUPT alarm without naming a member.
    /// Example: deleting pod db/etcd-1 is not safe: etcd raised the CORRUPT alarm without naming a member, so no member can be trusted
    Corrupt,
    /// The only member loses its data with its pod.
    DataLoss,
    /// The pod is the leader, and leadership can't be transferred or `onLeaderDelete` forbids the deletion.
    Leader,
    /// Leadership was transferred, and no time was left to check the members again. A retry is enough.
    /// Example: cannot delete pod db/etcd-0 yet: leadership was transferred to etcd-1, and no time was left to check the members again
    LeadershipMoved,
    /// The pod of an eviction does not exist. `kubectl drain` goes on to the next pod.
    NotFound,
    /// Durward could not record the deletion where its other replicas see it.
    NotReserved,
    /// The other members would not be a quorum.
    Quorum,
    /// The etcd cluster has no quorum, and this member still answers.
    QuorumLost,
    /// The deletion of another pod of the etcd cluster was allowed a moment ago.
    Reserved,
    /// The owner does not create the pod again, and the other members would keep counting this member.
    /// Example: cannot delete pod db/etcd-1: its owner does not create its pod again, and etcd lists 2 members: remove the member first
    ScaledAway,
    /// One or two members vote, and more may be expected.
    /// Example: cannot delete pod db/etcd-1: only 2 members vote, and the expected number of members is not configured
    UndeclaredSize,
    /// The quorum could not be checked, for the reason in the message.
    Unknown,
}

impl ReasonCode {
    /// Returns the consequence of an override.
    fn consequence(self) -> &'static str {
        match self {
            Self::Quorum => "etcd stops serving",
            Self::QuorumLost | Self::Corrupt => "can lose all data",
            Self::DataLoss => "loses all data",
            Self::Leader => "writes stop until the next election",
            _ => "",
        }
    }

    /// Whether the denial ends by itself within two minutes.
    fn is_temporary(self) -> bool {
        matches!(self, Self::Backoff | Self::LeadershipMoved | Self::Reserved)
    }
}

/// Renders the decision of a review.
pub(super) fn ruling(reviewed: &Reviewed<'_>) -> Ruling {
    let mut ruling = match &reviewed.decision.conclusion {
        Conclusion::Allow(why) => reviewed.audited(reviewed.allow(why)),
        Conclusion::Deny(reason) => reviewed.deny(reason),
        Conclusion::Unknown(causes) => reviewed.unknown(causes),
    };
    for warning in &reviewed.decision.warnings {
        ruling.warnings.push(texts::warning(reviewed.removal, reviewed.cluster(), warning));
        if let Warning::Transferred { to } = warning {
            ruling.audit.set("moved-leader", to);
        }
    }
    ruling
}

impl Reviewed<'_> {
    /// Returns the name of the etcd cluster, if its members were asked.
    fn cluster(&self) -> &str {
        self.members.as_ref().map_or("", |(round, _)| &round.table.cluster)
    }

    fn audited(&self, ruling: Ruling) -> Ruling {
        let Some(Input { table, .. }) = self.input() else { return ruling };
        let members: Vec<String> = table.rows.iter().map(|row| members::line(table, row)).collect();
        ruling.audit("etcd-cluster", &table.cluster).audit("members", members.join("; "))
    }

    fn allow(&self, why: &Allowed) -> Ruling {
        let name = self.removal.full_name();
        let ruling = Ruling::allow();
        match why {
            Allowed::Exempt(key) => return exempt::ruling(key),
            Allowed::Overridden { reason, until } => return overridden(&name, reason, until),
            Allowed::MirrorPod => {
                let text = "is the mirror of a static pod: its etcd keeps running, and the kubelet creates the pod again";
                ruling.warn(format!("{PREFIX}{name} {text}"))
            }
            Allowed::Unselected => ruling.unguarded(),
            _ => ruling,
        }
        .audit("allowed", texts::allowed(why))
    }

    fn deny(&self, reason: &DenyReason) -> Ruling {
        let why = self.why(reason);
        let ruling = self.audited(Ruling::deny(self.denial_of(reason, &why))).audit("denied", why);
        if let DenyReason::LeadershipMoved { to } = reason {
            ruling.audit("moved-leader", to)
        } else {
            ruling
        }
    }

    /// Returns why a deletion is denied, with what is wrong with the other members.
    fn why(&self, reason: &DenyReason) -> String {
        let why = texts::reason(self.removal, self.cluster(), reason);
        let culprits = match (reason, self.input()) {
            (DenyReason::Quorum { .. } | DenyReason::QuorumLost, Some(Input { table, pod, .. })) => {
                members::culprits(table, &pod.uid)
            }
            _ => None,
        };
        culprits.map_or_else(|| why.clone(), |culprits| format!("{why}; {culprits}"))
    }

    fn denial_of(&self, reason: &DenyReason, why: &str) -> Denial {
        let removal = self.removal;
        let code = texts::code(reason);
        let summary = match code {
            ReasonCode::Quorum => format!("{} would break etcd quorum: {why}", removal.doing()),
            ReasonCode::Corrupt => format!("{} is not safe: {why}", removal.doing()),
            ReasonCode::QuorumLost => why.to_owned(),
            ReasonCode::LeadershipMoved => format!("{}: {why}", removal.denied_effect(" yet")),
            _ => format!("{}: {why}", removal.denied_effect("")),
        };
        if code == ReasonCode::NotFound {
            return Denial { code: Code::NotFound, message: summary, causes: vec![detail(code, why, "")] };
        }
        let mut denial = self.denial(code, why, &summary, &[]);
        if let (DenyReason::LeadershipMoved { to }, Some(detail)) = (reason, denial.causes.last_mut()) {
            detail.field = one_line(to);
        }
        denial
    }

    fn unknown(&self, causes: &[UnknownCause]) -> Ruling {
        let removal = self.removal;
        let of_users: Vec<Cause> = causes.iter().map(|why| texts::cause(removal, why)).collect();
        let denied = match causes {
            [UnknownCause::UnreadOwner { denied, .. }] => Some(denied),
            _ => None,
        };
        let table = self.input().filter(|_| denied.is_none()).map(|input| input.table);
        let Some(table) = table else {
            let mut denial = self.unread(&of_users);
            let why = denied.map(|denied| self.why(denied));
            if let Some((denied, why)) = denied.zip(why.as_ref()) {
                denial.causes.extend(self.denial_of(denied, why).causes);
            }
            let ruling = self.audited(Ruling::new(Verdict::Unknown(of_users)).refuse_with(denial));
            return if let Some(why) = why { ruling.audit("denied", why) } else { ruling };
        };
        let why = of_users.iter().map(|cause| cause.text.as_str()).collect::<Vec<_>>().join("; ");
        let is_unreserved = causes.iter().any(|why| matches!(why, UnknownCause::NotReserved(_)));
        let unreached = members::unreached(table).filter(|_| is_unanswered(&of_users));
        let (code, summary) = match unreached {
            _ if is_unreserved => {
                (ReasonCode::NotReserved, format!("{}: {why}", removal.denied_effect(" safely")))
            }
            Some(why) => {
                let retries = if removal.kind == RemovalKind::Evict { "; drain retries" } else { "" };
                let summary = format!("cannot check etcd quorum for {}: {why}{retries}", removal.full_name());
                (ReasonCode::Unknown, summary)
            }
            None => (ReasonCode::Unknown, unknown_summary(removal, &of_users)),
        };
        let denial = self.denial(code, &why, &summary, &of_users);
        self.audited(Ruling::new(Verdict::Unknown(of_users)).refuse_with(denial))
    }

    /// Returns the denial if Kubernetes could not be read.
    fn unread(&self, causes: &[Cause]) -> Denial {
        let mut message = Message::new(&unknown_summary(self.removal, causes));
        message = overrides::add_invalid(message, &self.pod_override);
        if let Some(why) = causes.first() {
            message = remedy::add_for_cause(message, self.config, why);
        }
        message = self.add_override(message, "");
        let details = causes.iter().map(|why| detail(ReasonCode::Unknown, &why.text, why.code)).collect();
        denial(self.removal.kind, &message, details)
    }

    fn denial(&self, reason: ReasonCode, why: &str, summary: &str, causes: &[Cause]) -> Denial {
        let mut message = Message::new(summary);
        let mut details = vec![detail(reason, why, self.cluster())];
        if let Some(input) = self.input() {
            let Input { table, pod, .. } = input;
            let is_abnormal = |row: &&Row| row.uid != pod.uid && row.state != MemberState::Healthy;
            let abnormal: Vec<&Row> = table.rows.iter().filter(is_abnormal).take(MAX_ROWS).collect();
            if abnormal.len() > 1 {
                for row in abnormal {
                    message = message.detail(&members::line(table, row));
                }
            }
            message = overrides::add_invalid(message, &self.pod_override);
            message = remedy::add(message, input, reason, causes);
            details.extend(table.rows.iter().map(|row| DenialCause {
                reason: state_name(&row.state).to_owned(),
                message: one_line(&members::line(table, row)),
                field: one_line(&row.name),
            }));
        } else {
            message = message.next("retry");
        }
        if !reason.is_temporary() {
            message = self.add_override(message, reason.consequence());
        }
        denial(self.removal.kind, &message, details)
    }

    /// Adds the command that overrides the denial.
    fn add_override(&self, message: Message, consequence: &str) -> Message {
        let Removal { kind, namespace, name, .. } = self.removal;
        // The message of an eviction is one line.
        if *kind == RemovalKind::Evict {
            return message;
        }
        let stored = self.member.as_ref().map(|member| &member.pod);
        let pod = stored.or(self.removal.pod.as_ref());
        let annotations = pod.map_or(&NO_LABELS, |pod| &pod.annotations);
        let (allowed, object) = (self.config.overrides, &*format!("-n {namespace} pod {name}"));
        Overridable { guard: NAME, allowed, object, name, annotations }.add_command(
            message,
            self.now,
            consequence,
        )
    }
}

fn detail(reason: ReasonCode, why: &str, field: &str) -> DenialCause {
    DenialCause { reason: format!("{reason:?}"), message: one_line(why), field: one_line(field) }
}

fn denial(kind: RemovalKind, message: &Message, mut causes: Vec<DenialCause>) -> Denial {
    match kind {
        RemovalKind::Delete => Denial { causes, ..Denial::forbidden(message.to_string()) },
        RemovalKind::Evict => {
            let message = message.summary().to_owned();
            let (reason, field) = (DISRUPTION_BUDGET.to_owned(), String::new());
            causes.insert(0, DenialCause { reason, message: message.clone(), field });
            Denial { code: Code::TooManyRequests, message, causes }
        }
    }
}

/// Whether the first cause is that members did not answer.
fn is_unanswered(causes: &[Cause]) -> bool {
    causes.first().is_some_and(|why| {
        matches!(why.code, cause::TIMEOUT | cause::UNREACHABLE) || why.text == TOO_FEW_ANSWERS
    })
}

/// Returns the first line about the first cause. The others are in the details.
fn unknown_summary(removal: &Removal, causes: &[Cause]) -> String {
    let first = causes.first().map_or_else(String::new, Cause::brief);
    let more = match causes.len() {
        0 | 1 => String::new(),
        many => format!(" (and {} more)", many - 1),
    };
    format!("cannot check etcd quorum for {}: {first}{more}", removal.full_name())
}

/// Returns the ruling for an object with an active override.
pub(super) fn overridden(what: &str, reason: &str, until: &str) -> Ruling {
    let warning = texts::overridden(what, reason, until);
    Ruling::allow().warn(warning).audit(OVERRIDE, format!("until {until}: {reason}"))
}
