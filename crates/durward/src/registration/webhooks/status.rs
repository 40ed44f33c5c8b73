//! Reports the state of webhook configurations: check `webhooks`, metrics and log.
//!
//! A server is not ready while a caBundle lacks its CA, or while a configuration can't be read. After it was ready once, the same
//! states are only reported: all replicas read the same objects and would become unready together. A self-managed CA that can't be read
//! counts as missing in each caBundle.

use std::collections::BTreeMap;
use std::sync::Mutex;

use admission::lock;
use config::Problem;
use guards::WebhookType;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use server::{Checks, Metrics};

use super::pass::{Passed, State};
use cluster::ApiError;

/// The name of the check.
const CHECK: &str = "webhooks";

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
struct ObjectLabels {
    target: &'static str,
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TargetLabel {
    target: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// The metrics.
#[derive(Debug, Clone, Default)]
struct Numbers {
    registered: Family<ObjectLabels, Gauge>,
    trusted: Family<ObjectLabels, Gauge>,
    narrowed: Family<ObjectLabels, Gauge>,
    foreign: Family<ObjectLabels, Gauge>,
    unenforced: Family<TargetLabel, Gauge>,
    writes: Counter,
    failures: Family<ReasonLabel, Counter>,
}

const OBJECT_LABELS: &[(&str, &str)] = &[("target", "cluster, karmada"), ("kind", "validating, mutating")];

impl Numbers {
    fn register(&self, metrics: &Metrics) {
        let help = "1 if the webhook configuration has every entry and rule that this replica needs";
        metrics.register("webhooks_registered", OBJECT_LABELS, help, self.registered.clone());
        let help = "1 if the caBundle of every entry contains the CA of this replica's certificate";
        metrics.register("webhooks_trusted", OBJECT_LABELS, help, self.trusted.clone());
        let help = "1 while selectors, conditions or other fields of an entry differ from this replica's configuration";
        metrics.register("webhooks_narrowed", OBJECT_LABELS, help, self.narrowed.clone());
        let help = "Entries of the webhook configuration that Durward did not write";
        metrics.register("webhooks_foreign", OBJECT_LABELS, help, self.foreign.clone());
        let help = "Policies that the API server does not enforce, because their webhook entry is missing or narrower than they are";
        metrics.register(
            "policies_not_enforced",
            &[("target", "cluster, karmada")],
            help,
            self.unenforced.clone(),
        );
        let help = "Changes of webhook configurations that this replica wrote";
        metrics.register("webhook_writes", &[], help, self.writes.clone());
        metrics.register(
            "webhook_requests_failed",
            &[("reason", "forbidden, conflict, not-found, unreachable, rejected")],
            "Failed reads and writes of webhook configurations, the Namespace and the Lease",
            self.failures.clone(),
        );
    }
}

/// Registers the metrics, for the reference page.
#[cfg(test)]
pub(crate) fn register_metrics(metrics: &Metrics) {
    Numbers::default().register(metrics);
}

/// The check, the metrics and the log.
pub(super) struct Status {
    checks: Checks,
    numbers: Numbers,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    was_ready: bool,
    /// The problems that were logged, by subject.
    logged: BTreeMap<String, String>,
}

/// The state of one subject for check and log.
struct Line {
    subject: String,
    problem: Option<Problem>,
    /// Whether it keeps a server that was never ready from being ready.
    blocks: bool,
}

/// Collects the results of a pass over all objects.
#[derive(Default)]
pub(super) struct Report(Vec<Line>);

impl Status {
    /// Registers the metrics. The check is added when webhooks are first managed.
    pub(super) fn new(checks: Checks, metrics: &Metrics) -> Self {
        let numbers = Numbers::default();
        numbers.register(metrics);
        Self { checks, numbers, memory: Mutex::default() }
    }

    /// Adds the check, which fails until the first pass.
    pub(super) fn expect(&self) {
        if self.checks.readiness_of(CHECK).is_none() {
            self.checks.add(CHECK).fail("the webhook configurations have not been read yet");
        }
    }

    /// Counts failed requests.
    pub(super) fn count_failure(&self, kind: ApiError) {
        let reason = match kind {
            ApiError::Forbidden => "forbidden",
            ApiError::Conflict => "conflict",
            ApiError::NotFound => "not-found",
            ApiError::Unavailable => "unreachable",
            ApiError::Rejected | ApiError::Expired => "rejected",
            ApiError::Credentials => "credentials",
        };
        self.numbers.failures.get_or_create(&ReasonLabel { reason }).inc();
    }

    /// Adds the result of one object.
    pub(super) fn add(
        &self,
        report: &mut Report,
        target: &'static str,
        webhook_type: WebhookType,
        passed: Passed,
    ) {
        let kind = match webhook_type {
            WebhookType::Validating => "validating",
            WebhookType::Mutating => "mutating",
        };
        let labels = ObjectLabels { target, kind };
        let Passed { state, is_ca_unknown, unenforced, failures, writes } = passed;
        for kind in failures {
            self.count_failure(kind);
        }
        self.numbers.writes.inc_by(writes);
        let mut of_others = None;
        let (problem, blocks) = match state {
            State::NotNeeded => {
                self.numbers.foreign.remove(&labels);
                self.numbers.registered.remove(&labels);
                self.numbers.trusted.remove(&labels);
                self.numbers.narrowed.remove(&labels);
                (None, false)
            }
            // The last known values stay.
            State::Unknown(problem) => (Some(problem), true),
            State::Missing(problem) => {
                self.numbers.foreign.remove(&labels);
                self.numbers.registered.get_or_create(&labels).set(0);
                self.numbers.trusted.remove(&labels);
                self.numbers.narrowed.remove(&labels);
                (Some(problem), false)
            }
            State::Present { is_registered, is_trusted, is_narrowed, problem, foreign, foreign_problem } => {
                self.numbers.foreign.get_or_create(&labels).set(i64::try_from(foreign).unwrap_or(i64::MAX));
                of_others = foreign_problem;
                self.numbers.registered.get_or_create(&labels).set(i64::from(is_registered));
                self.numbers.narrowed.get_or_create(&labels).set(i64::from(is_narrowed));
                match is_trusted {
                    Some(is_trusted) => {
                        self.numbers.trusted.get_or_create(&labels).set(i64::from(is_trusted));
                    }
                    None => {
                        self.numbers.trusted.remove(&labels);
                    }
                }
                (problem, is_trusted == Some(false))
            }
        };
        report.0.push(Line { subject: format!("{target} {kind}"), problem, blocks: blocks || is_ca_unknown });
        report.add(&format!("{target} {kind} entries"), of_others);
        // The last known value stays.
        if let Some((count, problem)) = unenforced.filter(|_| webhook_type == WebhookType::Validating) {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.numbers.unenforced.get_or_create(&TargetLabel { target }).set(count);
            report.add(&format!("{target} policies"), problem);
        }
    }

    /// Publishes a pass.
    pub(super) fn publish(&self, report: &Report) {
        let mut memory = lock(&self.memory);
        for Line { subject, problem, .. } in &report.0 {
            let text = problem.as_ref().map(one_line);
            if memory.logged.get(subject) == text.as_ref() {
                continue;
            }
            if let Some(text) = text {
                tracing::warn!(webhooks = subject.as_str(), "{text}");
                memory.logged.insert(subject.clone(), text);
            } else {
                tracing::info!(webhooks = subject.as_str(), "webhook configuration: problem solved");
                memory.logged.remove(subject);
            }
        }
        let problems: Vec<String> =
            report.0.iter().filter_map(|line| line.problem.as_ref()).map(one_line).collect();
        let check = self.checks.add(CHECK);
        let blocks = report.0.iter().any(|line| line.blocks);
        memory.was_ready |= !blocks;
        match problems.as_slice() {
            [] => check.pass(),
            problems if memory.was_ready => check.note(problems.join("\n    ")),
            problems => check.fail(problems.join("\n    ")),
        }
    }

    /// Reports that no configuration is managed any more.
    pub(super) fn unmanaged(&self) {
        if self.checks.readiness_of(CHECK).is_some() {
            self.checks.add(CHECK).note("server.webhookConfiguration.manage is none");
        }
    }
}

impl Report {
    /// Adds a problem of another subject, which makes no server unready.
    pub(super) fn add(&mut self, subject: &str, problem: Option<Problem>) {
        self.0.push(Line { subject: subject.to_owned(), problem, blocks: false });
    }

    /// Adds an API server that could not be reached.
    pub(super) fn add_unreachable(&mut self, target: &'static str, problem: Problem) {
        self.0.push(Line { subject: target.to_owned(), problem: Some(problem), blocks: true });
    }
}

/// Formats a problem for a log line and a line of `/readyz`.
fn one_line(problem: &Problem) -> String {
    let why = problem.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    let next = problem.next.as_ref().map(|next| format!("; next: {next}")).unwrap_or_default();
    admission::one_line(&format!("{}{why}{next}", problem.what))
}
