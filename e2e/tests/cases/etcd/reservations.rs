//! Reservations: a deletion is recorded in a Lease before it is allowed. Every replica of Durward reads the
//! Lease.
//!
//! The cases send reviews to two replicas at the same moment, as two API servers would do.

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Error;
use e2e::certificates;
use e2e::etcd_cluster::EtcdCluster;
use e2e::etcd_cluster::pods::Pods;
use e2e::prelude::*;
use rustix::process::Signal;

use super::environment::{Profile, await_guard, guarded_etcd, guards, lease, namespace, scratch};
use super::quorum::two_followers;
use super::requests::{Removal, delete, dry_run, evict};
use crate::cases::attempt::await_denied;

/// Number of attempts to make two deletions pass.
const ROUNDS: usize = 5;

/// A reservation without a deletion expires after this time.
const RESERVATION_EXPIRY: Duration = Duration::from_secs(45);

/// A replica that the case calls like an API server.
struct Replica {
    durward: Durward,
    durward_namespace: Api,
}

impl Replica {
    fn start(context: &TestContext, installation: &Installation<'_>, name: &str) -> Result<Self> {
        let durward = installation.serve().named(name).start_ready(context)?;
        let url = format!("https://{}", durward.reviews());
        let way = certificates::kubeconfig(&url, installation.ca(), &json!({}));
        Ok(Self { durward, durward_namespace: context.api(&way)? })
    }

    /// Returns whether this pod can be deleted, and the message.
    fn review(&self, pod: &Value) -> Result<(bool, String)> {
        let name = |field: &str| pod["metadata"][field].clone();
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": format!("about-{}", pod["metadata"]["uid"].as_str().unwrap_or_default()),
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
                "requestResource": {"group": "", "version": "v1", "resource": "pods"},
                "name": name("name"), "namespace": name("namespace"), "operation": "DELETE",
                "userInfo": {"username": "alice", "groups": ["system:authenticated"]},
                "object": null, "oldObject": pod, "dryRun": false,
                "options": {"apiVersion": "meta.k8s.io/v1", "kind": "DeleteOptions"},
            },
        });
        let output = self.durward_namespace.create("/etcd?timeout=10s", &review)?.succeeded()?.body;
        let response = &output["response"];
        let message = response["status"]["message"].as_str().unwrap_or_default().to_owned();
        response["allowed"]
            .as_bool()
            .map(|allowed| (allowed, message))
            .ok_or_else(|| Error::msg(output.to_string()))
    }
}

/// Reviews these pods at the same moment, alternating between the replicas. Returns the names of the allowed
/// ones.
fn review_at_once(replicas: &[Replica; 2], pods: &[Value]) -> Result<BTreeSet<String>> {
    let barrier = Barrier::new(pods.len());
    let verdicts = std::thread::scope(|scope| {
        let requests = pods.iter().zip(replicas.iter().cycle()).map(|(pod, replica)| {
            let barrier = &barrier;
            scope.spawn(move || {
                barrier.wait();
                replica.review(pod).map(|(allowed, _)| (pod, allowed))
            })
        });
        let requests: Vec<_> = requests.collect();
        let panicked = |_| Err(Error::msg("a question panicked"));
        requests.into_iter().map(|one| one.join().unwrap_or_else(panicked)).collect::<Result<Vec<_>>>()
    })?;
    let allowed = verdicts.into_iter().filter(|(_, allowed)| *allowed);
    Ok(allowed.filter_map(|(pod, _)| pod["metadata"]["name"].as_str().map(ToOwned::to_owned)).collect())
}

fn two_replicas<'a>(
    context: &'a TestContext,
    installation: &mut Installation<'a>,
    service: &e2e::service::Service<'_>,
) -> Result<[Replica; 2]> {
    let replicas = [
        Replica::start(context, installation, "durward-etcd-a")?,
        Replica::start(context, installation, "durward-etcd-b")?,
    ];
    let [a, b] = &replicas;
    service.set_endpoints(a.durward.reviews(), b.durward.reviews())?;
    installation.register()?;
    Ok(replicas)
}

