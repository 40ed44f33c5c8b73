//! The LXCFS of the node stops, crashes and starts again.

use e2e::node;
use e2e::prelude::*;

const MEMINFO: &str = "/var/lib/lxcfs/proc/meminfo";

#[e2e::case(Exclusive)]
fn lxcfs_stops_crashes_and_serves_again(context: &TestContext) -> Result<()> {
    let node = context.exclusive_node()?;
    let shop = node.namespace("shop")?;
    let reading_pod = |name: &str| {
        let mount = json!({
            "volumeMounts": [{"name": "meminfo", "mountPath": "/proc/meminfo", "readOnly": true}],
            "resources": {"limits": {"memory": "128Mi"}},
        });
        let volume = json!([{"name": "meminfo", "hostPath": {"path": MEMINFO, "type": "File"}}]);
        let with = |pod: &mut Value| pod["spec"]["volumes"] = volume.clone();
        shop.pod(name).container_like("app", node::idle(mount)).with(with).is_admitted()?;
        anyhow::Ok(node.pod(&shop, name))
    };
    is_mounted_on_node_directory(&node.run(&["cat", "/proc/self/mountinfo"])?.succeeded()?.stdout)?;
    let first = reading_pod("first")?.is_ready()?;
    ensure!(memory_mib(&first)? == "128", "the pod sees {} MiB", memory_mib(&first)?);

    // A regular stop: LXCFS unmounts, and the file of the pod is broken.
    let stopped = node.lxcfs().stop()?;
    // containerd creates a missing source as a directory if a container of another case restarted without LXCFS.
    ensure!(!node.path(MEMINFO).is_file(), "there is still a file");
    let unreadable = first.attempt("app", &["cat", "/proc/meminfo"])?;
    ensure!(unreadable.stderr.contains("not connected"), "the pod reads {unreadable:?} without LXCFS");
    let second = reading_pod("second")?;
    second.await_event("hostPath type check failed")?;
    stopped.undo()?;
    let second = second.is_ready()?;
    ensure!(memory_mib(&second)? == "128", "the waiting pod sees {} MiB", memory_mib(&second)?);

    // A crash: the mount stays and is dead.
    let killed = node.lxcfs().kill()?;
    let dead = std::fs::read(node.path(MEMINFO)).err().and_then(|error| error.raw_os_error());
    ensure!(dead == Some(NOT_CONNECTED), "a read from a dead LXCFS returns {dead:?}");
    killed.undo()?;
    let third = reading_pod("third")?.is_ready()?;
    ensure!(memory_mib(&third)? == "128", "the later pod sees {} MiB", memory_mib(&third)?);
    // However often LXCFS starts, the node's own directory is below its mount: an LXCFS of the host is not
    // visible there.
    is_mounted_on_node_directory(&node.run(&["cat", "/proc/self/mountinfo"])?.succeeded()?.stdout)
}

/// Expects one mount of LXCFS on top of a directory of the run.
fn is_mounted_on_node_directory(mounts: &str) -> Result<()> {
    let mounts: Vec<Vec<&str>> = mounts.lines().map(|line| line.split(' ').collect()).collect();
    let of_the_place: Vec<_> =
        mounts.iter().filter(|mount| mount.get(4) == Some(&"/var/lib/lxcfs")).collect();
    let own = of_the_place
        .iter()
        .find(|mount| mount.get(3).is_some_and(|root| root.ends_with("/disk/var/lib/lxcfs")));
    let upon = of_the_place.iter().find(|mount| own.is_some_and(|own| own.first() == mount.get(1)));
    ensure!(upon.is_some_and(|mount| mount.contains(&"fuse.lxcfs")), "mounted there is {of_the_place:?}");
    Ok(())
}

/// ENOTCONN, "Transport endpoint is not connected".
const NOT_CONNECTED: i32 = 107;

/// Returns the total memory in MiB that `free` prints.
fn memory_mib(pod: &RunningPod<'_>) -> Result<String> {
    let free = pod.exec("app", &["/usr/bin/free", "-m"])?;
    let line = free.lines().nth(1).unwrap_or_default();
    Ok(line.split_ascii_whitespace().nth(1).unwrap_or_default().to_owned())
}
