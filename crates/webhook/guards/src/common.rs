//! The keys that every guard has: mode, policy for unknown results, exemptions, and webhook settings. Only the defaults differ.

use std::collections::BTreeSet;

use admission::{Glob, Mode, OnUnknown, Request, SettlePolicy};

use crate::exempt::Exempt;
use ::config::{Expression, Section, Selector, SelectorExt as _};

/// The default namespace of Durward.
pub const NAMESPACE: &str = "durward-system";

/// The namespace of the system pods, which must start without Durward.
pub(crate) const SYSTEM_NAMESPACE: &str = "kube-system";

/// The label that each namespace has with its own name (since 1.21).
pub const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// The policy of the API server for requests while the webhook does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailurePolicy {
    /// Deny it.
    Fail,
    /// Allow it.
    Ignore,
}

impl FailurePolicy {
    /// Returns the word of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "Fail",
            Self::Ignore => "Ignore",
        }
    }
}

/// The defaults of a guard.
#[derive(Debug, Clone, Copy)]
pub struct Defaults {
    /// `onUnknown`.
    pub on_unknown: OnUnknown,
    /// The policy of the API server while Durward does not answer; `None` if it is not a key of the section.
    pub failure_policy: Option<FailurePolicy>,
    /// The timeout of the API server.
    pub timeout_seconds: u8,
    /// `exempt.namespaces`.
    pub exempt_namespaces: &'static [&'static str],
}

/// A remark on a valid configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remark {
    /// A rule that is in force and that a user can expect to be different.
    Note(String),
    /// A part that has no effect, or that can do harm.
    Warning(String),
    /// A rule that the guard evaluates.
    Rule(String),
}

/// The keys that every guard has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommonConfig {
    /// `mode`, `onUnknown` and `controllerUsers`.
    pub settle_policy: SettlePolicy,
    /// `exempt`.
    pub exempt: Exempt,
    /// `webhook.failurePolicy`, or `Fail` if the section does not have the key.
    pub failure_policy: FailurePolicy,
    /// `webhook.timeoutSeconds`.
    pub timeout_seconds: u8,
    /// `webhook.namespaceSelector`, besides the selection of the guard itself.
    pub namespace_selector: Selector,
    /// The namespace of Durward, exempt by name so that Durward can be installed again while it is down. Empty if Durward does
    /// not run in the cluster.
    pub namespace: String,
}

