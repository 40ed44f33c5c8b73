//! Entries of webhook configurations, without the address: the installation adds that.

use admission::Request;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MutatingWebhook, RuleWithOperations, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::common::{CommonConfig, FailurePolicy};
use ::config::Selector;

/// Suffix of every entry's name. Webhook names must be DNS names of three parts.
const DOMAIN: &str = "durward.dev";

/// The kind of configuration that an entry belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WebhookType {
    /// Can change the object. Called one after another, before the validating ones.
    Mutating,
    /// Can only allow or deny. Called in parallel.
    Validating,
}

/// An entry of a webhook configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct WebhookEntry {
    /// The kind of configuration that it belongs to.
    pub webhook_type: WebhookType,
    /// The first part of the name.
    pub name: String,
    /// The guard that reviews its requests, if its name differs from the key of the section.
    pub guard: Option<&'static str>,
    /// Operations and resources.
    pub rules: Vec<RuleWithOperations>,
    /// Selects namespaces.
    pub namespace_selector: Selector,
    /// Selects objects.
    pub object_selector: Selector,
    /// The objects that the guard is limited to, in words; `None` if it protects all.
    pub limited_to: Option<String>,
    /// CEL expressions that must all be true. On a DELETE, `object` is null and `oldObject` is the object.
    pub match_conditions: Vec<MatchCondition>,
    /// Result of a request without an answer.
    pub failure_policy: FailurePolicy,
    /// Whether a review changes something outside, except in a dry run.
    pub has_side_effects: bool,
    /// How long the API server waits, 1 to 30 seconds.
    pub timeout_seconds: u8,
}

impl WebhookEntry {
    /// Creates an entry with the options that all guards have, and without selectors, conditions and side effects.
    pub(crate) fn new(
        webhook_type: WebhookType,
        name: impl Into<String>,
        rules: Vec<RuleWithOperations>,
        common: &CommonConfig,
    ) -> Self {
        Self {
            webhook_type,
            name: name.into(),
            guard: None,
            rules,
            namespace_selector: common.namespace_selector.clone(),
            object_selector: Selector::default(),
            limited_to: None,
            match_conditions: Vec::new(),
            failure_policy: common.failure_policy,
            has_side_effects: false,
            timeout_seconds: common.timeout_seconds,
        }
    }

    /// Returns whether a rule names the operation and the resource of a request, in any version.
    pub fn covers(&self, request: &Request<'_>) -> bool {
        self.rules.iter().any(|rule| rule_names(rule, request))
    }

    /// Returns the entry as the API has it. A validating entry has the same fields except `reinvocationPolicy`, which is unset.
    pub fn into_webhook(self, client_config: WebhookClientConfig) -> MutatingWebhook {
        let selector = |selector: Selector| {
            Some(LabelSelector::from(selector)).filter(|s| *s != LabelSelector::default())
        };
        // A webhook that runs later can add a container, which then lacks the changes of this one.
        let reinvocation = (self.webhook_type == WebhookType::Mutating).then(|| "IfNeeded".to_owned());
        MutatingWebhook {
            name: format!("{}.{DOMAIN}", self.name),
            client_config,
            rules: Some(self.rules),
            namespace_selector: selector(self.namespace_selector),
            object_selector: selector(self.object_selector),
            match_conditions: Some(self.match_conditions).filter(|conditions| !conditions.is_empty()),
            // A request for the same object in another version must be reviewed too.
            match_policy: Some("Equivalent".to_owned()),
            failure_policy: Some(self.failure_policy.as_str().to_owned()),
            side_effects: if self.has_side_effects { "NoneOnDryRun" } else { "None" }.to_owned(),
            timeout_seconds: Some(self.timeout_seconds.into()),
            reinvocation_policy: reinvocation,
            admission_review_versions: vec!["v1".to_owned()],
        }
    }
}

/// Returns whether a rule names the operation and the resource of a request, as `apiserver/pkg/admission/plugin/webhook/predicates/rules`
/// does. Version and scope are not compared.
pub fn rule_names(rule: &RuleWithOperations, request: &Request<'_>) -> bool {
    let fits = |pattern: &str, word: &str| pattern == "*" || pattern == word;
    let among = |list: &Option<Vec<String>>, word: &str| list.iter().flatten().any(|entry| fits(entry, word));
    let is_resource = |pattern: &String| {
        let (resource, subresource) = pattern.split_once('/').unwrap_or((pattern, ""));
        fits(resource, &request.resource.resource) && fits(subresource, &request.subresource)
    };
    among(&rule.operations, request.operation.as_str())
        && among(&rule.api_groups, &request.resource.group)
        && rule.resources.iter().flatten().any(is_resource)
}

/// Returns the rule for one operation on one resource of version v1. `scope` is `Namespaced` or `Cluster`.
pub(crate) fn rule(operation: &str, group: &str, resource: &str, scope: &str) -> RuleWithOperations {
    let list = |text: &str| Some(vec![text.to_owned()]);
    RuleWithOperations {
        operations: list(operation),
        api_groups: list(group),
        api_versions: list("v1"),
        resources: list(resource),
        scope: Some(scope.to_owned()),
    }
}

/// Returns a match condition.
pub(crate) fn condition(name: &str, expression: String) -> MatchCondition {
    MatchCondition { name: name.to_owned(), expression }
}

/// Returns the match condition that skips deletions of objects that are already being deleted.
pub(crate) fn not_terminating() -> MatchCondition {
    let expression = "oldObject == null || !has(oldObject.metadata.deletionTimestamp)".to_owned();
    condition("not-terminating", expression)
}
