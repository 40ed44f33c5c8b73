//! The texts of rulings: for users, for programs, and for the audit log.
//!
//! A denied eviction is a 429 with the cause of a PDB, so `kubectl drain` retries. It prints the message each time, so the message of
//! an eviction is a single line. A denied deletion is a 403, because clients retry a 429 without showing it.

mod members;
mod remedy;
mod texts;

use std::time::SystemTime;

use admission::{Cause, Code, Denial, DenialCause, OVERRIDE, Ruling, Verdict, one_line};

use super::config::Config;
use super::decide::{Allowed, Conclusion, Outcome, Reason, UnknownCause, Warning};
use super::input::Input;
use super::overrides::{self, Override};
use super::pod::Pod;
use super::removal::{Removal, RemovalKind};
use super::table::{MemberState, Row, TOO_FEW_ANSWERS, Table};
use crate::exempt;
use crate::message::Message;
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

/// Returns the ruling for an outcome without the answers of members.
pub(super) fn ruling(config: &Config, removal: &Removal, outcome: &Outcome, now: SystemTime) -> Ruling {
    let ruling = match &outcome.conclusion {
        Conclusion::Allow(why) => allow(removal, why),
        Conclusion::Deny(reason) => deny(removal, reason),
        Conclusion::Unknown(causes) => {
            let causes = causes.iter().map(|why| texts::cause(removal, why)).collect();
            unknown_removal(config, removal, causes, now)
        }
    };
    add_warnings(ruling, removal, None, &outcome.warnings)
}

fn add_warnings(
    mut ruling: Ruling,
    removal: &Removal,
    table: Option<&Table>,
    warnings: &[Warning],
) -> Ruling {
    for warning in warnings {
        ruling.warnings.push(texts::warning(removal, table, warning));
        if let Warning::Transferred { to } = warning {
            ruling.audit.set("moved-leader", to);
        }
    }
    ruling
}

fn allow(removal: &Removal, why: &Allowed) -> Ruling {
    let name = removal.full_name();
    match why {
        Allowed::Exempt(key) => exempt::ruling(key),
        Allowed::Overridden { reason, until } => overridden(&name, reason, until),
        Allowed::MirrorPod => {
            let text = "is the mirror of a static pod: its etcd keeps running, and the kubelet creates the pod again";
            Ruling::allow().warn(format!("{PREFIX}{name} {text}")).audit("allowed", texts::allowed(why))
        }
        Allowed::Unselected => Ruling::allow().audit("allowed", texts::allowed(why)).unguarded(),
        why => Ruling::allow().audit("allowed", texts::allowed(why)),
    }
}

/// Returns a denial without the answers of members.
fn deny(removal: &Removal, reason: &Reason) -> Ruling {
    let why = texts::reason(removal, "", reason);
    let code = texts::code(reason);
    match reason {
        Reason::NoPod => {
            let message = format!("{}: {why}", removal.denied_effect(""));
            let causes = vec![detail(code, &why, "")];
            Ruling::deny(Denial { code: Code::NotFound, message, causes }).audit("denied", why)
        }
        Reason::LeadershipMoved { to } => {
            let message = Message::new(&format!("{}: {why}", removal.denied_effect(" yet"))).next("retry");
            let causes = vec![detail(code, &why, to)];
            let ruling = Ruling::deny(denial(removal.kind, &message, causes));
            ruling.audit("denied", why).audit("moved-leader", to)
        }
        _ => {
            let message = Message::new(&format!("{}: {why}", removal.denied_effect("")));
            let causes = vec![detail(code, &why, "")];
            Ruling::deny(denial(removal.kind, &message, causes)).audit("denied", why)
        }
    }
}

/// Returns the ruling for an outcome by the answers of members.
pub(super) fn member_ruling(input: Input<'_>, outcome: &Outcome) -> Ruling {
    let table = Table::of(input.facts);
    let messages = Messages { input, table: &table };
    let ruling = match &outcome.conclusion {
        Conclusion::Allow(why) => messages.audited(allow(input.removal, why)),
        Conclusion::Deny(reason) => messages.deny(reason),
        Conclusion::Unknown(causes) => messages.unknown(causes),
    };
    add_warnings(ruling, input.removal, Some(&table), &outcome.warnings)
}

/// Builds the rulings about one pod with a table.
struct Messages<'m> {
    input: Input<'m>,
    table: &'m Table,
}

