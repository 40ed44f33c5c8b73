//! Finds pods in a document: a pod, the template of a workload, or the items of a List.
//!
//! Pods are created from the template, so a guard's patch for a pod is applied to the template.

use std::ops::Range;

use admission::{Raw, Scanner, Shape};

use crate::documents::members;

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
pub(super) struct Found {
    /// Its byte range in the document.
    pub(super) span: Range<usize>,
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
pub(super) fn find(document: &str) -> Result<Vec<Found>, String> {
    let mut found = Vec::new();
    collect(document, 0..document.len(), 0, &mut found)?;
    Ok(found)
}

fn collect(document: &str, span: Range<usize>, depth: usize, found: &mut Vec<Found>) -> Result<(), String> {
    if depth > MAX_DEPTH {
        return Err(format!("lists stand in lists more than {MAX_DEPTH} deep"));
    }
    let text = document.get(span.clone()).unwrap_or_default();
    if Scanner::new(text).peek() == Ok(Shape::Array) {
        let elements = members(text).map_err(|error| error.what.to_owned())?;
        return elements
            .into_iter()
            .try_for_each(|(_, inner)| collect(document, within(&span, &inner), depth + 1, found));
    }
    let object = Object::read(text)?;
    let (kind, api_version) =
        (object.text("kind").unwrap_or_default(), object.text("apiVersion").unwrap_or_default());
    if kind.is_empty() || api_version.is_empty() {
        return Err("it has no kind and apiVersion, so it is no Kubernetes object".to_owned());
    }
    if kind.ends_with("List") && object.get("items").is_some() {
        let items = object.get("items").unwrap_or_default();
        return collect_items(document, &within(&span, &items), depth, found);
    }
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let Some((_, _, way)) = WORKLOADS.iter().find(|(g, k, _)| *g == group && *k == kind) else {
        return Ok(());
    };
    let metadata =
        object.get("metadata").map(|inner| Object::read(text.get(inner).unwrap_or_default())).transpose()?;
    let of_metadata = |key| metadata.as_ref().and_then(|metadata| metadata.text(key));
    let name = of_metadata("name").or_else(|| of_metadata("generateName")).unwrap_or_default();
    let mut at = span;
    for key in *way {
        let object = Object::read(document.get(at.clone()).unwrap_or_default())?;
        let inner = object.get(key).ok_or_else(|| format!("{kind} {name}: it has no {}", way.join(".")))?;
        at = within(&at, &inner);
    }
    found.push(Found {
        span: at,
        owner: format!("{kind} {name}"),
        namespace: of_metadata("namespace"),
        name: if way.is_empty() { name } else { String::new() },
        is_for_daemon_set: kind == "DaemonSet",
    });
    Ok(())
}

fn collect_items(
    document: &str,
    span: &Range<usize>,
    depth: usize,
    found: &mut Vec<Found>,
) -> Result<(), String> {
    let text = document.get(span.clone()).unwrap_or_default();
    if Scanner::new(text).peek() == Ok(Shape::Null) {
        return Ok(());
    }
    let items = members(text).map_err(|_| "items is not a list".to_owned())?;
    items.into_iter().try_for_each(|(_, inner)| collect(document, within(span, &inner), depth + 1, found))
}

fn within(outer: &Range<usize>, inner: &Range<usize>) -> Range<usize> {
    outer.start + inner.start..outer.start + inner.end
}

/// The members of an object.
struct Object<'t> {
    text: &'t str,
    members: Vec<(String, Range<usize>)>,
}

impl<'t> Object<'t> {
    fn read(text: &'t str) -> Result<Self, String> {
        if Scanner::new(text).peek() != Ok(Shape::Object) {
            return Err("it is not an object".to_owned());
        }
        let members = members(text).map_err(|error| error.what.to_owned())?;
        Ok(Self { text, members })
    }

    fn get(&self, key: &str) -> Option<Range<usize>> {
        self.members.iter().find(|(name, _)| name == key).map(|(_, span)| span.clone())
    }

    fn text(&self, key: &str) -> Option<String> {
        let value = Raw::from_text(self.text.get(self.get(key)?)?).ok()?;
        value.text().map(std::borrow::Cow::into_owned).filter(|text| !text.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners(document: &str) -> Vec<String> {
        let found = find(document).unwrap();
        found.iter().map(|f| format!("{} = {}", f.owner, &document[f.span.clone()])).collect()
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
        assert_eq!(find(list).unwrap()[0].namespace.as_deref(), Some("n"));
        let volcano = r#"{"apiVersion":"batch.volcano.sh/v1","kind":"Job","spec":{"tasks":[]}}"#;
        assert_eq!(find(volcano).unwrap(), []);
    }

    #[test]
    fn reports_missing_fields() {
        assert_eq!(
            find(r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"w"},"spec":{}}"#)
                .unwrap_err(),
            "Deployment w: it has no spec.template"
        );
        assert!(find(r#"{"spec":{}}"#).unwrap_err().contains("no kind"));
        assert!(find("7").unwrap_err().contains("not an object"));
        let deep = "[".repeat(9000) + &"]".repeat(9000);
        assert!(find(&deep).unwrap_err().contains("more than 16 deep"));
    }
}
