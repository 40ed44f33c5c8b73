//! Durward as it is installed: certificate files, configuration, permissions and registration around one or
//! more servers.
//!
//! Two ways, as users have: reached by a URL (a host outside the cluster) or behind a Service. The harness
//! writes what an administrator writes (the `server` section, the certificates); the case writes the `guards`
//! section; permissions and registration are what `durward manifests` prints. The server sees the cluster as
//! its own service account with exactly those permissions; on a Karmada control plane, which runs no pods and
//! whose proxy would want every service account's group bound, as the user `durward` by a client certificate.

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

/// Where Durward is at home if no Service says otherwise. `durward manifests` puts its service account,
/// `durward`, there.
const HOME: &str = "durward-system";

/// The service account that `durward manifests` gives its permissions to.
const ACCOUNT: &str = "durward";

/// The user that Durward is on a Karmada control plane and in its members, in no group.
const USER: &str = "durward";

/// What `durward manifests --only …` prints of permissions, by where Durward is at home.
const IN_A_CLUSTER: &[&str] = &["rbac"];
const ON_KARMADA: &[&str] = &["rbac", "members"];

/// One installation. A cluster has one at a time, since registrations go by one name: whoever wants the next
/// waits until this is dropped, which takes the registration back.
#[derive(Debug)]
pub struct Installation<'a> {
    context: &'a TestContext,
    cluster: &'a Cluster,
    /// The namespace of its service account; none on a Karmada control plane.
    home: Option<String>,
    /// What the configuration says of registration.
    registration: Value,
    folder: PathBuf,
    config: PathBuf,
    kubeconfig: PathBuf,
    ca: Ca,
    /// Who the certificate is for.
    names: Vec<String>,
    /// Where servers listen. The port is fixed for a URL, and of each server's own behind a Service.
    host: IpAddr,
    port: Option<u16>,
    registered: Option<String>,
    _turn: Turn<'a>,
}

