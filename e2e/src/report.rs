//! The end of a run's output: the ten longest cases. For each failure, the case, the cause and the path of its logs follow.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::console::print;

/// Number of cases in the table of the longest ones.
const LONGEST: usize = 10;

/// Failures that are repeated at the end. The last twenty lines of the output have room for them.
const MAX_FAILURES: usize = 4;

/// Characters of a cause at the end. The whole text is further up.
const MAX_CAUSE: usize = 400;

/// A case that has ended.
#[derive(Debug)]
pub struct Outcome {
    /// The name of the case.
    pub case: String,
    /// The time from its start to its end, with waits for environments.
    pub took: Duration,
    /// The cause, if it failed.
    pub failure: Option<String>,
}

/// The cases of a run that have ended.
#[derive(Debug, Default)]
pub struct Report(Mutex<Vec<Outcome>>);

impl Report {
    /// Adds a case.
    pub fn add(&self, outcome: Outcome) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(outcome);
    }

    /// Prints the longest cases, and then the failures.
    pub fn print(&self, logs: Option<&Path>) {
        let outcomes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for line in longest(&outcomes).into_iter().chain(failures(&outcomes, logs)) {
            print(line);
        }
    }
}

fn longest(outcomes: &[Outcome]) -> Vec<String> {
    let mut sorted: Vec<&Outcome> = outcomes.iter().collect();
    sorted.sort_by_key(|outcome| std::cmp::Reverse(outcome.took));
    let line = |outcome: &&Outcome| format!("{:>6.0} s  {}", outcome.took.as_secs_f64(), outcome.case);
    let rows = sorted.iter().take(LONGEST).map(line);
    std::iter::once("the longest cases:".to_owned()).chain(rows).collect()
}

fn failures(outcomes: &[Outcome], logs: Option<&Path>) -> Vec<String> {
    let failed: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.failure.is_some()).collect();
    if failed.is_empty() {
        return Vec::new();
    }
    let mut lines = Vec::new();
    for outcome in failed.iter().take(MAX_FAILURES) {
        let cause = outcome.failure.as_deref().unwrap_or_default().replace('\n', " | ");
        let cut: String = cause.chars().take(MAX_CAUSE).collect();
        let rest = if cut.len() < cause.len() { " …" } else { "" };
        lines.push(format!("failed: {}", outcome.case));
        lines.push(format!("  cause: {cut}{rest}"));
    }
    if failed.len() > MAX_FAILURES {
        lines.push(format!("and {} more failed: see above", failed.len() - MAX_FAILURES));
    }
    let logs =
        logs.map_or_else(|| "none, no process was started".to_owned(), |logs| logs.display().to_string());
    lines.push(format!("logs of every process: {logs}"));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(case: &str, seconds: u64, failure: Option<&str>) -> Outcome {
        let took = Duration::from_secs(seconds);
        Outcome { case: case.to_owned(), took, failure: failure.map(str::to_owned) }
    }

    #[test]
    fn the_longest_cases_come_first() {
        let outcomes: Vec<_> = (0..12).map(|at| outcome(&format!("case-{at}"), at, None)).collect();
        let lines = longest(&outcomes);
        assert_eq!(lines.len(), 1 + LONGEST);
        assert_eq!(lines[1], "    11 s  case-11");
    }

    #[test]
    fn failures_fit_into_the_last_twenty_lines() {
        let outcomes: Vec<_> = (0..9).map(|at| outcome(&format!("case-{at}"), at, Some("a\nb"))).collect();
        let lines = failures(&outcomes, Some(Path::new("/logs")));
        assert_eq!(lines[..2], ["failed: case-0", "  cause: a | b"]);
        assert_eq!(
            lines[lines.len() - 2..],
            ["and 5 more failed: see above", "logs of every process: /logs"]
        );
        assert!(lines.len() <= 20 && failures(&outcomes[..0], None).is_empty());
    }
}
