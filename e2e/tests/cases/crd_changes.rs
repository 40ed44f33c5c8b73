//! `durward diff crd` predicts what an API server does to existing objects when their CRD changes.
//!
//! Objects are created under the old CRD. After the CRD has changed, each is read, written again without a change, and created under another
//! name; the last two are dry runs. Failures and lost fields must be those that the command names. The changes are those of
//! `crd_changes.yaml`, and random ones.

use std::collections::{BTreeMap, BTreeSet};

use e2e::api::{Answer, Api};
use e2e::context;
use e2e::prelude::*;

#[path = "../../../crates/evaluator/policy/tests/changed_crds/mod.rs"]
#[allow(clippy::expect_used, reason = "shared with the tests of the crate policy")]
mod changed_crds;

const CHANGES: &str = include_str!("crd_changes.yaml");
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Random changes, and objects of each.
const RANDOM: (usize, usize) = (50, 6);
/// The field of new CRDs that shows that the API server uses them.
const MARK: &str = "revision";

/// A change of a CRD, and objects that are created under the old one.
struct Change {
    title: String,
    old: Value,
    new: Value,
    objects: Vec<Value>,
    /// The classes and fields that the command must name.
    classes: Option<BTreeSet<String>>,
    is_refused: bool,
}

#[e2e::case]
fn the_changes_of_the_table_break_the_objects_that_the_command_names(context: &TestContext) -> Result<()> {
    let table: Value = serde_saphyr::from_str(CHANGES).map_err(|error| anyhow::anyhow!("{error}"))?;
    let table = table.as_array().context("no changes")?;
    let changes: Vec<Change> = table.iter().enumerate().map(|(index, change)| read(index, change)).collect();
    let count = changes.len();
    let found = replay(context, "table", changes)?;
    ensure!(found.wrong.is_empty(), "{} wrong:\n{}", found.wrong.len(), found.wrong.join("\n"));
    ensure!(count >= 25 && found.changes == count, "{} of {count} changes", found.changes);
    let Found { lost, updates, creates, .. } = found;
    ensure!(lost >= 8 && updates >= 3 && creates >= 15, "lost {lost}, updates {updates}, creates {creates}");
    Ok(())
}

#[e2e::case]
fn random_changes_break_the_objects_that_the_command_names(context: &TestContext) -> Result<()> {
    let mut rng = fastrand::Rng::with_seed(11);
    let changes = (0..RANDOM.0).map(|index| {
        let (old, new) = changed_crds::pair(&mut rng, &format!("Random{index}"));
        let thing = |number: usize| changed_crds::thing(&mut rng, &old, &format!("thing-{number}"));
        let objects = (0..RANDOM.1).map(thing).collect();
        let title = format!("random change {index}\n  {old}\n  {new}");
        Change { title, new: marked(new), old, objects, classes: None, is_refused: false }
    });
    let found = replay(context, "random", changes.collect())?;
    ensure!(found.wrong.is_empty(), "{} wrong:\n{}", found.wrong.len(), found.wrong.join("\n"));
    let Found { changes, objects, lost, creates, .. } = found;
    ensure!(changes > RANDOM.0 / 2 && objects > RANDOM.0, "{changes} changes with {objects} objects");
    ensure!(lost >= 5 && creates >= 10, "lost {lost}, creates {creates}");
    Ok(())
}

/// A change of the table.
fn read(index: usize, change: &Value) -> Change {
    let kind = format!("Change{index}");
    let crd = |versions: &Value, scope: &str| {
        let status = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let version = |version: &Value| {
            let schema =
                json!({"type": "object", "properties": {"spec": version["schema"], "status": status}});
            let mut version = version.clone();
            version["schema"] = json!({"openAPIV3Schema": schema});
            if version["served"].is_null() {
                version["served"] = true.into();
            }
            version
        };
        let versions: Vec<Value> = match versions.as_array() {
            Some(versions) => versions.iter().map(version).collect(),
            None => vec![version(&json!({"name": "v1", "storage": true, "schema": versions}))],
        };
        let plural = kind.to_lowercase();
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.example.org")},
            "spec": {"group": "example.org", "scope": scope, "names": {"kind": kind, "plural": plural}, "versions": versions},
        })
    };
    let object = |(number, spec): (usize, &Value)| {
        let metadata = json!({"name": format!("object-{number}"), "namespace": "default"});
        let mut object =
            json!({"apiVersion": "example.org/v1", "kind": kind, "metadata": metadata, "spec": spec});
        if !change["status"].is_null() {
            object["status"] = change["status"].clone();
        }
        object
    };
    let classes = change["classes"].as_array().into_iter().flatten().filter_map(Value::as_str);
    Change {
        title: text(change, "title").to_owned(),
        old: crd(&change["old"], "Namespaced"),
        new: marked(crd(&change["new"], change["scope"].as_str().unwrap_or("Namespaced"))),
        objects: change["objects"].as_array().into_iter().flatten().enumerate().map(object).collect(),
        classes: Some(classes.map(str::to_owned).collect()),
        is_refused: change["refused"] == true,
    }
}

