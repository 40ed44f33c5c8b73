//! Objects of a cluster: lists, fields that many checks read, and permissions.

use e2e::prelude::*;

const RBAC: &str = "rbac.authorization.k8s.io";

/// Returns the objects of a collection.
pub(crate) fn list(api: &Api, path: &str) -> Result<Vec<Value>> {
    let mut list = api.get(path)?.succeeded()?.body;
    serde_json::from_value(list["items"].take()).with_context(|| format!("{path} is not a list"))
}

pub(crate) fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Returns the status of the condition `Ready`.
pub(crate) fn ready_status(object: &Value) -> &str {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let ready = conditions.into_iter().find(|condition| condition["type"] == "Ready");
    ready.and_then(|condition| condition["status"].as_str()).unwrap_or_default()
}

/// Waits until the API server returns 404 for this path.
pub(crate) fn await_gone(cluster: &Cluster, path: &str) -> Result<()> {
    until(format_args!("{path} to be gone"), || {
        let answer = cluster.api().get(path)?;
        Ok((answer.status == 404, answer.body.to_string()))
    })
}

/// Waits until the object at this path is deleted or being deleted. The namespace controller begins after five seconds, or after a
/// minute if its API server was down.
pub(crate) fn await_deleted(cluster: &Cluster, path: &str) -> Result<()> {
    until(format_args!("{path} to be deleted"), || {
        let answer = cluster.api().get(path)?;
        let is_deleted = answer.status == 404 || answer.body["metadata"]["deletionTimestamp"].is_string();
        Ok((is_deleted, answer.body.to_string()))
    })
}

/// Creates a `ClusterRole` with these rules, and binds it to a user.
pub(crate) fn allow(cluster: &Cluster, role: &str, rules: &Value, user: &str) -> Result<()> {
    let path = format!("/apis/{RBAC}/v1");
    let metadata = json!({"name": role});
    let binding = json!({
        "metadata": metadata,
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
    });
    let role = json!({"metadata": metadata, "rules": rules});
    cluster.api().create(&format!("{path}/clusterroles"), &role)?.succeeded()?;
    cluster.api().create(&format!("{path}/clusterrolebindings"), &binding)?.succeeded().map(drop)
}

/// Expects all of these parts in a text.
pub(crate) fn contains_all(text: &str, parts: &[&str]) -> Result<()> {
    let missing: Vec<_> = parts.iter().filter(|part| !text.contains(**part)).collect();
    ensure!(missing.is_empty(), "the text does not contain {missing:?}: {text}");
    Ok(())
}
