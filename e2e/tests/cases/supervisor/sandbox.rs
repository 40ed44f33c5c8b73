//! Nothing of a node's sandbox is left behind or visible on the host.
//!
//! The victims do in a [`Sandbox`] what kubelet, containerd, the bridge plugin and LXCFS do: bridges, mounts,
//! FUSE, sysctls. Processes in its cgroup have no mark in their environment, and fork faster than a list is
//! read.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::node::Sandbox;
use e2e::prelude::*;
use e2e::supervisor::host_state::{HostState, work_folder};
use e2e::supervisor::{Process, Supervisor, Tool, journal};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{CLEAN_WITHIN, Victim, await_words};

/// The environment variable that gives a victim a sandbox, unless it is empty.
pub(super) const WANTED: &str = "DURWARD_E2E_VICTIM_GROUND";

/// Time for a command in the sandbox, on a loaded machine.
const AT_ONCE: Duration = Duration::from_secs(60);

#[e2e::case]
fn a_sandbox_is_not_visible_on_the_host(context: &TestContext) -> Result<()> {
    let before = HostState::now()?;
    let victim = start(context, "wait", None)?;
    let seen = before.difference(&HostState::now()?, &ours(&victim));
    let of_the_run = |line: &&String| {
        let is_the_link = line.contains(&word(&victim, "link"));
        // Processes of the sandbox are visible on the host. Its mounts must not be.
        let is_a_process = line.starts_with("+ process ");
        is_the_link || is_a_process || line.contains(&word(&victim, "cgroup")) || line.contains("10.99.")
    };
    let others: Vec<_> = seen.iter().filter(|line| !of_the_run(line)).collect();
    ensure!(others.is_empty(), "this host shows what only the node should: {others:#?}");
    ensure!(seen.iter().any(|line| line.starts_with("+ cgroup")), "no cgroup, so the case proves nothing");
    ensure!(seen.iter().any(|line| line.starts_with("+ link")), "no link, so the case proves nothing");
    victim.part.signal(Signal::TERM)?;
    victim.end()?;
    left_nothing(&before, &victim)
}

#[e2e::case]
fn a_sandbox_leaves_nothing_behind_after_a_successful_run(context: &TestContext) -> Result<()> {
    let before = HostState::now()?;
    let victim = start(context, "pass", None)?;
    ensure!(victim.end()? == Exit::Code(0), "the victim failed: {}", victim.part.log_tail(20));
    // No waiting: when the supervisor exits, everything is restored.
    let left = before.difference(&HostState::now()?, &ours(&victim));
    ensure!(left.is_empty(), "left behind: {left:#?}");
    victim.left_nothing()
}

#[e2e::case]
fn a_sandbox_leaves_nothing_behind_after_sigkill(context: &TestContext) -> Result<()> {
    let before = HostState::now()?;
    let victim = start(context, "wait", None)?;
    left_something(&before, &victim)?;
    victim.part.signal(Signal::KILL)?;
    ensure!(victim.end()? == Exit::Signal(Signal::KILL.as_raw()), "the victim ended otherwise");
    left_nothing(&before, &victim)
}

#[e2e::case]
fn the_next_run_cleans_up_the_sandbox_of_a_killed_supervisor(context: &TestContext) -> Result<()> {
    let before = HostState::now()?;
    let victim = start(context, "wait", None)?;
    victim.kill_keeper()?;
    victim.part.signal(Signal::KILL)?;
    victim.end()?;
    left_something(&before, &victim).context("after its supervisor was killed")?;

    let next = start(context, "pass", Some(&victim))?;
    ensure!(next.end()? == Exit::Code(0), "the next run failed: {}", next.part.log_tail(20));
    left_nothing(&before, &victim)?;
    left_nothing(&before, &next)
}

