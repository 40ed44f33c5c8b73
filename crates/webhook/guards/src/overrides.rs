//! Overrides: annotations on an object that allow a deletion although a guard denies it. All guards that deny deletions share them.
//!
//! An override has three annotations: the object's name, a reason and an expiry. Durward checks them, and writes them to the
//! audit log. They expire for every caller. With `overrides: permission` they have no effect. A native policy has no clock: there, the
//! first annotation alone counts until it is removed.
//!
//! The break-glass annotation is for callers with the verb `break-glass` on `guards.durward.dev` and the guard's name. A match
//! condition checks both, so the API server lets the request pass without a review, also while Durward is down. CEL has no clock
//! there, so this annotation does not expire. The condition requires the annotation and the verb together, since every
//! cluster administrator has the verb (`verbs: ["*"]`). It sees only the object in the request. The request for a subresource
//! contains no annotations, and the CREATE of a subresource, such as an eviction, contains no object. If Durward reviews a request
//! for an object with this annotation, the caller lacks the verb, or the request does not contain the object. In both cases the
//! annotation has no effect.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use k8s_openapi::api::admissionregistration::v1::MatchCondition;

use crate::cel;
use crate::message::Message;
use crate::webhook;
use ::config::Section;
use ::config::time;

/// The annotation that overrides. Its value is the object's own name.
pub const DELETE_ANYWAY: &str = "durward.dev/delete-anyway";
/// The annotation with the reason.
pub(crate) const DELETE_REASON: &str = "durward.dev/delete-reason";
/// The annotation with the expiry: RFC 3339 or a date.
pub const DELETE_UNTIL: &str = "durward.dev/delete-until";

/// The annotation with which callers with the verb `break-glass` pass without a review. Its value is the object's own name.
pub const BREAK_GLASS: &str = "durward.dev/break-glass";

/// All annotations.
pub const ALL: [&str; 4] = [DELETE_ANYWAY, DELETE_REASON, DELETE_UNTIL, BREAK_GLASS];

/// The reason in printed commands. It is not valid, so a command that is pasted unchanged overrides nothing.
pub(crate) const PLACEHOLDER: &str = "<reason>";

/// The longest time from now to the expiry.
const MAX_DURATION: Duration = Duration::from_secs(24 * 3600);

/// The time to the expiry in the command that a denial prints: enough for manual work.
const SUGGESTED_DURATION: Duration = Duration::from_secs(2 * 3600);

/// The callers that can override a denial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overrides {
    /// Callers that annotate a reason and an expiry, and callers with the verb.
    Annotation,
    /// Only callers with the verb.
    Permission,
}

