//! Webhook configurations from the guards' entries: at most one mutating and one validating, with the same address.

use guards::WebhookType;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, ServiceReference, WebhookClientConfig};
use serde_json::{Value, json};

use super::api_servers::ApiServer;
use super::{NAME, metadata};
use crate::file::WebhookAddress;

/// Returns the configurations that have entries. `bundle` is the CA in PEM.
pub(super) fn objects(
    api_server: &ApiServer<'_>,
    reach: &WebhookAddress,
    bundle: Option<String>,
) -> Vec<Value> {
    let bundle = bundle.map(|pem| ByteString(pem.into_bytes()));
    let mut objects = Vec::new();
    for (webhook_type, kind) in [
        (WebhookType::Mutating, "MutatingWebhookConfiguration"),
        (WebhookType::Validating, "ValidatingWebhookConfiguration"),
    ] {
        let mut webhooks: Vec<MutatingWebhook> = Vec::new();
        for guard in &api_server.guards {
            let path = format!("/{}", guard.kind.name());
            let entries = guard.configured.webhooks().into_iter();
            let entries = entries.filter(|entry| entry.webhook_type == webhook_type);
            webhooks
                .extend(entries.map(|entry| entry.into_webhook(client_config(reach, &path, bundle.clone()))));
        }
        if !webhooks.is_empty() {
            objects.push(json!({
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": kind,
                "metadata": metadata(NAME, None),
                "webhooks": webhooks,
            }));
        }
    }
    objects
}

fn client_config(reach: &WebhookAddress, path: &str, ca_bundle: Option<ByteString>) -> WebhookClientConfig {
    match reach {
        WebhookAddress::Service { name, namespace, port } => WebhookClientConfig {
            service: Some(ServiceReference {
                name: name.clone(),
                namespace: namespace.clone(),
                path: Some(path.to_owned()),
                port: Some((*port).into()),
            }),
            ca_bundle,
            url: None,
        },
        WebhookAddress::Url(url) => {
            WebhookClientConfig { url: Some(format!("{url}{path}")), ca_bundle, service: None }
        }
    }
}
