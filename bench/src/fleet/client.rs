//! The measured process: the reader and the deletion guard of `durward serve`. A verdict is measured from the bytes of a review to
//! the bytes of its answer, without the server, which `server` measures.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use admission::{Guard, decode, encode, settle};
use cluster::Clients;
use cluster::live::{Access, Live};
use guards::{Configured, GUARD_KINDS};
use serde_json::{Value, json};

use super::answers::NAMESPACE;
use super::times::Times;
use super::{Shape, baseline};
use crate::{Result, kernel};

/// Timeout of the webhook.
pub(super) const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

/// Limit of a probe of the fleet: 50,000 requests, 32 at a time, 20 ms each, are 31 s. Probes run every minute.
const PROBE_TIMEOUT: Duration = Duration::from_secs(90);

/// Carries out an order of [`measure`](super::measure) and prints the times.
pub(crate) fn client(order: &str) -> Result<bool> {
    let order: Value = serde_json::from_str(order)?;
    let count = |key: &str| order[key].as_u64().and_then(|count| usize::try_from(count).ok());
    let shape = Shape {
        members: count("members").unwrap_or_default(),
        have: count("have").unwrap_or_default(),
        pods: count("pods").unwrap_or_default(),
        hangs: count("hangs"),
    };
    let kubeconfig = PathBuf::from(order["kubeconfig"].as_str().ok_or("no kubeconfig")?);
    let rounds = count("rounds").unwrap_or(1);
    // Without a subscriber, `tracing` formats spans for the crate `log`. The subscriber of `durward serve` ignores spans.
    tracing::subscriber::set_global_default(tracing::subscriber::NoSubscriber::new())?;
    // `durward serve` has as many threads as cores.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let how = order["how"].as_str().unwrap_or_default().to_owned();
    // Runs in a task, because `durward serve` runs a review in a task.
    let times = runtime.spawn(async move {
        let mut times = Times::default();
        match how.as_str() {
            "bare" => baseline::rounds(&kubeconfig, shape, rounds, true, &mut times).await?,
            "sequential" => baseline::rounds(&kubeconfig, shape, rounds, false, &mut times).await?,
            how => verdicts(kubeconfig, shape, rounds, how == "probe", &mut times).await?,
        }
        Ok::<_, Box<dyn Error + Send + Sync>>(times)
    });
    let times = runtime.block_on(times)??;
    println!("{}", json!({"took": times.took, "cpu": times.cpu, "peak": kernel::peak("self")?}));
    Ok(true)
}

/// Measures verdicts one after another, on request during a probe of the whole fleet.
async fn verdicts(
    kubeconfig: PathBuf,
    shape: Shape,
    rounds: usize,
    during_probe: bool,
    times: &mut Times,
) -> Result<()> {
    let access = Access { kubeconfig: Some(kubeconfig), context: None };
    let live = Arc::new(Live::connect(&access).await.map_err(|problem| problem.to_string())?);
    let configured = configured("deletion", "fleet: karmada")?;
    let guard = configured.build(&Clients::live(&live)).remove(0);
    if during_probe {
        live.probe(configured.requirements().probes);
    }
    let expected = match shape {
        Shape { pods: 1.., .. } => "deny",
        Shape { hangs: Some(_), .. } => "unknown",
        _ => "allow",
    };
    let body = deletion();
    for _ in 0..rounds {
        let (since, ran) = (Instant::now(), kernel::cpu("self")?);
        let (verdict, answer) = verdict(&*guard, &body).await?;
        times.note(since, ran)?;
        if verdict != expected {
            return Err(format!("the verdict is {verdict}, not {expected}: {answer}").into());
        }
    }
    if during_probe { probe_is_done(&live, shape.members).await } else { Ok(()) }
}

/// Configures a guard by the YAML of its section.
pub(crate) fn configured(guard: &str, yaml: &str) -> Result<Box<dyn Configured>> {
    let kind = GUARD_KINDS.iter().find(|kind| kind.name() == guard).ok_or("there is no such guard")?;
    let root = config::parse("bench", yaml).map_err(|problems| format!("{problems:?}"))?;
    let (configured, _, problems) =
        config::read("bench", root.as_ref(), |section| kind.read(section, guards::NAMESPACE));
    match problems.first() {
        None => Ok(configured),
        Some(problem) => Err(problem.to_string().into()),
    }
}

/// Returns the review of `kubectl delete namespace`.
fn deletion() -> Vec<u8> {
    let kind = json!({"group": "", "version": "v1", "kind": "Namespace"});
    let resource = json!({"group": "", "version": "v1", "resource": "namespaces"});
    json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
        "uid": "8c0eef20-00ce-47ba-af61-fa816f692a31", "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
        "name": NAMESPACE, "namespace": NAMESPACE, "operation": "DELETE",
        "userInfo": {"username": "admin", "groups": ["system:masters", "system:authenticated"]}, "object": null,
        "oldObject": {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": NAMESPACE, "uid": "0b6a9f0e-8c3f-4a8d-9a86-2c1f7e2d8f11",
            "labels": {"kubernetes.io/metadata.name": NAMESPACE}}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}},
        "dryRun": false, "options": {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "propagationPolicy": "Background"}}})
    .to_string()
    .into_bytes()
}

/// Reviews a body. Returns the verdict and the answer.
pub(crate) async fn verdict(guard: &dyn Guard, body: &[u8]) -> Result<(&'static str, String)> {
    let review = decode(body, guard.fields()).map_err(|error| format!("the review: {error:?}"))?;
    let ruling = guard.review(&review.request, Instant::now() + REVIEW_TIMEOUT).await;
    let settled = settle(&review.request, ruling, guard.settle_policy());
    Ok((settled.verdict, String::from_utf8(encode(&review, &settled))?))
}

/// Waits until the probe has read every cluster, and checks that all are healthy.
async fn probe_is_done(live: &Live, members: usize) -> Result<()> {
    let since = Instant::now();
    while since.elapsed() < PROBE_TIMEOUT {
        let health = live.health();
        if health.len() > members {
            let failed = health.iter().find_map(|health| Some((health, health.failure.as_ref()?)));
            return failed.map_or(Ok(()), |(health, why)| {
                Err(format!("the probe could not read {}: {}", health.cluster, why.text).into())
            });
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Err(format!("no probe ended within {} s", PROBE_TIMEOUT.as_secs()).into())
}