#[e2e::case]
fn two_sandboxes_are_isolated_from_each_other(context: &TestContext) -> Result<()> {
    let supervisor = context.supervisor()?;
    let [one, other] = [Sandbox::start(&supervisor)?, Sandbox::start(&supervisor)?];
    ensure!(one.address() != other.address(), "both have the address {}", one.address());
    ensure!(one.cgroup() != other.cgroup(), "both have the cgroup {}", one.cgroup());
    shell(
        &supervisor,
        &one,
        "echo one >/var/lib/kubelet/whose; echo one >/run/whose; echo 7 >/proc/sys/kernel/panic",
    )?;
    let seen = shell(&supervisor, &other, "ls /var/lib/kubelet /run; cat /proc/sys/kernel/panic")?;
    ensure!(!seen.contains("whose"), "the other node sees the files of the one: {seen}");
    let real = std::fs::read_to_string("/proc/sys/kernel/panic")?;
    ensure!(seen.lines().last() == Some(real.trim()), "the other node sees the settings of the one: {seen}");
    // Both can use the same Service addresses, and each can connect to the host and back.
    for sandbox in [&one, &other] {
        let listener = std::net::TcpListener::bind((sandbox.host_address(), 0))?;
        let port = listener.local_addr()?.port();
        let way = shell(&supervisor, sandbox, &format!("ip -o route get {}", sandbox.host_address()))?;
        ensure!(way.contains("eth0"), "the way to this host is {way}");
        let says = format!("exec 3<>/dev/tcp/{}/{port}", sandbox.host_address());
        let tool = Tool::new("node-reaches-host", "bash").arguments(["-c", &says]);
        supervisor.run(sandbox.in_network(tool), AT_ONCE)?.succeeded().context("cannot reach this host")?;
        let refused = std::net::TcpStream::connect((sandbox.address(), 443));
        let kind = refused.err().context("somebody listens")?.kind();
        ensure!(kind == std::io::ErrorKind::ConnectionRefused, "this host does not reach the node: {kind}");
    }
    Ok(())
}

#[e2e::case]
fn a_process_in_a_sandbox_has_its_own_pid_and_signals(context: &TestContext) -> Result<()> {
    let supervisor = context.supervisor()?;
    let sandbox = Sandbox::start(&supervisor)?;
    let says = "trap 'echo told to end; exit 7' TERM; pwd; echo pid $$; while :; do sleep 0.05; done";
    let tool = Tool::new("resident", "sh").arguments(["-c", says]).folder(sandbox.folder());
    let part = supervisor.start_process(sandbox.inside(tool).grace(Duration::from_secs(20)))?;
    let pid = await_words(&part, "pid ")?;
    ensure!(
        pid.trim() == format!("pid {}", part.pid()),
        "it has {pid}, and the supervisor knows {}",
        part.pid()
    );
    ensure!(part.log_tail(2).contains(&sandbox.folder().display().to_string()), "it is in another folder");
    ensure!(part.end()? == Exit::Code(7), "the signal did not reach it: {}", part.log_tail(5));
    Ok(())
}

/// Starts a victim with a sandbox, in the cache of another one if given.
fn start(context: &TestContext, fate: &str, after: Option<&Victim>) -> Result<Victim> {
    let cache = after.map_or_else(|| context.folder("victim"), |after| Ok(after.cache.clone()))?;
    Victim::start_on(context, fate, cache, true)
}

fn word(victim: &Victim, what: &str) -> String {
    victim.told["ground"][what].as_str().unwrap_or_default().trim_start_matches('/').to_owned()
}

/// Returns the names that identify the resources of this victim.
fn ours(victim: &Victim) -> Vec<String> {
    let address = victim.told["address"].as_str().unwrap_or_default().to_owned();
    let work = work_folder(Path::new(victim.told["work"].as_str().unwrap_or_default()));
    vec![word(victim, "link"), word(victim, "cgroup"), address, work]
}

fn left_nothing(before: &HostState, victim: &Victim) -> Result<()> {
    victim.left_nothing()?;
    eventually("this host to be as before", CLEAN_WITHIN, || {
        let left = before.difference(&HostState::now()?, &ours(victim));
        Ok(if left.is_empty() { Poll::Ready(()) } else { Poll::Pending(format!("{left:#?}")) })
    })?;
    let chain = members(&victim.told["ground"])?;
    ensure!(chain.is_empty(), "members of the cgroup live on: {chain:?}");
    Ok(())
}

