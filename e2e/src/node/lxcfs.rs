//! LXCFS as a program that an administrator has installed on the node.
//!
//! It mounts a file system at `/var/lib/lxcfs` and serves it until it ends. If it is killed, the mount remains, and
//! reads fail with "Transport endpoint is not connected" until it is unmounted. A start unmounts it first.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use rustix::process::Signal;

use super::Sandbox;
use super::sandbox::disk;
use crate::daemon::{Daemon, Stopped};
use crate::supervisor::{Supervisor, Tool};
use crate::wait::Poll;

/// Its mount point.
const ROOT: &str = "/var/lib/lxcfs";

/// It unmounts on SIGTERM within milliseconds.
const GRACE: Duration = Duration::from_secs(5);

/// Unmounts everything above the node's own directory, and stops there: without that directory, an LXCFS that is
/// started on the host later would appear on the node. The topmost mount is the one that is not the parent of another
/// one at the same path. A later mount from the host can be below it.
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
    /// Starts it and waits for nothing.
    pub(super) fn start(supervisor: &Arc<Supervisor>, sandbox: &Arc<Sandbox>) -> Result<Self> {
        // With --enable-cfs, as shipped, a container sees the processors of its limit.
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

    /// Returns its process id, which changes with each start.
    pub fn pid(&self) -> i32 {
        self.daemon.pid()
    }

    /// Ends it, which unmounts, until the result is dropped.
    pub fn stop(&self) -> Result<Stopped<'_>> {
        self.daemon.stop()
    }

    /// Ends it and does not start it again.
    pub(crate) fn end(&self) -> Result<()> {
        self.daemon.end().map(drop)
    }

    /// Kills it until the result is dropped. The mount remains without a server.
    pub fn kill(&self) -> Result<Stopped<'_>> {
        self.daemon.signal(Signal::KILL)?;
        self.daemon.stop()
    }
}
