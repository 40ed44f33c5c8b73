//! `diff crd NEW --live`: the objects of recorded fleets and of an API server that answers page by page.

use std::fs;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Run, TestDir, api_server, command, copy, root};

const WORLD: &str = "examples/deletion/healthy";
const CRD: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.org";
const OBJECTS: &str = "/apis/example.org/v1/widgets";
/// Objects of a page, as Durward requests them.
const PAGE: usize = 500;
const MEMBERS: [&str; 3] = ["here", "m1", "m2"];

/// The CRD with this schema of `spec`.
fn crd(spec: &Value) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.org", "uid": "1"},
        "spec": {"group": "example.org", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": spec}}}}]}})
}

fn old() -> Value {
    let text = json!({"type": "string"});
    crd(
        &json!({"type": "object", "properties": {"size": text, "note": text, "tags": {"type": "array", "items": text}}}),
    )
}

/// The new CRD has no field `note`, and shorter sizes. Tags are a set.
fn new() -> Value {
    crd(&json!({"type": "object", "properties": {
        "size": {"type": "string", "maxLength": 5},
        "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}}}))
}

fn widget(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "example.org/v1", "kind": "Widget", "metadata": {"name": name, "namespace": "shop"}, "spec": spec})
}

/// The recorded fleet, with the old CRD in three of its four clusters. m3 has no CRD.
fn fleet() -> TestDir {
    let dir = TestDir::new();
    copy(&root().join(WORLD), &dir.path().join("fleet"));
    let list = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinitionList", "items": [old()]});
    for cluster in MEMBERS {
        let file = format!("fleet/{cluster}/customresourcedefinitions.v1.apiextensions.k8s.io.yaml");
        dir.write(&file, &list.to_string());
        objects(&dir, cluster, &[]);
    }
    dir.write("new.yaml", &new().to_string());
    dir
}

/// Records whole objects of a cluster.
fn objects(dir: &TestDir, cluster: &str, items: &[Value]) {
    let list = json!({"apiVersion": "example.org/v1", "kind": "WidgetList", "items": items});
    dir.write(&format!("fleet/{cluster}/widgets.v1.example.org.yaml"), &list.to_string());
}

/// A fleet in which three of six objects break, and one can't be created again.
fn broken_fleet() -> TestDir {
    let dir = fleet();
    let good = json!({"size": "small", "tags": ["a", "b"]});
    objects(
        &dir,
        "m1",
        &[widget("blue", &json!({"size": "small", "note": "dropped"})), widget("green", &good)],
    );
    objects(
        &dir,
        "m2",
        &[
            widget("blue", &good),
            widget("long", &json!({"size": "larger"})),
            widget("noted", &json!({"note": "dropped", "tags": ["a", "a"]})),
            widget("twice", &json!({"tags": ["a", "a"], "size": "small", "note": "dropped"})),
        ],
    );
    dir
}

fn live(dir: &TestDir, more: &[&str]) -> Run {
    dir.run(&[&["diff", "crd", "new.yaml", "--live", "--snapshot", "fleet"], more].concat())
}

#[test]
fn names_exactly_the_objects_that_break() {
    let run = live(&broken_fleet(), &["-o", "json"]);
    let report = run.json();
    let objects = report["crds"][0]["objects"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let names: Vec<String> = objects
        .iter()
        .map(|one| format!("{}/{} {}", text(&one["cluster"]), text(&one["name"]), one["lost"]))
        .collect();
    assert_eq!(
        names,
        ["m1/blue [\"spec.note\"]", "m2/long []", "m2/noted [\"spec.note\"]", "m2/twice [\"spec.note\"]"]
    );
    let numbers: Vec<_> = report["crds"][0]["clusters"].as_array().unwrap().iter().collect();
    let numbers: Vec<_> = numbers
        .iter()
        .map(|one| ["hasCrd", "objects", "invalid", "onlyCreate", "undecided"].map(|key| one[key].clone()))
        .collect();
    assert_eq!(
        json!(numbers),
        json!([[true, 0, 0, 0, 0], [true, 2, 1, 0, 0], [true, 4, 2, 1, 0], [false, 0, 0, 0, 0]])
    );
    assert_eq!((run.code, &report["exitCode"]), (1, &json!(1)), "{}", run.err);
}

#[test]
fn text_has_the_invalid_objects_first_and_the_numbers_of_all() {
    let run = live(&broken_fleet(), &[]);
    assert_eq!((run.code, run.err.as_str()), (1, ""));
    assert!(run.out.starts_with("m1: Widget shop/blue: loses fields: spec.note\n"), "{}", run.out);
    assert!(run.out.ends_with("widgets.example.org: 3 of 6 objects in 3 clusters become invalid; 1 object can be updated, but not created again\n"), "{}", run.out);
    // Text names ten objects, invalid ones first, and counts the others.
    let dir = fleet();
    let named = |at: usize, spec: &Value| widget(&format!("w{at:02}"), spec);
    let items: Vec<Value> = (0..20).map(|at| named(at, &json!({"size": "larger"}))).collect();
    objects(&dir, "m1", &items);
    let items: Vec<Value> = (0..15).map(|at| named(at, &json!({"note": "dropped"}))).collect();
    objects(&dir, "m2", &items);
    let run = live(&dir, &[]);
    let lines: Vec<&str> = run.out.lines().collect();
    assert!(
        lines.len() == 12 && lines[..10].iter().all(|line| line.starts_with("m2: Widget shop/w")),
        "{}",
        run.out
    );
    assert_eq!(lines[10], "and 25 more objects: -o json has all of them");
    let report = live(&dir, &["-o", "json"]).json();
    assert_eq!(report["crds"][0]["objects"].as_array().unwrap().len(), 35);
}

#[test]
fn an_object_that_can_only_not_be_created_again_breaks_nothing() {
    let dir = fleet();
    objects(&dir, "m1", &[widget("long", &json!({"size": "larger"}))]);
    let run = live(&dir, &[]);
    assert_eq!(run.code, 0, "{}", run.out);
    assert!(run.out.contains("m1: Widget shop/long: create refused: spec.size"), "{}", run.out);
}

#[test]
fn objects_without_their_fields_could_not_be_decided() {
    let dir = fleet();
    let list = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
        "items": [{"metadata": {"name": "blue", "namespace": "shop"}}]});
    dir.write("fleet/m2/widgets.v1.example.org.yaml", &list.to_string());
    let run = live(&dir, &[]);
    assert_eq!(run.code, 3, "{}{}", run.out, run.err);
    assert!(run.out.starts_with("m2: could not decide: "), "{}", run.out);
    let results = results(&live(&dir, &["-o", "sarif"]).json());
    assert_eq!((results.len(), &results[0]["ruleId"]), (1, &json!("durward/unread")));
    // An object that breaks in another cluster outranks it.
    objects(&dir, "m1", &[widget("blue", &json!({"note": "dropped"}))]);
    assert_eq!(live(&dir, &[]).code, 1);
}

#[test]
fn a_crd_that_no_cluster_has_breaks_nothing() {
    let dir = fleet();
    let text = new().to_string().replace("widgets", "gadgets");
    dir.write("new.yaml", &text);
    let run = live(&dir, &[]);
    assert_eq!(
        (run.code, run.out.as_str()),
        (0, "gadgets.example.org: new, no cluster has it\n"),
        "{}",
        run.err
    );
}

#[test]
fn a_crd_of_old_that_new_does_not_have_is_removed() {
    let dir = fleet();
    let gadgets = new().to_string().replace("widgets", "gadgets");
    dir.write("old.yaml", &[old().to_string(), gadgets].join("\n---\n"));
    let arguments = ["diff", "crd", "old.yaml", "new.yaml", "--live", "--snapshot", "fleet"];
    let run = dir.run(&arguments);
    assert_eq!(run.code, 1, "{}{}", run.out, run.err);
    let expected = "gadgets.example.org: not in NEW: deleting the CRD deletes all its objects\n";
    assert!(run.out.ends_with(expected), "{}", run.out);
    let json = dir.run(&[&arguments[..], &["-o", "json"]].concat()).json();
    assert_eq!((&json["removed"], &json["exitCode"]), (&json!(["gadgets.example.org"]), &json!(1)));
    // SARIF has it too.
    let results = results(&dir.run(&[&arguments[..], &["-o", "sarif"]].concat()).json());
    assert_eq!((results.len(), &results[0]["ruleId"]), (1, &json!("durward/crdRemoved")));
}

fn results(log: &Value) -> Vec<Value> {
    assert_eq!((&log["version"], log["runs"].as_array().unwrap().len()), (&json!("2.1.0"), 1));
    log["runs"][0]["results"].as_array().unwrap().clone()
}

#[test]
fn sarif_has_a_result_for_each_object_that_breaks() {
    let run = live(&broken_fleet(), &["-o", "sarif"]);
    let log = run.json();
    assert_eq!((run.code, &log["runs"][0]["invocations"][0]["exitCode"]), (1, &json!(1)));
    let rules = log["runs"][0]["tool"]["driver"]["rules"].as_array().unwrap();
    let results = results(&log);
    let found: Vec<_> = results
        .iter()
        .map(|one| {
            let rule = &rules[usize::try_from(one["ruleIndex"].as_u64().unwrap()).unwrap()];
            assert_eq!(rule["id"], one["ruleId"]);
            let place = &one["locations"][0]["physicalLocation"];
            assert_eq!(place["artifactLocation"]["uri"], "new.yaml");
            assert!(place["region"]["startLine"].as_u64().unwrap() > 0, "{place}");
            json!([one["ruleId"], one["level"], one["message"]["text"].as_str().unwrap().split(": ").next()])
        })
        .collect();
    let invalid = |cluster: &str| json!(["durward/invalid", "error", cluster]);
    assert_eq!(
        found,
        [invalid("m1"), json!(["durward/create", "warning", "m2"]), invalid("m2"), invalid("m2")]
    );
}

/// The status of a refused request.
fn status(code: u16, reason: &str) -> (u16, String) {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": reason, "reason": reason, "code": code});
    (code, status.to_string())
}

/// The page of a List that begins at an object, of `of` objects. The next page begins at its continue token.
fn page(path: &str, of: usize, object: impl Fn(usize) -> Value) -> (u16, String) {
    let token = path.split_once("continue=").map_or("0", |(_, rest)| rest.split('&').next().unwrap());
    let from: usize = token.parse().unwrap();
    let end = (from + PAGE).min(of);
    let next = if end < of { end.to_string() } else { String::new() };
    let list = json!({"apiVersion": "example.org/v1", "kind": "WidgetList",
        "metadata": {"resourceVersion": "1", "continue": next}, "items": (from..end).map(object).collect::<Vec<_>>()});
    (200, list.to_string())
}

/// A directory with the new CRD and a kubeconfig of an API server that has the old CRD and these Lists.
fn cluster(list: impl Fn(&str) -> (u16, String) + Send + Sync + 'static) -> TestDir {
    let (_, kubeconfig) = api_server(move |path| match path.split('?').next().unwrap() {
        CRD => (200, old().to_string()),
        OBJECTS => list(path),
        _ => (404, "404 page not found\n".to_owned()),
    });
    let dir = TestDir::new();
    dir.write("api.config", &kubeconfig);
    dir.write("new.yaml", &new().to_string());
    dir
}

const LIVE: [&str; 6] = ["diff", "crd", "new.yaml", "--live", "--kubeconfig", "api.config"];

#[test]
fn a_list_whose_continue_token_expires_could_not_be_decided() {
    let good = |at: usize| widget(&format!("w{at}"), &json!({"size": "small"}));
    let dir = cluster(move |path| {
        if path.contains("continue=1000") {
            return status(410, "Expired");
        }
        page(path, 1500, good)
    });
    let run = dir.run(&LIVE);
    assert_eq!(run.code, 3, "{}{}", run.out, run.err);
    assert!(run.out.contains("this cluster: could not decide: "), "{}", run.out);
    assert!(run.out.contains("the requested version has expired on the API server"), "{}", run.out);
    assert!(run.out.contains("none of 1000 objects in 1 cluster becomes invalid"), "{}", run.out);
}

/// Returns the highest resident memory of a run in MiB, with its output.
fn peak_memory(dir: &TestDir, more: &[&str]) -> (u64, Run) {
    let (out, err) = (dir.path().join("out"), dir.path().join("err"));
    let mut child = command(dir.path(), &[&LIVE[..], more].concat())
        .stdin(Stdio::null())
        .stdout(fs::File::create(&out).unwrap())
        .stderr(fs::File::create(&err).unwrap())
        .spawn()
        .unwrap();
    let file = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    let code = loop {
        let status = fs::read_to_string(&file).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse().ok());
        peak = peak.max(kib.unwrap_or(0));
        if let Some(status) = child.try_wait().unwrap() {
            break status.code().unwrap();
        }
        thread::sleep(Duration::from_millis(2));
    };
    let text = |path| fs::read_to_string(path).unwrap();
    (peak >> 10, Run { code, out: text(&out), err: text(&err) })
}

#[test]
#[ignore = "takes minutes: 100,000 objects"]
fn a_hundred_thousand_objects_take_less_than_256_mib() {
    const ALL: usize = 100_000;
    for (every, formats) in [(1, &["sarif", "json", "text"][..]), (1_000, &["text"])] {
        let dir = cluster(move |path| {
            page(path, ALL, |at| {
                let tags: Vec<String> = (0..70).map(|tag| format!("tag-{tag:06}")).collect();
                let mut spec = json!({"size": "small", "tags": tags});
                if at % every == 0 {
                    spec["note"] = json!("dropped");
                }
                widget(&format!("widget-{at:06}"), &spec)
            })
        });
        for format in formats {
            let (peak, run) = peak_memory(&dir, &["-o", format]);
            println!("{} objects break, -o {format}: {peak} MiB", ALL / every);
            assert_eq!(run.code, 1, "{}", run.err);
            if *format == "text" {
                let expected = format!("{} of {ALL} objects in 1 cluster become invalid\n", ALL / every);
                assert!(run.out.ends_with(&expected), "{}", run.out);
            }
            assert!(peak < 256, "{peak} MiB");
        }
    }
}
