//! Names of the objects that Durward registers itself with.

use guards::WebhookType;

/// The kinds of webhook configurations.
pub(crate) const WEBHOOK_TYPES: [WebhookType; 2] = [WebhookType::Validating, WebhookType::Mutating];

/// The kind of native policies.
pub(crate) const POLICY: &str = "ValidatingAdmissionPolicy";

/// The kind of their bindings.
pub(crate) const BINDING: &str = "ValidatingAdmissionPolicyBinding";

/// Label of the webhook configurations that Durward writes.
pub(crate) const LABEL: (&str, &str) = ("durward.dev/webhooks", "managed");

/// Returns the kind as kubectl prints it.
pub(crate) fn kind(webhook_type: WebhookType) -> &'static str {
    match webhook_type {
        WebhookType::Mutating => "MutatingWebhookConfiguration",
        WebhookType::Validating => "ValidatingWebhookConfiguration",
    }
}

/// Returns the plural name of a kind.
pub(crate) fn plural(kind: &str) -> String {
    let kind = kind.to_lowercase();
    kind.strip_suffix('y').map_or_else(|| format!("{kind}s"), |stem| format!("{stem}ies"))
}
