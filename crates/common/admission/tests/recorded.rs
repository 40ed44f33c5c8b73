//! Decodes reviews that were recorded from an API server.

#![allow(clippy::panic, reason = "a test fails by it")]

use admission::{Fields, Operation, Request, Shape, decode};

/// Decodes a recorded review and passes its request to `check`.
fn recorded(name: &str, check: impl FnOnce(&Request<'_>)) {
    let path = format!("{}/tests/reviews/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let body = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let fields = Fields::new(&["/metadata/labels", "/spec"]);
    check(&decode(&body, &fields).unwrap_or_else(|error| panic!("{path}: {error}")).request);
}

#[test]
fn a_pod_of_a_deployment_has_its_generated_name() {
    recorded("create-pod-from-deployment", |request| {
        assert_eq!(request.operation, Operation::Create);
        assert_eq!((request.name.as_ref(), request.namespace.as_ref()), ("web-7785b5c947-294np", "s"));
        assert_eq!(request.user.name, "system:serviceaccount:kube-system:replicaset-controller");
        assert!(request.user.is_in("system:serviceaccounts:kube-system"));
        let pod = request.object.unwrap();
        assert_eq!(pod.field(0_usize).unwrap().shape(), Shape::Object);
        assert!(pod.field(1_usize).is_some() && request.old_object.is_none() && !request.dry_run);
    });
}

#[test]
fn recognizes_every_form_of_a_dry_run() {
    for name in [
        "create-pods-eviction-kubectl-drain-dryrun-server",
        "create-pods-eviction-query-dryrun",
        "delete-namespace-dryrun",
        "delete-pod-dryrun",
    ] {
        recorded(name, |request| assert!(request.dry_run, "{name}"));
    }
    for name in ["create-pods-eviction", "delete-namespace", "deletecollection-pods"] {
        recorded(name, |request| assert!(!request.dry_run, "{name}"));
    }
}

#[test]
fn reads_the_name_of_a_deleted_namespace() {
    recorded("delete-namespace", |request| {
        assert!(request.is_for("", "namespaces") && request.operation == Operation::Delete);
        assert!(!request.name.is_empty());
        assert_eq!(request.namespace, request.name);
        assert!(request.object.is_none() && request.old_object.is_some());
    });
}

#[test]
fn takes_the_name_of_a_deletecollection_from_the_old_object() {
    for name in [
        "deletecollection-pods",
        "delete-pod-by-namespace-controller",
        "delete-configmap-by-namespace-controller",
    ] {
        recorded(name, |request| assert!(!request.name.is_empty() && request.object.is_none(), "{name}"));
    }
}

#[test]
fn distinguishes_subresources_from_their_resource() {
    recorded("update-statefulsets-scale", |request| {
        assert_eq!((request.subresource.as_ref(), request.kind.kind.as_ref()), ("scale", "Scale"));
        assert!(!request.is_for("apps", "statefulsets"));
        assert!(request.object.is_some() && request.old_object.is_some());
    });
    recorded("create-pods-eviction", |request| {
        assert_eq!(request.subresource, "eviction");
        assert_eq!(request.kind.group, "policy");
    });
    recorded("update-deployment-patch-replicas", |request| assert!(request.is_for("apps", "deployments")));
}
