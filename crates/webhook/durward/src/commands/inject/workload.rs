//! Finds pods in a document: a pod, the template of a workload, or the items of a List.
//!
//! Pods are created from the template, so a guard's patch for a pod is applied to the template.

use serde_json::Value;

/// API group, kind, and path of the pod template.
const WORKLOADS: [(&str, &str, &[&str]); 9] = [
    ("", "Pod", &[]),
    ("", "PodTemplate", &["template"]),
    ("", "ReplicationController", &["spec", "template"]),
    ("apps", "Deployment", &["spec", "template"]),
    ("apps", "StatefulSet", &["spec", "template"]),
    ("apps", "DaemonSet", &["spec", "template"]),
    ("apps", "ReplicaSet", &["spec", "template"]),
    ("batch", "Job", &["spec", "template"]),
    ("batch", "CronJob", &["spec", "jobTemplate", "spec", "template"]),
];

/// Bound of nested Lists, which kubectl accepts.
const MAX_DEPTH: usize = 16;

/// A pod or a pod template in a document.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FoundPod {
    /// The JSON Pointer to it.
    pub(super) pointer: String,
    /// The name of its object in messages: `Deployment worker`.
    pub(super) owner: String,
    /// The namespace in the document.
    pub(super) namespace: Option<String>,
    /// The name of the pod; empty for a template.
    pub(super) name: String,
    /// Whether it is the template of a `DaemonSet`, which guards can treat differently.
    pub(super) is_for_daemon_set: bool,
}

/// Finds all pods and templates of a document. Other kinds contain none.
pub(super) fn find(document: &Value) -> Result<Vec<FoundPod>, String> {
    let mut found = Vec::new();
    collect(document, "", 0, &mut found)?;
    Ok(found)
}

fn collect(value: &Value, pointer: &str, depth: usize, found: &mut Vec<FoundPod>) -> Result<(), String> {
    if depth > MAX_DEPTH {
        return Err(format!("lists are nested more than {MAX_DEPTH} deep"));
    }
    if let Some(items) = value.as_array() {
        let mut items = items.iter().enumerate();
        return items
            .try_for_each(|(index, item)| collect(item, &format!("{pointer}/{index}"), depth + 1, found));
    }
    if !value.is_object() {
        return Err("it is not an object".to_owned());
    }
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let (Some(kind), Some(api_version)) = (text(&value["kind"]), text(&value["apiVersion"])) else {
        return Err("it has no kind or no apiVersion".to_owned());
    };
    match &value["items"] {
        items if !kind.ends_with("List") || (items.is_null() && value.get("items").is_none()) => {}
        Value::Null => return Ok(()),
        Value::Array(_) => return collect(&value["items"], &format!("{pointer}/items"), depth, found),
        _ => return Err("items is not a list".to_owned()),
    }
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let Some((_, _, path)) = WORKLOADS.iter().find(|(g, k, _)| *g == group && *k == kind) else {
        return Ok(());
    };
    let metadata = &value["metadata"];
    let name = text(&metadata["name"]).or_else(|| text(&metadata["generateName"])).unwrap_or_default();
    let below = path.iter().fold(String::new(), |pointer, key| pointer + "/" + key);
    if !value.pointer(&below).is_some_and(Value::is_object) {
        return Err(format!("{kind} {name}: it has no {}", path.join(".")));
    }
    found.push(FoundPod {
        pointer: format!("{pointer}{below}"),
        owner: format!("{kind} {name}"),
        namespace: text(&metadata["namespace"]),
        name: if path.is_empty() { name } else { String::new() },
        is_for_daemon_set: kind == "DaemonSet",
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners(document: &str) -> Vec<String> {
        let document = serde_json::from_str(document).unwrap();
        let found = find(&document).unwrap();
        found.iter().map(|f| format!("{} = {}", f.owner, document.pointer(&f.pointer).unwrap())).collect()
    }

    #[test]
    fn finds_pods_in_every_workload() {
        for (api_version, kind, body) in [
            ("v1", "ReplicationController", r#""spec":{"template":{"x":1}}"#),
            ("apps/v1", "Deployment", r#""spec":{"template":{"x":1}}"#),
            ("batch/v1", "CronJob", r#""spec":{"jobTemplate":{"spec":{"template":{"x":1}}}}"#),
        ] {
            let document = format!(
                r#"{{"apiVersion":"{api_version}","kind":"{kind}","metadata":{{"name":"w"}},{body}}}"#
            );
            assert_eq!(owners(&document), [format!("{kind} w = {{\"x\":1}}")]);
        }
        let pod = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"p-"}}"#;
        assert_eq!(owners(pod), [format!("Pod p- = {pod}")]);
    }

    #[test]
    fn finds_pods_in_lists_and_ignores_other_kinds() {
        let list = r#"{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Service","metadata":{}},
            {"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"j","namespace":"n"},"spec":{"template":{}}}]}"#;
        assert_eq!(owners(list), ["Job j = {}"]);
        let find = |text: &str| super::find(&serde_json::from_str(text).unwrap());
        assert_eq!(find(list).unwrap()[0].namespace.as_deref(), Some("n"));
        let volcano = r#"{"apiVersion":"batch.volcano.sh/v1","kind":"Job","spec":{"tasks":[]}}"#;
        assert_eq!(find(volcano).unwrap(), []);
    }

    #[test]
    fn reports_missing_fields() {
        let find = |text: &str| super::find(&serde_json::from_str(text).unwrap());
        assert_eq!(
            find(r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"w"},"spec":{}}"#)
                .unwrap_err(),
            "Deployment w: it has no spec.template"
        );
        assert!(find(r#"{"spec":{}}"#).unwrap_err().contains("no kind"));
        assert!(find("7").unwrap_err().contains("not an object"));
        let deep = "[".repeat(90) + &"]".repeat(90);
        assert!(find(&deep).unwrap_err().contains("more than 16 deep"));
    }
}