impl CommonConfig {
    /// Returns the key that exempts a request about this namespace.
    pub fn exempt_by(&self, request: &Request<'_>, namespace: &str) -> Option<&'static str> {
        // Without a namespace of its own, Durward exempts none.
        let is_own = !namespace.is_empty() && namespace == self.namespace;
        self.exempt.of(request).or(is_own.then_some("namespace"))
    }

    /// Returns the command with which an administrator of Durward runs `doctor` for a part, with Durward's own permissions.
    pub(crate) fn doctor(&self, part: &str) -> String {
        match self.namespace.as_str() {
            "" => format!("durward doctor {part} -c durward.yaml"),
            home => format!("kubectl -n {home} exec deploy/durward -- durward doctor {part}"),
        }
    }

    /// Returns a note if a selector of namespaces covers Durward's own namespace. Only its label with the name is known.
    pub(crate) fn home_note(&self, key: &str, selector: &Selector) -> Option<Remark> {
        let labels = [(NAMESPACE_NAME.to_owned(), self.namespace.clone())].into();
        let covers_home = !self.namespace.is_empty() && selector.matches(&labels);
        let text = format!(
            "{key} also covers the namespace of Durward, {}; the guard leaves it out",
            self.namespace
        );
        covers_home.then_some(Remark::Note(text))
    }

    /// Returns a note if `webhook.namespaceSelector` is set and covers Durward's own namespace.
    pub(crate) fn webhook_note(&self) -> Option<Remark> {
        let is_set = !self.namespace_selector.selects_all();
        is_set.then(|| self.home_note("webhook.namespaceSelector", &self.namespace_selector)).flatten()
    }
}

/// Returns the keys of the labels that a selector names.
pub fn label_keys(selector: &Selector) -> BTreeSet<String> {
    let key = |expression: Expression| match expression {
        Expression::In(key, _)
        | Expression::NotIn(key, _)
        | Expression::Equal(key, _)
        | Expression::NotEqual(key, _)
        | Expression::Exists(key)
        | Expression::DoesNotExist(key) => key,
    };
    selector.clone().into_iter().map(key).collect()
}

const ON_UNKNOWN: [(&str, OnUnknown); 2] = [("deny", OnUnknown::Deny), ("allow", OnUnknown::Allow)];

impl CommonConfig {
    /// Reads the keys. `namespace` is the namespace of Durward.
    pub fn read(section: &mut Section<'_>, defaults: Defaults, namespace: &str) -> Self {
        let words = [("enforce", Mode::Enforce), ("audit", Mode::Audit)];
        let mode = section.choice(
            "mode",
            "enforce: deny requests. audit: allow them with a warning, and count them.",
            &words,
            Mode::Enforce,
        );
        let (users, controllers) = on_unknown(section, defaults.on_unknown);
        let named = section.texts(
            "controllerUsers",
            "user name",
            "Users that count as controllers, besides those of Kubernetes. * matches any characters.",
            &[],
        );
        let exempt = Exempt::read(section, defaults.exempt_namespaces);
        let settle_policy = SettlePolicy {
            mode,
            users,
            controllers,
            more_controllers: named.into_iter().map(Glob::new).collect(),
        };
        section.section("webhook", "The entries of this guard in webhook configurations.", |s| {
            let policies = [("Fail", FailurePolicy::Fail), ("Ignore", FailurePolicy::Ignore)];
            let failure_policy = defaults.failure_policy.map(|default| {
                s.choice(
                    "failurePolicy",
                    "Result of a request while Durward does not answer: Fail denies it, Ignore allows it.",
                    &policies,
                    default,
                )
            });
            let seconds = s.number(
                "timeoutSeconds",
                "Timeout of the API server, in seconds.",
                u64::from(defaults.timeout_seconds),
                (1, 30),
            );
            s.removed("admissionReviewVersions", "remove it: the entries of all guards have v1");
            let namespace_selector =
                s.selector("namespaceSelector", "Review only objects in namespaces with these labels.");
            Self {
                settle_policy,
                exempt,
                failure_policy: failure_policy.unwrap_or(FailurePolicy::Fail),
                timeout_seconds: u8::try_from(seconds).unwrap_or(defaults.timeout_seconds),
                namespace_selector: namespace_selector.unwrap_or_default(),
                namespace: namespace.to_owned(),
            }
        })
    }
}

/// `onUnknown: deny`, or `onUnknown: {users: deny, controllers: allow}`.
fn on_unknown(section: &mut Section<'_>, default: OnUnknown) -> (OnUnknown, OnUnknown) {
    const DOC: &str = "The answer to a request that could not be checked; or {users: …, controllers: …}.";
    section.choice_or_section("onUnknown", DOC, &ON_UNKNOWN, default, |s, both| {
        (
            s.choice("users", "The answer to users.", &ON_UNKNOWN, both),
            s.choice("controllers", "The answer to controllers.", &ON_UNKNOWN, both),
        )
    })
}

/// Splits the first line `namespace: NAME` from the section of a test: the file has this key next to its guards.
#[cfg(test)]
pub(crate) fn split_namespace(yaml: &str) -> (&str, &str) {
    let line = yaml.strip_prefix("namespace: ").and_then(|rest| rest.split_once('\n'));
    line.map_or((NAMESPACE, yaml), |(namespace, rest)| (namespace.trim_matches('"'), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::config::{parse, read};

    const DEFAULTS: Defaults = Defaults {
        on_unknown: OnUnknown::Deny,
        failure_policy: Some(FailurePolicy::Fail),
        timeout_seconds: 10,
        exempt_namespaces: &[],
    };

    fn common_config(yaml: &str) -> (CommonConfig, Vec<String>) {
        let root = parse("-", yaml).unwrap();
        let (common_config, _, problems) =
            read("-", root.as_ref(), |s| CommonConfig::read(s, DEFAULTS, NAMESPACE));
        (common_config, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn uses_the_defaults_of_the_kind() {
        let (common_config, problems) = common_config("{}");
        assert_eq!(problems, [""; 0]);
        assert_eq!(common_config.settle_policy, SettlePolicy::deny_unknown());
        assert_eq!((common_config.failure_policy, common_config.timeout_seconds), (FailurePolicy::Fail, 10));
        assert_eq!(common_config.namespace, "durward-system");
    }

    #[test]
    fn only_the_namespace_of_durward_is_exempt_by_name() {
        let exempt_by = |home: &str, namespace: &str| {
            let body = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","resource":{"resource":"pods"},"operation":"DELETE"}}"#;
            let review = admission::decode(body.as_bytes(), &admission::Fields::none()).unwrap();
            let common = CommonConfig { namespace: home.to_owned(), ..common_config("{}").0 };
            common.exempt_by(&review.request, namespace)
        };
        assert_eq!(exempt_by("guards", "guards"), Some("namespace"));
        for (home, namespace) in [("guards", "db"), ("guards", ""), ("", "db"), ("", "")] {
            assert_eq!(exempt_by(home, namespace), None, "{home} {namespace}");
        }
    }

    #[test]
    fn reads_on_unknown_as_one_value_or_two() {
        assert_eq!(common_config("onUnknown: allow").0.settle_policy.users, OnUnknown::Allow);
        let (two, problems) = common_config("onUnknown: {controllers: allow}");
        assert_eq!(
            (two.settle_policy.users, two.settle_policy.controllers),
            (OnUnknown::Deny, OnUnknown::Allow)
        );
        assert_eq!(problems, [""; 0]);
        assert!(common_config("onUnknown: {usrs: allow}").1[0].contains("did you mean users?"));
        assert!(common_config("onUnknown: maybe").1[0].contains("must be one of: deny, allow"));
    }

    #[test]
    fn the_schema_has_both_forms_of_on_unknown() {
        let ((), keys, _) = read("-", None, |s| drop(CommonConfig::read(s, DEFAULTS, NAMESPACE)));
        let schema = ::config::Shape::Section(keys).schema();
        let forms = &schema["properties"]["onUnknown"]["anyOf"];
        assert_eq!(forms[0]["enum"][0], "deny");
        assert!(forms[1]["properties"]["users"].is_object());
    }

    #[test]
    fn rejects_webhook_settings_that_the_api_server_rejects() {
        assert!(common_config("webhook: {timeoutSeconds: 31}").1[0].contains("a whole number from 1 to 30"));
    }
}
