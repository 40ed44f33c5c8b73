//! A client without any permission posts reviews of deletions to Durward's port. Their objects have uids that the API server does not
//! have.

use e2e::fault::{Fault, Proxy};
use e2e::prelude::*;

use super::etcd_strangers::stranger;
use crate::cases::attempt::{Attempt, DELETION, retry_until};
use crate::cases::environment::scratch;

const GUARDS: &str = "  deletion: {fleet: {secrets: {}}}";

/// The name that no stranger may learn.
const POD: &str = "hidden-from-strangers";

/// Creates the Secret of a member cluster: the same API server, behind a proxy that counts its requests.
fn add_member(cluster: &Cluster, installation: &Installation<'_>, proxy: &Proxy) -> Result<()> {
    let mut kubeconfig: Value = serde_json::from_slice(&std::fs::read(installation.kubeconfig())?)?;
    kubeconfig["clusters"][0]["cluster"]["server"] = proxy.url().into();
    let metadata =
        json!({"name": "m1", "namespace": "durward-system", "labels": {"durward.dev/fleet": "member"}});
    let data = json!({"kubeconfig": kubeconfig.to_string()});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data});
    cluster.kubectl().apply(&secret.to_string())?.succeeded().map(drop)
}

/// Returns a review of the deletion of a namespace.
fn review(namespace: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "0ddba11", "operation": "DELETE", "namespace": namespace["metadata"]["name"],
            "name": namespace["metadata"]["name"], "kind": {"group": "", "version": "v1", "kind": "Namespace"},
            "resource": {"group": "", "version": "v1", "resource": "namespaces"},
            "userInfo": {"username": "alice", "groups": ["system:authenticated"]}, "dryRun": false,
            "options": {"apiVersion": "meta.k8s.io/v1", "kind": "DeleteOptions"},
            "object": null, "oldObject": namespace,
        },
    })
}

#[e2e::case]
fn a_forged_uid_reads_no_member_and_shows_no_name(context: &'static TestContext) -> Result<()> {
    let cluster = context.cluster(&scratch())?;
    let mut installation = Installation::by_url(context, &cluster, GUARDS)?;
    let proxy = Proxy::before(cluster.url(), cluster.ca())?;
    add_member(&cluster, &installation, &proxy)?;
    let durward = installation.serve().named("durward-strangers").start_ready(context)?;
    installation.register()?;
    let shop = cluster.namespace("shop")?;
    shop.pod(POD).is_admitted()?;
    let path = format!("/api/v1/namespaces/{}", shop.name());
    let dry_run = format!("{path}?dryRun=All");
    let send = || Ok(Attempt::new(cluster.api().delete(&dry_run)?, &DELETION));
    let reads = proxy.on(&path).answers(Fault::Slow(Duration::ZERO));
    retry_until("the guard to read the member", send, |attempt| {
        attempt.is_denied() && attempt.contains(&format!("m1: 1 pod ({POD})"))
    })?;
    ensure!(reads.hits() > 0, "the member was not read");

    let stranger = stranger(context, &durward)?;
    let namespace = cluster.api().get(&path)?.succeeded()?.body;
    let before = reads.hits();
    for uid in [json!("0ddba11a-0000-4000-8000-000000000000"), json!(""), Value::Null] {
        let mut forged = namespace.clone();
        forged["metadata"]["uid"] = uid;
        let answer = stranger.create("/deletion?timeout=10s", &review(&forged))?.succeeded()?.body;
        ensure!(answer["response"]["allowed"] == false, "{answer}");
        let text = answer.to_string();
        ensure!(!text.contains(POD) && !text.contains("https://"), "{answer}");
    }
    let more = reads.hits() - before;
    ensure!(more == 0, "{more} requests reached the member cluster");
    drop(reads);
    cluster.kubectl().run(&["-n", "durward-system", "delete", "secret", "m1"])?.succeeded().map(drop)
}
