//! For the tests of this room: configurations, requests, targets and members out of short texts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use admission::{Fields, Request, decode};
use serde_json::{Value, json};

use super::config::{self, Config};
use super::target::{DEFINITIONS_GROUP, POINTERS, Subject, Target};
use ::config::time;
use ::config::{parse, read};
use cluster::Metadata;
use cluster::fleet::{Cluster, FleetMember};

/// What time it is in tests.
pub(super) const NOW: &str = "2026-11-21T10:00:00Z";

/// The same.
pub(super) fn now() -> SystemTime {
    time::read(NOW).unwrap().into()
}

/// The configuration that this section makes, and its problems.
pub(super) fn configured(yaml: &str) -> (Config, Vec<String>) {
    let root = parse("d.yaml", yaml).unwrap();
    let (config, _, problems) = read("d.yaml", root.as_ref(), |s| config::read(s, super::DEFAULTS));
    (config, problems.iter().map(ToString::to_string).collect())
}

/// The same, where nothing may be wrong.
pub(super) fn config(yaml: &str) -> Config {
    let (config, problems) = configured(yaml);
    assert_eq!(problems, [""; 0]);
    config
}

/// The review of a deletion; `change` may make another request of it.
pub(super) fn review(resource: &str, name: &str, change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let (group, kind, namespace) = match resource {
        "namespaces" => ("", "Namespace", name),
        _ => (DEFINITIONS_GROUP, "CustomResourceDefinition", ""),
    };
    let mut review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "operation": "DELETE", "name": name, "namespace": namespace, "userInfo": {"username": "ann"},
        "kind": {"group": group, "version": "v1", "kind": kind},
        "resource": {"group": group, "version": "v1", "resource": resource},
        "object": null, "oldObject": {"metadata": {"name": name, "uid": "7"}}}});
    change(&mut review["request"]);
    review.to_string().into_bytes()
}

/// Calls `with` with a request that deletes something.
pub(super) fn with_delete<T>(
    resource: &str,
    name: &str,
    change: impl FnOnce(&mut Value),
    with: impl FnOnce(&Request<'_>) -> T,
) -> T {
    let body = review(resource, name, change);
    with(&decode(&body, &Fields::new(&POINTERS)).unwrap().request)
}

fn target(subject: Subject, name: &str) -> Target {
    Target {
        subject,
        name: name.to_owned(),
        proven: Some("7".to_owned()),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        deleting: false,
        dry_run: false,
    }
}

/// A namespace that is to be deleted.
pub(super) fn namespace(name: &str) -> Target {
    target(Subject::Namespace, name)
}

/// A definition that is to be deleted.
pub(super) fn definition(name: &str) -> Target {
    target(Subject::Definition, name)
}

/// A member of a Karmada fleet.
pub(super) fn member(name: &str, annotations: &[(&str, &str)], labels: &[(&str, &str)]) -> FleetMember {
    let map =
        |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    FleetMember {
        cluster: Cluster::Member(Arc::from(name)),
        metadata: Metadata { labels: map(labels), annotations: map(annotations), deleting: false },
    }
}
