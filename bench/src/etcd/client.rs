//! The measured process: the clients and the etcd guard of `durward serve`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use admission::Guard;
use cluster::Clients;
use cluster::live::{Access, Live};
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::simulator::pod;
use super::{CONCURRENT_REVIEWS, MEMBER_DEADLINE, MEMBERS};
use crate::fleet::{configured, verdict};
use crate::{Result, kernel};

/// Carries out an order of [`measure`](super::measure) and prints the times.
pub(crate) fn client(order: &str) -> Result<bool> {
    let order: Value = serde_json::from_str(order)?;
    let kubeconfig = PathBuf::from(order["kubeconfig"].as_str().ok_or("no kubeconfig")?);
    let mode = order["how"].as_str().ok_or("nothing to do")?.to_owned();
    let port = order["port"].as_u64().ok_or("no port")?;
    let rounds = order["rounds"].as_u64().and_then(|rounds| usize::try_from(rounds).ok()).unwrap_or(1);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let yaml = format!(
        "webhook: {{timeoutSeconds: {}}}\nclusters: [{{namespace: db, selector: app=etcd, client: {{port: {port}}}}}]\n",
        // A member has a tenth of it.
        MEMBER_DEADLINE.as_secs() * 10
    );
    let (took, allowed) = runtime.block_on(async {
        let access = Access { kubeconfig: Some(kubeconfig), context: None };
        let live = Live::connect(&access).await.map_err(|problem| problem.to_string())?;
        let guard = configured("etcd", &yaml)?.build(&Clients::live(&Arc::new(live))).remove(0);
        match mode.as_str() {
            "crowd" => concurrent(&*guard).await,
            "race" => race(&*guard).await,
            _ => one_by_one(&*guard, &mode, rounds).await.map(|took| (took, Vec::new())),
        }
    })?;
    println!("{}", json!({"took": took, "allowed": allowed, "peak": kernel::peak("self")?}));
    Ok(true)
}

/// Returns times in microseconds, one after another. Each round has an etcd cluster of its own, because a reservation lasts.
async fn one_by_one(guard: &dyn Guard, mode: &str, rounds: usize) -> Result<Vec<u64>> {
    let mut took = Vec::with_capacity(rounds);
    for round in 0..rounds {
        let (of, number, is_dry, expected) = match mode {
            "dry" => (0, 1, true, "allow"),
            "hangs" => (0, 1, true, "deny"),
            "leader" => (round, 0, false, "allow"),
            _ => (round, 1, false, "allow"),
        };
        if !is_dry {
            // The connections to members are open, as in a server that has reviewed before.
            verdict(guard, &deletion(of, number, true)).await?;
        }
        let since = Instant::now();
        let (found, answer) = verdict(guard, &deletion(of, number, is_dry)).await?;
        took.push(u64::try_from(since.elapsed().as_micros())?);
        if found != expected {
            return Err(format!("the verdict is {found}, not {expected}: {answer}").into());
        }
        if mode == "leader" && !answer.contains("leadership was transferred to") {
            return Err(format!("the leader did not transfer leadership: {answer}").into());
        }
    }
    Ok(took)
}

/// Runs dry runs of one pod at once.
async fn concurrent(guard: &dyn Guard) -> Result<(Vec<u64>, Vec<String>)> {
    let body = deletion(0, 1, true);
    let since = Instant::now();
    let found = join_all((0..CONCURRENT_REVIEWS).map(|_| verdict(guard, &body))).await;
    let took = u64::try_from(since.elapsed().as_micros())?;
    for one in found {
        let (found, answer) = one?;
        if found != "allow" {
            return Err(format!("the verdict is {found}, not allow: {answer}").into());
        }
    }
    Ok((vec![took], Vec::new()))
}

/// Runs deletions of all members at once. One is allowed; the others are denied or not checked in
/// time.
async fn race(guard: &dyn Guard) -> Result<(Vec<u64>, Vec<String>)> {
    let bodies: Vec<Vec<u8>> = (0..MEMBERS).map(|number| deletion(0, number, false)).collect();
    let since = Instant::now();
    let found =
        join_all((0..CONCURRENT_REVIEWS).zip(bodies.iter().cycle()).map(|(_, body)| verdict(guard, body)))
            .await;
    let took = u64::try_from(since.elapsed().as_micros())?;
    let mut allowed = Vec::new();
    for (at, one) in found.into_iter().enumerate() {
        if one?.0 == "allow" {
            allowed.push(format!("etcd-0-{}", at % MEMBERS));
        }
    }
    Ok((vec![took], allowed))
}

/// Returns the review of `kubectl delete pod`.
fn deletion(of: usize, number: usize, is_dry: bool) -> Vec<u8> {
    let kind = json!({"group": "", "version": "v1", "kind": "Pod"});
    let resource = json!({"group": "", "version": "v1", "resource": "pods"});
    json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
        "uid": "8c0eef20-00ce-47ba-af61-fa816f692a32", "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
        "name": format!("etcd-{of}-{number}"), "namespace": "db", "operation": "DELETE",
        "userInfo": {"username": "ann", "groups": ["system:authenticated"]}, "object": null, "oldObject": pod(of, number), "dryRun": is_dry,
        "options": {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "propagationPolicy": "Background"}}})
    .to_string()
    .into_bytes()
}