#[e2e::case]
fn two_replicas_allow_one_of_two_concurrent_deletions(context: &'static TestContext) -> Result<()> {
    let cluster = scratch(context)?;
    let durward_namespace = cluster.namespace("serving")?;
    let service = durward_namespace.service("durward")?;
    let mut installation = Installation::by_service(context, cluster, &service, &guards(&[]))?;
    let replicas = two_replicas(context, &mut installation, &service)?;
    await_guard(cluster)?;

    let ns = namespace(cluster, "three", Profile::Transfer)?;
    let etcd = EtcdCluster::of(3).start(context)?;
    let pods = etcd.pods_in(&ns)?;
    for round in 0..ROUNDS {
        // All three members, or two of them with or without the leader.
        let names: Vec<&str> = if round == 0 {
            etcd.members().iter().map(e2e::etcd_cluster::Member::name).collect()
        } else if round % 2 == 0 {
            vec![etcd.leader()?.name(), etcd.follower()?.name()]
        } else {
            two_followers(&etcd)?.map(e2e::etcd_cluster::Member::name).to_vec()
        };
        let requests = names.iter().map(|name| pods.object(name)).collect::<Result<Vec<_>>>()?;
        let allowed_names = review_at_once(&replicas, &requests)?;
        ensure!(allowed_names.len() == 1, "round {round}: {allowed_names:?} of {names:?} are allowed");
        for name in &allowed_names {
            // The allowed pod is allowed again through the API server, and no other one is.
            delete(&pods, name)?.allowed()?;
            for other in names.iter().filter(|other| !allowed_names.contains(**other)) {
                delete(&pods, other)?.denied()?.with_cause(name, "Leaving")?;
            }
            pods.replace(name)?;
        }
    }

    let ns = namespace(cluster, "five", Profile::Transfer)?;
    let five = EtcdCluster::of(5).start(context)?;
    let of_five = five.pods_in(&ns)?;
    let names: Vec<&str> = five.members().iter().map(e2e::etcd_cluster::Member::name).collect();
    let requests = names.iter().map(|name| of_five.object(name)).collect::<Result<Vec<_>>>()?;
    let allowed_names = review_at_once(&replicas, &requests)?;
    ensure!(allowed_names.len() == 1, "{allowed_names:?} of five are allowed");
    Ok(())
}

/// One replica and the API server itself, in every way.
#[e2e::case]
fn one_of_two_concurrent_evictions_or_deletions_is_allowed(context: &'static TestContext) -> Result<()> {
    let (ns, etcd) = guarded_etcd(context, 3, "at-once", Profile::Transfer)?;
    let pods = etcd.pods_in(&ns)?;
    let api = ns.cluster().api();
    for (one, other) in [
        (Removal::Evict, Removal::Evict),
        (Removal::Evict, Removal::Delete),
        (Removal::EvictBeta, Removal::Delete),
    ] {
        let names = [etcd.leader()?.name(), etcd.follower()?.name()];
        let barrier = Barrier::new(2);
        let go = |way: Removal, name: &str| {
            barrier.wait();
            way.send(api, &pods, name)
        };
        let attempts = std::thread::scope(|scope| {
            let first = scope.spawn(|| go(one, names[0]));
            let second = go(other, names[1]);
            first
                .join()
                .unwrap_or_else(|_| Err(Error::msg("an eviction panicked")))
                .and_then(|a| Ok([a, second?]))
        })?;
        let text = || format!("{} and {}", attempts[0].describe(), attempts[1].describe());
        let allowed_names = attempts.iter().filter(|attempt| attempt.is_allowed()).count();
        ensure!(allowed_names == 1, "{allowed_names} of two are allowed: {}", text());
        let [first, second] = attempts;
        let (gone, denied) = if first.is_allowed() { (names[0], second) } else { (names[1], first) };
        let denied = denied.denied()?;
        // On a busy machine, another member can be late with a read too.
        if !denied.describe().contains("no linearizable read") {
            denied.with_message(&[gone])?;
        }
        pods.replace(gone)?;
    }
    Ok(())
}

