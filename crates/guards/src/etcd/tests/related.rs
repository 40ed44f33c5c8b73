//! Requests about `StatefulSets`, PVCs and PDBs.

use serde_json::{Value, json};

use super::super::fixture::LEAST;
use super::CONTROLLER;
use super::expect::{Reviewed, assert_text, text_of, verdict_of};
use super::fake::{Fake, Reply, review};
use cluster::cause;

const ALL: &str = "alsoProtect: [scale, statefulsets, persistentvolumeclaims, poddisruptionbudgets]";

fn yaml() -> String {
    format!("{ALL}\n{LEAST}")
}

fn set(replicas: u64) -> Value {
    json!({"metadata": {"name": "etcd", "namespace": "db", "uid": "uid-etcd"}, "spec": {"replicas": replicas,
        "template": {"metadata": {"labels": {"app": "etcd"}}, "spec": {"containers": [{"name": "etcd", "image": "etcd:3"}]}}}})
}

fn body(
    operation: &str,
    group: &str,
    resource: &str,
    object: &Value,
    old: &Value,
    change: impl FnOnce(&mut Value),
) -> Vec<u8> {
    let mut body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "operation": operation, "name": old["metadata"]["name"], "namespace": "db", "userInfo": {"username": "ann"},
        "kind": {"group": group, "version": "v1", "kind": "X"},
        "resource": {"group": group, "version": "v1", "resource": resource}, "object": object, "oldObject": old}});
    change(&mut body["request"]);
    body.to_string().into_bytes()
}

fn scaled(before: u64, after: u64) -> Vec<u8> {
    body("UPDATE", "apps", "statefulsets", &set(after), &set(before), |_| {})
}

fn scaled_by_subresource(before: u64, after: u64) -> Vec<u8> {
    let scale = |replicas: u64| json!({"metadata": {"name": "etcd", "namespace": "db", "uid": "uid-etcd"}, "spec": {"replicas": replicas}});
    body("UPDATE", "apps", "statefulsets", &scale(after), &scale(before), |r| {
        r["subResource"] = "scale".into();
    })
}

fn deleted_statefulset(change: impl FnOnce(&mut Value)) -> Vec<u8> {
    body("DELETE", "apps", "statefulsets", &Value::Null, &set(3), change)
}

/// Stores the old object of a review, and reviews it.
async fn stored(fake: &Fake, yaml: &str, body: &[u8]) -> Reviewed {
    let request = serde_json::from_slice::<Value>(body).unwrap()["request"].take();
    let plural = match request["resource"]["resource"].as_str().unwrap() {
        "statefulsets" => "statefulsets",
        "persistentvolumeclaims" => "persistentvolumeclaims",
        "poddisruptionbudgets" => "poddisruptionbudgets",
        other => panic!("{other}"),
    };
    if request["subResource"].is_null() {
        let name = request["name"].as_str().unwrap().to_owned();
        fake.state().others.insert((plural, name), request["oldObject"].clone());
    }
    review(&fake.guard(yaml), body).await
}

fn fake() -> Fake {
    Fake::of(3).with(|s| drop(s.others.insert(("statefulsets", "etcd".to_owned()), set(3))))
}

#[tokio::test]
async fn scaling_below_the_quorum_is_denied() {
    let (fake, yaml) = (fake(), yaml());
    for scaled in [scaled, scaled_by_subresource] {
        assert_text(
            &stored(&fake, &yaml, &scaled(3, 1)).await,
            "deny",
            "cannot scale StatefulSet db/etcd: 1 of its 3 etcd members would be left, quorum of the 3 voters is 2",
        );
        assert_text(
            &stored(&fake, &yaml, &scaled(3, 0)).await,
            "deny",
            "none of its 3 etcd members would be left",
        );
        assert_text(&stored(&fake, &yaml, &scaled(5, 1)).await, "deny", "quorum of the 3 voters is 2");
        for (before, after) in [(3, 2), (3, 3), (3, 5), (0, 3), (5, 3)] {
            assert_text(&stored(&fake, &yaml, &scaled(before, after)).await, "allow", "");
        }
    }
    // Scaling to zero is denied only if deleting is denied too.
    let down = stored(&fake, &format!("alsoProtect: [scale]\n{LEAST}"), &scaled(3, 0)).await;
    assert_text(&down, "allow", "none of its 3 etcd members would be left");
    let controller = body("UPDATE", "apps", "statefulsets", &set(0), &set(3), |r| {
        r["userInfo"]["username"] = CONTROLLER.into();
    });
    assert_text(
        &stored(&fake, &yaml, &controller).await,
        "allow",
        "none of its 3 etcd members would be left",
    );
}

