//! `durward diff crd --live` finds exactly the stored objects that an API server refuses under the new CRD.

use std::collections::BTreeSet;

use e2e::context::write;
use e2e::prelude::*;

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const OBJECTS: usize = 2_000;
/// Every so many objects one breaks, in one of five ways in turn.
const EVERY: usize = 50;

/// Returns the CRD with a schema of `spec`, and a field that shows which schema is served.
fn crd(spec: &Value, mark: &str) -> Value {
    let mark = json!({"type": "string", "default": mark});
    let schema = json!({"type": "object", "properties": {"spec": spec, "mark": mark}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "stocks.live.example.org"},
        "spec": {
            "group": "live.example.org", "scope": "Namespaced",
            "names": {"kind": "Stock", "plural": "stocks", "singular": "stock", "listKind": "StockList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

fn old() -> Value {
    crd(
        &json!({"type": "object", "properties": {
            "size": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}},
            "least": {"type": "integer"}, "most": {"type": "integer"}, "note": {"type": "string"}, "old": {"type": "string"},
        }}),
        "old",
    )
}

fn new() -> Value {
    crd(
        &json!({"type": "object", "properties": {
            "size": {"type": "string", "enum": ["small", "large"]},
            "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "least": {"type": "integer"}, "most": {"type": "integer"}, "note": {"type": "string", "maxLength": 20},
        }, "x-kubernetes-validations": [{"rule": "self.least <= self.most", "message": "least must be at most most"}]}),
        "new",
    )
}

/// Returns an object, and whether it breaks.
fn stock(number: usize) -> (Value, bool) {
    let mut spec =
        json!({"size": "small", "tags": ["a", "b"], "least": 1, "most": number + 1, "note": "short"});
    let breaks = number.is_multiple_of(EVERY);
    if breaks {
        match number / EVERY % 5 {
            0 => spec["size"] = json!("huge"),
            1 => spec["tags"] = json!(["a", "a"]),
            2 => spec["least"] = json!(number + 9),
            3 => spec["note"] = json!("a note that is longer than the limit"),
            _ => spec["old"] = json!("a field that is dropped"),
        }
    }
    let object = json!({"apiVersion": "live.example.org/v1", "kind": "Stock",
        "metadata": {"name": format!("stock-{number}")}, "spec": spec});
    (object, breaks)
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

#[e2e::case]
fn the_objects_that_break_are_those_that_the_api_server_refuses(context: &TestContext) -> Result<()> {
    let cluster = context.cluster(&Options::named("crd-live"))?;
    let (api, directory) = (cluster.api(), context.directory("crd-live")?);
    api.create(CRDS, &old())?.succeeded()?;
    let path = "/apis/live.example.org/v1/namespaces/default/stocks";
    eventually("the CRD to be served", WAIT_LIMIT, || Ok(Poll::from(api.get(path)?.succeeded())))?;
    let mut breaking = BTreeSet::new();
    for (object, breaks) in (0..OBJECTS).map(stock) {
        api.create(path, &object)?.succeeded()?;
        if breaks {
            breaking.insert(name(&object));
        }
    }
    let file = write(&directory, "new.json", &new().to_string())?.display().to_string();
    let kubeconfig = cluster.kubectl().kubeconfig().display().to_string();
    let run = |format: &str| {
        Durward::command(
            context,
            &["diff", "crd", &file, "--live", "--kubeconfig", &kubeconfig, "-o", format],
        )
    };
    let output = run("json")?;
    output.exited_with(1)?;
    let report: Value = serde_json::from_str(&output.stdout)?;
    let (found, numbers) = (&report["crds"][0]["objects"], &report["crds"][0]["clusters"][0]);
    let found = found.as_array().context("objects")?;
    let names: BTreeSet<String> =
        found.iter().filter_map(|one| one["name"].as_str().map(str::to_owned)).collect();
    ensure!(names == breaking, "{names:?} instead of {breaking:?}");
    let sarif: Value = serde_json::from_str(&run("sarif")?.stdout)?;
    let results = sarif["runs"][0]["results"].as_array().context("results")?;
    ensure!(results.len() == breaking.len(), "{} results", results.len());

    // Every object is written again under the new CRD, and created again.
    let served = api.get(&format!("{CRDS}/stocks.live.example.org"))?.succeeded()?.body;
    let mut changed = served.clone();
    changed["spec"] = new()["spec"].clone();
    api.replace(&format!("{CRDS}/stocks.live.example.org"), &changed)?.succeeded()?;
    eventually("the new CRD to be served", WAIT_LIMIT, || {
        // The mark of a stored object stays. That of a new one is the default.
        let mut probe = stock(1).0;
        probe["metadata"]["name"] = json!("probe");
        let created = api.create(&format!("{path}?dryRun=All"), &probe)?;
        let is_new = created.body["mark"] == "new";
        Ok(if is_new { Poll::Ready(()) } else { Poll::Pending("the old schema".to_owned()) })
    })?;
    let (mut invalid, mut only_create) = (0, 0);
    for (object, breaks) in (0..OBJECTS).map(stock) {
        let stored = api.get(&format!("{path}/{}", name(&object)))?.succeeded()?.body;
        let is_lost = object["spec"].get("old").is_some() && stored["spec"].get("old").is_none();
        let update = api.replace(&format!("{path}/{}?dryRun=All", name(&object)), &stored)?;
        let mut copy = object.clone();
        copy["metadata"]["name"] = json!(format!("{}-again", name(&object)));
        let create = api.create(&format!("{path}?dryRun=All"), &copy)?;
        let fails = !update.is_success() || is_lost || !create.is_success();
        ensure!(fails == breaks, "{}: {} {}", name(&object), update.message(), create.message());
        let is_invalid = !update.is_success() || is_lost;
        invalid += usize::from(is_invalid);
        only_create += usize::from(!is_invalid && fails);
    }
    ensure!(
        numbers["objects"] == OBJECTS
            && numbers["invalid"] == invalid
            && numbers["onlyCreate"] == only_create,
        "{numbers} instead of {invalid} invalid and {only_create} only created"
    );
    ensure!(invalid > 0 && only_create > 0, "{invalid} invalid and {only_create} only created");
    Ok(())
}
