//! `durward doctor lxcfs`: each state of a node is told, with what mends it, through the API and on the node.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::context::TestContext;
use e2e::daemon::await_frozen;
use e2e::supervisor::Output;
use e2e::wait::{Poll, eventually};

use super::house::{FIRST, House, LXCFS, READY, REPORT, enter, parent};

/// What is shipped looks every two seconds, and what looks for ever at something that hangs gives up after two.
const TOLD_WITHIN: Duration = Duration::from_secs(60);

#[e2e::case]
fn reports_what_pods_see_on_a_healthy_node(context: &'static TestContext) -> Result<()> {
    let stay = enter(context)?;
    for said in [stay.doctor()?, stay.doctor_here()?] {
        ensure!(said.code() == Some(0), "the doctor ends with {said:?}");
        for word in ["LXCFS 5.0.3", "meminfo, swaps: the container's memory limit", "nothing to mend"] {
            ensure!(said.stdout.contains(word), "it does not say {word:?}: {}", said.stdout);
        }
    }
    let through_the_api = stay.doctor()?.stdout;
    for word in ["1 of 1 nodes serve", "node-1  serves", "label", "1000 devices"] {
        ensure!(through_the_api.contains(word), "it does not say {word:?}: {through_the_api}");
    }
    Ok(())
}

#[e2e::case]
fn reports_a_node_without_the_agent(context: &'static TestContext) -> Result<()> {
    let stay = enter(context)?;
    let said = &stay.bare;
    ensure!(said.code() == Some(1), "the doctor ends with {said:?}");
    for word in
        ["0 of 1 nodes", "node-1  unknown", "nothing tells of LXCFS on node-1", "apply -k deploy/lxcfs"]
    {
        ensure!(said.stdout.contains(word), "it does not say {word:?}: {}", said.stdout);
    }
    Ok(())
}

#[e2e::case]
fn reports_how_to_start_lxcfs(context: &'static TestContext) -> Result<()> {
    let stay = enter(context)?;
    let lxcfs = stay.without(LXCFS)?;
    stay.tells(&[
        "node-1  does not serve",
        "LXCFS does not serve what pods are promised: cpuinfo missing, meminfo missing",
        "on the node: does LXCFS run, and is /var/lib/lxcfs mounted",
    ])?;
    stay.tells_here(&[
        "LXCFS is not mounted at /var/lib/lxcfs: /var/lib/lxcfs/proc/cpuinfo is not there",
        "the pod waits (\"hostPath type check failed\")",
    ])?;
    // An injector that sets no type had it made.
    stay.node.run(&["mkdir", "-p", "/var/lib/lxcfs/proc/meminfo"])?.succeeded()?;
    stay.tells(&["meminfo not-a-file"])?;
    stay.tells_here(&["/var/lib/lxcfs/proc/meminfo is not a file", "remove what stands in the way"])?;
    stay.node.run(&["rm", "-r", "/var/lib/lxcfs/proc"])?.succeeded()?;
    lxcfs.back()
}

#[e2e::case]
fn reports_a_hanging_and_a_dead_lxcfs(context: &'static TestContext) -> Result<()> {
    let stay = enter(context)?;
    let process = stay.process()?;
    stay.signal("STOP", process)?;
    let hangs = await_frozen(process)
        .and_then(|()| {
            stay.tells_here(&["does not answer", "whatever reads such a file in a container hangs"])
        })
        .and_then(|()| stay.tells(&["meminfo silent", "is LXCFS stopped, or out of memory?"]));
    stay.signal("CONT", process)?;
    hangs?;
    stay.is_labelled(true)?;

    // Who started it cleans up behind it at once, unless it is stopped too.
    let guardian = parent(process)?;
    stay.signal("STOP", guardian)?;
    let dead = await_frozen(guardian)
        .and_then(|()| stay.signal("KILL", process))
        .and_then(|()| stay.tells_here(&["Transport endpoint is not connected", "umount -l /var/lib/lxcfs"]))
        .and_then(|()| stay.tells(&["meminfo dead", "umount -l /var/lib/lxcfs, then start LXCFS again"]));
    stay.signal("CONT", guardian)?;
    dead
}

#[e2e::case]
fn the_documented_removal_leaves_nothing_on_the_node(context: &'static TestContext) -> Result<()> {
    let stay = enter(context)?;
    let folder = stay.overlay(FIRST)?.display().to_string();
    let kubectl = stay.node.cluster().kubectl();
    kubectl.run(&["delete", "-k", &folder])?.succeeded()?;
    // Whoever kept them leaves them.
    kubectl.run(&["label", "nodes", "--all", &format!("{READY}-")])?.succeeded()?;
    kubectl.run(&["annotate", "nodes", "--all", &format!("{REPORT}-")])?.succeeded()?;
    let seen = (|| {
        eventually("LXCFS to be gone", TOLD_WITHIN, || {
            let mounted = stay.node.run(&["findmnt", "-no", "FSTYPE", "/var/lib/lxcfs"])?.stdout;
            Ok(if mounted.contains("lxcfs") { Poll::Pending(mounted) } else { Poll::Ready(()) })
        })?;
        stay.offers("0")?;
        // The kubelet goes on knowing the resource, of which there is nothing.
        stay.tells(&["nobody tells how LXCFS does there", "nobody offers the resource"])?;
        let node = stay.node.object()?;
        let (labels, annotations) = (&node["metadata"]["labels"], &node["metadata"]["annotations"]);
        ensure!(
            labels[READY].is_null() && annotations[REPORT].is_null(),
            "the Node still says {annotations}"
        );
        Ok(())
    })();
    stay.ship(FIRST)?;
    seen
}

impl House {
    /// Waits until the doctor, asked through the API, says all of this and that there is something to mend.
    pub(super) fn tells(&self, words: &[&str]) -> Result<()> {
        told("through the API", words, || self.doctor())
    }

    /// The same of the doctor on the node.
    fn tells_here(&self, words: &[&str]) -> Result<()> {
        told("on the node", words, || self.doctor_here())
    }
}

fn told(wherefrom: &str, words: &[&str], ask: impl Fn() -> Result<Output>) -> Result<()> {
    eventually(format_args!("the doctor {wherefrom} to say {words:?}"), TOLD_WITHIN, || {
        let said = ask()?;
        let is_so = said.code() == Some(1) && words.iter().all(|word| said.stdout.contains(word));
        Ok(if is_so { Poll::Ready(()) } else { Poll::Pending(format!("{said:?}")) })
    })
}
