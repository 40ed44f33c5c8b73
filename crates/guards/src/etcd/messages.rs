//! The texts of rulings: for users, for programs, and for the audit log.
//!
//! A denied eviction is a 429 with the cause of a PDB, so `kubectl drain` retries. A denied deletion is a 403, because clients retry a
//! 429 without showing it.

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
use cluster::cause;

pub(super) use members::{health, role, state_name};

/// The start of every warning.
pub(super) const PREFIX: &str = "etcd: ";

/// The cause in evictions that `kubectl drain` looks for (`policy/v1`: `DisruptionBudgetCause`).
const DISRUPTION_BUDGET: &str = "DisruptionBudget";

/// Returns a warning about a pod.
pub(super) fn pod_warning(pod: &Pod, text: &str) -> String {
    format!("{PREFIX}{}: {text}", pod.full_name())
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
            ruling.warnings.push(format!("{PREFIX}{}: {note}", self.table.cluster));
        }
        let me = self.table.row(&self.input.pod.uid);
        if let Some(Row { state: MemberState::Unhealthy(why), .. }) = me {
            ruling.warnings.push(self.warning(why));
        }
        if let Some(name) = &self.input.progress.moved_to {
            ruling.warnings.push(self.warning(&format!("leadership moved to {name} before")));
            ruling.audit.set("moved-leader", name);
        }
        ruling
    }

    fn audited(&self, ruling: Ruling) -> Ruling {
        let members: Vec<String> = self.table.rows.iter().map(|row| self.line(row)).collect();
        let ruling = ruling.audit("ensemble", &self.table.cluster).audit("members", members.join("; "));
        if self.table.is_degraded { ruling.audit("seen-by", "health and metrics") } else { ruling }
    }

    pub(super) fn deny(&self, reason: &str, why: &str) -> Ruling {
        let message = self.message(reason, &format!("cannot be {}: {why}", self.input.removal.verb()), &[]);
        let denial = denial(self.input.removal.kind, message, self.details(reason, why));
        self.audited(Ruling::deny(denial)).audit("refused", why)
    }

    pub(super) fn unknown(&self, causes: Vec<Cause>) -> Ruling {
        let why = causes.iter().map(|cause| cause.text.as_str()).collect::<Vec<_>>().join("; ");
        let is_unreserved = causes.iter().any(|why| why.code == cause::NOT_RESERVED);
        let reason = if is_unreserved { "NotReserved" } else { "Unknown" };
        let message = self.message(reason, &format!("could not be checked: {why}"), &causes);
        let denial = denial(self.input.removal.kind, message, self.details(reason, &why));
        self.audited(Ruling::new(Verdict::Unknown(causes)).refuse_with(denial))
    }

    /// Returns the reason of a denial with too few healthy others.
    pub(super) fn too_few(&self, quorum: Quorum, healthy: usize) -> String {
        let others = if healthy == 1 {
            "1 other member is".to_owned()
        } else {
            format!("{healthy} other members are")
        };
        let stay = if quorum.removes_member { " that stay" } else { "" };
        format!(
            "only {others} healthy, and {} of the {} of {}{stay} are a quorum",
            quorum.needed, quorum.voters, self.table.cluster
        )
    }

    fn message(&self, reason: &str, what: &str, causes: &[Cause]) -> String {
        let Input { config, pod, removal, facts, .. } = self.input;
        let rows = members::rows(self.table, &pod.uid);
        let remedy = remedy::remedy(self.input, self.table, reason, causes);
        let current = overrides::judge(config, &pod.name, &pod.annotations, facts.now);
        let hint =
            overrides::hint(config, removal.denied(), (&pod.namespace, &pod.name), &current, facts.now);
        format!("{} {}{rows}\n{remedy}; {hint}", removal.full_name(), one_line(what))
    }

    fn line(&self, row: &Row) -> String {
        members::line(self.table, row)
    }

    fn details(&self, reason: &str, why: &str) -> Vec<DenialCause> {
        let detail = |reason: &str, message: &str, field: &str| DenialCause {
            reason: reason.to_owned(),
            message: one_line(message),
            field: one_line(field),
        };
        let members =
            self.table.rows.iter().map(|row| detail(state_name(&row.state), &self.line(row), &row.name));
        std::iter::once(detail(reason, why, &self.table.cluster)).chain(members).collect()
    }
}

