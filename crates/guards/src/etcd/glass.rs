//! The way to delete in spite of all: three annotations on the object, judged here and told to the audit log.
//!
//! The first way, annotation and verb, is a matchCondition where the review brings the object: the API server itself lets those
//! callers pass ([`registration`](super::registration)). An eviction does not bring its pod, so that for evictions there is
//! only this one.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use k8s_openapi::jiff::Timestamp;

use super::config::{BreakGlass, Config};

/// The deed: its value is the object's own name.
pub(super) const ANYWAY: &str = "durward.dev/delete-anyway";
/// Why.
const REASON: &str = "durward.dev/delete-reason";
/// Until when.
const UNTIL: &str = "durward.dev/delete-until";

/// The longest time for which the glass stays broken.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// What the annotations come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Glass {
    /// Nobody has tried.
    Whole,
    /// Let it pass: why, and until when.
    Broken(String, String),
    /// Somebody tried, and this is what is wrong, as the end of a sentence.
    Refused(String),
}

/// Judges the annotations of an object of this name.
pub(super) fn judge(
    config: &Config,
    name: &str,
    annotations: &BTreeMap<String, String>,
    now: SystemTime,
) -> Glass {
    let annotation = |key: &str| annotations.get(key).map(String::as_str);
    let Some(anyway) = annotation(ANYWAY) else { return Glass::Whole };
    let mut wrong = Vec::new();
    if anyway != name {
        wrong.push(format!("{ANYWAY} is {anyway:?} and must be the object's own name, {name:?}"));
    }
    if config.break_glass == BreakGlass::Verb {
        wrong.push("it counts only for deletions by callers who have the verb break-glass on guards.durward.dev/etcd (breakGlass: verb)".to_owned());
        return Glass::Refused(wrong.join("; "));
    }
    let reason = annotation(REASON).unwrap_or_default().trim();
    if reason.is_empty() {
        wrong.push(format!("{REASON} is missing: say why"));
    }
    if let Some(why) = end(annotation(UNTIL), now) {
        wrong.push(why);
    }
    if wrong.is_empty() {
        Glass::Broken(reason.to_owned(), annotation(UNTIL).unwrap_or_default().to_owned())
    } else {
        Glass::Refused(wrong.join("; "))
    }
}

/// What is wrong with the end.
fn end(until: Option<&str>, now: SystemTime) -> Option<String> {
    let Some(text) = until else {
        return Some(format!("{UNTIL} is missing: a time in RFC 3339, at most 24 h ahead"));
    };
    // Zone names in brackets and spaces are other formats.
    let read = (!text.contains(['[', ' '])).then(|| text.parse::<Timestamp>().ok()).flatten();
    let Some(end) = read else {
        return Some(format!("{UNTIL} is {text:?}, which is no time in RFC 3339 (as 2026-11-21T18:00:00Z)"));
    };
    match SystemTime::from(end).duration_since(now) {
        Ok(left) if left > LONGEST => Some(format!("{UNTIL} is {text}, more than 24 h ahead")),
        Ok(left) if !left.is_zero() => None,
        _ => Some(format!("{UNTIL} was {text}, which is over")),
    }
}

/// How it is done, for whoever is refused.
pub(super) fn way(resource: &str, namespace: &str, name: &str) -> String {
    format!(
        "to delete in spite of all: kubectl -n {namespace} annotate {resource} {name} {ANYWAY}={name} (without the verb break-glass also {REASON} and {UNTIL})"
    )
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{LEAST, config, now};
    use super::*;

    fn judged(yaml: &str, annotations: &[(&str, &str)]) -> Glass {
        let annotations = annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        judge(&config(&format!("{LEAST}\n{yaml}")), "etcd-0", &annotations, now())
    }

    #[test]
    fn name_reason_and_end_together_break_the_glass() {
        let all = [(ANYWAY, "etcd-0"), (REASON, "disk"), (UNTIL, "2026-11-21T18:00:00Z")];
        assert_eq!(judged("", &all), Glass::Broken("disk".into(), "2026-11-21T18:00:00Z".into()));
        assert_eq!(judged("", &all[1..]), Glass::Whole);
        let Glass::Refused(why) = judged("breakGlass: verb", &all) else { panic!() };
        assert!(why.contains("verb break-glass on guards.durward.dev/etcd"), "{why}");
    }

    #[test]
    fn each_mistake_is_told() {
        let (name, reason, until) = ((ANYWAY, "etcd-0"), (REASON, "disk"), (UNTIL, "2026-11-21T18:00:00Z"));
        for (annotations, told) in [
            (vec![(ANYWAY, "etcd-1"), reason, until], "must be the object's own name, \"etcd-0\""),
            (vec![name, until], "delete-reason is missing"),
            (vec![name, reason], "delete-until is missing"),
            (vec![name, reason, (UNTIL, "2026-11-21T10:00:00Z")], "which is over"),
            (vec![name, reason, (UNTIL, "2026-11-22T10:00:01Z")], "more than 24 h ahead"),
            (vec![name, reason, (UNTIL, "soon")], "no time in RFC 3339"),
            (vec![name, reason, (UNTIL, "2026-11-21 18:00:00Z")], "no time in RFC 3339"),
        ] {
            let Glass::Refused(why) = judged("", &annotations) else { panic!("{annotations:?}") };
            assert!(why.contains(told), "{why}");
        }
    }
}
