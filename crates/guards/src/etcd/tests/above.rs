//! One level up: sets, claims and budgets.

use serde_json::{Value, json};

use super::super::fixture::LEAST;
use super::fake::{Fake, Reply, ruled, told};
use super::{CONTROLLER, says};
use cluster::cause;

const ALL: &str = "alsoGuard: [scale, statefulsets, persistentvolumeclaims, poddisruptionbudgets]";

fn yaml() -> String {
    format!("{ALL}\n{LEAST}")
}

fn set(replicas: u64) -> Value {
    json!({"metadata": {"name": "etcd", "namespace": "db", "uid": "uid-etcd"}, "spec": {"replicas": replicas,
        "template": {"metadata": {"labels": {"app": "etcd"}}, "spec": {"containers": [{"name": "etcd", "image": "etcd:3"}]}}}})
}

fn review(
    operation: &str,
    group: &str,
    resource: &str,
    object: &Value,
    old: &Value,
    change: impl FnOnce(&mut Value),
) -> Vec<u8> {
    let mut review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "operation": operation, "name": old["metadata"]["name"], "namespace": "db", "userInfo": {"username": "ann"},
        "kind": {"group": group, "version": "v1", "kind": "X"},
        "resource": {"group": group, "version": "v1", "resource": resource}, "object": object, "oldObject": old}});
    change(&mut review["request"]);
    review.to_string().into_bytes()
}

fn scaled(before: u64, after: u64) -> Vec<u8> {
    review("UPDATE", "apps", "statefulsets", &set(after), &set(before), |_| {})
}

fn scaled_by_subresource(before: u64, after: u64) -> Vec<u8> {
    let scale = |replicas: u64| json!({"metadata": {"name": "etcd", "namespace": "db"}, "spec": {"replicas": replicas}});
    review("UPDATE", "apps", "statefulsets", &scale(after), &scale(before), |r| {
        r["subResource"] = "scale".into();
    })
}

fn gone(change: impl FnOnce(&mut Value)) -> Vec<u8> {
    review("DELETE", "apps", "statefulsets", &Value::Null, &set(3), change)
}

fn fake() -> Fake {
    Fake::of(3).with(|s| drop(s.others.insert(("statefulsets", "etcd".to_owned()), set(3))))
}

#[tokio::test]
async fn a_set_is_not_scaled_below_the_quorum_of_what_it_has() {
    let door = fake().door(&yaml());
    for scaled in [scaled, scaled_by_subresource] {
        says(
            &ruled(&door, &scaled(3, 1)).await,
            "deny",
            "cannot be scaled like that: 1 of its 3 members would be left, and 2 of the 3 that vote are a quorum; take others out of the ensemble first",
        );
        says(&ruled(&door, &scaled(3, 0)).await, "deny", "none of its 3 members would be left");
        says(&ruled(&door, &scaled(5, 1)).await, "deny", "2 of the 3 that vote are a quorum");
        for (before, after) in [(3, 2), (3, 3), (3, 5), (0, 3), (5, 3)] {
            says(&ruled(&door, &scaled(before, after)).await, "allow", "");
        }
    }
    // To take it down is refused only where that is refused by every way.
    let alone = fake().door(&format!("alsoGuard: [scale]\n{LEAST}"));
    let down = ruled(&alone, &scaled(3, 0)).await;
    says(&down, "allow", "none of its 3 members would be left");
    let controller = review("UPDATE", "apps", "statefulsets", &set(0), &set(3), |r| {
        r["userInfo"]["username"] = CONTROLLER.into();
    });
    says(&ruled(&door, &controller).await, "allow", "none of its 3 members would be left");
}

#[tokio::test]
async fn a_set_with_members_is_not_deleted_unless_it_leaves_them() {
    let door = fake().door(&yaml());
    says(&ruled(&door, &gone(|_| {})).await, "deny", "its 3 members go with it");
    // Nobody is sent to what is refused as well.
    assert!(!told(&ruled(&door, &gone(|_| {})).await).contains("scale it to 0"));
    let alone = fake().door(&format!("alsoGuard: [statefulsets]\n{LEAST}"));
    says(&ruled(&alone, &gone(|_| {})).await, "deny", "or scale it to 0 where that is meant");
    says(&ruled(&door, &gone(|r| r["options"] = json!({"propagationPolicy": "Orphan"}))).await, "allow", "");
    says(&ruled(&door, &gone(|r| r["oldObject"]["spec"]["replicas"] = 0.into())).await, "allow", "");
    says(
        &ruled(&door, &gone(|r| r["oldObject"]["metadata"]["deletionTimestamp"] = "x".into())).await,
        "allow",
        "",
    );
    says(
        &ruled(&door, &gone(|r| r["oldObject"]["spec"]["template"]["metadata"]["labels"] = json!({}))).await,
        "allow",
        "",
    );
    let broken = gone(|r| {
        r["oldObject"]["metadata"]["annotations"] = json!({
        "durward.dev/delete-anyway": "etcd", "durward.dev/delete-reason": "move", "durward.dev/delete-until": "2026-11-21T18:00:00Z"});
    });
    says(&ruled(&door, &broken).await, "allow", "passes unchecked");
}

