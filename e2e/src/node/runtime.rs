//! What runs containers on the node: containerd, with runc below it and the bridge plugin beside it.
//!
//! None of it needs an API server, so it starts while that does. What had to be found out:
//!
//! - Where this process lacks `CAP_SYS_RESOURCE`, no sandbox can lower its OOM score, and runc ends with
//!   "can't get final child's PID from pipe: EOF": `restrict_oom_score_adj`.
//! - There is no kube-proxy and nothing to masquerade with: the bridge plugin gives pods an address and a
//!   default route to the node, and what pods need (the API server at the address of the `kubernetes` Service,
//!   DNS) listens there.
//! - containerd's content must not lie in a `tmpfs` above an overlay: it is a plain folder of the run.

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
use crate::wait::Poll;

/// Its socket, at the same place on every node.
pub(super) const SOCKET: &str = "/run/containerd/containerd.sock";

/// The namespace, in containerd's sense, of what the kubelet asks for.
const NAMESPACE: &str = "k8s.io";

/// Pods' addresses. They are seen in the node's network and nowhere else.
const PODS: &str = "10.244.0.0/24";

/// The largest image is some tens of MB.
const IMPORTED_WITHIN: Duration = Duration::from_secs(120);

/// A running containerd.
#[derive(Debug)]
pub(super) struct Runtime {
    supervisor: Arc<Supervisor>,
    sandbox: Arc<Sandbox>,
    daemon: Daemon,
}

impl Runtime {
    /// Starts it, and returns when it answers.
    pub(super) fn start(supervisor: &Arc<Supervisor>, sandbox: &Arc<Sandbox>) -> Result<Self> {
        let folder = sandbox.folder().join("containerd");
        let network = json!({"cniVersion": "1.0.0", "name": "pods", "plugins": [{
            "type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": PODS}]], "routes": [{"dst": "0.0.0.0/0"}]},
        }]});
        write(&folder.join("cni"), "10-pods.conflist", &network.to_string())?;
        let config = write(&folder, "config.toml", &configuration(&folder, sandbox.cgroup()))?;
        let tool = Tool::new("containerd", "containerd")
            .grace(Duration::ZERO)
            .argument("--config")
            .argument(config.display().to_string());
        let socket = sandbox.path(SOCKET);
        let daemon = Daemon::start(supervisor, sandbox.inside(tool), move || {
            Ok(match UnixStream::connect(&socket) {
                Ok(_) => Poll::Ready(()),
                Err(error) => Poll::Pending(error.to_string()),
            })
        })?;
        daemon.await_ready()?;
        Ok(Self { supervisor: Arc::clone(supervisor), sandbox: Arc::clone(sandbox), daemon })
    }

    /// Makes the images in a docker-archive known to it, under the names that the archive gives them.
    pub(super) fn import(&self, archive: &Path) -> Result<()> {
        let tool = Tool::new("ctr-import", "ctr")
            .flag("address", SOCKET)
            .flag("namespace", NAMESPACE)
            .arguments(["images", "import"])
            .argument(archive.display().to_string());
        let output = self.supervisor.run(self.sandbox.inside(tool), IMPORTED_WITHIN)?.succeeded();
        output.with_context(|| format!("containerd does not import {}", archive.display())).map(drop)
    }

    /// The same for several, all at once.
    pub(super) fn import_all(&self, archives: &[PathBuf]) -> Result<()> {
        std::thread::scope(|scope| {
            let imports: Vec<_> =
                archives.iter().map(|archive| scope.spawn(|| self.import(archive))).collect();
            imports.into_iter().try_for_each(super::outcome)
        })
    }

    /// Its process id.
    pub(super) fn pid(&self) -> i32 {
        self.daemon.pid()
    }
}

/// The snapshotters that are switched off would look for file systems and devices which are not there, and say
/// so at every start.
fn configuration(folder: &Path, cgroup: &str) -> String {
    let folder = folder.display();
    let pause = Image::Pause.name();
    let cri = r#"plugins."io.containerd.grpc.v1.cri""#;
    format!(
        r#"version = 2
root = "{folder}/root"
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
  conf_dir = "{folder}/cni"
[{cri}.containerd]
  snapshotter = "overlayfs"
  default_runtime_name = "runc"
[{cri}.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[{cri}.containerd.runtimes.runc.options]
  SystemdCgroup = false
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/opt"
"#
    )
}
