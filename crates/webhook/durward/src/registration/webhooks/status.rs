//! Reports the state of webhook configurations: check `webhooks`, metrics and log.
//!
//! A server is not ready while a caBundle lacks its CA, or while a configuration can't be read. After it was ready once, the same
//! states are only reported: all replicas read the same objects and would become unready together. A self-managed CA that can't be read
//! counts as missing in each caBundle.

use std::sync::Mutex;

use admission::lock;
use config::Problem;
use guards::WebhookType;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use server::{Checks, Metrics};

use super::native::NativeState;
use super::object::ConfigurationState;
use cluster::ApiError;

/// The name of the check.
const CHECK: &str = "webhooks";

/// The codes of problems that can end soon: an object is created, a permission is granted, or an API server answers.
const WAITING: [&str; 5] = ["unreachable", "permission", "not-registered", "ca-bundle", "ca"];

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
struct WebhookMetrics {
    registered: Family<ObjectLabels, Gauge>,
    trusted: Family<ObjectLabels, Gauge>,
    narrowed: Family<ObjectLabels, Gauge>,
    foreign: Family<ObjectLabels, Gauge>,
    unenforced: Family<TargetLabel, Gauge>,
    native: Family<TargetLabel, Gauge>,
    writes: Counter,
    failures: Family<ReasonLabel, Counter>,
}

const OBJECT_LABELS: &[(&str, &str)] = &[("target", "cluster, karmada"), ("kind", "validating, mutating")];

impl WebhookMetrics {
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
        let help =
            "Native policies of the configuration that are missing, can't be written, or have no binding";
        metrics.register(
            "native_policies_inactive",
            &[("target", "cluster, karmada")],
            help,
            self.native.clone(),
        );
        let help = "Changes of webhook configurations that this replica wrote";
        metrics.register("webhook_writes", &[], help, self.writes.clone());
        metrics.register(
            "webhook_requests_failed",
            &[("reason", "forbidden, conflict, not-found, unreachable, rejected")],
            "Failed reads and writes of webhook configurations, native policies and the Namespace",
            self.failures.clone(),
        );
    }
}

/// Registers the metrics, for the reference page.
#[cfg(test)]
pub(crate) fn register_metrics(metrics: &Metrics) {
    WebhookMetrics::default().register(metrics);
}

/// The check, the metrics and the log.
pub(super) struct PassStatus {
    checks: Checks,
    numbers: WebhookMetrics,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    was_ready: bool,
    /// The problems that were logged.
    logged: Vec<String>,
}

/// Collects the results of a pass over all objects.
#[derive(Default)]
pub(super) struct PassReport {
    /// The problems, as lines.
    problems: Vec<String>,
    /// Whether a server that was never ready is not ready.
    blocks: bool,
    /// Whether the next pass can solve a problem.
    pub(super) is_waiting: bool,
}

impl PassStatus {
    /// Registers the metrics. The check is added when webhooks are first managed.
    pub(super) fn new(checks: Checks, metrics: &Metrics) -> Self {
        let numbers = WebhookMetrics::default();
        numbers.register(metrics);
        Self { checks, numbers, memory: Mutex::default() }
    }

    /// Adds the check, which fails until the first pass.
    pub(super) fn expect(&self) {
        if self.checks.readiness_of(CHECK).is_none() {
            self.checks.add(CHECK).fail("the webhook configurations have not been read yet");
        }
    }

    /// Returns whether this server could answer calls, so that it can write. A server that stops is not ready.
    pub(super) fn is_ready(&self) -> bool {
        self.checks.is_ready_without(CHECK)
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

    /// Adds the state of a webhook configuration. A self-managed CA that can't be read keeps a new server unready.
    pub(super) fn add(
        &self,
        report: &mut PassReport,
        (target, webhook_type): (&'static str, WebhookType),
        state: &ConfigurationState,
        is_self_managed: bool,
    ) {
        let is_validating = webhook_type == WebhookType::Validating;
        let kind = if is_validating { "validating" } else { "mutating" };
        let labels = ObjectLabels { target, kind };
        for kind in &state.failures {
            self.count_failure(*kind);
        }
        self.numbers.writes.inc_by(state.writes);
        let has = |code| state.problems.iter().any(|(found, _)| *found == code);
        let numbers = &self.numbers;
        // The last known values stay.
        if state.is_known {
            let exists = state.uid.is_some() && state.is_needed;
            let foreign = i64::try_from(state.foreign).unwrap_or(i64::MAX);
            let is_registered = i64::from(!has("not-registered"));
            set(&numbers.foreign, &labels, exists.then_some(foreign));
            set(&numbers.registered, &labels, (exists || is_registered == 0).then_some(is_registered));
            set(&numbers.narrowed, &labels, exists.then(|| i64::from(has("narrowed"))));
            set(&numbers.trusted, &labels, state.is_trusted.map(i64::from));
            if is_validating {
                let count = i64::try_from(state.unenforced).unwrap_or(i64::MAX);
                self.numbers.unenforced.get_or_create(&TargetLabel { target }).set(count);
            }
        }
        let blocks = !state.is_known || state.is_trusted == Some(false) || (is_self_managed && has("ca"));
        report.add(&state.problems, blocks);
    }

    /// Adds the state of the native policies of an API server.
    pub(super) fn add_native(&self, report: &mut PassReport, target: &'static str, state: &NativeState) {
        for kind in &state.failures {
            self.count_failure(*kind);
        }
        let count = i64::try_from(state.problems.len()).unwrap_or(i64::MAX);
        self.numbers.native.get_or_create(&TargetLabel { target }).set(count);
        report.add(&state.problems, false);
    }

    /// Publishes a pass.
    pub(super) fn publish(&self, report: PassReport) {
        let PassReport { problems, blocks, .. } = report;
        let mut memory = lock(&self.memory);
        for problem in problems.iter().filter(|problem| !memory.logged.contains(problem)) {
            tracing::warn!("{problem}");
        }
        if problems.is_empty() && !memory.logged.is_empty() {
            tracing::info!("webhook configurations: all problems solved");
        }
        memory.was_ready |= !blocks;
        let (check, text) = (self.checks.add(CHECK), problems.join("\n    "));
        match (problems.is_empty(), memory.was_ready) {
            (true, _) => check.pass(),
            (false, true) => check.note(text),
            (false, false) => check.fail(text),
        }
        memory.logged = problems;
    }

    /// Reports that no configuration is managed any more.
    pub(super) fn unmanaged(&self) {
        if self.checks.readiness_of(CHECK).is_some() {
            self.checks.add(CHECK).note("server.webhookConfiguration.manage is none");
        }
    }
}

/// Sets a gauge, or removes it.
fn set(gauges: &Family<ObjectLabels, Gauge>, labels: &ObjectLabels, value: Option<i64>) {
    match value {
        Some(value) => {
            gauges.get_or_create(labels).set(value);
        }
        None => {
            gauges.remove(labels);
        }
    }
}

impl PassReport {
    /// Adds the problems of an object, with their codes.
    pub(super) fn add(&mut self, problems: &[(&'static str, Problem)], blocks: bool) {
        self.problems.extend(problems.iter().map(|(_, problem)| one_line(problem)));
        self.blocks |= blocks;
        self.is_waiting |= problems.iter().any(|(code, _)| WAITING.contains(code));
    }
}

/// Formats a problem for a log line and a line of `/readyz`.
fn one_line(problem: &Problem) -> String {
    let why = problem.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    let next = problem.next.as_ref().map(|next| format!("; next: {next}")).unwrap_or_default();
    admission::one_line(&format!("{}{why}{next}", problem.what))
}
