//! The override annotations for this guard, and the commands that set them.
//!
//! The API server checks the verb `break-glass` and its annotation against the object in the request: a deletion, or a change of a
//! `StatefulSet`. An eviction contains no pod, and `kubectl scale` no `StatefulSet`. For these, Durward reads the three annotations of
//! the stored object, and `overrides: permission` allows no override.

use std::collections::BTreeMap;
use std::time::SystemTime;

use super::NAME;
use super::config::Config;
use crate::message::Message;
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
    /// An update of an object of this resource, which takes etcd pods out of the guard.
    Change(&'static str),
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

/// Adds what is wrong with the annotations of an object.
pub(super) fn add_invalid(message: Message, current: &Override) -> Message {
    match current {
        Override::Invalid(wrong) => message.detail(&format!("Override ignored: {wrong}")),
        Override::None | Override::Active { .. } => message,
    }
}

/// Adds the command that overrides a denial.
pub(super) fn add(
    message: Message,
    config: &Config,
    denied: DeniedRequest,
    (namespace, name): (&str, &str),
    (current, now): (&Override, SystemTime),
    consequence: &str,
) -> Message {
    let (resource, again, patch) = match denied {
        DeniedRequest::Deletion(resource) => (resource, "delete again", String::new()),
        DeniedRequest::Change(resource) => (resource, "repeat the change", String::new()),
        // The message of an eviction is one line.
        DeniedRequest::Eviction => return message,
        DeniedRequest::Scaling(_) if config.break_glass == BreakGlass::Annotation => {
            ("statefulset", "scale again", String::new())
        }
        // The verb is checked for the StatefulSet, which `kubectl scale` does not send.
        DeniedRequest::Scaling(replicas) => {
            let patch = format!(
                " && kubectl -n {namespace} patch statefulset {name} -p '{{\"spec\":{{\"replicas\":{replicas}}}}}'"
            );
            ("statefulset", "", patch)
        }
    };
    let overwrite = matches!(current, Override::Invalid(_));
    let object = match namespace {
        "" => format!("{resource} {name}"),
        namespace => format!("-n {namespace} {resource} {name}"),
    };
    let command = overrides::command(&object, name, config.break_glass, overwrite, now) + &patch;
    let needs_verb = format!("needs the verb break-glass on guards.durward.dev/{NAME}");
    let consequence = match config.break_glass {
        BreakGlass::Annotation => consequence,
        BreakGlass::Permission => &needs_verb,
    };
    message.override_then(&command, consequence, again)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{LEAST, config, now};
    use super::*;

    fn text(yaml: &str, denied: DeniedRequest, current: &Override) -> String {
        let config = config(&format!("{LEAST}\n{yaml}"));
        let message = add_invalid(Message::new("no"), current);
        add(message, &config, denied, ("db", "etcd-1"), (current, now()), "").to_string()
    }

    #[test]
    fn each_command_overrides_the_denied_request() {
        let all = "durward.dev/delete-anyway=etcd-1 durward.dev/delete-reason='<reason>' durward.dev/delete-until=2026-11-21T12:00:00Z";
        let needs = "Override (needs the verb break-glass on guards.durward.dev/etcd)";
        let permission = "overrides: permission";
        for (yaml, denied, expected) in [
            (
                "",
                DeniedRequest::Deletion("pod"),
                format!("no\nOverride, then delete again: kubectl annotate -n db pod etcd-1 {all}"),
            ),
            (
                "",
                DeniedRequest::Scaling(1),
                format!("no\nOverride, then scale again: kubectl annotate -n db statefulset etcd-1 {all}"),
            ),
            (
                permission,
                DeniedRequest::Deletion("pod"),
                format!(
                    "no\n{needs}, then delete again: kubectl annotate -n db pod etcd-1 durward.dev/break-glass=etcd-1"
                ),
            ),
            (
                permission,
                DeniedRequest::Scaling(1),
                format!(
                    "no\n{needs}: kubectl annotate -n db statefulset etcd-1 durward.dev/break-glass=etcd-1 && kubectl -n db patch statefulset etcd-1 -p '{{\"spec\":{{\"replicas\":1}}}}'"
                ),
            ),
            ("", DeniedRequest::Eviction, "no".to_owned()),
        ] {
            assert_eq!(text(yaml, denied, &Override::None), expected);
        }
    }

    #[test]
    fn an_invalid_annotation_is_explained_with_the_command_that_fixes_it() {
        let wrong = Override::Invalid("delete-reason is missing".to_owned());
        let text = text("", DeniedRequest::Deletion("pod"), &wrong);
        assert!(
            text.starts_with(
                "no\n  Override ignored: delete-reason is missing\nOverride, then delete again: "
            ),
            "{text}"
        );
        assert!(text.contains("annotate --overwrite -n db pod etcd-1"), "{text}");
    }
}
