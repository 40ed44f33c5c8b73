//! Pods as the API server has them, and what is read of them.

use serde_json::json;

use super::*;

fn pod(spec: &Value, status: &Value) -> Pod {
    let pod = json!({"metadata": {"name": "etcd-0", "namespace": "db", "uid": "u"}, "spec": spec, "status": status});
    Pod::read(&pod.to_string(), 2379).unwrap()
}

#[test]
fn its_owner_is_the_statefulset_that_controls_it() {
    let owner = |reference: Value| {
        let pod = json!({"metadata": {"name": "a", "ownerReferences": [reference]}});
        Pod::read(&pod.to_string(), 2379).unwrap().owner.map(|owner| owner.name)
    };
    let of = |version: &str, kind: &str, controller: Value| {
        owner(
            json!({"apiVersion": version, "kind": kind, "name": "etcd", "uid": "7", "controller": controller}),
        )
    };
    assert_eq!(of("apps/v1", "StatefulSet", true.into()), Some("etcd".into()));
    assert_eq!(of("apps/v1", "StatefulSet", Value::Null), None);
    assert_eq!(of("apps/v1", "ReplicaSet", true.into()), None);
    assert_eq!(of("apps.kruise.io/v1", "StatefulSet", true.into()), None);
}

#[test]
fn etcd_is_down_only_where_its_own_container_is() {
    let spec = json!({"containers": [{"name": "etcd", "image": "quay.io/coreos/etcd:v3.5.16"}, {"name": "backup", "image": "x"}]});
    let with = |phase: &str, statuses: Value| {
        pod(&spec, &json!({"phase": phase, "containerStatuses": statuses})).etcd
    };
    let state = |name: &str, state: &str| json!({"name": name, "state": {state: {}}});
    assert_eq!(with("Running", json!([state("etcd", "running"), state("backup", "waiting")])), Etcd::Runs);
    assert_eq!(with("Running", json!([state("etcd", "waiting"), state("backup", "running")])), Etcd::Down);
    assert_eq!(with("Pending", json!([state("etcd", "running"), state("backup", "waiting")])), Etcd::Runs);
    assert_eq!(with("Pending", Value::Null), Etcd::Down);
    assert_eq!(with("Failed", Value::Null), Etcd::Ended);
    assert_eq!(with("Running", Value::Null), Etcd::Unsure);
    assert_eq!(with("Running", json!([{"name": "etcd", "state": {}}])), Etcd::Unsure);
    let unknown = json!({"containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "y"}]});
    let with = |a: &str, b: &str| {
        let statuses = json!([state("a", a), state("b", b)]);
        pod(&unknown, &json!({"phase": "Running", "containerStatuses": statuses})).etcd
    };
    let tool = json!({"containers": [{"name": "a", "image": "x", "command": ["etcdctl"]}]});
    let waits = json!({"phase": "Running", "containerStatuses": [state("a", "waiting")]});
    assert_eq!(pod(&tool, &waits).etcd, Etcd::Down);
    // Whichever of them it is.
    assert_eq!(with("waiting", "terminated"), Etcd::Down);
    assert_eq!(with("waiting", "running"), Etcd::Unsure);
    assert_eq!(with("running", "waiting"), Etcd::Unsure);
}

#[test]
fn a_container_beside_never_decides_that_a_member_is_down_which_nobody_recognises() {
    let state = |name: &str, state: &str| json!({"name": name, "state": {state: {}}});
    let member = json!({"name": "member", "image": "mirror/coreos-etcd:3.5.16"});
    let with = |beside: Value, own: &str| {
        let status = json!({"phase": "Running", "containerStatuses": [state("member", own), state("beside", "waiting")]});
        let mut beside = beside;
        beside["name"] = "beside".into();
        pod(&json!({"containers": [member, beside]}), &status).etcd
    };
    for beside in [
        json!({"image": "quay.io/coreos/etcd:v3.5.16", "command": ["sh", "-c", "etcdctl snapshot save /b"]}),
        json!({"image": "quay.io/coreos/etcd:v3.5.16", "args": ["etcdctl", "snapshot", "save", "/b"]}),
        json!({"image": "example.org/backup/etcd:1"}),
        json!({"image": "envoy", "ports": [{"containerPort": 2379}]}),
        json!({"image": "etcd:3.5.16", "command": ["sh", "-c", "etcd grpc-proxy start"], "ports": [{"containerPort": 2379}]}),
        json!({"image": "x", "command": ["/usr/local/bin/etcd", "grpc-proxy", "start"]}),
        json!({"image": "x", "command": ["etcd"], "args": ["gateway", "start"]}),
        json!({"image": "quay.io/coreos/etcd:v3.5.16", "command": ["etcdctl", "snapshot", "save", "/b"]}),
    ] {
        assert_eq!(with(beside.clone(), "running"), Etcd::Unsure, "{beside}");
        assert_eq!(with(beside.clone(), "waiting"), Etcd::Down, "{beside}");
    }
    // What calls it is it, whatever else there is.
    for etcd in [
        json!({"image": "x", "command": ["/usr/local/bin/etcd", "--name=a"]}),
        json!({"image": "x", "command": ["etcd"]}),
        json!({"image": "registry.k8s.io/etcd:3.5.16-0", "ports": [{"containerPort": 2379}]}),
        json!({"image": "registry.k8s.io/etcd:3.5.16-0", "args": ["--name=a"], "ports": [{"containerPort": 2379}]}),
        json!({"image": "quay.io/coreos/etcd", "command": ["sh", "-ec", "exec etcd --name=$NAME"], "ports": [{"containerPort": 2379}]}),
    ] {
        assert_eq!(with(etcd.clone(), "running"), Etcd::Down, "{etcd}");
    }
}

#[test]
fn an_etcd_that_starts_before_the_others_is_looked_for_among_the_init_containers() {
    let state = |name: &str, state: &str| json!({"name": name, "state": {state: {}}});
    let with = |etcd: Value, app: &str, started: &str| {
        let spec = json!({"initContainers": [etcd], "containers": [{"name": "app", "image": "web"}]});
        let status = json!({"phase": "Running", "containerStatuses": [state("app", app)], "initContainerStatuses": [state("etcd", started)]});
        pod(&spec, &status).etcd
    };
    let always = json!({"name": "etcd", "image": "etcd:3.5.16", "restartPolicy": "Always"});
    assert_eq!(with(always.clone(), "waiting", "running"), Etcd::Runs);
    assert_eq!(with(always.clone(), "running", "waiting"), Etcd::Down);
    // Nothing tells which of the two it is.
    let custom = json!({"name": "store", "image": "store", "restartPolicy": "Always"});
    assert_eq!(with(custom, "waiting", "running"), Etcd::Unsure);
    // One that has to end before the others begin is none.
    let setup =
        json!({"name": "etcd", "image": "etcd:3.5.16", "command": ["etcdctl", "snapshot", "restore"]});
    assert_eq!(with(setup, "waiting", "terminated"), Etcd::Down);
    let starting = json!({"phase": "Pending", "initContainerStatuses": [state("etcd", "running")]});
    let spec = json!({"initContainers": [always], "containers": [{"name": "app", "image": "web"}]});
    assert_eq!(pod(&spec, &starting).etcd, Etcd::Runs);
    let recognised = json!({"metadata": {}, "spec": spec});
    assert!(is_recognised(&recognised.to_string()));
}

#[test]
fn a_container_beside_that_is_down_makes_no_etcd_down() {
    let state = |name: &str, state: &str| json!({"name": name, "state": {state: {}}});
    let with = |containers: Value| {
        let status = json!({"phase": "Running", "containerStatuses": [state("db", "running"), state("backup", "waiting")]});
        pod(&json!({"containers": containers}), &status).etcd
    };
    let backup = |command: Value| json!({"name": "backup", "image": "quay.io/coreos/etcd:v3.5.16", "command": command});
    let db = json!({"name": "db", "image": "db", "ports": [{"containerPort": 2379}]});
    assert_eq!(with(json!([db, backup(json!(["etcdctl", "snapshot"]))])), Etcd::Runs);
    // Both look like it: as long as one of them runs, it may be that one.
    assert_eq!(with(json!([db, backup(json!(["sh"]))])), Etcd::Runs);
    // Neither does.
    let plain = json!({"name": "db", "image": "db"});
    assert_eq!(with(json!([plain, backup(json!(["etcdctl", "snapshot"]))])), Etcd::Unsure);
}

#[test]
fn a_hook_that_removes_the_member_is_found_in_its_script() {
    let with = |command: Value| {
        let container = json!({"name": "etcd", "image": "etcd", "lifecycle": {"preStop": {"exec": {"command": command}}}});
        pod(&json!({"containers": [container]}), &json!({})).leaves
    };
    assert!(with(json!([
        "/bin/sh",
        "-ec",
        "EPS=x\netcdctl --endpoints ${EPS} member remove $(id)\nrm -rf /d"
    ])));
    assert!(with(json!(["etcdctl", "member", "remove", "1"])));
    assert!(!with(json!(["/bin/sh", "-c", "etcdctl member list; sleep 5"])));
    assert!(!with(json!("etcdctl member remove")));
}

#[test]
fn data_is_kept_only_by_a_volume_that_outlives_the_pod() {
    let with = |volume: Value| {
        let containers =
            json!([{"name": "etcd", "image": "etcd", "volumeMounts": [{"name": "data", "mountPath": "/d"}]}]);
        pod(&json!({"containers": containers, "volumes": [volume]}), &json!({})).keeps_data
    };
    assert!(with(json!({"name": "data", "persistentVolumeClaim": {"claimName": "data-etcd-0"}})));
    assert!(with(json!({"name": "data", "hostPath": {"path": "/var/lib/etcd"}})));
    assert!(!with(json!({"name": "data", "emptyDir": {}})));
    assert!(!with(json!({"name": "data", "ephemeral": {}})));
    assert!(!with(json!({"name": "other", "persistentVolumeClaim": {}})));
}

#[test]
fn containers_are_recognised_by_what_they_call_or_are_made_of() {
    for (container, expected) in [
        (json!({"image": "registry.k8s.io/etcd:3.5.16-0"}), true),
        (json!({"image": "etcd@sha256:00"}), true),
        (json!({"image": "x", "command": ["/usr/local/bin/etcd", "--name=a"]}), true),
        (json!({"name": "etcd", "image": "x"}), true),
        (json!({"image": "registry.example.org/etcd/backup:1"}), false),
        (json!({"image": "x", "command": ["etcdctl"]}), false),
        (
            json!({"image": "quay.io/coreos/etcd:v3.5.16", "command": ["/usr/local/bin/etcdctl", "snapshot"]}),
            false,
        ),
        (json!({"name": "etcd", "image": "etcd:3", "command": ["sh", "-c", "exec etcd"]}), true),
    ] {
        let pod = json!({"metadata": {}, "spec": {"containers": [container]}});
        assert_eq!(is_recognised(&pod.to_string()), expected, "{container}");
    }
    assert!(!is_recognised("7"));
}

#[test]
fn what_is_no_pod_is_said_to_be_none() {
    for broken in [
        "7",
        "{}",
        r#"{"metadata":{"labels":[]}}"#,
        r#"{"metadata":{},"metadata":{}}"#,
        r#"{"metadata":{"name":7}}"#,
    ] {
        assert!(Pod::read(broken, 2379).unwrap_err().text.contains("cannot be read"), "{broken}");
    }
}