impl Overrides {
    /// Reads the key.
    pub(crate) fn read(section: &mut Section<'_>) -> Self {
        section.removed("breakGlass", "use overrides: annotation or permission");
        section.choice(
            "overrides",
            "Callers that can override a denial. annotation: those that annotate a reason and an expiry, and those with the verb break-glass. permission: only those with the verb.",
            &[("annotation", Self::Annotation), ("permission", Self::Permission)],
            Self::Annotation,
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
    /// They are not valid, with the reasons.
    Invalid(String),
}

/// Annotations of overrides that are on an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// [`BREAK_GLASS`], or else [`DELETE_ANYWAY`].
    pub key: &'static str,
    /// Its value.
    pub value: String,
    /// Whether the annotations have an effect now.
    pub is_active: bool,
    /// The effect, or why there is none.
    pub effect: String,
    /// The reason.
    pub reason: Option<String>,
    /// All annotations of overrides, for the command that removes them.
    pub annotations: Vec<&'static str>,
}

/// Returns the annotations of overrides on the named object.
pub fn leftover(
    allowed: Overrides,
    name: &str,
    annotations: &BTreeMap<String, String>,
    now: SystemTime,
) -> Option<Leftover> {
    let value = |key: &str| annotations.get(key).map(String::as_str);
    let (key, found, is_active, effect) = if let Some(found) = value(BREAK_GLASS) {
        let effect = if found == name {
            "callers with the verb break-glass can delete it without a review, and the annotation does not expire"
        } else {
            "it has no effect, because the value is not the name of the object"
        };
        (BREAK_GLASS, found, found == name, effect.to_owned())
    } else {
        let anyway = value(DELETE_ANYWAY)?;
        match check_annotations(anyway, name, allowed, value, now) {
            Ok((_, until)) => {
                let effect =
                    format!("Durward allows its deletion until {until}, and native policies after that too");
                (DELETE_ANYWAY, anyway, true, effect)
            }
            Err(mistakes) => {
                let effect = format!("only native policies accept it: {}", mistakes.join("; "));
                (DELETE_ANYWAY, anyway, false, effect)
            }
        }
    };
    let annotations = ALL.into_iter().filter(|key| annotations.contains_key(*key)).collect();
    let reason = value(DELETE_REASON).map(str::to_owned);
    Some(Leftover { key, value: found.to_owned(), is_active, effect, reason, annotations })
}

/// Checks the override annotations of the named object, for the named guard.
pub(crate) fn judge(
    guard: &str,
    allowed: Overrides,
    name: &str,
    annotations: &BTreeMap<String, String>,
    now: SystemTime,
) -> Override {
    let value = |key: &str| annotations.get(key).map(String::as_str);
    let mut wrong = Vec::new();
    if let Some(anyway) = value(DELETE_ANYWAY) {
        match check_annotations(anyway, name, allowed, value, now) {
            Ok((reason, until)) => return Override::Active { reason, until },
            Err(mistakes) => wrong = mistakes,
        }
    }
    match value(BREAK_GLASS) {
        Some(value) if value != name => wrong.push(format!("break-glass is {value:?}, expected {name:?}")),
        Some(_) => wrong.push(format!(
            "break-glass has no effect: the caller lacks the verb break-glass on guards.durward.dev/{guard}"
        )),
        None => {}
    }
    if wrong.is_empty() { Override::None } else { Override::Invalid(wrong.join("; ")) }
}

/// Returns the reason and the expiry of an override, or its mistakes.
fn check_annotations<'a>(
    anyway: &str,
    name: &str,
    allowed: Overrides,
    value: impl Fn(&str) -> Option<&'a str>,
    now: SystemTime,
) -> Result<(String, String), Vec<String>> {
    if allowed == Overrides::Permission {
        return Err(vec!["delete-anyway has no effect with overrides: permission".to_owned()]);
    }
    let mut wrong = Vec::new();
    if anyway != name {
        wrong.push(format!("delete-anyway is {anyway:?}, expected {name:?}"));
    }
    let reason = check_reason(value(DELETE_REASON)).map_err(|why| wrong.push(format!("delete-reason {why}")));
    let until = check_end(value(DELETE_UNTIL), now, MAX_DURATION)
        .map_err(|why| wrong.push(format!("delete-until {why}")));
    match (reason, until) {
        (Ok(reason), Ok(until)) if wrong.is_empty() => Ok((reason, until)),
        _ => Err(wrong),
    }
}

/// Returns the reason without blanks around it, or an error that describes what is wrong.
pub(crate) fn check_reason(reason: Option<&str>) -> Result<String, &'static str> {
    match reason.map(str::trim) {
        None => Err("is missing"),
        Some("") => Err("is empty"),
        Some(PLACEHOLDER | "..." | "…") => Err("is the placeholder, write a reason"),
        Some(reason) => Ok(reason.to_owned()),
    }
}

