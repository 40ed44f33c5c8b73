//! The options of a control plane.

use std::net::IpAddr;
use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

use crate::binaries::Binary;
use crate::certificates;

/// The controllers that make pods of Deployments, delete dependents, and finalize namespaces.
const CONTROLLERS: &[&str] = &[
    "namespace",
    "garbagecollector",
    "serviceaccount",
    "serviceaccount-token",
    "clusterrole-aggregation",
    "deployment",
    "replicaset",
    "statefulset",
    "daemonset",
    "job",
];

/// The controller-manager's name for all controllers that are on by default.
const EVERY_CONTROLLER: &str = "*";

/// The options of a control plane. Tests with equal options, name included, share one. A test that changes cluster-wide
/// objects, such as webhook configurations, uses a name of its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Options {
    name: String,
    api_server: Binary,
    controllers: Vec<String>,
    aggregator_routing: bool,
    bind: IpAddr,
    flags: Vec<String>,
    controller_flags: Vec<String>,
    disabled: Vec<String>,
    /// Plugins with their configuration, as JSON.
    plugins: Vec<(String, String)>,
}

impl Options {
    /// Returns the options of an API server alone, with upstream's defaults. The name appears in logs and directories.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            api_server: Binary::ApiServer,
            controllers: Vec::new(),
            aggregator_routing: false,
            bind: [127, 0, 0, 1].into(),
            flags: Vec::new(),
            controller_flags: Vec::new(),
            disabled: Vec::new(),
            plugins: Vec::new(),
        }
    }

    /// Uses the API server of another Kubernetes version.
    #[must_use]
    pub fn with_api_server(mut self, program: Binary) -> Self {
        self.api_server = program;
        self
    }

    /// Adds a controller-manager: Deployments make pods, namespaces have a service account and can be deleted, and the
    /// aggregated cluster roles `view`, `edit` and `admin` have rules.
    #[must_use]
    pub fn with_controllers(self) -> Self {
        self.with_these_controllers(CONTROLLERS)
    }

    /// Adds a controller-manager with these controllers only.
    #[must_use]
    pub fn with_these_controllers(mut self, names: &[&str]) -> Self {
        self.controllers = names.iter().map(|&name| name.to_owned()).collect();
        self
    }

    /// Adds a controller-manager with all default controllers.
    #[must_use]
    pub fn with_every_controller(self) -> Self {
        self.with_these_controllers(&[EVERY_CONTROLLER])
    }

    /// Disables an admission plugin.
    #[must_use]
    pub fn without_plugin(mut self, name: &str) -> Self {
        self.disabled.push(name.to_owned());
        self
    }

    /// Makes the API server call webhooks of Services at the addresses of their `EndpointSlices`. Otherwise it calls
    /// the `ClusterIP`, which no proxy serves.
    #[must_use]
    pub fn with_aggregator_routing(mut self) -> Self {
        self.aggregator_routing = true;
        self
    }

    /// Sets the address that the API server listens on: 127.0.0.1 by default, `0.0.0.0` for all. Tests reach it at
    /// 127.0.0.1 in both cases, and on a node at the node's address.
    #[must_use]
    pub fn bind(mut self, address: impl Into<IpAddr>) -> Self {
        self.bind = address.into();
        self
    }

    /// Adds a flag of the API server, `--name=value`.
    #[must_use]
    pub fn flag(mut self, flag: impl Into<String>) -> Self {
        self.flags.push(flag.into());
        self
    }

    /// Adds a flag of the controller-manager, `--name=value`.
    #[must_use]
    pub fn controller_flag(mut self, flag: impl Into<String>) -> Self {
        self.controller_flags.push(flag.into());
        self
    }

    /// Configures an admission plugin, in an `AdmissionConfiguration` file.
    #[must_use]
    pub fn plugin(mut self, name: &str, configuration: &Value) -> Self {
        self.plugins.push((name.to_owned(), configuration.to_string()));
        self
    }

    /// Sets the Pod Security level of namespaces without a label.
    #[must_use]
    pub fn with_pod_security_default(self, level: &str) -> Self {
        let configuration = json!({
            "apiVersion": "pod-security.admission.config.k8s.io/v1",
            "kind": "PodSecurityConfiguration",
            "defaults": {"enforce": level, "enforce-version": "latest"},
        });
        self.plugin("PodSecurity", &configuration)
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the API server's program.
    pub(super) fn api_server(&self) -> Binary {
        self.api_server
    }

    /// Returns whether a controller makes service accounts.
    pub(super) fn makes_accounts(&self) -> bool {
        self.controllers.iter().any(|name| name == "serviceaccount" || name == EVERY_CONTROLLER)
    }

    /// Returns the value of `--controllers`, or none without a controller-manager.
    pub(super) fn controllers(&self) -> Option<String> {
        (!self.controllers.is_empty()).then(|| self.controllers.join(","))
    }

    /// Returns the added flags of the controller-manager.
    pub(super) fn controller_flags(&self) -> &[String] {
        &self.controller_flags
    }

    /// Returns flags of the API server and writes the files that they name.
    pub(super) fn server_flags(&self, directory: &Path) -> Result<Vec<String>> {
        let mut flags = vec![format!("--bind-address={}", self.bind)];
        if self.aggregator_routing {
            flags.push("--enable-aggregator-routing=true".to_owned());
        }
        let mut disabled = self.disabled.clone();
        if !self.makes_accounts() {
            // No controller would make the service account that this plugin requires.
            disabled.push("ServiceAccount".to_owned());
        }
        if !disabled.is_empty() {
            flags.push(format!("--disable-admission-plugins={}", disabled.join(",")));
        }
        if !self.plugins.is_empty() {
            let configuration = self.admission_configuration()?;
            let path = certificates::write(directory, "admission.yaml", &configuration.to_string())?;
            flags.push(format!("--admission-control-config-file={}", path.display()));
        }
        flags.extend(self.flags.iter().cloned());
        Ok(flags)
    }

    fn admission_configuration(&self) -> Result<Value> {
        let plugins: Vec<Value> = self
            .plugins
            .iter()
            .map(|(name, text)| {
                Ok(json!({"name": name, "configuration": serde_json::from_str::<Value>(text)?}))
            })
            .collect::<Result<_>>()?;
        Ok(json!({
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "AdmissionConfiguration",
            "plugins": plugins,
        }))
    }
}
