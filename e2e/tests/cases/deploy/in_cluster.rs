//! Durward in pods, installed as its README says: a certificate, a Secret, and the output of `durward
//! manifests --image`.
//!
//! The API server calls the pods over the pod network. Their namespace enforces Pod Security `restricted`.

use e2e::prelude::*;

use super::environment::{Environment, exclusive_in_pods};
use super::pods::{has_256_mib, limited_pod};
use crate::cases::environment::{OPTED_IN, await_injection};
use crate::cases::files::{DEFAULT_FILES, LxcfsChecks as _};
use crate::cases::in_pods;
use crate::cases::load::{Load, under_load_of};
use crate::cases::objects::{list, name_of, ready_status};

/// The namespace denies pods that violate the level, and warns of workloads that do.
pub(super) const RESTRICTED_WITH_WARNINGS: [(&str, &str); 2] =
    [("pod-security.kubernetes.io/enforce", "restricted"), ("pod-security.kubernetes.io/warn", "restricted")];

const BETWEEN: usize = 30;

#[e2e::case]
fn the_documented_installation_runs_two_replicas(context: &'static TestContext) -> Result<()> {
    let (fixture, namespace) = exclusive_in_pods(context)?;
    let shop = fixture.node.namespace("shop")?;
    limited_pod(&shop, "web").is_admitted()?.without_warnings()?;
    has_256_mib(&fixture.node.pod(&shop, "web").is_ready()?)?;

    // Here Durward has to read the namespace, with the service account of its pods.
    let labelled = fixture.node.labelled_namespace("labelled", &OPTED_IN)?;
    let plain = |pod: &mut Value| pod["metadata"]["annotations"] = json!({});
    limited_pod(&labelled, "plain")
        .with(plain)
        .is_admitted()?
        .with_files(&DEFAULT_FILES)?
        .without_warnings()?;
    has_256_mib(&fixture.node.pod(&labelled, "plain").is_ready()?)?;

    let replicas = replicas(namespace)?;
    ensure!(replicas.len() == 2, "there are {} replicas", replicas.len());
    let pdb = format!("{}/durward", namespace.path("policy/v1/poddisruptionbudgets"));
    until("the PDB to count both pods", || {
        let pdb = namespace.cluster().api().get(&pdb)?.succeeded()?.body;
        let status = &pdb["status"];
        let is_counted = status["disruptionsAllowed"] == 1 && status["expectedPods"] == 2;
        Ok((is_counted, status.to_string()))
    })
}

#[e2e::case]
fn replacing_replicas_under_load_fails_no_pod(context: &'static TestContext) -> Result<()> {
    let (fixture, namespace) = exclusive_in_pods(context)?;
    let api = namespace.cluster().api();
    let kubectl = namespace.cluster().kubectl();
    let evict = |name: &str| {
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        api.create(&format!("{}/{name}/eviction", namespace.path("pods")), &eviction)
    };
    fixture.under_load(namespace, |load| {
        let names = replicas(namespace)?;
        api.delete(&format!("{}/{}", namespace.path("pods"), names[0]))?.succeeded()?;
        await_replaced(namespace, &names[..1])?;
        load.await_more(BETWEEN)?;

        // One of two healthy pods can be evicted at a time.
        let names = replicas(namespace)?;
        until("a replica to be evicted", || {
            let answer = evict(&names[0])?;
            Ok((answer.is_success(), answer.message().to_owned()))
        })?;
        let second = evict(&names[1])?;
        ensure!(second.status == 429, "the second eviction is not denied: {}", second.message());
        await_replaced(namespace, &names[..1])?;
        load.await_more(BETWEEN)?;

        let names = replicas(namespace)?;
        kubectl.run(&["rollout", "restart", "-n", namespace.name(), "deployment/durward"])?.succeeded()?;
        await_replaced(namespace, &names)
    })
}

impl Environment {
    /// Installs Durward and returns when its pods are called.
    pub(super) fn install(&self, namespace: &Namespace<'_>) -> Result<()> {
        let guards = "  lxcfs: {mountMethod: auto, nodeAffinity: required, webhook: {failurePolicy: Fail}}";
        let (_, applied) = in_pods::install(self.context, self.node, namespace, guards)?;
        // kubectl also warns of objects without its last-applied annotation, after an earlier installation.
        let warnings: Vec<_> = applied.stderr.lines().filter(|line| line.contains("violate")).collect();
        ensure!(warnings.is_empty(), "the API server warns: {warnings:?}");
        await_injection(&*self.node.namespace("probe")?)
    }

    /// Creates pods while `action` runs, and some before and after. Each must be admitted with its files.
    fn under_load(
        &self,
        namespace: &Namespace<'_>,
        action: impl FnOnce(&Load<'_>) -> Result<()>,
    ) -> Result<()> {
        let shop = self.node.namespace("shop")?;
        // A dry run is reviewed too, so no pod has to be stored.
        under_load_of(
            &shop,
            |shop, name| limited_pod(shop, name).as_dry_run(),
            |_, pod| pod.with_files(&DEFAULT_FILES)?.without_warnings().map(drop),
            |load| {
                load.await_more(BETWEEN)?;
                action(load)?;
                await_stopped(namespace)?;
                load.await_more(BETWEEN)
            },
        )
        .map(drop)
    }
}

/// Returns the names of Durward's pods that are Ready and not terminating.
fn replicas(namespace: &Namespace<'_>) -> Result<Vec<String>> {
    let pods = list(namespace.cluster().api(), &namespace.path("pods"))?;
    let serves = |pod: &&Value| pod["metadata"]["deletionTimestamp"].is_null() && ready_status(pod) == "True";
    Ok(pods.iter().filter(serves).map(|pod| name_of(pod).to_owned()).collect())
}

/// Waits until two pods are ready and none of these is among them.
fn await_replaced(namespace: &Namespace<'_>, names: &[String]) -> Result<()> {
    until(format_args!("{names:?} to be replaced"), || {
        let now = replicas(namespace)?;
        let is_so = now.len() == 2 && !now.iter().any(|name| names.contains(name));
        Ok((is_so, format!("{now:?}")))
    })
}

fn await_stopped(namespace: &Namespace<'_>) -> Result<()> {
    until("the old replicas to be gone", || {
        let count = list(namespace.cluster().api(), &namespace.path("pods"))?.len();
        Ok((count == 2, format!("{count} pods")))
    })
}
