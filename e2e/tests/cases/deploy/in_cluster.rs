//! Durward in a cluster, by the lines of its README: a certificate of its own, a Secret, and what
//! `durward manifests --image` prints, applied as it is printed. The API server calls its pods over the pod
//! network, and its namespace lets nothing in that Pod Security `restricted` refuses.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::context::{self, TestContext};
use e2e::durward::Durward;
use e2e::image::Image;
use e2e::namespace::Namespace;
use e2e::wait::{Poll, eventually};
use serde_json::{Value, json};

use super::house::{House, enter_installed};
use super::pods::{shows_256, wanting};
use crate::cases::files::{Looks as _, SIX};
use crate::cases::house::{ENABLED, await_files};
use crate::cases::load::{Load, under_load_of};

/// Whatever breaks the level is refused, and what would is warned of.
pub(super) const STRICT: [(&str, &str); 2] =
    [("pod-security.kubernetes.io/enforce", "restricted"), ("pod-security.kubernetes.io/warn", "restricted")];

/// Pods that are created between one deed and the next.
const BETWEEN: usize = 30;

/// A controller counts what has become Ready.
const COUNTED_WITHIN: Duration = Duration::from_secs(60);

/// A replica leaves within its lame duck of ten seconds, when another is ready.
const REPLACED_WITHIN: Duration = Duration::from_secs(120);

#[e2e::case]
fn the_documented_installation_runs_two_replicas(context: &'static TestContext) -> Result<()> {
    let (stay, door) = enter_installed(context)?;
    let shop = stay.node.namespace("shop")?;
    wanting(&shop, "web").is_admitted()?.without_warnings()?;
    shows_256(&stay.node.pod(&shop, "web").is_ready()?)?;

    // For this the namespace has to be read, as the service account that pods have.
    let labelled = stay.node.labelled_namespace("labelled", &ENABLED)?;
    let plain = |pod: &mut Value| pod["metadata"]["annotations"] = json!({});
    wanting(&labelled, "plain").with(plain).is_admitted()?.with_files(&SIX)?.without_warnings()?;
    shows_256(&stay.node.pod(&labelled, "plain").is_ready()?)?;

    let replicas = replicas(door)?;
    ensure!(replicas.len() == 2, "there are {} replicas", replicas.len());
    let budget = format!("{}/durward", door.path("policy/v1/poddisruptionbudgets"));
    eventually("the budget to count both", COUNTED_WITHIN, || {
        let budget = door.cluster().api().get(&budget)?.succeeded()?.body;
        let status = &budget["status"];
        let is_counted = status["disruptionsAllowed"] == 1 && status["expectedPods"] == 2;
        Ok(if is_counted { Poll::Ready(()) } else { Poll::Pending(status.to_string()) })
    })
}

#[e2e::case]
fn replacing_replicas_under_load_fails_no_pod(context: &'static TestContext) -> Result<()> {
    let (stay, door) = enter_installed(context)?;
    let api = door.cluster().api();
    let kubectl = door.cluster().kubectl();
    let evict = |name: &str| {
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        api.create(&format!("{}/{name}/eviction", door.path("pods")), &eviction)
    };
    stay.under_load(door, |load| {
        let names = replicas(door)?;
        api.delete(&format!("{}/{}", door.path("pods"), names[0]))?.succeeded()?;
        replaced(door, &names[..1])?;
        load.await_more(BETWEEN)?;

        // Of two that are well, one may be evicted at a time.
        let names = replicas(door)?;
        eventually("a replica to be evicted", REPLACED_WITHIN, || {
            let answer = evict(&names[0])?;
            Ok(if answer.is_success() { Poll::Ready(()) } else { Poll::Pending(answer.message().to_owned()) })
        })?;
        let second = evict(&names[1])?;
        ensure!(second.status == 429, "the other one is evicted too: {}", second.message());
        replaced(door, &names[..1])?;
        load.await_more(BETWEEN)?;

        let names = replicas(door)?;
        kubectl.run(&["rollout", "restart", "-n", door.name(), "deployment/durward"])?.succeeded()?;
        replaced(door, &names)
    })
}

