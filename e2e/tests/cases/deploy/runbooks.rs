//! The commands of the runbooks about LXCFS, run as the pages have them.

use e2e::prelude::*;
use e2e::{context, node};

use super::environment::{Environment, LABEL_AGENT, LXCFS, exclusive};
use crate::cases::environment::{OPT_IN, OPTED_IN, await_injection, eventually_ok, opted_in};
use crate::cases::files::{DEFAULT_FILES, LxcfsChecks as _};
use crate::cases::pages::{Expect, Shell};

/// Returns a shell in the directory of `durward.yaml`, with the pod of the pages in `pod.yaml`.
fn shell(fixture: &Environment) -> Result<Shell<'static>> {
    let directory = fixture.installation.config().parent().context("a file without a directory")?;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "annotations": {OPT_IN: "enabled"}},
        "spec": {"containers": [node::idle(json!({"name": "app"}))]},
    });
    context::write(directory, "pod.yaml", &pod.to_string())?;
    Shell::new(fixture.context, fixture.node.cluster(), directory)
}

#[e2e::case]
fn the_runbook_for_pods_works(context: &'static TestContext) -> Result<()> {
    let fixture = exclusive(context)?;
    let shell = shell(&fixture)?;
    let shop = fixture.node.cluster().exact_namespace("shop", &OPTED_IN)?;
    let without_files = |pod: Pod<'_>| {
        eventually_ok("a pod without files", || pod.clone().as_dry_run().is_admitted()?.untouched())
    };
    shell.run("kubectl apply -f pod.yaml")?.succeeded()?;
    let followed = shell.run_page("runbooks/lxcfs-pods.md", |_, command| {
        if command.contains("label namespace") {
            shop.pod("plain").as_dry_run().is_admitted()?.with_files(&DEFAULT_FILES)?;
        } else if command.contains("delete mutatingwebhookconfiguration") {
            without_files(shop.pod("plain"))?;
        } else if command.contains("inject pod.yaml") {
            without_files(opted_in(&shop, "web"))?;
        } else if command.contains("-o json |") {
            let printed = shell.run(command)?.succeeded()?.stdout;
            ensure!(printed.is_empty(), "a pod with all files would be changed: {printed}");
        } else if command.contains("allocatable") {
            // On a busy machine, the device plugin can find LXCFS unhealthy for a moment.
            fixture.await_devices("1k")?;
        }
        Ok(Expect::Success)
    });
    shell.restore_webhooks()?;
    await_injection(&shop)?;
    // A pod without a controller blocks drains of other cases.
    shell.run("kubectl delete -f pod.yaml --now")?.succeeded()?;
    followed
}

#[e2e::case]
fn the_runbook_for_a_node_works(context: &'static TestContext) -> Result<()> {
    let fixture = exclusive(context)?;
    let (node, shell) = (fixture.node, shell(&fixture)?);
    let mut lxcfs = Some(fixture.remove(LXCFS)?);
    // A runtime creates such a directory when a container restarts without LXCFS.
    node.run(&["mkdir", "-p", "/var/lib/lxcfs/proc/meminfo"])?.succeeded()?;
    fixture.await_diagnosis(&["meminfo not-a-file"])?;
    shell.run_page("runbooks/lxcfs-nodes.md", |_, command| {
        if command.contains("--local") {
            *command = command.replace("POD", &fixture.pod_name(LABEL_AGENT)?);
            return Ok(Expect::Report("/var/lib/lxcfs/proc/meminfo is not a file"));
        } else if command.contains("doctor") {
            return Ok(Expect::Report("meminfo not-a-file"));
        } else if command.starts_with("find") {
            // This page has it for a shell on the node.
            node.run(&["sh", "-c", command])?.succeeded()?;
            let is_empty = std::fs::read_dir(node.path("/var/lib/lxcfs"))?.next().is_none();
            ensure!(is_empty, "{command} left something");
            lxcfs.take().context("LXCFS runs already")?.restore()?;
            return Ok(Expect::Skip);
        } else if command.contains("--previous") {
            fixture.signal("KILL", fixture.process()?)?;
            until("the container to be restarted", || {
                let status = &fixture.pod(LXCFS)?["status"]["containerStatuses"][0];
                Ok((status["restartCount"] != 0, status.to_string()))
            })?;
            *command = command.replace("POD", &fixture.pod_name(LXCFS)?);
        }
        Ok(Expect::Success)
    })?;
    // Another case expects a container that was never restarted.
    fixture.remove(LXCFS)?.restore()
}
