//! The node's container runtime: containerd with runc and the bridge plugin.
//!
//! It needs no API server, so both start at the same time.
//!
//! - Without `CAP_SYS_RESOURCE` a sandbox cannot lower its OOM score, and runc fails with "can't get final child's PID
//!   from pipe: EOF"; `restrict_oom_score_adj` prevents that.
//! - The node runs without kube-proxy and without masquerading. The bridge plugin gives pods an address and a default route to the node. The
//!   API server, at the address of the `kubernetes` Service, and DNS listen there.
//! - containerd's content must not be in a `tmpfs` above an overlay, so it is in the run's work directory.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::json;

use super::{PLUGINS, Sandbox};
use crate::certificates::write;
use crate::daemon::Daemon;
use crate::image::Image;
use crate::supervisor::{Supervisor, Tool};

/// Its socket.
pub(super) const SOCKET: &str = "/run/containerd/containerd.sock";

/// containerd's namespace of the kubelet's containers.
const NAMESPACE: &str = "k8s.io";

/// The addresses of pods, which exist in the node's network only.
const PODS: &str = "10.244.0.0/24";

/// The largest image has some tens of MB.
const IMPORTED_WITHIN: Duration = Duration::from_secs(120);

/// A running containerd.
#[derive(Debug)]
pub(super) struct Runtime {
    supervisor: Arc<Supervisor>,
    sandbox: Arc<Sandbox>,
    daemon: Daemon,
}

impl Runtime {
    /// Starts it and returns when it accepts connections.
    pub(super) fn start(supervisor: &Arc<Supervisor>, sandbox: &Arc<Sandbox>) -> Result<Self> {
        let directory = sandbox.directory().join("containerd");
        let network = json!({"cniVersion": "1.0.0", "name": "pods", "plugins": [{
            "type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": PODS}]], "routes": [{"dst": "0.0.0.0/0"}]},
        }]});
        write(&directory.join("cni"), "10-pods.conflist", &network.to_string())?;
        let config = write(&directory, "config.toml", &configuration(&directory, sandbox.cgroup()))?;
        let tool = Tool::new("containerd", "containerd")
            .grace(Duration::ZERO)
            .argument("--config")
            .argument(config.display().to_string());
        let socket = sandbox.path(SOCKET);
        let daemon = Daemon::start(supervisor, sandbox.inside(tool), move || {
            Ok(UnixStream::connect(&socket).map(drop)?)
        })?;
        daemon.await_ready()?;
        Ok(Self { supervisor: Arc::clone(supervisor), sandbox: Arc::clone(sandbox), daemon })
    }

    /// Imports the images of a docker-archive.
    pub(super) fn import(&self, archive: &Path) -> Result<()> {
        let tool = Tool::new("ctr-import", "ctr")
            .flag("address", SOCKET)
            .flag("namespace", NAMESPACE)
            .arguments(["images", "import"])
            .argument(archive.display().to_string());
        let output = self.supervisor.run(self.sandbox.inside(tool), IMPORTED_WITHIN)?.succeeded();
        output.with_context(|| format!("containerd does not import {}", archive.display())).map(drop)
    }

    /// Imports several archives at the same time.
    pub(super) fn import_all(&self, archives: &[PathBuf]) -> Result<()> {
        std::thread::scope(|scope| {
            let imports: Vec<_> =
                archives.iter().map(|archive| scope.spawn(|| self.import(archive))).collect();
            imports.into_iter().try_for_each(super::outcome)
        })
    }

    /// Ends it. Containers continue to run.
    pub(super) fn end(&self) {
        let _ = self.daemon.end();
    }

    /// Returns its process id.
    pub(super) fn pid(&self) -> i32 {
        self.daemon.pid()
    }
}

/// The disabled snapshotters would log errors about missing file systems and devices.
fn configuration(directory: &Path, cgroup: &str) -> String {
    let directory = directory.display();
    let pause = Image::Pause.name();
    let cri = r#"plugins."io.containerd.grpc.v1.cri""#;
    format!(
        r#"version = 2
root = "{directory}/root"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
]
[cgroup]
  path = "{cgroup}/containerd"
[grpc]
  address = "{SOCKET}"
[{cri}]
  sandbox_image = "{pause}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
[{cri}.cni]
  bin_dir = "{PLUGINS}"
  conf_dir = "{directory}/cni"
[{cri}.containerd]
  snapshotter = "overlayfs"
  default_runtime_name = "runc"
[{cri}.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[{cri}.containerd.runtimes.runc.options]
  SystemdCgroup = false
[plugins."io.containerd.internal.v1.opt"]
  path = "{directory}/opt"
"#
    )
}
