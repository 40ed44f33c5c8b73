//! Updates of labels that take an object out of the guard are reviewed like its deletion.

use serde_json::Value;

use super::*;

/// Returns the review of an update of labels.
fn update(resource: &str, name: &str, subresource: &str, old: &Value, new: &Value) -> Vec<u8> {
    review(resource, name, |r| {
        r["operation"] = "UPDATE".into();
        r["subResource"] = subresource.into();
        r["oldObject"]["metadata"]["labels"] = old.clone();
        r["object"] = json!({"metadata": {"name": name, "uid": "7", "labels": new}});
    })
}

/// Returns a cluster whose only namespace or CRD has these labels.
fn stored(mut object: Object, labels: &Value) -> FakeCluster {
    object.uid = "7".to_owned();
    object.metadata.labels = serde_json::from_value(labels.clone()).unwrap();
    FakeCluster {
        objects: BTreeMap::from([(object.name.clone(), object)]),
        ..cluster_with(|query| {
            let is_used = ["pods", "widgets"].contains(&query.resource.plural.as_ref());
            let objects = if is_used { vec![super::object("a")] } else { vec![] };
            Ok(Page { objects, next: None })
        })
    }
}

async fn updated(yaml: &str, old: &Value, new: &Value) -> (Ruling, usize) {
    let fleet = Arc::new(FakeFleet::default().with(LOCAL, stored(object("shop"), old)));
    let ruling = answered(yaml, &fleet, update("namespaces", "shop", "", old, new)).await;
    let requests = fleet.requests.lock().unwrap().len();
    (ruling, requests)
}

