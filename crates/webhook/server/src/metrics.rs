//! The metrics `durward_*` in one registry. The server's own are here; other owners use [`Metrics::register`]. The registry also
//! describes them, for the reference page.
//!
//! Labels come from closed sets of `&'static str`, never from a request: with namespaces as labels, Kyverno grew 1.2 million
//! series of one metric. A guard's counters are looked up once, when its plan is created.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard};

use admission::{Operation, PolicyOutcome, Settled, lock};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry};

/// Ten buckets, from a guard that only reads the object (below 0.5 ms) to the default timeout of the API server (10 s).
const SECONDS: [f64; 10] = [0.0005, 0.001, 0.0025, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0];
/// Buckets from one small policy to one that exhausts its budget.
const EVALUATION_SECONDS: [f64; 8] = [0.00005, 0.0001, 0.0005, 0.001, 0.005, 0.025, 0.1, 1.0];
/// Buckets from a small pod to the largest body.
const BYTES: [f64; 8] =
    [1024.0, 4096.0, 16_384.0, 65_536.0, 262_144.0, 1_048_576.0, 4_194_304.0, 10_485_760.0];

const OPERATIONS: [Operation; 4] =
    [Operation::Create, Operation::Update, Operation::Delete, Operation::Connect];
const VERDICTS: [&str; 4] = ["allow", "deny", "mutate", "unknown"];

/// Media type of [`Metrics::encode`].
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The labels of a series.
type LabelPairs<const N: usize> = [(&'static str, &'static str); N];

/// Describes a metric, for the reference page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricInfo {
    /// The full name: `durward_reviews_total`.
    pub name: String,
    /// `counter`, `gauge`, `histogram` or `info`.
    pub kind: &'static str,
    /// Its labels, each with its possible values.
    pub labels: &'static [(&'static str, &'static str)],
    /// The help text.
    pub help: &'static str,
}

/// The registry and its description.
#[derive(Debug)]
struct DescribedRegistry {
    registry: Registry,
    reference: Vec<MetricInfo>,
}

/// The metrics of one server. Clones share them.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<MetricsInner>);

#[derive(Debug)]
struct MetricsInner {
    registry: Mutex<DescribedRegistry>,
    server: ServerMetrics,
    guards: GuardFamilies,
}

/// The metrics that do not belong to a guard.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerMetrics {
    pub(crate) refused: Family<LabelPairs<1>, Counter>,
    pub(crate) shed: Family<LabelPairs<1>, Counter>,
    pub(crate) in_flight: Gauge,
    pub(crate) bytes_in_flight: Gauge,
    pub(crate) connections: Gauge,
    pub(crate) connections_accepted: Counter,
    pub(crate) idle_connections_closed: Counter,
    pub(crate) accept_errors: Counter,
    pub(crate) connection_panics: Counter,
    tasks_restarted: Family<LabelPairs<1>, Counter>,
    pub(crate) handshakes_failed: Family<LabelPairs<1>, Counter>,
    certificate_not_after: Gauge,
    certificate_not_before: Gauge,
    pub(crate) certificate_loads: Family<LabelPairs<1>, Counter>,
    config_generation: Gauge<i64, AtomicI64>,
}

#[derive(Debug)]
struct GuardFamilies {
    reviews: Family<LabelPairs<3>, Counter>,
    duration: Family<LabelPairs<1>, Histogram, fn() -> Histogram>,
    decode_bytes: Histogram,
    unknown: Family<LabelPairs<2>, Counter>,
    would_deny: Family<LabelPairs<1>, Counter>,
    unreviewed: Family<LabelPairs<1>, Counter>,
    overrides: Family<LabelPairs<1>, Counter>,
    panics: Family<LabelPairs<1>, Counter>,
    deadlines: Family<LabelPairs<1>, Counter>,
    abandoned: Family<LabelPairs<1>, Counter>,
    policies: Family<PolicyLabels, Counter>,
    evaluation: Histogram,
    named: Arc<Mutex<BTreeSet<String>>>,
}

