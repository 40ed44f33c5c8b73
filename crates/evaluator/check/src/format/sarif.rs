//! `-o sarif`: SARIF 2.1.0, as GitHub code scanning and editors read it.
//!
//! A rule is one validation of a policy. Denials, errors and unknown verdicts have the level `error`, warnings `warning` and
//! audit entries `note`. There are no times, so equal runs give equal files.

use console::sarif::{self, Rules, locations};
use serde::Serialize;
use serde_json::{Value, json};

use super::parts::{case_text, push_next, with_field};
use crate::report::{CheckReport, CheckedDocument, DocumentFinding, Severity};

/// Rule of documents that can't be used.
const INPUT: &str = "durward/input";
/// Rule of findings that are about no single policy.
const OBJECT: &str = "durward/object";

/// Rule of cases.
const CASE: &str = "durward/case";

/// Returns the report as SARIF.
pub(super) fn write(report: &CheckReport) -> impl Serialize + use<> {
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
    let run = json!({
        "automationDetails": {"id": "durward-check/"},
        "invocations": [{
            "executionSuccessful": report.problems.is_empty(),
            "exitCode": report.exit_code,
            "toolExecutionNotifications": notes,
        }],
        "properties": {"kubeVersion": report.kube_version, "namespace": report.namespace},
    });
    sarif::log(run, rules, results)
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
