//! Numbers: `durward_*` in one registry. The door's own are here; others register theirs through [`Metrics::register`].
//!
//! Labels come from closed sets, all `&'static str`: never a namespace, name, user or anything else out of a request (kyverno
//! grew 1.2 million series of one metric that way). A guard's counters are looked up once, when its plan is made.

use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use admission::{Operation, Settled};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

/// Ten buckets from a guard that only reads the object (under 0.5 ms) to the API server's default patience (10 s). Gatekeeper's
/// ended at 50 ms, and 3 of 50,000 requests were under its last.
const SECONDS: [f64; 10] = [0.0005, 0.001, 0.0025, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0];
/// From a small pod to the largest body.
const BYTES: [f64; 8] =
    [1024.0, 4096.0, 16_384.0, 65_536.0, 262_144.0, 1_048_576.0, 4_194_304.0, 8_388_608.0];

const OPERATIONS: [Operation; 4] =
    [Operation::Create, Operation::Update, Operation::Delete, Operation::Connect];
const VERDICTS: [&str; 4] = ["allow", "deny", "mutate", "unknown"];

/// What a text of all numbers is sent as.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The numbers of one server; clones are the same numbers.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Mutex<Registry>,
    door: Door,
    guards: GuardFamilies,
}

/// What the door counts beside the reviews of guards.
#[derive(Debug, Clone, Default)]
pub(crate) struct Door {
    pub(crate) refused: Family<ReasonLabel, Counter>,
    pub(crate) shed: Family<CauseLabel, Counter>,
    pub(crate) in_flight: Gauge,
    pub(crate) bytes_in_flight: Gauge,
    pub(crate) connections: Gauge,
    pub(crate) connections_accepted: Counter,
    pub(crate) connections_made_room: Counter,
    pub(crate) accept_errors: Counter,
    pub(crate) connection_panics: Counter,
    tasks_restarted: Family<TaskLabel, Counter>,
    pub(crate) handshakes_failed: Family<ReasonLabel, Counter>,
    pub(crate) client_certificates: Family<PresentedLabel, Counter>,
    pub(crate) certificate_not_after: Gauge,
    pub(crate) certificate_loads: Family<ResultLabel, Counter>,
    config_generation: Gauge<i64, AtomicI64>,
}

#[derive(Debug)]
struct GuardFamilies {
    reviews: Family<ReviewLabels, Counter>,
    duration: Family<GuardLabel, Histogram, fn() -> Histogram>,
    decode_bytes: Histogram,
    unknown: Family<UnknownLabels, Counter>,
    would_deny: Family<GuardLabel, Counter>,
    panics: Family<GuardLabel, Counter>,
    deadlines: Family<GuardLabel, Counter>,
    abandoned: Family<GuardLabel, Counter>,
}

