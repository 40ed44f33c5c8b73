//! Each policy with objects that it denies, and with normal life.

use serde_json::{Value, json};

use super::super::fixture::{config, pod};
use crate::native_policy::NativePolicy;
use crate::native_policy::evaluate::AskedRequest;

const SETS: &str = "clusters: [{namespace: db, selector: app=etcd}]\nprotectStatefulSets: true";

fn policies(yaml: &str) -> Vec<NativePolicy> {
    super::policies(&config(yaml))
}

fn set(replicas: u64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"namespace": "db", "name": "etcd", "uid": "s"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "etcd"}}, "serviceName": "etcd",
            "template": {"metadata": {"labels": {"app": "etcd"}}, "spec": {"containers": [{"name": "etcd", "image": "etcd:3.5.16"}]}}},
        "status": {"replicas": replicas}
    })
}

fn scale(replicas: Option<u64>, selector: &str) -> Value {
    let spec = replicas.map_or_else(|| json!({}), |replicas| json!({"replicas": replicas}));
    json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"namespace": "db", "name": "etcd", "uid": "s"},
        "spec": spec, "status": {"replicas": 3, "selector": selector}
    })
}

fn pvc(labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"namespace": "db", "name": "data-etcd-0", "uid": "p", "labels": labels}, "spec": {}})
}

fn owner(kind: &str) -> Value {
    json!([{"apiVersion": "v1", "kind": kind, "name": "x", "uid": "7"}])
}

/// Expects one denial with these words.
fn is_denied(asked: &AskedRequest, policies: &[NativePolicy], words: &[&str]) {
    let answers = asked.answers(policies);
    assert_eq!(answers.len(), 1, "{answers:?}");
    for word in words {
        assert!(answers[0].contains(word), "{word}: {}", answers[0]);
    }
}

fn changed(change: impl FnOnce(&mut Value)) -> AskedRequest {
    AskedRequest::update("Pod", &pod("etcd-0"), change)
}

#[test]
fn a_guarded_pod_keeps_labels_owner_images_and_deadline() {
    let all = policies("clusters: [{namespace: db, selector: app=etcd}]");
    let way_out = "Override: kubectl annotate -n db pod etcd-0 durward.dev/delete-anyway=etcd-0, repeat the request, then remove the annotation";
    let label = ["pod db/etcd-0: label app can't be changed", way_out];
    for value in [Value::Null, json!("web")] {
        let value = || value.clone();
        is_denied(&changed(|pod| pod["metadata"]["labels"]["app"] = json!("web")), &all, &label);
        let without = changed(|pod| {
            let labels = pod["metadata"]["labels"].as_object_mut().unwrap();
            labels.remove("app");
            labels.extend([("x".to_owned(), value())].into_iter().filter(|(_, value)| !value.is_null()));
        });
        is_denied(&without, &all, &label);
    }
    is_denied(
        &changed(|pod| drop(pod["metadata"].as_object_mut().unwrap().remove("labels"))).sub("status"),
        &all,
        &label,
    );
    let owners: [fn(&mut Value); 4] = [
        |pod| pod["metadata"]["ownerReferences"][0]["uid"] = "other".into(),
        |pod| pod["metadata"]["ownerReferences"][0]["controller"] = false.into(),
        |pod| drop(pod["metadata"].as_object_mut().unwrap().remove("ownerReferences")),
        |pod| {
            pod["metadata"]["ownerReferences"]
                .as_array_mut()
                .unwrap()
                .extend(owner("ConfigMap").as_array().unwrap().clone());
        },
    ];
    for change in owners {
        is_denied(&changed(change), &all, &["pod db/etcd-0: the owner of a pod", way_out]);
    }
    let image = changed(|pod| pod["spec"]["containers"][0]["image"] = "other:1".into());
    is_denied(&image, &all, &["an image of a pod", "change the template"]);
    is_denied(
        &changed(|pod| pod["spec"]["activeDeadlineSeconds"] = 1.into()),
        &all,
        &["activeDeadlineSeconds"],
    );
}

