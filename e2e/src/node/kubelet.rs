//! The kubelet, with every path where the documents have it: below `/var/lib/kubelet` of the node, which is no
//! folder of this host.
//!
//! What differs from a node in production is there so that tests are quick, or because nothing can be fetched
//! again: images are never collected, the node's state goes up every two seconds, and its pods' cgroups stand
//! below the run's own.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::{DNS, NAME, Sandbox, runtime};
use crate::binaries::Binary;
use crate::certificates::write;
use crate::controlplane::Cluster;
use crate::daemon::{Daemon, Frozen, Stopped};
use crate::plain_http;
use crate::supervisor::{Supervisor, Tool};
use crate::wait::Poll;

/// Where it says whether it is well. On all addresses of the node, so that tests can ask.
const HEALTH: u16 = 10_248;

/// The node's kubelet.
#[derive(Debug)]
pub struct Kubelet {
    daemon: Daemon,
}

impl Kubelet {
    /// Starts it for this cluster, and waits for nothing.
    pub(super) fn start(
        supervisor: &Arc<Supervisor>,
        sandbox: &Arc<Sandbox>,
        cluster: &Cluster,
    ) -> Result<Self> {
        let folder = sandbox.folder().join("kubelet");
        let ca = cluster.ca();
        let user = cluster.certified(&format!("system:node:{NAME}"), Some("system:nodes"))?;
        ca.server(&[NAME], &[sandbox.address().into()])?.write(&folder, "server")?;
        write(&folder, "ca.crt", &ca.pem())?;
        // Only pods that want the node's own names see it.
        write(&folder, "resolv.conf", &format!("nameserver {DNS}\n"))?;
        let config = write(&folder, "config.json", &configuration(sandbox, &folder).to_string())?;
        let tool = Tool::new("kubelet", Binary::Kubelet.path(supervisor)?)
            .grace(Duration::ZERO)
            .flag("config", config.display())
            .flag("kubeconfig", user.kubectl.kubeconfig().display())
            .flag("hostname-override", NAME)
            .flag("node-ip", sandbox.address());
        let health = (sandbox.address(), HEALTH).into();
        let daemon = Daemon::start(supervisor, sandbox.inside(tool), move || {
            Ok(match plain_http::get(health, "/healthz") {
                Ok(page) if page.status == 200 => Poll::Ready(()),
                Ok(page) => Poll::Pending(format!("{} {}", page.status, page.body)),
                Err(error) => Poll::Pending(format!("{error:#}")),
            })
        })?;
        Ok(Self { daemon })
    }

    /// Waits until it is well, which says nothing of what the API server thinks of its node.
    pub(super) fn await_ready(&self) -> Result<()> {
        self.daemon.await_ready()
    }

    /// Its process id, which changes when it is started again.
    pub fn pid(&self) -> i32 {
        self.daemon.pid()
    }

    /// Ends it: pods run on, and after [`super::GRACE`] the node is no longer Ready. Started again when what is
    /// returned is dropped.
    pub fn stop(&self) -> Result<Stopped<'_>> {
        self.daemon.stop()
    }

    /// The same by SIGSTOP.
    pub fn freeze(&self) -> Result<Frozen<'_>> {
        self.daemon.freeze()
    }

    /// Ends it and starts it again, as after an upgrade.
    pub fn restart(&self) -> Result<()> {
        self.daemon.stop()?.start()
    }

    /// What failed, with the end of its log.
    pub(super) fn failure(&self, what: impl std::fmt::Display) -> anyhow::Error {
        self.daemon.failure(what)
    }
}

fn configuration(sandbox: &Sandbox, folder: &Path) -> Value {
    let path = |name: &str| folder.join(name).display().to_string();
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": format!("unix://{}", runtime::SOCKET),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": sandbox.cgroup(),
        "failCgroupV1": false,
        "failSwapOn": false,
        "address": Ipv4Addr::UNSPECIFIED,
        "healthzBindAddress": Ipv4Addr::UNSPECIFIED,
        "healthzPort": HEALTH,
        "tlsCertFile": path("server.crt"),
        "tlsPrivateKeyFile": path("server.key"),
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": path("ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "clusterDNS": [DNS],
        "clusterDomain": "cluster.local",
        "resolvConf": path("resolv.conf"),
        // Its own default is a folder of this host.
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "makeIPTablesUtilChains": false,
        // Nothing of a test is worth more than the rest of this host.
        "oomScoreAdj": 0,
        "maxPods": 240,
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        // A container that cannot start is tried again soon, and not after ten seconds and then twice as many.
        "crashLoopBackOff": {"maxContainerRestartPeriod": "2s"},
        // A device plugin's devices are told with the next of these.
        "nodeStatusUpdateFrequency": "2s",
        // Renewed every quarter of it; with ten seconds of their own default a stopped kubelet is found late.
        "nodeLeaseDurationSeconds": 10,
    })
}
