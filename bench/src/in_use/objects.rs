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
pub(super) fn create(api: &Api, namespace: &str, pods: usize) -> Result<Vec<ConfigMap>> {
    let elsewhere = format!("{namespace}-elsewhere");
    for name in [namespace, &elsewhere] {
        api.create("/api/v1/namespaces", &json!({"metadata": {"name": name}}))?.succeeded()?;
    }
    let names = WAYS.iter().flat_map(|way| (0..EACH).map(move |number| (way, format!("{way}-{number}"))));
    let mut specs = vec![spec(); pods];
    let (mut used, mut free) = (Vec::new(), Vec::new());
    for (at, (way, name)) in names.enumerate() {
        push(&mut specs[at % pods], item(way, &name));
        free.push(format!("{name}-free"));
        used.push(name);
    }
    for (number, spec) in specs.iter().enumerate() {
        create_pod(api, namespace, &format!("web-{number}"), spec)?;
    }
    // Pods of which none counts.
    for (namespace, name) in [(namespace, "ended"), (namespace, "deleted"), (elsewhere.as_str(), "elsewhere")]
    {
        let mut spec = spec();
        push(&mut spec, item("volume", name));
        create_pod(api, namespace, name, &spec)?;
        free.push(name.to_owned());
    }
    let pod = |name: &str| format!("/api/v1/namespaces/{namespace}/pods/{name}");
    api.merge(&format!("{}/status", pod("ended")), &json!({"status": {"phase": "Succeeded"}}))?
        .succeeded()?;
    api.merge(&pod("deleted"), &json!({"metadata": {"finalizers": ["bench.durward.dev/stays"]}}))?
        .succeeded()?;
    api.delete(&pod("deleted"))?.succeeded()?;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let mut maps = Vec::new();
    let used = used.into_iter().map(|name| (name, true));
    for (name, is_used) in used.chain(free.into_iter().map(|name| (name, false))) {
        api.create(&path, &json!({"metadata": {"name": name}, "data": {"key": "value"}}))?.succeeded()?;
        maps.push(ConfigMap { path: format!("{path}/{name}?dryRun=All"), is_used });
    }
    Ok(maps)
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

fn create_pod(api: &Api, namespace: &str, name: &str, spec: &Value) -> Result<()> {
    let pod = json!({"metadata": {"name": name}, "spec": spec});
    api.create(&format!("/api/v1/namespaces/{namespace}/pods"), &pod)?.succeeded().map(drop)
}
