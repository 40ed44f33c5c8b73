//! What is said: to the person at kubectl, to programs, to the audit log.
//!
//! A refusal of an eviction is a 429 with the cause that a disruption budget has, so that `kubectl drain` waits and tries again;
//! of a deletion a 403, as clients try a 429 again without a word.

mod members;
mod remedy;

use std::time::SystemTime;

use admission::{Cause, Code, Denial, DenialCause, Ruling, Verdict, one_line};

use super::config::Config;
use super::decide::{Case, Quorum};
use super::glass::{self, DELETE_ANYWAY, Override, Refused};
use super::pod::Pod;
use super::table::{Row, State, Table};
use super::target::{Deed, Target};
use cluster::cause;

pub(super) use members::{health, role, word};

/// Before every warning.
pub(super) const VOICE: &str = "etcd: ";

/// A warning about a pod.
pub(super) fn voice(pod: &Pod, text: &str) -> String {
    format!("{VOICE}{}: {text}", pod.told())
}

/// What `kubectl drain` and others look for (`policy/v1`: `DisruptionBudgetCause`).
const BUDGET: &str = "DisruptionBudget";

/// The words for one case.
pub(super) struct Said<'s> {
    case: Case<'s>,
    table: &'s Table,
}

impl<'s> Said<'s> {
    pub(super) fn new(case: Case<'s>, table: &'s Table) -> Self {
        Self { case, table }
    }

    /// A warning.
    pub(super) fn voice(&self, text: &str) -> String {
        voice(self.case.pod, text)
    }

    /// It may go, for this reason.
    pub(super) fn allow(&self, why: &str) -> Ruling {
        self.audited(Ruling::allow().audit("allowed", why))
    }

    /// The same with what is wrong beside it.
    pub(super) fn beside(&self, mut ruling: Ruling) -> Ruling {
        for note in &self.table.notes {
            ruling.warnings.push(format!("{VOICE}{}: {note}", self.table.ensemble));
        }
        if let State::Unfit(why) = self.state() {
            ruling.warnings.push(self.voice(why));
        }
        if let Some(name) = &self.case.done.moved {
            ruling.warnings.push(self.voice(&format!("leadership moved to {name} before")));
            ruling.audit.set("moved-leader", name);
        }
        ruling
    }

    fn state(&self) -> &State {
        self.table.row(&self.case.pod.uid).map_or(&State::Absent, |row| &row.state)
    }

    fn audited(&self, ruling: Ruling) -> Ruling {
        let members: Vec<String> = self.table.rows.iter().map(|row| self.line(row)).collect();
        let ruling = ruling.audit("ensemble", &self.table.ensemble).audit("members", members.join("; "));
        if self.table.is_poor { ruling.audit("seen-by", "health and metrics") } else { ruling }
    }

    /// It may not go.
    pub(super) fn deny(&self, reason: &str, why: &str) -> Ruling {
        let message = self.message(reason, &format!("cannot be {}: {why}", self.case.target.verb()), &[]);
        let denial = refusal(self.case.target.deed, message, self.details(reason, why));
        self.audited(Ruling::deny(denial)).audit("refused", why)
    }

    /// Nobody can say.
    pub(super) fn unknown(&self, causes: Vec<Cause>) -> Ruling {
        let why = causes.iter().map(|cause| cause.text.as_str()).collect::<Vec<_>>().join("; ");
        let is_unnoted = causes.iter().any(|why| why.code == cause::NOT_RESERVED);
        let reason = if is_unnoted { "NotReserved" } else { "Unknown" };
        let message = self.message(reason, &format!("could not be checked: {why}"), &causes);
        let denial = refusal(self.case.target.deed, message, self.details(reason, &why));
        self.audited(Ruling::new(Verdict::Unknown(causes)).refuse_with(denial))
    }

    /// Too few would be left.
    pub(super) fn short_of(&self, quorum: Quorum, healthy: usize) -> String {
        let others = if healthy == 1 {
            "1 other member is".to_owned()
        } else {
            format!("{healthy} other members are")
        };
        let how = if quorum.leaves { " that stay" } else { "" };
        format!(
            "only {others} healthy, and {} of the {} of {}{how} are a quorum",
            quorum.needed, quorum.of, self.table.ensemble
        )
    }

    fn message(&self, reason: &str, what: &str, causes: &[Cause]) -> String {
        let Case { config, pod, target, facts, .. } = self.case;
        let rows = members::rows(self.table, &pod.uid);
        let step = remedy::first_step(self.case, self.table, reason, causes);
        let tried = glass::judge(config, &pod.name, &pod.annotations, facts.now);
        let way = glass::way(config, target.refused(), (&pod.namespace, &pod.name), &tried, facts.now);
        format!("{} {}{rows}\n{step}; {way}", target.told(), one_line(what))
    }

