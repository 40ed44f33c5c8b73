//! The sentence about a violation. The command and the guard `resources` print the same.

/// Returns the sentence about a violation that denies the request. `is_error` is set if an evaluation failed.
pub fn denial(policy: &str, binding: &str, is_error: bool, message: &str) -> String {
    format!("{} by {}: {message}", denied(is_error), source(policy, binding))
}

/// Returns the sentence about a violation that only warns.
pub fn warning(policy: &str, binding: &str, message: &str) -> String {
    format!("{}: {message}", source(policy, binding))
}

/// Returns the verdict of a violation that denies the request.
pub fn denied(is_error: bool) -> &'static str {
    if is_error { "denied, since the evaluation failed," } else { "denied" }
}

/// Returns the names of a policy and a binding. Many bindings have the name of their policy.
pub fn source(policy: &str, binding: &str) -> String {
    if binding.is_empty() || binding == policy {
        format!("policy \"{policy}\"")
    } else {
        format!("policy \"{policy}\", binding \"{binding}\"")
    }
}