#[tokio::test(start_paused = true)]
async fn removing_the_label_of_a_namespace_in_use_is_denied() {
    let guarded = json!({"durward.dev/guard": "deletion", "a": "b"});
    for new in [json!({"a": "b"}), json!({"durward.dev/guard": "off"}), json!(null)] {
        let (ruling, _) = updated("scope: labeled", &guarded, &new).await;
        assert_eq!(
            denial(&ruling).message,
            "changing label durward.dev/guard of namespace \"shop\" takes it out of the guard: it is still in use: 1 pod (a)\n\
             Next: delete it and retry. Full list: kubectl delete ns shop --dry-run=server\n\
             Override, then repeat the change: kubectl annotate ns shop durward.dev/delete-anyway=shop durward.dev/delete-reason='<reason>' durward.dev/delete-until=2026-11-21T12:00:00Z"
        );
    }
    for subresource in ["status", "finalize"] {
        let fleet = Arc::new(FakeFleet::default().with(LOCAL, stored(object("shop"), &guarded)));
        let body = update("namespaces", "shop", subresource, &guarded, &json!({}));
        assert!(
            matches!(answered("scope: labeled", &fleet, body).await.verdict, Verdict::Deny(_)),
            "{subresource}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn other_changes_of_labels_read_only_the_object() {
    let guarded = json!({"durward.dev/guard": "deletion"});
    for (old, new) in [
        (&guarded, json!({"durward.dev/guard": "deletion", "more": "1"})),
        (&json!({}), json!({"durward.dev/guard": "deletion"})),
        (&json!({"a": "b"}), json!({})),
    ] {
        let (ruling, requests) = updated("scope: labeled", old, &new).await;
        assert_eq!((ruling.verdict, requests), (Verdict::Allow, 1), "{new}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_not_in_use_can_leave() {
    let guarded = json!({"durward.dev/guard": "deletion"});
    let empty = FakeCluster { lists: None, ..stored(object("shop"), &guarded) };
    let fleet = Arc::new(FakeFleet::default().with(LOCAL, empty));
    let body = update("namespaces", "shop", "", &guarded, &json!({}));
    assert_eq!(answered("scope: labeled", &fleet, body).await.verdict, Verdict::Allow);
}

#[tokio::test(start_paused = true)]
async fn a_stored_override_lets_an_object_leave_and_one_in_the_change_does_not() {
    let guarded = json!({"durward.dev/guard": "deletion"});
    let annotations = json!({"durward.dev/delete-anyway": "shop", "durward.dev/delete-reason": "moved",
        "durward.dev/delete-until": "2026-11-21T18:00:00Z"});
    let mut local = stored(object("shop"), &guarded);
    local.objects.get_mut("shop").unwrap().metadata.annotations =
        serde_json::from_value(annotations.clone()).unwrap();
    let fleet = Arc::new(FakeFleet::default().with(LOCAL, local));
    let ruling =
        answered("scope: labeled", &fleet, update("namespaces", "shop", "", &guarded, &json!({}))).await;
    assert_eq!(ruling.verdict, Verdict::Allow);
    let warning = ruling.warnings.iter().next().unwrap();
    assert!(warning.contains("namespace \"shop\" leaves the guard without a check"), "{warning}");
    let fleet = Arc::new(FakeFleet::default().with(LOCAL, stored(object("shop"), &guarded)));
    let body = review("namespaces", "shop", |r| {
        r["operation"] = "UPDATE".into();
        r["oldObject"]["metadata"]["labels"] = guarded.clone();
        r["object"] = json!({"metadata": {"name": "shop", "uid": "7", "annotations": annotations}});
    });
    assert!(matches!(answered("scope: labeled", &fleet, body).await.verdict, Verdict::Deny(_)));
}

#[tokio::test(start_paused = true)]
async fn selectors_of_namespaces_keep_them_too() {
    let selected = "scope: all\nwebhook: {namespaceSelector: {matchLabels: {tier: prod}}}";
    let (ruling, _) = updated(selected, &json!({"tier": "prod"}), &json!({"tier": "dev"})).await;
    let message = &denial(&ruling).message;
    assert!(message.starts_with("changing label tier of namespace \"shop\" takes it out of the guard: it is still in use: 1 pod (a)\n"), "{message}");
    let (ruling, requests) = updated(selected, &json!({"free": "1"}), &json!({})).await;
    assert_eq!((ruling.verdict, requests), (Verdict::Allow, 1));
}

#[tokio::test(start_paused = true)]
async fn a_crd_keeps_its_label_while_it_has_objects() {
    let (yaml, guarded) =
        ("scope: labeled\ncrds: {apiGroups: [example.org]}", json!({"durward.dev/guard": "deletion"}));
    for subresource in ["", "status"] {
        let local = stored(crd_object(&[("v1", true, true)]), &guarded);
        let fleet = Arc::new(FakeFleet::default().with(LOCAL, local));
        let body = update("customresourcedefinitions", WIDGETS, subresource, &guarded, &json!({}));
        let ruling = answered(yaml, &fleet, body).await;
        let message = &denial(&ruling).message;
        assert!(message.starts_with("changing label durward.dev/guard of CRD \"widgets.example.org\" takes it out of the guard: it is still in use: 1 object (a)\n"), "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_update_that_cannot_be_checked_is_unknown() {
    let guarded = json!({"durward.dev/guard": "deletion"});
    let failing = FakeCluster {
        lists: Some(Box::new(|_| Err(Cause::new(cause::TIMEOUT, "no answer")))),
        ..stored(object("shop"), &guarded)
    };
    let fleet = Arc::new(FakeFleet::default().with(LOCAL, failing));
    let ruling =
        answered("scope: labeled", &fleet, update("namespaces", "shop", "", &guarded, &json!({}))).await;
    assert_eq!(code(&ruling), cause::TIMEOUT);
    let message = &denial(&ruling).message;
    assert!(message.starts_with("changing label durward.dev/guard of namespace \"shop\" takes it out of the guard: cannot tell whether it is in use: this cluster could not be checked (no answer"), "{message}");
    for broken in [json!(null), json!(7), json!({"metadata": {"labels": 7}})] {
        let fleet = Arc::new(FakeFleet::default());
        let body = review("namespaces", "shop", |r| {
            r["operation"] = "UPDATE".into();
            r["object"] = broken;
        });
        assert_eq!(code(&answered("scope: labeled", &fleet, body).await), cause::GARBAGE);
    }
}
