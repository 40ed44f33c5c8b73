//! The guards that are served, by name. A plan is immutable: a reload swaps the whole plan, and a request keeps the one that it
//! began with.

use std::sync::Arc;

use admission::Guard;
use arc_swap::ArcSwap;

use crate::metrics::{GuardMetrics, Metrics};

/// Guards by path, and the generation of their configuration.
pub struct Plan {
    generation: u64,
    routes: Vec<Arc<Route>>,
    metrics: Metrics,
}

/// A guard with its metrics, so that counting a review needs no lookup.
pub(crate) struct Route {
    pub(crate) guard: Arc<dyn Guard>,
    pub(crate) metrics: GuardMetrics,
}

/// Error: these guards cannot be a plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Two guards have the same name, so one of them would never be called.
    #[error("two guards are named {name:?}; the name is the path, so it must be unique")]
    Twice {
        /// The name.
        name: &'static str,
    },
    /// A name that cannot be a path.
    #[error("invalid guard name {name:?}: use lower-case letters, digits and \"-\"")]
    NotAPath {
        /// The name.
        name: &'static str,
    },
}

impl Plan {
    /// Creates a plan. The series of the guards in `metrics` begin at zero. An empty plan answers every path with 404.
    pub fn new(generation: u64, guards: Vec<Arc<dyn Guard>>, metrics: &Metrics) -> Result<Self, PlanError> {
        let mut routes: Vec<Arc<Route>> = Vec::with_capacity(guards.len());
        for guard in guards {
            let name = guard.name();
            let is_allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
            if name.is_empty() || !name.bytes().all(is_allowed) {
                return Err(PlanError::NotAPath { name });
            }
            if routes.iter().any(|route| route.guard.name() == name) {
                return Err(PlanError::Twice { name });
            }
            let metrics = metrics.guard(name);
            routes.push(Arc::new(Route { guard, metrics }));
        }
        Ok(Self { generation, routes, metrics: metrics.clone() })
    }

    /// Returns the generation of the configuration.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Iterates over the names in the order of the guards.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.routes.iter().map(|route| route.guard.name())
    }

    /// Returns the guard at a path. With a handful of guards, comparing is faster than hashing.
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

/// Holds the current plan. Clones share it. Limits and addresses are not part of a plan: they stay as they were at the start.
#[derive(Debug, Clone)]
pub struct PlanCell(Arc<ArcSwap<Plan>>);

impl PlanCell {
    /// Creates a cell.
    pub fn new(plan: Plan) -> Self {
        plan.report();
        Self(Arc::new(ArcSwap::from_pointee(plan)))
    }

    /// Replaces the plan for requests that begin from now on.
    pub fn swap(&self, plan: Plan) {
        plan.report();
        self.0.store(Arc::new(plan));
    }

    /// Returns the current plan.
    pub fn current(&self) -> Arc<Plan> {
        self.0.load_full()
    }

    /// Returns the guard at a path in the current plan.
    pub(crate) fn route(&self, path: &str) -> Option<Arc<Route>> {
        self.0.load().route(path)
    }
}

impl Plan {
    fn report(&self) {
        self.metrics.set_config_generation(self.generation);
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
    fn finds_a_guard_at_exactly_its_name() {
        let plan = Plan::new(1, guards(&["lxcfs", "etcd"]), &Metrics::new("test")).unwrap();
        assert_eq!(plan.route("/etcd").unwrap().guard.name(), "etcd");
        for path in ["", "/", "etcd", "/etcd/", "//etcd", "/Etcd", "/etc"] {
            assert!(plan.route(path).is_none(), "{path}");
        }
    }

    #[test]
    fn rejects_duplicate_names_and_names_that_are_not_a_path() {
        let metrics = Metrics::new("test");
        let error = Plan::new(1, guards(&["a", "a"]), &metrics).unwrap_err();
        assert_eq!(error, PlanError::Twice { name: "a" });
        for name in ["", "a/b", "A", "a b", "ä"] {
            let name: &'static str = name;
            assert_eq!(Plan::new(1, guards(&[name]), &metrics).unwrap_err(), PlanError::NotAPath { name });
        }
    }

    #[test]
    fn a_swap_reaches_every_clone_and_a_request_keeps_its_guard() {
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
