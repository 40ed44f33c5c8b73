//! The measured process: the reader and the deletion guard of `durward serve`. A verdict is measured from the bytes of a review to
//! the bytes of its answer, without the server, which `server` measures.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use admission::{decode, encode, settle};
use cluster::Clients;
use cluster::live::{Access, Live};
use guards::GUARD_KINDS;
use serde_json::json;

use super::answers::{CONFIG_MAP, NAMESPACE, UID};
use super::{Answer, Order, Shape, baseline};
use crate::{Result, kernel};

/// Timeout of the webhook.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

impl Answer {
    /// Adds a round that began at `since`, with the CPU time at its start.
    pub(super) fn note(&mut self, since: Instant, cpu: Duration) -> Result<()> {
        self.took.push(since.elapsed());
        self.cpu.push(kernel::cpu("self")?.saturating_sub(cpu));
        Ok(())
    }
}

/// Carries out an order of [`measure`](super::measure) and prints the times.
pub(crate) fn client(order: &str) -> Result<bool> {
    let Order { kubeconfig, is_sequential, shape, rounds } = serde_json::from_str(order)?;
    // Without a subscriber, `tracing` formats spans for the crate `log`. The subscriber of `durward serve` ignores spans.
    tracing::subscriber::set_global_default(tracing::subscriber::NoSubscriber::new())?;
    // `durward serve` has as many threads as cores.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    // Runs in a task, because `durward serve` runs a review in a task.
    let answer = runtime.spawn(async move {
        if is_sequential {
            baseline::rounds(&kubeconfig, shape, rounds).await
        } else {
            verdicts(kubeconfig, shape, rounds).await
        }
    });
    let answer = runtime.block_on(answer)??;
    let answer = Answer { peak: kernel::peak("self")?, ..answer };
    println!("{}", serde_json::to_string(&answer)?);
    Ok(true)
}

/// Measures verdicts one after another.
async fn verdicts(kubeconfig: PathBuf, shape: Shape, rounds: usize) -> Result<Answer> {
    let access = Access { kubeconfig: Some(kubeconfig), context: None };
    let live = Arc::new(Live::connect(&access).await.map_err(|problem| problem.to_string())?);
    let kind = GUARD_KINDS.iter().find(|kind| kind.name() == "deletion").ok_or("there is no such guard")?;
    let section =
        if shape.by_rule { "fleet: karmada\ninUse: {library: [configmaps]}" } else { "fleet: karmada" };
    let root = config::parse("bench", section).map_err(|problems| format!("{problems:?}"))?;
    let (configured, _, _) =
        config::read("bench", root.as_ref(), |section| kind.read(section, guards::NAMESPACE));
    let guard = configured.build(&Clients::live(&live)).remove(0);
    let expected = match shape {
        shape if shape.is_unknown() => "unknown",
        Shape { pods: 1.., by_rule: false, .. } => "deny",
        _ => "allow",
    };
    let body = deletion(shape.by_rule);
    let mut times = Answer::default();
    for _ in 0..rounds {
        let (since, cpu) = (Instant::now(), kernel::cpu("self")?);
        let review = decode(&body, guard.fields()).map_err(|error| format!("the review: {error:?}"))?;
        let ruling = guard.review(&review.request, Instant::now() + REVIEW_TIMEOUT).await;
        let settled = settle(&review.request, ruling, guard.settle_policy());
        let answer = encode(&review, &settled);
        times.note(since, cpu)?;
        if settled.verdict != expected {
            let answer: String = String::from_utf8_lossy(&answer).chars().take(1_000).collect();
            return Err(format!("the verdict is {}, not {expected}: {answer}", settled.verdict).into());
        }
    }
    Ok(times)
}

/// Returns the review of `kubectl delete namespace`, or that of `kubectl delete configmap`.
fn deletion(of_config_map: bool) -> Vec<u8> {
    let kind = json!({"group": "", "version": "v1", "kind": "Namespace"});
    let resource = json!({"group": "", "version": "v1", "resource": "namespaces"});
    let mut review = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
        "uid": "8c0eef20-00ce-47ba-af61-fa816f692a31", "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
        "name": NAMESPACE, "namespace": NAMESPACE, "operation": "DELETE",
        "userInfo": {"username": "admin", "groups": ["system:masters", "system:authenticated"]}, "object": null,
        "oldObject": {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": NAMESPACE, "uid": "0b6a9f0e-8c3f-4a8d-9a86-2c1f7e2d8f11",
            "labels": {"kubernetes.io/metadata.name": NAMESPACE}}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}},
        "dryRun": false, "options": {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "propagationPolicy": "Background"}}});
    if of_config_map {
        let request = &mut review["request"];
        request["kind"]["kind"] = json!("ConfigMap");
        request["resource"]["resource"] = json!("configmaps");
        request["name"] = json!(CONFIG_MAP);
        request["oldObject"]["metadata"] = json!({"name": CONFIG_MAP, "namespace": NAMESPACE, "uid": UID});
    }
    review.to_string().into_bytes()
}
