//! LXCFS as an administrator installs it on a node: a program of the node, not a pod.
//!
//! It mounts a file system at `/var/lib/lxcfs` and serves it until it ends. Killed, it leaves the mount
//! behind, and whoever reads there is told "Transport endpoint is not connected": until somebody unmounts it,
//! which a start does first.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use rustix::process::Signal;

use super::Sandbox;
use super::sandbox::disk;
use crate::daemon::{Daemon, Stopped};
use crate::supervisor::{Supervisor, Tool};
use crate::wait::Poll;

/// Where it mounts.
const ROOT: &str = "/var/lib/lxcfs";

/// It unmounts on SIGTERM, within milliseconds.
const GRACE: Duration = Duration::from_secs(5);

/// Takes off what lies on the node's own folder, of which each umount takes one, and stops at the folder: without
/// it an LXCFS of this host that starts later would be seen on the node. What lies on top is what nothing at the
/// same place has for its parent: one that came later may lie below, if it came from this host.
fn bared() -> String {
    format!(
        r#"top() {{ awk '$5 == "{ROOT}" {{ root[$1] = $4; covered[$2] = 1 }}
  END {{ for (id in root) if (!(id in covered)) print root[id] }}' /proc/self/mountinfo; }}
while case $(top) in *{} | "") false ;; *) umount -l {ROOT} ;; esac do :; done"#,
        disk(ROOT)
    )
}

/// The node's LXCFS.
#[derive(Debug)]
pub struct Lxcfs {
    daemon: Daemon,
}

impl Lxcfs {
    /// Starts it, and waits for nothing.
    pub(super) fn start(supervisor: &Arc<Supervisor>, sandbox: &Arc<Sandbox>) -> Result<Self> {
        // With --enable-cfs, as it is shipped, a container counts the processors of its limit.
        let script = format!("{}\nexec lxcfs --enable-cfs {ROOT}", bared());
        let tool = Tool::new("lxcfs", "sh").grace(GRACE).arguments(["-c", &script]);
        let served = sandbox.path(ROOT).join("proc/meminfo");
        let daemon = Daemon::start(supervisor, sandbox.inside(tool), move || {
            Ok(match std::fs::read_to_string(&served) {
                Ok(_) => Poll::Ready(()),
                Err(error) => Poll::Pending(format!("{}: {error}", served.display())),
            })
        })?;
        Ok(Self { daemon })
    }

    /// Waits until it serves.
    pub fn await_ready(&self) -> Result<()> {
        self.daemon.await_ready()
    }

    /// Its process id, which changes when it is started again.
    pub fn pid(&self) -> i32 {
        self.daemon.pid()
    }

    /// Ends it as an administrator does: it unmounts. Started again when what is returned is dropped.
    pub fn stop(&self) -> Result<Stopped<'_>> {
        self.daemon.stop()
    }

    /// Ends it for good, for whoever brings another.
    pub(crate) fn end(&self) -> Result<()> {
        self.daemon.end().map(drop)
    }

    /// Kills it: the mount stays, and is dead. Started again when what is returned is dropped.
    pub fn kill(&self) -> Result<Stopped<'_>> {
        self.daemon.signal(Signal::KILL)?;
        self.daemon.stop()
    }
}