#[tokio::test]
async fn deleting_a_statefulset_with_its_members_is_denied() {
    let (fake, yaml) = (fake(), yaml());
    assert_text(
        &stored(&fake, &yaml, &deleted_statefulset(|_| {})).await,
        "deny",
        "its 3 etcd members would be deleted with it",
    );
    // The denial proposes no request that is denied too.
    assert!(!text_of(&stored(&fake, &yaml, &deleted_statefulset(|_| {})).await).contains("scale it to 0"));
    let alone = format!("alsoProtect: [statefulsets]\n{LEAST}");
    assert_text(&stored(&fake, &alone, &deleted_statefulset(|_| {})).await, "deny", "or scale it to 0 first");
    assert_text(
        &stored(
            &fake,
            &yaml,
            &deleted_statefulset(|r| r["options"] = json!({"propagationPolicy": "Orphan"})),
        )
        .await,
        "allow",
        "",
    );
    assert_text(
        &stored(&fake, &yaml, &deleted_statefulset(|r| r["oldObject"]["spec"]["replicas"] = 0.into())).await,
        "allow",
        "",
    );
    assert_text(
        &stored(
            &fake,
            &yaml,
            &deleted_statefulset(|r| r["oldObject"]["metadata"]["deletionTimestamp"] = "x".into()),
        )
        .await,
        "allow",
        "",
    );
    let broken = deleted_statefulset(|r| {
        r["oldObject"]["metadata"]["annotations"] = json!({
        "durward.dev/delete-anyway": "etcd", "durward.dev/delete-reason": "move", "durward.dev/delete-until": "2026-11-21T18:00:00Z"});
    });
    assert_text(&stored(&fake, &yaml, &broken).await, "allow", "is not checked");
}

#[tokio::test]
async fn a_statefulset_is_guarded_by_the_pods_that_it_controls() {
    fn unselected(review: &mut Value) {
        review["oldObject"]["spec"]["template"]["metadata"]["labels"] = json!({});
    }
    let delete = deleted_statefulset(unselected);
    assert_text(&stored(&fake(), &yaml(), &delete).await, "deny", "its 3 etcd members would be deleted");
    let scale = body("UPDATE", "apps", "statefulsets", &set(0), &set(3), unselected);
    assert_text(&stored(&fake(), &yaml(), &scale).await, "deny", "none of its 3 etcd members would be left");
    let other = deleted_statefulset(|r| {
        unselected(r);
        r["oldObject"]["metadata"]["uid"] = "uid-other".into();
    });
    assert_text(&stored(&fake(), &yaml(), &other).await, "allow", "");
}

#[tokio::test]
async fn a_second_deletion_does_not_cancel_orphaning() {
    let orphaned = |policy: &'static str| {
        deleted_statefulset(move |r| {
            r["oldObject"]["metadata"]["deletionTimestamp"] = "x".into();
            r["oldObject"]["metadata"]["finalizers"] = json!(["orphan"]);
            r["options"] = json!({"propagationPolicy": policy});
        })
    };
    assert_text(&stored(&fake(), &yaml(), &orphaned("Background")).await, "deny", "its 3 etcd members");
    assert_text(&stored(&fake(), &yaml(), &orphaned("Orphan")).await, "allow", "");
}

#[tokio::test]
async fn scaling_counts_members_whose_pods_an_earlier_scaling_removed() {
    let fake = Fake::of(5).with(|s| drop(s.others.insert(("statefulsets", "etcd".to_owned()), set(5))));
    assert_text(&stored(&fake, &yaml(), &scaled(5, 3)).await, "allow", "");
    let smaller = Fake::of(5).with(|s| {
        s.others.insert(("statefulsets", "etcd".to_owned()), set(3));
        s.pods.retain(|pod| pod["metadata"]["name"] != "etcd-3" && pod["metadata"]["name"] != "etcd-4");
    });
    let text = "cannot scale StatefulSet db/etcd: 2 of its 3 etcd members would be left, quorum of the 5 voters is 3";
    assert_text(&stored(&smaller, &yaml(), &scaled(3, 2)).await, "deny", text);
}

