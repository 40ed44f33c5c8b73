//! One level up: sets, claims and budgets.

use serde_json::{Value, json};

use super::super::fixture::LEAST;
use super::fake::{Fake, ruled, told};
use super::{CONTROLLER, says};

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
            "1 of its 3 members would be left, and 2 are a quorum",
        );
        says(&ruled(&door, &scaled(3, 0)).await, "deny", "none of its 3 members would be left");
        says(&ruled(&door, &scaled(5, 2)).await, "deny", "3 are a quorum");
        for (before, after) in [(3, 2), (3, 3), (3, 5), (0, 3), (5, 3)] {
            says(&ruled(&door, &scaled(before, after)).await, "allow", "");
        }
    }
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
    says(&ruled(&blind.door(&yaml()), &gone(|_| {})).await, "unknown", "Unknown");
}
