//! The webhook entries of the guards of an API server, with the address of Durward.

use guards::WebhookType;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, ServiceReference, WebhookClientConfig};

use super::api_servers::GuardedServer;
use crate::file::WebhookAddress;

/// Returns the entries of one kind, without caBundle.
pub(crate) fn entries(
    api_server: &GuardedServer<'_>,
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