#[tokio::test]
async fn scaling_counts_members_of_other_statefulsets_as_left() {
    let fake = Fake::of(5).with(|s| {
        s.others.insert(("statefulsets", "etcd".to_owned()), set(3));
        for pod in s
            .pods
            .iter_mut()
            .filter(|pod| ["etcd-3", "etcd-4"].map(Value::from).contains(&pod["metadata"]["name"]))
        {
            pod["metadata"]["ownerReferences"][0]["uid"] = "uid-other".into();
        }
    });
    let yaml = format!("{ALL}\nclusters: [{{namespace: db, selector: app=etcd, groupBy: selector}}]");
    assert_text(&stored(&fake, &yaml, &scaled(3, 2)).await, "allow", "");
    assert_text(&stored(&fake, &yaml, &scaled(3, 1)).await, "allow", "");
}

#[tokio::test]
async fn scaling_ignores_members_that_were_removed_before() {
    // Three pods, and etcd lists one of them.
    let removed = fake().with(|s| {
        for name in ["etcd-1", "etcd-2"] {
            let out = s.members.get_mut(name).unwrap();
            (out.cluster, out.reply) = (7, Reply::NoResponse(cause::NOT_LISTENING));
        }
    });
    assert_text(&stored(&removed, &yaml(), &scaled(3, 1)).await, "allow", "");
    let unreachable = fake().with(|s| {
        for one in s.members.values_mut() {
            one.reply = Reply::NoResponse(cause::TIMEOUT);
        }
    });
    for after in [1, 2] {
        let text_of = stored(&unreachable, &yaml(), &scaled(3, after)).await;
        assert_text(&text_of, "deny", "cannot read the member list");
    }
    let leaving =
        format!("{ALL}\nclusters: [{{namespace: db, selector: app=etcd, memberOnPodDelete: remove}}]");
    assert_text(&stored(&unreachable, &leaving, &scaled(3, 1)).await, "allow", "");
    assert_text(&stored(&unreachable, &leaving, &scaled(3, 0)).await, "deny", "none of its 3 etcd members");
}

#[tokio::test]
async fn annotations_of_the_statefulset_override_a_scale() {
    let annotated = |annotations: Value| {
        fake().with(|s| {
            let set = s.others.get_mut(&("statefulsets", "etcd".to_owned())).unwrap();
            set["metadata"]["annotations"] = annotations;
        })
    };
    let whole = stored(&fake(), &yaml(), &scaled_by_subresource(3, 1)).await;
    assert_text(
        &whole,
        "deny",
        "Override, then scale again: kubectl annotate -n db statefulset etcd durward.dev/delete-anyway=etcd durward.dev/delete-reason='<reason>'",
    );
    let half = annotated(json!({"durward.dev/delete-anyway": "etcd"}));
    let half = stored(&half, &yaml(), &scaled_by_subresource(3, 1)).await;
    assert_text(&half, "deny", "delete-reason is missing");
    let broken = annotated(json!({
        "durward.dev/delete-anyway": "etcd", "durward.dev/delete-reason": "move", "durward.dev/delete-until": "2026-11-21T18:00:00Z"}));
    assert_text(&stored(&broken, &yaml(), &scaled_by_subresource(3, 1)).await, "allow", "is not checked");
    let by_verb = format!("breakGlass: permission\n{}", yaml());
    let text_of = stored(&broken, &by_verb, &scaled_by_subresource(3, 1)).await;
    assert_text(&text_of, "deny", "&& kubectl -n db patch statefulset etcd -p '{\"spec\":{\"replicas\":1}}'");
    let terminating = fake().with(|s| {
        let set = s.others.get_mut(&("statefulsets", "etcd".to_owned())).unwrap();
        set["metadata"]["deletionTimestamp"] = "x".into();
    });
    assert_text(&stored(&terminating, &yaml(), &scaled_by_subresource(3, 1)).await, "allow", "");
}

