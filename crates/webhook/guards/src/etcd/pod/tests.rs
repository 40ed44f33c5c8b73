//! Reads pods as the API server stores them.

use admission::Cause;
use serde_json::json;

use super::*;

fn pod(spec: &Value, status: &Value) -> Pod {
    let pod = json!({"metadata": {"name": "etcd-0", "namespace": "db", "uid": "u"}, "spec": spec, "status": status});
    read(&pod.to_string()).unwrap()
}

fn read(json: &str) -> Result<Pod, Cause> {
    wire::read(json, "the pod").map(|pod| Pod::of(&pod, 2379))
}

#[test]
fn the_controlling_statefulset_is_the_owner() {
    let owner = |reference: Value| {
        let pod = json!({"metadata": {"name": "a", "ownerReferences": [reference]}});
        read(&pod.to_string()).unwrap().stateful_set().map(|set| set.name.clone())
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
fn etcd_is_down_only_if_its_own_container_is() {
    let spec = json!({"containers": [{"name": "etcd", "image": "quay.io/coreos/etcd:v3.5.16"}, {"name": "backup", "image": "x"}]});
    let with = |phase: &str, statuses: Value| {
        pod(&spec, &json!({"phase": phase, "containerStatuses": statuses})).process
    };
    let state = |name: &str, state: &str| json!({"name": name, "state": {state: {}}});
    assert_eq!(
        with("Running", json!([state("etcd", "running"), state("backup", "waiting")])),
        Process::Running
    );
    // The member may run in the other container.
    let other_runs = with("Running", json!([state("etcd", "waiting"), state("backup", "running")]));
    assert_eq!(other_runs, Process::Unknown);
    assert_eq!(with("Running", json!([state("etcd", "waiting"), state("backup", "waiting")])), Process::Down);
    assert_eq!(
        with("Pending", json!([state("etcd", "running"), state("backup", "waiting")])),
        Process::Running
    );
    assert_eq!(with("Pending", Value::Null), Process::Down);
    assert_eq!(with("Failed", Value::Null), Process::Ended);
    assert_eq!(with("Running", Value::Null), Process::Unknown);
    assert_eq!(with("Running", json!([{"name": "etcd", "state": {}}])), Process::Unknown);
    let unknown = json!({"containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "y"}]});
    let with = |a: &str, b: &str| {
        let statuses = json!([state("a", a), state("b", b)]);
        pod(&unknown, &json!({"phase": "Running", "containerStatuses": statuses})).process
    };
    let tool = json!({"containers": [{"name": "a", "image": "x", "command": ["etcdctl"]}]});
    let waits = json!({"phase": "Running", "containerStatuses": [state("a", "waiting")]});
    assert_eq!(pod(&tool, &waits).process, Process::Down);
    // Either of them may be etcd.
    assert_eq!(with("waiting", "terminated"), Process::Down);
    assert_eq!(with("waiting", "running"), Process::Unknown);
    assert_eq!(with("running", "waiting"), Process::Unknown);
}

#[test]
fn another_container_never_makes_an_unidentified_member_down() {
    let state = |name: &str, state: &str| json!({"name": name, "state": {state: {}}});
    let member = json!({"name": "member", "image": "mirror/coreos-etcd:3.5.16"});
    let with = |other: Value, own: &str| {
        let status = json!({"phase": "Running", "containerStatuses": [state("member", own), state("other", "waiting")]});
        let mut other = other;
        other["name"] = "other".into();
        pod(&json!({"containers": [member, other]}), &status).process
    };
    for other in [
        json!({"image": "quay.io/coreos/etcd:v3.5.16", "command": ["sh", "-c", "etcdctl snapshot save /b"]}),
        json!({"image": "quay.io/coreos/etcd:v3.5.16", "args": ["etcdctl", "snapshot", "save", "/b"]}),
        json!({"image": "example.org/backup/etcd:1"}),
        json!({"image": "envoy", "ports": [{"containerPort": 2379}]}),
        json!({"image": "etcd:3.5.16", "command": ["sh", "-c", "etcd grpc-proxy start"], "ports": [{"containerPort": 2379}]}),
        json!({"image": "x", "command": ["/usr/local/bin/etcd", "grpc-proxy", "start"]}),
        json!({"image": "x", "command": ["etcd"], "args": ["gateway", "start"]}),
        json!({"image": "quay.io/coreos/etcd:v3.5.16", "command": ["etcdctl", "snapshot", "save", "/b"]}),
        json!({"image": "x", "command": ["/usr/local/bin/etcd", "--name=a"]}),
        json!({"image": "x", "command": ["etcd"]}),
        json!({"image": "registry.k8s.io/etcd:3.5.16-0", "ports": [{"containerPort": 2379}]}),
        json!({"image": "registry.k8s.io/etcd:3.5.16-0", "args": ["--name=a"], "ports": [{"containerPort": 2379}]}),
        json!({"image": "quay.io/coreos/etcd", "command": ["sh", "-ec", "exec etcd --name=$NAME"], "ports": [{"containerPort": 2379}]}),
    ] {
        assert_eq!(with(other.clone(), "running"), Process::Unknown, "{other}");
        assert_eq!(with(other.clone(), "waiting"), Process::Down, "{other}");
    }
}

#[test]
fn etcd_can_be_a_sidecar() {
    let state = |name: &str, state: &str| json!({"name": name, "state": {state: {}}});
    let with = |etcd: Value, app: &str, started: &str| {
        let spec = json!({"initContainers": [etcd], "containers": [{"name": "app", "image": "web"}]});
        let status = json!({"phase": "Running", "containerStatuses": [state("app", app)], "initContainerStatuses": [state("etcd", started)]});
        pod(&spec, &status).process
    };
    let always = json!({"name": "etcd", "image": "etcd:3.5.16", "restartPolicy": "Always"});
    assert_eq!(with(always.clone(), "waiting", "running"), Process::Running);
    assert_eq!(with(always.clone(), "running", "waiting"), Process::Unknown);
    // Either of the two may be etcd.
    let custom = json!({"name": "store", "image": "store", "restartPolicy": "Always"});
    assert_eq!(with(custom, "waiting", "running"), Process::Unknown);
    // An init container that ends is not a sidecar.
    let setup =
        json!({"name": "etcd", "image": "etcd:3.5.16", "command": ["etcdctl", "snapshot", "restore"]});
    assert_eq!(with(setup, "waiting", "terminated"), Process::Down);
    let starting = json!({"phase": "Pending", "initContainerStatuses": [state("etcd", "running")]});
    let spec = json!({"initContainers": [always], "containers": [{"name": "app", "image": "web"}]});
    assert_eq!(pod(&spec, &starting).process, Process::Running);
    assert!(pod(&spec, &starting).runs_etcd);
}

#[test]
fn another_container_that_is_down_does_not_make_etcd_down() {
    let state = |name: &str, state: &str| json!({"name": name, "state": {state: {}}});
    let with = |containers: Value| {
        let status = json!({"phase": "Running", "containerStatuses": [state("db", "running"), state("backup", "waiting")]});
        pod(&json!({"containers": containers}), &status).process
    };
    let backup = |command: Value| json!({"name": "backup", "image": "quay.io/coreos/etcd:v3.5.16", "command": command});
    let db = json!({"name": "db", "image": "db", "ports": [{"containerPort": 2379}]});
    assert_eq!(with(json!([db, backup(json!(["etcdctl", "snapshot"]))])), Process::Running);
    // Both look like etcd, and one of them runs.
    assert_eq!(with(json!([db, backup(json!(["sh"]))])), Process::Running);
    // Neither looks like etcd.
    let plain = json!({"name": "db", "image": "db"});
    assert_eq!(with(json!([plain, backup(json!(["etcdctl", "snapshot"]))])), Process::Unknown);
}

#[test]
fn only_a_persistent_volume_keeps_data() {
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
fn containers_of_etcd_are_recognized_by_program_or_image() {
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
        assert_eq!(pod(&json!({"containers": [container]}), &json!({})).runs_etcd, expected, "{container}");
    }
}

#[test]
fn malformed_pods_are_errors() {
    for broken in [
        "7",
        "{}",
        r#"{"metadata":{"labels":[]}}"#,
        r#"{"metadata":{},"metadata":{}}"#,
        r#"{"metadata":{"name":7}}"#,
    ] {
        assert!(read(broken).unwrap_err().text.contains("cannot be read"), "{broken}");
    }
}
