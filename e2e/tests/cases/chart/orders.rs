//! The parts of an installation are applied in both orders, and then again, as Argo CD and Flux do. The parts are the workload and the
//! webhook configurations.
//!
//! Helm renders the chart, and kubectl applies it. The cluster has no node, so Durward is a process with the configuration and the
//! service account of the chart.

use std::net::SocketAddr;
use std::path::PathBuf;

use e2e::cert_manager::CertManager;
use e2e::durward::Serve;
use e2e::{certificates, context, ports};

use e2e::prelude::*;

use super::configurations::{HOME, bare_cluster, parse};
use super::removal::WEBHOOKS;
use crate::cases::environment::{await_injection, eventually_ok};
use crate::cases::objects::contains_all;

/// The time in which no field changes after the guards work. It is longer than the interval of passes.
const STABLE_FOR: Duration = Duration::from_secs(65);

/// The writer of entries and caBundles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Durward writes both.
    All,
    /// Durward writes the caBundles.
    CaBundle,
    /// `durward manifests` prints both.
    None,
    /// Durward writes the entries, and cainjector the caBundles.
    CertManager,
}

#[derive(Debug, Clone, Copy)]
enum Order {
    WorkloadFirst,
    ConfigurationsFirst,
}

#[e2e::case]
fn webhook_configurations_can_be_applied_before_the_workload(context: &'static TestContext) -> Result<()> {
    let cluster = bare_cluster(context)?;
    let parts = Parts::render(context, &cluster, Mode::All)?;
    let removed = Undo::new("an installation is not removed", || parts.remove());
    let durward = parts.apply(context, Order::ConfigurationsFirst)?;
    parts.differ_in_nothing()?;
    drop(durward);
    removed.undo()
}

#[e2e::case(Soak)]
fn both_orders_lead_to_the_same_state_in_every_mode(context: &'static TestContext) -> Result<()> {
    let cluster = context.own_cluster(&Options::named("orders"))?;
    cluster.exact_namespace(HOME, &[])?;
    let _cert_manager = CertManager::start(context, &cluster)?;
    for mode in [Mode::All, Mode::CaBundle, Mode::None, Mode::CertManager] {
        for order in [Order::WorkloadFirst, Order::ConfigurationsFirst] {
            print(format_args!("{mode:?}, {order:?}"));
            let check = || {
                let parts = Parts::render(context, &cluster, mode)?;
                let durward = parts.apply(context, order)?;
                parts.differ_in_nothing()?;
                let before = parts.configurations()?;
                std::thread::sleep(STABLE_FOR);
                ensure!(parts.configurations()? == before, "a field changes all the time");
                drop(durward);
                parts.remove()
            };
            check().with_context(|| format!("{mode:?}, {order:?}"))?;
        }
    }
    Ok(())
}

/// The rendered parts, as lists in JSON.
struct Parts<'a> {
    cluster: &'a Cluster,
    mode: Mode,
    workload: String,
    configurations: String,
    directory: PathBuf,
    address: SocketAddr,
}

impl<'a> Parts<'a> {
    fn render(context: &TestContext, cluster: &'a Cluster, mode: Mode) -> Result<Self> {
        let directory = context.directory("order")?;
        let address = SocketAddr::new(cluster.host().into(), ports::free()?);
        let tls = if mode == Mode::None {
            let (host, out) = (cluster.host().to_string(), directory.join("tls").display().to_string());
            Durward::command(context, &["certs", "new", "--address", &host, "--out", &out])?.succeeded()?;
            json!({"selfManaged": null, "files": {"cert": "tls/tls.crt", "key": "tls/tls.key", "ca": "tls/ca.crt"}})
        } else {
            json!({})
        };
        let manage = match mode {
            Mode::All | Mode::CertManager => "all",
            Mode::CaBundle => "caBundle",
            Mode::None => "none",
        };
        let values = json!({
            "image": {"repository": "r"},
            "certManager": {"enabled": mode == Mode::CertManager},
            "config": {
                "server": {
                    "tls": tls,
                    "webhookConfiguration": {"manage": manage, "url": format!("https://{address}")},
                },
                "guards": {"deletion": {"scope": "all"}, "lxcfs": {}},
            },
        });
        let rendered =
            Helm::new(context)?.with_values(&["template"], HOME, &values, &["--no-hooks"])?.succeeded()?;
        let is_configuration = |object: &Value| {
            object["kind"].as_str().is_some_and(|kind| kind.ends_with("WebhookConfiguration"))
        };
        let (mut configurations, workload): (Vec<_>, Vec<_>) =
            parse(&rendered.stdout)?.into_iter().partition(is_configuration);
        let map = workload.iter().find(|object| object["kind"] == "ConfigMap").context("no ConfigMap")?;
        let text = map["data"]["durward.yaml"].as_str().context("no durward.yaml")?;
        let config = context::write(&directory, "durward.yaml", text)?.display().to_string();
        if configurations.is_empty() {
            let arguments = ["manifests", "--config", &config, "--only", "webhooks"];
            configurations = parse(&Durward::command(context, &arguments)?.succeeded()?.stdout)?;
        }
        let list =
            |items: Vec<Value>| json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
        let (workload, configurations) = (list(workload), list(configurations));
        Ok(Self { cluster, mode, workload, configurations, directory, address })
    }

