//! `check` against recorded answers of kube-apiserver 1.35.4.
//!
//! A line of `requests.jsonl` has policies with bindings, an object before and after the request, and the answer to a dry run. The
//! answer is code, reason and message of the status, warnings, and annotations in the audit log. A line of `refusals.jsonl` has
//! documents, and the causes for which the API server refuses the last of them; none if it accepts it. `make e2e TEST=policies::` compares the records
//! with a running API server.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::check::files;
use crate::harness::durward_in;

fn data(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/live-1.35.4").join(file)
}

fn lines(file: &str) -> Vec<Value> {
    let text = fs::read_to_string(data(file)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns objects as documents of one file.
fn stream<'v>(objects: impl IntoIterator<Item = &'v Value>) -> String {
    objects.into_iter().filter(|object| !object.is_null()).map(ToString::to_string).collect()
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_default()
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Returns the recorded answer without the name of the object, which the API server can generate.
fn recorded(case: &Value) -> Value {
    let mut answer = case["answer"].clone();
    if let Some((_, cause)) = text(&case["answer"], "message").split_once(" is forbidden: ") {
        answer["message"] = cause.into();
    }
    json!({"answer": answer, "warnings": case["warnings"], "annotations": case["annotations"]})
}

/// Returns the answer that a report expects from the API server.
fn expected(document: &Value) -> Value {
    let findings = array(&document["findings"]);
    let by = |finding: &Value| match text(finding, "binding") {
        "" => format!("ValidatingAdmissionPolicy '{}'", text(finding, "policy")),
        binding => {
            format!("ValidatingAdmissionPolicy '{}' with binding '{binding}'", text(finding, "policy"))
        }
    };
    let denial = findings.iter().find(|finding| finding["serverOrder"] == 0);
    let answer = denial.map_or(Value::Null, |finding| {
        let message = format!("{} denied request: {}", by(finding), text(finding, "message"));
        json!({"code": finding["code"], "reason": finding["reason"], "message": message})
    });
    let warns = findings.iter().filter(|finding| finding["verdict"] == "warn");
    let mut warnings: Vec<String> = warns
        .map(|finding| format!("Validation failed for {}: {}", by(finding), text(finding, "message")))
        .collect();
    warnings.sort();
    json!({"answer": answer, "warnings": warnings, "annotations": document["auditAnnotations"]})
}

fn name(case: &Value) -> &str {
    let object = if case["object"].is_null() { &case["oldObject"] } else { &case["object"] };
    let metadata = &object["metadata"];
    if metadata["name"].is_null() { text(metadata, "generateName") } else { text(metadata, "name") }
}

/// Writes policies, facts and these files into a directory.
fn directory(requests: &[&Value], more: &[(&str, &str)]) -> tempfile::TempDir {
    let policies = stream(requests.iter().flat_map(|case| array(&case["policies"])));
    let facts = stream(&lines("facts.jsonl"));
    files(&[&[("with/policies.json", policies.as_str()), ("with/facts.json", &facts)], more].concat())
}

/// Judges the requests of a user, and returns how many are denied.
fn judge(user: &str, arguments: &[&str], requests: &[&Value]) -> usize {
    let objects = stream(requests.iter().map(|case| &case["object"]));
    let old = stream(requests.iter().map(|case| &case["oldObject"]));
    let dir = directory(requests, &[("objects.json", &objects), ("old.json", &old)]);
    let line = ["check", "objects.json", "--old", "old.json", "--with", "with", "--as", user, "-o", "json"];
    let run = durward_in(dir.path(), &[&line[..], arguments].concat(), "");
    let report = run.json();
    assert_eq!(report["problems"], json!([]), "{}", run.err);
    let documents: BTreeMap<&str, &Value> =
        array(&report["documents"]).iter().map(|document| (text(document, "name"), document)).collect();
    let mut wrong = Vec::new();
    for case in requests {
        let document = documents[name(case)];
        let (expected, recorded) = (expected(document), recorded(case));
        // The records have the answers of policies. A schema that is not evaluated belongs to no policy.
        let is_unknown = array(&document["findings"])
            .iter()
            .any(|finding| finding["verdict"] == "unknown" && finding["policy"] != "");
        let may_be_unknown = case["unknown"] == true;
        if is_unknown != may_be_unknown || (!may_be_unknown && expected != recorded) {
            let (title, name) = (&case["title"], name(case));
            wrong.push(format!("{name} {title}\n  check    {expected}\n  recorded {recorded}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), requests.len(), wrong.join("\n"));
    requests.iter().filter(|case| !case["answer"].is_null()).count()
}

#[test]
fn answers_requests_as_the_api_server_does() {
    let all = lines("requests.jsonl");
    let (mut plain, others): (Vec<&Value>, Vec<&Value>) = all.iter().partition(|case| case["user"].is_null());
    plain.retain(|case| case["subresource"].is_null());
    let denied = judge("admin", &[], &plain);
    assert!(plain.len() > 200 && denied > 100 && denied + 60 < plain.len(), "{denied} of {}", plain.len());
    let grants = data("grants.yaml").display().to_string();
    let denied = judge("ann", &["--grants", &grants], &others);
    assert!(denied > 5 && denied + 5 < others.len(), "{denied} of {}", others.len());
}

#[test]
fn answers_requests_for_subresources_as_the_api_server_does() {
    let all = lines("requests.jsonl");
    let requests: Vec<&Value> = all.iter().filter(|case| !case["subresource"].is_null()).collect();
    let case = |case: &&Value| {
        let expect = match recorded(case)["answer"].clone() {
            Value::Null => json!({"verdict": "skip", "policy": case["policies"][0]["metadata"]["name"]}),
            answer => {
                let (_, message) = text(&answer, "message").split_once(" denied request: ").unwrap();
                json!({"verdict": "deny", "policy": case["policies"][0]["metadata"]["name"], "reason": answer["reason"], "message": message})
            }
        };
        json!({
            "name": name(case), "object": case["object"], "oldObject": case["oldObject"],
            "subresource": case["subresource"], "user": "admin", "expect": expect,
        })
    };
    let cases: Vec<Value> = requests.iter().map(case).collect();
    let cases = json!({"apiVersion": "durward.dev/v1alpha1", "kind": "Cases", "cases": cases}).to_string();
    let dir = directory(&requests, &[("cases.json", &cases)]);
    let run = durward_in(dir.path(), &["check", "cases.json", "--with", "with"], "");
    assert_eq!(run.code, 0, "{}{}", run.out, run.err);
    assert!(
        run.out.contains(&format!("{} cases passed", requests.len())) && requests.len() > 5,
        "{}",
        run.out
    );
}

/// An error of an expression is one cause for the API server, which begins with the expression. The report has one problem for
/// each place in it.
fn is_same(cause: &Value, problems: &[&Value]) -> bool {
    let message = text(cause, "message");
    // Durward has words of its own for a syntax error.
    if message.ends_with(": Syntax error") {
        return problems.iter().any(|problem| text(problem, "message").starts_with("Syntax error: "));
    }
    match message.matches("ERROR: <input>").count() {
        0 => problems.iter().any(|problem| message.ends_with(text(problem, "message"))),
        places => {
            problems.iter().filter(|problem| message.contains(text(problem, "message"))).count() == places
        }
    }
}

#[test]
fn refuses_policies_as_the_api_server_does() {
    let cases = lines("refusals.jsonl");
    let documents = stream(cases.iter().flat_map(|case| array(&case["policies"])));
    let dir = files(&[("policies.json", &documents)]);
    let run = durward_in(dir.path(), &["check", "policies.json", "--unbound", "skip", "-o", "json"], "");
    assert_eq!(run.code, 2, "{}", run.err);
    let report = run.json();
    let mut wrong = Vec::new();
    for case in &cases {
        let refused = array(&case["policies"]).last().unwrap();
        let is_of = |problem: &&Value| {
            problem["kind"] == refused["kind"] && problem["name"] == refused["metadata"]["name"]
        };
        let problems: Vec<&Value> = array(&report["problems"]).iter().filter(is_of).collect();
        let causes = array(&case["refused"]);
        let of = |field: &Value| -> Vec<&Value> {
            problems.iter().copied().filter(|problem| problem["field"] == *field).collect()
        };
        let is_known = |problem: &&Value| causes.iter().any(|cause| cause["field"] == problem["field"]);
        let same = causes.iter().all(|cause| is_same(cause, &of(&cause["field"])));
        if !same || !problems.iter().all(is_known) {
            wrong.push(format!("{}\n  check    {problems:?}\n  recorded {causes:?}", case["title"]));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
    let accepted = cases.iter().filter(|case| case["refused"] == json!([])).count();
    assert!(accepted < 5 && cases.len() > 50 + accepted, "{accepted} of {}", cases.len());
}
