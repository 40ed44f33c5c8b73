//! Fixtures of the tests: configurations, requests, targets and member clusters.

use std::sync::Arc;
use std::time::SystemTime;

use admission::{Fields, Request, decode};
use serde_json::{Value, json};

use super::config::{self, Config};
use super::target::{CRD_GROUP, DeletionKind, DeletionSubject, Target, TargetField};
use crate::common::split_namespace;
use ::config::time;
use ::config::{parse, read};
use cluster::Metadata;
use cluster::fleet::{Cluster, FleetMember};

/// The time in tests.
pub(super) const NOW: &str = "2026-11-21T10:00:00Z";

/// [`NOW`] as a time.
pub(super) fn now() -> SystemTime {
    time::read(NOW).unwrap().into()
}

/// Reads a section, and returns the configuration and the problems.
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

/// Returns the review of a deletion, changed by `change`.
pub(super) fn review(resource: &str, name: &str, change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let (group, kind, namespace) = match resource {
        "namespaces" => ("", "Namespace", name),
        "configmaps" => ("", "ConfigMap", "shop"),
        "secrets" => ("", "Secret", "shop"),
        _ => (CRD_GROUP, "CustomResourceDefinition", ""),
    };
    let mut review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "operation": "DELETE", "name": name, "namespace": namespace, "userInfo": {"username": "ann"},
        "kind": {"group": group, "version": "v1", "kind": kind},
        "resource": {"group": group, "version": "v1", "resource": resource},
        "object": null, "oldObject": {"metadata": {"name": name, "uid": "7"}}}});
    change(&mut review["request"]);
    review.to_string().into_bytes()
}

/// Calls `with` with the request of a deletion.
pub(super) fn with_delete<T>(
    resource: &str,
    name: &str,
    change: impl FnOnce(&mut Value),
    with: impl FnOnce(&Request<'_>) -> T,
) -> T {
    let body = review(resource, name, change);
    with(&decode(&body, &Fields::new(&TargetField::POINTERS)).unwrap().request)
}

fn target(kind: DeletionKind, name: &str) -> Target {
    let reviewed_uid = Some("7".to_owned());
    Target { reviewed_uid, ..Target::named(DeletionSubject::cluster_wide(kind, name)) }
}

/// Returns a namespace to delete.
pub(super) fn namespace(name: &str) -> Target {
    target(DeletionKind::Namespace, name)
}

/// Returns a CRD to delete.
pub(super) fn crd(name: &str) -> Target {
    target(DeletionKind::Crd, name)
}

/// Returns a member of a Karmada fleet.
pub(super) fn member(name: &str, annotations: &[(&str, &str)]) -> FleetMember {
    let annotations = annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    FleetMember {
        cluster: Cluster::Member(Arc::from(name)),
        metadata: Metadata { annotations, ..Metadata::default() },
    }
}
