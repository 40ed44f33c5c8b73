//! The guard `resources`: policies of files, on a real API server.
//!
//! The cases share one control plane, one case at a time: native policies and CRDs of one case would judge objects of another.

mod bad_input;
mod cases;
mod entries;
pub(super) mod example;
pub(super) mod generated;
mod generator;
mod outage;
mod parity;
mod reload;
mod requests;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use e2e::context::write;
use e2e::prelude::*;

use super::policies::EXAMPLE;

/// Returns the cluster of these cases, and waits until no other case uses it.
fn exclusive(context: &'static TestContext) -> Result<MutexGuard<'static, Arc<Cluster>>> {
    static CLUSTER: Lazy<Mutex<Arc<Cluster>>> = Lazy::new();
    let cluster = CLUSTER.get(|| context.cluster(&Options::named("resources")).map(Mutex::new))?;
    Ok(cluster.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Returns the `guards` section for these paths.
pub(super) fn guards(paths: &[String], more: &str) -> String {
    format!("  resources: {{policies: {}{more}}}", json!(paths))
}

/// Returns a policy that judges objects of a resource by an expression, with a binding that has this action.
fn policy(name: &str, resource: &str, action: &str, expression: &str, message: &str) -> String {
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": [resource],
            }]},
            "validations": [{"expression": expression, "message": message}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name}, "spec": {"policyName": name, "validationActions": [action]},
    });
    format!("{policy}\n---\n{binding}\n")
}

/// Writes a file of policies and returns its path.
fn file(directory: &Path, name: &str, text: &str) -> Result<String> {
    Ok(write(directory, name, text)?.display().to_string())
}

/// Returns the path of a file of the example.
pub(super) fn example(name: &str) -> String {
    format!("{EXAMPLE}/{name}")
}
