//! The native policy that protects the namespace of Durward, for all guards that deny deletions.
//!
//! Its deletion removes Durward, and the garbage collector then removes the webhook configurations, which the namespace owns. So
//! the deletion turns off every guard. After `helm uninstall`, or without the webhook configuration, the policy allows it.

use k8s_openapi::api::admissionregistration::v1::NamedRuleWithOperations;

use crate::cel;
use crate::native_policy::{NativePolicy, NativeRules, PolicySettings, rule, validation};
use ::config::Selector;

/// The purpose of the policy. All guards have the same one, and an API server has it once.
pub const PURPOSE: &str = "install-namespace";

/// Returns the policy, if Durward runs in the cluster.
pub(crate) fn policy(settings: PolicySettings<'_>) -> Option<NativePolicy> {
    let name = settings.common.namespace.as_str();
    if name.is_empty() {
        return None;
    }
    let rule = NamedRuleWithOperations {
        resource_names: Some(vec![name.to_owned()]),
        ..rule(&["DELETE"], "", &["namespaces"], "Cluster")
    };
    let text = format!(
        "namespace {name} contains Durward, and without Durward no deletion is checked. \
         Next: helm uninstall durward -n {name}, or kubectl delete validatingwebhookconfiguration durward"
    );
    let message = format!("{} + {}", cel::string(&text), settings.way_out("namespace", "oldObject"));
    Some(PolicySettings { has_home: false, ..settings }.policy(NativeRules {
        purpose: PURPOSE,
        rules: vec![rule],
        namespaces: Selector::default(),
        subject: "oldObject",
        variables: Vec::new(),
        // The rule selects the only request that must be denied.
        validations: vec![validation("false".to_owned(), &text, message)],
    }))
}
