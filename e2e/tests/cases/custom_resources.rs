//! `durward check` answers creates and updates of custom resources as the API server does.
//!
//! Each request is a dry run with strict field validation, as kubectl sends it. The CRDs are those of Gateway API and
//! of `custom_resources.yaml`.

use std::collections::{BTreeMap, BTreeSet};

use e2e::api::Answer;
use e2e::context;
use e2e::prelude::*;

const GATEWAY_API: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/evaluator/policy/tests/data/gateway-api");

const OWN: &str = include_str!("custom_resources.yaml");

/// The time until the API server serves a CRD.
const SERVED_WITHIN: Duration = Duration::from_secs(60);

/// A create, or an update of an object.
struct Request {
    title: String,
    object: Value,
    old: Value,
}

#[e2e::case]
fn creates_and_updates_are_answered_as_check_says(context: &TestContext) -> Result<()> {
    let (mut crds, mut requests) = (Vec::new(), Vec::new());
    read_own(&mut crds, &mut requests)?;
    read_gateway_api(&mut crds, &mut requests)?;
    let cluster = context.cluster(&Options::named("custom-resources"))?;
    let api = cluster.api();
    for crd in &crds {
        api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)?.succeeded()?;
    }
    for crd in &crds {
        let spec = &crd["spec"];
        for version in
            spec["versions"].as_array().into_iter().flatten().filter(|version| version["served"] == true)
        {
            let path = format!(
                "/apis/{}/{}/{}",
                text(spec, "group"),
                text(version, "name"),
                text(&spec["names"], "plural")
            );
            eventually("a CRD to be served", SERVED_WITHIN, || Ok(Poll::from(api.get(&path)?.succeeded())))?;
        }
    }
    let documents = check(context, &crds, &requests)?;
    let mut wrong = Vec::new();
    for request in &requests {
        let path = collection(&crds, &request.object)?;
        let answer = if request.old.is_null() {
            api.create(&format!("{path}?dryRun=All&fieldValidation=Strict"), &request.object)?
        } else {
            let stored = api.create(&path, &request.old)?.succeeded()?.body;
            let mut object = request.object.clone();
            object["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
            let name = text(&object["metadata"], "name");
            api.replace(&format!("{path}/{name}?dryRun=All&fieldValidation=Strict"), &object)?
        };
        let key =
            (text(&request.object, "kind").to_owned(), text(&request.object["metadata"], "name").to_owned());
        let document = documents.get(&key).with_context(|| format!("check has no verdict on {key:?}"))?;
        let is_open = findings(document).any(|finding| finding["verdict"] == "unknown");
        let (said, found) = (of_server(&answer), of_check(document));
        if is_open || said != found {
            wrong.push(format!(
                "{}\n  API server {said:?} {}\n  check      {found:?}",
                request.title,
                answer.message()
            ));
        }
    }
    ensure!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), requests.len(), wrong.join("\n"));
    ensure!(requests.len() > 150, "only {} requests", requests.len());
    Ok(())
}

/// Adds the CRDs and requests of `custom_resources.yaml`. An object without a name gets one.
fn read_own(crds: &mut Vec<Value>, requests: &mut Vec<Request>) -> Result<()> {
    let own: Value = serde_saphyr::from_str(OWN).map_err(|error| anyhow::anyhow!("{error}"))?;
    crds.extend(own["crds"].as_array().into_iter().flatten().cloned());
    for (index, request) in own["requests"].as_array().into_iter().flatten().enumerate() {
        let complete = |object: &Value| {
            let mut object = object.clone();
            object["apiVersion"] = "example.org/v1".into();
            if object["metadata"]["name"].is_null() {
                object["metadata"]["name"] = format!("own-{index}").into();
            }
            if object["kind"] == "Thing" {
                object["metadata"]["namespace"] = "default".into();
            }
            object
        };
        let old = request.get("old").map(complete).unwrap_or_default();
        let title = text(request, "title").to_owned();
        requests.push(Request { title, object: complete(&request["object"]), old });
    }
    Ok(())
}

