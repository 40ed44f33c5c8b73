//! The keys that every guard has: mode, policy for unknown results, exemptions, and webhook settings. Only the defaults differ.

use admission::{Glob, Mode, OnUnknown, Request, SettlePolicy};

use crate::exempt::{Exempt, Exemption};
use ::config::{Section, Selector, names};

/// The default install namespace.
pub const INSTALL_NAMESPACE: &str = "durward-system";

/// The key of [`CommonConfig::install_namespace`].
pub const INSTALL_NAMESPACE_KEY: &str = "installNamespace";

const INSTALL_NAMESPACES: &str = "namespace: lower-case letters, digits and - (63 at most, a letter or digit at both ends), or \"\" where Durward runs in none";

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
    /// The answer for Unknown.
    pub when_unknown: OnUnknown,
    /// The policy of the API server while Durward does not answer.
    pub failure_policy: FailurePolicy,
    /// The timeout of the API server.
    pub timeout_seconds: u8,
}

/// The keys that every guard has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommonConfig {
    /// `mode`, `whenUnknown` and `controllers`.
    pub settle_policy: SettlePolicy,
    /// `exempt`.
    pub exempt: Exempt,
    /// `webhook.failurePolicy`.
    pub failure_policy: FailurePolicy,
    /// `webhook.timeoutSeconds`.
    pub timeout_seconds: u8,
    /// `webhook.reviewVersions`.
    pub review_versions: Vec<String>,
    /// `webhook.namespaceSelector`, besides the selection of the guard itself.
    pub namespace_selector: Selector,
    /// `installNamespace`: exempt by name, so that Durward can be installed again while it is down.
    pub install_namespace: String,
}