/// A CRD with the mark in all versions.
fn marked(mut crd: Value) -> Value {
    for version in crd["spec"]["versions"].as_array_mut().into_iter().flatten() {
        version["schema"]["openAPIV3Schema"]["properties"][MARK] =
            json!({"type": "string", "default": "new"});
    }
    crd
}

/// The differences between API server and command, and how often something broke.
#[derive(Default)]
struct Found {
    wrong: Vec<String>,
    changes: usize,
    objects: usize,
    lost: usize,
    updates: usize,
    creates: usize,
}

/// Makes all changes, and compares the effects with those that the command names. A random CRD that the API server refuses is left out.
fn replay(context: &TestContext, name: &str, changes: Vec<Change>) -> Result<Found> {
    let cluster = context.cluster(&Options::named("crd-changes"))?;
    let api = cluster.api();
    let directory = context.directory(&format!("crd-changes-{name}"))?;
    let mut created = Vec::new();
    for change in changes {
        let answer = api.create(CRDS, &change.old)?;
        if answer.is_success() {
            created.push(change);
        } else {
            ensure!(change.classes.is_none(), "{}: {}", change.title, answer.message());
        }
    }
    let mut found = Found::default();
    for change in &created {
        let path = collection(&change.old, "v1");
        // The API server ends a request without an answer if its wait for the CRD takes too long.
        eventually("a CRD to be served", WAIT_LIMIT, || {
            Ok(Poll::from(api.get(&path).and_then(Answer::succeeded)))
        })?;
        let mut stored = Vec::new();
        for object in &change.objects {
            let answer = api.create(&path, object)?;
            ensure!(
                answer.is_success() || change.classes.is_none(),
                "{}: {}",
                change.title,
                answer.message()
            );
            if answer.is_success() {
                stored.push(
                    api.get(&format!("{path}/{}", text(&object["metadata"], "name")))?.succeeded()?.body,
                );
            }
        }
        if stored.is_empty() {
            continue;
        }
        // The file has the status of the API server, with the stored versions.
        let crd = format!("{CRDS}/{}", text(&change.old["metadata"], "name"));
        let mut served = api.get(&crd)?.succeeded()?.body;
        let file = |name: &str, value: &Value| {
            let name = format!("{}-{name}.json", text(&change.old["metadata"], "name"));
            Ok::<_, anyhow::Error>(
                context::write(&directory, &name, &value.to_string())?.display().to_string(),
            )
        };
        let list = json!({"apiVersion": "v1", "kind": "List", "items": stored});
        let (old, new, objects) = (file("old", &served)?, file("new", &change.new)?, file("objects", &list)?);
        let arguments = ["diff", "crd", &old, &new, "--objects", &objects, "-o", "json"];
        let output = Durward::command(context, &arguments)?;
        served["spec"] = change.new["spec"].clone();
        let answer = api.replace(&crd, &served)?;
        if !answer.is_success() && change.classes.is_none() {
            continue;
        }
        if output.code() == Some(2) {
            found.wrong.push(format!("{}: {}", change.title, output.stderr));
            continue;
        }
        let report: Value = serde_json::from_str(&output.stdout).with_context(|| output.stderr.clone())?;
        found.changes += 1;
        let report = &report["crds"][0];
        classes(change, report, &mut found.wrong);
        if answer.is_success() == change.is_refused {
            found.wrong.push(format!("{}: {} {}", change.title, answer.status, answer.message()));
        }
        if answer.is_success() {
            compare(api, change, &stored, report, &mut found)?;
        }
    }
    Ok(found)
}

/// Compares the classes with those of the table.
fn classes(change: &Change, report: &Value, wrong: &mut Vec<String>) {
    let named = |change: &Value| {
        let field = if text(change, "field").is_empty() { "path" } else { "field" };
        format!("{} {}", text(change, "class"), text(change, field))
    };
    let found: BTreeSet<String> = report["changes"].as_array().into_iter().flatten().map(named).collect();
    if change.classes.as_ref().is_some_and(|classes| *classes != found) {
        wrong.push(format!("{}: classes {found:?}", change.title));
    }
}

