//! What the tests stand on.

mod authority;
mod client;
mod guards;
mod house;

use std::time::Duration;

pub(crate) use authority::{Authority, Issued};
pub(crate) use client::{Answer, Client, Trust, plain, plain_bytes};
pub(crate) use guards::{Gate, Stub, Turn};
pub(crate) use house::{House, Plans};

/// Waits until something is so; fails after a time in which it would have become so on any machine.
pub(crate) async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(Duration::from_secs(20), async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(waited.await.is_ok(), "it never came to this: {what}");
}

/// A review of a pod, with more in it to make it as large as is wanted.
pub(crate) fn review(name: &str, padding: usize) -> String {
    let padding = "x".repeat(padding);
    format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"uid-{name}","operation":"CREATE","name":"{name}","namespace":"shop","kind":{{"group":"","version":"v1","kind":"Pod"}},"resource":{{"group":"","version":"v1","resource":"pods"}},"userInfo":{{"username":"ann"}},"object":{{"metadata":{{"name":"{name}"}},"data":"top-secret{padding}"}}}}}}"#
    )
}
