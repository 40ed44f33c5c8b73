//! Counts the objects whose deletion the annotation of the break-glass permission allows, for the metric `durward_break_glass_objects`.
//!
//! The API server lets a caller with the verb `break-glass` pass without a review, so no review counts these objects. The annotation
//! does not expire. Each replica therefore lists the objects every few minutes.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use admission::{lock, one_line};
use guards::GUARD_KINDS;
use guards::overrides::BREAK_GLASS;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use server::Metrics;
use tokio::time::{MissedTickBehavior, interval};

use crate::clients::control_planes::ControlPlanes;
use crate::clients::leftovers::{Found, find};

/// Interval of the lists. An annotation that stays is what matters, so minutes are enough.
const INTERVAL: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GuardLabel {
    guard: &'static str,
}

/// The metric and the log.
#[derive(Default)]
pub(crate) struct BreakGlassReport {
    objects: Family<GuardLabel, Gauge>,
    /// The lines that were logged last.
    logged: Mutex<BTreeSet<String>>,
}

impl BreakGlassReport {
    /// Registers the metric. A guard has no series until its objects were listed.
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let report = Self::default();
        metrics.register(
            "break_glass_objects",
            &[("guard", "deletion, etcd")],
            "Objects of the guard with the annotation durward.dev/break-glass; absent while they can't be listed",
            report.objects.clone(),
        );
        report
    }

    /// Counts the objects every few minutes, until it is dropped.
    pub(crate) async fn run(self: Arc<Self>, control_planes: Arc<ControlPlanes>) {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.count(&control_planes).await;
        }
    }

    async fn count(&self, control_planes: &ControlPlanes) {
        let mut lines = BTreeSet::new();
        let guarded = control_planes.guarded();
        for (guard, clients, objects) in &guarded {
            let (found, failures) = find(&*clients.reader, objects, clients.context.now()).await;
            let is_open = |one: &&Found| one.leftover.key == BREAK_GLASS && one.leftover.is_active;
            let open: Vec<&Found> = found.iter().filter(is_open).collect();
            let label = GuardLabel { guard };
            if let Some(why) = failures.first() {
                self.objects.remove(&label);
                lines.insert(format!("{guard}: cannot look for {BREAK_GLASS}: {}", one_line(&why.text)));
            } else {
                self.objects.get_or_create(&label).set(i64::try_from(open.len()).unwrap_or(i64::MAX));
            }
            lines.extend(open.iter().map(|one| {
                format!("{guard}: {} has the annotation {BREAK_GLASS}: {}", one.text(), one.leftover.effect)
            }));
        }
        for guard in GUARD_KINDS.iter().map(|kind| kind.name()) {
            if !guarded.iter().any(|(on, ..)| *on == guard) {
                self.objects.remove(&GuardLabel { guard });
            }
        }
        let mut logged = lock(&self.logged);
        for line in lines.difference(&logged) {
            tracing::warn!("{line}");
        }
        *logged = lines;
    }
}
