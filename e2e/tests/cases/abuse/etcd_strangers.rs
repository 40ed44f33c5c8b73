//! A client without any permission posts reviews to Durward's port. They look like those of the API server and are about objects that it
//! does not have.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Error;
use e2e::etcd_cluster::{self, FakeMember, pods};
use e2e::prelude::*;

use crate::cases::etcd::environment::{Environment, Profile, environment, lease};
use crate::cases::etcd::requests::{delete, dry_run, evict};

/// Forged reviews in all.
const REVIEWS: usize = 600;

/// Clients at once. Durward answers each after a read of the API server.
const CLIENTS: usize = 4;

/// Returns a client of Durward's port that does not verify its certificate.
pub(super) fn stranger(context: &TestContext, durward: &Durward) -> Result<Api> {
    let server = format!("https://{}", durward.reviews());
    context.api(&json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": server, "insecure-skip-tls-verify": true}}],
        "users": [{"name": "x", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
    }))
}

/// Returns a review of the deletion of a pod.
fn deletion(pod: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "0ddba11", "operation": "DELETE", "namespace": pod["metadata"]["namespace"],
            "name": pod["metadata"]["name"], "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "userInfo": {"username": "alice", "groups": ["system:authenticated"]}, "dryRun": false,
            "options": {"apiVersion": "meta.k8s.io/v1", "kind": "DeleteOptions"}, "object": null, "oldObject": pod,
        },
    })
}

/// A change of a review, and whether its answer can be an allow.
type Forgery = (fn(&mut Value), bool);

const FORGERIES: [Forgery; 8] = [
    (|_| (), false),
    (|request| request["oldObject"]["metadata"]["uid"] = "".into(), false),
    (|request| request["oldObject"]["metadata"]["uid"] = Value::Null, false),
    // It never started, so its deletion would be allowed and reserved.
    (|request| request["oldObject"]["status"] = json!({"phase": "Pending"}), false),
    // It is already deleted here, so there is nothing to keep. Its member would be asked.
    (
        |request| {
            request["oldObject"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            request["options"]["gracePeriodSeconds"] = 0.into();
        },
        true,
    ),
    (|request| request["userInfo"]["groups"] = json!(["system:nodes"]), false),
    (
        |request| {
            for at in ["/namespace", "/oldObject/metadata/namespace"] {
                *request.pointer_mut(at).unwrap_or(&mut Value::Null) = "kube-system".into();
            }
        },
        false,
    ),
    // The API server does not have the pod of this eviction.
    (
        |request| {
            let metadata = json!({"name": "etcd-7", "namespace": request["namespace"]});
            request["operation"] = "CREATE".into();
            request["subResource"] = "eviction".into();
            request["name"] = "etcd-7".into();
            request["oldObject"] = Value::Null;
            request["object"] = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata});
        },
        false,
    ),
];

/// Posts the forgery of this number, and checks the answer.
fn post(stranger: &Api, pod: &Value, number: usize, names: &[&str]) -> Result<()> {
    let mut pod = pod.clone();
    pod["metadata"]["uid"] = format!("0ddba11a-0000-4000-8000-{number:012}").into();
    let mut review = deletion(&pod);
    let (forge, can_be_allowed) = FORGERIES[number % FORGERIES.len()];
    forge(&mut review["request"]);
    let answer = stranger.create("/etcd?timeout=10s", &review)?.succeeded()?.body;
    let response = &answer["response"];
    let what = || format!("forgery {} is answered with {answer}", number % FORGERIES.len());
    ensure!(can_be_allowed || response["allowed"] == false, "{}", what());
    if review["request"]["subResource"] == "eviction" {
        ensure!(response["status"]["code"] == 404, "{}", what());
    }
    let text = answer.to_string();
    ensure!(!names.iter().any(|name| text.contains(name)), "{}", what());
    Ok(())
}