/// Compares the effects on all objects.
fn compare(api: &Api, change: &Change, stored: &[Value], report: &Value, found: &mut Found) -> Result<()> {
    let objects = report["objects"].as_array().into_iter().flatten();
    let predicted: BTreeMap<&str, &Value> = objects.map(|object| (text(object, "name"), object)).collect();
    let has_changes = report["changes"].as_array().is_some_and(|changes| !changes.is_empty());
    for before in stored {
        let name = text(&before["metadata"], "name");
        let predicted = *predicted.get(name).with_context(|| format!("no prediction for {name}"))?;
        if predicted["verdict"] == "unknown" {
            continue;
        }
        found.objects += 1;
        let Some(server) = effect(api, change, before)? else {
            if predicted["served"] == true {
                found.wrong.push(format!("{} {name}: not served", change.title));
            }
            continue;
        };
        let texts = |field: &str| -> BTreeSet<String> {
            predicted[field]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect()
        };
        let command = Effect { lost: texts("lost"), update: texts("update"), create: texts("create") };
        found.lost += usize::from(!server.lost.is_empty());
        found.updates += usize::from(!server.update.is_empty());
        found.creates += usize::from(!server.create.is_empty());
        let breaks = server != Effect::default();
        let verdict = predicted["verdict"] == "breaks";
        if server != command || verdict != breaks || (breaks && !has_changes) {
            found.wrong.push(format!(
                "{} {name} {}\n  API server {server:?}\n  command    {command:?}",
                change.title, before["spec"]
            ));
        }
    }
    Ok(())
}

/// Lost fields, and the errors of an update that changes nothing and of a create.
#[derive(Debug, Default, PartialEq, Eq)]
struct Effect {
    lost: BTreeSet<String>,
    update: BTreeSet<String>,
    create: BTreeSet<String>,
}

/// Returns the effect on the API server, or `None` if the version is not served.
fn effect(api: &Api, change: &Change, before: &Value) -> Result<Option<Effect>> {
    let collection = collection(&change.old, "v1");
    let path = format!("{collection}/{}", text(&before["metadata"], "name"));
    let read = eventually("the change of the CRD", WAIT_LIMIT, || {
        Ok(match api.get(&path) {
            Ok(answer) if answer.status == 404 || !answer.body[MARK].is_null() => Poll::Ready(answer),
            Ok(_) => Poll::Pending("the old schema".to_owned()),
            Err(error) => Poll::Pending(error.to_string()),
        })
    })?;
    if read.status == 404 {
        return Ok(None);
    }
    let update = api.replace(&format!("{path}?dryRun=All"), &read.body)?;
    let mut again = before.clone();
    let name = format!("{}-again", text(&before["metadata"], "name"));
    again["metadata"] = json!({"name": name, "namespace": before["metadata"]["namespace"]});
    let create = api.create(&format!("{collection}?dryRun=All"), &again)?;
    let after = if update.is_success() { &update.body } else { &read.body };
    let mut lost = BTreeSet::new();
    for field in ["spec", "status"] {
        match (before.get(field), after.get(field)) {
            (None, _) => {}
            (Some(before), Some(after)) => missing(before, after, field, &mut lost),
            (Some(_), None) => drop(lost.insert(field.to_owned())),
        }
    }
    Ok(Some(Effect { lost, update: errors(&update)?, create: errors(&create)? }))
}

/// Returns the errors of an answer.
fn errors(answer: &Answer) -> Result<BTreeSet<String>> {
    if answer.is_success() {
        return Ok(BTreeSet::new());
    }
    ensure!(answer.status == 422, "{} {}", answer.status, answer.message());
    let causes = answer.body["details"]["causes"].as_array().into_iter().flatten();
    Ok(causes.map(|cause| format!("{}: {}", text(cause, "field"), text(cause, "message"))).collect())
}

/// Adds the fields that the second value does not have.
fn missing(before: &Value, after: &Value, path: &str, found: &mut BTreeSet<String>) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            for (name, value) in before {
                let path = format!("{path}.{name}");
                match after.get(name) {
                    Some(after) => missing(value, after, &path, found),
                    None => drop(found.insert(path)),
                }
            }
        }
        (Value::Array(before), Value::Array(after)) => {
            for (index, (before, after)) in before.iter().zip(after).enumerate() {
                missing(before, after, &format!("{path}[{index}]"), found);
            }
        }
        (Value::Null, Value::Null) => {}
        (Value::Null, _) => drop(found.insert(path.to_owned())),
        _ => {}
    }
}

/// Returns the path of the objects of a CRD.
fn collection(crd: &Value, version: &str) -> String {
    let spec = &crd["spec"];
    let namespace = if spec["scope"] == "Namespaced" { "/namespaces/default" } else { "" };
    format!("/apis/example.org/{version}{namespace}/{}", text(&spec["names"], "plural"))
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_default()
}
