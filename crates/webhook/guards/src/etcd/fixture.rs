//! Configurations, requests and pods for tests.

use std::time::SystemTime;

use admission::{Fields, Request, decode};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::config::{self, Config};
use super::removal::ReviewedField;
use crate::common::split_namespace;
use ::config::{parse, read};

pub(super) use cluster::testing::etcd_pod as pod;

/// The current time in tests: 2026-11-21T10:00:00Z.
pub(super) const NOW: i64 = 1_795_255_200;

/// The shortest valid section.
pub(super) const LEAST: &str = "clusters: [{namespace: db, selector: app=etcd}]";

/// Returns the current time in tests.
pub(super) fn now() -> SystemTime {
    Timestamp::from_second(NOW).unwrap().into()
}

/// Reads a section. Returns its configuration and its problems.
pub(super) fn configured(yaml: &str) -> (Config, Vec<String>) {
    let (namespace, yaml) = split_namespace(yaml);
    let root = parse("d.yaml", yaml).unwrap();
    let (config, _, problems) =
        read("d.yaml", root.as_ref(), |s| config::read(s, super::DEFAULTS, namespace));
    (config, problems.iter().map(ToString::to_string).collect())
}

/// Reads a section without problems.
pub(super) fn config(yaml: &str) -> Config {
    let (config, problems) = configured(yaml);
    assert_eq!(problems, [""; 0]);
    config
}

/// Returns a review of a pod's deletion. `change` changes the request.
pub(super) fn delete(name: &str, change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "operation": "DELETE", "name": name, "namespace": "db", "userInfo": {"username": "ann"},
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "object": null, "oldObject": pod(name), "options": {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}}});
    change(&mut review["request"]);
    review.to_string().into_bytes()
}

/// Returns a review of an eviction.
pub(super) fn evict(name: &str, change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "operation": "CREATE", "name": name, "namespace": "db", "userInfo": {"username": "ann"},
        "kind": {"group": "policy", "version": "v1", "kind": "Eviction"},
        "resource": {"group": "", "version": "v1", "resource": "pods"}, "subResource": "eviction",
        "object": {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "db"}},
        "oldObject": null, "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}}});
    change(&mut review["request"]);
    review.to_string().into_bytes()
}

/// Calls `with` with the request of a review.
pub(super) fn with_request<T>(body: &[u8], with: impl FnOnce(&Request<'_>) -> T) -> T {
    with(&decode(body, &Fields::new(&ReviewedField::POINTERS)).unwrap().request)
}

/// Calls `with` with a request that deletes a pod.
pub(super) fn with_delete<T>(
    name: &str,
    change: impl FnOnce(&mut Value),
    with: impl FnOnce(&Request<'_>) -> T,
) -> T {
    with_request(&delete(name, change), with)
}

/// Calls `with` with a request that evicts a pod.
pub(super) fn with_eviction<T>(
    name: &str,
    change: impl FnOnce(&mut Value),
    with: impl FnOnce(&Request<'_>) -> T,
) -> T {
    with_request(&evict(name, change), with)
}