#[e2e::case(Slow)]
fn the_reservation_of_a_killed_replica_lasts_45_seconds(context: &'static TestContext) -> Result<()> {
    let cluster = scratch(context)?;
    let durward_namespace = cluster.namespace("serving")?;
    let service = durward_namespace.service("durward")?;
    let mut installation = Installation::by_service(context, cluster, &service, &guards(&[]))?;
    let [a, b] = two_replicas(context, &mut installation, &service)?;
    await_guard(cluster)?;
    let ns = namespace(cluster, "killed", Profile::Transfer)?;
    let etcd = EtcdCluster::of(3).start(context)?;
    let pods = etcd.pods_in(&ns)?;
    let [one, other] = two_followers(&etcd)?;
    let (first, second) = (pods.object(one.name())?, pods.object(other.name())?);
    let began = std::time::Instant::now();
    ensure!(a.review(&first)?.0, "a deletion in a healthy etcd cluster is denied");
    a.durward.signal(Signal::KILL)?;
    service.set_endpoint(b.durward.reviews())?;
    let (allowed, output) = b.review(&second)?;
    ensure!(!allowed && output.contains("was allowed a moment ago"), "{output}");
    // The same pod is allowed again.
    ensure!(b.review(&first)?.0, "the second deletion is denied");
    until("the reservation to expire", || {
        let (allowed, output) = b.review(&second)?;
        Ok((allowed, output))
    })?;
    let held = began.elapsed();
    ensure!(held > RESERVATION_EXPIRY, "it expired after {held:?}");
    Ok(())
}

/// An allowed review is not a deletion: a PDB denies the eviction after the guard, and the pod stays.
#[e2e::case]
fn an_eviction_denied_by_a_pdb_keeps_its_reservation(context: &'static TestContext) -> Result<()> {
    let (ns, etcd) = guarded_etcd(context, 3, "budget", Profile::Transfer)?;
    let pods = etcd.pods_in(&ns)?;
    // No controller updates its status, so it allows no eviction.
    let pdb = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "etcd"},
        "spec": {"minAvailable": 3, "selector": {"matchLabels": {"app": "etcd"}}},
    });
    let path = ns.path("policy/v1/poddisruptionbudgets");
    ns.cluster().api().create(&path, &pdb)?.succeeded()?;
    let [one, other] = two_followers(&etcd)?;
    let attempt = evict(&pods, one.name())?;
    ensure!(!attempt.is_allowed() && attempt.describe().contains("budget"), "{}", attempt.describe());
    ensure!(!pods.is_terminating(one.name())?, "it is deleted despite its PDB");
    delete(&pods, other.name())?
        .denied()?
        .with_message(&[&format!("the deletion of {} was allowed a moment ago", one.name())])?;
    delete(&pods, one.name())?.allowed()?;
    pods.replace(one.name())?;
    delete(&pods, other.name())?.allowed().map(drop)
}

#[e2e::case]
fn without_a_reservation_no_healthy_member_is_deleted(context: &'static TestContext) -> Result<()> {
    let cluster = scratch(context)?;
    let (installation, _durward) = super::environment::installed(context, cluster, &[])?;
    let ns = namespace(cluster, "unnoted", Profile::Transfer)?;
    let etcd = EtcdCluster::of(3).start(context)?;
    let pods: Pods<'_> = etcd.pods_in(&ns)?;
    let [one, other] = two_followers(&etcd)?;
    cluster.kubectl().run(&["-n", "durward-system", "delete", "rolebindings", "--all"])?.succeeded()?;
    let try_one = || dry_run(&pods, one.name());
    await_denied("the permission to be removed", try_one)?;
    for name in [one.name(), etcd.leader()?.name()] {
        let denied = delete(&pods, name)?.denied()?;
        denied.with_message(&["Durward cannot record the deletion", "leases"])?;
    }
    let stopped = other.stop()?;
    delete(&pods, other.name())?.allowed()?;
    drop(stopped);
    pods.replace(other.name())?;
    other.await_reads(Duration::from_secs(60))?;
    installation.grant()
}

