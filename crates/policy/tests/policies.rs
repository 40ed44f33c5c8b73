//! Policies and bindings: what the API server refuses, and what it answers to requests, as recorded from its own code.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test fails by them and says why"
)]

use std::collections::BTreeMap;
use std::path::Path;

use policy::Decision;
use policy::facts::{Facts, Lookup};
use policy::release::Release;
use policy::request::{GroupVersion, Request, User};
use policy::set::{Builder, Outcome, PolicySet};
use policy::value::{Arena, Value, read_json};
use serde_json::{Value as Json, json};

fn data(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/policies").join(name);
    std::fs::read_to_string(path).expect("test data")
}

fn lines(name: &str) -> Vec<Json> {
    let text = data(name);
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn items<'j>(json: &'j Json, field: &str) -> &'j [Json] {
    json[field].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text<'j>(json: &'j Json, field: &str) -> &'j str {
    json[field].as_str().unwrap_or_default()
}

fn load(case: &Json, server: u8) -> Result<PolicySet, Vec<String>> {
    let arena = Arena::new();
    let mut builder = Builder::new(Release::for_new(server));
    // The answers of 1.37 are those of its dispatcher, which checks nothing.
    if case["mode"] == "skip" || server == 37 {
        builder = Builder::stored(server);
    }
    for document in items(case, "policies").iter().chain(items(case, "bindings")) {
        let text = document.to_string();
        builder.add("case", read_json(arena.text(&text), &arena).expect("a document"));
    }
    let alone = case["mode"] == "create";
    builder.finish().map_err(|errors| {
        let errors = errors.iter().map(|error| error.error.to_string());
        errors.filter(|error| !(alone && error.ends_with("no document defines this policy"))).collect()
    })
}

/// Answers a lookup from the case. Authorization allows `get`, and fails for `fail`.
fn answer(case: &Json, lookup: &Lookup, facts: &mut Facts) {
    let name_of = |object: &Json| text(&object["metadata"], "name").to_owned();
    match lookup {
        Lookup::Namespace(name) => {
            let found = items(case, "namespaces").iter().find(|namespace| name_of(namespace) == *name);
            facts.namespaces.insert(name.clone(), found.map(Json::to_string));
        }
        Lookup::ParamKind(kind) => {
            let scope = match text(&case["paramKinds"], &kind.kind) {
                "namespaced" => Some(true),
                "cluster" => Some(false),
                _ => None,
            };
            facts.param_kinds.insert(kind.clone(), scope);
        }
        Lookup::Params(query) => {
            let found = items(case, "params").iter().filter(|object| {
                text(&object["metadata"], "namespace") == query.namespace
                    && query.name.as_ref().is_none_or(|name| name_of(object) == *name)
            });
            facts.params.insert(query.clone(), found.map(Json::to_string).collect());
        }
        Lookup::Check(check) => {
            let (allowed, reason, error) = match check.verb.as_str() {
                "get" => (true, "rule", None),
                "fail" => (false, "none", Some("broken".to_owned())),
                _ => (false, "denied", None),
            };
            facts.decisions.insert(check.clone(), Decision { allowed, reason: reason.to_owned(), error });
        }
        Lookup::Conversion { .. } => panic!("no case needs conversion"),
        Lookup::User => panic!("the user is known"),
    }
}

fn evaluate(case: &Json, set: &PolicySet) -> Json {
    let mut facts = Facts::default();
    loop {
        let arena = Arena::new();
        let outcome = {
            let parse = |json: &Json| {
                let text = json.to_string();
                if json.is_null() { Value::Null } else { read_json(arena.text(&text), &arena).expect("JSON") }
            };
            let input = &case["request"];
            let groups: Vec<&str> = items(&input["user"], "groups").iter().filter_map(Json::as_str).collect();
            let named =
                |name| GroupVersion { group: text(input, "group"), version: text(input, "version"), name };
            let request = Request {
                operation: text(input, "operation"),
                kind: named(text(input, "kind")),
                resource: named(text(input, "resource")),
                subresource: text(input, "subresource"),
                name: text(input, "name"),
                namespace: text(input, "namespace"),
                user: User {
                    name: text(&input["user"], "name"),
                    uid: text(&input["user"], "uid"),
                    groups: &groups,
                    extra: parse(&input["user"]["extra"]),
                },
                dry_run: input["dryRun"] == true,
                options: parse(&input["options"]),
                object: parse(&input["object"]),
                old_object: parse(&input["oldObject"]),
                ..Request::default()
            };
            match set.evaluate(&request, &facts, &arena, &|| true) {
                Outcome::Decided(decisions) => {
                    let mut found = BTreeMap::new();
                    if let Some(denial) = decisions.denials.first() {
                        let message = denial.status_message(&request.group_resource(), request.object_name());
                        let reason = denial.reason.as_str();
                        found.insert("message", json!(message));
                        found.insert("reason", json!(reason));
                        found.insert("code", json!(denial.code()));
                    }
                    let mut warnings: Vec<String> =
                        decisions.warnings.iter().map(policy::vap::decision::Warning::text).collect();
                    warnings.sort();
                    found.insert("warnings", json!(warnings));
                    let annotations: BTreeMap<_, _> = decisions.audit_annotations.into_iter().collect();
                    found.insert("annotations", json!(annotations));
                    return json!(found);
                }
                Outcome::Needs(needs) => needs,
                Outcome::Interrupted => panic!("nobody interrupts"),
            }
        };
        for lookup in &outcome {
            answer(case, lookup, &mut facts);
        }
    }
}

fn compare(server: u8, file: &str) {
    let mut cases = lines("cases.jsonl");
    let defaults: Json = serde_json::from_str(&data("defaults.json")).expect("JSON");
    for case in &mut cases {
        for field in ["request", "namespaces"] {
            if case[field].is_null() {
                case[field] = defaults[field].clone();
            }
        }
    }
    let answers = lines(file);
    assert_eq!(cases.len(), answers.len());
    let mut different = 0;
    for (case, want) in cases.iter().zip(&answers) {
        if want.as_object().is_none_or(serde_json::Map::is_empty) {
            continue;
        }
        let have = match load(case, server) {
            Err(errors) => json!({ "refused": errors }),
            Ok(_) if case["mode"] == "create" => json!({ "refused": [] }),
            Ok(set) => evaluate(case, &set),
        };
        let mut want = want.clone();
        if let Some(fields) = want.as_object_mut() {
            fields.remove("causes");
            if fields.get("warnings").is_some_and(Json::is_null) {
                fields.insert("warnings".to_owned(), json!([]));
            }
        }
        if have != want {
            different += 1;
            let title = &case["title"];
            eprintln!("{title}\n  want {want}\n  have {have}");
        }
    }
    eprintln!("{} of {} cases agree", cases.len() - different, cases.len());
    assert_eq!(different, 0);
}

#[test]
fn answers_as_version_1_35_does() {
    compare(35, "server-1.35.4.jsonl");
}

#[test]
fn answers_as_version_1_37_does() {
    compare(37, "server-1.37.2.jsonl");
}
