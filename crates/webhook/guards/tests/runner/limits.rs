//! The limits of denials: readers see them in a terminal, in an event and in the output of `kubectl drain`.

use admission::{Answer, Denial};

/// The guards whose denials the limits bind.
pub(crate) const GUARDS: [&str; 3] = ["deletion", "etcd", "resources"];

/// Characters of line 1, which is complete on its own.
const MAX_SUMMARY: usize = 160;

/// Words of advice, which line 1 does not contain.
const ADVICE: [&str; 4] = ["kubectl", "durward ", "Next", "Override"];

/// Characters of the median denial without the line that overrides it.
const MAX_MEDIAN: usize = 300;

/// Characters of a denied eviction: one line, which `kubectl drain` prints every five seconds.
const MAX_EVICTION: usize = 200;

/// Denied evictions have this code, so that clients retry.
const EVICTION: u16 = 429;

/// Returns the problems of all denials of a guard, each with the name of its case.
pub(crate) fn problems(cases: &[(String, Answer)]) -> Vec<String> {
    let denials = cases.iter().filter_map(|(name, answer)| match answer {
        Answer::Deny(denial) => Some((name, denial)),
        Answer::Allow | Answer::Mutate(_) => None,
    });
    let (evictions, denials): (Vec<_>, Vec<_>) =
        denials.partition(|(_, denial)| denial.code.number() == EVICTION);
    let mut problems = Vec::new();
    for (name, denial) in &evictions {
        if denial.message.chars().count() > MAX_EVICTION || denial.message.contains('\n') {
            problems.push(format!("{name}: an eviction is more than one short line: {}", denial.message));
        }
    }
    for (name, denial) in evictions.iter().chain(&denials) {
        let line = denial.message.lines().next().unwrap_or_default();
        if line.chars().count() > MAX_SUMMARY {
            problems.push(format!("{name}: line 1 has {} characters: {line}", line.chars().count()));
        }
        if let Some(word) = ADVICE.iter().find(|word| line.contains(**word)) {
            problems.push(format!("{name}: line 1 contains {word:?}: {line}"));
        }
    }
    let mut lengths: Vec<usize> = denials.iter().map(|(_, denial)| length(denial)).collect();
    lengths.sort_unstable();
    match lengths.get(lengths.len() / 2) {
        Some(median) if *median > MAX_MEDIAN => {
            problems.push(format!("the median denial has {median} characters"));
        }
        Some(_) => {}
        None => problems.push("no case is denied".to_owned()),
    }
    problems
}

/// Returns the characters of a denial without the line that overrides it.
fn length(denial: &Denial) -> usize {
    let lines: Vec<&str> = denial.message.lines().filter(|line| !line.starts_with("Override")).collect();
    lines.join("\n").chars().count()
}