#[tokio::test]
async fn who_was_taken_out_of_the_ensemble_before_is_not_missed_by_scaling() {
    // Three pods, of which etcd lists one.
    let removed = fake().with(|s| {
        for name in ["etcd-1", "etcd-2"] {
            let out = s.members.get_mut(name).unwrap();
            (out.cluster, out.reply) = (7, Reply::Silent(cause::NOT_LISTENING));
        }
    });
    says(&ruled(&removed.door(&yaml()), &scaled(3, 1)).await, "allow", "");
    let silent = fake().with(|s| {
        for one in s.members.values_mut() {
            one.reply = Reply::Silent(cause::TIMEOUT);
        }
    });
    let told = ruled(&silent.door(&yaml()), &scaled(3, 1)).await;
    says(&told, "deny", "whether others have left the ensemble before cannot be seen");
    let leaving = format!("{ALL}\nensembles: [{{namespace: db, selector: app=etcd, membership: removed}}]");
    says(&ruled(&silent.door(&leaving), &scaled(3, 1)).await, "allow", "");
    says(&ruled(&silent.door(&leaving), &scaled(3, 0)).await, "deny", "none of its 3 members");
}

#[tokio::test]
async fn a_scale_is_opened_by_what_stands_on_its_set() {
    let annotated = |annotations: Value| {
        fake().with(|s| {
            let set = s.others.get_mut(&("statefulsets", "etcd".to_owned())).unwrap();
            set["metadata"]["annotations"] = annotations;
        })
    };
    let whole = ruled(&fake().door(&yaml()), &scaled_by_subresource(3, 1)).await;
    says(
        &whole,
        "deny",
        "To scale in spite of all: kubectl -n db annotate statefulset etcd durward.dev/delete-anyway=etcd durward.dev/delete-reason='WHY'",
    );
    let half = annotated(json!({"durward.dev/delete-anyway": "etcd"}));
    let half = ruled(&half.door(&yaml()), &scaled_by_subresource(3, 1)).await;
    says(&half, "deny", "delete-reason is missing: say why");
    let broken = annotated(json!({
        "durward.dev/delete-anyway": "etcd", "durward.dev/delete-reason": "move", "durward.dev/delete-until": "2026-11-21T18:00:00Z"}));
    says(&ruled(&broken.door(&yaml()), &scaled_by_subresource(3, 1)).await, "allow", "passes unchecked");
    let by_verb = format!("breakGlass: verb\n{}", yaml());
    let told = ruled(&broken.door(&by_verb), &scaled_by_subresource(3, 1)).await;
    says(&told, "deny", "then kubectl -n db patch statefulset etcd -p '{\"spec\":{\"replicas\":1}}'");
    let going = fake().with(|s| {
        let set = s.others.get_mut(&("statefulsets", "etcd".to_owned())).unwrap();
        set["metadata"]["deletionTimestamp"] = "x".into();
    });
    says(&ruled(&going.door(&yaml()), &scaled_by_subresource(3, 1)).await, "allow", "");
}

#[tokio::test]
async fn a_namespace_opens_what_is_in_it_and_is_told_what_is_wrong_with_how_it_tries() {
    let annotated = |annotations: Value| {
        fake().with(|s| {
            s.others.get_mut(&("namespaces", "db".to_owned())).unwrap()["metadata"]["annotations"] =
                annotations;
        })
    };
    let broken = annotated(json!({
        "durward.dev/delete-anyway": "db", "durward.dev/delete-reason": "move", "durward.dev/delete-until": "2026-11-21T18:00:00Z"}));
    says(&ruled(&broken.door(&yaml()), &gone(|_| {})).await, "allow", "passes unchecked");
    let half = annotated(json!({"durward.dev/delete-anyway": "db"}));
    let told = ruled(&half.door(&yaml()), &gone(|_| {})).await;
    assert_eq!(super::fake::word(&told), "deny");
    let warned: Vec<&str> = told.warnings.iter().collect();
    assert!(
        warned.iter().any(|one| one.contains("namespace \"db\"") && one.contains("delete-reason is missing")),
        "{warned:?}"
    );
}