#[e2e::case]
fn a_pod_that_was_never_scheduled_leaves_no_lease(context: &'static TestContext) -> Result<()> {
    let (ns, etcd) = guarded_etcd(context, 3, "pending", Profile::Transfer)?;
    let pods = etcd.pods_in(&ns)?;
    let address = etcd.leader()?.address();
    for name in ["etcd-7", "etcd-8"] {
        let unscheduled =
            |pod: &mut Value| drop(pod["spec"].as_object_mut().map(|spec| spec.remove("nodeName")));
        pods.add_like(name, address, unscheduled)?;
        delete(&pods, name)?.allowed()?;
    }
    ensure!(lease(ns.cluster(), ns.name())?.is_none(), "there is a reservation");
    Ok(())
}

/// A PDB that allows nothing denies each eviction after the guard has allowed it.
#[e2e::case(Soak)]
fn a_removal_that_is_denied_later_blocks_others_for_105_seconds(context: &'static TestContext) -> Result<()> {
    let (ns, etcd) = guarded_etcd(context, 3, "refused", Profile::Transfer)?;
    let pods = etcd.pods_in(&ns)?;
    let pdb = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "etcd"},
        "spec": {"minAvailable": 3, "selector": {"matchLabels": {"app": "etcd"}}},
    });
    ns.cluster().api().create(&ns.path("policy/v1/poddisruptionbudgets"), &pdb)?.succeeded()?;
    let [one, other] = two_followers(&etcd)?;
    // One try, and then tries every five seconds as a drain makes them: the last one that renews is 55 or 60 s after the first.
    for (tries, least, most) in [(1, 45, 55), (100, 99, 110)] {
        let began = std::time::Instant::now();
        let mut tried = 0;
        let blocked = eventually("the other member to be allowed", Duration::from_secs(150), || {
            if tried < tries && began.elapsed() >= tried * Duration::from_secs(5) {
                tried += 1;
                let attempt = evict(&pods, one.name())?;
                ensure!(!attempt.is_allowed(), "the PDB allowed it");
            }
            let attempt = dry_run(&pods, other.name())?;
            let blocked = began.elapsed();
            Ok(if attempt.is_allowed() { Poll::Ready(blocked) } else { Poll::Pending(attempt.describe()) })
        })?;
        let limits = Duration::from_secs(least)..Duration::from_secs(most);
        ensure!(limits.contains(&blocked), "the other member waited {blocked:?} after {tries} tries");
    }
    Ok(())
}

/// One member is dead for good. Two drains of two pods each wait for each other with 429, and for nothing else.
#[e2e::case(Soak)]
fn two_drains_of_five_members_with_a_dead_one_end_within_90_seconds(
    context: &'static TestContext,
) -> Result<()> {
    let (ns, etcd) = guarded_etcd(context, 5, "drains", Profile::Transfer)?;
    let pods = etcd.pods_in(&ns)?;
    let kubectl = ns.cluster().kubectl();
    let followers = etcd.followers()?;
    let [dead, a, b, c] = followers[..] else { bail!("there are not four followers") };
    let _dead = dead.kill()?;
    let began = std::time::Instant::now();
    let nodes = |names: [&str; 2]| names.map(|name| pods.node(name));
    let drained = AtomicUsize::new(0);
    let drain = |names: [&str; 2]| {
        let [first, second] = nodes(names);
        let output = kubectl.run(&["drain", &first, &second, "--ignore-daemonsets", "--timeout=150s"]);
        drained.fetch_add(1, Ordering::Relaxed);
        let output = output?;
        ensure!(output.is_success(), "the drain failed: {}{}", output.stdout, output.stderr);
        Ok(())
    };
    let leader = etcd.leader()?.name();
    let pairs = [[leader, a.name()], [b.name(), c.name()]];
    std::thread::scope(|scope| {
        let drains = pairs.map(|pair| scope.spawn(move || drain(pair)));
        // The steps of kubelet and controller.
        while drained.load(Ordering::Relaxed) < drains.len() {
            for name in pairs.as_flattened() {
                if pods.is_terminating(name)? {
                    pods.replace(name)?;
                }
            }
            std::thread::sleep(Duration::from_millis(500));
        }
        let panicked = |_| Err(Error::msg("a drain panicked"));
        drains.into_iter().try_for_each(|one| one.join().unwrap_or_else(panicked))
    })?;
    let took = began.elapsed();
    ensure!(took < Duration::from_secs(90), "the drains took {took:?}");
    Ok(())
}
