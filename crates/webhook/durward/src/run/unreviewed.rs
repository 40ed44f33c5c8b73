//! Answers for requests that the API server sends and that this replica doesn't review: because the guard is off here, or because no
//! rule of its configuration names them.
//!
//! Such requests come while replicas have different configurations or versions.
//! Without an answer, `failurePolicy: Fail` would deny each of them.

use std::sync::Arc;
use std::time::Instant;

use admission::text::truncate;
use admission::{BoxFuture, Fields, Guard, Request, Ruling, SettlePolicy, Settled};
use guards::WebhookEntry;

use super::events::GuardEvents;

/// Longest name of a resource in a message: any caller can write it.
const MAX_RESOURCE: usize = 63;

/// A guard that is off. It allows every request.
pub(crate) struct TurnedOff {
    name: &'static str,
    fields: Fields,
    settle_policy: SettlePolicy,
}

impl TurnedOff {
    /// Creates the answers for a path of the guard.
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, fields: Fields::none(), settle_policy: SettlePolicy::deny_unknown() }
    }
}

impl Guard for TurnedOff {
    fn name(&self) -> &'static str {
        self.name
    }

    fn fields(&self) -> &Fields {
        &self.fields
    }

    fn settle_policy(&self) -> &SettlePolicy {
        &self.settle_policy
    }

    fn review<'a>(&'a self, _: &'a Request<'a>, _: Instant) -> BoxFuture<'a, Ruling> {
        unreviewed(format!("the guard {} is turned off", self.name))
    }
}

/// A guard that is on. It allows the requests that no rule of its webhook entries names.
pub(crate) struct Covered {
    guard: Arc<dyn Guard>,
    entries: Vec<WebhookEntry>,
    events: Option<GuardEvents>,
}

impl Covered {
    /// Wraps a guard. `entries` are those that call it, and `events` takes its denials.
    pub(crate) fn new(
        guard: Arc<dyn Guard>,
        entries: Vec<WebhookEntry>,
        events: Option<GuardEvents>,
    ) -> Self {
        Self { guard, entries, events }
    }
}

impl Guard for Covered {
    fn name(&self) -> &'static str {
        self.guard.name()
    }

    fn fields(&self) -> &Fields {
        self.guard.fields()
    }

    fn settle_policy(&self) -> &SettlePolicy {
        self.guard.settle_policy()
    }

    fn logs_every_ruling(&self) -> bool {
        self.guard.logs_every_ruling()
    }

    fn review<'a>(&'a self, request: &'a Request<'a>, deadline: Instant) -> BoxFuture<'a, Ruling> {
        if self.entries.iter().any(|entry| entry.covers(request)) {
            return self.guard.review(request, deadline);
        }
        let (name, operation) = (self.name(), request.operation.as_str());
        let resource = truncate(&request.resource.resource, MAX_RESOURCE);
        unreviewed(format!("the guard {name} has no rule for {operation} of {resource}"))
    }

    fn answered(&self, request: &Request<'_>, settled: &Settled) {
        if let Some(events) = &self.events {
            events.answered(request, settled, self.settle_policy());
        }
    }
}

fn unreviewed(reason: String) -> BoxFuture<'static, Ruling> {
    Box::pin(std::future::ready(Ruling::unreviewed(reason)))
}

#[cfg(test)]
mod tests {
    use admission::{decode, settle};
    use cluster::Clients;
    use server::{Metrics, Plan};

    use super::*;
    use crate::clients::control_planes::ControlPlanes;
    use crate::file::{File, Purpose};
    use crate::run::plan::guards;

    /// Reviews a request with each guard of a configuration that has only the lxcfs guard.
    async fn settled(operation: &str, resource: &str, subresource: &str) -> Vec<(&'static str, Settled)> {
        let text = "apiVersion: durward.dev/v1alpha1\nkind: Configuration\nguards: {lxcfs: {}}\n";
        let file = File::from_text("d.yaml".as_ref(), text.to_owned(), Purpose::Guards).ok().unwrap();
        let guards = guards(&file, &ControlPlanes::snapshot(Clients::offline()), None).unwrap();
        assert!(Plan::new(1, guards.clone(), &Metrics::new("t")).is_ok(), "each path has one guard");
        let review = format!(
            r#"{{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {{"uid": "u", "operation": "{operation}",
            "kind": {{"group": "", "version": "v1", "kind": "Pod"}}, "resource": {{"group": "", "version": "v1", "resource": "{resource}"}},
            "subResource": "{subresource}", "name": "a", "namespace": "shop", "userInfo": {{"username": "ann"}},
            "object": {{"metadata": {{"name": "a"}}, "spec": {{"containers": []}}}}, "oldObject": {{}}}}}}"#
        );
        let mut all = Vec::new();
        for guard in guards {
            let review = decode(review.as_bytes(), guard.fields()).unwrap();
            let ruling = guard.review(&review.request, Instant::now()).await;
            all.push((guard.name(), settle(&review.request, ruling, guard.settle_policy())));
        }
        all
    }

    #[tokio::test]
    async fn every_known_guard_that_is_off_allows_with_a_warning() {
        for (name, settled) in settled("CREATE", "pods", "").await {
            if name == "lxcfs" {
                assert_eq!(settled.unreviewed(), None);
                continue;
            }
            assert_eq!(settled.verdict, "allow", "{name}");
            let warnings: Vec<&str> = settled.warnings.iter().collect();
            let reason = format!("the guard {name} is turned off");
            assert_eq!(settled.unreviewed(), Some(reason.as_str()));
            assert_eq!(warnings, [format!("allowed without a check: {reason}")]);
        }
    }

    #[tokio::test]
    async fn a_guard_allows_what_no_rule_names_with_a_warning() {
        for (operation, resource, subresource) in
            [("DELETE", "pods", ""), ("CREATE", "configmaps", ""), ("CREATE", "pods", "eviction")]
        {
            let all = settled(operation, resource, subresource).await;
            let (_, lxcfs) = all.iter().find(|(name, _)| *name == "lxcfs").unwrap();
            let expected = format!("the guard lxcfs has no rule for {operation} of {resource}");
            assert_eq!((lxcfs.verdict, lxcfs.unreviewed()), ("allow", Some(expected.as_str())));
        }
    }
}
