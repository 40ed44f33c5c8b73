//! Webhook configurations from the guards' entries: at most one mutating and one validating, with the same address. Native policies and
//! their bindings.

use guards::NativePolicy;
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::metadata::metadata;
use crate::file::{File, Manage, NAME};
use crate::registration::api_servers::GuardedServer;
use crate::registration::entries::entries;
use crate::registration::names::{LABEL, WEBHOOK_TYPES, kind};

/// Returns the configurations and native policies that the guards need. `bundle` is the CA in PEM. If Durward writes the entries, they are
/// empty, so that applying them again changes nothing. Durward then writes the policies too, but no bindings.
pub(super) fn objects(api_server: &GuardedServer<'_>, file: &File, bundle: Option<String>) -> Vec<Value> {
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
    let native = api_server.native_policies();
    if manage != Manage::All {
        objects.extend(native.iter().map(NativePolicy::policy));
    }
    objects.extend(native.iter().map(NativePolicy::binding));
    objects
}