    fn line(&self, row: &Row) -> String {
        members::line(self.table, row)
    }

    fn details(&self, reason: &str, why: &str) -> Vec<DenialCause> {
        let detail = |reason: &str, message: String, field: &str| DenialCause {
            reason: reason.to_owned(),
            message: one_line(&message),
            field: one_line(field),
        };
        let members = self.table.rows.iter().map(|row| detail(word(&row.state), self.line(row), &row.name));
        std::iter::once(detail(reason, why.to_owned(), &self.table.ensemble)).chain(members).collect()
    }
}

fn refusal(deed: Deed, message: String, mut causes: Vec<DenialCause>) -> Denial {
    match deed {
        Deed::Delete => Denial { causes, ..Denial::forbidden(message) },
        Deed::Evict => {
            let first = message.lines().next().unwrap_or_default().to_owned();
            causes.insert(0, DenialCause { reason: BUDGET.to_owned(), message: first, field: String::new() });
            Denial { code: Code::TooManyRequests, message, causes }
        }
    }
}

/// What is said where not even the pods are known.
pub(super) fn unseen(config: &Config, target: &Target, why: &Cause, now: SystemTime) -> Ruling {
    let text = one_line(&why.text);
    let step = remedy::look_into(config, why);
    // Of an eviction nobody has seen the pod.
    let pod = target.pod.as_deref().and_then(|json| Pod::read(json, 0).ok());
    let tried = pod.map_or(Override::None, |pod| glass::judge(config, &pod.name, &pod.annotations, now));
    let way = glass::way(config, target.refused(), (&target.namespace, &target.name), &tried, now);
    let message = format!("{} could not be checked: {text}\n{step}; {way}", target.told());
    let detail = DenialCause { reason: "Unknown".to_owned(), message: text, field: why.code.to_owned() };
    Ruling::unknown(why.clone()).refuse_with(refusal(target.deed, message, vec![detail]))
}

/// The leader has handed over, and there was no time left to see that all is well.
pub(super) fn moved(target: &Target, name: &str) -> Ruling {
    let why = format!("leadership moved to {name}, and there was no time left to look at the members again");
    let message = format!("{} is not {} yet: {why}\nTry again", target.told(), target.verb());
    let detail =
        DenialCause { reason: "LeadershipMoved".to_owned(), message: why.clone(), field: name.to_owned() };
    Ruling::deny(refusal(target.deed, message, vec![detail]))
        .audit("refused", why)
        .audit("moved-leader", name)
}

/// A pod that is only the shadow of what its node runs.
pub(super) fn mirror(target: &Target) -> Ruling {
    let text = format!(
        "{} is the mirror of a static pod: deleting it stops nothing, its node makes it again. What stops this member is its node going down; see to it that no two such nodes do at once",
        target.told()
    );
    Ruling::allow().warn(format!("{VOICE}{text}")).audit("allowed", "it is a mirror pod")
}

/// The allow of somebody who broke the glass.
pub(super) fn glass_broken(what: &str, reason: &str, until: &str) -> Ruling {
    let text = format!("{what} passes unchecked: {} until {until}, because: {reason}", glass::DELETE_ANYWAY);
    Ruling::allow().warn(format!("{VOICE}{text}")).audit("break-glass", format!("until {until}: {reason}"))
}

/// The refusal of what is about more than one pod.
pub(super) fn above(what: &str, refused: Refused, why: &str, way: &str) -> Ruling {
    let done = match refused {
        Refused::Scaling(_) => "scaled like that",
        Refused::Deletion(_) | Refused::Eviction => "deleted",
    };
    let message = format!("{} cannot be {done}: {}\n{}", one_line(what), one_line(why), sentence(way));
    let detail = DenialCause { reason: "Ensemble".to_owned(), message: one_line(why), field: String::new() };
    Ruling::deny(Denial { causes: vec![detail], ..Denial::forbidden(message) }).audit("refused", why)
}

/// What is about more than one pod and could not be seen.
pub(super) fn above_unseen(config: &Config, what: &str, why: &Cause, way: &str) -> Ruling {
    let text = one_line(&why.text);
    let message =
        format!("{} could not be checked: {text}\n{}; {way}", one_line(what), remedy::look_into(config, why));
    let detail = DenialCause { reason: "Unknown".to_owned(), message: text, field: why.code.to_owned() };
    let denial = Denial { causes: vec![detail], ..Denial::forbidden(message) };
    Ruling::unknown(why.clone()).refuse_with(denial)
}

/// What is wrong with the annotations of a namespace that was to let pass what is in it.
pub(super) fn of_namespace(namespace: &str, wrong: &str) -> String {
    format!("{VOICE}namespace {namespace:?}: the annotation {DELETE_ANYWAY} does not count: {wrong}")
}

/// With a capital letter.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}
