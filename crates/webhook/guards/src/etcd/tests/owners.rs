//! Owners of pods: custom objects, and `StatefulSets` that delete PVCs when they are scaled down.

use serde_json::json;

use super::super::decide::{Concern, DenyReason, Warning};
use super::super::facts::Leaving;
use super::super::fixture::LEAST;
use super::super::table::MemberState;
use super::CONTROLLER;
use super::expect::{Expected, assert_outcome, quorum, text_of};
use super::fake::{ETCD_CLUSTERS, Fake, NODES, PODS, STATEFUL_SETS, deleted, deleted_by, evicted};

const GARBAGE_COLLECTOR: &str = "system:serviceaccount:kube-system:generic-garbage-collector";

const NAMED: &str = "clusters: [{namespace: db, selector: app=etcd, owner: {apiVersion: etcd.example.org/v1, kind: EtcdCluster}}]";

/// Returns three members with a custom owner. The last one is down.
fn made() -> Fake {
    Fake::of(3).down(&["etcd-2"]).with(|s| {
        let cluster = json!({"apiVersion": "etcd.example.org/v1", "kind": "EtcdCluster", "metadata": {"name": "prod", "namespace": "db", "uid": "uid-prod"}});
        s.insert(ETCD_CLUSTERS, cluster);
        let owner = json!([{"apiVersion": "etcd.example.org/v1", "kind": "EtcdCluster", "name": "prod", "uid": "uid-prod", "controller": true}]);
        s.edit_all(PODS, |pod| pod["metadata"]["ownerReferences"] = owner.clone());
    })
}

#[tokio::test(start_paused = true)]
async fn pods_are_allowed_when_their_custom_owner_is_deleted() {
    assert_outcome(&deleted_by(&made(), NAMED, "etcd-1", GARBAGE_COLLECTOR, |_| {}).await, quorum(1, 3));
    let gone = made().with(|s| s.remove(ETCD_CLUSTERS, "prod"));
    let ruling = deleted_by(&gone, NAMED, "etcd-1", GARBAGE_COLLECTOR, |_| {}).await;
    assert_outcome(&ruling, Expected::Allow);
    assert!(ruling.audit.iter().any(|(_, why)| why == "the owner is deleted"));
    let change = |metadata: serde_json::Value| {
        made().with(|s| {
            let metadata = metadata.as_object().unwrap().clone();
            s.edit(ETCD_CLUSTERS, "prod", |own| own["metadata"].as_object_mut().unwrap().extend(metadata));
        })
    };
    let going = change(json!({"deletionTimestamp": "x"}));
    assert_outcome(&deleted(&going, NAMED, "etcd-1").await, Expected::Allow);
    let another = change(json!({"uid": "uid-of-a-new-one"}));
    assert_outcome(&deleted(&another, NAMED, "etcd-1").await, Expected::Allow);
    let orphaning = change(json!({"deletionTimestamp": "x", "finalizers": ["orphan"]}));
    assert_outcome(&deleted(&orphaning, NAMED, "etcd-1").await, quorum(1, 3));
    // An owner of another kind is not read.
    assert_outcome(&deleted(&gone, LEAST, "etcd-1").await, quorum(1, 3));
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_custom_owner_turns_a_denial_into_unknown() {
    let blind = || made().with_error("etcdclusters");
    let ruling = deleted(&blind(), NAMED, "etcd-1").await;
    assert_outcome(&ruling, Expected::UnreadOwner);
    let refusal = ruling.ruling.refusal.unwrap().message;
    assert!(
        refusal.starts_with("cannot check etcd quorum for pod db/etcd-1: cannot read its owner"),
        "{refusal}"
    );
    assert_outcome(&deleted(&blind(), NAMED, "etcd-2").await, Expected::Allow);
}

#[tokio::test(start_paused = true)]
async fn each_custom_owner_is_an_etcd_cluster() {
    let two = made().with(|s| {
        s.edit(PODS, "etcd-2", |pod| {
            let owner = &mut pod["metadata"]["ownerReferences"][0];
            (owner["name"], owner["uid"]) = ("other".into(), "uid-other".into());
        });
    });
    let text = text_of(&deleted(&two, NAMED, "etcd-1").await);
    assert!(text.contains("etcd-2 has no pod"), "{text}");
    assert!(text.contains("2 are needed"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_scaled_down_pod_with_its_pvc_is_warned_about() {
    let scaled = |replicas: u64, policy: serde_json::Value| {
        Fake::of(3).with(|s| {
            let spec = json!({"replicas": replicas, "persistentVolumeClaimRetentionPolicy": policy});
            s.edit(STATEFUL_SETS, "etcd", |set| set["spec"] = spec);
        })
    };
    let drops = || json!({"whenScaled": "Delete"});
    for (fake, warns) in [
        (scaled(2, drops()), true),
        (scaled(2, json!({"whenScaled": "Retain", "whenDeleted": "Delete"})), false),
        // A pod that comes back keeps its PVC.
        (scaled(3, drops()), false),
    ] {
        let ruling = deleted_by(&fake, LEAST, "etcd-2", CONTROLLER, |_| {}).await;
        assert_outcome(&ruling, Expected::Allow);
        let is_warning = Expected::from(Warning::Concern(Concern::PvcDeleted)).is_met(&ruling);
        assert_eq!(is_warning, warns, "{:?}", ruling.warnings);
    }
    let shifted = scaled(3, drops()).with(|s| {
        s.edit(STATEFUL_SETS, "etcd", |set| set["spec"]["ordinals"] = json!({"start": 1}));
    });
    assert_outcome(&deleted(&shifted, LEAST, "etcd-0").await, Warning::Concern(Concern::PvcDeleted));
}

#[tokio::test(start_paused = true)]
async fn a_member_on_a_deleted_node_does_not_count() {
    let fake = Fake::of(3).with(|s| s.remove(NODES, "n1"));
    let ruling = evicted(&fake, LEAST, "etcd-2").await;
    assert_outcome(&ruling, MemberState::Leaving(Leaving::NodeDeleted));
    assert_outcome(&deleted(&fake, LEAST, "etcd-2").await, quorum(1, 3));
    assert!(fake.content().actions.is_empty(), "{:?}", fake.content().actions);
    assert_outcome(&deleted_by(&fake, LEAST, "etcd-2", CONTROLLER, |_| {}).await, quorum(1, 3));
    assert_outcome(&deleted(&fake, LEAST, "etcd-0").await, quorum(1, 3));
    // Its own deletion is allowed.
    let ruling = deleted_by(&fake, LEAST, "etcd-1", "system:kube-controller-manager", |_| {}).await;
    assert_outcome(&ruling, Expected::Allow);
    assert!(ruling.audit.iter().any(|(_, why)| why == "the node is deleted"), "{:?}", ruling.audit);
    // It is back on another node.
    fake.replace("etcd-1");
    fake.content().edit(PODS, "etcd-1", |pod| pod["spec"]["nodeName"] = "n0".into());
    assert_outcome(&deleted(&fake, LEAST, "etcd-2").await, Expected::Allow);
    // One of two must stay.
    let two = Fake::of(2).with(|s| s.remove(NODES, "n1"));
    assert_outcome(&deleted(&two, LEAST, "etcd-0").await, DenyReason::OtherLeaving);
    assert_outcome(&deleted(&two, LEAST, "etcd-1").await, Expected::Allow);
}
