//! To delete in spite of all, as this guard has it: which of the two ways of [`breakglass`] opens what, and how that is typed.
//!
//! The verb opens what brings its object, with its annotations: deletions, and changes of a `StatefulSet` itself. An eviction brings
//! no pod and `kubectl scale` no set, so that the API server has nothing to look at and Durward looks at what is stored: there the
//! three annotations count, and with `breakGlass: verb` nothing does.

use std::collections::BTreeMap;
use std::time::SystemTime;

use super::NAME;
use super::config::Config;
use crate::overrides::{self, BreakGlass};

pub(super) use crate::overrides::{DELETE_ANYWAY, Override};

/// What was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// The deletion of an object of this resource.
    Deletion(&'static str),
    /// The eviction of a pod.
    Eviction,
    /// A `StatefulSet` that would have so many replicas.
    Scaling(u64),
}

/// Judges the annotations of an object of this name.
pub(super) fn judge(
    config: &Config,
    name: &str,
    annotations: &BTreeMap<String, String>,
    now: SystemTime,
) -> Override {
    overrides::judge(NAME, config.break_glass, name, annotations, now)
}

/// How it is done all the same, or what is wrong with how it was tried.
pub(super) fn way(
    config: &Config,
    refused: Refused,
    (namespace, name): (&str, &str),
    tried: &Override,
    now: SystemTime,
) -> String {
    let wrong = match tried {
        Override::Refused(wrong) => Some(format!("the annotation {DELETE_ANYWAY} does not count: {wrong}")),
        Override::Whole | Override::Broken { .. } => None,
    };
    let by_verb = config.break_glass == BreakGlass::Verb;
    // What the verb opens, and who is told that the verb is missing, needs no second command.
    if by_verb
        && matches!(refused, Refused::Deletion(_))
        && let Some(wrong) = wrong
    {
        return wrong;
    }
    let resource = match refused {
        Refused::Deletion(resource) => resource,
        Refused::Eviction => "pod",
        Refused::Scaling(_) => "statefulset",
    };
    let again = if wrong.is_some() { " --overwrite" } else { "" };
    let annotate = format!("kubectl -n {namespace} annotate{again} {resource} {name}");
    let (one, all) = (overrides::deed(name), overrides::deeds(name, now));
    let holder = format!("a caller with the verb break-glass on guards.durward.dev/{NAME}");
    let way = match (by_verb, refused) {
        (false, Refused::Deletion(_)) => format!(
            "to delete in spite of all: {annotate} {all} (whoever has the verb break-glass needs only the first)"
        ),
        (false, Refused::Eviction) => {
            format!("to evict in spite of all: {annotate} {all} (all three, whoever evicts)")
        }
        (false, Refused::Scaling(_)) => {
            format!("to scale in spite of all: {annotate} {all} (all three, whoever scales)")
        }
        (true, Refused::Deletion(_)) => {
            format!("to delete in spite of all: {annotate} {one} (it counts only for {holder})")
        }
        (true, Refused::Eviction) => format!(
            "nothing opens an eviction (breakGlass: verb); {holder} may delete in spite of all: {annotate} {one}, then kubectl -n {namespace} delete pod {name}"
        ),
        (true, Refused::Scaling(replicas)) => format!(
            "nothing opens kubectl scale (breakGlass: verb); {holder} may change the StatefulSet in spite of all: {annotate} {one}, then kubectl -n {namespace} patch statefulset {name} -p '{{\"spec\":{{\"replicas\":{replicas}}}}}'"
        ),
    };
    wrong.map_or(way.clone(), |wrong| format!("{wrong}; {way}"))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{LEAST, config, now};
    use super::*;

    fn told(yaml: &str, refused: Refused, tried: &Override) -> String {
        way(&config(&format!("{LEAST}\n{yaml}")), refused, ("db", "etcd-1"), tried, now())
    }

    #[test]
    fn each_way_out_is_one_that_opens_what_was_refused() {
        let all = "durward.dev/delete-anyway=etcd-1 durward.dev/delete-reason='WHY' durward.dev/delete-until=2026-11-21T12:00:00Z";
        for (yaml, refused, expected) in [
            (
                "",
                Refused::Deletion("pod"),
                format!(
                    "to delete in spite of all: kubectl -n db annotate pod etcd-1 {all} (whoever has the verb break-glass needs only the first)"
                ),
            ),
            (
                "",
                Refused::Eviction,
                format!(
                    "to evict in spite of all: kubectl -n db annotate pod etcd-1 {all} (all three, whoever evicts)"
                ),
            ),
            (
                "",
                Refused::Scaling(1),
                format!(
                    "to scale in spite of all: kubectl -n db annotate statefulset etcd-1 {all} (all three, whoever scales)"
                ),
            ),
            (
                "breakGlass: verb",
                Refused::Deletion("pod"),
                "to delete in spite of all: kubectl -n db annotate pod etcd-1 durward.dev/delete-anyway=etcd-1 (it counts only for a caller with the verb break-glass on guards.durward.dev/etcd)".to_owned(),
            ),
        ] {
            assert_eq!(told(yaml, refused, &Override::Whole), expected);
        }
        let evicted = told("breakGlass: verb", Refused::Eviction, &Override::Whole);
        assert!(
            evicted.contains("nothing opens an eviction") && evicted.ends_with("delete pod etcd-1"),
            "{evicted}"
        );
        let scaled = told("breakGlass: verb", Refused::Scaling(1), &Override::Whole);
        assert!(scaled.ends_with(r#"patch statefulset etcd-1 -p '{"spec":{"replicas":1}}'"#), "{scaled}");
        for told in [evicted, scaled] {
            assert!(!told.contains("delete-reason"), "a reason never counts there: {told}");
        }
    }

    #[test]
    fn who_tried_in_vain_is_told_what_is_wrong_and_how_it_is_put_right() {
        let tried = Override::Refused("durward.dev/delete-reason is missing: say why".to_owned());
        let told = told("", Refused::Deletion("pod"), &tried);
        assert!(told.starts_with("the annotation durward.dev/delete-anyway does not count: durward.dev/delete-reason is missing"), "{told}");
        assert!(told.contains("annotate --overwrite pod etcd-1"), "{told}");
        let without_the_verb = self::told("breakGlass: verb", Refused::Deletion("pod"), &tried);
        assert!(!without_the_verb.contains("kubectl"), "{without_the_verb}");
    }
}
