//! The entries that a configuration file needs in each API server that calls its guards.

use cluster::live::{Access, Fault};
use config::Problem;
use console::exit::Stop;
use guards::resources::PolicyRules;
use guards::{NativePolicy, WebhookType};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhook;
use serde_json::{Value, json};

use super::api::{ApiClient, Configuration};
use super::api_servers::{self, GuardedServer};
use super::entries::entries;
use super::names::WEBHOOK_TYPES;
use crate::args::ClusterArgs;
use crate::clients::connect;
use crate::clients::control_planes::ControlPlanes;
use crate::clients::home::manifests_command;
use crate::file::{File, Manage};
use cluster::ApiError;

/// The webhook configurations that a file needs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Needs {
    /// `server.webhookConfiguration.manage`
    pub(crate) manage: Manage,
    /// Durward's namespace.
    pub(crate) namespace: String,
    /// The API servers that call the guards.
    pub(crate) targets: Vec<RegistrationTarget>,
    /// The command that prints the manifests, for messages.
    pub(crate) manifests: String,
}

/// An API server that calls guards.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RegistrationTarget {
    /// Whether it is a Karmada control plane.
    pub(crate) is_karmada: bool,
    /// How Durward reaches it.
    pub(crate) access: Access,
    /// The entries of its configurations, in the order of [`WEBHOOK_TYPES`].
    pub(crate) entries: [Vec<Value>; 2],
    /// The policies that its guards evaluate.
    pub(crate) policies: Vec<PolicyRules>,
    /// The native policies that its guards need.
    pub(crate) native: Vec<NativePolicy>,
    /// The purposes that its guards can have.
    pub(crate) purposes: Vec<&'static str>,
    /// Whether the file has guards for two API servers.
    pub(crate) is_one_of_two: bool,
}

impl Needs {
    /// Connects to the API servers that call the guards, and returns what they need.
    pub(crate) async fn connect(file: &File, flags: &ClusterArgs) -> Result<(ControlPlanes, Self), Stop> {
        let control_planes = connect::open(flags, file).await?;
        let needs = Self::of(file, &control_planes)
            .ok_or_else(|| Stop::fault(Problem::new("no API server is configured")))?;
        Ok((control_planes, needs))
    }

    /// Returns the needs of a file, or `None` if no API server is connected, for example with a snapshot.
    pub(crate) fn of(file: &File, control_planes: &ControlPlanes) -> Option<Self> {
        let mut targets: Vec<RegistrationTarget> = Vec::new();
        let api_servers = api_servers::all(file);
        let is_one_of_two = api_servers.len() > 1;
        for api_server in &api_servers {
            let Some(guard) = api_server.guards.first() else { continue };
            let access = control_planes.access_of(guard)?;
            let entries = WEBHOOK_TYPES.map(|webhook_type| full_entries(api_server, file, webhook_type));
            let (policies, native) = (api_server.policies(), api_server.native_policies());
            let purposes = api_server.purposes();
            if let Some(target) = targets.iter_mut().find(|target| target.access == access) {
                target.is_karmada |= api_server.is_karmada();
                target.policies.extend(policies);
                target.native.extend(native);
                target.purposes.extend(purposes);
                for (all, more) in target.entries.iter_mut().zip(entries) {
                    all.extend(more);
                }
            } else {
                let is_karmada = api_server.is_karmada();
                targets.push(RegistrationTarget {
                    is_karmada,
                    access,
                    entries,
                    policies,
                    native,
                    purposes,
                    is_one_of_two,
                });
            }
        }
        let namespace = file.namespace.clone();
        Some(Self {
            manage: file.server.manage_webhooks,
            namespace,
            targets,
            manifests: manifests_command(file),
        })
    }
}

impl RegistrationTarget {
    /// Returns the label of metrics, which is also the value of `--target`.
    pub(crate) fn label(&self) -> &'static str {
        if self.is_karmada { "karmada" } else { "cluster" }
    }

    /// Returns whether a guard needs a kind of webhook configurations.
    pub(crate) fn needs(&self, webhook_type: WebhookType) -> bool {
        let mut entries = WEBHOOK_TYPES.into_iter().zip(&self.entries);
        entries.any(|(one, entries)| one == webhook_type && !entries.is_empty())
    }

    /// Reads a webhook configuration. Durward has the permission only while a guard needs the kind. If no guard needs the kind and
    /// Durward isn't allowed to read it, the configuration counts as absent.
    pub(crate) async fn configuration(
        &self,
        client: &ApiClient,
        webhook_type: WebhookType,
    ) -> Result<Option<Configuration>, Fault> {
        match client.configuration(webhook_type).await {
            Err(Fault { kind: ApiError::Forbidden, .. }) if !self.needs(webhook_type) => Ok(None),
            found => found,
        }
    }

    /// Returns the cluster where Durward runs, for commands in messages.
    pub(crate) fn home(&self) -> Self {
        Self { is_karmada: false, ..self.clone() }
    }

    /// Returns the beginning of a kubectl command for this API server.
    pub(crate) fn kubectl(&self) -> &'static str {
        if self.is_karmada { "kubectl --kubeconfig karmada-admin.config" } else { "kubectl" }
    }

    /// Returns the command that applies a part of the manifests that another command prints.
    pub(crate) fn apply(&self, part: &str, manifests: &str) -> String {
        self.write("apply", part, manifests)
    }

    /// Returns the command that replaces objects of a part. An apply keeps the fields that another client added.
    pub(crate) fn replace(&self, part: &str, manifests: &str) -> String {
        self.write("replace", part, manifests)
    }

    fn write(&self, verb: &str, part: &str, manifests: &str) -> String {
        let target = if self.is_one_of_two { format!(" --target {}", self.label()) } else { String::new() };
        format!("{manifests}{target} --only {part} | {} {verb} -f -", self.kubectl())
    }
}

/// Returns the entries of one kind without caBundle. All fields are set, also to the API server's defaults: otherwise an
/// object selector that another client added would not be a difference.
fn full_entries(api_server: &GuardedServer<'_>, file: &File, webhook_type: WebhookType) -> Vec<Value> {
    let address = api_server.reach(&file.server.webhook_address);
    entries(api_server, &address, webhook_type).iter().filter_map(full_entry).collect()
}

/// Returns an entry with all fields.
fn full_entry(entry: &MutatingWebhook) -> Option<Value> {
    let mut entry = serde_json::to_value(entry).ok()?;
    let fields = entry.as_object_mut()?;
    for (field, empty) in
        [("namespaceSelector", json!({})), ("objectSelector", json!({})), ("matchConditions", json!([]))]
    {
        fields.entry(field).or_insert(empty);
    }
    Some(entry)
}

#[cfg(test)]
impl RegistrationTarget {
    /// Returns the API server of Durward's own cluster, without guards.
    pub(crate) fn without_guards() -> Self {
        Self {
            is_karmada: false,
            access: Access::default(),
            entries: [Vec::new(), Vec::new()],
            policies: Vec::new(),
            native: Vec::new(),
            purposes: Vec::new(),
            is_one_of_two: false,
        }
    }
}