impl Messages<'_> {
    fn audited(&self, ruling: Ruling) -> Ruling {
        let members: Vec<String> = self.table.rows.iter().map(|row| members::line(self.table, row)).collect();
        ruling.audit("etcd-cluster", &self.table.cluster).audit("members", members.join("; "))
    }

    fn deny(&self, reason: &Reason) -> Ruling {
        let why = self.why(reason);
        self.audited(Ruling::deny(self.denial_of(reason, &why))).audit("denied", why)
    }

    /// Returns why a deletion is denied, with what is wrong with the other members.
    fn why(&self, reason: &Reason) -> String {
        let why = texts::reason(self.input.removal, &self.table.cluster, reason);
        let culprits = match reason {
            Reason::Quorum { .. } | Reason::QuorumLost => members::culprits(self.table, &self.input.pod.uid),
            _ => None,
        };
        culprits.map_or_else(|| why.clone(), |culprits| format!("{why}; {culprits}"))
    }

    fn denial_of(&self, reason: &Reason, why: &str) -> Denial {
        let removal = self.input.removal;
        let code = texts::code(reason);
        let summary = match code {
            ReasonCode::Quorum => format!("{} would break etcd quorum: {why}", removal.doing()),
            ReasonCode::Corrupt => format!("{} is not safe: {why}", removal.doing()),
            ReasonCode::QuorumLost => why.to_owned(),
            _ => format!("{}: {why}", removal.denied_effect("")),
        };
        self.denial(code, why, &summary, &[])
    }

    fn unknown(&self, causes: &[UnknownCause]) -> Ruling {
        let Input { config, removal, facts, .. } = self.input;
        let of_users: Vec<Cause> = causes.iter().map(|why| texts::cause(removal, why)).collect();
        if let [UnknownCause::UnreadOwner { denied, .. }] = causes {
            let why = self.why(denied);
            let mut ruling = self.audited(unknown_removal(config, removal, of_users, facts.now));
            if let Some(refusal) = &mut ruling.refusal {
                refusal.causes.extend(self.denial_of(denied, &why).causes);
            }
            return ruling.audit("denied", why);
        }
        let all = of_users.iter().map(|cause| cause.text.as_str());
        let why = all.collect::<Vec<_>>().join("; ");
        let is_unreserved = causes.iter().any(|why| matches!(why, UnknownCause::NotReserved(_)));
        let (code, summary) = if is_unreserved {
            (ReasonCode::NotReserved, format!("{}: {why}", removal.denied_effect(" safely")))
        } else {
            let unreached = members::unreached(self.table).filter(|_| is_unanswered(&of_users));
            let retries = if removal.kind == RemovalKind::Evict { "; drain retries" } else { "" };
            let summary = match unreached {
                Some(why) => format!("cannot check etcd quorum for {}: {why}{retries}", removal.full_name()),
                None => unknown_summary(removal, &of_users),
            };
            (ReasonCode::Unknown, summary)
        };
        let denial = self.denial(code, &why, &summary, &of_users);
        self.audited(Ruling::new(Verdict::Unknown(of_users)).refuse_with(denial))
    }

    fn denial(&self, reason: ReasonCode, why: &str, summary: &str, causes: &[Cause]) -> Denial {
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
            message = overrides::add(message, config, removal.kind, name, (&current, facts.now), consequence);
        }
        denial(removal.kind, &message, self.details(reason, why))
    }

    fn details(&self, reason: ReasonCode, why: &str) -> Vec<DenialCause> {
        let members = self.table.rows.iter().map(|row| DenialCause {
            reason: state_name(&row.state).to_owned(),
            message: one_line(&members::line(self.table, row)),
            field: one_line(&row.name),
        });
        std::iter::once(detail(reason, why, &self.table.cluster)).chain(members).collect()
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

/// Returns the ruling for a pod whose etcd cluster could not be read.
fn unknown_removal(config: &Config, removal: &Removal, causes: Vec<Cause>, now: SystemTime) -> Ruling {
    // The review of an eviction contains no pod.
    let pod = removal.pod.as_ref().and_then(|pod| Pod::read(&pod.json, 0).ok());
    let current =
        pod.map_or(Override::None, |pod| overrides::judge(config, &pod.name, &pod.annotations, now));
    let name = (removal.namespace.as_str(), removal.name.as_str());
    let message = Message::new(&unknown_summary(removal, &causes));
    let mut message = overrides::add_invalid(message, &current);
    if let Some(why) = causes.first() {
        message = remedy::add_for_cause(message, config, why);
    }
    let message = overrides::add(message, config, removal.kind, name, (&current, now), "");
    let details = causes.iter().map(|why| detail(ReasonCode::Unknown, &why.text, why.code)).collect();
    let denial = denial(removal.kind, &message, details);
    Ruling::new(Verdict::Unknown(causes)).refuse_with(denial)
}

/// Returns the ruling for an object with an active override.
pub(super) fn overridden(what: &str, reason: &str, until: &str) -> Ruling {
    let warning = texts::overridden(what, reason, until);
    Ruling::allow().warn(warning).audit(OVERRIDE, format!("until {until}: {reason}"))
}
