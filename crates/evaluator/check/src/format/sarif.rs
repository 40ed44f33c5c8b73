//! `-o sarif`: SARIF 2.1.0, as GitHub code scanning and editors read it.
//!
//! A rule is one validation of a policy. Denials, errors and unknown verdicts have the level `error`, warnings `warning` and
//! audit entries `note`. There are no times, so equal runs give equal files.

use config::Place;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::{Value, json};

use super::parts::{case_text, push_next, with_field};
use crate::report::{CheckReport, CheckedDocument, DocumentFinding, Severity};

const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

/// Rule of documents that can't be used.
const INPUT: &str = "durward/input";
/// Rule of findings that are about no single policy.
const OBJECT: &str = "durward/object";

/// Rule of cases.
const CASE: &str = "durward/case";

/// Characters that a path in a URI can't contain.
const NOT_IN_PATHS: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b']')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}')
    .add(b':');

/// Rules in the order of their first result.
#[derive(Default)]
struct Rules {
    rules: Vec<Value>,
    ids: Vec<String>,
}

/// Returns the report as SARIF.
pub(super) fn write(report: &CheckReport) -> Value {
    let mut rules = Rules::default();
    let mut results = Vec::new();
    for problem in &report.problems {
        let index = rules.index(
            INPUT,
            "The document can't be used.",
            "Documents must be readable and of a known kind.",
        );
        let mut message = with_field(&problem.field, &problem.message);
        push_next(&mut message, &problem.next);
        let object = format!("{} {}", problem.kind, problem.name);
        results.push(json!({
            "ruleId": INPUT,
            "ruleIndex": index,
            "level": "error",
            "message": {"text": message},
            "locations": locations(problem.position.as_ref(), object.trim()),
        }));
    }
    for document in &report.documents {
        results.extend(document.findings.iter().map(|finding| result(document, finding, &mut rules)));
    }
    for case in report.cases.iter().filter(|case| !case.passed) {
        let index = rules.index(CASE, "A case fails.", "The verdict must be the expected one.");
        results.push(json!({
            "ruleId": CASE,
            "ruleIndex": index,
            "level": "error",
            "message": {"text": case_text(case)},
            "locations": locations(Some(&case.position), &case.name),
        }));
    }
    let notes: Vec<Value> =
        report.notes.iter().map(|note| json!({"level": "note", "message": {"text": note}})).collect();
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "durward",
                "informationUri": env!("CARGO_PKG_REPOSITORY"),
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": rules.rules,
            }},
            "automationDetails": {"id": "durward-check/"},
            "invocations": [{
                "executionSuccessful": report.problems.is_empty(),
                "exitCode": report.exit_code,
                "toolExecutionNotifications": notes,
            }],
            "columnKind": "unicodeCodePoints",
            "properties": {"kubeVersion": report.kube_version, "namespace": report.namespace},
            "results": results,
        }],
    })
}

fn result(document: &CheckedDocument, finding: &DocumentFinding, rules: &mut Rules) -> Value {
    let (id, short, full) = match (&finding.rule, finding.policy.as_str()) {
        (Some(rule), policy) => (
            format!("{policy}/validations[{}]", rule.index),
            format!("Validation {} of policy {policy}", rule.index),
            format!("The policy requires: {}", rule.expression.trim()),
        ),
        (None, "") => {
            (OBJECT.to_owned(), "The object".to_owned(), "The API server must accept the object.".to_owned())
        }
        (None, policy) => (
            policy.to_owned(),
            format!("Policy {policy}"),
            format!("The API server must be able to evaluate policy {policy}."),
        ),
    };
    let index = rules.index(&id, &short, &full);
    let level = match finding.verdict {
        Severity::Deny | Severity::Error | Severity::Unknown => "error",
        Severity::Warn => "warning",
        Severity::Audit => "note",
    };
    let mut message = with_field(&finding.field, &finding.message);
    push_next(&mut message, &finding.next);
    let object = format!("{} {} {}", document.api_version, document.kind, document.full_name());
    json!({
        "ruleId": id,
        "ruleIndex": index,
        "level": level,
        "message": {"text": message},
        "locations": locations(Some(&finding.position), &object),
        "properties": {
            "verdict": finding.verdict,
            "operation": document.operation.as_str(),
            "policy": finding.policy,
            "binding": finding.binding,
            "field": finding.field,
            "reason": finding.reason,
            "code": finding.code,
        },
    })
}

impl Rules {
    /// Returns the index of a rule, and adds it if it is new.
    fn index(&mut self, id: &str, short: &str, full: &str) -> usize {
        if let Some(index) = self.ids.iter().position(|known| known == id) {
            return index;
        }
        self.ids.push(id.to_owned());
        self.rules.push(json!({
            "id": id,
            "shortDescription": {"text": short},
            "fullDescription": {"text": full},
            "help": {"text": full},
        }));
        self.ids.len() - 1
    }
}

fn locations(position: Option<&Place>, object: &str) -> Value {
    let mut location = json!({});
    if let Some(Place { file, line, column }) = position {
        location["physicalLocation"] = json!({
            "artifactLocation": {"uri": uri(file)},
            "region": {"startLine": line, "startColumn": column},
        });
    }
    if !object.is_empty() {
        location["logicalLocations"] = json!([{"fullyQualifiedName": object, "kind": "object"}]);
    }
    json!([location])
}

/// Returns a file as a URI. A relative path is a relative reference, which GitHub resolves from the repository's root.
fn uri(file: &str) -> String {
    let path = utf8_percent_encode(file.strip_prefix("./").unwrap_or(file), NOT_IN_PATHS);
    if file.starts_with('/') { format!("file://{path}") } else { path.to_string() }
}