#[tokio::test]
async fn annotations_of_the_namespace_override_and_mistakes_are_reported() {
    let annotated = |annotations: Value| {
        fake().with(|s| {
            s.others.get_mut(&("namespaces", "db".to_owned())).unwrap()["metadata"]["annotations"] =
                annotations;
        })
    };
    let broken = annotated(json!({
        "durward.dev/delete-anyway": "db", "durward.dev/delete-reason": "move", "durward.dev/delete-until": "2026-11-21T18:00:00Z"}));
    assert_text(&stored(&broken, &yaml(), &deleted_statefulset(|_| {})).await, "allow", "is not checked");
    let half = annotated(json!({"durward.dev/delete-anyway": "db"}));
    let text_of = stored(&half, &yaml(), &deleted_statefulset(|_| {})).await;
    assert_eq!(verdict_of(&text_of), "deny");
    let warned: Vec<&str> = text_of.warnings.iter().collect();
    assert!(
        warned.iter().any(|one| one.contains("namespace \"db\"") && one.contains("delete-reason is missing")),
        "{warned:?}"
    );
}

#[tokio::test]
async fn pvcs_that_are_deleted_with_pods_are_warned_about_or_denied() {
    let kept = |set: &mut Value, when: &str| {
        set["spec"]["persistentVolumeClaimRetentionPolicy"] = json!({when: "Delete"});
    };
    let terminating = || deleted_statefulset(|r| kept(&mut r["oldObject"], "whenDeleted"));
    let shrinking = |after: u64| {
        let (mut new, mut old) = (set(after), set(5));
        kept(&mut new, "whenScaled");
        kept(&mut old, "whenScaled");
        body("UPDATE", "apps", "statefulsets", &new, &old, |_| {})
    };
    let orphan = deleted_statefulset(|r| {
        kept(&mut r["oldObject"], "whenDeleted");
        r["options"] = json!({"propagationPolicy": "Orphan"});
    });
    let empty = deleted_statefulset(|r| {
        kept(&mut r["oldObject"], "whenDeleted");
        r["oldObject"]["spec"]["replicas"] = 0.into();
    });
    let (fake, warns) = (fake(), yaml());
    assert_text(&stored(&fake, &warns, &shrinking(4)).await, "allow", "whenScaled: Delete");
    assert_text(&stored(&fake, &warns, &scaled(5, 4)).await, "allow", "");
    assert_text(&stored(&fake, &warns, &empty).await, "allow", "its PVCs would be deleted with it");
    assert_text(&stored(&fake, &warns, &orphan).await, "allow", "");
    assert_text(
        &stored(&fake, &warns, &terminating()).await,
        "deny",
        "its 3 etcd members would be deleted with it",
    );
}

#[tokio::test]
async fn deleting_the_pvc_of_a_member_or_a_pdb_over_members_is_denied() {
    let (fake, yaml) = (fake(), yaml());
    let pvc = |name: &str| {
        let pvc = json!({"metadata": {"name": name, "namespace": "db", "uid": "uid-pvc"}});
        body("DELETE", "", "persistentvolumeclaims", &Value::Null, &pvc, |_| {})
    };
    assert_text(
        &stored(&fake, &yaml, &pvc("data-etcd-1")).await,
        "deny",
        "it holds the data of etcd member etcd-1",
    );
    assert_text(&stored(&fake, &yaml, &pvc("data-web-0")).await, "allow", "");
    let pdb = |selector: Value| {
        let pdb = json!({"metadata": {"name": "etcd", "namespace": "db", "uid": "uid-pdb"}, "spec": {"selector": selector}});
        body("DELETE", "policy", "poddisruptionbudgets", &Value::Null, &pdb, |_| {})
    };
    assert_text(
        &stored(&fake, &yaml, &pdb(json!({"matchLabels": {"app": "etcd"}}))).await,
        "deny",
        "3 etcd members from evictions",
    );
    assert_text(&stored(&fake, &yaml, &pdb(json!({"matchLabels": {"app": "web"}}))).await, "allow", "");
    assert_text(
        &stored(&fake, &yaml, &pdb(json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]})))
            .await,
        "deny",
        "",
    );
    fake.mark_deleted("etcd-1");
    assert_text(&stored(&fake, &yaml, &pvc("data-etcd-1")).await, "allow", "");
    fake.state().pods[2]["status"]["phase"] = "Succeeded".into();
    assert_text(&stored(&fake, &yaml, &pvc("data-etcd-2")).await, "allow", "");
}