fn left_something(before: &HostState, victim: &Victim) -> Result<()> {
    victim.left_something()?;
    let left = before.difference(&HostState::now()?, &ours(victim));
    ensure!(!left.is_empty(), "nothing is left that could be cleaned up");
    ensure!(!members(&victim.told["ground"])?.is_empty(), "nobody is in the cgroup");
    Ok(())
}

/// Returns the members of the victim's cgroup by command line. The processes of the chain are too short-lived
/// to be listed, but the cgroup could not be removed while the chain runs.
fn members(sandbox: &Value) -> Result<Vec<String>> {
    let name = sandbox["cgroup"].as_str().context("the victim told of no cgroup")?;
    let lines = std::fs::read_dir("/proc")?
        .filter_map(Result::ok)
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok())
        .filter(|line| line.contains("chain") && line.contains(name));
    Ok(lines.collect())
}

/// Creates a sandbox for a victim and does what a node does. Returns null if none is wanted.
pub(super) fn take(supervisor: &Arc<Supervisor>) -> Result<Value> {
    if std::env::var(WANTED).unwrap_or_default().is_empty() {
        return Ok(Value::Null);
    }
    let sandbox = Sandbox::start(supervisor)?;
    shell(
        supervisor,
        &sandbox,
        "
        ip link add cni0 type bridge
        ip addr add 10.244.0.1/24 dev cni0
        ip link set cni0 up
        ls /sys/class/net | grep -q cni0
        echo 1 >/proc/sys/net/ipv4/ip_forward
        echo 10 >/proc/sys/kernel/panic
        echo 1 >/proc/sys/kernel/panic_on_oops
        echo 1 >/proc/sys/vm/overcommit_memory
        mkdir -p /var/lib/kubelet/pods/one /var/log/pods/one
        mount -t tmpfs tmpfs /var/lib/kubelet/pods/one
        echo here >/var/lib/kubelet/pods/one/file
    ",
    )?;
    let lxcfs = Tool::new("lxcfs", "lxcfs").arguments(["--foreground", "/var/lib/lxcfs"]);
    let lxcfs = supervisor.start_process(sandbox.inside(lxcfs))?;
    eventually("LXCFS to be mounted", AT_ONCE, || {
        ensure!(lxcfs.exit()?.is_none(), lxcfs.failure("ended"));
        let read = Tool::new("read", "cat").argument("/var/lib/lxcfs/proc/meminfo");
        let read = supervisor.run(sandbox.inside(read), AT_ONCE)?;
        Ok(if read.is_success() { Poll::Ready(()) } else { Poll::Pending(read.stderr) })
    })?;
    join_the_cgroup(supervisor, &sandbox)?;
    Ok(json!({"link": sandbox.link(), "cgroup": sandbox.cgroup()}))
}

/// Starts a process that stays in the cgroup, and a chain of processes that start each other a hundred times
/// a second.
///
/// They have their own session, and no mark of the run in their environment.
fn join_the_cgroup(supervisor: &Arc<Supervisor>, sandbox: &Sandbox) -> Result<Process> {
    let joins = format!(
        "for group in /sys/fs/cgroup{0} /sys/fs/cgroup/*{0}; do
           if [ -d $group ]; then echo $$ >$group/cgroup.procs; mkdir -p $group/kubepods/one; fi
         done
         echo joined
         exec env --unset={mark} setsid --wait sh -c 'link() {{ sleep 0.01; link & }}; link; sleep 600; :' chain {0}",
        sandbox.cgroup(),
        mark = journal::MARK,
    );
    let chain =
        supervisor.start_process(sandbox.inside(Tool::new("chain", "sh").arguments(["-euc", &joins])))?;
    await_words(&chain, "joined")?;
    Ok(chain)
}

fn shell(supervisor: &Arc<Supervisor>, sandbox: &Sandbox, script: &str) -> Result<String> {
    let tool = Tool::new("on-the-node", "sh").arguments(["-euc", script]);
    Ok(supervisor.run(sandbox.inside(tool), AT_ONCE)?.succeeded()?.stdout)
}
