//! Protects the namespace of Durward, for all guards that deny deletions.
//!
//! Its deletion removes Durward, and the garbage collector then removes the webhook configurations, which the namespace owns. So
//! the deletion turns off every guard. The entry has `failurePolicy: Ignore`: a Durward that is down, or that was uninstalled, must
//! not keep its namespace. `durward unregister` removes the entry. Objects in the namespace stay exempt.
//!
//! The entry selects the namespace by the label with its name. The API server writes that label on each change of a Namespace, so
//! nobody can remove it.

use std::collections::BTreeMap;
use std::time::SystemTime;

use admission::{Denial, Mode, Operation, Request, Ruling};

use crate::common::{CommonConfig, FailurePolicy, NAMESPACE_NAME};
use crate::message::Message;
use crate::overrides::{self, BreakGlass, Override};
use crate::webhook::{WebhookEntry, WebhookType, not_terminating, rule};
use ::config::Expression;

/// The first part of the name of the webhook entry. All guards have the same entry, and a webhook configuration contains it once.
pub const INSTALL_NAMESPACE: &str = "install-namespace";

/// Returns the webhook entry, if the guard denies requests and Durward runs in the cluster.
pub(crate) fn entry(guard: &str, common: &CommonConfig) -> Option<WebhookEntry> {
    let name = &common.namespace;
    if name.is_empty() || common.settle_policy.mode != Mode::Enforce {
        return None;
    }
    let rules = vec![rule("DELETE", "", "namespaces", "Cluster")];
    Some(WebhookEntry {
        namespace_selector: Expression::In(NAMESPACE_NAME.to_owned(), [name.clone()].into()).into(),
        match_conditions: vec![overrides::condition(guard), not_terminating()],
        failure_policy: FailurePolicy::Ignore,
        ..WebhookEntry::new(WebhookType::Validating, INSTALL_NAMESPACE, rules, common)
    })
}

/// Returns whether a request deletes Durward's namespace. The API server names the namespace in a request for one.
pub(crate) fn is_deletion(common: &CommonConfig, request: &Request<'_>) -> bool {
    request.operation == Operation::Delete
        && request.is_for("", "namespaces")
        && !common.namespace.is_empty()
        && request.name == common.namespace
}

/// Returns the ruling on the deletion of Durward's namespace, which has these annotations.
pub(crate) fn ruling(
    guard: &str,
    common: &CommonConfig,
    break_glass: BreakGlass,
    annotations: &BTreeMap<String, String>,
    now: SystemTime,
) -> Ruling {
    let name = common.namespace.as_str();
    let judged = overrides::judge(guard, break_glass, name, annotations, now);
    if let Override::Active { reason, until } = judged {
        let warning = format!(
            "{guard}: namespace {name:?} is deleted with Durward: override until {until}, reason: {reason}"
        );
        return Ruling::allow().warn(warning).audit("override", format!("until {until}: {reason}"));
    }
    let why = "it contains Durward, and without Durward the API server checks no deletion";
    let mut message = Message::new(&format!("cannot delete namespace {name:?}: {why}"));
    if let Override::Invalid(wrong) = &judged {
        message = message.detail(&format!("Override ignored: {wrong}"));
    }
    let is_annotated = overrides::ALL.iter().any(|key| annotations.contains_key(*key));
    let command = overrides::command(&format!("ns {name}"), name, break_glass, is_annotated, now);
    let consequence = match break_glass {
        BreakGlass::Annotation => "turns off all guards".to_owned(),
        BreakGlass::Permission => format!("needs the verb break-glass on guards.durward.dev/{guard}"),
    };
    let message = message
        .next(&format!("uninstall Durward, then delete again: helm -n {name} uninstall durward"))
        .override_with(&command, &consequence);
    Ruling::deny(Denial::forbidden(message.to_string())).audit("denied", why)
}

#[cfg(test)]
mod tests {
    use ::config::{parse, read, time};
    use admission::{OnUnknown, Verdict};

    use super::*;
    use crate::common::Defaults;

    fn common(yaml: &str, namespace: &str) -> CommonConfig {
        let defaults = Defaults {
            on_unknown: OnUnknown::Deny,
            failure_policy: Some(FailurePolicy::Fail),
            timeout_seconds: 10,
            exempt_namespaces: &[],
        };
        let root = parse("-", yaml).unwrap();
        read("-", root.as_ref(), |s| CommonConfig::read(s, defaults, namespace)).0
    }

    #[test]
    fn the_entry_is_for_one_namespace_and_fails_open() {
        let own = common("webhook: {namespaceSelector: {matchLabels: {a: b}}}", "guards");
        let entry = entry("etcd", &own).unwrap();
        assert_eq!(entry.namespace_selector.to_string(), "kubernetes.io/metadata.name in (guards)");
        assert_eq!(entry.failure_policy, FailurePolicy::Ignore);
        let names: Vec<_> = entry.match_conditions.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["no-break-glass", "not-terminating"]);
        assert!(super::entry("etcd", &common("mode: audit", "guards")).is_none());
        assert!(super::entry("etcd", &common("{}", "")).is_none());
    }

    #[test]
    fn the_deletion_needs_an_override() {
        let now = time::read("2026-11-21T10:00:00Z").unwrap().into();
        let ruling = |annotations: &[(&str, &str)]| {
            let annotations = annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            ruling("etcd", &common("{}", "guards"), BreakGlass::Annotation, &annotations, now)
        };
        let text = |ruling: Ruling| match ruling.verdict {
            Verdict::Deny(denial) => denial.message,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            text(ruling(&[])),
            "cannot delete namespace \"guards\": it contains Durward, and without Durward the API server checks no deletion\n\
             Next: uninstall Durward, then delete again: helm -n guards uninstall durward\n\
             Override (turns off all guards), then delete again: kubectl annotate ns guards durward.dev/delete-anyway=guards \
             durward.dev/delete-reason='<reason>' durward.dev/delete-until=2026-11-21T12:00:00Z"
        );
        let broken = text(ruling(&[(overrides::BREAK_GLASS, "guards")]));
        assert!(broken.contains("\n  Override ignored: break-glass has no effect"), "{broken}");
        let complete = [
            (overrides::DELETE_ANYWAY, "guards"),
            (overrides::DELETE_REASON, "moved"),
            (overrides::DELETE_UNTIL, "2026-11-21T18:00:00Z"),
        ];
        assert_eq!(ruling(&complete).verdict, Verdict::Allow);
    }
}
