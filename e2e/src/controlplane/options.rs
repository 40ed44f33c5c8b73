//! What a test may want to be different about its control plane.

use std::net::IpAddr;
use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

use crate::certificates;

/// Enough for Deployments to become pods, for what owns them to take them along, and for namespaces to end.
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

/// What controller-manager calls all controllers that it runs by itself.
const EVERY_CONTROLLER: &str = "*";

/// A control plane's options. Two tests that ask for equal options, the name included, share one control
/// plane: give a name of its own to a test that changes what is not in a namespace (webhook configurations
/// above all).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Options {
    name: String,
    controllers: Vec<String>,
    aggregator_routing: bool,
    bind: IpAddr,
    flags: Vec<String>,
    controller_flags: Vec<String>,
    disabled: Vec<String>,
    /// Plugin and its configuration, as JSON.
    plugins: Vec<(String, String)>,
}

impl Options {
    /// An API server alone on the loopback address, with upstream's defaults. The name goes into log and
    /// folder names.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            controllers: Vec::new(),
            aggregator_routing: false,
            bind: [127, 0, 0, 1].into(),
            flags: Vec::new(),
            controller_flags: Vec::new(),
            disabled: Vec::new(),
            plugins: Vec::new(),
        }
    }

    /// With a controller-manager: Deployments become pods, namespaces have a service account and can be
    /// deleted, and the ready-made cluster roles `view`, `edit` and `admin`, which are put together from
    /// others, allow something.
    #[must_use]
    pub fn with_controllers(self) -> Self {
        self.with_these_controllers(CONTROLLERS)
    }

    /// With a controller-manager that runs these controllers and no others.
    #[must_use]
    pub fn with_these_controllers(mut self, names: &[&str]) -> Self {
        self.controllers = names.iter().map(|&name| name.to_owned()).collect();
        self
    }

    /// With all controllers that a cluster has by default.
    #[must_use]
    pub fn with_every_controller(self) -> Self {
        self.with_these_controllers(&[EVERY_CONTROLLER])
    }

    /// Without this admission plugin, which is on by default.
    #[must_use]
    pub fn without_plugin(mut self, name: &str) -> Self {
        self.disabled.push(name.to_owned());
        self
    }

    /// Webhooks behind a Service are called at the addresses of its `EndpointSlices`. Without it they are
    /// called at the `ClusterIP`, which leads nowhere where no proxy runs.
    #[must_use]
    pub fn with_aggregator_routing(mut self) -> Self {
        self.aggregator_routing = true;
        self
    }

    /// Where the API server listens, 127.0.0.1 if not said; `0.0.0.0` for all addresses. Tests reach it at
    /// 127.0.0.1 in both cases, and on a node at the node's address.
    #[must_use]
    pub fn bind(mut self, address: impl Into<IpAddr>) -> Self {
        self.bind = address.into();
        self
    }

    /// One more flag for the API server, `--name=value`.
    #[must_use]
    pub fn flag(mut self, flag: impl Into<String>) -> Self {
        self.flags.push(flag.into());
        self
    }

    /// One more flag for the controller-manager, `--name=value`.
    #[must_use]
    pub fn controller_flag(mut self, flag: impl Into<String>) -> Self {
        self.controller_flags.push(flag.into());
        self
    }

    /// The configuration of an admission plugin, in an `AdmissionConfiguration` file of the API server.
    #[must_use]
    pub fn plugin(mut self, name: &str, configuration: &Value) -> Self {
        self.plugins.push((name.to_owned(), configuration.to_string()));
        self
    }

    /// The Pod Security level that namespaces without a label get.
    #[must_use]
    pub fn with_pod_security_default(self, level: &str) -> Self {
        let configuration = json!({
            "apiVersion": "pod-security.admission.config.k8s.io/v1",
            "kind": "PodSecurityConfiguration",
            "defaults": {"enforce": level, "enforce-version": "latest"},
        });
        self.plugin("PodSecurity", &configuration)
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether each namespace gets a service account sooner or later.
    pub(super) fn makes_accounts(&self) -> bool {
        self.controllers.iter().any(|name| name == "serviceaccount" || name == EVERY_CONTROLLER)
    }

    /// The controllers to run, as controller-manager wants them; none if it is not wanted.
    pub(super) fn controllers(&self) -> Option<String> {
        (!self.controllers.is_empty()).then(|| self.controllers.join(","))
    }

    /// The controller-manager's flags that follow.
    pub(super) fn controller_flags(&self) -> &[String] {
        &self.controller_flags
    }

    /// The API server's flags that follow. Writes the files that they name.
    pub(super) fn server_flags(&self, folder: &Path) -> Result<Vec<String>> {
        let mut flags = vec![format!("--bind-address={}", self.bind)];
        if self.aggregator_routing {
            flags.push("--enable-aggregator-routing=true".to_owned());
        }
        let mut disabled = self.disabled.clone();
        if !self.makes_accounts() {
            // Nobody would make the service account that this plugin insists on.
            disabled.push("ServiceAccount".to_owned());
        }
        if !disabled.is_empty() {
            flags.push(format!("--disable-admission-plugins={}", disabled.join(",")));
        }
        if !self.plugins.is_empty() {
            let configuration = self.admission_configuration()?;
            let path = certificates::write(folder, "admission.yaml", &configuration.to_string())?;
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
