//! LXCFS as a program that an administrator has installed on the node.
//!
//! It mounts a file system at `/var/lib/lxcfs` and serves it until it ends. If it is killed, the mount remains, and
//! reads fail with "Transport endpoint is not connected" until it is unmounted. A start unmounts it first.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::Sandbox;
use super::sandbox::disk;
use crate::daemon::Daemon;
use crate::supervisor::{Supervisor, Tool};

/// Its mount point.
const ROOT: &str = "/var/lib/lxcfs";

/// It unmounts on SIGTERM within milliseconds.
const GRACE: Duration = Duration::from_secs(5);

/// Unmounts everything above the node's own directory, and stops there: without that directory, an LXCFS that is
/// started on the host later would appear on the node. The topmost mount is the one that is not the parent of another
/// one at the same path. A later mount from the host can be below it.
fn unmount() -> String {
    format!(
        r#"top() {{ awk '$5 == "{ROOT}" {{ root[$1] = $4; covered[$2] = 1 }}
  END {{ for (id in root) if (!(id in covered)) print root[id] }}' /proc/self/mountinfo; }}
while case $(top) in *{} | "") false ;; *) umount -l {ROOT} ;; esac do :; done"#,
        disk(ROOT)
    )
}

/// Starts it and waits for nothing.
pub(super) fn start(supervisor: &Arc<Supervisor>, sandbox: &Arc<Sandbox>) -> Result<Daemon> {
    // With --enable-cfs, as shipped, a container sees the processors of its limit.
    let script = format!("{}\nexec lxcfs --enable-cfs {ROOT}", unmount());
    let tool = Tool::new("lxcfs", "sh").grace(GRACE).arguments(["-c", &script]);
    let served = sandbox.path(ROOT).join("proc/meminfo");
    Daemon::start(supervisor, sandbox.inside(tool), move || {
        std::fs::read_to_string(&served).map(drop).with_context(|| served.display().to_string())
    })
}