fn denial(kind: RemovalKind, message: String, mut causes: Vec<DenialCause>) -> Denial {
    match kind {
        RemovalKind::Delete => Denial { causes, ..Denial::forbidden(message) },
        RemovalKind::Evict => {
            let first = message.lines().next().unwrap_or_default().to_owned();
            let budget =
                DenialCause { reason: DISRUPTION_BUDGET.to_owned(), message: first, field: String::new() };
            causes.insert(0, budget);
            Denial { code: Code::TooManyRequests, message, causes }
        }
    }
}

fn unknown_detail(why: &Cause) -> DenialCause {
    DenialCause { reason: "Unknown".to_owned(), message: one_line(&why.text), field: why.code.to_owned() }
}

/// Returns the ruling for a pod whose etcd cluster could not be read.
pub(super) fn unknown_removal(config: &Config, removal: &Removal, why: &Cause, now: SystemTime) -> Ruling {
    // The review of an eviction contains no pod.
    let pod = removal.pod.as_deref().and_then(|json| Pod::read(json, 0).ok());
    let current =
        pod.map_or(Override::None, |pod| overrides::judge(config, &pod.name, &pod.annotations, now));
    let name = (removal.namespace.as_str(), removal.name.as_str());
    let message = format!(
        "{} could not be checked: {}\n{}; {}",
        removal.full_name(),
        one_line(&why.text),
        remedy::for_cause(config, why),
        overrides::hint(config, removal.denied(), name, &current, now)
    );
    let denial = denial(removal.kind, message, vec![unknown_detail(why)]);
    Ruling::unknown(why.clone()).refuse_with(denial)
}

/// Returns the ruling after a leadership transfer without time for another read.
pub(super) fn leader_moved(removal: &Removal, name: &str) -> Ruling {
    let why = format!("leadership moved to {name}, and there was no time left to look at the members again");
    let message = format!("{} is not {} yet: {why}\nTry again", removal.full_name(), removal.verb());
    let detail =
        DenialCause { reason: "LeadershipMoved".to_owned(), message: why.clone(), field: name.to_owned() };
    Ruling::deny(denial(removal.kind, message, vec![detail]))
        .audit("refused", why)
        .audit("moved-leader", name)
}

/// Returns the ruling for the mirror pod of a static pod.
pub(super) fn mirror_pod(removal: &Removal) -> Ruling {
    let text = format!(
        "{} is the mirror of a static pod: deleting it stops nothing, its node makes it again. What stops this member is its node going down; see to it that no two such nodes do at once",
        removal.full_name()
    );
    Ruling::allow().warn(format!("{PREFIX}{text}")).audit("allowed", "it is a mirror pod")
}

/// Returns the ruling for an object with an active override.
pub(super) fn overridden(what: &str, reason: &str, until: &str) -> Ruling {
    let text = format!("{what} passes unchecked: {DELETE_ANYWAY} until {until}, because: {reason}");
    Ruling::allow().warn(format!("{PREFIX}{text}")).audit("break-glass", format!("until {until}: {reason}"))
}

/// Returns the denial for an object that is not a pod.
pub(super) fn deny_related(what: &str, denied: DeniedRequest, why: &str, hint: &str) -> Ruling {
    let verb = match denied {
        DeniedRequest::Scaling(_) => "scaled like that",
        DeniedRequest::Deletion(_) | DeniedRequest::Eviction => "deleted",
    };
    let message = format!("{} cannot be {verb}: {}\n{}", one_line(what), one_line(why), sentence(hint));
    let detail = DenialCause { reason: "Ensemble".to_owned(), message: one_line(why), field: String::new() };
    Ruling::deny(Denial { causes: vec![detail], ..Denial::forbidden(message) }).audit("refused", why)
}

/// Returns the ruling for an object that is not a pod and could not be checked.
pub(super) fn unknown_related(config: &Config, what: &str, why: &Cause, hint: &str) -> Ruling {
    let message = format!(
        "{} could not be checked: {}\n{}; {hint}",
        one_line(what),
        one_line(&why.text),
        remedy::for_cause(config, why)
    );
    let denial = Denial { causes: vec![unknown_detail(why)], ..Denial::forbidden(message) };
    Ruling::unknown(why.clone()).refuse_with(denial)
}

/// Returns the warning about wrong override annotations of a namespace.
pub(super) fn namespace_override(namespace: &str, wrong: &str) -> String {
    format!("{PREFIX}namespace {namespace:?}: the annotation {DELETE_ANYWAY} does not count: {wrong}")
}

/// Returns the text with a capital letter at its start.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}
