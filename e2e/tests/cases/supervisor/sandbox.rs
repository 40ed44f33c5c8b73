//! A node's sandbox is not visible on the host and leaves nothing behind.
//!
//! The victims here have a [`Sandbox`] and change it like kubelet, containerd, the bridge plugin and LXCFS: a bridge with an
//! address, a mount, a FUSE file system, changed settings and a frozen process. They also have cgroup members that fork faster
//! than a list of them could be read.

use std::path::Path;
use std::sync::Arc;

use e2e::node::Sandbox;
use e2e::prelude::*;
use e2e::supervisor::host_state::{HostState, work_directory};
use e2e::supervisor::{Process, Supervisor, Tool};
use rustix::process::Signal;

use super::{CLEAN_WITHIN, Victim, await_output};

/// The environment variable that gives a victim a sandbox, unless it is empty.
pub(super) const WANTED: &str = "DURWARD_E2E_VICTIM_SANDBOX";

/// A command in the sandbox, on a loaded machine.
const COMMAND_WITHIN: Duration = Duration::from_secs(60);

#[e2e::case]
fn a_sandbox_is_not_visible_on_the_host(context: &TestContext) -> Result<()> {
    let before = HostState::now()?;
    let victim = start(context, "wait", None)?;
    let seen = before.difference(&HostState::now()?, &ours(&victim));
    let is_expected = |line: &&String| {
        // The host sees the run's processes, its cgroup, its link and its address, but no mount.
        let is_lease = ours(&victim).iter().any(|name| line.contains(name.as_str()));
        is_lease && !line.starts_with("+ mount")
    };
    let others: Vec<_> = seen.iter().filter(|line| !is_expected(line)).collect();
    ensure!(others.is_empty(), "the host shows what only the node should: {others:#?}");
    for kind in ["+ cgroup", "+ link", "+ process"] {
        ensure!(seen.iter().any(|line| line.starts_with(kind)), "no {kind}, so the case proves nothing");
    }
    victim.process.signal(Signal::TERM)?;
    victim.end()?;
    left_nothing(&before, &victim)
}

#[e2e::case]
fn a_sandbox_leaves_nothing_behind_after_a_successful_run(context: &TestContext) -> Result<()> {
    let before = HostState::now()?;
    let victim = start(context, "pass", None)?;
    ensure!(victim.end()? == Exit::Code(0), "the victim failed: {}", victim.process.log_tail(20));
    // No waiting here: when the run has ended, the host is as before.
    let left = before.difference(&HostState::now()?, &ours(&victim));
    ensure!(left.is_empty(), "left behind: {left:#?}");
    victim.left_nothing()
}

#[e2e::case]
fn a_sandbox_leaves_nothing_behind_after_sigkill(context: &TestContext) -> Result<()> {
    let before = HostState::now()?;
    let victim = start(context, "wait", None)?;
    victim.has_processes_and_an_address()?;
    ensure!(members(&victim).len() >= 2, "the cgroup lacks members");
    victim.process.signal(Signal::KILL)?;
    ensure!(victim.end()? == Exit::Signal(Signal::KILL.as_raw()), "the victim ended in another way");
    left_nothing(&before, &victim)
}

#[e2e::case]
fn the_next_run_cleans_up_the_sandbox_of_a_killed_supervisor(context: &TestContext) -> Result<()> {
    let before = HostState::now()?;
    let victim = start(context, "wait", None)?;
    victim.kill_all_at_once()?;
    victim.left_its_leases()?;
    let left = before.difference(&HostState::now()?, &ours(&victim));
    ensure!(left.iter().any(|line| line.starts_with("+ cgroup")), "no cgroup is left: {left:#?}");

    let next = start(context, "pass", Some(&victim))?;
    ensure!(next.end()? == Exit::Code(0), "the next run failed: {}", next.process.log_tail(20));
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
    ensure!(!seen.contains("whose"), "one node sees the files of the other: {seen}");
    let real = std::fs::read_to_string("/proc/sys/kernel/panic")?;
    ensure!(seen.lines().last() == Some(real.trim()), "one node sees the settings of the other: {seen}");
    // Both have the same Service addresses. Each reaches the host, and the host reaches each.
    for sandbox in [&one, &other] {
        let listener = std::net::TcpListener::bind((sandbox.host_address(), 0))?;
        let port = listener.local_addr()?.port();
        let route = shell(&supervisor, sandbox, &format!("ip -o route get {}", sandbox.host_address()))?;
        ensure!(route.contains("eth0"), "the route to the host is {route}");
        let script = format!("exec 3<>/dev/tcp/{}/{port}", sandbox.host_address());
        let tool = Tool::new("node-reaches-host", "bash").arguments(["-c", &script]);
        supervisor
            .run(sandbox.in_network(tool), COMMAND_WITHIN)?
            .succeeded()
            .context("cannot reach the host")?;
        let refused = std::net::TcpStream::connect((sandbox.address(), 443));
        let kind = refused.err().context("something listens")?.kind();
        ensure!(kind == std::io::ErrorKind::ConnectionRefused, "the host does not reach the node: {kind}");
    }
    Ok(())
}

