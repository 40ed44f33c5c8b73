//! Overrides: annotations on an object that allow a deletion although a guard denies it. All guards that deny deletions share them.
//!
//! Callers with the verb `break-glass` on `guards.durward.dev` and the guard's name need one annotation. A match condition checks
//! that, so the API server decides it, also while Durward is down. It requires the annotation and the verb together, since every
//! cluster administrator has the verb (`verbs: ["*"]`). It sees only what the request contains: for a subresource no
//! annotations, and for a CREATE of one nothing at all.
//!
//! All other callers also annotate a reason and an end. Durward checks these and writes them to the audit log. With
//! `breakGlass: verb` only callers with the verb can override.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use k8s_openapi::api::admissionregistration::v1::MatchCondition;

use crate::webhook::{self, cel_string};
use ::config::Section;
use ::config::time;

/// The annotation that overrides. Its value is the object's own name.
pub(crate) const DELETE_ANYWAY: &str = "durward.dev/delete-anyway";
/// The annotation with the reason.
pub(crate) const REASON: &str = "durward.dev/delete-reason";
/// The annotation with the end, RFC 3339.
pub(crate) const UNTIL: &str = "durward.dev/delete-until";

/// All annotations.
pub(crate) const ALL: [&str; 3] = [DELETE_ANYWAY, REASON, UNTIL];

/// The longest time from now to the end.
const MAX_DURATION: Duration = Duration::from_secs(24 * 3600);

/// The time to the end in the command that a denial prints: enough for manual work.
const SUGGESTED_DURATION: Duration = Duration::from_secs(2 * 3600);

/// The callers that can override a denial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BreakGlass {
    /// Callers that annotate a reason and an end, and callers with the verb.
    Annotations,
    /// Only callers with the verb.
    Verb,
}

impl BreakGlass {
    /// Reads the key.
    pub(crate) fn read(section: &mut Section<'_>) -> Self {
        section.choice(
            "breakGlass",
            "Who may delete in spite of all: whoever gives a reason and an end in annotations, or only callers with the verb break-glass.",
            &[("annotations", Self::Annotations), ("verb", Self::Verb)],
            Self::Annotations,
        )
    }
}

/// The override annotations of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Override {
    /// There are none.
    None,
    /// They are valid.
    Active {
        /// The reason.
        reason: String,
        /// The end, RFC 3339.
        until: String,
    },
    /// They are not valid, with the reasons as the end of a sentence.
    Invalid(String),
}

/// Checks the override annotations of the named object, for the named guard.
pub(crate) fn judge(
    guard: &str,
    allowed: BreakGlass,
    name: &str,
    annotations: &BTreeMap<String, String>,
    now: SystemTime,
) -> Override {
    let value = |key: &str| annotations.get(key).map(String::as_str);
    let Some(anyway) = value(DELETE_ANYWAY) else { return Override::None };
    let mut wrong = Vec::new();
    if anyway != name {
        wrong.push(format!("{DELETE_ANYWAY} is {anyway:?} and must be the object's own name, {name:?}"));
    }
    if allowed == BreakGlass::Verb {
        wrong.push(format!(
            "it counts only for callers who have the verb break-glass on guards.durward.dev/{guard} (breakGlass: verb)"
        ));
        return Override::Invalid(wrong.join("; "));
    }
    let reason = value(REASON).unwrap_or_default().trim();
    if reason.is_empty() {
        wrong.push(format!("{REASON} is missing: say why"));
    }
    let until = match end(value(UNTIL), now) {
        Ok(until) => until,
        Err(why) => {
            wrong.push(why);
            String::new()
        }
    };
    if wrong.is_empty() {
        Override::Active { reason: reason.to_owned(), until }
    } else {
        Override::Invalid(wrong.join("; "))
    }
}

/// Returns the end in RFC 3339, or an error that describes what is wrong.
fn end(until: Option<&str>, now: SystemTime) -> Result<String, String> {
    let Some(text) = until else {
        return Err(format!("{UNTIL} is missing: a time in RFC 3339, at most 24 h ahead"));
    };
    let Some(end) = time::read(text) else {
        return Err(format!("{UNTIL} is {text:?}, which is no time in RFC 3339 (as 2026-11-21T18:00:00Z)"));
    };
    let end = SystemTime::from(end);
    match end.duration_since(now) {
        Ok(left) if left > MAX_DURATION => Err(format!("{UNTIL} is {text}, more than 24 h ahead")),
        Ok(left) if !left.is_zero() => Ok(time::format(end)),
        _ => Err(format!("{UNTIL} was {text}, which is over")),
    }
}

/// Returns the annotation for callers with the verb, as an argument of `kubectl annotate`.
pub(crate) fn annotation(name: &str) -> String {
    format!("{DELETE_ANYWAY}={name}")
}

/// Returns the annotations for other callers, with an end two hours ahead.
pub(crate) fn annotations(name: &str, now: SystemTime) -> String {
    format!("{} {REASON}='WHY' {UNTIL}={}", annotation(name), time::format(now + SUGGESTED_DURATION))
}