/// One guard's numbers, ready to be counted up.
#[derive(Debug)]
pub(crate) struct GuardNumbers {
    name: &'static str,
    reviews: [[Counter<u64, AtomicU64>; VERDICTS.len()]; OPERATIONS.len()],
    duration: Histogram,
    decode_bytes: Histogram,
    unknown: Family<UnknownLabels, Counter>,
    would_deny: Counter,
    pub(crate) panics: Counter,
    pub(crate) deadlines: Counter,
    pub(crate) abandoned: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReviewLabels {
    guard: &'static str,
    operation: &'static str,
    verdict: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UnknownLabels {
    guard: &'static str,
    cause: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GuardLabel {
    guard: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ReasonLabel {
    pub(crate) reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct CauseLabel {
    pub(crate) cause: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct TaskLabel {
    pub(crate) task: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct PresentedLabel {
    pub(crate) presented: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ResultLabel {
    pub(crate) result: &'static str,
}

impl Metrics {
    /// A registry with the door's own families, and `durward_build_info{version}`.
    pub fn new(version: &str) -> Self {
        let mut registry = Registry::with_prefix("durward");
        registry.register(
            "build",
            "The version that runs",
            Info::new(vec![("version".to_owned(), version.to_owned())]),
        );
        let door = Door::registered(&mut registry);
        let guards = GuardFamilies::registered(&mut registry);
        Self(Arc::new(Inner { registry: Mutex::new(registry), door, guards }))
    }

    /// Lets someone else register families of their own; they get the prefix `durward_` like all others. A counter's name is
    /// given without `_total`.
    pub fn register<T>(&self, families: impl FnOnce(&mut Registry) -> T) -> T {
        families(&mut self.registry())
    }

    /// All numbers as `OpenMetrics` text, which is what `/metrics` answers.
    pub fn encode(&self) -> String {
        let mut text = String::with_capacity(16 << 10);
        if encode(&mut text, &self.registry()).is_err() {
            // Only a label that another owner encodes can fail; what was written until then is still true.
            tracing::error!("a metric could not be written as text: the answer of /metrics is cut short");
        }
        text
    }

    pub(crate) fn door(&self) -> &Door {
        &self.0.door
    }

    /// The numbers of a guard; every series that it can have begins at zero, so that a rate sees the first count.
    pub(crate) fn guard(&self, name: &'static str) -> GuardNumbers {
        let families = &self.0.guards;
        let label = GuardLabel { guard: name };
        let reviews = OPERATIONS.map(|operation| {
            VERDICTS.map(|verdict| {
                let labels = ReviewLabels { guard: name, operation: operation.as_str(), verdict };
                families.reviews.get_or_create_owned(&labels)
            })
        });
        GuardNumbers {
            name,
            reviews,
            duration: families.duration.get_or_create_owned(&label),
            decode_bytes: families.decode_bytes.clone(),
            unknown: families.unknown.clone(),
            would_deny: families.would_deny.get_or_create_owned(&label),
            panics: families.panics.get_or_create_owned(&label),
            deadlines: families.deadlines.get_or_create_owned(&label),
            abandoned: families.abandoned.get_or_create_owned(&label),
        }
    }

    pub(crate) fn plan_in_force(&self, generation: u64) {
        self.0.door.config_generation.set(i64::try_from(generation).unwrap_or(i64::MAX));
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.0.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A registry that takes a clone of what it is shown: both are the same number. Help texts go in without a full stop, which the
/// registry adds.
struct Adding<'a>(&'a mut Registry);

impl Adding<'_> {
    fn one(&mut self, name: &str, help: &str, metric: &(impl prometheus_client::registry::Metric + Clone)) {
        self.0.register(name, help, metric.clone());
    }
}

// === impl Door ===

impl Door {
    fn registered(registry: &mut Registry) -> Self {
        let door = Self::default();
        let mut add = Adding(registry);
        add.one(
            "requests_refused",
            "Requests that were no review that could be read, by reason; http is what was no request of HTTP/1.1 either",
            &door.refused,
        );
        add.one("shed", "Requests and connections turned away because a limit was reached", &door.shed);
        add.one("reviews_in_flight", "Reviews that are being decided", &door.in_flight);
        add.one(
            "bytes_in_flight",
            "Bytes of bodies whose review is not yet answered and of answers that are not yet taken, and 32768 for each: what its connection takes",
            &door.bytes_in_flight,
        );
        add.one("connections", "Open connections", &door.connections);
        add.one("connections_accepted", "Connections that were accepted", &door.connections_accepted);
        let help = "Connections without a request that were ended for one that came, since as many were open as may be";
        add.one("connections_made_room", help, &door.connections_made_room);
        add.one("accept_errors", "Errors while accepting, as too few file descriptors", &door.accept_errors);
        let help = "Connections that ended by a panic outside of a guard's ruling";
        add.one("connection_panics", help, &door.connection_panics);
        let help = "Tasks beside the server that ended and were begun anew";
        add.one("tasks_restarted", help, &door.tasks_restarted);
        add.one("handshakes_failed", "TLS handshakes that failed, by reason", &door.handshakes_failed);
        add.one("client_certificates", "Handshakes by what the caller showed", &door.client_certificates);
        let help = "When the serving certificate ends, in seconds since 1970";
        add.one("certificate_not_after_seconds", help, &door.certificate_not_after);
        add.one(
            "certificate_loads",
            "Changes of certificate files, taken or refused",
            &door.certificate_loads,
        );
        add.one("config_generation", "The configuration in force, counted from 1", &door.config_generation);
        for cause in ["in_flight", "bytes", "connections"] {
            drop(door.shed.get_or_create(&CauseLabel { cause }));
        }
        door
    }

    pub(crate) fn count_refused(&self, reason: &'static str) {
        self.refused.get_or_create(&ReasonLabel { reason }).inc();
    }

    pub(crate) fn count_shed(&self, cause: &'static str) {
        self.shed.get_or_create(&CauseLabel { cause }).inc();
    }

    pub(crate) fn count_restarted(&self, task: &'static str) {
        self.tasks_restarted.get_or_create(&TaskLabel { task }).inc();
    }

    pub(crate) fn count_handshake_failed(&self, reason: &'static str) {
        self.handshakes_failed.get_or_create(&ReasonLabel { reason }).inc();
    }

    pub(crate) fn count_client_certificate(&self, presented: &'static str) {
        self.client_certificates.get_or_create(&PresentedLabel { presented }).inc();
    }

    pub(crate) fn count_certificate_load(&self, result: &'static str) {
        self.certificate_loads.get_or_create(&ResultLabel { result }).inc();
    }
}

// === impl GuardFamilies ===

impl GuardFamilies {
    fn registered(registry: &mut Registry) -> Self {
        let families = Self {
            reviews: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            decode_bytes: Histogram::new(BYTES),
            unknown: Family::default(),
            would_deny: Family::default(),
            panics: Family::default(),
            deadlines: Family::default(),
            abandoned: Family::default(),
        };
        let mut add = Adding(registry);
        add.one("reviews", "Reviews by guard, operation and verdict before the stance", &families.reviews);
        add.one("review_duration_seconds", "From the head of the request to the answer", &families.duration);
        add.one("review_decode_bytes", "Sizes of the bodies that were decoded", &families.decode_bytes);
        add.one("unknown", "Causes for which a guard could not decide", &families.unknown);
        add.one("would_deny", "Denials that audit mode let through", &families.would_deny);
        add.one("guard_panics", "Panics of a guard, caught and answered as unknown", &families.panics);
        add.one("guard_deadlines", "Reviews for which a guard did not rule in time", &families.deadlines);
        add.one("reviews_abandoned", "Reviews whose caller hung up first", &families.abandoned);
        families
    }
}

// === impl GuardNumbers ===

impl GuardNumbers {
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
            self.unknown.get_or_create(&UnknownLabels { guard: self.name, cause: cause.code }).inc();
        }
        if settled.would_deny {
            self.would_deny.inc();
        }
    }
}

#[cfg(test)]
mod tests {
    use admission::{Cause, Fields, Mode, Ruling, SettlePolicy, decode, settle};

    use super::*;

    fn settled(ruling: Ruling, mode: Mode) -> Settled {
        let body = br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"DELETE"}}"#;
        let review = decode(body, &Fields::none()).unwrap();
        settle(&review.request, ruling, &SettlePolicy { mode, ..SettlePolicy::deny_unknown() })
    }

    #[test]
    fn a_guards_series_begin_at_zero() {
        let metrics = Metrics::new("1.2.3");
        let _numbers = metrics.guard("lxcfs");
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
    fn an_unknown_that_audit_mode_lets_through_is_counted_everywhere_it_belongs() {
        let metrics = Metrics::new("t");
        let numbers = metrics.guard("g");
        let ruling = Ruling::unknown(Cause::new("timeout", "no answer"));
        numbers.count(Operation::Delete, &settled(ruling, Mode::Audit), 0.002, 3000);
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
    fn every_help_text_ends_in_one_full_stop() {
        let metrics = Metrics::new("t");
        // A family without a series is not told of.
        let (door, guard) = (metrics.door(), metrics.guard("g"));
        door.count_refused("a");
        door.count_handshake_failed("a");
        door.count_client_certificate("a");
        door.count_certificate_load("a");
        door.count_restarted("a");
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
    fn others_register_in_the_same_registry() {
        let metrics = Metrics::new("t");
        let reloads = Counter::<u64>::default();
        metrics.register(|registry| registry.register("config_reloads", "Reloads.", reloads.clone()));
        reloads.inc();
        assert!(metrics.encode().contains("durward_config_reloads_total 1"));
    }
}
