//! `-o github`: workflow commands of GitHub Actions, which become annotations of the changed lines.
//!
//! GitHub shows ten errors, ten warnings and ten notices of a step. The format `sarif` has no such limit.

use std::fmt::Write as _;

use console::output::push_annotation;

use super::parts::{case_text, push_next, with_field};
use crate::report::{CheckReport, DocumentFinding, Severity};

/// Returns one command for each problem, finding and failed case.
pub(super) fn write(report: &CheckReport) -> String {
    let mut lines = String::new();
    for problem in &report.problems {
        let mut message = with_field(&problem.field, &problem.message);
        push_next(&mut message, &problem.next);
        let subject = format!("{} {}", problem.kind, problem.name);
        let title = if subject.trim().is_empty() { "document" } else { subject.trim() };
        push_annotation(&mut lines, "error", problem.position.as_ref(), title, &message);
    }
    for document in &report.documents {
        for finding in &document.findings {
            let level = match finding.verdict {
                Severity::Deny | Severity::Error | Severity::Unknown => "error",
                Severity::Warn => "warning",
                Severity::Audit => "notice",
            };
            let title = title(&document.kind, &document.full_name(), finding);
            let mut message = with_field(&finding.field, &finding.message);
            push_next(&mut message, &finding.next);
            push_annotation(&mut lines, level, Some(&finding.position), &title, &message);
        }
    }
    for case in report.cases.iter().filter(|case| !case.passed) {
        let title = format!("case {}", case.name);
        push_annotation(&mut lines, "error", Some(&case.position), &title, &case_text(case));
    }
    lines
}

fn title(kind: &str, name: &str, finding: &DocumentFinding) -> String {
    let mut title = format!("{} {kind} {name}", finding.verdict.name());
    if !finding.policy.is_empty() {
        let _ = write!(title, ": policy {}", finding.policy);
    }
    title
}
