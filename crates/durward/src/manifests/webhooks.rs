//! Webhook configurations out of the guards' entries: one mutating and one validating at most, one address for all.

use admission::{
    FailurePolicy, LabelSelector, MatchCondition, Reinvocation, Rule, SideEffects, WebhookEntry, WebhookType,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use config::Problem;
use serde::Serialize;

use super::planes::Plane;
use super::{Metadata, NAME, tree};
use crate::documents::OrderedValue;
use crate::file::Reach;

/// Behind the name of every entry; webhook names must be DNS names of three parts.
const DOMAIN: &str = "durward.dev";

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Configuration {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata,
    webhooks: Vec<Webhook>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Webhook {
    name: String,
    client_config: ClientConfig,
    rules: Vec<Rule>,
    #[serde(skip_serializing_if = "LabelSelector::is_empty")]
    namespace_selector: LabelSelector,
    #[serde(skip_serializing_if = "LabelSelector::is_empty")]
    object_selector: LabelSelector,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    match_conditions: Vec<MatchCondition>,
    // The same object in another version is the same question.
    match_policy: &'static str,
    failure_policy: FailurePolicy,
    side_effects: SideEffects,
    timeout_seconds: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    reinvocation_policy: Option<Reinvocation>,
    admission_review_versions: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ClientConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<ServiceReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ca_bundle: Option<String>,
}

#[derive(Debug, Serialize)]
struct ServiceReference {
    name: String,
    namespace: String,
    path: String,
    port: u16,
}

/// The configurations; one that would be empty is left out. `bundle`: the authority in PEM.
pub(super) fn objects(
    plane: &Plane<'_>,
    reach: &Reach,
    bundle: Option<String>,
) -> Result<Vec<OrderedValue>, Problem> {
    let bundle = bundle.map(|pem| STANDARD.encode(pem));
    let mut objects = Vec::new();
    for (webhook_type, kind) in [
        (WebhookType::Mutating, "MutatingWebhookConfiguration"),
        (WebhookType::Validating, "ValidatingWebhookConfiguration"),
    ] {
        let mut webhooks = Vec::new();
        for guard in &plane.guards {
            let path = format!("/{}", guard.kind.name());
            for entry in guard.configured.webhooks() {
                if entry.webhook_type == webhook_type {
                    let client_config = client_config(reach, &path, bundle.as_ref());
                    webhooks.push(webhook(entry, client_config));
                }
            }
        }
        if !webhooks.is_empty() {
            let api_version = "admissionregistration.k8s.io/v1";
            objects.push(tree(&Configuration {
                api_version,
                kind,
                metadata: Metadata::named(NAME, None),
                webhooks,
            })?);
        }
    }
    Ok(objects)
}

fn webhook(entry: WebhookEntry, client_config: ClientConfig) -> Webhook {
    Webhook {
        name: format!("{}.{DOMAIN}", entry.name),
        client_config,
        rules: entry.rules,
        namespace_selector: entry.namespace_selector,
        object_selector: entry.object_selector,
        match_conditions: entry.match_conditions,
        match_policy: "Equivalent",
        failure_policy: entry.failure_policy,
        side_effects: entry.side_effects,
        timeout_seconds: entry.timeout_seconds,
        reinvocation_policy: (entry.webhook_type == WebhookType::Mutating).then_some(entry.reinvocation),
        admission_review_versions: entry.review_versions,
    }
}

fn client_config(reach: &Reach, path: &str, bundle: Option<&String>) -> ClientConfig {
    let ca_bundle = bundle.cloned();
    match reach {
        Reach::Service { name, namespace, port } => {
            let (name, namespace, path) = (name.clone(), namespace.clone(), path.to_owned());
            ClientConfig {
                service: Some(ServiceReference { name, namespace, path, port: *port }),
                url: None,
                ca_bundle,
            }
        }
        Reach::Url(url) => ClientConfig { service: None, url: Some(format!("{url}{path}")), ca_bundle },
    }
}
