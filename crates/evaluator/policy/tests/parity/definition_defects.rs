//! Defects of CRDs outside of their schemas, and updates.

use fastrand::Rng;
use serde_json::{Value as Json, json};

use crate::literals::pick;

/// A field and its value as JSON. The field is absent if the value is empty.
type Defect = (&'static str, &'static str);

/// Sets a random field.
pub(crate) fn spoil(rng: &mut Rng, crd: &mut Json) {
    let (field, value) = pick(rng, &DEFECTS);
    set(crd, field, value);
}

fn set(crd: &mut Json, field: &str, value: &str) {
    let (parent, name) = field.rsplit_once('/').expect("a path");
    let Some(Json::Object(parent)) = crd.pointer_mut(parent) else { return };
    if value.is_empty() {
        parent.remove(name);
    } else {
        parent.insert(name.to_owned(), serde_json::from_str(value).expect("JSON"));
    }
}

/// Adds a version that is not stored.
pub(crate) fn add_version(rng: &mut Rng, crd: &mut Json, schema: Json) {
    let versions = crd["spec"]["versions"].as_array_mut().expect("versions");
    let name = pick(rng, &["v1beta1", "v2"]);
    let schema = if rng.u32(..3) == 0 { versions[0]["schema"]["openAPIV3Schema"].clone() } else { schema };
    versions.push(
        json!({ "name": name, "served": true, "storage": false, "schema": { "openAPIV3Schema": schema } }),
    );
}

