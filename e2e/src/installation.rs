//! An installation of Durward: certificates, configuration, permissions and webhook configurations for one or more
//! servers.
//!
//! A server is reached by a URL or behind a Service. The harness writes what an administrator writes: the certificates
//! and the `server` section. The case writes the `guards` section. Permissions and webhook configurations are the
//! output of `durward manifests`. The server uses its own service account with exactly those permissions. On a Karmada
//! control plane, which runs no pods, it is the user `durward` with a client certificate.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::certificates::{self, Ca, Leaf};
use crate::context::TestContext;
use crate::controlplane::{Cluster, Turn};
use crate::durward::{Durward, Serve};
use crate::fleet::Fleet;
use crate::ports;
use crate::service::Service;
use crate::supervisor::Output;

/// The namespace of Durward without a Service, in which `durward manifests` puts its service account.
const HOME: &str = "durward-system";

/// The service account in the output of `durward manifests`.
const ACCOUNT: &str = "durward";

/// Durward's user on a Karmada control plane and in its members.
const USER: &str = "durward";

/// The arguments of `durward manifests --only` for the permissions in a cluster.
const IN_A_CLUSTER: &[&str] = &["rbac"];
const ON_KARMADA: &[&str] = &["rbac", "members"];

/// An installation. A cluster has one at a time, because webhook configurations have fixed names. The next one waits
/// until this is dropped and has deleted them.
#[derive(Debug)]
pub struct Installation<'a> {
    context: &'a TestContext,
    cluster: &'a Cluster,
    /// The namespace of its service account, or none on a Karmada control plane.
    home: Option<String>,
    /// The webhook section of the configuration.
    webhook: Value,
    /// The TLS section of the configuration.
    tls: Value,
    directory: PathBuf,
    config: PathBuf,
    kubeconfig: PathBuf,
    ca: Ca,
    /// The names in the certificate.
    names: Vec<String>,
    /// The address that servers listen on. The port is fixed for a URL; behind a Service each server has its own.
    host: IpAddr,
    port: Option<u16>,
    registered: Option<String>,
    _turn: Turn<'a>,
}

impl<'a> Installation<'a> {
    /// Installs Durward at a URL on this host, with one server at a time. `guards` is the section of that name,
    /// indented by two spaces.
    pub fn by_url(context: &'a TestContext, cluster: &'a Cluster, guards: &str) -> Result<Self> {
        let port = ports::free()?;
        let host = cluster.host();
        let webhook = json!({"manage": "none", "url": format!("https://{host}:{port}")});
        let listener = (IpAddr::from(host), Some(port));
        Self::new(context, cluster, Some(HOME), (&webhook, guards), listener, Vec::new())
    }

    /// Does the same with this value of `server.webhookConfiguration.manage`.
    pub fn managed_by_url(
        context: &'a TestContext,
        cluster: &'a Cluster,
        manage: &str,
        guards: &str,
    ) -> Result<Self> {
        let port = ports::free()?;
        let host = cluster.host();
        let url = format!("https://{host}:{port}");
        let webhook = json!({"manage": manage, "url": url});
        let listener = (IpAddr::from(host), Some(port));
        Self::new(context, cluster, Some(HOME), (&webhook, guards), listener, Vec::new())
    }

    /// Installs Durward by URL, starts a server with this name for its log, and registers it.
    pub fn start(
        context: &'a TestContext,
        cluster: &'a Cluster,
        guards: &str,
        name: &str,
    ) -> Result<(Self, Durward)> {
        let mut installation = Self::by_url(context, cluster, guards)?;
        let durward = installation.serve().named(name).start_ready(context)?;
        installation.register()?;
        Ok((installation, durward))
    }

    /// Installs Durward for a Karmada control plane, at a URL on 127.0.0.1, with one server at a time.
    pub fn on_karmada(context: &'a TestContext, fleet: &'a Fleet, guards: &str) -> Result<Self> {
        let port = ports::free()?;
        let webhook = json!({"manage": "none", "url": format!("https://127.0.0.1:{port}")});
        let listener = (IpAddr::from([127, 0, 0, 1]), Some(port));
        Self::new(context, fleet.karmada(), None, (&webhook, guards), listener, Vec::new())
    }

