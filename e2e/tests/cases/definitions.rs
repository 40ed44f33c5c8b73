//! `durward check` answers creates and updates of CRDs, and manifests with a resource version, as the API server does.

use std::collections::BTreeSet;

use e2e::api::Answer;
use e2e::context;
use e2e::prelude::*;

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// The time until the API server serves a CRD.
const SERVED_WITHIN: Duration = Duration::from_secs(60);

/// Changes of a CRD: the field, and its value as JSON. An empty value removes the field.
#[rustfmt::skip] // one per line
const CHANGES: [(&str, &str); 40] = [
    ("/metadata/labels", r#"{"a": "b"}"#),
    ("/metadata/labels", r#"{"a": "-"}"#),
    ("/spec/scope", r#""Cluster""#),
    ("/spec/names/kind", r#""Other""#),
    ("/spec/names/kind", r#""A_b""#),
    ("/spec/names/shortNames", r#"["t", "T"]"#),
    ("/spec/names/listKind", r#""Thing""#),
    ("/spec/names/categories", r#"["all", "A b"]"#),
    ("/spec/versions/0/name", r#""v2""#),
    ("/spec/versions/0/name", r#""2""#),
    ("/spec/versions/0/storage", "false"),
    ("/spec/versions/0/served", "false"),
    ("/spec/versions/0/deprecationWarning", r#""old""#),
    ("/spec/versions/0/subresources", r#"{"status": {}}"#),
    ("/spec/versions/0/subresources", r#"{"scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".spec.size"}}"#),
    ("/spec/versions/0/additionalPrinterColumns", r#"[{"name": "A", "type": "string", "jsonPath": "spec"}]"#),
    ("/spec/versions/0/selectableFields", r#"[{"jsonPath": ".spec.color"}]"#),
    ("/spec/versions/0/selectableFields", r#"[{"jsonPath": ".spec"}]"#),
    ("/spec/preserveUnknownFields", "true"),
    ("/spec/conversion", r#"{"strategy": "Webhook"}"#),
    ("/spec/conversion", r#"{"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://a.example/x"}}}"#),
    ("/spec/conversion", r#"{"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v2"], "clientConfig": {"service": {"name": "a", "namespace": "b", "path": "x"}}}}"#),
    ("/spec/versions/0/schema", ""),
    ("/spec/versions/0/schema/openAPIV3Schema/type", ""),
    ("/spec/versions/0/schema/openAPIV3Schema/nullable", "true"),
    ("/spec/versions/0/schema/openAPIV3Schema/properties/metadata", r#"{"type": "object", "properties": {"labels": {"type": "object"}}}"#),
    ("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/default", "10"),
    ("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/default", r#""x""#),
    ("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/type", r#""int""#),
    ("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/format", r#""int8""#),
    ("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/list/items", ""),
    ("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/list/x-kubernetes-list-type", r#""map""#),
    ("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/list/items/nullable", "true"),
    ("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/list/uniqueItems", "true"),
    ("/spec/versions/0/schema/openAPIV3Schema/properties/spec/default", r#"{"color": "red", "nope": 1}"#),
    ("/spec/versions/0/schema/openAPIV3Schema/properties/spec/default", r#"{"color": "blue"}"#),
    ("/spec/versions/0/schema/openAPIV3Schema/properties/spec/x-kubernetes-validations", r#"[{"rule": "self.colour == 'red'"}]"#),
    ("/spec/versions/0/schema/openAPIV3Schema/properties/spec/x-kubernetes-validations", r#"[{"rule": "self.list.all(a, self.list.exists(b, a == b))"}]"#),
    ("/spec/versions/0/schema/openAPIV3Schema/properties/spec/x-kubernetes-validations", r#"[{"rule": "self.color == oldSelf.color", "fieldPath": ".nope", "reason": "Odd", "message": "a\nb"}]"#),
    ("/spec/versions/0/schema/openAPIV3Schema/properties/spec/additionalProperties", "false"),
];

/// A CRD of a plural.
fn definition(plural: &str) -> Value {
    let kind = format!("{}{}", plural[..1].to_uppercase(), &plural[1..plural.len() - 1]);
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.org")},
        "spec": {
            "group": "example.org",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object",
                "properties": {"spec": {
                    "type": "object",
                    "properties": {
                        "size": {"type": "integer", "default": 3, "maximum": 9},
                        "color": {"type": "string", "enum": ["red", "green"]},
                        "list": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                    },
                }},
            }}}],
        },
    })
}

fn changed(crd: &Value, field: &str, value: &str) -> Result<Value> {
    let mut crd = crd.clone();
    let (parent, name) = field.rsplit_once('/').context("a pointer")?;
    let parent = crd.pointer_mut(parent).and_then(Value::as_object_mut).context("no such field")?;
    if value.is_empty() {
        parent.remove(name);
    } else {
        parent.insert(name.to_owned(), serde_json::from_str(value)?);
    }
    Ok(crd)
}

#[e2e::case]
fn crds_are_answered_as_check_says(context: &TestContext) -> Result<()> {
    let cluster = context.cluster(&Options::named("custom-resources"))?;
    let api = cluster.api();
    let old = api.create(CRDS, &definition("olds"))?.succeeded()?.body;
    let path = format!("{CRDS}/olds.example.org");
    let mut stored = old;
    eventually("a CRD to be established", SERVED_WITHIN, || {
        stored = api.get(&path)?.succeeded()?.body;
        let conditions = stored["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is_established =
            |condition: &Value| condition["type"] == "Established" && condition["status"] == "True";
        Ok(if conditions.iter().any(is_established) {
            Poll::Ready(())
        } else {
            Poll::Pending("not established".to_owned())
        })
    })?;
    let mut wrong = Vec::new();
    for (field, value) in CHANGES {
        let new = changed(&definition("news"), field, value)?;
        let answer = api.create(&format!("{CRDS}?dryRun=All&fieldValidation=Strict"), &new)?;
        compare(context, &new, None, &answer, &mut wrong)?;
        let mut new = changed(&definition("olds"), field, value)?;
        new["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
        let answer = api.replace(&format!("{path}?dryRun=All&fieldValidation=Strict"), &new)?;
        compare(context, &new, Some(&stored), &answer, &mut wrong)?;
    }
    ensure!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}

#[e2e::case]
fn a_resource_version_is_answered_as_check_says(context: &TestContext) -> Result<()> {
    let cluster = context.cluster(&Options::named("custom-resources"))?;
    let api = cluster.api();
    let path = "/api/v1/namespaces/default/configmaps";
    let object = |name: &str, version: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default", "resourceVersion": version}});
    let mut wrong = Vec::new();
    for (name, version) in [("versioned-a", "7"), ("versioned-b", "0"), ("versioned-c", "x")] {
        let new = object(name, version);
        let answer = api.create(path, &new)?;
        compare(context, &new, None, &answer, &mut wrong)?;
        // A dry run writes nothing, so the storage does not compare versions.
        let dry = object(&format!("{name}-dry"), version);
        api.create(&format!("{path}?dryRun=All"), &dry)?.succeeded()?;
    }
    let stored = api
        .create(path, &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "versioned"}}))?;
    let stored = stored.succeeded()?.body;
    let current = stored["metadata"]["resourceVersion"].as_str().context("a version")?.to_owned();
    for version in [current.as_str(), "1"] {
        let new = object("versioned", version);
        let answer = api.replace(&format!("{path}/versioned?dryRun=All"), &new)?;
        compare(context, &new, Some(&stored), &answer, &mut wrong)?;
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Compares the answer of the API server with that of `durward check`.
fn compare(
    context: &TestContext,
    new: &Value,
    old: Option<&Value>,
    answer: &Answer,
    wrong: &mut Vec<String>,
) -> Result<()> {
    let directory = context.directory("definitions-check")?;
    let new_file = context::write(&directory, "new.json", &new.to_string())?.display().to_string();
    let mut arguments = vec!["check", &new_file, "-o", "json"];
    let old_file;
    if let Some(old) = old {
        old_file = context::write(&directory, "old.json", &old.to_string())?.display().to_string();
        arguments.extend(["--old", &old_file]);
    }
    let output = Durward::command(context, &arguments)?;
    let report: Value = serde_json::from_str(&output.stdout).with_context(|| output.stderr.clone())?;
    // A CRD without a schema that can be read is a problem of the file.
    ensure!(report["problems"] == json!([]), "{}", output.stderr);
    let findings = report["documents"][0]["findings"].as_array().cloned().unwrap_or_default();
    let first: Vec<&Value> = findings.iter().filter(|finding| finding["serverOrder"] == 0).collect();
    let code = first.first().and_then(|finding| finding["code"].as_u64()).unwrap_or(200);
    let found: BTreeSet<String> =
        first.iter().filter_map(|finding| finding["message"].as_str()).map(without_dumps).collect();
    let status = if answer.is_success() { 200 } else { u64::from(answer.status) };
    let causes = answer.body["details"]["causes"].as_array().filter(|_| status == 422);
    let said: BTreeSet<String> = match causes {
        Some(causes) => causes
            .iter()
            .map(|cause| {
                format!(
                    "{}: {}",
                    cause["field"].as_str().unwrap_or_default(),
                    cause["message"].as_str().unwrap_or_default()
                )
            })
            .map(|text| without_dumps(&text))
            .collect(),
        None if status == 200 => BTreeSet::new(),
        None => BTreeSet::from([answer.message().to_owned()]),
    };
    let warns = |finding: &&Value| finding["verdict"] == "warn";
    let warnings: BTreeSet<&str> =
        findings.iter().filter(warns).filter_map(|finding| finding["message"].as_str()).collect();
    let said_warnings: BTreeSet<&str> = answer.warnings.iter().map(String::as_str).collect();
    if (status, &said, &said_warnings) != (code, &found, &warnings) {
        wrong.push(format!("{new}\n  API server {status} {said:?} {said_warnings:?}\n  check      {code} {found:?} {warnings:?} {}", output.stdout));
    }
    Ok(())
}

/// A text without a whole schema, a list of versions, or the names of types, which are random.
fn without_dumps(text: &str) -> String {
    let mut text = text.to_owned();
    for detail in [": only [", ": must have exactly one version"] {
        if let (Some(start), Some(end)) = (text.find("Invalid value: "), text.find(detail)) {
            text.replace_range(start..end, "Invalid value");
        }
    }
    let is_name = |symbol: char| symbol.is_alphanumeric() || matches!(symbol, '.' | '@');
    let mut parts = text.split("selfType");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + "selfType" + part.trim_start_matches(is_name))
}