impl House {
    /// Installs it, and returns when both replicas are asked.
    pub(super) fn install(&self, door: &Namespace<'_>) -> Result<()> {
        let service = format!("durward.{}", door.name());
        let folder = self.context.folder("door")?;
        let tls = folder.join("tls").display().to_string();
        Durward::command(self.context, &["certs", "new", "--service", &service, "--out", &tls])?
            .succeeded()?;
        let kubectl = door.cluster().kubectl();
        let (cert, key) = (format!("--cert={tls}/tls.crt"), format!("--key={tls}/tls.key"));
        kubectl
            .run(&["-n", door.name(), "create", "secret", "tls", "durward-tls", &cert, &key])?
            .succeeded()?;
        let text = json!({
            "version": 1,
            "server": {
                "tls": {"files": {"cert": "tls/tls.crt", "key": "tls/tls.key", "ca": "tls/ca.crt"}},
                "registration": {"service": {"name": "durward", "namespace": door.name()}},
            },
            "guards": {"lxcfs": {
                "backend": "auto", "nodeReadiness": "require", "webhook": {"failurePolicy": "Fail"},
            }},
        });
        let config = context::write(&folder, "durward.yaml", &text.to_string())?.display().to_string();
        let image = self.node.image(self.context, Image::Durward)?;
        let arguments = ["manifests", "--config", &config, "--image", image];
        let printed = Durward::command(self.context, &arguments)?.succeeded()?.stdout;
        let applied = kubectl.apply(&printed)?.succeeded()?;
        // Whoever has installed it before knows of what was there without kubectl's own note of it.
        let warnings: Vec<_> = applied.stderr.lines().filter(|line| line.contains("violate")).collect();
        ensure!(warnings.is_empty(), "the API server warns: {warnings:?}");
        self.node.stands(door, "deployments", "durward")?;
        await_files(&*self.node.namespace("probe")?)
    }

    /// Creates pods for as long as `deed` takes, and some before and after, each of which must be admitted with its files.
    fn under_load(&self, door: &Namespace<'_>, deed: impl FnOnce(&Load<'_>) -> Result<()>) -> Result<()> {
        let shop = self.node.namespace("shop")?;
        // None has to run, so none is stored: the webhook is asked about dry runs too.
        under_load_of(
            &shop,
            |shop, name| wanting(shop, name).as_dry_run(),
            |_, pod| pod.with_files(&SIX)?.without_warnings().map(drop),
            |load| {
                load.await_more(BETWEEN)?;
                deed(load)?;
                gone(door)?;
                load.await_more(BETWEEN)
            },
        )
        .map(drop)
    }
}

/// The names of the pods that Durward runs in, that are Ready and not about to end.
fn replicas(door: &Namespace<'_>) -> Result<Vec<String>> {
    let list = door.cluster().api().get(&door.path("pods"))?.succeeded()?.body;
    let pods = list["items"].as_array().context("a list without items")?.iter();
    let is_ready = |pod: &&Value| {
        let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        conditions.filter(|one| one["type"] == "Ready").any(|one| one["status"] == "True")
    };
    let stay = pods.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).filter(is_ready);
    Ok(stay.filter_map(|pod| pod["metadata"]["name"].as_str().map(ToOwned::to_owned)).collect())
}

/// Waits until there are two without these.
fn replaced(door: &Namespace<'_>, names: &[String]) -> Result<()> {
    eventually(format_args!("{names:?} to be replaced"), REPLACED_WITHIN, || {
        let now = replicas(door)?;
        let is_so = now.len() == 2 && !now.iter().any(|name| names.contains(name));
        Ok(if is_so { Poll::Ready(()) } else { Poll::Pending(format!("{now:?}")) })
    })
}

/// Waits until those that leave have left.
fn gone(door: &Namespace<'_>) -> Result<()> {
    eventually("the old replicas to be gone", REPLACED_WITHIN, || {
        let pods = door.cluster().api().get(&door.path("pods"))?.succeeded()?.body;
        let count = pods["items"].as_array().map_or(0, Vec::len);
        Ok(if count == 2 { Poll::Ready(()) } else { Poll::Pending(format!("{count} pods")) })
    })
}
