//! `kubectl drain` receives a 429, retries and completes.

use anyhow::Error;
use e2e::prelude::*;

use super::environment::{Environment, Profile, environment, guarded_etcd};
use super::quorum::two_followers;
use super::requests::{Removal, delete, evict};
use crate::cases::events::await_events;
use crate::cases::objects::contains_all;

#[e2e::case]
fn a_drain_waits_for_the_other_members_and_completes(context: &'static TestContext) -> Result<()> {
    let Environment { cluster, durward } = environment(context)?;
    let (ns, etcd) = guarded_etcd(context, 3, "drain", Profile::Transfer)?;
    let pods = etcd.pods_in(&ns)?;
    let [down, _] = two_followers(&etcd)?;
    let stopped = down.stop()?;
    let leader = etcd.leader()?.name().to_owned();
    let node = pods.node(&leader);
    // Each review is a line of Durward's log.
    let denied = || -> Result<usize> {
        let log = durward.log()?;
        let lines =
            log.lines().filter(|line| line.contains(ns.name()) && line.contains("\"answer\":\"deny\""));
        Ok(lines.filter(|line| line.contains("\"subresource\":\"eviction\"")).count())
    };
    let drained = std::thread::scope(|scope| {
        let drain =
            scope.spawn(|| cluster.kubectl().run(&["drain", &node, "--ignore-daemonsets", "--timeout=100s"]));
        let repaired = || -> Result<()> {
            // Twice: it was denied and tried again.
            until("the drain to be denied and to retry", || {
                let times = denied()?;
                Ok((times > 1, format!("denied {times} times")))
            })?;
            ensure!(!pods.is_terminating(&leader)?, "it was deleted with a member down");
            stopped.undo()?;
            until("the pod to be deleted", || {
                Ok((pods.is_terminating(&leader)?, "it is not deleted".to_owned()))
            })?;
            pods.finish(&leader)
        };
        let repaired = repaired();
        let drained = drain.join().unwrap_or_else(|_| Err(Error::msg("the drain panicked")));
        repaired.and(drained)
    })?;
    let output = format!("{}{}", drained.stdout, drained.stderr);
    ensure!(drained.is_success(), "the drain failed: {output}");
    let retries = output.matches("will retry after 5s").count();
    ensure!(retries > 0, "it never waited: {output}");
    let lines = output.lines().filter(|line| line.contains("would break etcd quorum")).count();
    ensure!(lines == retries && !output.contains("Next:"), "{lines} lines for {retries} retries: {output}");
    ensure!(output.contains("leadership was transferred to") && output.contains("drained"), "{output}");
    ensure!(etcd.leader()?.name() != leader, "the deleted leader still leads");
    Ok(())
}

#[e2e::case]
fn a_dry_run_drain_transfers_nothing(context: &'static TestContext) -> Result<()> {
    let Environment { cluster, .. } = environment(context)?;
    let (ns, etcd) = guarded_etcd(context, 3, "tried", Profile::Transfer)?;
    let pods = etcd.pods_in(&ns)?;
    let leader = etcd.leader()?.name();
    let output = cluster.kubectl().run(&["drain", &pods.node(leader), "--dry-run=server"])?;
    ensure!(output.is_success(), "{}", output.stderr);
    contains_all(&output.stderr, &["would transfer leadership to"])?;
    ensure!(etcd.leader()?.name() == leader, "a dry run transferred leadership");
    ensure!(!pods.is_terminating(leader)?, "the pod is terminating");
    Ok(())
}

#[e2e::case]
fn a_denied_eviction_has_one_event_of_the_pod(context: &'static TestContext) -> Result<()> {
    let Environment { cluster, .. } = environment(context)?;
    let (ns, etcd) = guarded_etcd(context, 3, "reported", Profile::Transfer)?;
    let pods = etcd.pods_in(&ns)?;
    let [down, up] = two_followers(&etcd)?;
    let stopped = down.stop()?;
    Removal::Evict.dry_run_by_options(cluster.api(), &pods, up.name())?.denied()?;
    evict(&pods, up.name())?.denied()?;
    evict(&pods, up.name())?.denied()?;
    let denied = await_events(cluster, ns.name(), &format!("pod/{}", up.name()), 1)?.concat();
    contains_all(&denied, &["EvictionDenied", "would break etcd quorum"])?;
    delete(&pods, up.name())?.denied()?;
    await_events(cluster, ns.name(), &format!("pod/{}", up.name()), 2)?;
    let described = cluster.kubectl().run(&["describe", "pod", up.name(), "-n", ns.name()])?.succeeded()?;
    contains_all(&described.stdout, &["DeletionDenied", "EvictionDenied", "durward.dev/durward"])?;
    stopped.undo()
}
