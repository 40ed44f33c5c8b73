//! Parts that several formats share.

use admission::text as clean;
use config::Place;

use crate::args::FailOn;
use crate::report::{CheckedCase, DocumentFinding, Severity};

/// Which findings fail a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gate {
    /// The weakest finding that fails it.
    pub(super) fail_on: FailOn,
    /// Whether unknown verdicts pass.
    pub(super) allow_unknown: bool,
}

impl Gate {
    /// Returns whether a finding fails the run.
    pub(super) fn fails(self, verdict: Severity) -> bool {
        match verdict {
            Severity::Deny | Severity::Error => true,
            Severity::Unknown => !self.allow_unknown,
            Severity::Warn => self.fail_on != FailOn::Deny,
            Severity::Audit => self.fail_on == FailOn::Audit,
        }
    }
}

/// Returns a message that starts with the field that it is about.
pub(super) fn with_field(field: &str, message: &str) -> String {
    if field.is_empty() || message.contains(field) {
        message.to_owned()
    } else {
        format!("{field}: {message}")
    }
}

/// Appends the next step.
pub(super) fn push_next(text: &mut String, next: &str) {
    if !next.is_empty() {
        text.push_str("\nNext: ");
        text.push_str(next);
    }
}

/// Returns a place as compilers print it.
pub(super) fn place(position: &Place) -> String {
    format!("{}:{}:{}", clean::one_line(&position.file), position.line, position.column)
}

/// Returns a finding as text with its place.
pub(super) fn finding_text(finding: &DocumentFinding) -> String {
    let message = with_field(&finding.field, &finding.message);
    let mut text = format!("{}: {}: {message}", place(&finding.position), finding.verdict.name());
    if let Some(rule) = &finding.rule {
        text.push_str("\nExpression: ");
        text.push_str(rule.expression.trim());
    }
    push_next(&mut text, &finding.next);
    text
}

/// Returns the difference of a failed case.
pub(super) fn case_text(case: &CheckedCase) -> String {
    let mut text = format!("expected {}, actual {}", case.expected, case.actual);
    push_next(&mut text, &case.next);
    text
}