/// Returns the match condition that skips the guard for callers with the verb if the old object has the annotation.
pub(crate) fn condition(guard: &str) -> MatchCondition {
    let anyway = cel_string(DELETE_ANYWAY);
    let expression = format!(
        "!(oldObject != null && has(oldObject.metadata.annotations) && {anyway} in oldObject.metadata.annotations && \
         oldObject.metadata.annotations[{anyway}] == oldObject.metadata.name && \
         authorizer.group(\"durward.dev\").resource(\"guards\").name(\"{guard}\").check(\"break-glass\").allowed())"
    );
    webhook::condition("no-break-glass", expression)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> SystemTime {
        time::read("2026-11-21T10:00:00Z").unwrap().into()
    }

    fn judged(allowed: BreakGlass, annotations: &[(&str, &str)]) -> Override {
        let annotations = annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        judge("deletion", allowed, "shop", &annotations, now())
    }

    #[test]
    fn name_reason_and_end_together_override() {
        let all = [(DELETE_ANYWAY, "shop"), (REASON, "moved"), (UNTIL, "2026-11-21T20:00:00+02:00")];
        let Override::Active { reason, until } = judged(BreakGlass::Annotations, &all) else { panic!() };
        assert_eq!((reason.as_str(), until.as_str()), ("moved", "2026-11-21T18:00:00Z"));
        assert_eq!(judged(BreakGlass::Annotations, &[]), Override::None);
        assert_eq!(judged(BreakGlass::Annotations, &all[1..]), Override::None);
    }

    #[test]
    fn describes_each_mistake() {
        let (name, reason, until) =
            ((DELETE_ANYWAY, "shop"), (REASON, "moved"), (UNTIL, "2026-11-21T18:00:00Z"));
        for (annotations, text) in [
            (
                vec![(DELETE_ANYWAY, "shpo"), reason, until],
                "is \"shpo\" and must be the object's own name, \"shop\"",
            ),
            (vec![(DELETE_ANYWAY, "true"), reason, until], "is \"true\""),
            (vec![(DELETE_ANYWAY, ""), reason, until], "is \"\""),
            (vec![name, until], "delete-reason is missing"),
            (vec![name, (REASON, " "), until], "delete-reason is missing"),
            (vec![name, reason], "delete-until is missing"),
            (vec![name, reason, (UNTIL, "2026-11-21T09:59:59Z")], "which is over"),
            (vec![name, reason, (UNTIL, "2026-11-21T10:00:00Z")], "which is over"),
            (vec![name, reason, (UNTIL, "2026-11-22T10:00:01Z")], "more than 24 h ahead"),
            (vec![name, reason, (UNTIL, "soon")], "no time in RFC 3339"),
            (vec![name, reason, (UNTIL, "2026-11-21T18Z")], "no time in RFC 3339"),
            (vec![name, reason, (UNTIL, "20261121T180000Z")], "no time in RFC 3339"),
        ] {
            let Override::Invalid(why) = judged(BreakGlass::Annotations, &annotations) else {
                panic!("{annotations:?}")
            };
            assert!(why.contains(text), "{why}");
        }
        let Override::Invalid(why) = judged(BreakGlass::Annotations, &[(DELETE_ANYWAY, "x")]) else {
            panic!()
        };
        assert_eq!(why.matches("; ").count(), 2, "{why}");
    }

    #[test]
    fn annotations_alone_do_not_override_with_break_glass_verb() {
        let all = [(DELETE_ANYWAY, "shop"), (REASON, "moved"), (UNTIL, "2026-11-21T18:00:00Z")];
        let Override::Invalid(why) = judged(BreakGlass::Verb, &all) else { panic!() };
        assert!(why.contains("verb break-glass on guards.durward.dev/deletion"), "{why}");
    }

    #[test]
    fn the_suggested_annotations_override() {
        let typed = annotations("shop", now());
        assert_eq!(
            typed,
            "durward.dev/delete-anyway=shop durward.dev/delete-reason='WHY' durward.dev/delete-until=2026-11-21T12:00:00Z"
        );
        let typed = typed.replace('\'', "");
        let annotations: Vec<(&str, &str)> = typed.split(' ').filter_map(|one| one.split_once('=')).collect();
        assert!(matches!(judged(BreakGlass::Annotations, &annotations), Override::Active { .. }));
    }

    #[test]
    fn the_match_condition_requires_the_annotation_and_the_verb() {
        assert_eq!(
            condition("deletion").expression,
            concat!(
                r#"!(oldObject != null && has(oldObject.metadata.annotations) && "durward.dev/delete-anyway" in oldObject.metadata.annotations && "#,
                r#"oldObject.metadata.annotations["durward.dev/delete-anyway"] == oldObject.metadata.name && "#,
                r#"authorizer.group("durward.dev").resource("guards").name("deletion").check("break-glass").allowed())"#
            )
        );
    }
}
