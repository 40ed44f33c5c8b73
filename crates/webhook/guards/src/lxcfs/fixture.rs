//! Fixtures for unit tests: configurations, requests and pods.

use admission::{Fields, Request, decode};
use serde_json::{Value, json};

use super::config::{self, Config};
use super::pod::{Pod, PodField};
use crate::common::split_namespace;
use ::config::{parse, read};

/// Returns the configuration of this section and its problems.
pub(super) fn configured(yaml: &str) -> (Config, Vec<String>) {
    let (namespace, yaml) = split_namespace(yaml);
    let root = parse("d.yaml", yaml).unwrap();
    let (config, _, problems) =
        read("d.yaml", root.as_ref(), |s| config::read(s, super::DEFAULTS, namespace));
    (config, problems.iter().map(ToString::to_string).collect())
}

/// Returns the configuration of this section, which must have no problems.
pub(super) fn config(yaml: &str) -> Config {
    let (config, problems) = configured(yaml);
    assert_eq!(problems, [""; 0]);
    config
}

/// Calls `with` with a request that creates `pod` in namespace shop. `change` can edit the request.
pub(super) fn with_request<T>(
    pod: &Value,
    change: impl FnOnce(&mut Value),
    with: impl FnOnce(&Request<'_>) -> T,
) -> T {
    let mut review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "operation": "CREATE", "namespace": "shop", "userInfo": {"username": "ann"},
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"}, "object": pod}});
    change(&mut review["request"]);
    let body = review.to_string();
    with(&decode(body.as_bytes(), &Fields::new(&PodField::POINTERS)).unwrap().request)
}

/// Calls `with` with a pod.
pub(super) fn with_pod<T>(pod: &Value, with: impl FnOnce(Pod<'_>) -> T) -> T {
    with_request(pod, |_| {}, |request| with(Pod::read(request.object.as_ref()).unwrap()))
}
