//! The native policy of the guard: a label by which it selects namespaces and CRDs isn't taken away.
//!
//! An `objectSelector` matches the old or the new object, so the selection is in the expression. The API server also stores the labels
//! that a request for `namespaces/status` or `namespaces/finalize` contains (`pkg/registry/core/namespace/strategy.go`).

use super::NAME;
use super::config::{Config, GUARD_LABEL};
use super::rules;
use super::target::{CRD_GROUP, CRD_PLURAL, DeletionKind};
use crate::cel;
use crate::install_namespace;
use crate::native_policy::{NativePolicy, NativeRules, PolicySettings, rule, validation};
use ::config::Selector;

/// Returns the policies. On Karmada, Durward's namespace is in another cluster.
pub(super) fn policies(config: &Config) -> Vec<NativePolicy> {
    let settings = PolicySettings {
        guard: NAME,
        common: &config.common_config,
        overrides: config.overrides,
        has_home: !config.is_karmada(),
    };
    let install = (!config.is_karmada()).then(|| install_namespace::policy(settings)).flatten();
    labels(config, settings).into_iter().chain(install).collect()
}

fn labels(config: &Config, settings: PolicySettings<'_>) -> Option<NativePolicy> {
    let of_crds =
        [rule(&["UPDATE"], CRD_GROUP, &[CRD_PLURAL, "customresourcedefinitions/status"], "Cluster")];
    let of_namespaces =
        [rule(&["UPDATE"], "", &["namespaces", "namespaces/status", "namespaces/finalize"], "Cluster")];
    let is_needed = |kind: &DeletionKind| !config.label_keys(kind).is_empty();
    let rules: Vec<_> = of_namespaces
        .into_iter()
        .filter(|_| is_needed(&DeletionKind::Namespace))
        .chain(of_crds.into_iter().filter(|_| is_needed(&DeletionKind::Crd)))
        .collect();
    if rules.is_empty() {
        return None;
    }
    let guarded = |object: &str| rules::is_guarded(config, object);
    let keys = config.label_keys(&DeletionKind::Namespace).into_iter().collect::<Vec<_>>().join(", ");
    let kind = "(request.resource.resource == \"namespaces\" ? \"namespace \" : \"CRD \")";
    let way_out = |resource| settings.way_out(resource, "oldObject");
    let message = format!(
        "{kind} + oldObject.metadata.name + {} + (request.resource.resource == \"namespaces\" ? {} : {})",
        cel::string(&format!(
            ": label {keys} can't be changed, because it selects what Durward protects from deletion"
        )),
        way_out("namespace"),
        way_out("crd"),
    );
    let text = format!(
        "a label by which Durward selects namespaces and CRDs, such as {GUARD_LABEL}, can't be taken away"
    );
    let expression = format!("!(({}) && !({}))", guarded("oldObject"), guarded("object"));
    Some(settings.policy(NativeRules {
        purpose: "deletion-labels",
        rules,
        namespaces: Selector::default(),
        subject: "oldObject",
        variables: Vec::new(),
        validations: vec![validation(expression, &text, message)],
    }))
}

#[cfg(test)]
mod tests;
