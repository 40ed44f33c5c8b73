//! Policies and bindings as documents have them, with the API server's defaults.

use super::selector::LabelSelector;
pub use crate::facts::ParamKind;

/// A `ValidatingAdmissionPolicy`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// `metadata.name`
    pub name: String,
    /// `spec.failurePolicy`
    pub failure_policy: String,
    /// `spec.paramKind`
    pub param_kind: Option<ParamKind>,
    /// `spec.matchConstraints`
    pub match_constraints: Option<MatchResources>,
    /// `spec.matchConditions`
    pub match_conditions: Vec<Named>,
    /// `spec.variables`
    pub variables: Vec<Named>,
    /// `spec.validations`
    pub validations: Vec<Validation>,
    /// `spec.auditAnnotations`: key and value expression.
    pub audit_annotations: Vec<Named>,
}

/// A name with an expression.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// The name or key.
    pub name: String,
    /// The expression.
    pub expression: String,
}

/// A validation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validation {
    /// The expression.
    pub expression: String,
    /// The message of a denial, or empty.
    pub message: String,
    /// The expression of the message, or empty.
    pub message_expression: String,
    /// The reason of a denial.
    pub reason: Option<String>,
}

/// The requests that a policy or binding matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MatchResources {
    /// `matchPolicy`
    pub match_policy: String,
    /// `namespaceSelector`
    pub namespace_selector: LabelSelector,
    /// `objectSelector`
    pub object_selector: LabelSelector,
    /// `resourceRules`
    pub resource_rules: Vec<ResourceRule>,
    /// `excludeResourceRules`
    pub exclude_resource_rules: Vec<ResourceRule>,
}

/// A rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceRule {
    /// Names of objects; empty for all.
    pub resource_names: Vec<String>,
    /// Operations.
    pub operations: Vec<String>,
    /// API groups.
    pub api_groups: Vec<String>,
    /// API versions.
    pub api_versions: Vec<String>,
    /// Resources with subresources.
    pub resources: Vec<String>,
    /// Scope.
    pub scope: String,
}

/// A `ValidatingAdmissionPolicyBinding`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Binding {
    /// `metadata.name`
    pub name: String,
    /// `spec.policyName`
    pub policy_name: String,
    /// `spec.paramRef`
    pub param_ref: Option<ParamRef>,
    /// `spec.matchResources`
    pub match_resources: Option<MatchResources>,
    /// `spec.validationActions`
    pub validation_actions: Vec<String>,
}

/// Which parameters a binding uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParamRef {
    /// The name of the parameters, or empty.
    pub name: String,
    /// Their namespace, or empty.
    pub namespace: String,
    /// The selector of the parameters.
    pub selector: Option<LabelSelector>,
    /// `Allow` or `Deny`.
    pub parameter_not_found_action: String,
}
