//! Native policies: rules that need no facts, which the API server evaluates as `ValidatingAdmissionPolicies`.
//!
//! Each purpose has one policy and one binding with a fixed name, so that permissions name them and a purpose that ends is deleted by
//! name. The params of each policy are the `ValidatingWebhookConfiguration` of Durward. If that object is gone, a policy allows
//! everything, within seconds and also while no controller runs: `kubectl delete validatingwebhookconfiguration durward` turns all of
//! Durward off.
//!
//! Durward applies policies and never bindings, so an administrator can delete a binding for good. A policy without a binding denies
//! nothing.

use admission::Mode;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MatchResources, NamedRuleWithOperations, ParamKind, ValidatingAdmissionPolicySpec,
    Validation, Variable,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};

use crate::cel;
use crate::common::CommonConfig;
use crate::overrides::{self, Overrides};
use crate::webhook::condition;
use ::config::Selector;

/// The name of Durward's webhook configurations.
const CONFIGURATION: &str = "durward";

/// The label of the objects.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "durward");

/// The purposes of all guards. Durward deletes the policies of those that its configuration does not need.
pub const PURPOSES: [&str; 5] =
    ["etcd-pods", "etcd-namespaces", "etcd-sets", "deletion-labels", "install-namespace"];

/// Returns the purposes that a guard can have.
pub fn purposes_of(guard: &str) -> &'static [&'static str] {
    match guard {
        "etcd" => &["etcd-pods", "etcd-namespaces", "etcd-sets", "install-namespace"],
        "deletion" => &["deletion-labels", "install-namespace"],
        _ => &[],
    }
}

/// A policy with its binding.
#[derive(Debug, Clone, PartialEq)]
pub struct NativePolicy {
    /// One of [`PURPOSES`].
    pub purpose: &'static str,
    /// The policy.
    pub spec: ValidatingAdmissionPolicySpec,
    /// The mode of the guard: an audit mode warns.
    pub mode: Mode,
}

impl NativePolicy {
    /// Returns the name of the policy and of the binding of a purpose.
    pub fn name_of(purpose: &str) -> String {
        format!("{CONFIGURATION}-{purpose}")
    }

    /// Returns the name of the policy and of its binding.
    pub fn name(&self) -> String {
        Self::name_of(self.purpose)
    }

    /// Returns the policy as an object of the API.
    pub fn policy(&self) -> Value {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": self.name(), "labels": {MANAGED_BY.0: MANAGED_BY.1}},
            "spec": self.spec,
        })
    }

    /// Returns the binding as an object of the API.
    pub fn binding(&self) -> Value {
        let actions = match self.mode {
            Mode::Enforce => json!(["Deny"]),
            Mode::Audit => json!(["Warn", "Audit"]),
        };
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": self.name(), "labels": {MANAGED_BY.0: MANAGED_BY.1}},
            "spec": {
                "policyName": self.name(),
                "paramRef": {"name": CONFIGURATION, "parameterNotFoundAction": "Allow"},
                "validationActions": actions,
            },
        })
    }
}

/// The settings of a guard that hold for its policies too.
#[derive(Clone, Copy)]
pub(crate) struct PolicySettings<'c> {
    /// The name of the guard.
    pub(crate) guard: &'static str,
    pub(crate) common: &'c CommonConfig,
    pub(crate) overrides: Overrides,
    /// Whether Durward's own namespace is in this cluster, and is left out.
    pub(crate) has_home: bool,
}

/// The requests that a native policy sees, and its rules.
pub(crate) struct NativeRules {
    pub(crate) purpose: &'static str,
    pub(crate) rules: Vec<NamedRuleWithOperations>,
    /// The namespaces of the objects.
    pub(crate) namespaces: Selector,
    /// The object that has the annotations: `oldObject`, or either one if there are creations.
    pub(crate) subject: &'static str,
    pub(crate) variables: Vec<Variable>,
    pub(crate) validations: Vec<Validation>,
}

/// The object of a request, also of a creation.
pub(crate) const OBJECT: &str = "(oldObject == null ? object : oldObject)";