impl<'a> Installation<'a> {
    /// Reached at a URL on this host, 127.0.0.1 unless the cluster is a node's: one server at a time. `guards`
    /// is the section of that name, indented by two spaces.
    pub fn by_url(context: &'a TestContext, cluster: &'a Cluster, guards: &str) -> Result<Self> {
        let port = ports::free()?;
        let host = cluster.host();
        let registration = json!({"manage": "none", "url": format!("https://{host}:{port}")});
        let listener = (IpAddr::from(host), Some(port));
        Self::new(context, cluster, Some(HOME), (&registration, guards), listener, Vec::new())
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

    /// Registered with a Karmada control plane, reached at a URL on 127.0.0.1: one server at a time.
    pub fn on_karmada(context: &'a TestContext, fleet: &'a Fleet, guards: &str) -> Result<Self> {
        let port = ports::free()?;
        let registration = json!({"manage": "none", "url": format!("https://127.0.0.1:{port}")});
        let listener = (IpAddr::from([127, 0, 0, 1]), Some(port));
        Self::new(context, fleet.karmada(), None, (&registration, guards), listener, Vec::new())
    }

    /// Reached by a Service, which the case then leads to one server or another. The cluster must have
    /// aggregator routing.
    pub fn by_service(
        context: &'a TestContext,
        cluster: &'a Cluster,
        service: &Service<'_>,
        guards: &str,
    ) -> Result<Self> {
        let registration = json!({
            "manage": "none",
            "service": {"name": service.name(), "namespace": service.namespace()},
        });
        let host = IpAddr::from(match cluster.host() {
            Ipv4Addr::LOCALHOST => context.address()?,
            // A node's network has a way to this host, and to none of its other addresses.
            host => host,
        });
        Self::new(
            context,
            cluster,
            Some(service.namespace()),
            (&registration, guards),
            (host, None),
            vec![service.host()],
        )
    }

    fn new(
        context: &'a TestContext,
        cluster: &'a Cluster,
        home: Option<&str>,
        (registration, guards): (&Value, &str),
        (host, port): (IpAddr, Option<u16>),
        names: Vec<String>,
    ) -> Result<Self> {
        let turn = cluster.turn()?;
        let folder = context.folder("installation")?;
        let ca = Ca::new("durward")?;
        certificates::write(&folder, "ca.crt", &ca.pem())?;
        let config = folder.join("durward.yaml");
        let mut installation = Self {
            context,
            cluster,
            home: home.map(ToOwned::to_owned),
            kubeconfig: PathBuf::new(),
            registration: registration.clone(),
            folder,
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

    /// The configuration file, `durward.yaml`.
    pub fn config(&self) -> &Path {
        &self.config
    }

    /// The authority that issues the serving certificates.
    pub fn ca(&self) -> &Ca {
        &self.ca
    }

    /// Servers that are started from now on see the cluster at this URL: through a [`crate::fault::Proxy`], say.
    pub fn sees_the_cluster_at(&mut self, url: &str) -> Result<()> {
        let text = std::fs::read(&self.kubeconfig)
            .with_context(|| format!("cannot read {}", self.kubeconfig.display()))?;
        let mut config: Value = serde_json::from_slice(&text)?;
        config["clusters"][0]["cluster"]["server"] = url.into();
        self.kubeconfig = certificates::write(&self.folder, "elsewhere.kubeconfig", &config.to_string())?;
        Ok(())
    }

    /// A server of this installation, not started yet. Behind a Service any number can be started beside each
    /// other.
    pub fn serve(&self) -> Serve {
        let serve = Serve::with(&self.config).flag(format!("--kubeconfig={}", self.kubeconfig.display()));
        match self.port {
            Some(port) => serve.listening_at(SocketAddr::new(self.host, port)),
            None => serve.listening_on(self.host),
        }
    }

    /// Registers it: what `durward manifests --only registration` prints, by `kubectl apply`. The API server
    /// takes a moment to follow: wait for what the case expects, not for a time. Registering again, after the
    /// configuration was rewritten, replaces.
    pub fn register(&mut self) -> Result<()> {
        self.registered = Some(Durward::register(self.context, self.cluster, &self.config)?);
        Ok(())
    }

    /// Replaces certificate and key by new ones of the same authority, each file at once by a rename. Running
    /// servers find that by themselves; [`certificates::served`] shows when.
    pub fn swap_certificate(&self) -> Result<Leaf> {
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let leaf = self.ca.server(&names, &[self.host])?;
        // The key first: a server that reads in between sees a pair that does not match, and must keep what
        // it has.
        for (name, content) in [("tls.key", &leaf.key), ("tls.crt", &leaf.certificate)] {
            self.replace(name, content)?;
        }
        Ok(leaf)
    }

    /// Writes the configuration with this `guards` section, in place of the one that stands there. A running
    /// server takes it when it is told to (`Signal::HUP`).
    ///
    /// JSON is YAML, so the harness's part is written as JSON and the case's as the case has it.
    pub fn configure(&self, guards: &str) -> Result<()> {
        // Ten seconds and thirty are for clusters with slow proxies. Behind a Service the API server has to hear of
        // the next server while this one still takes connections, which on a loaded machine takes seconds too.
        let lame_duck = if self.port.is_some() { "3s" } else { "10s" };
        let server = json!({
            "tls": {"files": {"cert": "tls.crt", "key": "tls.key", "ca": "ca.crt"}},
            "registration": self.registration,
            "drain": {"lameDuck": lame_duck, "finish": "5s"},
        });
        let text = format!("version: 1\nserver: {server}\nguards:\n{}\n", guards.trim_end());
        self.replace("durward.yaml", &text)
    }

    /// Writes a file beside the configuration, all of it at once: whoever reads meanwhile finds the old one.
    fn replace(&self, name: &str, content: &str) -> Result<()> {
        let unfinished = certificates::write(&self.folder, &format!("{name}.unfinished"), content)?;
        std::fs::rename(&unfinished, self.folder.join(name)).with_context(|| format!("cannot replace {name}"))
    }

    /// Applies the permissions that `durward manifests` prints, and the namespace that they want.
    pub fn grant(&self) -> Result<()> {
        let kubectl = self.cluster.kubectl();
        if let Some(home) = &self.home {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": home}});
            kubectl.apply(&namespace.to_string())?.succeeded()?;
        }
        let parts = if self.home.is_some() { IN_A_CLUSTER } else { ON_KARMADA };
        for part in parts {
            let printed = self.printed(part)?;
            let applied = kubectl.apply(&printed)?;
            applied.succeeded().with_context(|| format!("what durward manifests --only {part} printed"))?;
        }
        Ok(())
    }

    /// What `durward manifests --only …` prints now.
    pub fn printed(&self, part: &str) -> Result<String> {
        let config = self.config.display().to_string();
        let arguments = ["manifests", "--config", &config, "--only", part];
        Ok(Durward::command(self.context, &arguments)?.succeeded()?.stdout)
    }

    /// Any command of the product that looks at the cluster, with this configuration and Durward's own
    /// credentials.
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
            crate::console::print(format_args!("a registration could not be taken back: {error:#}"));
        }
    }
}
