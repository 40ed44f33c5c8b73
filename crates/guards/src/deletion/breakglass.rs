//! The second way to delete in spite of all: three annotations on the object, judged here and told to the audit log.
//!
//! The first way, annotation and verb, is a matchCondition: the API server itself lets those callers pass and never asks
//! ([`registration`](super::registration)). Whoever comes here lacks the verb, or Durward is asked by something else.

use std::time::{Duration, SystemTime};

use super::config::{BreakGlass, Config};
use super::target::Target;
use super::time;

/// The deed: its value is the object's own name.
pub(super) const ANYWAY: &str = "durward.dev/delete-anyway";
/// Why.
pub(super) const REASON: &str = "durward.dev/delete-reason";
/// Until when.
pub(super) const UNTIL: &str = "durward.dev/delete-until";

/// All of them.
pub(super) const ALL: [&str; 3] = [ANYWAY, REASON, UNTIL];

/// The longest time for which the glass stays broken.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// What the annotations come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Glass {
    /// Nobody has tried.
    Whole,
    /// Let it pass.
    Broken {
        /// Why.
        reason: String,
        /// Until when, RFC 3339.
        until: String,
    },
    /// Somebody tried, and this is what is wrong, as the end of a sentence.
    Refused(String),
}

/// Judges the annotations.
pub(super) fn judge(config: &Config, target: &Target, now: SystemTime) -> Glass {
    let annotation = |key: &str| target.annotations.get(key).map(String::as_str);
    let Some(anyway) = annotation(ANYWAY) else { return Glass::Whole };
    let mut wrong = Vec::new();
    if anyway != target.name {
        wrong.push(format!("{ANYWAY} is {anyway:?} and must be the object's own name, {:?}", target.name));
    }
    if config.break_glass == BreakGlass::Verb {
        wrong.push("it counts only for callers who have the verb break-glass on guards.durward.dev/deletion (breakGlass: verb)".to_owned());
        return Glass::Refused(wrong.join("; "));
    }
    let reason = annotation(REASON).unwrap_or_default().trim();
    if reason.is_empty() {
        wrong.push(format!("{REASON} is missing: say why"));
    }
    let until = match end(annotation(UNTIL), now) {
        Ok(until) => until,
        Err(why) => {
            wrong.push(why);
            String::new()
        }
    };
    if wrong.is_empty() {
        Glass::Broken { reason: reason.to_owned(), until }
    } else {
        Glass::Refused(wrong.join("; "))
    }
}

/// The end, or what is wrong with it.
fn end(until: Option<&str>, now: SystemTime) -> Result<String, String> {
    let Some(text) = until else {
        return Err(format!("{UNTIL} is missing: a time in RFC 3339, at most 24 h ahead"));
    };
    let Some(end) = time::read(text) else {
        return Err(format!("{UNTIL} is {text:?}, which is no time in RFC 3339 (as 2026-11-21T18:00:00Z)"));
    };
    let end = SystemTime::from(end);
    match end.duration_since(now) {
        Ok(left) if left > LONGEST => Err(format!("{UNTIL} is {text}, more than 24 h ahead")),
        Ok(left) if !left.is_zero() => Ok(time::told(end)),
        _ => Err(format!("{UNTIL} was {text}, which is over")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{config, namespace, now};
    use super::*;

    fn judged(yaml: &str, annotations: &[(&str, &str)]) -> Glass {
        let mut target = namespace("shop");
        target.annotations = annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        judge(&config(yaml), &target, now())
    }

    #[test]
    fn name_reason_and_end_together_break_the_glass() {
        let all = [(ANYWAY, "shop"), (REASON, "moved"), (UNTIL, "2026-11-21T18:00:00Z")];
        let Glass::Broken { reason, until } = judged("{}", &all) else { panic!() };
        assert_eq!((reason.as_str(), until.as_str()), ("moved", "2026-11-21T18:00:00Z"));
        assert_eq!(judged("{}", &[]), Glass::Whole);
        assert_eq!(judged("{}", &[(REASON, "moved"), (UNTIL, "2026-11-21T18:00:00Z")]), Glass::Whole);
    }

    #[test]
    fn each_mistake_is_told() {
        let (name, reason, until) = ((ANYWAY, "shop"), (REASON, "moved"), (UNTIL, "2026-11-21T18:00:00Z"));
        for (annotations, told) in [
            (
                vec![(ANYWAY, "shpo"), reason, until],
                "is \"shpo\" and must be the object's own name, \"shop\"",
            ),
            (vec![(ANYWAY, "true"), reason, until], "is \"true\""),
            (vec![(ANYWAY, ""), reason, until], "is \"\""),
            (vec![name, until], "delete-reason is missing"),
            (vec![name, (REASON, " "), until], "delete-reason is missing"),
            (vec![name, reason], "delete-until is missing"),
            (vec![name, reason, (UNTIL, "2026-11-21T09:59:59Z")], "which is over"),
            (vec![name, reason, (UNTIL, "2026-11-21T10:00:00Z")], "which is over"),
            (vec![name, reason, (UNTIL, "2026-11-22T10:00:01Z")], "more than 24 h ahead"),
            (vec![name, reason, (UNTIL, "soon")], "no time in RFC 3339"),
        ] {
            let Glass::Refused(why) = judged("{}", &annotations) else { panic!("{annotations:?}") };
            assert!(why.contains(told), "{why}");
        }
        let Glass::Refused(why) = judged("{}", &[(ANYWAY, "x")]) else { panic!() };
        assert_eq!(why.matches("; ").count(), 2, "{why}");
    }

    #[test]
    fn where_the_verb_is_asked_for_annotations_alone_do_nothing() {
        let all = [(ANYWAY, "shop"), (REASON, "moved"), (UNTIL, "2026-11-21T18:00:00Z")];
        let Glass::Refused(why) = judged("breakGlass: verb", &all) else { panic!() };
        assert!(why.contains("verb break-glass on guards.durward.dev/deletion"), "{why}");
    }
}