/// Changes a CRD that the API server stores.
pub(crate) fn change(rng: &mut Rng, crd: &mut Json) {
    match rng.u32(..10) {
        // An update is paired with the old CRD by its name.
        0 => {
            let (field, value) = pick(rng, &DEFECTS);
            if !matches!(field, "/metadata/name" | "/metadata/namespace" | "/metadata/generateName") {
                set(crd, field, value);
            }
        }
        1 => {
            let versions = crd["spec"]["versions"].as_array_mut().expect("versions");
            versions[0]["name"] = json!("v3");
        }
        2 => {
            let versions = crd["spec"]["versions"].as_array_mut().expect("versions");
            let last = versions.len() - 1;
            versions[0]["storage"] = json!(last == 0);
            versions[last]["storage"] = json!(true);
        }
        3 => {
            let versions = crd["spec"]["versions"].as_array_mut().expect("versions");
            versions.truncate(1);
            versions[0]["storage"] = json!(true);
        }
        4 => crd["metadata"]["labels"] = json!({ "a": pick(rng, &["b", "-"]) }),
        5 => set(crd, "/spec/names/kind", pick(rng, &[r#""Gadget""#, r#""Widget""#])),
        6 => set(crd, "/spec/scope", pick(rng, &[r#""Cluster""#, r#""Namespaced""#])),
        _ => {}
    }
}

/// The status of a CRD in a cluster.
pub(crate) fn status(rng: &mut Rng, crd: &Json) -> Json {
    let versions = crd["spec"]["versions"].as_array().into_iter().flatten();
    let mut stored: Vec<&Json> =
        versions.filter(|version| version["storage"] == true).map(|version| &version["name"]).collect();
    if stored.is_empty() {
        stored.push(&crd["spec"]["versions"][0]["name"]);
    }
    let established = if rng.u32(..5) == 0 { "False" } else { "True" };
    json!({
        "acceptedNames": { "plural": "widgets", "kind": "Widget", "listKind": "WidgetList", "singular": "widget" },
        "storedVersions": stored,
        "conditions": [{ "type": "Established", "status": established, "reason": "", "message": "", "lastTransitionTime": null }],
    })
}

#[rustfmt::skip] // one per line
const DEFECTS: [Defect; 72] = [
    ("/metadata/name", r#""widgets.other.com""#),
    ("/metadata/name", r#""Widgets.example.com""#),
    ("/metadata/generateName", r#""widgets-""#),
    ("/metadata/labels", r#"{"a b": "-"}"#),
    ("/metadata/annotations", r#"{"api-approved.kubernetes.io": "soon"}"#),
    ("/metadata/namespace", r#""default""#),
    ("/spec/group", r#""example""#),
    ("/spec/group", r#""Example.com""#),
    ("/spec/group", r#""widgets.k8s.io""#),
    ("/spec/group", r#""kubernetes.io""#),
    ("/spec/group", r#""notkubernetes.io""#),
    ("/spec/names/kind", r#""Wid_get""#),
    ("/spec/names/kind", r#""1Widget""#),
    ("/spec/names/kind", r#""widget""#),
    ("/spec/names/plural", r#""Widgets""#),
    ("/spec/names/plural", r#""wid gets""#),
    ("/spec/names/singular", r#""Widget""#),
    ("/spec/names/singular", r#""w""#),
    ("/spec/names/listKind", r#""Widget""#),
    ("/spec/names/listKind", r#""Widget List""#),
    ("/spec/names/shortNames", r#"["w", "W", "w w"]"#),
    ("/spec/names/categories", r#"["all", "All"]"#),
    ("/spec/versions/0/name", r#""1v""#),
    ("/spec/versions/0/name", r#""V1""#),
    ("/spec/versions/0/served", "false"),
    ("/spec/versions/0/storage", "false"),
    ("/spec/versions/1/storage", "true"),
    ("/spec/versions/1/name", r#""v1""#),
    ("/spec/versions/0/schema", ""),
    ("/spec/versions/0/schema", "{}"),
    ("/spec/versions/1/schema", ""),
    ("/spec/versions/0/deprecated", "true"),
    ("/spec/versions/0/deprecationWarning", r#""old""#),
    ("/spec/versions/0", r#"{"name": "v1", "served": true, "storage": true, "deprecated": true, "deprecationWarning": "a\u0007b", "schema": {"openAPIV3Schema": {"type": "object"}}}"#),
    ("/spec/versions/0", r#"{"name": "v1", "served": true, "storage": true, "deprecated": true, "deprecationWarning": "", "schema": {"openAPIV3Schema": {"type": "object"}}}"#),
    ("/spec/preserveUnknownFields", "true"),
    ("/spec/preserveUnknownFields", "false"),
    ("/spec/preserveUnknownFields", r#""yes""#),
    ("/spec/versions/0/subresources", r#"{"status": {}, "scale": {}}"#),
    ("/spec/versions/0/subresources", r#"{"scale": {"specReplicasPath": ".spec.count", "statusReplicasPath": ".status.count"}}"#),
    ("/spec/versions/0/subresources", r#"{"scale": {"specReplicasPath": "spec.count", "statusReplicasPath": ".spec.count", "labelSelectorPath": "x"}}"#),
    ("/spec/versions/0/subresources", r#"{"scale": {"specReplicasPath": ".status.count", "statusReplicasPath": ".", "labelSelectorPath": ".metadata.x"}}"#),
    ("/spec/versions/1/subresources", r#"{"status": {}}"#),
    ("/spec/versions/0/additionalPrinterColumns", r#"[{"name": "A", "type": "string", "jsonPath": ".spec.a"}]"#),
    ("/spec/versions/0/additionalPrinterColumns", r#"[{"name": "", "type": "", "jsonPath": ""}]"#),
    ("/spec/versions/0/additionalPrinterColumns", r#"[{"name": "A", "type": "text", "format": "x", "jsonPath": "spec"}]"#),
    ("/spec/versions/1/additionalPrinterColumns", r#"[{"name": "A", "type": "date", "format": "date", "jsonPath": "."}]"#),
    ("/spec/versions/0/selectableFields", r#"[{"jsonPath": ".spec.a"}]"#),
    ("/spec/versions/0/selectableFields", r#"[{"jsonPath": ".spec.name"}, {"jsonPath": ".spec.name"}, {"jsonPath": ".spec"}]"#),
    ("/spec/versions/0/selectableFields", r#"[{"jsonPath": ""}, {"jsonPath": "spec"}, {"jsonPath": ".metadata.name"}, {"jsonPath": ".spec['a']"}, {"jsonPath": "."}]"#),
    ("/spec/versions/0/selectableFields", r#"[{"jsonPath": ".kind"}, {"jsonPath": ".apiVersion"}, {"jsonPath": ".nope"}]"#),
    ("/spec/versions/1/selectableFields", r#"[{"jsonPath": ".spec.count"}]"#),
    ("/spec/conversion", r#"{"strategy": "None"}"#),
    ("/spec/conversion", r#"{"strategy": "Magic"}"#),
    ("/spec/conversion", "{}"),
    ("/spec/conversion", r#"{"strategy": "Webhook"}"#),
    ("/spec/conversion", r#"{"strategy": "Webhook", "webhook": {"conversionReviewVersions": []}}"#),
    ("/spec/conversion", r#"{"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {}}}"#),
    ("/spec/conversion", r#"{"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://a.example/x"}}}"#),
    ("/spec/conversion", r#"{"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v2", "v2", "V3"], "clientConfig": {"url": "http://u:p@/x?y=1#z"}}}"#),
    ("/spec/conversion", r#"{"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1beta1", "v9"], "clientConfig": {"url": "https://a b/", "service": null}}}"#),
    ("/spec/conversion", r#"{"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"service": {"name": "a", "namespace": "b", "path": "/x//y_z/"}}}}"#),
    ("/spec/conversion", r#"{"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"service": {"name": "", "namespace": "", "path": "x", "port": 0}}}}"#),
    ("/spec/conversion", r#"{"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"service": {"name": "a", "namespace": "b", "path": "//", "port": 70000}}}}"#),
    ("/spec/conversion", r#"{"strategy": "None", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://a.example/x"}}}"#),
    ("/spec/versions/0/schema/openAPIV3Schema/x-kubernetes-preserve-unknown-fields", "true"),
    ("/spec/versions/0/schema/openAPIV3Schema/minProperties", "1"),
    ("/spec/versions/0/schema/openAPIV3Schema/example", r#"{"a": 1}"#),
    ("/spec/versions/0/schema/openAPIV3Schema/externalDocs", r#"{"url": "x"}"#),
    ("/spec/versions/0/schema/openAPIV3Schema/nullable", "true"),
    ("/spec/versions/0/schema/openAPIV3Schema/$schema", r#""x""#),
    ("/spec/unknown", "1"),
];
