//! What is served: guards by name. A plan never changes; a reload swaps the whole plan, and a request keeps the one that it
//! began with.

use std::sync::Arc;

use admission::Guard;
use arc_swap::ArcSwap;

use crate::metrics::{GuardNumbers, Metrics};

/// The guards that answer, each at the path of its name, and which generation of the configuration they come from.
pub struct Plan {
    generation: u64,
    routes: Vec<Arc<Route>>,
    metrics: Metrics,
}

/// A guard with its numbers at hand, so that counting a review looks nothing up.
pub(crate) struct Route {
    pub(crate) guard: Arc<dyn Guard>,
    pub(crate) numbers: GuardNumbers,
}

/// Why guards do not make a plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Two guards have the same name, so one of them would never be asked.
    #[error("two guards are called {name:?}: each needs a name of its own, since the name is its path")]
    Twice {
        /// The name.
        name: &'static str,
    },
    /// A name that cannot be a path.
    #[error(
        "{name:?} cannot be a guard's name: only lower-case letters, digits and \"-\" make a path and a metric label"
    )]
    NotAPath {
        /// The name.
        name: &'static str,
    },
}

impl Plan {
    /// A plan of these guards; their series in `metrics` begin at zero here. An empty plan is allowed: every path is then 404.
    pub fn new(generation: u64, guards: Vec<Arc<dyn Guard>>, metrics: &Metrics) -> Result<Self, PlanError> {
        let mut routes: Vec<Arc<Route>> = Vec::with_capacity(guards.len());
        for guard in guards {
            let name = guard.name();
            let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
            if name.is_empty() || !name.bytes().all(good) {
                return Err(PlanError::NotAPath { name });
            }
            if routes.iter().any(|route| route.guard.name() == name) {
                return Err(PlanError::Twice { name });
            }
            let numbers = metrics.guard(name);
            routes.push(Arc::new(Route { guard, numbers }));
        }
        Ok(Self { generation, routes, metrics: metrics.clone() })
    }

    /// Which generation of the configuration this is.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The names that are served, in the order in which the guards were given.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.routes.iter().map(|route| route.guard.name())
    }

    /// The guard at a request's path. There are a handful of guards: comparing beats hashing.
    pub(crate) fn route(&self, path: &str) -> Option<Arc<Route>> {
        let name = path.strip_prefix('/')?;
        self.routes.iter().find(|route| route.guard.name() == name).cloned()
    }
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.names().collect();
        f.debug_struct("Plan")
            .field("generation", &self.generation)
            .field("guards", &names)
            .finish_non_exhaustive()
    }
}

/// The place where the plan in force lies; clones are the same place. Limits and addresses are not in it: they are those of the
/// start.
#[derive(Debug, Clone)]
pub struct PlanCell(Arc<ArcSwap<Plan>>);

impl PlanCell {
    /// A cell with its first plan.
    pub fn new(plan: Plan) -> Self {
        plan.in_force();
        Self(Arc::new(ArcSwap::from_pointee(plan)))
    }

    /// Puts another plan in force, for every request that begins from here on.
    pub fn swap(&self, plan: Plan) {
        plan.in_force();
        self.0.store(Arc::new(plan));
    }

    /// The plan in force.
    pub fn current(&self) -> Arc<Plan> {
        self.0.load_full()
    }

    /// The guard at a request's path in the plan in force. Only the guard is kept, so that an old plan is freed when its last
    /// request ends.
    pub(crate) fn route(&self, path: &str) -> Option<Arc<Route>> {
        self.0.load().route(path)
    }
}

impl Plan {
    fn in_force(&self) {
        self.metrics.plan_in_force(self.generation);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use admission::{BoxFuture, Fields, Request, Ruling, SettlePolicy};

    use super::*;

    struct Named(&'static str, Fields, SettlePolicy);

    impl Guard for Named {
        fn name(&self) -> &'static str {
            self.0
        }
        fn fields(&self) -> &Fields {
            &self.1
        }
        fn settle_policy(&self) -> &SettlePolicy {
            &self.2
        }
        fn logs_every_ruling(&self) -> bool {
            false
        }
        fn review<'a>(&'a self, _: &'a Request<'a>, _: Instant) -> BoxFuture<'a, Ruling> {
            Box::pin(async { Ruling::allow() })
        }
    }

    fn guards(names: &[&'static str]) -> Vec<Arc<dyn Guard>> {
        names
            .iter()
            .map(|name| Arc::new(Named(name, Fields::none(), SettlePolicy::deny_unknown())) as Arc<dyn Guard>)
            .collect()
    }

    #[test]
    fn a_guard_is_found_at_exactly_its_name() {
        let plan = Plan::new(1, guards(&["lxcfs", "etcd"]), &Metrics::new("test")).unwrap();
        assert_eq!(plan.route("/etcd").unwrap().guard.name(), "etcd");
        for path in ["", "/", "etcd", "/etcd/", "//etcd", "/Etcd", "/etc"] {
            assert!(plan.route(path).is_none(), "{path}");
        }
    }

    #[test]
    fn names_that_clash_or_make_no_path_are_refused() {
        let metrics = Metrics::new("test");
        let error = Plan::new(1, guards(&["a", "a"]), &metrics).unwrap_err();
        assert_eq!(error, PlanError::Twice { name: "a" });
        for name in ["", "a/b", "A", "a b", "ä"] {
            let name: &'static str = name;
            assert_eq!(Plan::new(1, guards(&[name]), &metrics).unwrap_err(), PlanError::NotAPath { name });
        }
    }

    #[test]
    fn a_swap_is_seen_by_every_clone_and_a_request_keeps_its_guard() {
        let metrics = Metrics::new("test");
        let cell = PlanCell::new(Plan::new(1, guards(&["a"]), &metrics).unwrap());
        let begun = cell.route("/a").unwrap();
        let clone = cell.clone();
        clone.swap(Plan::new(2, guards(&["b"]), &metrics).unwrap());
        assert!(cell.route("/a").is_none());
        assert_eq!(cell.current().generation(), 2);
        assert_eq!(begun.guard.name(), "a");
        assert!(metrics.encode().contains("durward_config_generation 2"));
    }
}
