//! What makes the members' pods: an operator's own kind, and a `StatefulSet` that drops the claims of those that it is not to have.

use serde_json::json;

use super::super::fixture::LEAST;
use super::fake::{Fake, Reply, deleted, deleted_by, evicted, told, word};
use super::{CONTROLLER, says};

const GARBAGE_COLLECTOR: &str = "system:serviceaccount:kube-system:generic-garbage-collector";

const NAMED: &str = "ensembles: [{namespace: db, selector: app=etcd, owner: {apiVersion: etcd.example.org/v1, kind: EtcdCluster}}]";

/// Three members of an operator's own kind, of which the last one is gone.
fn made() -> Fake {
    Fake::of(3).down(&["etcd-2"]).with(|s| {
        let cluster = json!({"apiVersion": "etcd.example.org/v1", "kind": "EtcdCluster", "metadata": {"name": "prod", "namespace": "db", "uid": "uid-prod"}});
        s.others.insert(("etcdclusters", "prod".to_owned()), cluster);
        for pod in &mut s.pods {
            pod["metadata"]["ownerReferences"] = json!([
                {"apiVersion": "etcd.example.org/v1", "kind": "EtcdCluster", "name": "prod", "uid": "uid-prod", "controller": true}
            ]);
        }
    })
}

#[tokio::test(start_paused = true)]
async fn pods_of_an_operators_own_kind_go_with_the_object_that_makes_them() {
    says(
        &deleted_by(&made(), NAMED, "etcd-1", GARBAGE_COLLECTOR, |_| {}).await,
        "deny",
        "of db/prod are a quorum",
    );
    let gone = made().with(|s| drop(s.others.remove(&("etcdclusters", "prod".to_owned()))));
    let ruling = deleted_by(&gone, NAMED, "etcd-1", GARBAGE_COLLECTOR, |_| {}).await;
    says(&ruling, "allow", "");
    assert!(ruling.audit.iter().any(|(_, why)| why == "what it belongs to is being deleted or gone"));
    let change = |metadata: serde_json::Value| {
        made().with(|s| {
            let own = s.others.get_mut(&("etcdclusters", "prod".to_owned())).unwrap();
            for (key, value) in metadata.as_object().unwrap() {
                own["metadata"][key] = value.clone();
            }
        })
    };
    let going = change(json!({"deletionTimestamp": "x"}));
    says(&deleted(&going, NAMED, "etcd-1").await, "allow", "");
    let another = change(json!({"uid": "uid-of-a-new-one"}));
    says(&deleted(&another, NAMED, "etcd-1").await, "allow", "");
    let orphaning = change(json!({"deletionTimestamp": "x", "finalizers": ["orphan"]}));
    says(&deleted(&orphaning, NAMED, "etcd-1").await, "deny", "are a quorum");
    // What no entry names is not looked at.
    says(&deleted(&gone, LEAST, "etcd-1").await, "deny", "of db (app=etcd) are a quorum");
}

#[tokio::test(start_paused = true)]
async fn where_what_makes_a_pod_cannot_be_read_a_refusal_is_unknown_and_an_allow_is_none_the_less() {
    let blind = || made().refusing("etcdclusters");
    let ruling = deleted(&blind(), NAMED, "etcd-1").await;
    says(&ruling, "unknown", "whether what it belongs to is being deleted cannot be seen");
    let refusal = ruling.refusal.unwrap().message;
    assert!(refusal.contains("are a quorum") && refusal.contains("cannot be seen"), "{refusal}");
    says(&deleted(&blind(), NAMED, "etcd-2").await, "allow", "");
}

#[tokio::test(start_paused = true)]
async fn each_object_of_an_operators_own_kind_is_an_ensemble() {
    let two = made().with(|s| {
        let pod = &mut s.pods[2];
        pod["metadata"]["ownerReferences"][0]["uid"] = "uid-other".into();
        pod["metadata"]["ownerReferences"][0]["name"] = "other".into();
    });
    let said = told(&deleted(&two, NAMED, "etcd-1").await);
    assert!(said.contains("etcd-0") && !said.contains("> etcd-2"), "{said}");
    assert!(said.contains("of db/prod are a quorum"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_scaled_away_with_its_claim_is_told_or_refused() {
    let scaled = |replicas: u64, policy: serde_json::Value| {
        Fake::of(3).with(|s| {
            let set = s.others.get_mut(&("statefulsets", "etcd".to_owned())).unwrap();
            set["spec"] = json!({"replicas": replicas, "persistentVolumeClaimRetentionPolicy": policy});
        })
    };
    let drops = || json!({"whenScaled": "Delete"});
    let strict = format!("dataSafety: deny\n{LEAST}");
    for (fake, verdict, text) in [
        (scaled(2, drops()), "deny", "deletes its claim with it"),
        (scaled(2, json!({"whenScaled": "Retain", "whenDeleted": "Delete"})), "allow", ""),
        // A pod that comes back keeps its claim.
        (scaled(3, drops()), "allow", ""),
    ] {
        says(&deleted_by(&fake, &strict, "etcd-2", CONTROLLER, |_| {}).await, verdict, text);
    }
    let ruling = deleted_by(&scaled(2, drops()), LEAST, "etcd-2", CONTROLLER, |_| {}).await;
    says(&ruling, "allow", "deletes its claim with it");
    assert_eq!(word(&deleted(&scaled(2, drops()), &strict, "etcd-1").await), "allow");
    let shifted = scaled(3, drops()).with(|s| {
        let set = s.others.get_mut(&("statefulsets", "etcd".to_owned())).unwrap();
        set["spec"]["ordinals"] = json!({"start": 1});
    });
    says(&deleted(&shifted, &strict, "etcd-0").await, "deny", "deletes its claim with it");
}

#[tokio::test(start_paused = true)]
async fn a_member_whose_node_is_gone_goes_unasked_so_that_nobody_counts_on_it() {
    let node_gone = |name: &str, reply: Reply| {
        Fake::of(3).with(|s| {
            drop(s.others.remove(&("nodes", name.to_owned())));
            for one in s.members.values_mut() {
                one.reply = reply;
            }
        })
    };
    for reply in [Reply::Whole, Reply::Poor] {
        let fake = node_gone("n1", reply);
        let ruling = evicted(&fake, LEAST, "etcd-2").await;
        says(&ruling, "deny", "leaving: its node is gone");
        says(&ruling, "deny", "ait until etcd-1 is back");
        assert!(fake.state().deeds.is_empty(), "{:?}", fake.state().deeds);
        says(&deleted_by(&fake, LEAST, "etcd-2", CONTROLLER, |_| {}).await, "deny", "only 1 other member");
        says(&deleted(&fake, LEAST, "etcd-0").await, "deny", "only 1 other member");
        // Its own deletion is what is waited for.
        let ruling = deleted_by(&fake, LEAST, "etcd-1", "system:kube-controller-manager", |_| {}).await;
        says(&ruling, "allow", "");
        assert!(ruling.audit.iter().any(|(_, why)| why == "its node is gone"), "{:?}", ruling.audit);
        // It is back, on another node.
        fake.replace("etcd-1");
        fake.state().pods[1]["spec"]["nodeName"] = "n0".into();
        says(&deleted(&fake, LEAST, "etcd-2").await, "allow", "");
    }
    // Of two one has to be there.
    let two = Fake::of(2).with(|s| drop(s.others.remove(&("nodes", "n1".to_owned()))));
    says(&deleted(&two, LEAST, "etcd-0").await, "deny", "the other member is on its way out");
    says(&deleted(&two, LEAST, "etcd-1").await, "allow", "");
}
