//! The room's own node, with Durward in pods as its page says, and a case's stay there: one at a time, for the
//! times that are measured.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Error, Result};
use e2e::context::{self, TestContext};
use e2e::durward::Durward;
use e2e::image::Image;
use e2e::namespace::Namespace;
use e2e::node::{self, Node, TemporaryNamespace};
use e2e::wait::{Poll, eventually};
use serde_json::json;

use crate::cases::etcd::house::{Kind, LABEL, guards};

/// The API server hears of webhooks and endpoints through watches.
const HEARD_WITHIN: Duration = Duration::from_secs(60);

/// Where Durward lives.
const DOOR: &str = "durward-system";

/// What is shared.
pub(super) struct House {
    pub(super) node: &'static Node,
}

impl House {
    /// A namespace that no other case has and that ends with the case, guarded in this way, or not at all.
    pub(super) fn namespace(&self, name: &str, kind: Option<Kind>) -> Result<TemporaryNamespace<'static>> {
        match kind {
            Some(kind) => self.node.labelled_namespace(name, &[(LABEL, kind.word())]),
            None => self.node.namespace(name),
        }
    }
}

/// Comes in when the case before has left.
pub(super) fn enter(context: &'static TestContext) -> Result<MutexGuard<'static, House>> {
    static HOUSE: OnceLock<Result<Mutex<House>, String>> = OnceLock::new();
    let built = HOUSE.get_or_init(|| build(context).map(Mutex::new).map_err(|error| format!("{error:#}")));
    let house =
        built.as_ref().map_err(|why| Error::msg(format!("the node of etcd does not stand: {why}")))?;
    Ok(house.lock().unwrap_or_else(PoisonError::into_inner))
}

fn build(context: &'static TestContext) -> Result<House> {
    // For as long as the process, like the run: the supervisor ends what stands behind it.
    let node: &'static Node = Box::leak(Box::new(context.own_node()?));
    node.image(context, Image::Durward)?;
    node.image(context, Image::Etcd)?;
    let door =
        node.cluster().exact_namespace(DOOR, &[("pod-security.kubernetes.io/enforce", "restricted")])?;
    install(context, node, &door)?;
    await_guard(&House { node })?;
    Ok(House { node })
}

/// By the lines of its page: a certificate, a Secret, and what `durward manifests --image` prints.
fn install(context: &TestContext, node: &Node, door: &Namespace<'_>) -> Result<()> {
    let folder = context.folder("door")?;
    let tls = folder.join("tls").display().to_string();
    let service = format!("durward.{DOOR}");
    Durward::command(context, &["certs", "new", "--service", &service, "--out", &tls])?.succeeded()?;
    let kubectl = node.cluster().kubectl();
    let (cert, key) = (format!("--cert={tls}/tls.crt"), format!("--key={tls}/tls.key"));
    kubectl.run(&["-n", DOOR, "create", "secret", "tls", "durward-tls", &cert, &key])?.succeeded()?;
    let server = json!({
        "tls": {"files": {"cert": "tls/tls.crt", "key": "tls/tls.key", "ca": "tls/ca.crt"}},
        "registration": {"service": {"name": "durward", "namespace": DOOR}},
    });
    let text = format!("version: 1\nserver: {server}\nguards:\n{}\n", guards(&[]));
    let config = context::write(&folder, "durward.yaml", &text)?.display().to_string();
    let image = node.image(context, Image::Durward)?;
    let printed = Durward::command(context, &["manifests", "--config", &config, "--image", image])?;
    kubectl.apply(&printed.succeeded()?.stdout)?.succeeded()?;
    node.stands(door, "deployments", "durward")
}

/// Waits until a pod in which nobody listens is said to be one that could not be asked.
fn await_guard(house: &House) -> Result<()> {
    let probe = house.namespace("probe", Some(Kind::Transfer))?;
    probe.pod("etcd").labelled("app", "etcd").container_like("etcd", node::idle(json!({}))).is_admitted()?;
    house.node.pod(&probe, "etcd").is_ready()?;
    let path = format!("{}/etcd?dryRun=All", probe.path("pods"));
    eventually("pods of etcd to be guarded", HEARD_WITHIN, || {
        let tried = house.node.cluster().api().delete(&path)?;
        let is_guarded = tried.message().contains("could not be asked");
        Ok(if is_guarded {
            Poll::Ready(())
        } else {
            Poll::Pending(format!("{}: {:?}, {:?}", tried.status, tried.message(), tried.warnings))
        })
    })
    .context("Durward in pods")
}
