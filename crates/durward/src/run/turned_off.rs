//! Answers for a guard that a reload turned off.
//!
//! The API server calls the guard until its webhook entries are gone: they wait for ten minutes, or for an administrator. Without an
//! answer, `failurePolicy: Fail` would deny each of these requests. A process that never had the guard still answers 404, because its
//! file can be older than that of a replica that turned the guard on.

use std::time::Instant;

use admission::{BoxFuture, Fields, Guard, Request, Ruling, SettlePolicy};

/// A guard that allows every request, with a warning.
pub(crate) struct TurnedOff {
    name: &'static str,
    fields: Fields,
    settle_policy: SettlePolicy,
}

impl TurnedOff {
    /// Creates the answers for the path of a guard.
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

    fn logs_every_ruling(&self) -> bool {
        true
    }

    fn review<'a>(&'a self, _: &'a Request<'a>, _: Instant) -> BoxFuture<'a, Ruling> {
        let text = format!("allowed without a check: the guard {} is turned off", self.name);
        Box::pin(std::future::ready(Ruling::allow().warn(text)))
    }
}

#[cfg(test)]
mod tests {
    use admission::{Verdict, decode};

    use super::*;

    #[tokio::test]
    async fn a_guard_that_is_turned_off_allows_with_a_warning() {
        let review = r#"{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {"uid": "e4c98957-8a52-4655-9441-cab6633c8b06", "operation": "DELETE",
            "kind": {"group": "", "version": "v1", "kind": "Pod"}, "resource": {"group": "", "version": "v1", "resource": "pods"},
            "name": "a", "namespace": "shop", "userInfo": {"username": "ann"}, "object": null, "oldObject": {}}}"#;
        let guard = TurnedOff::new("etcd");
        let review = decode(review.as_bytes(), guard.fields()).unwrap();
        let ruling = guard.review(&review.request, Instant::now()).await;
        assert_eq!(ruling.verdict, Verdict::Allow);
        let warnings: Vec<&str> = ruling.warnings.iter().collect();
        assert_eq!(warnings, ["allowed without a check: the guard etcd is turned off"]);
    }
}