impl CommonConfig {
    /// Returns the key that exempts a request about this namespace. The labels of the namespace can exempt it too.
    pub fn exempt_by(&self, request: &Request<'_>, namespace: &str) -> Option<&'static str> {
        match self.exempt.of(request) {
            Exemption::By(part) => Some(part),
            _ if namespace == self.install_namespace => Some("installNamespace"),
            Exemption::DependsOnNamespace | Exemption::No => None,
        }
    }
}

const ON_UNKNOWN: [(&str, OnUnknown); 2] = [("deny", OnUnknown::Deny), ("allow", OnUnknown::Allow)];

impl CommonConfig {
    /// Reads the keys.
    pub fn read(section: &mut Section<'_>, defaults: Defaults) -> Self {
        let words = [("enforce", Mode::Enforce), ("audit", Mode::Audit)];
        let mode = section.choice(
            "mode",
            "Whether a denial binds, or is only told and counted (audit).",
            &words,
            Mode::Enforce,
        );
        let (users, controllers) = when_unknown(section, defaults.when_unknown);
        let named = section.texts(
            "controllers",
            "user name",
            "Users treated as controllers beside those of Kubernetes itself; * is any run of characters.",
            &[],
        );
        let exempt = Exempt::read(section);
        let install_namespace = section.name(
            INSTALL_NAMESPACE_KEY,
            INSTALL_NAMESPACES,
            "Durward's own namespace, left alone by name; the one of the Service by which it is reached.",
            INSTALL_NAMESPACE,
            |text| if text.is_empty() { Ok(()) } else { names::namespace(text) },
        );
        let settle_policy = SettlePolicy {
            mode,
            users,
            controllers,
            more_controllers: named.into_iter().map(Glob::new).collect(),
        };
        section.section("webhook", "How the guard is registered.", |s| {
            let policies = [("Fail", FailurePolicy::Fail), ("Ignore", FailurePolicy::Ignore)];
            let failure_policy = s.choice(
                "failurePolicy",
                "What happens to a request while no Durward answers.",
                &policies,
                defaults.failure_policy,
            );
            let seconds = s.number(
                "timeoutSeconds",
                "How long the API server waits for an answer.",
                u64::from(defaults.timeout_seconds),
                (1, 30),
            );
            let versions = s.choices(
                "reviewVersions",
                "Which versions of AdmissionReview are taken, best first.",
                &[("v1", "v1"), ("v1beta1", "v1beta1")],
                &["v1"],
            );
            if versions.is_empty() {
                s.problem("reviewVersions", "is empty", Some("allowed: v1, v1beta1".to_owned()));
            }
            let namespace_selector = s.selector(
                "namespaceSelector",
                "Only objects in namespaces with these labels are asked about.",
            );
            Self {
                settle_policy,
                exempt,
                failure_policy,
                timeout_seconds: u8::try_from(seconds).unwrap_or(defaults.timeout_seconds),
                review_versions: versions.into_iter().map(str::to_owned).collect(),
                namespace_selector: namespace_selector.unwrap_or_default(),
                install_namespace,
            }
        })
    }
}

/// `whenUnknown: deny`, or `whenUnknown: {people: deny, controllers: allow}`.
fn when_unknown(section: &mut Section<'_>, default: OnUnknown) -> (OnUnknown, OnUnknown) {
    const DOC: &str = "What becomes of a request that could not be checked; or {people: …, controllers: …}.";
    section.choice_or_section("whenUnknown", DOC, &ON_UNKNOWN, default, |s, both| {
        (
            s.choice("people", "For people.", &ON_UNKNOWN, both),
            s.choice("controllers", "For controllers.", &ON_UNKNOWN, both),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::config::{parse, read};

    const DEFAULTS: Defaults =
        Defaults { when_unknown: OnUnknown::Deny, failure_policy: FailurePolicy::Fail, timeout_seconds: 10 };

    fn common_config(yaml: &str) -> (CommonConfig, Vec<String>) {
        let root = parse("-", yaml).unwrap();
        let (common_config, _, problems) = read("-", root.as_ref(), |s| CommonConfig::read(s, DEFAULTS));
        (common_config, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn uses_the_defaults_of_the_kind() {
        let (common_config, problems) = common_config("{}");
        assert_eq!(problems, [""; 0]);
        assert_eq!(common_config.settle_policy, SettlePolicy::deny_unknown());
        assert_eq!((common_config.failure_policy, common_config.timeout_seconds), (FailurePolicy::Fail, 10));
        assert_eq!(
            (common_config.review_versions, common_config.install_namespace.as_str()),
            (vec!["v1".to_owned()], "durward-system")
        );
    }

    #[test]
    fn reads_when_unknown_as_one_value_or_two() {
        assert_eq!(common_config("whenUnknown: allow").0.settle_policy.users, OnUnknown::Allow);
        let (two, problems) = common_config("whenUnknown: {controllers: allow}");
        assert_eq!(
            (two.settle_policy.users, two.settle_policy.controllers),
            (OnUnknown::Deny, OnUnknown::Allow)
        );
        assert_eq!(problems, [""; 0]);
        assert!(common_config("whenUnknown: {peple: allow}").1[0].contains("did you mean people?"));
        assert!(common_config("whenUnknown: maybe").1[0].contains("allowed: deny, allow"));
    }

    #[test]
    fn the_schema_has_both_forms_of_when_unknown() {
        let ((), keys, _) = read("-", None, |s| drop(CommonConfig::read(s, DEFAULTS)));
        let schema = ::config::Shape::Section(keys).schema();
        let forms = &schema["properties"]["whenUnknown"]["anyOf"];
        assert_eq!(forms[0]["enum"][0], "deny");
        assert!(forms[1]["properties"]["people"].is_object());
    }

    #[test]
    fn rejects_an_invalid_install_namespace() {
        assert_eq!(common_config("installNamespace: guards").0.install_namespace, "guards");
        assert_eq!(
            common_config("installNamespace: \"\""),
            (CommonConfig { install_namespace: String::new(), ..common_config("{}").0 }, vec![])
        );
        let problems = common_config("mode: audit\ninstallNamespace: Bad Ns").1;
        assert!(
            problems[0].starts_with("-:2:19: installNamespace: \"Bad Ns\": is no name of a namespace\n    allowed: a namespace: lower-case"),
            "{problems:?}"
        );
    }

    #[test]
    fn rejects_webhook_settings_that_the_api_server_rejects() {
        assert!(common_config("webhook: {timeoutSeconds: 31}").1[0].contains("a whole number from 1 to 30"));
        assert!(common_config("webhook: {reviewVersions: [v2]}").1[0].contains("allowed: v1, v1beta1"));
    }
}
