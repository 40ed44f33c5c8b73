//! `kubectl drain` receives a 429, retries and completes.

use anyhow::Error;
use e2e::etcd_cluster::EtcdCluster;
use e2e::prelude::*;

use super::environment::{Environment, Profile, environment};
use super::quorum::two_followers;

#[e2e::case]
fn a_drain_waits_for_the_other_members_and_completes(context: &'static TestContext) -> Result<()> {
    let Environment { cluster, durward } = environment(context)?;
    let space = environment(context)?.namespace("drain", Profile::Transfer)?;
    let etcd = EtcdCluster::of(3).start(context)?;
    let pods = etcd.pods_in(&space)?;
    let [down, _] = two_followers(&etcd)?;
    let stopped = down.stop()?;
    let leader = etcd.leader()?.name().to_owned();
    let node = pods.node(&leader);
    // Each review is a line of Durward's log.
    let denied = || -> Result<usize> {
        let log = durward.log()?;
        let lines =
            log.lines().filter(|line| line.contains(space.name()) && line.contains("\"answer\":\"deny\""));
        Ok(lines.filter(|line| line.contains("\"subresource\":\"eviction\"")).count())
    };
    let drained = std::thread::scope(|scope| {
        let drain =
            scope.spawn(|| cluster.kubectl().run(&["drain", &node, "--ignore-daemonsets", "--timeout=100s"]));
        let mended = || -> Result<()> {
            // Twice: it was denied and tried again.
            until("the drain to be denied and to retry", || {
                let times = denied()?;
                Ok((times > 1, format!("denied {times} times")))
            })?;
            ensure!(!pods.is_going(&leader)?, "it was deleted with a member down");
            stopped.start()?;
            until("the pod to be deleted", || Ok((pods.is_going(&leader)?, "it is not deleted".to_owned())))?;
            pods.finish(&leader)
        };
        let mended = mended();
        let drained = drain.join().unwrap_or_else(|_| Err(Error::msg("the drain panicked")));
        mended.and(drained)
    })?;
    let said = format!("{}{}", drained.stdout, drained.stderr);
    ensure!(drained.is_success(), "the drain failed: {said}");
    ensure!(said.contains("will retry after 5s"), "it never waited: {said}");
    ensure!(said.contains("leadership moved to") && said.contains("drained"), "{said}");
    ensure!(etcd.leader()?.name() != leader, "the deleted leader still leads");
    Ok(())
}

#[e2e::case]
fn a_dry_run_drain_transfers_nothing(context: &'static TestContext) -> Result<()> {
    let Environment { cluster, .. } = environment(context)?;
    let space = environment(context)?.namespace("tried", Profile::Transfer)?;
    let etcd = EtcdCluster::of(3).start(context)?;
    let pods = etcd.pods_in(&space)?;
    let leader = etcd.leader()?.name();
    let said = cluster.kubectl().run(&["drain", &pods.node(leader), "--dry-run=server"])?;
    ensure!(said.is_success(), "{}", said.stderr);
    ensure!(
        said.stderr.contains("would hand over to"),
        "no member was contacted: {}{}",
        said.stdout,
        said.stderr
    );
    ensure!(etcd.leader()?.name() == leader, "a dry run transferred leadership");
    ensure!(!pods.is_going(leader)?, "the pod is terminating");
    Ok(())
}