#[e2e::case]
fn forged_reviews_write_nothing_and_reach_no_member(context: &'static TestContext) -> Result<()> {
    let Environment { cluster, durward } = environment(context)?;
    let ns = environment(context)?.namespace("forged", Profile::Transfer)?;
    let pods = pods::set(&ns, "etcd", 3, |_| {})?;
    let members = (0..4).map(|_| FakeMember::silent()).collect::<Result<Vec<_>>>()?;
    for (at, member) in members.iter().take(3).enumerate() {
        pods.add(&format!("etcd-{at}"), member.address())?;
    }
    let contacts = || members.iter().map(FakeMember::connections).sum::<usize>();
    // A crashed member that does not answer can be deleted. Its reservation is in the Lease.
    let waiting = json!({"waiting": {"reason": "CrashLoopBackOff"}});
    let crashed = json!({"status": {"containerStatuses": [{
        "name": "etcd", "image": "x", "imageID": "", "ready": false, "restartCount": 7, "state": waiting,
    }]}});
    pods.set_status("etcd-0", &crashed)?;
    delete(&pods, "etcd-0")?.allowed()?;
    let version = || {
        let lease = lease(cluster, ns.name())?.context("no Lease")?;
        Ok::<_, Error>(lease["metadata"]["resourceVersion"].clone())
    };
    let before = (version()?, contacts());

    let mut pod = pods.object("etcd-1")?;
    let [first, .., forged] = &members[..] else { bail!("no members") };
    let (address, own) = (forged.address().to_string(), first.address().to_string());
    pod["status"]["podIP"] = address.clone().into();
    pod["status"]["podIPs"] = json!([{"ip": address}]);
    let stranger = stranger(context, durward)?;
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let work = || -> Result<()> {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= REVIEWS {
                    return Ok(());
                }
                post(&stranger, &pod, number, &["etcd-0", "etcd-2", &own])?;
            }
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(work)).collect();
        let panicked = |_| Err(Error::msg("a client panicked"));
        clients.into_iter().try_for_each(|client| client.join().unwrap_or_else(panicked))
    })?;
    ensure!(version()? == before.0, "the Lease was written");
    ensure!(contacts() == before.1, "{} connections reached a member", contacts() - before.1);

    // A review of the API server asks the members, over connections that are open already.
    let received = || members.iter().map(|member| member.received().len()).sum::<usize>();
    let before = received();
    dry_run(&pods, "etcd-1")?.denied()?;
    ensure!(received() > before, "no member was asked");
    Ok(())
}

#[e2e::case]
fn a_drain_goes_on_if_a_pod_is_gone(context: &'static TestContext) -> Result<()> {
    let Environment { cluster, durward } = environment(context)?;
    let ns = environment(context)?.namespace("gone", Profile::Transfer)?;
    let pods = pods::set(&ns, "etcd", 3, |_| {})?;
    pods.add("etcd-0", etcd_cluster::address()?)?;
    let missing = evict(&pods, "etcd-7")?;
    ensure!(missing.contains(": 404 ") && missing.contains("it does not exist"), "{}", missing.describe());
    let node = pods.node("etcd-0");
    let drained = std::thread::scope(|scope| {
        let drain = scope.spawn(|| cluster.kubectl().run(&["drain", &node, "--timeout=100s"]));
        let gone = || -> Result<()> {
            until("the drain to be denied", || {
                let log = durward.log()?;
                let name = format!("\"namespace\":\"{}\",\"name\":\"etcd-0\"", ns.name());
                let is_denied = log.lines().any(|line| line.contains(&name) && line.contains("\"eviction\""));
                Ok((is_denied, "it is not denied"))
            })?;
            let annotations = json!({"durward.dev/break-glass": "etcd-0"});
            let change = json!({"metadata": {"annotations": annotations}});
            cluster.api().merge(&pods.path("etcd-0"), &change)?.succeeded()?;
            let now = json!({"gracePeriodSeconds": 0});
            cluster.api().delete_with(&pods.path("etcd-0"), &now)?.succeeded().map(drop)
        };
        let gone = gone();
        let drained = drain.join().unwrap_or_else(|_| Err(Error::msg("the drain panicked")));
        gone.and(drained)
    })?;
    let output = format!("{}{}", drained.stdout, drained.stderr);
    ensure!(drained.is_success() && output.contains("drained"), "the drain failed: {output}");
    ensure!(output.contains("will retry after 5s"), "it was never denied: {output}");
    Ok(())
}