/// Guard, policy and outcome. The names of policies come from the configuration, at most [`MAX_POLICIES`] of them.
type PolicyLabels = [(&'static str, String); 3];

/// Policies with a series of their own. The others have the label `other`.
const MAX_POLICIES: usize = 500;

/// The metrics of one guard.
#[derive(Debug)]
pub(crate) struct GuardMetrics {
    name: &'static str,
    reviews: [[Counter<u64, AtomicU64>; VERDICTS.len()]; OPERATIONS.len()],
    duration: Histogram,
    decode_bytes: Histogram,
    unknown: Family<LabelPairs<2>, Counter>,
    would_deny: Counter,
    unreviewed: Counter,
    overrides: Counter,
    pub(crate) panics: Counter,
    pub(crate) deadlines: Counter,
    pub(crate) abandoned: Counter,
    policies: Family<PolicyLabels, Counter>,
    evaluation: Histogram,
    /// The policies with a series of their own.
    named: Arc<Mutex<BTreeSet<String>>>,
}

impl Metrics {
    /// Creates a registry with the server's own families, and `durward_build_info{version}`.
    pub fn new(version: &str) -> Self {
        let mut registry =
            DescribedRegistry { registry: Registry::with_prefix("durward"), reference: Vec::new() };
        registry.add(
            "build",
            &[("version", "the version")],
            "Version of the running server",
            Info::new(vec![("version".to_owned(), version.to_owned())]),
        );
        let server = ServerMetrics::registered(&mut registry);
        let guards = GuardFamilies::registered(&mut registry);
        Self(Arc::new(MetricsInner { registry: Mutex::new(registry), server, guards }))
    }

    /// Registers a metric of another owner, with the prefix `durward_`. Pass the name of a counter without `_total`, and the help
    /// text without a full stop.
    pub fn register(
        &self,
        name: &str,
        labels: &'static [(&'static str, &'static str)],
        help: &'static str,
        metric: impl Metric,
    ) {
        self.registry().add(name, labels, help, metric);
    }

    /// Describes all registered metrics.
    pub fn reference(&self) -> Vec<MetricInfo> {
        self.registry().reference.clone()
    }

    /// Returns all metrics as `OpenMetrics` text: the answer of `/metrics`.
    pub fn encode(&self) -> String {
        let mut text = String::with_capacity(16 << 10);
        if encode(&mut text, &self.registry().registry).is_err() {
            // Only a label of another owner can fail. The metrics before it are written.
            tracing::error!("a metric could not be encoded; the answer of /metrics is incomplete");
        }
        text
    }

    pub(crate) fn server(&self) -> &ServerMetrics {
        &self.0.server
    }

    /// Creates the metrics of a guard. Every series begins at zero, so that a rate includes the first event.
    pub(crate) fn guard(&self, name: &'static str) -> GuardMetrics {
        let families = &self.0.guards;
        let label = [("guard", name)];
        let reviews = OPERATIONS.map(|operation| {
            VERDICTS.map(|verdict| {
                let labels = [("guard", name), ("operation", operation.as_str()), ("verdict", verdict)];
                families.reviews.get_or_create_owned(&labels)
            })
        });
        GuardMetrics {
            name,
            reviews,
            duration: families.duration.get_or_create_owned(&label),
            decode_bytes: families.decode_bytes.clone(),
            unknown: families.unknown.clone(),
            would_deny: families.would_deny.get_or_create_owned(&label),
            unreviewed: families.unreviewed.get_or_create_owned(&label),
            overrides: families.overrides.get_or_create_owned(&label),
            panics: families.panics.get_or_create_owned(&label),
            deadlines: families.deadlines.get_or_create_owned(&label),
            abandoned: families.abandoned.get_or_create_owned(&label),
            policies: families.policies.clone(),
            evaluation: families.evaluation.clone(),
            named: Arc::clone(&families.named),
        }
    }

    pub(crate) fn set_config_generation(&self, generation: u64) {
        self.0.server.config_generation.set(i64::try_from(generation).unwrap_or(i64::MAX));
    }

    fn registry(&self) -> MutexGuard<'_, DescribedRegistry> {
        lock(&self.0.registry)
    }
}

impl DescribedRegistry {
    /// Registers and describes a metric. The registry adds a full stop to the help text.
    fn add(
        &mut self,
        name: &str,
        labels: &'static [(&'static str, &'static str)],
        help: &'static str,
        metric: impl Metric,
    ) {
        let (kind, suffix) = match metric.metric_type() {
            MetricType::Counter => ("counter", "_total"),
            MetricType::Gauge => ("gauge", ""),
            MetricType::Histogram => ("histogram", ""),
            MetricType::Info => ("info", "_info"),
            MetricType::Unknown => ("unknown", ""),
        };
        self.reference.push(MetricInfo { name: format!("durward_{name}{suffix}"), kind, labels, help });
        self.registry.register(name, help, metric);
    }
}

impl ServerMetrics {
    fn registered(registry: &mut DescribedRegistry) -> Self {
        let server = Self::default();
        registry.add(
            "requests_refused",
            &[(
                "reason",
                "unknown_path, method, no_length, too_large, content_type, timeout_syntax, malformed, slow_body, broken_body, \
                 shed, http",
            )],
            "Requests that were rejected because they are not valid admission requests, or at a limit (shed)",
            server.refused.clone(),
        );
        let help = "Requests and connections that were rejected at a limit";
        registry.add("shed", &[("cause", "in_flight, bytes, connections")], help, server.shed.clone());
        registry.add("reviews_in_flight", &[], "Admission requests in progress", server.in_flight.clone());
        let help = "Bytes of requests with their values, and of responses not sent yet, plus 32768 for each";
        registry.add("bytes_in_flight", &[], help, server.bytes_in_flight.clone());
        registry.add("connections", &[], "Open connections", server.connections.clone());
        registry.add(
            "connections_accepted",
            &[],
            "Accepted connections",
            server.connections_accepted.clone(),
        );
        let help = "Connections that waited for their peer and were closed at the limit to accept another";
        registry.add("idle_connections_closed", &[], help, server.idle_connections_closed.clone());
        let help = "Errors of accept, for example too few file descriptors";
        registry.add("accept_errors", &[], help, server.accept_errors.clone());
        let help = "Connections that ended by a panic outside of a guard";
        registry.add("connection_panics", &[], help, server.connection_panics.clone());
        registry.add(
            "tasks_restarted",
            &[("task", "certificate, ca, metrics, configuration, clusters, webhooks, expiry")],
            "Background tasks that ended and were restarted",
            server.tasks_restarted.clone(),
        );
        registry.add(
            "handshakes_failed",
            &[(
                "reason",
                "hung_up, our_certificate_refused, client_certificate, other_name, protocol, timeout",
            )],
            "Failed TLS handshakes",
            server.handshakes_failed.clone(),
        );
        let help = "Expiry of the serving certificate, in seconds since 1970";
        registry.add("certificate_not_after_seconds", &[], help, server.certificate_not_after.clone());
        let help = "Beginning of the validity of the serving certificate, in seconds since 1970";
        registry.add("certificate_not_before_seconds", &[], help, server.certificate_not_before.clone());
        registry.add(
            "certificate_loads",
            &[("result", "loaded, rejected")],
            "Changes of the certificate files",
            server.certificate_loads.clone(),
        );
        let help = "Generation of the active configuration, counted from 1";
        registry.add("config_generation", &[], help, server.config_generation.clone());
        for cause in ["in_flight", "bytes", "connections"] {
            drop(server.shed.get_or_create(&[("cause", cause)]));
        }
        server
    }

    pub(crate) fn count_refused(&self, reason: &'static str) {
        self.refused.get_or_create(&[("reason", reason)]).inc();
    }

    pub(crate) fn count_shed(&self, cause: &'static str) {
        self.shed.get_or_create(&[("cause", cause)]).inc();
    }

    pub(crate) fn count_restarted(&self, task: &'static str) {
        self.tasks_restarted.get_or_create(&[("task", task)]).inc();
    }

    pub(crate) fn count_handshake_failed(&self, reason: &'static str) {
        self.handshakes_failed.get_or_create(&[("reason", reason)]).inc();
    }

    /// Sets the validity of the serving certificate, in seconds since 1970.
    pub(crate) fn set_certificate(&self, (not_before, not_after): (i64, i64)) {
        self.certificate_not_before.set(not_before);
        self.certificate_not_after.set(not_after);
    }

    pub(crate) fn count_certificate_load(&self, result: &'static str) {
        self.certificate_loads.get_or_create(&[("result", result)]).inc();
    }
}

/// The label of most metrics of a guard.
const GUARD: (&str, &str) = ("guard", "name of the guard");

impl GuardFamilies {
    fn registered(registry: &mut DescribedRegistry) -> Self {
        let families = Self {
            reviews: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            decode_bytes: Histogram::new(BYTES),
            unknown: Family::default(),
            would_deny: Family::default(),
            unreviewed: Family::default(),
            overrides: Family::default(),
            panics: Family::default(),
            deadlines: Family::default(),
            abandoned: Family::default(),
            policies: Family::default(),
            evaluation: Histogram::new(EVALUATION_SECONDS),
            named: Arc::default(),
        };
        registry.add(
            "reviews",
            &[
                GUARD,
                ("operation", "CREATE, UPDATE, DELETE, CONNECT"),
                ("verdict", "allow, deny, mutate, unknown"),
            ],
            "Answered admission requests, by the verdict before mode and onUnknown apply",
            families.reviews.clone(),
        );
        let help = "Time from the head of the request to the answer";
        registry.add("review_duration_seconds", &[GUARD], help, families.duration.clone());
        registry.add(
            "review_decode_bytes",
            &[],
            "Size of decoded request bodies",
            families.decode_bytes.clone(),
        );
        registry.add(
            "unknown",
            &[GUARD, ("cause", "a reason code")],
            "Reasons for which a guard could not decide",
            families.unknown.clone(),
        );
        let help = "Requests that audit mode allowed and enforce mode would deny";
        registry.add("would_deny", &[GUARD], help, families.would_deny.clone());
        let help = "Requests that were allowed because the guard is off, or has no rule for them";
        registry.add("unreviewed", &[GUARD], help, families.unreviewed.clone());
        let help = "Requests that were allowed because of the annotations of an override";
        registry.add("overrides", &[GUARD], help, families.overrides.clone());
        let help = "Panics of a guard; the verdict is unknown";
        registry.add("guard_panics", &[GUARD], help, families.panics.clone());
        let help = "Requests that a guard did not answer in time; the verdict is unknown";
        registry.add("guard_deadlines", &[GUARD], help, families.deadlines.clone());
        let help = "Requests whose caller disconnected before the answer";
        registry.add("reviews_abandoned", &[GUARD], help, families.abandoned.clone());
        registry.add(
            "policy_outcomes",
            &[
                GUARD,
                ("policy", "name of the policy, or other beyond 500 policies"),
                ("outcome", "deny, error, unknown, warn, audit, skip, allow"),
            ],
            "Outcomes of policies that matched a request, before mode and onUnknown apply",
            families.policies.clone(),
        );
        let help = "Time in which the policies of a request were evaluated";
        registry.add("policy_evaluation_seconds", &[], help, families.evaluation.clone());
        families
    }
}

impl GuardMetrics {
    /// Counts one answered review.
    pub(crate) fn count(&self, operation: Operation, settled: &Settled, seconds: f64, bytes: usize) {
        let row = match operation {
            Operation::Create => 0,
            Operation::Update => 1,
            Operation::Delete => 2,
            Operation::Connect => 3,
        };
        let column = VERDICTS.iter().position(|verdict| *verdict == settled.verdict);
        if let Some(counter) = column.and_then(|column| self.reviews[row].get(column)) {
            counter.inc();
        }
        self.duration.observe(seconds);
        self.decode_bytes.observe(bytes as f64);
        for cause in &settled.causes {
            self.unknown.get_or_create(&[("guard", self.name), ("cause", cause.code)]).inc();
        }
        if settled.would_deny {
            self.would_deny.inc();
        }
        if settled.unreviewed().is_some() {
            self.unreviewed.inc();
        }
        if settled.is_overridden() {
            self.overrides.inc();
        }
        let Some(evaluation) = &settled.evaluation else { return };
        // The time of in-use rules is that of their requests.
        if !evaluation.time.is_zero() {
            self.evaluation.observe(evaluation.time.as_secs_f64());
        }
        for PolicyOutcome { policy, outcome } in &evaluation.outcomes {
            let policy = self.policy_label(policy);
            let labels =
                [("guard", self.name.to_owned()), ("policy", policy), ("outcome", (*outcome).to_owned())];
            self.policies.get_or_create(&labels).inc();
        }
    }

    /// Returns the label of a policy.
    fn policy_label(&self, policy: &str) -> String {
        let mut named = lock(&self.named);
        if !named.contains(policy) {
            if named.len() == MAX_POLICIES {
                return "other".to_owned();
            }
            named.insert(policy.to_owned());
        }
        policy.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use admission::{Cause, Fields, Mode, PolicyEvaluation, Ruling, SettlePolicy, decode, settle};

    use super::*;

    fn settled(ruling: Ruling, mode: Mode) -> Settled {
        let body = br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","resource":{"resource":"pods"},"operation":"DELETE"}}"#;
        let review = decode(body, &Fields::none()).unwrap();
        settle(&review.request, ruling, &SettlePolicy { mode, ..SettlePolicy::deny_unknown() })
    }

    #[test]
    fn series_of_a_guard_begin_at_zero() {
        let metrics = Metrics::new("1.2.3");
        let _guard = metrics.guard("lxcfs");
        let text = metrics.encode();
        assert!(text.contains("durward_build_info{version=\"1.2.3\"} 1"), "{text}");
        assert!(
            text.contains(
                "durward_reviews_total{guard=\"lxcfs\",operation=\"CONNECT\",verdict=\"unknown\"} 0"
            )
        );
        assert!(
            text.contains("durward_review_duration_seconds_bucket{le=\"0.0005\",guard=\"lxcfs\"} 0"),
            "{text}"
        );
        assert!(text.contains("durward_would_deny_total{guard=\"lxcfs\"} 0"));
    }

    #[test]
    fn counts_the_requests_that_an_override_allowed() {
        let metrics = Metrics::new("t");
        let guard = metrics.guard("g");
        for ruling in [Ruling::allow(), Ruling::allow().audit(admission::OVERRIDE, "until x: moved")] {
            guard.count(Operation::Delete, &settled(ruling, Mode::Enforce), 0.002, 3000);
        }
        let text = metrics.encode();
        assert!(text.contains("durward_overrides_total{guard=\"g\"} 1"), "{text}");
    }

    #[test]
    fn counts_an_unknown_verdict_in_audit_mode_as_unknown_and_would_deny() {
        let metrics = Metrics::new("t");
        let guard = metrics.guard("g");
        let ruling = Ruling::unknown(Cause::new("timeout", "no answer"));
        guard.count(Operation::Delete, &settled(ruling, Mode::Audit), 0.002, 3000);
        let text = metrics.encode();
        for line in [
            "durward_reviews_total{guard=\"g\",operation=\"DELETE\",verdict=\"unknown\"} 1",
            "durward_unknown_total{guard=\"g\",cause=\"timeout\"} 1",
            "durward_would_deny_total{guard=\"g\"} 1",
            "durward_review_duration_seconds_bucket{le=\"0.001\",guard=\"g\"} 0",
            "durward_review_duration_seconds_bucket{le=\"0.0025\",guard=\"g\"} 1",
            "durward_review_decode_bytes_bucket{le=\"4096.0\"} 1",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn counts_outcomes_of_policies_and_names_at_most_500() {
        let metrics = Metrics::new("t");
        let guard = metrics.guard("g");
        for index in (0..=MAX_POLICIES).chain([0]) {
            let outcome = PolicyOutcome { policy: format!("p{index}"), outcome: "deny" };
            let evaluation = PolicyEvaluation { outcomes: vec![outcome], time: Duration::ZERO };
            let ruling = Ruling { evaluation: Some(evaluation), ..Ruling::allow() };
            guard.count(Operation::Create, &settled(ruling, Mode::Enforce), 0.002, 3000);
        }
        let text = metrics.encode();
        let series = "durward_policy_outcomes_total{guard=\"g\"";
        assert_eq!(text.lines().filter(|line| line.starts_with(series)).count(), MAX_POLICIES + 1);
        for counted in ["policy=\"other\",outcome=\"deny\"} 1", "policy=\"p0\",outcome=\"deny\"} 2"] {
            assert!(text.contains(counted), "{text}");
        }
    }

    #[test]
    fn every_help_text_ends_with_one_full_stop() {
        let metrics = Metrics::new("t");
        // A family without a series is not encoded.
        let (server, guard) = (metrics.server(), metrics.guard("g"));
        server.count_refused("a");
        server.count_handshake_failed("a");
        server.count_certificate_load("a");
        server.count_restarted("a");
        let ruling = Ruling::unknown(Cause::new("timeout", "no answer"));
        guard.count(Operation::Delete, &settled(ruling, Mode::Enforce), 0.002, 3000);
        let text = metrics.encode();
        let help: Vec<_> = text.lines().filter(|line| line.starts_with("# HELP ")).collect();
        assert_eq!(help.len(), text.lines().filter(|line| line.starts_with("# TYPE ")).count());
        assert!(help.len() > 20, "{text}");
        for line in help {
            assert!(line.ends_with('.') && !line.ends_with(".."), "{line}");
        }
    }

    #[test]
    fn the_reference_has_every_metric_with_its_name_in_the_text() {
        let metrics = Metrics::new("t");
        let _guard = metrics.guard("g");
        let (text, reference) = (metrics.encode(), metrics.reference());
        assert!(reference.len() > 20, "{reference:?}");
        for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let (name, kind) = line.split_once(' ').unwrap();
            let suffix = match kind {
                "counter" => "_total",
                "info" => "_info",
                _ => "",
            };
            let name = format!("{name}{suffix}");
            assert!(reference.iter().any(|info| info.name == name && info.kind == kind), "{name} {kind}");
        }
        for info in reference {
            assert!(!info.help.ends_with('.') && info.help.len() <= 100, "{}", info.help);
        }
    }

    #[test]
    fn other_owners_register_in_the_same_registry() {
        let metrics = Metrics::new("t");
        let reloads = Counter::<u64>::default();
        metrics.register("config_reloads", &[], "Reloads", reloads.clone());
        reloads.inc();
        assert!(metrics.encode().contains("durward_config_reloads_total 1"));
        let last = metrics.reference().pop().unwrap();
        assert_eq!((last.name.as_str(), last.kind), ("durward_config_reloads_total", "counter"));
    }
}