/// Adds the CRDs of Gateway API and its objects, each with a name of its own.
fn read_gateway_api(crds: &mut Vec<Value>, requests: &mut Vec<Request>) -> Result<()> {
    let read = |name: &str| {
        std::fs::read_to_string(format!("{GATEWAY_API}/{name}")).with_context(|| name.to_owned())
    };
    let mut read_crds = BTreeMap::new();
    for (index, line) in read("cases.jsonl")?.lines().enumerate() {
        let case: Value = serde_json::from_str(line)?;
        let name = text(&case, "crd");
        // The CRDs of the other channel have the same names.
        if !name.starts_with("standard-") {
            continue;
        }
        if !read_crds.contains_key(name) {
            let crd: Value =
                serde_saphyr::from_str(&read(name)?).map_err(|error| anyhow::anyhow!("{name}: {error}"))?;
            read_crds.insert(name.to_owned(), crd);
        }
        let mut object = case["object"].clone();
        object["metadata"]["name"] = format!("case-{index}").into();
        if read_crds[name]["spec"]["scope"] == "Namespaced" {
            object["metadata"]["namespace"] = "default".into();
        }
        requests.push(Request { title: text(&case, "id").to_owned(), object, old: Value::Null });
    }
    crds.extend(read_crds.into_values());
    Ok(())
}

/// Runs `durward check` on all objects, and returns its documents by kind and name.
fn check(
    context: &TestContext,
    crds: &[Value],
    requests: &[Request],
) -> Result<BTreeMap<(String, String), Value>> {
    let directory = context.directory("custom-resources-check")?;
    let list = |name: &str, items: Vec<&Value>| {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
        Ok::<_, anyhow::Error>(context::write(&directory, name, &list)?.display().to_string())
    };
    let crds = list("crds.json", crds.iter().collect())?;
    let objects = list("objects.json", requests.iter().map(|request| &request.object).collect())?;
    let old = requests.iter().map(|request| &request.old).filter(|old| !old.is_null());
    let old = list("old.json", old.collect())?;
    let arguments = ["check", &objects, "--old", &old, "--with", &crds, "-o", "json"];
    let output = Durward::command(context, &arguments)?;
    let report: Value = serde_json::from_str(&output.stdout).with_context(|| output.stderr.clone())?;
    ensure!(report["problems"] == json!([]), "{}", output.stderr);
    let documents = report["documents"].as_array().context("no documents")?;
    let key = |document: &Value| (text(document, "kind").to_owned(), text(document, "name").to_owned());
    Ok(documents.iter().map(|document| (key(document), document.clone())).collect())
}

fn findings(document: &Value) -> impl Iterator<Item = &Value> {
    document["findings"].as_array().into_iter().flatten()
}

/// The code of an answer, its errors, and its warnings.
type Said = (u64, BTreeSet<String>, BTreeSet<String>);

/// Returns the answer of the API server.
fn of_server(answer: &Answer) -> Said {
    let warnings = answer.warnings.iter().cloned().collect();
    let errors = match answer.status {
        400 => unknown_fields(answer.message()),
        422 => {
            let causes = answer.body["details"]["causes"].as_array().into_iter().flatten();
            causes.map(|cause| format!("{}: {}", text(cause, "field"), text(cause, "message"))).collect()
        }
        _ => BTreeSet::new(),
    };
    let status = if answer.is_success() { 200 } else { u64::from(answer.status) };
    (status, errors, warnings)
}

/// Returns the response that `check` expects from the API server.
fn of_check(document: &Value) -> Said {
    let first: Vec<&Value> = findings(document).filter(|finding| finding["serverOrder"] == 0).collect();
    let code = first.first().and_then(|finding| finding["code"].as_u64()).unwrap_or(200);
    let messages = first.iter().map(|finding| text(finding, "message"));
    let errors = match code {
        400 => messages.flat_map(unknown_fields).collect(),
        _ => messages.map(str::to_owned).collect(),
    };
    let warnings = findings(document).filter(|finding| finding["verdict"] == "warn");
    let warnings = warnings.map(|finding| text(finding, "message").to_owned()).collect();
    (code, errors, warnings)
}

/// Returns the unknown fields that a message names. Other errors of decoding have texts of their own.
pub(super) fn unknown_fields(message: &str) -> BTreeSet<String> {
    let found = message.split("unknown field \"").skip(1);
    found.filter_map(|rest| rest.split('"').next()).map(str::to_owned).collect()
}

/// Returns the path of an object's collection.
fn collection(crds: &[Value], object: &Value) -> Result<String> {
    let crd = crds.iter().find(|crd| crd["spec"]["names"]["kind"] == object["kind"]).context("no CRD")?;
    let namespace = object["metadata"]["namespace"].as_str();
    let namespace = namespace.map(|name| format!("/namespaces/{name}")).unwrap_or_default();
    Ok(format!("/apis/{}{namespace}/{}", text(object, "apiVersion"), text(&crd["spec"]["names"], "plural")))
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_default()
}
