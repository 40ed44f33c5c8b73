//! The same attacks on an etcd member in other forms: each verb and patch type, subresources, options of a deletion, and groups.

use e2e::prelude::*;

use super::user_with;
use crate::cases::etcd::environment::{Profile, guarded_etcd};
use crate::cases::etcd::quorum::two_followers;
use crate::cases::etcd::requests::attempt;
use crate::cases::objects::contains_all;

/// A uid that no object has.
const UNKNOWN_UID: &str = "0ddba11a-0000-4000-8000-000000000000";

/// The denial of the native policy.
const LABEL: &str = "label app can't be changed";

const WHY: &str = "1 of 3 members would be left, 2 are needed";

#[e2e::case]
fn each_way_to_write_a_pod_keeps_its_label(context: &'static TestContext) -> Result<()> {
    let (ns, etcd) = guarded_etcd(context, 3, "written", Profile::Transfer)?;
    let resources = ["pods", "pods/status", "pods/resize", "pods/ephemeralcontainers"];
    let verbs: &[&str] = &["get", "patch", "update"];
    let mallory = user_with(ns.cluster(), "writes-pods", "", (&resources, verbs))?;
    let pods = etcd.pods_in(&ns)?;
    let name = etcd.leader()?.name();
    let path = pods.path(name);
    mallory.await_permitted(&path)?;
    let api = &mallory.api;
    let before = pods.object(name)?["metadata"].clone();

    let removed = || -> Result<Value> {
        let mut pod = pods.object(name)?;
        pod["metadata"]["labels"] = json!({});
        Ok(pod)
    };
    let applied =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "x"}}});
    let answers = [
        api.replace(&path, &removed()?)?,
        api.replace(&format!("{path}/status"), &removed()?)?,
        api.apply(&format!("{path}?force=true"), "mallory", &applied)?,
        api.apply(&format!("{path}/status?force=true"), "mallory", &applied)?,
    ];
    for answer in answers {
        ensure!(answer.status == 403, "{}: {}", answer.what, answer.status);
        contains_all(answer.message(), &[LABEL])?;
    }
    for (patch_type, patch) in [
        ("json", json!([{"op": "remove", "path": "/metadata/labels/app"}])),
        ("strategic", json!({"metadata": {"labels": {"$patch": "replace", "tier": "db"}}})),
    ] {
        let (patch, kind) = (patch.to_string(), format!("--type={patch_type}"));
        let arguments = ["-n", ns.name(), "patch", "pod", name, &kind, "-p", &patch];
        let patched = mallory.kubectl.run(&arguments)?;
        ensure!(!patched.is_success() && patched.stderr.contains(LABEL), "{patch_type}: {patched:?}");
    }
    // These subresources keep the metadata: `dropNonResizeUpdates` in Kubernetes' pkg/registry/core/pod/strategy.go. A node without
    // support for resizing refuses the request.
    let both = json!({"metadata": {"labels": {"app": null}, "ownerReferences": null}});
    for subresource in ["resize", "ephemeralcontainers"] {
        drop(api.merge(&format!("{path}/{subresource}"), &both)?);
    }
    let after = pods.object(name)?["metadata"].clone();
    for key in ["labels", "ownerReferences"] {
        ensure!(after[key] == before[key], "{key} changed: {after}");
    }
    Ok(())
}

#[e2e::case]
fn no_option_or_group_allows_a_deletion_that_costs_the_quorum(context: &'static TestContext) -> Result<()> {
    let (ns, etcd) = guarded_etcd(context, 3, "options", Profile::Transfer)?;
    let verbs: &[&str] = &["get", "delete", "deletecollection"];
    let mallory = user_with(ns.cluster(), "deletes-with-options", "", (&["pods"], verbs))?;
    // Kubelets are in this group. It counts only for pods that are being deleted.
    let in_group = ns.cluster().user("in-the-group-of-kubelets", &["system:masters", "system:nodes"])?;
    let pods = etcd.pods_in(&ns)?;
    let [down, up] = two_followers(&etcd)?;
    let _stopped = down.stop()?;
    let (name, path) = (up.name(), pods.path(up.name()));
    let uid = pods.uid(name)?;
    mallory.await_permitted(&path)?;
    let options = [
        json!({"propagationPolicy": "Orphan"}),
        json!({"propagationPolicy": "Foreground"}),
        json!({"propagationPolicy": "Background"}),
        json!({"orphanDependents": true}),
        json!({"gracePeriodSeconds": 0}),
        json!({"gracePeriodSeconds": 0, "propagationPolicy": "Orphan", "preconditions": {"uid": uid}}),
    ];
    for api in [&mallory.api, &in_group.api] {
        for options in &options {
            attempt(api.delete_with(&path, options)?).denied()?.with_message(&[WHY])?;
        }
    }
    let collection = format!("/api/v1/namespaces/{}/pods", ns.name());
    let only = format!("{collection}?fieldSelector=metadata.name%3D{name}");
    attempt(mallory.api.delete(&only)?).denied()?.with_message(&[WHY])?;

    let evict = |preconditions: Value| {
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name},
            "deleteOptions": {"gracePeriodSeconds": 0, "preconditions": preconditions}});
        in_group.api.create(&format!("{path}/eviction"), &eviction)
    };
    attempt(evict(json!({"uid": uid}))?).denied()?.with_message(&[WHY])?;
    let other = evict(json!({"uid": UNKNOWN_UID}))?;
    ensure!(other.status == 404, "the eviction of another pod: {}: {}", other.status, other.message());
    ensure!(pods.uid(name)? == uid && !pods.is_terminating(name)?, "{name} was deleted");
    Ok(())
}