    /// Installs Durward behind a Service, whose endpoints the case sets. The cluster must have aggregator routing.
    pub fn by_service(
        context: &'a TestContext,
        cluster: &'a Cluster,
        service: &Service<'_>,
        guards: &str,
    ) -> Result<Self> {
        let webhook = json!({
            "manage": "none",
            "service": {"name": service.name()},
        });
        let host = IpAddr::from(match cluster.host() {
            Ipv4Addr::LOCALHOST => context.address()?,
            // A node's network has a route to this host only at that address.
            host => host,
        });
        Self::new(
            context,
            cluster,
            Some(service.namespace()),
            (&webhook, guards),
            (host, None),
            vec![service.host()],
        )
    }

    fn new(
        context: &'a TestContext,
        cluster: &'a Cluster,
        home: Option<&str>,
        (webhook, guards): (&Value, &str),
        (host, port): (IpAddr, Option<u16>),
        names: Vec<String>,
    ) -> Result<Self> {
        let turn = cluster.turn()?;
        let directory = context.directory("installation")?;
        let ca = Ca::new("durward")?;
        certificates::write(&directory, "ca.crt", &ca.pem())?;
        let config = directory.join("durward.yaml");
        let mut installation = Self {
            context,
            cluster,
            home: home.map(ToOwned::to_owned),
            kubeconfig: PathBuf::new(),
            webhook: webhook.clone(),
            tls: json!({"files": {"cert": "tls.crt", "key": "tls.key", "ca": "ca.crt"}}),
            directory,
            config,
            ca,
            names,
            host,
            port,
            registered: None,
            _turn: turn,
        };
        installation.swap_certificate()?;
        installation.configure(guards)?;
        installation.grant()?;
        let account = match home {
            Some(home) => cluster.service_account(home, ACCOUNT)?,
            None => cluster.certified(USER, None)?,
        };
        account.kubectl.kubeconfig().clone_into(&mut installation.kubeconfig);
        Ok(installation)
    }

    /// Writes the configuration with these values of `server.tls` and `server.webhookConfiguration.manage`, and applies its
    /// permissions.
    pub fn use_tls(&mut self, tls: &Value, manage: &str, guards: &str) -> Result<()> {
        self.tls = tls.clone();
        self.webhook["manage"] = manage.into();
        self.configure(guards)?;
        self.grant()
    }

