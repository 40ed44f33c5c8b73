//! Native policies: rules that need no facts, which the API server evaluates as ValidatingAdmissionPolicies.
//!
//! Each purpose has one policy and one binding with a fixed name, so that permissions name them and a purpose that ends is deleted by
//! name. The params of each policy are the `ValidatingWebhookConfiguration` of Durward. If that object is gone, a policy allows
//! everything, within seconds and also while no controller runs: `kubectl delete validatingwebhookconfiguration durward` turns all of
//! Durward off.
//!
//! Durward applies policies and never bindings, so an administrator can delete a binding for good. A policy without a binding denies
//! nothing.

use admission::Mode;
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicySpec;
use serde_json::{Value, json};

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