#[tokio::test]
async fn claims_that_go_with_pods_or_set_are_told_or_refused() {
    let kept = |set: &mut Value, when: &str| {
        set["spec"]["persistentVolumeClaimRetentionPolicy"] = json!({when: "Delete"});
    };
    let going = || gone(|r| kept(&mut r["oldObject"], "whenDeleted"));
    let shrinking = |after: u64| {
        let (mut new, mut old) = (set(after), set(5));
        kept(&mut new, "whenScaled");
        kept(&mut old, "whenScaled");
        review("UPDATE", "apps", "statefulsets", &new, &old, |_| {})
    };
    let orphan = gone(|r| {
        kept(&mut r["oldObject"], "whenDeleted");
        r["options"] = json!({"propagationPolicy": "Orphan"});
    });
    let empty = gone(|r| {
        kept(&mut r["oldObject"], "whenDeleted");
        r["oldObject"]["spec"]["replicas"] = 0.into();
    });
    let (warns, denies) = (fake().door(&yaml()), fake().door(&format!("dataSafety: deny\n{}", yaml())));
    says(&ruled(&warns, &shrinking(4)).await, "allow", "whenScaled: Delete");
    says(&ruled(&denies, &shrinking(4)).await, "deny", "whenScaled: Delete");
    says(&ruled(&denies, &scaled(5, 4)).await, "allow", "");
    says(&ruled(&warns, &empty).await, "allow", "its claims are deleted with it");
    says(&ruled(&denies, &empty).await, "deny", "its claims are deleted with it");
    says(&ruled(&denies, &orphan).await, "allow", "");
    says(&ruled(&warns, &going()).await, "deny", "its 3 members go with it");
}

#[tokio::test]
async fn the_claim_of_a_member_and_a_budget_over_members_stay() {
    let fake = fake();
    let door = fake.door(&yaml());
    let claim = |name: &str| {
        let claim = json!({"metadata": {"name": name, "namespace": "db"}});
        review("DELETE", "", "persistentvolumeclaims", &Value::Null, &claim, |_| {})
    };
    says(&ruled(&door, &claim("data-etcd-1")).await, "deny", "the data of the member etcd-1 is in it");
    says(&ruled(&door, &claim("data-web-0")).await, "allow", "");
    let budget = |selector: Value| {
        let budget = json!({"metadata": {"name": "etcd", "namespace": "db"}, "spec": {"selector": selector}});
        review("DELETE", "policy", "poddisruptionbudgets", &Value::Null, &budget, |_| {})
    };
    says(
        &ruled(&door, &budget(json!({"matchLabels": {"app": "etcd"}}))).await,
        "deny",
        "3 members from being evicted at once",
    );
    says(&ruled(&door, &budget(json!({"matchLabels": {"app": "web"}}))).await, "allow", "");
    says(
        &ruled(&door, &budget(json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]}))).await,
        "deny",
        "",
    );
    fake.mark("etcd-1");
    says(&ruled(&door, &claim("data-etcd-1")).await, "allow", "");
    fake.state().pods[2]["status"]["phase"] = "Succeeded".into();
    says(&ruled(&door, &claim("data-etcd-2")).await, "allow", "");
}

#[tokio::test]
async fn a_namespace_that_goes_takes_them_with_it_and_what_is_not_asked_for_is_let_alone() {
    let going = fake().with(|s| {
        s.others.get_mut(&("namespaces", "db".to_owned())).unwrap()["metadata"]["deletionTimestamp"] =
            "x".into();
    });
    says(&ruled(&going.door(&yaml()), &gone(|_| {})).await, "allow", "");
    says(&ruled(&fake().door(LEAST), &gone(|_| {})).await, "allow", "");
    let blind = fake().refusing("namespaces");
    let told = ruled(&blind.door(&yaml()), &gone(|_| {})).await;
    says(&told, "unknown", "");
    let refusal = told.refusal.unwrap().message;
    assert!(refusal.starts_with("statefulset \"db/etcd\" could not be checked: "), "{refusal}");
    assert!(refusal.contains("durward manifests --config durward.yaml --only rbac"), "{refusal}");
    assert!(refusal.contains("kubectl -n db annotate statefulset etcd"), "{refusal}");
}
