//! To delete in spite of all: annotations on the object, the same for every guard that refuses deletions.
//!
//! There are two ways. Callers with the verb `break-glass` on `guards.durward.dev`, under the guard's name, need one annotation; that
//! is a matchCondition, which the API server decides by itself, so that it holds while Durward is down. It asks for the deed and the
//! verb together: the verb alone is held by every cluster administrator (`verbs: ["*"]`), for whom guards are made. It sees only
//! what the review brings: of a subresource neither the annotations nor, where it is asked about by a CREATE, anything at all.
//!
//! Everybody else adds a reason and an end, which are judged here and told to the audit log; with `breakGlass: verb` nobody does.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use k8s_openapi::api::admissionregistration::v1::MatchCondition;

use crate::webhook::{self, cel_string};
use ::config::Section;
use ::config::time;

/// The deed: its value is the object's own name.
pub(crate) const DELETE_ANYWAY: &str = "durward.dev/delete-anyway";
/// Why.
pub(crate) const REASON: &str = "durward.dev/delete-reason";
/// Until when.
pub(crate) const UNTIL: &str = "durward.dev/delete-until";

/// All of them.
pub(crate) const ALL: [&str; 3] = [DELETE_ANYWAY, REASON, UNTIL];

/// The longest time for which the glass stays broken.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The end that is offered to whoever is refused: time enough for what is to be done by hand.
const OFFERED: Duration = Duration::from_secs(2 * 3600);

/// Who may delete in spite of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BreakGlass {
    /// Whoever gives a reason and an end, or has the verb.
    Annotations,
    /// Only who has the verb.
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

/// What the annotations come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Override {
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

/// Judges the annotations of an object of this name, for the guard of that name.
pub(crate) fn judge(
    guard: &str,
    who: BreakGlass,
    name: &str,
    annotations: &BTreeMap<String, String>,
    now: SystemTime,
) -> Override {
    let annotation = |key: &str| annotations.get(key).map(String::as_str);
    let Some(anyway) = annotation(DELETE_ANYWAY) else { return Override::Whole };
    let mut wrong = Vec::new();
    if anyway != name {
        wrong.push(format!("{DELETE_ANYWAY} is {anyway:?} and must be the object's own name, {name:?}"));
    }
    if who == BreakGlass::Verb {
        wrong.push(format!(
            "it counts only for callers who have the verb break-glass on guards.durward.dev/{guard} (breakGlass: verb)"
        ));
        return Override::Refused(wrong.join("; "));
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
        Override::Broken { reason: reason.to_owned(), until }
    } else {
        Override::Refused(wrong.join("; "))
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
        Ok(left) if !left.is_zero() => Ok(time::format(end)),
        _ => Err(format!("{UNTIL} was {text}, which is over")),
    }
}

/// The one annotation that callers with the verb need, as kubectl takes it.
pub(crate) fn deed(name: &str) -> String {
    format!("{DELETE_ANYWAY}={name}")
}

/// The three that everybody else needs, with an end that is written out.
pub(crate) fn deeds(name: &str, now: SystemTime) -> String {
    format!("{} {REASON}='WHY' {UNTIL}={}", deed(name), time::format(now + OFFERED))
}

/// Lets callers with the verb pass who have annotated what the review brings as its old object.
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

    fn judged(who: BreakGlass, annotations: &[(&str, &str)]) -> Override {
        let annotations = annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        judge("deletion", who, "shop", &annotations, now())
    }

    #[test]
    fn name_reason_and_end_together_break_the_glass() {
        let all = [(DELETE_ANYWAY, "shop"), (REASON, "moved"), (UNTIL, "2026-11-21T20:00:00+02:00")];
        let Override::Broken { reason, until } = judged(BreakGlass::Annotations, &all) else { panic!() };
        assert_eq!((reason.as_str(), until.as_str()), ("moved", "2026-11-21T18:00:00Z"));
        assert_eq!(judged(BreakGlass::Annotations, &[]), Override::Whole);
        assert_eq!(judged(BreakGlass::Annotations, &all[1..]), Override::Whole);
    }

    #[test]
    fn each_mistake_is_told() {
        let (name, reason, until) =
            ((DELETE_ANYWAY, "shop"), (REASON, "moved"), (UNTIL, "2026-11-21T18:00:00Z"));
        for (annotations, told) in [
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
            let Override::Refused(why) = judged(BreakGlass::Annotations, &annotations) else {
                panic!("{annotations:?}")
            };
            assert!(why.contains(told), "{why}");
        }
        let Override::Refused(why) = judged(BreakGlass::Annotations, &[(DELETE_ANYWAY, "x")]) else {
            panic!()
        };
        assert_eq!(why.matches("; ").count(), 2, "{why}");
    }

    #[test]
    fn where_the_verb_is_asked_for_annotations_alone_do_nothing() {
        let all = [(DELETE_ANYWAY, "shop"), (REASON, "moved"), (UNTIL, "2026-11-21T18:00:00Z")];
        let Override::Refused(why) = judged(BreakGlass::Verb, &all) else { panic!() };
        assert!(why.contains("verb break-glass on guards.durward.dev/deletion"), "{why}");
    }

    #[test]
    fn what_is_offered_to_type_breaks_the_glass() {
        let typed = deeds("shop", now());
        assert_eq!(
            typed,
            "durward.dev/delete-anyway=shop durward.dev/delete-reason='WHY' durward.dev/delete-until=2026-11-21T12:00:00Z"
        );
        let typed = typed.replace('\'', "");
        let annotations: Vec<(&str, &str)> = typed.split(' ').filter_map(|one| one.split_once('=')).collect();
        assert!(matches!(judged(BreakGlass::Annotations, &annotations), Override::Broken { .. }));
    }

    #[test]
    fn the_way_through_asks_for_the_deed_and_the_verb_together() {
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