#[test]
fn other_changes_of_pods_pass() {
    let all = policies("clusters: [{namespace: db, selector: app=etcd}]");
    let changes: [fn(&mut Value); 6] = [
        |_| {},
        |pod| pod["metadata"]["ownerReferences"][0]["apiVersion"] = "apps/v2".into(),
        |pod| pod["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = true.into(),
        |pod| pod["metadata"]["labels"]["tier"] = "db".into(),
        |pod| pod["metadata"]["annotations"] = json!({"note": "x"}),
        |pod| pod["status"]["phase"] = "Failed".into(),
    ];
    for change in changes {
        assert!(changed(change).is_allowed(&all) && changed(change).sub("status").is_allowed(&all));
    }
    // A pod enters the guard, or was never in it.
    let other = |labels: Value| {
        let mut pod = pod("web-0");
        pod["metadata"]["labels"] = labels;
        pod
    };
    for labels in [json!({"app": "web"}), Value::Null] {
        let pod = other(labels);
        assert!(
            AskedRequest::update("Pod", &pod, |pod| pod["metadata"]["labels"] = json!({"app": "etcd"}))
                .is_allowed(&all)
        );
        assert!(
            AskedRequest::update("Pod", &pod, |pod| pod["spec"]["containers"][0]["image"] = "x:1".into())
                .is_allowed(&all)
        );
    }
    // A pod without any optional field.
    let least =
        json!({"metadata": {"namespace": "db", "name": "x"}, "spec": {"containers": [{"name": "a"}]}});
    assert!(AskedRequest::update("Pod", &least, |_| {}).is_allowed(&all));
    let mut elsewhere = pod("etcd-0");
    elsewhere["metadata"]["namespace"] = "other".into();
    assert!(
        AskedRequest::update("Pod", &elsewhere, |pod| pod["metadata"]["labels"] = json!({})).is_allowed(&all)
    );
}

#[test]
fn the_settings_of_the_guard_hold() {
    let leaves = |yaml: &str| {
        let yaml = format!("clusters: [{{namespace: db, selector: app=etcd}}]\n{yaml}");
        (changed(|pod| pod["metadata"]["labels"] = json!({})), policies(&yaml))
    };
    let (asked, all) = leaves(
        "exempt: {users: [bob, \"x*\"], groups: [ops], serviceAccounts: [\"ci/*\"]}\ncontrollerUsers: [\"system:serviceaccount:operators:*\"]",
    );
    is_denied(&asked, &all, &["label app"]);
    for user in [
        "bob",
        "x.1",
        "system:serviceaccount:ci:runner",
        "system:serviceaccount:operators:etcd",
        "system:serviceaccount:kube-system:statefulset-controller",
        "system:kube-controller-manager",
        "system:kube-scheduler",
    ] {
        assert!(leaves("").0.by(user).is_allowed(&all), "{user}");
    }
    assert!(leaves("").0.in_groups(&["system:authenticated", "ops"]).is_allowed(&all));
    is_denied(&leaves("").0.by("system:serviceaccount:cix:runner"), &all, &["label app"]);

    let (asked, all) = leaves("exempt: {namespaces: [\"d*\"]}");
    assert!(asked.is_allowed(&all));
    let (asked, all) = leaves("mode: audit");
    assert!(asked.answers(&all)[0].starts_with("warning: pod db/etcd-0"));

    let annotated = |key: &str, value: &str| {
        let mut pod = pod("etcd-0");
        pod["metadata"]["annotations"] = json!({key: value});
        AskedRequest::update("Pod", &pod, |pod| pod["metadata"]["labels"] = json!({}))
    };
    let (asked, all) = leaves("");
    assert!(annotated("durward.dev/delete-anyway", "etcd-0").is_allowed(&all));
    assert!(annotated("durward.dev/break-glass", "etcd-0").with_verb().is_allowed(&all));
    for asked in [
        annotated("durward.dev/delete-anyway", "etcd-1"),
        annotated("durward.dev/break-glass", "etcd-0"),
        annotated("durward.dev/break-glass", "").with_verb(),
        asked.with_verb(),
    ] {
        assert!(!asked.is_allowed(&all));
    }
    let (asked, all) = leaves("overrides: permission");
    is_denied(
        &asked,
        &all,
        &[
            "Override (needs the verb break-glass on guards.durward.dev/etcd): kubectl annotate -n db pod etcd-0 durward.dev/break-glass=etcd-0",
        ],
    );
    assert!(!annotated("durward.dev/delete-anyway", "etcd-0").is_allowed(&all));

    // Without the webhook configuration, nothing is denied.
    assert!(leaves("").0.unregistered().is_allowed(&all));
    let mut deleting = pod("etcd-0");
    deleting["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z".into();
    assert!(
        AskedRequest::update("Pod", &deleting, |pod| pod["metadata"]["labels"] = json!({})).is_allowed(&all)
    );
}

#[test]
fn labels_of_namespaces_select_too() {
    let yaml = "clusters:\n- {namespaceSelector: {matchLabels: {tenant: \"true\"}}, selector: \"app in (etcd)\"}\n- {namespace: fixed, selector: x}\nwebhook: {namespaceSelector: {matchExpressions: [{key: off, operator: DoesNotExist}]}}";
    let all = policies(yaml);
    let leaves = || changed(|pod| pod["metadata"]["labels"] = json!({}));
    assert!(leaves().is_allowed(&all));
    is_denied(&leaves().in_labeled(json!({"tenant": "true"})), &all, &["labels app, x"]);
    assert!(leaves().in_labeled(json!({"tenant": "true", "off": ""})).is_allowed(&all));

    let namespace = |labels: &Value| json!({"metadata": {"name": "db", "labels": labels}});
    let change = |before: Value, after: Value| {
        AskedRequest::update("Namespace", &namespace(&before), |namespace| {
            namespace["metadata"]["labels"] = after;
        })
    };
    let tenant = || json!({"tenant": "true"});
    for (before, after, is_allowed) in [
        (tenant(), json!({}), false),
        (tenant(), Value::Null, false),
        (tenant(), json!({"tenant": "true", "off": ""}), false),
        (tenant(), json!({"tenant": "true", "other": ""}), true),
        (json!({}), tenant(), true),
        (Value::Null, Value::Null, true),
        (json!({"tenant": "true", "off": ""}), json!({}), true),
    ] {
        for subresource in ["", "status", "finalize"] {
            let asked = change(before.clone(), after.clone()).sub(subresource);
            assert_eq!(asked.is_allowed(&all), is_allowed, "{before} {after}");
        }
    }
    is_denied(
        &change(tenant(), json!({})),
        &all,
        &[
            "namespace db: label off, tenant can't be changed",
            "kubectl annotate namespace db durward.dev/delete-anyway=db",
        ],
    );
    let fixed = json!({"metadata": {"name": "fixed"}});
    let turned_off = AskedRequest::update("Namespace", &fixed, |namespace| {
        namespace["metadata"]["labels"] = json!({"off": ""});
    });
    is_denied(&turned_off, &all, &["namespace fixed"]);
    // No label selects a namespace by default.
    let purposes = |yaml: &str| policies(yaml).iter().map(|policy| policy.purpose).collect::<Vec<_>>();
    assert_eq!(
        purposes("clusters: [{namespace: db, selector: app=etcd}]"),
        ["etcd-pods", "install-namespace"]
    );
    assert_eq!(purposes(SETS), ["etcd-pods", "etcd-sets", "install-namespace"]);
    assert_eq!(purposes("clusters: []"), [""; 0]);
}

#[test]
fn a_set_is_not_deleted_scaled_down_or_given_an_owner() {
    let all = policies(SETS);
    let delete =
        |options: Value, replicas| AskedRequest::delete("StatefulSet", set(replicas)).with_options(options);
    for options in [
        Value::Null,
        json!({}),
        json!({"propagationPolicy": "Foreground"}),
        json!({"orphanDependents": false}),
    ] {
        is_denied(
            &delete(options, 3),
            &all,
            &["StatefulSet db/etcd: ", "--cascade=orphan", "kubectl annotate -n db statefulset etcd"],
        );
    }
    for options in [json!({"propagationPolicy": "Orphan"}), json!({"orphanDependents": true})] {
        assert!(delete(options, 3).is_allowed(&all));
    }
    assert!(delete(Value::Null, 0).is_allowed(&all));
    // A second deletion can't end the orphaning of the first one.
    let mut orphaning = set(3);
    orphaning["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z".into();
    assert!(!AskedRequest::delete("StatefulSet", orphaning).is_allowed(&all));

    let to = |before: u64, after: u64| {
        AskedRequest::update("StatefulSet", &set(before), |set| set["spec"]["replicas"] = after.into())
    };
    is_denied(&to(3, 2), &all, &["can't be scaled down", "etcdctl member remove"]);
    assert!(to(3, 5).is_allowed(&all) && to(3, 3).is_allowed(&all));
    let scaled = |before, after, selector| {
        AskedRequest::update("StatefulSet", &scale(before, selector), |scale: &mut Value| {
            *scale = self::scale(after, selector);
        })
        .sub("scale")
    };
    is_denied(
        &scaled(Some(3), Some(1), "app=etcd,x=y"),
        &all,
        &["annotate the StatefulSet, patch its spec.replicas, then remove the annotation"],
    );
    is_denied(&scaled(Some(3), None, "app=etcd"), &all, &["can't be scaled down"]);
    for (before, after, selector) in [
        (Some(3), Some(5), "app=etcd"),
        (None, Some(1), "app=etcd"),
        (Some(3), Some(1), "app=web"),
        (Some(3), Some(1), ""),
    ] {
        assert!(scaled(before, after, selector).is_allowed(&all), "{selector}");
    }
    let restart = AskedRequest::update("StatefulSet", &set(3), |set| {
        set["spec"]["template"]["metadata"]["annotations"] = json!({"restartedAt": "x"});
    });
    assert!(restart.is_allowed(&all));

    let owned = |kind: &str| {
        AskedRequest::update("StatefulSet", &set(3), |set| set["metadata"]["ownerReferences"] = owner(kind))
    };
    let created = |kind: &str| {
        let mut set = set(3);
        set["metadata"]["ownerReferences"] = owner(kind);
        set["metadata"].as_object_mut().unwrap().remove("uid");
        AskedRequest::create("StatefulSet", set)
    };
    for asked in [owned("ConfigMap"), created("ConfigMap")] {
        is_denied(&asked, &all, &["StatefulSet db/etcd: an owner reference", "guards.etcd.trustedOwners"]);
    }
    let trusting = policies(&format!("{SETS}\ntrustedOwners: [EtcdCluster]"));
    assert!(owned("EtcdCluster").is_allowed(&trusting) && created("EtcdCluster").is_allowed(&trusting));
    let mut kept = set(3);
    kept["metadata"]["ownerReferences"] = owner("ConfigMap");
    assert!(
        AskedRequest::update("StatefulSet", &kept, |set| set["metadata"]["labels"] = json!({"a": "b"}))
            .is_allowed(&all)
    );
    // An operator with a new version of its API.
    let renewed =
        |set: &mut Value| set["metadata"]["ownerReferences"][0]["apiVersion"] = "example.org/v1".into();
    assert!(AskedRequest::update("StatefulSet", &kept, renewed).is_allowed(&all));
    let web = json!({"metadata": {"namespace": "db", "generateName": "web-", "ownerReferences": owner("ConfigMap")},
        "spec": {"template": {"metadata": {"labels": {"app": "web"}}}}});
    assert!(AskedRequest::create("StatefulSet", web.clone()).is_allowed(&all));
    assert!(
        AskedRequest::delete(
            "StatefulSet",
            json!({"metadata": {"namespace": "db", "name": "web"}, "spec": {"template": {}}})
        )
        .is_allowed(&all)
    );
}

#[test]
fn a_pvc_of_a_member_is_not_deleted() {
    let all = policies(SETS);
    let etcd = pvc(&json!({"app": "etcd"}));
    is_denied(
        &AskedRequest::delete("PersistentVolumeClaim", etcd.clone()),
        &all,
        &["PVC db/data-etcd-0: ", "kubectl annotate -n db pvc data-etcd-0"],
    );
    let owned = |object: &mut Value| object["metadata"]["ownerReferences"] = owner("ConfigMap");
    is_denied(
        &AskedRequest::update("PersistentVolumeClaim", &etcd, owned),
        &all,
        &["PVC db/data-etcd-0: an owner"],
    );
    let by_controller = AskedRequest::update("PersistentVolumeClaim", &etcd, owned);
    assert!(by_controller.by("system:serviceaccount:kube-system:statefulset-controller").is_allowed(&all));
    assert!(
        AskedRequest::update("PersistentVolumeClaim", &etcd, |pvc| pvc["status"] = json!({"phase": "Bound"}))
            .sub("status")
            .is_allowed(&all)
    );
    assert!(AskedRequest::delete("PersistentVolumeClaim", pvc(&Value::Null)).is_allowed(&all));
    assert!(AskedRequest::delete("PersistentVolumeClaim", pvc(&json!({"app": "web"}))).is_allowed(&all));
    // A PVC with a generated name.
    let unnamed = json!({"metadata": {"namespace": "db", "generateName": "data-", "labels": {"app": "etcd"}}, "spec": {}});
    assert!(AskedRequest::create("PersistentVolumeClaim", unnamed).is_allowed(&all));
}

#[test]
fn the_namespace_of_durward_is_not_deleted() {
    let all = policies("clusters: [{namespace: db, selector: app=etcd}]");
    let home = || json!({"metadata": {"name": "durward-system"}});
    is_denied(
        &AskedRequest::delete("Namespace", home()),
        &all,
        &[
            "namespace durward-system contains Durward",
            "helm uninstall durward -n durward-system",
            "kubectl delete validatingwebhookconfiguration durward",
            "kubectl annotate namespace durward-system durward.dev/delete-anyway=durward-system",
        ],
    );
    assert!(AskedRequest::delete("Namespace", home()).unregistered().is_allowed(&all));
    assert!(AskedRequest::delete("Namespace", json!({"metadata": {"name": "shop"}})).is_allowed(&all));
    let mut annotated = home();
    annotated["metadata"]["annotations"] = json!({"durward.dev/delete-anyway": "durward-system"});
    assert!(AskedRequest::delete("Namespace", annotated).is_allowed(&all));
}
