//! The text of a denial. All guards build it here.
//!
//! Readers see it in a terminal, in an event, and in the output of `kubectl drain`. Line 1 is complete on its own: the object, and
//! why the request is denied. The lines below are optional: details, what to do next, and the command that overrides the denial.

use std::fmt;

use admission::text::{excerpt, one_line};

/// The length limit of line 1. A terminal and most event lists show it without a scroll bar.
pub(crate) const MAX_SUMMARY: usize = 160;

/// The start of the line with the command that overrides a denial.
const OVERRIDE: &str = "Override";

/// The start of the line with the caller's next step.
const NEXT: &str = "Next: ";

/// Returns a denial without the lines from the caller's next step on.
pub fn without_steps(text: &str) -> &str {
    text.split_once(&format!("\n{NEXT}")).map_or(text, |(reason, _)| reason)
}

/// Returns the reason in a denial that an audit annotation has on one line, also that of a native policy.
pub fn reason_on_one_line(text: &str) -> &str {
    let starts = [NEXT, OVERRIDE].map(|start| text.find(&format!(" {start}")).unwrap_or(text.len()));
    let end = starts.into_iter().min().unwrap_or(text.len());
    text.get(..end).unwrap_or(text).trim_end_matches('.')
}

/// Returns the lines of a denial without the command that overrides it.
pub fn lines_without_override(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.starts_with(OVERRIDE))
}

/// The text of a denial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    summary: String,
    lines: Vec<String>,
}

impl Message {
    /// Creates a message from its first line: the object, and why the request is denied. It contains no advice.
    pub(crate) fn new(summary: &str) -> Self {
        Self { summary: excerpt(summary, MAX_SUMMARY), lines: Vec::new() }
    }

    fn line(mut self, prefix: &str, text: &str) -> Self {
        self.lines.push(format!("{prefix}{}", one_line(text)));
        self
    }

    /// Adds an indented line with a detail.
    pub(crate) fn detail(self, text: &str) -> Self {
        self.line("  ", text)
    }

    /// Adds what the caller can do. A command that the caller can run ends the line.
    pub(crate) fn next(self, action: &str) -> Self {
        self.line(NEXT, action)
    }

    /// Adds what only an administrator of Durward can do.
    pub(crate) fn admin(self, action: &str) -> Self {
        self.line("Durward admin: ", action)
    }

    /// Returns the first line.
    pub(crate) fn summary(&self) -> &str {
        &self.summary
    }

    /// Adds the command that overrides the denial of a deletion. `consequence` is a condition or a consequence, or empty.
    pub(crate) fn override_with(self, command: &str, consequence: &str) -> Self {
        self.override_then(command, consequence, "delete again")
    }

    /// Adds the command that overrides a denial, and what to do after it. The command ends the line, so that it can be pasted.
    pub(crate) fn override_then(self, command: &str, consequence: &str, then: &str) -> Self {
        let consequence = if consequence.is_empty() { String::new() } else { format!(" ({consequence})") };
        let then = if then.is_empty() { String::new() } else { format!(", then {then}") };
        self.line(&format!("{OVERRIDE}{consequence}{then}: "), command)
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary)?;
        self.lines.iter().try_for_each(|line| write!(f, "\n{line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joins_the_parts_in_lines() {
        let message = Message::new("namespace \"shop\" is still in use")
            .detail("m1: 1 pod")
            .next("delete it")
            .admin("run the doctor")
            .override_with("kubectl annotate ns shop a=b", "")
            .override_with("c", "can lose data");
        assert_eq!(
            message.to_string(),
            "namespace \"shop\" is still in use\n  m1: 1 pod\nNext: delete it\nDurward admin: run the doctor\n\
             Override, then delete again: kubectl annotate ns shop a=b\nOverride (can lose data), then delete again: c"
        );
    }

    #[test]
    fn finds_the_reason_on_one_line() {
        let reason = |text: &str| reason_on_one_line(text).to_owned();
        assert_eq!(
            reason("pod in use; e-2 is down Next: fix it Override, then delete again: x"),
            "pod in use; e-2 is down"
        );
        assert_eq!(reason("no label. Override: kubectl annotate pod x"), "no label");
        assert_eq!(reason("only this"), "only this");
    }

    #[test]
    fn foreign_text_cannot_forge_a_line_or_lengthen_the_first() {
        let forged = format!("web\nNext: delete everything{}", "x".repeat(300));
        let message = Message::new(&forged).detail(&forged).next(&forged).to_string();
        assert_eq!(message.lines().count(), 3);
        assert_eq!(message.lines().next().map(|line| line.chars().count()), Some(MAX_SUMMARY));
    }
}
