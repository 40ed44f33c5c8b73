//! A namespace with pods that use `ConfigMap`s in each of the ways, and `ConfigMap`s that no pod uses.

use e2e::prelude::*;

/// `ConfigMap`s for each way in which a pod uses one.
const EACH: usize = 3;
/// Variables of a pod, which make it 6 kB large.
const VARIABLES: usize = 30;

/// The ways in which a pod uses a `ConfigMap`.
const WAYS: [&str; 6] = ["volume", "optional", "projected", "key", "from", "init"];

/// Returns an item that uses a `ConfigMap`, and the field of the pod's spec that gets it.
fn item(way: &str, name: &str) -> (&'static str, Value) {
    let source = json!({"name": name});
    let from = json!({"envFrom": [{"configMapRef": source}]});
    match way {
        "optional" => ("volumes", json!({"name": name, "configMap": {"name": name, "optional": true}})),
        "projected" => ("volumes", json!({"name": name, "projected": {"sources": [{"configMap": source}]}})),
        "key" => {
            let value = json!({"configMapKeyRef": {"name": name, "key": "key"}});
            ("containers", container(name, &json!({"env": [{"name": "KEY", "valueFrom": value}]})))
        }
        "from" => ("containers", container(name, &from)),
        "init" => ("initContainers", container(name, &from)),
        _ => ("volumes", json!({"name": name, "configMap": source})),
    }
}

/// A `ConfigMap` whose deletion is reviewed.
pub(super) struct ConfigMap {
    pub(super) path: String,
    /// Whether a pod uses it.
    pub(super) is_used: bool,
}

/// Creates a namespace with so many pods, and returns its `ConfigMap`s, those in use first.
pub(super) fn create(cluster: &Cluster, namespace: &str, pods: usize) -> Result<Vec<ConfigMap>> {
    let mut specs = vec![spec(); pods];
    let (mut used, mut free) = (Vec::new(), Vec::new());
    let names = WAYS.iter().flat_map(|way| (0..EACH).map(move |number| (way, format!("{way}-{number}"))));
    for (at, (way, name)) in names.enumerate() {
        push(&mut specs[at % pods], item(way, &name));
        free.push(format!("{name}-free"));
        used.push(name);
    }
    let elsewhere = format!("{namespace}-elsewhere");
    let mut objects: Vec<Value> = [namespace, &elsewhere]
        .map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
        .into();
    for (number, spec) in specs.iter().enumerate() {
        objects.push(pod(namespace, &format!("web-{number}"), spec));
    }
    // Pods of which none counts.
    for (namespace, name) in [(namespace, "ended"), (namespace, "deleted"), (&elsewhere, "elsewhere")] {
        let mut spec = spec();
        push(&mut spec, item("volume", name));
        objects.push(pod(namespace, name, &spec));
        free.push(name.to_owned());
    }
    for name in used.iter().chain(&free) {
        let metadata = json!({"namespace": namespace, "name": name});
        objects.push(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}));
    }
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    cluster.kubectl().run_with(&["create", "-f", "-"], &objects.to_string())?.succeeded()?;
    let (api, pods) = (cluster.api(), format!("/api/v1/namespaces/{namespace}/pods"));
    api.merge(&format!("{pods}/ended/status"), &json!({"status": {"phase": "Succeeded"}}))?.succeeded()?;
    let stays = json!({"metadata": {"finalizers": ["bench.durward.dev/stays"]}});
    api.merge(&format!("{pods}/deleted"), &stays)?.succeeded()?;
    api.delete(&format!("{pods}/deleted"))?.succeeded()?;
    let map = |name: &String, is_used| {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}?dryRun=All");
        ConfigMap { path, is_used }
    };
    let used = used.iter().map(|name| map(name, true));
    Ok(used.chain(free.iter().map(|name| map(name, false))).collect())
}

fn spec() -> Value {
    let variable =
        |number| json!({"name": format!("SETTING_OF_THE_APPLICATION_{number}"), "value": "a usual value"});
    let env: Vec<Value> = (0..VARIABLES).map(variable).collect();
    json!({"containers": [container("app", &json!({"env": env}))]})
}

fn container(name: &str, fields: &Value) -> Value {
    let mut container = json!({"name": name, "image": "images.example/app:1"});
    for (field, value) in fields.as_object().into_iter().flatten() {
        container[field] = value.clone();
    }
    container
}

fn push(spec: &mut Value, (field, item): (&str, Value)) {
    match spec[field].as_array_mut() {
        Some(items) => items.push(item),
        None => spec[field] = json!([item]),
    }
}

fn pod(namespace: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": namespace, "name": name}, "spec": spec})
}