impl PolicySettings<'_> {
    /// Returns the policy.
    pub(crate) fn policy(&self, rules: NativeRules) -> NativePolicy {
        let resources = MatchResources {
            match_policy: Some("Equivalent".to_owned()),
            namespace_selector: Some(LabelSelector::from(rules.namespaces)),
            object_selector: Some(LabelSelector::default()),
            resource_rules: Some(rules.rules),
            ..MatchResources::default()
        };
        let params = ParamKind {
            api_version: Some("admissionregistration.k8s.io/v1".to_owned()),
            kind: Some("ValidatingWebhookConfiguration".to_owned()),
        };
        let spec = ValidatingAdmissionPolicySpec {
            failure_policy: Some("Fail".to_owned()),
            match_conditions: Some(self.conditions(rules.subject)),
            match_constraints: Some(resources),
            param_kind: Some(params),
            validations: Some(rules.validations),
            variables: Some(rules.variables).filter(|variables| !variables.is_empty()),
            ..ValidatingAdmissionPolicySpec::default()
        };
        NativePolicy { purpose: rules.purpose, spec, mode: self.common.settle_policy.mode }
    }

    /// Returns the conditions that leave out what the guard leaves out.
    fn conditions(&self, subject: &str) -> Vec<MatchCondition> {
        let Self { guard, common, overrides, has_home } = *self;
        let terminating = "request.operation == \"UPDATE\" && has(oldObject.metadata.deletionTimestamp)";
        let mut conditions = vec![
            condition("not-terminating", format!("!({terminating})")),
            condition("not-a-controller", format!("!({})", is_controller(common))),
            condition("not-exempt", format!("!({})", common.exempt.condition())),
            condition("no-break-glass", format!("!({})", overrides::is_broken(guard, subject))),
        ];
        if overrides == Overrides::Annotation {
            conditions.push(condition("no-override", format!("!({})", overrides::is_overridden(subject))));
        }
        if has_home && !common.namespace.is_empty() {
            let is_home = format!("request.?namespace.orValue(\"\") == {}", cel::string(&common.namespace));
            conditions.push(condition("not-the-install-namespace", format!("!({is_home})")));
        }
        conditions
    }

    /// Returns the end of a message: how to carry out the change anyway. `resource` is the object for kubectl, `subject` its expression.
    pub(crate) fn way_out(&self, resource: &str, subject: &str) -> String {
        let (key, needed) = match self.overrides {
            Overrides::Annotation => (overrides::DELETE_ANYWAY, String::new()),
            Overrides::Permission => {
                (overrides::BREAK_GLASS, format!(" ({})", overrides::needs_verb(self.guard)))
            }
        };
        let start = cel::string(&format!(". Override{needed}: kubectl annotate "));
        let is_namespaced = format!("has({subject}.metadata.namespace)");
        let namespace = format!("({is_namespaced} ? \"-n \" + {subject}.metadata.namespace + \" \" : \"\")");
        let object = cel::string(&format!("{resource} "));
        let name = format!("{subject}.metadata.?name.orValue(\"NAME\")");
        let annotation = cel::string(&format!(" {key}="));
        format!(
            "{start} + {namespace} + {object} + {name} + {annotation} + {name} + \", repeat the request, then remove the annotation\""
        )
    }
}

/// Returns a CEL condition that is true if the caller is a controller.
fn is_controller(common: &CommonConfig) -> String {
    let name = "request.userInfo.username";
    let named = common.settle_policy.more_controllers.iter().map(|glob| cel::matches_glob(glob, name));
    let of_kubernetes = [
        format!("{name}.startsWith(\"system:serviceaccount:kube-system:\")"),
        format!("{name} in [\"system:kube-controller-manager\", \"system:kube-scheduler\"]"),
    ];
    cel::any(of_kubernetes.into_iter().chain(named))
}

/// Returns a rule for requests. `resources` can have subresources.
pub(crate) fn rule(
    operations: &[&str],
    group: &str,
    resources: &[&str],
    scope: &str,
) -> NamedRuleWithOperations {
    let list = |texts: &[&str]| Some(texts.iter().map(|&text| text.to_owned()).collect::<Vec<String>>());
    NamedRuleWithOperations {
        operations: list(operations),
        api_groups: list(&[group]),
        api_versions: list(&["v1"]),
        resources: list(resources),
        resource_names: None,
        scope: Some(scope.to_owned()),
    }
}

/// Returns a variable.
pub(crate) fn variable(name: &str, expression: String) -> Variable {
    Variable { name: name.to_owned(), expression }
}

/// Returns a rule that denies a request unless the expression is true. `text` is the message if the expression for it fails. An API
/// server accepts no line break in either.
pub(crate) fn validation(expression: String, text: &str, message: String) -> Validation {
    Validation {
        expression,
        message: Some(text.to_owned()),
        message_expression: Some(message),
        reason: Some("Forbidden".to_owned()),
    }
}

#[cfg(test)]
pub(crate) mod evaluate;
