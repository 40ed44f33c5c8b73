//! The guard `resources`: policies of files, on a real API server.

mod example;
mod parity;
mod reload;

use e2e::context::write;
use e2e::prelude::*;

use super::policies::EXAMPLE;

/// Returns the `guards` section for these paths.
fn guards(paths: &[String], more: &str) -> String {
    format!("  resources: {{policies: {}{more}}}", json!(paths))
}

/// Writes a policy that denies objects of a resource by an expression, with its binding, and returns the text.
fn policy(name: &str, resource: &str, expression: &str, message: &str) -> String {
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
        "metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]},
    });
    format!("{policy}\n---\n{binding}\n")
}

/// Writes a file of policies and returns its path.
fn file(directory: &std::path::Path, name: &str, text: &str) -> Result<String> {
    Ok(write(directory, name, text)?.display().to_string())
}

/// Returns the path of a file of the example.
fn example(name: &str) -> String {
    format!("{EXAMPLE}/{name}")
}
