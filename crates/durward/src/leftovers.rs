//! Finds annotations of overrides on the objects that guards protect: for `doctor`, and for the metric `durward_break_glass_objects`.
//!
//! The API server lets a caller with the verb `break-glass` pass without a review, so no review counts these objects. The annotation
//! does not expire. Each replica therefore lists the objects every few minutes.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use admission::{Cause, one_line};
use cluster::fleet::{Cluster, ListQuery, Object};
use cluster::{Pages, Reader, Resource};
use config::SelectorExt as _;
use guards::overrides::{self, BREAK_GLASS, Leftover};
use guards::{GUARD_KINDS, GuardedNamespaces, GuardedObjects};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use server::Metrics;
use tokio::time::{MissedTickBehavior, interval};

use crate::control_planes::ControlPlanes;
use crate::fleet::{ANSWER_WITHIN, all_pages};

/// Interval of the lists. An annotation that stays is what matters, so minutes are enough.
const INTERVAL: Duration = Duration::from_secs(300);

/// An object with annotations of overrides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// Its resource.
    pub(crate) resource: Resource,
    /// Its namespace; empty for cluster-wide resources.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) name: String,
    /// The annotations.
    pub(crate) leftover: Leftover,
}

impl Found {
    /// Returns the object as in kubectl's command line, without the namespace: `pod etcd-1`.
    pub(crate) fn object(&self) -> String {
        let word = match self.resource.plural.as_ref() {
            "namespaces" => "ns",
            "customresourcedefinitions" => "crd",
            "persistentvolumeclaims" => "pvc",
            "poddisruptionbudgets" => "pdb",
            plural => plural.trim_end_matches('s'),
        };
        format!("{word} {}", self.name)
    }

    /// Returns the object with its namespace, for messages.
    pub(crate) fn text(&self) -> String {
        let namespace =
            if self.namespace.is_empty() { String::new() } else { format!(" in {}", self.namespace) };
        format!("{}{namespace}", self.object())
    }
}

/// Lists guarded objects, and returns those with annotations of overrides, and why some could not be listed.
pub(crate) async fn find(
    reader: &dyn Reader,
    guarded: &[GuardedObjects],
    now: SystemTime,
) -> (Vec<Found>, Vec<Cause>) {
    let (mut found, mut failures) = (Vec::new(), Vec::new());
    for objects in guarded {
        let namespaces = match &objects.namespaces {
            GuardedNamespaces::None => Ok(vec![String::new()]),
            GuardedNamespaces::Named(name) => Ok(vec![name.clone()]),
            GuardedNamespaces::Labeled(selector) => {
                all_pages(reader, &Cluster::Local, &Resource::NAMESPACES).await.map(|all| {
                    let selected = all.into_iter().filter(|one| selector.matches(&one.metadata.labels));
                    selected.map(|one| one.name).collect()
                })
            }
        };
        let namespaces = namespaces.unwrap_or_else(|why| {
            failures.push(why);
            Vec::new()
        });
        for namespace in namespaces {
            failures.extend(search(reader, objects, &namespace, now, &mut found).await.err());
        }
    }
    (found, failures)
}

/// Adds the objects of a namespace. It keeps one page in memory, because a namespace can have any number of pods.
async fn search(
    reader: &dyn Reader,
    objects: &GuardedObjects,
    namespace: &str,
    now: SystemTime,
    found: &mut Vec<Found>,
) -> Result<(), Cause> {
    let query = ListQuery { namespace, ..ListQuery::new(&objects.resource) };
    let mut pages = Pages::new(reader, &Cluster::Local, query, Instant::now() + ANSWER_WITHIN);
    while let Some(page) = pages.next().await? {
        for one in page.objects.into_iter().filter_map(|one| left_on(objects, one, now)) {
            // Two entries can select the same namespace.
            if !found.contains(&one) {
                found.push(one);
            }
        }
    }
    Ok(())
}

/// Returns the annotations of an object that is not being deleted.
fn left_on(objects: &GuardedObjects, object: Object, now: SystemTime) -> Option<Found> {
    if object.metadata.deleting {
        return None;
    }
    let leftover = overrides::leftover(objects.break_glass, &object.name, &object.metadata.annotations, now)?;
    let Object { namespace, name, .. } = object;
    Some(Found { resource: objects.resource.clone(), namespace, name, leftover })
}

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
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        for line in lines.difference(&logged) {
            tracing::warn!("{line}");
        }
        *logged = lines;
    }
}
