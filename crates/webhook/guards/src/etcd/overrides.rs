//! The override annotations for this guard, and the commands that set them.
//!
//! The API server checks the verb `break-glass` and its annotation against the object in the request. An eviction contains no pod. For
//! it, Durward reads the three annotations of the stored pod, and `overrides: permission` allows no override.

use std::collections::BTreeMap;
use std::time::SystemTime;

use super::NAME;
use super::config::Config;
use super::removal::RemovalKind;
use crate::message::Message;
use crate::overrides::{self, Overrides};

pub(super) use crate::overrides::{DELETE_ANYWAY, Override};

/// Judges the annotations of an object with this name.
pub(super) fn judge(
    config: &Config,
    name: &str,
    annotations: &BTreeMap<String, String>,
    now: SystemTime,
) -> Override {
    overrides::judge(NAME, config.overrides, name, annotations, now)
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
    kind: RemovalKind,
    (namespace, name): (&str, &str),
    (current, now): (&Override, SystemTime),
    consequence: &str,
) -> Message {
    // The message of an eviction is one line.
    if kind == RemovalKind::Evict {
        return message;
    }
    let overwrite = matches!(current, Override::Invalid(_));
    let object = format!("-n {namespace} pod {name}");
    let command = overrides::command(&object, name, config.overrides, overwrite, now);
    let needs_verb = format!("needs the verb break-glass on guards.durward.dev/{NAME}");
    let consequence = match config.overrides {
        Overrides::Annotation => consequence,
        Overrides::Permission => &needs_verb,
    };
    message.override_with(&command, consequence)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{LEAST, config, now};
    use super::*;

    fn text(yaml: &str, kind: RemovalKind, current: &Override) -> String {
        let config = config(&format!("{LEAST}\n{yaml}"));
        let message = add_invalid(Message::new("no"), current);
        add(message, &config, kind, ("db", "etcd-1"), (current, now()), "").to_string()
    }

    #[test]
    fn each_command_overrides_the_denied_request() {
        let all = "durward.dev/delete-anyway=etcd-1 durward.dev/delete-reason='<reason>' durward.dev/delete-until=2026-11-21T12:00:00Z";
        let needs = "Override (needs the verb break-glass on guards.durward.dev/etcd)";
        for (yaml, kind, expected) in [
            (
                "",
                RemovalKind::Delete,
                format!("no\nOverride, then delete again: kubectl annotate -n db pod etcd-1 {all}"),
            ),
            (
                "overrides: permission",
                RemovalKind::Delete,
                format!(
                    "no\n{needs}, then delete again: kubectl annotate -n db pod etcd-1 durward.dev/break-glass=etcd-1"
                ),
            ),
            ("", RemovalKind::Evict, "no".to_owned()),
        ] {
            assert_eq!(text(yaml, kind, &Override::None), expected);
        }
    }

    #[test]
    fn an_invalid_annotation_is_explained_with_the_command_that_fixes_it() {
        let wrong = Override::Invalid("delete-reason is missing".to_owned());
        let text = text("", RemovalKind::Delete, &wrong);
        assert!(
            text.starts_with(
                "no\n  Override ignored: delete-reason is missing\nOverride, then delete again: "
            ),
            "{text}"
        );
        assert!(text.contains("annotate --overwrite -n db pod etcd-1"), "{text}");
    }
}
