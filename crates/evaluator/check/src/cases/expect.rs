//! Expected verdicts, and their comparison with the findings of a request.

use regex::Regex;

use config::Place;

use crate::report::{CheckedDocument, DocumentFinding, Severity};

/// The verdicts that a case can expect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    /// A policy judged the request, and none denies it.
    Allow,
    /// A validation is false.
    Deny,
    /// No policy matches the request.
    Skip,
    /// An evaluation failed, which denies the request.
    Error,
}

impl Expected {
    pub(crate) const NAMES: [(&'static str, Self); 4] =
        [("allow", Self::Allow), ("deny", Self::Deny), ("skip", Self::Skip), ("error", Self::Error)];

    fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, verdict)| *verdict == self).map_or("", |(name, _)| name)
    }
}

/// The expected message of a denial.
#[derive(Debug, Clone)]
pub(crate) enum ExpectedMessage {
    /// The whole message.
    Is(String),
    /// A pattern for a part of it.
    Matches(Regex),
}

/// The expected verdict of a case.
#[derive(Debug, Clone)]
pub(crate) struct Expect {
    pub(crate) verdict: Expected,
    /// The policy that decides. Other policies then do not count.
    pub(crate) policy: Option<String>,
    /// The reason of the denial.
    pub(crate) reason: Option<String>,
    pub(crate) message: Option<ExpectedMessage>,
    /// Place of the expected verdict.
    pub(crate) position: Place,
}

impl Expect {
    /// Returns the actual verdict if it is not the expected one, with the next step if a fact is missing.
    pub(crate) fn difference(&self, actual: &CheckedDocument) -> Option<(String, String)> {
        let of_policy = |name: &str| self.policy.as_deref().is_none_or(|policy| policy == name);
        let refusals: Vec<&DocumentFinding> = actual
            .findings
            .iter()
            .filter(|finding| finding.policy.is_empty() && finding.verdict == Severity::Error)
            .collect();
        // The API server refuses the object before a policy decides.
        let is_refused = !refusals.is_empty();
        let findings = if is_refused {
            refusals
        } else {
            actual.findings.iter().filter(|finding| of_policy(&finding.policy)).collect()
        };
        let judged = actual.policies.iter().any(|judge| of_policy(&judge.policy));
        let actual = actual_verdict(&findings, judged);
        if actual != Some(self.verdict) || (is_refused && self.policy.is_some()) {
            return Some(self.differs(actual, &findings));
        }
        let verdict = match self.verdict {
            Expected::Deny => Severity::Deny,
            Expected::Error => Severity::Error,
            Expected::Allow | Expected::Skip => return None,
        };
        let fits = |finding: &&&DocumentFinding| {
            finding.verdict == verdict
                && self.reason.as_deref().is_none_or(|reason| finding.reason == reason)
                && match &self.message {
                    None => true,
                    Some(ExpectedMessage::Is(message)) => finding.message == *message,
                    Some(ExpectedMessage::Matches(pattern)) => pattern.is_match(&finding.message),
                }
        };
        if findings.iter().any(|finding| fits(&finding)) {
            None
        } else {
            Some(self.differs(actual, &findings))
        }
    }

    /// Describes the expected verdict.
    pub(super) fn describe(&self) -> String {
        let part = |word: &str, value: &Option<String>| {
            value.as_ref().map(|value| format!(" {word} {value}")).unwrap_or_default()
        };
        let message = match &self.message {
            None => String::new(),
            Some(ExpectedMessage::Is(message)) => format!(": {message}"),
            Some(ExpectedMessage::Matches(pattern)) => format!(": a message that matches {pattern}"),
        };
        let (policy, reason) = (part("by policy", &self.policy), part("with reason", &self.reason));
        format!("{}{policy}{reason}{message}", self.verdict.name())
    }

    /// Describes an actual finding, with its reason if one is expected.
    fn described(&self, finding: &DocumentFinding) -> String {
        let by =
            if finding.policy.is_empty() { String::new() } else { format!(" (policy {})", finding.policy) };
        let reason = match &self.reason {
            Some(_) if !finding.reason.is_empty() => format!(", reason {}", finding.reason),
            _ => String::new(),
        };
        format!("{}{by}{reason}", finding.message)
    }

    fn differs(&self, actual: Option<Expected>, findings: &[&DocumentFinding]) -> (String, String) {
        let wanted = |finding: &&&DocumentFinding| match actual {
            None => finding.verdict == Severity::Unknown,
            Some(Expected::Deny) => finding.verdict == Severity::Deny,
            Some(Expected::Error) => finding.verdict == Severity::Error,
            Some(_) => false,
        };
        let mut texts: Vec<String> =
            findings.iter().filter(wanted).map(|finding| self.described(finding)).collect();
        texts.dedup();
        let verdict = actual.map_or("unknown", Expected::name);
        let actual =
            if texts.is_empty() { verdict.to_owned() } else { format!("{verdict}: {}", texts.join("; ")) };
        let next = findings.iter().find(|finding| finding.verdict == Severity::Unknown);
        (actual, next.map(|finding| finding.next.clone()).unwrap_or_default())
    }
}

/// Returns the verdict, or `None` if a fact is missing.
fn actual_verdict(findings: &[&DocumentFinding], judged: bool) -> Option<Expected> {
    let has = |verdict: Severity| findings.iter().any(|finding| finding.verdict == verdict);
    if has(Severity::Deny) {
        Some(Expected::Deny)
    } else if has(Severity::Unknown) {
        None
    } else if has(Severity::Error) {
        Some(Expected::Error)
    } else if judged {
        Some(Expected::Allow)
    } else {
        Some(Expected::Skip)
    }
}
