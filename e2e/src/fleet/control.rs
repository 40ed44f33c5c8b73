//! Karmada's control plane, set up as by its charts, but without pods.
//!
//! These processes have no DNS, so three addresses differ from the charts. The `APIService` refers to an `ExternalName` Service
//! `localhost` with a port of its own. Webhooks are called at 127.0.0.1, and users have client certificates. The manifests are
//! upstream's with these values replaced.
//!
//! karmada-webhook is required: it completes a `ClusterPropagationPolicy`, which otherwise is accepted and never
//! scheduled.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::CLUSTERS;
use crate::binaries::{Binary, KARMADA_RELEASE};
use crate::certificates::{self, Ca};
use crate::context::TestContext;
use crate::controlplane::{Cluster, Options};
use crate::daemon::{Daemon, accepts};
use crate::ports;
use crate::supervisor::{Supervisor, Tool};
use crate::wait::until;

/// The controllers of Kubernetes that upstream runs with Karmada's API server.
const CONTROLLERS: &[&str] =
    &["namespace", "garbagecollector", "serviceaccount-token", "csrsigning", "clusterrole-aggregation"];

/// The namespaces of Karmada's components and of the members' credentials.
const NAMESPACES: [&str; 2] = ["karmada-system", "karmada-cluster"];

/// The name in the certificate of karmada-aggregated-apiserver: its Service's.
const AGGREGATED_HOST: &str = "karmada-aggregated-apiserver.karmada-system.svc";

/// The API server's audit log.
const AUDIT: &str = "audit.log";

/// The audit policy: deletions of namespaces and CRDs, with their options.
const AUDITED: &str = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [
  {"level": "Metadata", "verbs": ["delete"], "resources": [
    {"group": "", "resources": ["namespaces"]}, {"group": "apiextensions.k8s.io", "resources": ["customresourcedefinitions"]}]},
  {"level": "None"}
]}"#;

/// The processes of the control plane.
#[derive(Debug)]
pub(super) struct Control {
    pub(super) supervisor: Arc<Supervisor>,
    pub(super) cluster: Cluster,
    pub(super) aggregated: Daemon,
    pub(super) controllers: Daemon,
    pub(super) audit: PathBuf,
    webhook: Daemon,
    scheduler: Daemon,
}

impl Control {
    pub(super) fn start(context: &TestContext, address: Ipv4Addr) -> Result<Self> {
        let supervisor = context.supervisor()?;
        if let Ok(release) = std::env::var(KARMADA_RELEASE) {
            let version = Binary::KarmadaAggregated.version()?;
            let is_known = version.starts_with(&format!("v{release}."));
            ensure!(
                is_known,
                "{KARMADA_RELEASE}={release} is not a release that is pinned: set 1.16 or 1.18"
            );
        }
        let directory = context.directory("karmada")?;
        let sources = Binary::KarmadaAggregated.sources(&supervisor)?;
        let cluster = context.own_cluster(&options(&directory)?.bind(address))?;
        for name in NAMESPACES {
            cluster.exact_namespace(name, &[])?;
        }
        let site = Site { supervisor: &supervisor, directory: &directory, cluster: &cluster };
        let aggregated = site.aggregated(context, &sources)?;
        let definitions = sources.join("charts/karmada/_crds/bases").display().to_string();
        let apply = ["apply", "--server-side", "-R", "-f", &definitions];
        cluster.kubectl().run(&apply)?.succeeded().context("Karmada's definitions")?;
        aggregated.await_ready()?;
        await_kinds(&cluster)?;
        let controllers = site.controllers()?;
        let scheduler = site.scheduler()?;
        let webhook = site.webhook(&sources)?;
        Ok(Self {
            supervisor,
            cluster,
            aggregated,
            controllers,
            audit: directory.join(AUDIT),
            webhook,
            scheduler,
        })
    }

    /// Ends Karmada's processes, and then its API server.
    pub(super) fn end(&self) {
        for daemon in [&self.scheduler, &self.webhook, &self.controllers, &self.aggregated] {
            let _ = daemon.end();
        }
        self.cluster.end();
    }

