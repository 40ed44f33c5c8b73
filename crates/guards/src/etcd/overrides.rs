//! The override annotations for this guard, and the commands that set them.
//!
//! The API server checks the verb `break-glass` against the object in the request: a deletion, or a change of a `StatefulSet`. An
//! eviction contains no pod, and `kubectl scale` no `StatefulSet`. For these, Durward reads the three annotations of the stored
//! object, and `breakGlass: permission` allows no override.

use std::collections::BTreeMap;
use std::time::SystemTime;

use super::NAME;
use super::config::Config;
use crate::overrides::{self, BreakGlass};

pub(super) use crate::overrides::{DELETE_ANYWAY, Override};

/// A denied request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeniedRequest {
    /// The deletion of an object of this resource.
    Deletion(&'static str),
    /// The eviction of a pod.
    Eviction,
    /// Scaling a `StatefulSet` to so many replicas.
    Scaling(u64),
}

/// Judges the annotations of an object with this name.
pub(super) fn judge(
    config: &Config,
    name: &str,
    annotations: &BTreeMap<String, String>,
    now: SystemTime,
) -> Override {
    overrides::judge(NAME, config.break_glass, name, annotations, now)
}

/// Returns the command that overrides a denial, or what is wrong with the annotations.
pub(super) fn hint(
    config: &Config,
    denied: DeniedRequest,
    (namespace, name): (&str, &str),
    current: &Override,
    now: SystemTime,
) -> String {
    let wrong = match current {
        Override::Invalid(wrong) => Some(format!("the annotation {DELETE_ANYWAY} does not count: {wrong}")),
        Override::None | Override::Active { .. } => None,
    };
    let by_verb = config.break_glass == BreakGlass::Permission;
    // The text about the missing verb contains the command.
    if by_verb
        && matches!(denied, DeniedRequest::Deletion(_))
        && let Some(wrong) = wrong
    {
        return wrong;
    }
    let resource = match denied {
        DeniedRequest::Deletion(resource) => resource,
        DeniedRequest::Eviction => "pod",
        DeniedRequest::Scaling(_) => "statefulset",
    };
    let overwrite = if wrong.is_some() { " --overwrite" } else { "" };
    let annotate = format!("kubectl -n {namespace} annotate{overwrite} {resource} {name}");
    let (one, all) = (
        overrides::arguments(name, BreakGlass::Permission, now),
        overrides::arguments(name, BreakGlass::Annotation, now),
    );
    let holder = format!("a caller with the verb break-glass on guards.durward.dev/{NAME}");
    let hint = match (by_verb, denied) {
        (false, DeniedRequest::Deletion(_)) => format!(
            "to delete in spite of all: {annotate} {all} (whoever has the verb break-glass needs only the first)"
        ),
        (false, DeniedRequest::Eviction) => {
            format!("to evict in spite of all: {annotate} {all} (all three, whoever evicts)")
        }
        (false, DeniedRequest::Scaling(_)) => {
            format!("to scale in spite of all: {annotate} {all} (all three, whoever scales)")
        }
        (true, DeniedRequest::Deletion(_)) => {
            format!("to delete in spite of all: {annotate} {one} (it counts only for {holder})")
        }
        (true, DeniedRequest::Eviction) => format!(
            "nothing opens an eviction (breakGlass: permission); {holder} may delete in spite of all: {annotate} {one}, then kubectl -n {namespace} delete pod {name}"
        ),
        (true, DeniedRequest::Scaling(replicas)) => format!(
            "nothing opens kubectl scale (breakGlass: permission); {holder} may change the StatefulSet in spite of all: {annotate} {one}, then kubectl -n {namespace} patch statefulset {name} -p '{{\"spec\":{{\"replicas\":{replicas}}}}}'"
        ),
    };
    wrong.map_or(hint.clone(), |wrong| format!("{wrong}; {hint}"))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{LEAST, config, now};
    use super::*;

    fn hint_of(yaml: &str, denied: DeniedRequest, current: &Override) -> String {
        hint(&config(&format!("{LEAST}\n{yaml}")), denied, ("db", "etcd-1"), current, now())
    }

    #[test]
    fn each_hint_overrides_the_denied_request() {
        let all = "durward.dev/delete-anyway=etcd-1 durward.dev/delete-reason='<reason>' durward.dev/delete-until=2026-11-21T12:00:00Z";
        for (yaml, denied, expected) in [
            (
                "",
                DeniedRequest::Deletion("pod"),
                format!(
                    "to delete in spite of all: kubectl -n db annotate pod etcd-1 {all} (whoever has the verb break-glass needs only the first)"
                ),
            ),
            (
                "",
                DeniedRequest::Eviction,
                format!(
                    "to evict in spite of all: kubectl -n db annotate pod etcd-1 {all} (all three, whoever evicts)"
                ),
            ),
            (
                "",
                DeniedRequest::Scaling(1),
                format!(
                    "to scale in spite of all: kubectl -n db annotate statefulset etcd-1 {all} (all three, whoever scales)"
                ),
            ),
            (
                "breakGlass: permission",
                DeniedRequest::Deletion("pod"),
                "to delete in spite of all: kubectl -n db annotate pod etcd-1 durward.dev/delete-anyway=etcd-1 (it counts only for a caller with the verb break-glass on guards.durward.dev/etcd)".to_owned(),
            ),
        ] {
            assert_eq!(hint_of(yaml, denied, &Override::None), expected);
        }
        let evicted = hint_of("breakGlass: permission", DeniedRequest::Eviction, &Override::None);
        assert!(
            evicted.contains("nothing opens an eviction") && evicted.ends_with("delete pod etcd-1"),
            "{evicted}"
        );
        let scaled = hint_of("breakGlass: permission", DeniedRequest::Scaling(1), &Override::None);
        assert!(scaled.ends_with(r#"patch statefulset etcd-1 -p '{"spec":{"replicas":1}}'"#), "{scaled}");
        for hint in [evicted, scaled] {
            assert!(!hint.contains("delete-reason"), "a reason never counts there: {hint}");
        }
    }

    #[test]
    fn a_wrong_annotation_is_explained_with_the_command_that_fixes_it() {
        let wrong = Override::Invalid("durward.dev/delete-reason is missing: say why".to_owned());
        let hint = hint_of("", DeniedRequest::Deletion("pod"), &wrong);
        assert!(hint.starts_with("the annotation durward.dev/delete-anyway does not count: durward.dev/delete-reason is missing"), "{hint}");
        assert!(hint.contains("annotate --overwrite pod etcd-1"), "{hint}");
        let without_the_verb = hint_of("breakGlass: permission", DeniedRequest::Deletion("pod"), &wrong);
        assert!(!without_the_verb.contains("kubectl"), "{without_the_verb}");
    }
}
