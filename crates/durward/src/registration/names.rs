//! Names of the objects that Durward registers itself with.

use guards::WebhookType;

/// The kinds of webhook configurations.
pub(crate) const WEBHOOK_TYPES: [WebhookType; 2] = [WebhookType::Validating, WebhookType::Mutating];

/// Label of the webhook configurations that Durward writes.
pub(crate) const LABEL: (&str, &str) = ("durward.dev/webhooks", "managed");

/// The name of the Lease, in Durward's namespace.
pub(crate) const LEASE: &str = "durward-webhooks";

/// Returns the kind as kubectl prints it.
pub(crate) fn kind(webhook_type: WebhookType) -> &'static str {
    match webhook_type {
        WebhookType::Mutating => "MutatingWebhookConfiguration",
        WebhookType::Validating => "ValidatingWebhookConfiguration",
    }
}

/// Returns the plural name of the kind.
pub(crate) fn plural(webhook_type: WebhookType) -> String {
    format!("{}s", kind(webhook_type).to_lowercase())
}