    /// Runs `karmadactl` as an administrator and expects success.
    pub(super) fn karmadactl(&self, arguments: &[&str], within: Duration) -> Result<()> {
        let tool = Tool::new("karmadactl", Binary::Karmadactl.path(&self.supervisor)?)
            .arguments(arguments.iter().copied())
            .flag("kubeconfig", self.cluster.kubectl().kubeconfig().display());
        self.supervisor
            .run(tool, within)?
            .succeeded()
            .with_context(|| format!("karmadactl {arguments:?}"))?;
        Ok(())
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.end();
    }
}

/// Waits until the API server's discovery lists the kinds of all CRDs. Karmada's controllers stop if it lacks one.
fn await_kinds(cluster: &Cluster) -> Result<()> {
    let names = cluster.kubectl().run(&["get", "crd", "-o", "name"])?.succeeded()?.stdout;
    let names: Vec<_> = names.lines().filter_map(|line| Some(line.split_once('/')?.1)).collect();
    until("Karmada's kinds to be served", || {
        let served = cluster.kubectl().run(&["api-resources", "-o", "name"])?.stdout;
        let missing: Vec<_> =
            names.iter().filter(|name| !served.lines().any(|line| line == **name)).collect();
        Ok((missing.is_empty(), format!("not served: {missing:?}")))
    })
}

/// Karmada's API server is a stock one. It needs a certificate of a separate CA, by which it tells the server behind it
/// who the user is.
fn options(directory: &Path) -> Result<Options> {
    let front = Ca::new("front-proxy")?;
    let ca = certificates::write(directory, "front-proxy-ca.crt", &front.pem())?;
    let (certificate, key) =
        front.client("front-proxy-client", None)?.write(directory, "front-proxy-client")?;
    let policy = certificates::write(directory, "audit-policy.json", AUDITED)?;
    Ok(Options::named("karmada")
        .with_these_controllers(CONTROLLERS)
        .without_plugin("StorageObjectInUseProtection")
        .flag(format!("--requestheader-client-ca-file={}", ca.display()))
        .flag("--requestheader-allowed-names=front-proxy-client")
        .flag("--requestheader-username-headers=X-Remote-User")
        .flag("--requestheader-group-headers=X-Remote-Group")
        .flag("--requestheader-extra-headers-prefix=X-Remote-Extra-")
        .flag(format!("--proxy-client-cert-file={}", certificate.display()))
        .flag(format!("--proxy-client-key-file={}", key.display()))
        .flag(format!("--audit-policy-file={}", policy.display()))
        .flag(format!("--audit-log-path={}", directory.join(AUDIT).display()))
        .flag("--audit-log-mode=blocking"))
}

/// The common inputs of all components.
struct Site<'a> {
    supervisor: &'a Arc<Supervisor>,
    directory: &'a Path,
    cluster: &'a Cluster,
}

