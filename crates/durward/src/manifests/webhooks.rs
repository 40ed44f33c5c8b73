//! Webhook configurations from the guards' entries: at most one mutating and one validating, with the same address.

use guards::WebhookType;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, ServiceReference, WebhookClientConfig};
use serde_json::{Value, json};

use super::api_servers::ApiServer;
use super::{NAME, metadata};
use crate::file::{File, Manage, WebhookAddress};
use crate::install::webhooks::{LABEL, WEBHOOK_TYPES, kind};

/// Returns the configurations that the guards need. `bundle` is the CA in PEM. If Durward writes the entries, they are empty, so that
/// applying them again changes nothing.
pub(super) fn objects(api_server: &ApiServer<'_>, file: &File, bundle: Option<String>) -> Vec<Value> {
    let bundle = bundle.map(|pem| ByteString(pem.into_bytes()));
    let manage = file.server.manage_webhooks;
    let mut objects = Vec::new();
    // The mutating one first, as the API server calls them.
    for webhook_type in WEBHOOK_TYPES.into_iter().rev().filter(|kind| api_server.needs(*kind)) {
        let mut metadata = metadata(NAME, None);
        metadata["labels"][LABEL.0] = LABEL.1.into();
        let mut object = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind(webhook_type),
            "metadata": metadata,
        });
        if manage != Manage::All {
            let address = api_server.reach(&file.server.webhook_address);
            let mut webhooks = entries(api_server, &address, webhook_type);
            for webhook in &mut webhooks {
                webhook.client_config.ca_bundle.clone_from(&bundle);
            }
            object["webhooks"] = json!(webhooks);
        }
        objects.push(object);
    }
    objects
}

/// Returns the entries of one kind, without caBundle.
pub(crate) fn entries(
    api_server: &ApiServer<'_>,
    address: &WebhookAddress,
    webhook_type: WebhookType,
) -> Vec<MutatingWebhook> {
    let entries = api_server.entries().filter(|(_, entry)| entry.webhook_type == webhook_type);
    entries.map(|(guard, entry)| entry.into_webhook(client_config(address, &format!("/{guard}")))).collect()
}

fn client_config(address: &WebhookAddress, path: &str) -> WebhookClientConfig {
    match address {
        WebhookAddress::Service { name, namespace, port } => WebhookClientConfig {
            service: Some(ServiceReference {
                name: name.clone(),
                namespace: namespace.clone(),
                path: Some(path.to_owned()),
                port: Some((*port).into()),
            }),
            ..WebhookClientConfig::default()
        },
        WebhookAddress::Url(url) => {
            WebhookClientConfig { url: Some(format!("{url}{path}")), ..WebhookClientConfig::default() }
        }
    }
}
