//! Native policies: the API server evaluates them, also while Durward is down.

mod normal_life;
pub(super) mod objects;
mod settings;
pub(super) mod turned_off;

use e2e::api::Answer;
use e2e::controlplane::User;
use e2e::prelude::*;

use super::environment::eventually_ok;
use super::objects::allow;

/// The key of the guard that protects `StatefulSets` and PVCs.
pub(super) const KEYS: [&str; 1] = ["protectStatefulSets: true"];

/// Returns the start of a denial by the policy of this purpose.
fn denial(purpose: &str) -> String {
    format!("ValidatingAdmissionPolicy 'durward-{purpose}' with binding 'durward-{purpose}' denied request: ")
}

/// Expects a denial by the policy of this purpose, with these words.
fn is_denied(answer: &Answer, purpose: &str, words: &[&str]) -> Result<()> {
    ensure!(
        answer.status == 403,
        "{}: {} {} instead of a denial by {purpose} {words:?}",
        answer.what,
        answer.status,
        answer.message()
    );
    let start = denial(purpose);
    for word in words.iter().copied().chain([start.as_str()]) {
        ensure!(answer.message().contains(word), "{} lacks {word:?}: {}", answer.what, answer.message());
    }
    Ok(())
}

/// Waits until the API server enforces the policy of this purpose: it compiles a policy a moment after it stored it. The request must be a
/// dry run.
fn await_denied(send: impl Fn() -> Result<Answer>, purpose: &str) -> Result<()> {
    eventually_ok("the policy to deny", || is_denied(&send()?, purpose, &[]))
}

/// Expects an allowed request without a warning.
fn is_allowed(answer: Answer) -> Result<()> {
    let answer = answer.succeeded()?;
    ensure!(answer.warnings.is_empty(), "{}: {:?}", answer.what, answer.warnings);
    Ok(())
}

/// Returns a user who can change these resources and nothing else. The user and the role have the same name.
fn mallory(cluster: &Cluster, name: &str) -> Result<User> {
    let rule = |group: &str, resources: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": ["*"]});
    let rules = json!([
        rule("", &["pods", "pods/status", "persistentvolumeclaims", "persistentvolumeclaims/status"]),
        rule("", &["namespaces", "namespaces/status", "namespaces/finalize"]),
        rule("apps", &["statefulsets", "statefulsets/status", "statefulsets/scale"]),
    ]);
    allow(cluster, name, &rules, name)?;
    let user = cluster.user(name, &[])?;
    user.await_permitted("/api/v1/namespaces/default/pods/x")?;
    Ok(user)
}