impl Site<'_> {
    fn aggregated(&self, context: &TestContext, sources: &Path) -> Result<Daemon> {
        let port = ports::free()?;
        let ca = Ca::new("karmada-aggregated")?;
        let leaf = ca.server(&[AGGREGATED_HOST, "localhost"], &[Ipv4Addr::LOCALHOST.into()])?;
        let (certificate, key) = leaf.write(self.directory, "aggregated")?;
        let kubeconfig = self.kubeconfig("system:karmada:karmada-aggregated-apiserver")?;
        let tool =
            Tool::new("karmada-aggregated-apiserver", Binary::KarmadaAggregated.path(self.supervisor)?)
                .grace(Duration::ZERO)
                .flag("kubeconfig", kubeconfig.display())
                .flag("authentication-kubeconfig", kubeconfig.display())
                .flag("authorization-kubeconfig", kubeconfig.display())
                .flag("etcd-servers", context.etcd()?.url())
                .flag("etcd-prefix", format_args!("/{}", file_name(self.directory)))
                .flag("tls-cert-file", certificate.display())
                .flag("tls-private-key-file", key.display())
                .flag("bind-address", Ipv4Addr::LOCALHOST)
                .flag("secure-port", port);
        let api = self.cluster.api().clone();
        let daemon = Daemon::start(self.supervisor, tool, move || api.get(CLUSTERS)?.succeeded().map(drop))?;
        let name = "artifacts/deploy/karmada-aggregated-apiserver-apiservice.yaml";
        let host = "externalName: karmada-aggregated-apiserver.karmada-system.svc.cluster.local";
        self.apply(
            &sources.join(name),
            &[
                ("{{caBundle}}", &STANDARD.encode(ca.pem())),
                (host, &format!("externalName: localhost\n  ports: [{{port: {port}}}]")),
                ("  service:\n", &format!("  service:\n    port: {port}\n")),
            ],
        )?;
        Ok(daemon)
    }

    fn controllers(&self) -> Result<Daemon> {
        let name = "karmada-controller-manager";
        let (tool, probe) = self.part(name, Binary::KarmadaControllers)?;
        let tool = prompt(tool).flag("concurrent-namespace-syncs", 5);
        Daemon::start(self.supervisor, tool, accepts((Ipv4Addr::LOCALHOST, probe)))
    }

    fn scheduler(&self) -> Result<Daemon> {
        let (tool, probe) = self.part("karmada-scheduler", Binary::KarmadaScheduler)?;
        let tool = tool.flag("leader-elect", false).flag("enable-scheduler-estimator", false);
        Daemon::start(self.supervisor, tool, accepts((Ipv4Addr::LOCALHOST, probe)))
    }

    /// Karmada's webhooks block its own objects once they are registered, so they are registered when they answer.
    fn webhook(&self, sources: &Path) -> Result<Daemon> {
        let port = ports::free()?;
        let ca = Ca::new("karmada-webhook")?;
        let directory = self.directory.join("webhook");
        ca.server(&["localhost"], &[Ipv4Addr::LOCALHOST.into()])?.write(&directory, "tls")?;
        let (tool, _) = self.part("karmada-webhook", Binary::KarmadaWebhook)?;
        let tool = tool
            .flag("bind-address", Ipv4Addr::LOCALHOST)
            .flag("secure-port", port)
            .flag("cert-dir", directory.display());
        let daemon = Daemon::start(self.supervisor, tool, accepts((Ipv4Addr::LOCALHOST, port)))?;
        daemon.await_ready()?;
        self.apply(
            &sources.join("artifacts/deploy/webhook-configuration.yaml"),
            &[
                ("https://karmada-webhook.karmada-system.svc:443", &format!("https://127.0.0.1:{port}")),
                ("{{caBundle}}", &STANDARD.encode(ca.pem())),
            ],
        )?;
        Ok(daemon)
    }

    /// Returns a component with the common flags, and the port of its health probe.
    fn part(&self, name: &str, binary: Binary) -> Result<(Tool, u16)> {
        let kubeconfig = self.kubeconfig(&format!("system:karmada:{name}"))?;
        let (tool, port) = listening(Tool::new(name, binary.path(self.supervisor)?))?;
        Ok((tool.flag("kubeconfig", kubeconfig.display()), port))
    }

    /// Returns the kubeconfig of a component, which is an administrator with its own name.
    fn kubeconfig(&self, name: &str) -> Result<PathBuf> {
        let user = self.cluster.certified(name, Some("system:masters"))?;
        Ok(user.kubectl.kubeconfig().to_owned())
    }

    /// Applies one of upstream's manifests with words replaced, each of which must occur.
    fn apply(&self, path: &Path, exchange: &[(&str, &str)]) -> Result<()> {
        let mut text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        for (old, new) in exchange {
            ensure!(text.contains(old), "{} does not contain {old:?} any more", path.display());
            text = text.replace(old, new);
        }
        self.cluster.kubectl().apply(&text)?.succeeded().with_context(|| path.display().to_string())?;
        Ok(())
    }
}

/// Adds ports for metrics and health, and returns the latter.
pub(super) fn listening(tool: Tool) -> Result<(Tool, u16)> {
    let (metrics, health) = (ports::free()?, ports::free()?);
    let tool = tool
        .grace(Duration::ZERO)
        .flag("metrics-bind-address", format_args!("127.0.0.1:{metrics}"))
        .flag("health-probe-bind-address", format_args!("127.0.0.1:{health}"));
    Ok((tool, health))
}

/// Makes controllers of Karmada react soon, because cases wait for them. By default they look at a member every ten seconds, and it must
/// answer for thirty. What failed while a member was unreachable is tried again after up to 1000 seconds.
pub(super) fn prompt(tool: Tool) -> Tool {
    tool.flag("leader-elect", false)
        .flag("cluster-status-update-frequency", "2s")
        .flag("cluster-success-threshold", "1s")
        .flag("rate-limiter-max-delay", "1s")
        .flag("rate-limiter-qps", 100)
}

fn file_name(directory: &Path) -> String {
    directory.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