/// Why a reason or an expiry does not count. The text is the end of a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mistake {
    /// The reason is missing, empty or the placeholder.
    #[error("the reason {0}")]
    Reason(&'static str),
    /// The expiry is further ahead than the limit.
    #[error("{until} is more than {limit} ahead (at most {latest})")]
    TooLong {
        /// The expiry.
        until: String,
        /// The limit: `24 hours`.
        limit: String,
        /// The latest expiry.
        latest: String,
    },
    /// The expiry is missing.
    #[error("is missing")]
    NoExpiry,
    /// The expiry is not a time.
    #[error("{0:?} is not a time (2026-11-21T18:00:00Z) or a date (2026-12-01)")]
    NotATime(String),
    /// The expiry is in the past.
    #[error("{0} is in the past")]
    Past(String),
}

/// Returns the expiry in RFC 3339.
pub(crate) fn check_end(until: Option<&str>, now: SystemTime, longest: Duration) -> Result<String, Mistake> {
    let text = until.ok_or(Mistake::NoExpiry)?;
    let end = time::read_end(text).ok_or_else(|| Mistake::NotATime(text.to_owned()))?;
    let end = SystemTime::from(end);
    match end.duration_since(now) {
        Ok(left) if left > longest => {
            let hours = longest.as_secs() / 3600;
            let limit = if hours > 24 { format!("{} days", hours / 24) } else { format!("{hours} hours") };
            let latest = time::format(now + longest);
            Err(Mistake::TooLong { until: text.to_owned(), limit, latest })
        }
        Ok(left) if !left.is_zero() => Ok(time::format(end)),
        _ => Err(Mistake::Past(text.to_owned())),
    }
}

/// Adds why the override annotations do not count.
pub(crate) fn add_invalid(message: Message, current: &Override) -> Message {
    match current {
        Override::Invalid(why) => message.detail(&format!("Override ignored: {why}")),
        Override::None | Override::Active { .. } => message,
    }
}

/// An object whose denial names the command that overrides it.
pub(crate) struct Overridable<'o> {
    /// The guard that denies.
    pub(crate) guard: &'o str,
    pub(crate) allowed: Overrides,
    /// The object as in kubectl's command line.
    pub(crate) object: &'o str,
    pub(crate) name: &'o str,
    pub(crate) annotations: &'o BTreeMap<String, String>,
}

impl Overridable<'_> {
    /// Adds the command that overrides the denial. kubectl replaces annotations only with `--overwrite`.
    pub(crate) fn add_command(&self, message: Message, now: SystemTime, consequence: &str) -> Message {
        let is_annotated = ALL.iter().any(|key| self.annotations.contains_key(*key));
        let overwrite = if is_annotated { "--overwrite " } else { "" };
        let arguments = arguments(self.name, self.allowed, now);
        let command = format!("kubectl annotate {overwrite}{} {arguments}", self.object);
        match self.allowed {
            Overrides::Annotation => message.override_with(&command, consequence),
            Overrides::Permission => message.override_with(&command, &needs_verb(self.guard)),
        }
    }
}

/// Returns the condition of the break-glass annotation for users.
pub(crate) fn needs_verb(guard: &str) -> String {
    format!("needs the verb break-glass on guards.durward.dev/{guard}")
}

/// Returns the annotations that override a denial, as arguments of `kubectl annotate`.
pub(crate) fn arguments(name: &str, allowed: Overrides, now: SystemTime) -> String {
    match allowed {
        Overrides::Annotation => {
            let until = time::format(now + SUGGESTED_DURATION);
            format!("{DELETE_ANYWAY}={name} {DELETE_REASON}='{PLACEHOLDER}' {DELETE_UNTIL}={until}")
        }
        Overrides::Permission => format!("{BREAK_GLASS}={name}"),
    }
}

