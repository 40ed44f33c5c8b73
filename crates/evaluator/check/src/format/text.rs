//! The format `text`: a line for each finding, and a summary.

use admission::{Operation, text as clean};
use console::output::{self, Style, foreign};

use super::parts;
use crate::report::{CheckReport, CheckedCase, CheckedDocument, DocumentFinding, Severity};
use manifests::words;

/// Formats a report.
pub(super) fn text(report: &CheckReport, style: Style) -> String {
    let mut lines = Vec::new();
    for document in &report.documents {
        for finding in &document.findings {
            lines.push(line(document, finding, style));
            if !finding.next.is_empty() {
                lines.push(format!("  Next: {}", foreign(&finding.next)));
            }
        }
    }
    for case in report.cases.iter().filter(|case| !case.passed) {
        lines.push(failed(case, style));
    }
    lines.push(summary(report, style));
    output::without_commands(&output::lines(lines)).into_owned()
}

/// Formats a finding.
fn line(document: &CheckedDocument, finding: &DocumentFinding, style: Style) -> String {
    let place = style.bold(&parts::place(&finding.position));
    let operation = match document.operation {
        Operation::Create | Operation::Connect => "",
        Operation::Update => " (update)",
        Operation::Delete => " (delete)",
    };
    let verdict = match finding.verdict {
        Severity::Deny | Severity::Error if document.is_later(finding) => style.red("then denied"),
        Severity::Deny => style.red(words::denied(false)),
        Severity::Error => style.red(words::denied(!finding.policy.is_empty())),
        Severity::Unknown => style.yellow("could not decide"),
        Severity::Warn => style.yellow("warning"),
        Severity::Audit => style.cyan("audit"),
    };
    let object = clean::one_line(&format!("{} {}", document.kind, document.full_name()));
    let source = match source(finding) {
        None => String::new(),
        Some(source) => format!(" {}", clean::one_line(&source)),
    };
    format!("{place}: {object}{operation}: {verdict}{source}: {}", foreign(&finding.message))
}

/// Formats the source of a finding: a policy, or the API server itself. A schema that is not evaluated has no source.
fn source(finding: &DocumentFinding) -> Option<String> {
    if finding.policy.is_empty() {
        return match finding.verdict {
            Severity::Unknown => None,
            Severity::Warn | Severity::Deny => Some("by the API server".to_owned()),
            _ => Some("by the API server, which can't decode it".to_owned()),
        };
    }
    let by = if matches!(finding.verdict, Severity::Unknown) { "" } else { "by " };
    Some(format!("{by}{}", words::source(&finding.policy, &finding.binding)))
}

fn failed(case: &CheckedCase, style: Style) -> String {
    let place = style.bold(&parts::place(&case.position));
    let result = style.red("failed");
    let next =
        if case.next.is_empty() { String::new() } else { format!("\n  Next: {}", foreign(&case.next)) };
    let (expected, actual) = (foreign(&case.expected), foreign(&case.actual));
    format!(
        "{place}: case \"{}\" {result}\n  expected {expected}\n  actual   {actual}{next}",
        clean::one_line(&case.name)
    )
}

fn summary(report: &CheckReport, style: Style) -> String {
    let totals = &report.totals;
    let count =
        |number: usize, one: &str, many: &str| format!("{number} {}", if number == 1 { one } else { many });
    let mut verdicts = Vec::new();
    if totals.denied > 0 {
        verdicts.push(style.red(&format!("{} denied", totals.denied)));
    }
    if totals.unknown > 0 {
        verdicts.push(style.yellow(&format!("{} not decided", totals.unknown)));
    }
    if totals.warnings > 0 {
        verdicts.push(style.yellow(&count(totals.warnings, "warning", "warnings")));
    }
    if totals.audits > 0 {
        verdicts.push(style.cyan(&count(totals.audits, "audit entry", "audit entries")));
    }
    if totals.problems > 0 {
        verdicts.push(style.red(&count(totals.problems, "problem", "problems")));
    }
    if totals.failed_cases > 0 {
        let failed = format!("{} of {}", totals.failed_cases, count(totals.cases, "case", "cases"));
        verdicts.push(style.red(&format!("{failed} failed")));
    } else if totals.cases > 0 {
        verdicts.push(style.green(&format!("{} passed", count(totals.cases, "case", "cases"))));
    }
    if verdicts.is_empty() {
        let judged = totals.matched > 0 || report.documents.iter().any(|document| document.schema_checked);
        verdicts.push(if judged { style.green("no violations") } else { "no policy matched".to_owned() });
    }
    let structure_only = report.documents.iter().filter(|document| document.structure_only).count();
    if structure_only > 0 {
        verdicts.push(format!("{structure_only} structure only"));
    }
    format!(
        "{} checked by {} for Kubernetes {}, namespace {}: {}",
        count(totals.documents, "document", "documents"),
        count(totals.policies, "policy", "policies"),
        report.kube_version,
        report.namespace,
        verdicts.join(", ")
    )
}