    /// Applies both parts and waits until the guards work.
    fn apply(&self, context: &TestContext, order: Order) -> Result<Durward> {
        let apply = |part: &str| self.cluster.kubectl().apply(part)?.succeeded().map(drop);
        let durward = match order {
            Order::WorkloadFirst => {
                apply(&self.workload)?;
                let durward = self.start(context)?;
                if self.mode != Mode::None {
                    let page = durward.page("/readyz?verbose")?;
                    let note = "[!]webhooks: ValidatingWebhookConfiguration durward doesn't exist";
                    contains_all(&page.body, &[note])?;
                }
                apply(&self.configurations)?;
                durward
            }
            Order::ConfigurationsFirst => {
                apply(&self.configurations)?;
                apply(&self.workload)?;
                self.start(context)?
            }
        };
        let used = self.cluster.namespace("used")?;
        used.pod("web").is_admitted()?;
        eventually_ok("a namespace in use to be protected", || {
            let answer =
                self.cluster.api().delete(&format!("/api/v1/namespaces/{}?dryRun=All", used.name()))?;
            contains_all(answer.message(), &["denied the request", "1 pod"])
        })?;
        await_injection(&self.cluster.namespace("probe")?)?;
        Ok(durward)
    }

    /// Starts Durward and waits until it is ready.
    fn start(&self, context: &TestContext) -> Result<Durward> {
        if self.mode == Mode::CertManager {
            self.mount_certificate()?;
        }
        let account = self.cluster.service_account(HOME, "durward")?;
        Serve::with(&self.directory.join("durward.yaml"))
            .flag(format!("--kubeconfig={}", account.kubectl.kubeconfig().display()))
            .listening_at(self.address)
            .named("durward-order")
            .start_ready(context)
    }

    /// Writes the Secret that cert-manager makes to files, as the kubelet does.
    fn mount_certificate(&self) -> Result<()> {
        let path = format!("/api/v1/namespaces/{HOME}/secrets/durward-tls");
        let secret = eventually_ok("cert-manager to issue the certificate", || {
            self.cluster.api().get(&path)?.succeeded()
        })?;
        for name in ["tls.crt", "tls.key"] {
            let content = secret.body["data"][name].as_str().with_context(|| format!("no {name}"))?;
            certificates::write_base64(&self.directory.join("tls"), name, content)?;
        }
        Ok(())
    }

    /// Returns both webhook configurations.
    fn configurations(&self) -> Result<[Value; 2]> {
        let [validating, mutating] = WEBHOOKS.map(|path| self.cluster.api().get(path)?.succeeded());
        Ok([validating?.body, mutating?.body])
    }

    /// Expects that applying both parts again changes nothing, by client-side apply and by server-side apply.
    fn differ_in_nothing(&self) -> Result<()> {
        let kubectl = self.cluster.kubectl();
        let server_side = ["--server-side", "--force-conflicts"];
        let webhooks = || anyhow::Ok(self.configurations()?.map(|one| one["webhooks"].clone()));
        let before = webhooks()?;
        for part in [&self.workload, &self.configurations] {
            let diff = |more: &[&str]| -> Result<()> {
                let output = kubectl.run_with(&[&["diff", "-f", "-"], more].concat(), part)?;
                output.exited_with(0).with_context(|| format!("kubectl diff {more:?}"))
            };
            diff(&[])?;
            let applied = kubectl.apply(part)?.succeeded()?.stdout;
            // kubectl always sends the selector of a PDB, and the API server changes nothing.
            let is_changed =
                |line: &&str| !line.ends_with(" unchanged") && !line.starts_with("poddisruptionbudget");
            let changed: Vec<_> = applied.lines().filter(is_changed).collect();
            ensure!(changed.is_empty(), "kubectl apply changes {changed:?}");
            // The first server-side apply takes over the fields of client-side apply, and changes kubectl's annotation.
            for _ in 0..2 {
                kubectl.run_with(&[&["apply", "-f", "-"], &server_side[..]].concat(), part)?.succeeded()?;
                diff(&server_side)?;
            }
        }
        ensure!(webhooks()? == before, "applying again changed the webhooks");
        Ok(())
    }

    /// Deletes both parts.
    fn remove(&self) -> Result<()> {
        for part in [&self.configurations, &self.workload] {
            let arguments = ["delete", "--ignore-not-found", "--wait=false", "-f", "-"];
            self.cluster.kubectl().run_with(&arguments, part)?.succeeded()?;
        }
        Ok(())
    }
}