/// Returns the annotations that override a denial for a time.
pub fn annotations(
    name: &str,
    reason: &str,
    duration: Duration,
    now: SystemTime,
) -> Result<[(&'static str, String); 3], Mistake> {
    let reason = check_reason(Some(reason)).map_err(Mistake::Reason)?;
    let until = now.checked_add(duration).map(time::format).unwrap_or_default();
    let until = check_end(Some(&until), now, MAX_DURATION)?;
    Ok([(DELETE_ANYWAY, name.to_owned()), (DELETE_REASON, reason), (DELETE_UNTIL, until)])
}

/// Returns the match condition that skips the guard for callers with the verb if the old object has the annotation.
pub(crate) fn condition(guard: &str) -> MatchCondition {
    let expression = format!("!(oldObject != null && {})", is_broken(guard, "oldObject"));
    webhook::condition("no-break-glass", expression)
}

/// Returns a CEL condition that is true if an object has the break-glass annotation and the caller has the verb. On a CREATE, the name
/// can be missing.
pub(crate) fn is_broken(guard: &str, object: &str) -> String {
    let key = cel::string(BREAK_GLASS);
    format!(
        "{object}.metadata.?annotations[?{key}].orValue(\"\") == {object}.metadata.?name.orValue(\"*\") && \
         authorizer.group(\"durward.dev\").resource(\"guards\").name(\"{guard}\").check(\"break-glass\").allowed()"
    )
}

/// Returns a CEL condition that is true if an object has the annotation [`DELETE_ANYWAY`] with its name. CEL has no clock, so the
/// annotation does not expire here, and needs no reason.
pub(crate) fn is_overridden(object: &str) -> String {
    let key = cel::string(DELETE_ANYWAY);
    format!("{object}.metadata.?annotations[?{key}].orValue(\"\") == {object}.metadata.?name.orValue(\"*\")")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> SystemTime {
        time::read("2026-11-21T10:00:00Z").unwrap().into()
    }

    fn judged(allowed: Overrides, annotations: &[(&str, &str)]) -> Override {
        let annotations = annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        judge("deletion", allowed, "shop", &annotations, now())
    }

    #[test]
    fn name_reason_and_end_together_override() {
        let until =
            [("2026-11-21T20:00:00+02:00", "2026-11-21T18:00:00Z"), ("2026-11-22", "2026-11-22T00:00:00Z")];
        for (end, expected) in until {
            let all = [(DELETE_ANYWAY, "shop"), (DELETE_REASON, "moved"), (DELETE_UNTIL, end)];
            let Override::Active { reason, until } = judged(Overrides::Annotation, &all) else { panic!() };
            assert_eq!((reason.as_str(), until.as_str()), ("moved", expected));
            assert_eq!(judged(Overrides::Annotation, &all[1..]), Override::None);
        }
        assert_eq!(judged(Overrides::Annotation, &[]), Override::None);
    }

    #[test]
    fn each_command_overrides_the_denied_request() {
        let all = "durward.dev/delete-anyway=etcd-1 durward.dev/delete-reason='<reason>' durward.dev/delete-until=2026-11-21T12:00:00Z";
        let needs = "Override (needs the verb break-glass on guards.durward.dev/etcd)";
        let reason = BTreeMap::from([(DELETE_REASON.to_owned(), "moved".to_owned())]);
        let (annotation, permission) = (Overrides::Annotation, Overrides::Permission);
        for (allowed, annotations, expected) in [
            (
                annotation,
                &BTreeMap::new(),
                format!(
                    "Override (can lose data), then delete again: kubectl annotate -n db pod etcd-1 {all}"
                ),
            ),
            // One annotation does not override, and kubectl keeps it.
            (
                annotation,
                &reason,
                format!(
                    "Override (can lose data), then delete again: kubectl annotate --overwrite -n db pod etcd-1 {all}"
                ),
            ),
            (
                permission,
                &BTreeMap::new(),
                format!(
                    "{needs}, then delete again: kubectl annotate -n db pod etcd-1 durward.dev/break-glass=etcd-1"
                ),
            ),
        ] {
            let object = Overridable {
                guard: "etcd",
                allowed,
                object: "-n db pod etcd-1",
                name: "etcd-1",
                annotations,
            };
            let message = object.add_command(Message::new("no"), now(), "can lose data");
            assert_eq!(message.to_string(), format!("no\n{expected}"));
        }
    }

    #[test]
    fn an_invalid_annotation_is_explained() {
        let wrong = Override::Invalid("delete-reason is missing".to_owned());
        let text = |current: &Override| add_invalid(Message::new("no"), current).to_string();
        assert_eq!(text(&wrong), "no\n  Override ignored: delete-reason is missing");
        assert_eq!(text(&Override::None), "no");
    }

    #[test]
    fn describes_each_mistake() {
        let (name, reason, until) =
            ((DELETE_ANYWAY, "shop"), (DELETE_REASON, "moved"), (DELETE_UNTIL, "2026-11-21T18:00:00Z"));
        for (annotations, text) in [
            (vec![(DELETE_ANYWAY, "shpo"), reason, until], "delete-anyway is \"shpo\", expected \"shop\""),
            (vec![(DELETE_ANYWAY, "true"), reason, until], "is \"true\""),
            (vec![(DELETE_ANYWAY, ""), reason, until], "is \"\""),
            (vec![name, until], "delete-reason is missing"),
            (vec![name, (DELETE_REASON, " "), until], "delete-reason is empty"),
            (
                vec![name, (DELETE_REASON, "<reason>"), until],
                "delete-reason is the placeholder, write a reason",
            ),
            (vec![name, reason], "delete-until is missing"),
            (vec![name, reason, (DELETE_UNTIL, "2026-11-21T09:59:59Z")], "is in the past"),
            (vec![name, reason, (DELETE_UNTIL, "2026-11-21T10:00:00Z")], "is in the past"),
            (vec![name, reason, (DELETE_UNTIL, "2026-11-21")], "is in the past"),
            (
                vec![name, reason, (DELETE_UNTIL, "2026-11-22T10:00:01Z")],
                "more than 24 hours ahead (at most 2026-11-22T10:00:00Z)",
            ),
            (vec![name, reason, (DELETE_UNTIL, "soon")], "delete-until \"soon\" is not a time"),
            (vec![name, reason, (DELETE_UNTIL, "2026-11-21T18Z")], "is not a time"),
            (vec![name, reason, (DELETE_UNTIL, "20261121T180000Z")], "is not a time"),
        ] {
            let Override::Invalid(why) = judged(Overrides::Annotation, &annotations) else {
                panic!("{annotations:?}")
            };
            assert!(why.contains(text), "{why}");
        }
        let Override::Invalid(why) = judged(Overrides::Annotation, &[(DELETE_ANYWAY, "x")]) else { panic!() };
        assert_eq!(why.matches("; ").count(), 2, "{why}");
    }

    #[test]
    fn annotations_alone_do_not_override_if_the_permission_is_required() {
        let all = [(DELETE_ANYWAY, "shop"), (DELETE_REASON, "moved"), (DELETE_UNTIL, "2026-11-21T18:00:00Z")];
        let Override::Invalid(why) = judged(Overrides::Permission, &all) else { panic!() };
        assert_eq!(why, "delete-anyway has no effect with overrides: permission");
    }

    #[test]
    fn the_break_glass_annotation_never_counts_in_a_review() {
        let needs =
            "break-glass has no effect: the caller lacks the verb break-glass on guards.durward.dev/deletion";
        for allowed in [Overrides::Annotation, Overrides::Permission] {
            assert_eq!(judged(allowed, &[(BREAK_GLASS, "shop")]), Override::Invalid(needs.to_owned()));
            let other = "break-glass is \"x\", expected \"shop\"".to_owned();
            assert_eq!(judged(allowed, &[(BREAK_GLASS, "x")]), Override::Invalid(other));
        }
        let expired = [
            (BREAK_GLASS, "shop"),
            (DELETE_ANYWAY, "shop"),
            (DELETE_REASON, "moved"),
            (DELETE_UNTIL, "2026-11-21T09:00:00Z"),
        ];
        let Override::Invalid(why) = judged(Overrides::Annotation, &expired) else { panic!() };
        assert!(why.starts_with("delete-until ") && why.ends_with(needs), "{why}");
        let active = [expired[0], expired[1], expired[2], (DELETE_UNTIL, "2026-11-21T18:00:00Z")];
        assert!(matches!(judged(Overrides::Annotation, &active), Override::Active { .. }));
    }

    #[test]
    fn finds_annotations_that_were_left_on_an_object() {
        let found = |annotations: &[(&str, &str)]| {
            let annotations = annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            leftover(Overrides::Annotation, "shop", &annotations, now())
        };
        assert_eq!(found(&[(DELETE_REASON, "x"), ("a", "b")]), None);
        let left = found(&[(BREAK_GLASS, "shop"), (DELETE_ANYWAY, "shop"), ("a", "b")]).unwrap();
        assert_eq!((left.key, left.is_active), (BREAK_GLASS, true));
        assert!(left.effect.contains("does not expire"), "{}", left.effect);
        assert_eq!(left.annotations, [DELETE_ANYWAY, BREAK_GLASS]);
        assert!(!found(&[(BREAK_GLASS, "x")]).unwrap().is_active);
        let complete = |until| [(DELETE_ANYWAY, "shop"), (DELETE_REASON, "moved"), (DELETE_UNTIL, until)];
        let left = found(&complete("2026-11-21T18:00:00Z")).unwrap();
        assert_eq!((left.key, left.is_active), (DELETE_ANYWAY, true));
        assert_eq!(
            left.effect,
            "Durward allows its deletion until 2026-11-21T18:00:00Z, and native policies after that too"
        );
        let left = found(&complete("2026-11-21T09:00:00Z")).unwrap();
        assert_eq!(
            left.effect,
            "only native policies accept it: delete-until 2026-11-21T09:00:00Z is in the past"
        );
        assert!(!left.is_active && left.annotations.len() == 3);
    }

    #[test]
    fn the_printed_command_overrides_only_with_a_reason() {
        let printed = arguments("shop", Overrides::Annotation, now());
        let typed = |reason: &str| {
            let typed = printed.replace("'<reason>'", reason);
            let annotations: Vec<(&str, &str)> =
                typed.split(' ').filter_map(|one| one.split_once('=')).collect();
            judged(Overrides::Annotation, &annotations)
        };
        assert!(matches!(typed("moved"), Override::Active { .. }));
        assert!(matches!(typed("<reason>"), Override::Invalid(_)));
    }

    #[test]
    fn computes_annotations_that_override() {
        let computed = |reason: &str, hours: u64| {
            annotations("shop", reason, Duration::from_secs(hours * 3600), now()).map(|all| {
                let all: Vec<(&str, &str)> = all.iter().map(|(key, value)| (*key, value.as_str())).collect();
                judged(Overrides::Annotation, &all)
            })
        };
        assert!(matches!(computed("moved", 24), Ok(Override::Active { .. })));
        for (reason, hours, why) in [
            ("", 2, "is empty"),
            ("<reason>", 2, "placeholder"),
            ("moved", 25, "24 hours"),
            ("moved", 0, "past"),
        ] {
            assert!(computed(reason, hours).unwrap_err().to_string().contains(why), "{reason} {hours}");
        }
    }

    #[test]
    fn the_match_condition_requires_the_annotation_and_the_verb() {
        assert_eq!(
            condition("deletion").expression,
            concat!(
                r#"!(oldObject != null && oldObject.metadata.?annotations[?"durward.dev/break-glass"].orValue("") == oldObject.metadata.?name.orValue("*") && "#,
                r#"authorizer.group("durward.dev").resource("guards").name("deletion").check("break-glass").allowed())"#
            )
        );
    }
}
