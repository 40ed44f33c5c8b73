//! `check` against recorded answers of kube-apiserver 1.35.4.
//!
//! Each line of the data has policies with bindings, an object before and after the request, and the answer of the API server to
//! the request as a dry run: code, reason and message of its status, and the number of its warnings.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::check::files;
use crate::harness::durward_in;

const FACTS: &str = "apiVersion: v1
kind: Namespace
metadata: {name: default, labels: {team: a}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: limits, namespace: default, labels: {k: v}}
data: {max: '2'}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: theparam}
rules: []
";

#[test]
fn denies_and_warns_as_the_api_server_does() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/check-1.35.4.jsonl");
    let text = fs::read_to_string(path).unwrap();
    let cases: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let stream = |objects: Vec<&Value>| objects.iter().map(ToString::to_string).collect::<String>();
    let named = |field: &str| {
        stream(cases.iter().map(|case| &case[field]).filter(|object| !object.is_null()).collect())
    };
    let policies = stream(cases.iter().flat_map(|case| case["policies"].as_array().unwrap()).collect());
    let dir = files(&[
        ("objects.json", &named("object")),
        ("old.json", &named("oldObject")),
        ("with/policies.json", &policies),
        ("with/facts.yaml", FACTS),
    ]);
    let arguments =
        ["check", "objects.json", "--old", "old.json", "--with", "with", "--as", "admin", "-o", "json"];
    let run = durward_in(dir.path(), &arguments, "");
    assert_eq!(run.code, 1, "{}", run.err);
    let report = run.json();
    let (mut denied, mut wrong) = (0, Vec::new());
    for (index, case) in cases.iter().enumerate() {
        let documents = report["documents"].as_array().unwrap();
        let document = documents.iter().find(|document| document["name"] == format!("o{index}")).unwrap();
        let findings = document["findings"].as_array().unwrap();
        let of = |verdict: &str| findings.iter().filter(|finding| finding["verdict"] == verdict).count();
        let first = findings.iter().find(|finding| finding["serverOrder"] == 0);
        let answer = first.map_or(Value::Null, |finding| {
            json!({"code": finding["code"], "reason": finding["reason"], "message": finding["message"]})
        });
        denied += usize::from(!answer.is_null());
        if answer != case["answer"] || of("warn") as u64 != case["warnings"] || of("unknown") > 0 {
            wrong.push(format!("{index}: {}\n  {answer}\n  {}", case["policies"][0]["spec"], case["answer"]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(cases.len() > 75 && denied > 30 && denied < cases.len() - 15, "{} {denied}", cases.len());
}
