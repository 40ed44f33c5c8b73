//! `durward doctor lxcfs` reports each state of a node with a fix, through the API and on the node.

use e2e::daemon::await_frozen;
use e2e::prelude::*;

use super::environment::{Environment, FIRST_IMAGE, LXCFS, READY, REPORT, exclusive, parent};
use crate::cases::objects::contains_all;

#[e2e::case]
fn reports_what_pods_see_on_a_healthy_node(context: &'static TestContext) -> Result<()> {
    let fixture = exclusive(context)?;
    let is_healthy = |output: &Output| {
        output.exited_with(0)?;
        contains_all(&output.stdout, &["meminfo, swaps: the container's memory limit", "no problems found"])
    };
    is_healthy(&fixture.doctor()?)?;
    // Beside other cases, LXCFS can answer a probe late.
    until("the node to be healthy", || {
        let output = fixture.doctor_on_node()?;
        Ok((is_healthy(&output).is_ok(), format!("{output:?}")))
    })?;
    let through_the_api = fixture.doctor()?.stdout;
    contains_all(&through_the_api, &["1 of 1 nodes serve", "node-1  serves", "label", "1000 devices"])?;
    Ok(())
}

#[e2e::case]
fn reports_a_node_without_the_agent(context: &'static TestContext) -> Result<()> {
    let fixture = exclusive(context)?;
    let output = &fixture.doctor_before;
    output.exited_with(1)?;
    contains_all(
        &output.stdout,
        &["0 of 1 nodes", "node-1  unknown", "no information about LXCFS on node-1", "apply -k deploy/lxcfs"],
    )?;
    Ok(())
}

#[e2e::case]
fn reports_how_to_start_lxcfs(context: &'static TestContext) -> Result<()> {
    let fixture = exclusive(context)?;
    let lxcfs = fixture.remove(LXCFS)?;
    fixture.await_diagnosis(&[
        "node-1  does not serve",
        "LXCFS does not serve all files: cpuinfo missing, meminfo missing",
        "on the node: check that LXCFS runs and is mounted",
    ])?;
    fixture.await_diagnosis_on_node(&[
        "LXCFS is not mounted at /var/lib/lxcfs: /var/lib/lxcfs/proc/cpuinfo does not exist",
        "the pod waits (\"hostPath type check failed\")",
    ])?;
    // An injector without a hostPath type creates such a directory.
    fixture.node.run(&["mkdir", "-p", "/var/lib/lxcfs/proc/meminfo"])?.succeeded()?;
    fixture.await_diagnosis(&["meminfo not-a-file"])?;
    fixture.await_diagnosis_on_node(&[
        "/var/lib/lxcfs/proc/meminfo is not a file",
        "remove the directory in place of the file",
    ])?;
    fixture.node.run(&["rm", "-r", "/var/lib/lxcfs/proc"])?.succeeded()?;
    lxcfs.restore()
}

#[e2e::case]
fn reports_a_hanging_and_a_dead_lxcfs(context: &'static TestContext) -> Result<()> {
    let fixture = exclusive(context)?;
    let process = fixture.process()?;
    fixture.signal("STOP", process)?;
    let hangs = await_frozen(process)
        .and_then(|()| {
            fixture.await_diagnosis_on_node(&["does not answer", "reads of such a file in a container hang"])
        })
        .and_then(|()| fixture.await_diagnosis(&["meminfo silent", "check whether LXCFS hangs"]));
    fixture.signal("CONT", process)?;
    hangs?;
    fixture.await_label(true)?;

    // The parent process cleans up at once, unless it is stopped too.
    let guardian = parent(process)?;
    fixture.signal("STOP", guardian)?;
    let has_dead_files = await_frozen(guardian)
        .and_then(|()| fixture.signal("KILL", process))
        .and_then(|()| {
            fixture
                .await_diagnosis_on_node(&["Transport endpoint is not connected", "umount -l /var/lib/lxcfs"])
        })
        .and_then(|()| {
            fixture.await_diagnosis(&["meminfo dead", "umount -l /var/lib/lxcfs, then start LXCFS"])
        });
    fixture.signal("CONT", guardian)?;
    has_dead_files
}

#[e2e::case]
fn the_documented_removal_leaves_nothing_on_the_node(context: &'static TestContext) -> Result<()> {
    let fixture = exclusive(context)?;
    let directory = fixture.kustomization(FIRST_IMAGE)?.display().to_string();
    let kubectl = fixture.node.cluster().kubectl();
    kubectl.run(&["delete", "-k", &directory])?.succeeded()?;
    // The agent's label and annotation remain after its removal.
    kubectl.run(&["label", "nodes", "--all", &format!("{READY}-")])?.succeeded()?;
    kubectl.run(&["annotate", "nodes", "--all", &format!("{REPORT}-")])?.succeeded()?;
    let seen = (|| {
        until("LXCFS to be gone", || {
            let mounted = fixture.node.run(&["findmnt", "-no", "FSTYPE", "/var/lib/lxcfs"])?.stdout;
            Ok((!mounted.contains("lxcfs"), mounted))
        })?;
        fixture.await_devices("0")?;
        // The kubelet still lists the resource, with a quantity of zero.
        fixture.await_diagnosis(&["lxcfs-node is missing", "does not offer the resource"])?;
        let node = fixture.node.object()?;
        let (labels, annotations) = (&node["metadata"]["labels"], &node["metadata"]["annotations"]);
        ensure!(labels[READY].is_null() && annotations[REPORT].is_null(), "the Node still has {annotations}");
        Ok(())
    })();
    fixture.deploy(FIRST_IMAGE)?;
    seen
}

impl Environment {
    /// Waits until the doctor through the API reports all of this and exits with one.
    pub(super) fn await_diagnosis(&self, words: &[&str]) -> Result<()> {
        await_output("through the API", words, || self.doctor())
    }

    /// Does the same with the doctor on the node.
    fn await_diagnosis_on_node(&self, words: &[&str]) -> Result<()> {
        await_output("on the node", words, || self.doctor_on_node())
    }
}

fn await_output(wherefrom: &str, words: &[&str], ask: impl Fn() -> Result<Output>) -> Result<()> {
    until(format_args!("the doctor {wherefrom} to report {words:?}"), || {
        let output = ask()?;
        let is_so = output.code() == Some(1) && words.iter().all(|word| output.stdout.contains(word));
        Ok((is_so, format!("{output:?}")))
    })
}
