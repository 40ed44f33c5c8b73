//! Helpers of the tests.

mod ca;
mod client;
mod guards;
mod server;

use std::time::Duration;

pub(crate) use ca::{Ca, Issued};
pub(crate) use client::{Answer, Client, Trust, connect_tcp, plain, plain_bytes};
pub(crate) use guards::{Behavior, Gate, Stub};
pub(crate) use server::{ServerBuilder, TestServer};

/// Waits until the condition is true. Fails after 20 seconds.
pub(crate) async fn wait_until(what: &str, mut is_true: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(Duration::from_secs(20), async {
        while !is_true().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(waited.await.is_ok(), "timeout: {what}");
}

/// Returns a review of a pod with this many bytes of padding.
pub(crate) fn review(name: &str, padding: usize) -> String {
    let padding = "x".repeat(padding);
    format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"uid-{name}","operation":"CREATE","name":"{name}","namespace":"shop","kind":{{"group":"","version":"v1","kind":"Pod"}},"resource":{{"group":"","version":"v1","resource":"pods"}},"userInfo":{{"username":"ann"}},"object":{{"metadata":{{"name":"{name}"}},"data":"top-secret{padding}"}}}}}}"#
    )
}