#[tokio::test]
async fn a_namespace_teardown_and_unconfigured_objects_are_allowed() {
    let terminating = fake().with(|s| {
        s.others.get_mut(&("namespaces", "db".to_owned())).unwrap()["metadata"]["deletionTimestamp"] =
            "x".into();
    });
    assert_text(&stored(&terminating, &yaml(), &deleted_statefulset(|_| {})).await, "allow", "");
    assert_text(&stored(&fake(), LEAST, &deleted_statefulset(|_| {})).await, "allow", "");
    let unreadable = fake().with_error("namespaces");
    let text_of = stored(&unreadable, &yaml(), &deleted_statefulset(|_| {})).await;
    assert_text(&text_of, "unknown", "");
    let refusal = text_of.ruling.refusal.unwrap().message;
    assert!(refusal.starts_with("cannot check etcd quorum for StatefulSet db/etcd"), "{refusal}");
    assert!(refusal.contains("durward manifests -c durward.yaml --only rbac"), "{refusal}");
    assert!(refusal.contains("kubectl annotate -n db statefulset etcd"), "{refusal}");
}

#[tokio::test]
async fn adding_an_owner_is_reviewed_like_a_deletion() {
    let owned_set = |old: &Value| {
        let mut new = old.clone();
        new["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "uid-x"}]);
        new
    };
    let owned = |old: &Value, user: &str| {
        let user = user.to_owned();
        body("UPDATE", "apps", "statefulsets", &owned_set(old), old, |r| {
            r["userInfo"]["username"] = user.into();
        })
    };
    let yaml = yaml();
    let ruling = stored(&fake(), &yaml, &owned(&set(3), "ann")).await;
    assert_text(&ruling, "deny", "adding an owner to StatefulSet db/etcd can delete it: its 3 etcd members");
    assert_text(&ruling, "deny", "Override, then repeat the change: kubectl annotate -n db statefulset etcd");
    let by_status = body("UPDATE", "apps", "statefulsets", &owned_set(&set(3)), &set(3), |r| {
        r["subResource"] = "status".into();
    });
    assert_text(&review(&fake().guard(&yaml), &by_status).await, "deny", "adding an owner to StatefulSet");
    assert_text(
        &stored(&fake(), &yaml, &owned(&set(3), CONTROLLER)).await,
        "allow",
        "would be deleted with it",
    );
    // It keeps or loses an owner, or has no members.
    let mut kept = set(3);
    kept["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "uid-x"}]);
    assert_text(&stored(&fake(), &yaml, &owned(&kept, "ann")).await, "allow", "");
    let mut renamed = kept.clone();
    renamed["metadata"]["ownerReferences"][0]["name"] = "gone".into();
    let renamed = body("UPDATE", "apps", "statefulsets", &renamed, &kept, |_| {});
    assert_text(&stored(&fake(), &yaml, &renamed).await, "deny", "adding an owner");
    let lost = body("UPDATE", "apps", "statefulsets", &set(3), &kept, |_| {});
    assert_text(&stored(&fake(), &yaml, &lost).await, "allow", "");
    assert_text(&stored(&fake(), &yaml, &owned(&set(0), "ann")).await, "allow", "");
    // Not configured.
    assert_text(
        &stored(&fake(), &format!("alsoProtect: [scale]\n{LEAST}"), &owned(&set(3), "ann")).await,
        "allow",
        "",
    );
    // A scale in the same update is still denied.
    let mut scaled = kept.clone();
    scaled["spec"]["replicas"] = 1.into();
    let both = body("UPDATE", "apps", "statefulsets", &scaled, &kept, |_| {});
    assert_text(&stored(&fake(), &yaml, &both).await, "deny", "1 of its 3 etcd members would be left");
}

#[tokio::test]
async fn an_object_that_the_api_server_does_not_have_is_unknown_and_no_pod_is_named() {
    let pvc = json!({"metadata": {"name": "data-etcd-1", "namespace": "db", "uid": "guessed"}});
    let forged = body("DELETE", "", "persistentvolumeclaims", &Value::Null, &pvc, |_| {});
    let ruling = review(&fake().guard(&yaml()), &forged).await;
    assert_text(&ruling, "unknown", "the cluster that Durward reads does not have this PVC");
    assert!(!text_of(&ruling).contains("member etcd-1"), "{}", text_of(&ruling));
    let fake = fake();
    let mut other = set(3);
    other["metadata"]["uid"] = "guessed".into();
    let forged = body("UPDATE", "apps", "statefulsets", &set(1), &other, |_| {});
    assert_text(&review(&fake.guard(&yaml()), &forged).await, "unknown", "does not have this StatefulSet");
    assert_eq!(fake.activity(), (0, 0));
}
