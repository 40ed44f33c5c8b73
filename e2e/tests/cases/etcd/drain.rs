//! `kubectl drain` is told by a 429 to wait, waits, and comes to its end.

use std::time::Duration;

use anyhow::{Error, Result, ensure};
use e2e::ensemble::Ensemble;
use e2e::patience::{Seen, eventually};
use e2e::stage::Stage;

use super::house::{House, Kind, house};
use super::quorum::two_followers;

/// `kubectl drain` tries again every five seconds.
const TRIED_WITHIN: Duration = Duration::from_secs(30);

pub(crate) fn a_drain_waits_for_the_others_and_then_completes(stage: &'static Stage) -> Result<()> {
    let House { cluster, durward } = house(stage)?;
    let space = house(stage)?.namespace("drain", Kind::Transfer)?;
    let ensemble = Ensemble::of(3).start(stage)?;
    let pods = ensemble.pods_in(&space)?;
    let [down, _] = two_followers(&ensemble)?;
    let stopped = down.stop()?;
    let leader = ensemble.leader()?.name().to_owned();
    let node = pods.node(&leader);
    // A line of Durward's log for each review.
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
            // Twice: it was refused, and came again.
            eventually("the drain to be refused and to try again", TRIED_WITHIN, || {
                let times = denied()?;
                Ok(if times > 1 { Seen::Yes(()) } else { Seen::NotYet(format!("refused {times} times")) })
            })?;
            ensure!(!pods.is_going(&leader)?, "it was let go with a member down");
            stopped.start()?;
            eventually("the pod to be let go", TRIED_WITHIN * 2, || {
                Ok(if pods.is_going(&leader)? { Seen::Yes(()) } else { Seen::NotYet("it stays".to_owned()) })
            })?;
            pods.finish(&leader)
        };
        let mended = mended();
        let drained = drain.join().unwrap_or_else(|_| Err(Error::msg("the drain panicked")));
        mended.and(drained)
    })?;
    let said = format!("{}{}", drained.stdout, drained.stderr);
    ensure!(drained.is_success(), "the drain failed: {said}");
    ensure!(said.contains("will retry after 5s"), "it was never told to wait: {said}");
    ensure!(said.contains("leadership moved to") && said.contains("drained"), "{said}");
    ensure!(ensemble.leader()?.name() != leader, "the leader went and still leads");
    Ok(())
}

pub(crate) fn a_drain_that_is_only_tried_moves_nothing(stage: &'static Stage) -> Result<()> {
    let House { cluster, .. } = house(stage)?;
    let space = house(stage)?.namespace("tried", Kind::Transfer)?;
    let ensemble = Ensemble::of(3).start(stage)?;
    let pods = ensemble.pods_in(&space)?;
    let leader = ensemble.leader()?.name();
    let said = cluster.kubectl().run(&["drain", &pods.node(leader), "--dry-run=server"])?;
    ensure!(said.is_success(), "{}", said.stderr);
    ensure!(said.stderr.contains("would hand over to"), "nobody was asked: {}{}", said.stdout, said.stderr);
    ensure!(ensemble.leader()?.name() == leader, "a drain that was only tried moved the leader");
    ensure!(!pods.is_going(leader)?, "it took the pod");
    Ok(())
}