    /// Creates the empty Secret of self-managed certificates, as the chart does.
    pub fn create_ca_secret(&self) -> Result<()> {
        let home = self.home.as_deref().unwrap_or(HOME);
        let metadata =
            json!({"name": "durward-ca", "namespace": home, "labels": {"durward.dev/ca": "managed"}});
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata});
        self.cluster.kubectl().apply(&secret.to_string())?.succeeded()?;
        Ok(())
    }

    /// Returns the directory of the configuration.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the path of `durward.yaml`.
    pub fn config(&self) -> &Path {
        &self.config
    }

    /// Returns the kubeconfig of Durward.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Returns the CA of the serving certificates.
    pub fn ca(&self) -> &Ca {
        &self.ca
    }

    /// Makes servers that start from now on use this URL for the cluster, for example a [`crate::fault::Proxy`].
    pub fn use_cluster_url(&mut self, url: &str) -> Result<()> {
        let text = std::fs::read(&self.kubeconfig)
            .with_context(|| format!("cannot read {}", self.kubeconfig.display()))?;
        let mut config: Value = serde_json::from_slice(&text)?;
        config["clusters"][0]["cluster"]["server"] = url.into();
        self.kubeconfig = certificates::write(&self.directory, "elsewhere.kubeconfig", &config.to_string())?;
        Ok(())
    }

    /// Returns a server that is not started yet. Behind a Service there can be several.
    pub fn serve(&self) -> Serve {
        let serve = Serve::with(&self.config).flag(format!("--kubeconfig={}", self.kubeconfig.display()));
        match self.port {
            Some(port) => serve.listening_at(SocketAddr::new(self.host, port)),
            None => serve.listening_on(self.host),
        }
    }

    /// Applies the output of `durward manifests --only webhooks`. The API server sees it with a delay, so the case
    /// waits for its effect. After a change of the configuration, this replaces the former objects.
    pub fn register(&mut self) -> Result<()> {
        self.registered = Some(Durward::register(self.context, self.cluster, &self.config)?);
        Ok(())
    }

    /// Replaces the webhook configurations, with all their fields.
    pub fn replace_webhooks(&self) -> Result<()> {
        let printed = Durward::webhooks(self.context, &self.config)?;
        self.cluster.kubectl().run_with(&["replace", "-f", "-"], &printed)?.succeeded().map(drop)
    }

    /// Replaces certificate and key by new ones of the same CA, each file by a rename. Running servers reload them;
    /// [`certificates::served`] shows when.
    pub fn swap_certificate(&self) -> Result<Leaf> {
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let leaf = self.ca.server(&names, &[self.host])?;
        // The key first: a server that reads in between sees a pair that does not match, and must keep the old one.
        for (name, content) in [("tls.key", &leaf.key), ("tls.crt", &leaf.certificate)] {
            self.replace(name, content)?;
        }
        Ok(leaf)
    }

    /// Writes the configuration with this `guards` section. A running server reads it on `Signal::HUP`.
    ///
    /// The harness writes its part as JSON, which is YAML.
    pub fn configure(&self, guards: &str) -> Result<()> {
        self.configure_as("durward.yaml", guards).map(drop)
    }

    /// Writes a configuration of this file name with the same `server` section, for another replica.
    pub fn configure_as(&self, name: &str, guards: &str) -> Result<PathBuf> {
        // The defaults of ten and thirty seconds are for clusters with slow proxies. Behind a Service, the API server
        // must see the next server while this one still accepts connections, which takes seconds on a loaded machine.
        let delay = if self.port.is_some() { "3s" } else { "10s" };
        let server = json!({
            "tls": self.tls,
            "webhookConfiguration": self.webhook,
            "shutdown": {"delay": delay, "timeout": "5s"},
        });
        let header = "apiVersion: durward.dev/v1alpha1\nkind: Configuration";
        let namespace = self.home.as_ref().map(|home| format!("namespace: {home}\n")).unwrap_or_default();
        let text = format!("{header}\n{namespace}server: {server}\nguards:\n{}\n", guards.trim_end());
        self.replace(name, &text)?;
        Ok(self.directory.join(name))
    }

    /// Writes a file next to the configuration by a rename.
    fn replace(&self, name: &str, content: &str) -> Result<()> {
        let unfinished = certificates::write(&self.directory, &format!("{name}.unfinished"), content)?;
        std::fs::rename(&unfinished, self.directory.join(name))
            .with_context(|| format!("cannot replace {name}"))
    }

    /// Applies the permissions of `durward manifests`, and their namespace.
    pub fn grant(&self) -> Result<()> {
        let kubectl = self.cluster.kubectl();
        if let Some(home) = &self.home {
            self.cluster.ensure_namespace(home)?;
        }
        let parts = if self.home.is_some() { IN_A_CLUSTER } else { ON_KARMADA };
        for part in parts {
            let printed = self.printed(part)?;
            let applied = kubectl.apply(&printed)?;
            applied.succeeded().with_context(|| format!("what durward manifests --only {part} printed"))?;
        }
        Ok(())
    }

    /// Returns the output of `durward manifests --only …`.
    pub fn printed(&self, part: &str) -> Result<String> {
        let config = self.config.display().to_string();
        let arguments = ["manifests", "--config", &config, "--only", part];
        Ok(Durward::command(self.context, &arguments)?.succeeded()?.stdout)
    }

    /// Runs a command of the product that reads the cluster, with this configuration and Durward's credentials.
    pub fn command(&self, arguments: &[&str]) -> Result<Output> {
        let config = format!("--config={}", self.config.display());
        let kubeconfig = format!("--kubeconfig={}", self.kubeconfig.display());
        let all: Vec<&str> =
            arguments.iter().copied().chain([config.as_str(), kubeconfig.as_str()]).collect();
        Durward::command(self.context, &all)
    }
}

impl Drop for Installation<'_> {
    fn drop(&mut self) {
        if let Some(printed) = &self.registered
            && let Err(error) = Durward::unregister(self.cluster, printed)
        {
            crate::console::print(format_args!("the webhook configurations could not be deleted: {error:#}"));
        }
    }
}
