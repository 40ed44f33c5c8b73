//! The sandbox of a node: two are isolated from each other, and the one of a victim is used like that of a node. It has a bridge
//! with an address, a mount, a FUSE file system and changed settings. Members of its cgroup fork faster than a list of them could
//! be read.

use std::sync::Arc;

use e2e::node::Sandbox;
use e2e::prelude::*;
use e2e::supervisor::{Process, Supervisor, Tool};

use super::await_output;

/// A command in the sandbox, on a loaded machine.
const COMMAND_WITHIN: Duration = Duration::from_secs(60);

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

/// Makes a sandbox for a victim and does to it what a node does.
pub(super) fn live(supervisor: &Arc<Supervisor>) -> Result<Sandbox> {
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
    Ok(sandbox)
}

/// Starts members of the cgroup: a process that stays, and a chain of processes in which each starts the next and ends, a
/// hundred in a second. They have left their session.
fn join_the_cgroup(supervisor: &Arc<Supervisor>, sandbox: &Sandbox) -> Result<Process> {
    let joins = format!(
        "for group in /sys/fs/cgroup{0} /sys/fs/cgroup/*{0}; do
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
