//! The common_config on which every guard serves: mode, stance when blind, exemptions, and how it is registered. The keys are the same
//! in each guard's section; only the defaults differ.

use admission::{Glob, Mode, OnUnknown, Request, SettlePolicy};

use crate::exempt::{Exempt, Exemption};
use crate::webhook::FailurePolicy;
use ::config::{Section, Selector, names};

/// Where Durward is installed unless the configuration says otherwise.
pub const INSTALL_NAMESPACE: &str = "durward-system";

/// The key of [`CommonConfig::install_namespace`], for whoever knows from elsewhere where Durward is installed.
pub const INSTALL_NAMESPACE_KEY: &str = "installNamespace";

const INSTALL_NAMESPACES: &str = "namespace: lower-case letters, digits and - (63 at most, a letter or digit at both ends), or \"\" where Durward runs in none";

/// What a kind of guard starts from.
#[derive(Debug, Clone, Copy)]
pub struct Defaults {
    /// What Unknown becomes.
    pub when_unknown: OnUnknown,
    /// What happens while no Durward answers.
    pub failure_policy: FailurePolicy,
    /// How long the API server waits.
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
    /// `webhook.namespaceSelector`, in addition to what the guard itself selects.
    pub namespace_selector: Selector,
    /// `installNamespace`: left alone by name, so that a Durward that is down can be put up again.
    pub install_namespace: String,
}

impl CommonConfig {
    /// Which key leaves a request about this namespace alone, as far as the request tells; the namespace's labels may do so too.
    pub fn leave_alone(&self, request: &Request<'_>, namespace: &str) -> Option<&'static str> {
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
    fn defaults_are_the_kinds() {
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
    fn when_unknown_is_one_word_or_two() {
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
    fn the_schema_knows_both_forms_of_when_unknown() {
        let ((), keys, _) = read("-", None, |s| drop(CommonConfig::read(s, DEFAULTS)));
        let schema = ::config::Shape::Section(keys).schema();
        let forms = &schema["properties"]["whenUnknown"]["anyOf"];
        assert_eq!(forms[0]["enum"][0], "deny");
        assert!(forms[1]["properties"]["people"].is_object());
    }

    #[test]
    fn the_install_namespace_is_one_that_there_can_be() {
        assert_eq!(common_config("installNamespace: guards").0.install_namespace, "guards");
        assert_eq!(
            common_config("installNamespace: \"\""),
            (CommonConfig { install_namespace: String::new(), ..common_config("{}").0 }, vec![])
        );
        let told = common_config("mode: audit\ninstallNamespace: Bad Ns").1;
        assert!(
            told[0].starts_with("-:2:19: installNamespace: \"Bad Ns\": is no name of a namespace\n    allowed: a namespace: lower-case"),
            "{told:?}"
        );
    }

    #[test]
    fn a_timeout_that_the_api_server_would_refuse_is_refused() {
        assert!(common_config("webhook: {timeoutSeconds: 31}").1[0].contains("a whole number from 1 to 30"));
        assert!(common_config("webhook: {reviewVersions: [v2]}").1[0].contains("allowed: v1, v1beta1"));
    }
}