#[e2e::case]
fn a_process_in_a_sandbox_has_its_own_pid_and_signals(context: &TestContext) -> Result<()> {
    let supervisor = context.supervisor()?;
    let sandbox = Sandbox::start(&supervisor)?;
    let script = "trap 'echo got SIGTERM; exit 7' TERM; pwd; echo pid $$; while :; do sleep 0.05; done";
    let tool = Tool::new("in-sandbox", "sh").arguments(["-c", script]).directory(sandbox.directory());
    let process = supervisor.start_process(sandbox.inside(tool).grace(Duration::from_secs(20)))?;
    let pid = await_output(&process, "pid ")?;
    ensure!(
        pid.trim() == format!("pid {}", process.pid()),
        "it has {pid}, and the supervisor has {}",
        process.pid()
    );
    ensure!(
        process.log_tail(2).contains(&sandbox.directory().display().to_string()),
        "it is in another directory"
    );
    ensure!(process.end()? == Exit::Code(7), "the signal did not reach it: {}", process.log_tail(5));
    Ok(())
}

fn start(context: &TestContext, fate: &str, after: Option<&Victim>) -> Result<Victim> {
    let cache = after.map_or_else(|| context.directory("victim"), |after| Ok(after.cache.clone()))?;
    Victim::start_with(context, fate, cache, true)
}

fn name(victim: &Victim, what: &str) -> String {
    victim.printed["sandbox"][what].as_str().unwrap_or_default().trim_start_matches('/').to_owned()
}

/// Returns the names of what the victim has on the host.
fn ours(victim: &Victim) -> Vec<String> {
    let work = work_directory(Path::new(victim.text("work")));
    let [address, namespace] = ["address", "namespace"].map(|field| victim.text(field).to_owned());
    vec![name(victim, "link"), name(victim, "cgroup"), address, namespace, work]
}

fn left_nothing(before: &HostState, victim: &Victim) -> Result<()> {
    victim.left_nothing()?;
    eventually("the host to be as before", CLEAN_WITHIN, || {
        let left = before.difference(&HostState::now()?, &ours(victim));
        Ok(if left.is_empty() { Poll::Ready(()) } else { Poll::Pending(format!("{left:#?}")) })
    })
}

/// Returns the command lines of the processes that stay in the victim's cgroup. Those of the chain end too early to be
/// counted, but a cgroup in which it went on could not have been removed.
fn members(victim: &Victim) -> Vec<String> {
    let mut processes = victim.processes();
    processes.retain(|command| command.contains("chain") || command.contains("frozen"));
    processes
}

/// Makes a sandbox for a victim and does to it what a node does. Returns null if none is wanted.
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
    eventually("LXCFS to be mounted", COMMAND_WITHIN, || {
        ensure!(lxcfs.exit()?.is_none(), lxcfs.failure("ended"));
        let read = Tool::new("read", "cat").argument("/var/lib/lxcfs/proc/meminfo");
        let read = supervisor.run(sandbox.inside(read), COMMAND_WITHIN)?;
        Ok(if read.is_success() { Poll::Ready(()) } else { Poll::Pending(read.stderr) })
    })?;
    join_the_cgroup(supervisor, &sandbox)?;
    Ok(json!({"link": sandbox.link(), "cgroup": sandbox.cgroup()}))
}

/// Starts members of the cgroup: a process that stays, and a chain of processes in which each starts the next and ends, a
/// hundred in a second. With a version 1 freezer, it also starts a frozen process. They have left their session.
fn join_the_cgroup(supervisor: &Arc<Supervisor>, sandbox: &Sandbox) -> Result<Process> {
    let joins = format!(
        "freezer=/sys/fs/cgroup/freezer{0}/frozen
         if [ -e /sys/fs/cgroup/freezer{0}/freezer.state ]; then
           mkdir $freezer
           setsid sh -c 'sleep 600; :' frozen & echo $! >$freezer/cgroup.procs
           echo FROZEN >$freezer/freezer.state
         fi
         for group in /sys/fs/cgroup{0} /sys/fs/cgroup/*{0}; do
           if [ -d $group ]; then echo $$ >$group/cgroup.procs; mkdir -p $group/kubepods/one; fi
         done
         echo joined
         exec env -i setsid --wait sh -c 'link() {{ sleep 0.01; link & }}; link; sleep 600; :' chain {0}",
        sandbox.cgroup(),
    );
    let chain =
        supervisor.start_process(sandbox.inside(Tool::new("chain", "sh").arguments(["-euc", &joins])))?;
    await_output(&chain, "joined")?;
    Ok(chain)
}

fn shell(supervisor: &Arc<Supervisor>, sandbox: &Sandbox, script: &str) -> Result<String> {
    let tool = Tool::new("on-the-node", "sh").arguments(["-euc", script]);
    Ok(supervisor.run(sandbox.inside(tool), COMMAND_WITHIN)?.succeeded()?.stdout)
}
