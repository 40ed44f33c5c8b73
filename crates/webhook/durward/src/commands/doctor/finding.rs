//! A problem that the doctor reports, with the command that fixes it.

use config::Problem;
use console::output::Style;
use guards::overrides::{BREAK_GLASS, Leftover};
use serde::Serialize;

use crate::clients::leftovers::FoundLeftover;

/// A problem and its fix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Finding {
    /// The object with the problem; `None` if it concerns all of them.
    #[serde(flatten)]
    pub(super) subject: Option<Subject>,
    /// A code from a closed set: the causes of `cluster`, and the codes that each part lists.
    pub(super) code: &'static str,
    /// The problem.
    pub(super) what: String,
    /// The consequence while it lasts.
    pub(super) effect: String,
    /// The command or the lines that fix it.
    pub(super) fix: String,
}

/// The object with a problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Subject {
    /// A cluster of the fleet.
    Cluster(String),
    /// An etcd cluster.
    EtcdCluster(String),
    /// A node.
    Node(String),
}

impl Subject {
    fn name(&self) -> &str {
        match self {
            Self::Cluster(name) | Self::EtcdCluster(name) | Self::Node(name) => name,
        }
    }
}

impl Finding {
    /// Creates a finding.
    pub(super) fn new(
        subject: Option<Subject>,
        code: &'static str,
        what: impl Into<String>,
        effect: &str,
        fix: impl Into<String>,
    ) -> Self {
        Self { subject, code, what: what.into(), effect: effect.to_owned(), fix: fix.into() }
    }

    fn text(&self, style: Style) -> String {
        let subject = self.subject.as_ref().map(|subject| format!("{}: ", style.bold(subject.name())));
        let (subject, fix) = (subject.unwrap_or_default(), self.fix.replace('\n', "\n         "));
        format!(
            "{} {subject}{} ({})\n  effect {}\n  fix    {fix}\n",
            style.red("-"),
            self.what,
            self.code,
            self.effect
        )
    }
}

/// Reports annotations of overrides on an object. `fix` returns the command that sets or removes annotations.
pub(super) fn leftover(
    subject: Option<Subject>,
    one: &FoundLeftover,
    fix: impl Fn(&FoundLeftover, &str) -> String,
) -> Finding {
    let Leftover { key, value, effect, annotations, .. } = &one.leftover;
    let code = if *key == BREAK_GLASS { "break-glass" } else { "override" };
    let what = format!("{} has the annotation {key}={value}", one.text());
    let off: Vec<_> = annotations.iter().map(|key| format!("{key}-")).collect();
    Finding::new(subject, code, what, effect, fix(one, &off.join(" ")))
}

/// Formats findings, each after an empty line.
pub(super) fn text(findings: &[Finding], style: Style) -> String {
    let mut out = String::new();
    for finding in findings {
        out.push('\n');
        out.push_str(&finding.text(style));
    }
    out
}

/// Creates a finding about the whole installation.
pub(super) fn of_problem(code: &'static str, problem: Problem) -> Finding {
    let Problem { what, why, next, .. } = problem;
    let why = why.unwrap_or_else(|| "Durward can't do its work without it".to_owned());
    Finding::new(None, code, what, &why, next.unwrap_or_else(|| "read Durward's log".to_owned()))
}
