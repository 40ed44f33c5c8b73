//! The kubelet, with its default paths below the node's own `/var/lib/kubelet`.
//!
//! It differs from production to be quick, and because images cannot be pulled again. Images are never collected, the node's
//! status is written every two seconds, and cgroups of pods are below the run's own.

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
use crate::daemon::Daemon;
use crate::plain_http;
use crate::supervisor::{Supervisor, Tool};

/// The port of its health probe, on all addresses of the node.
const HEALTH: u16 = 10_248;

/// Starts it for this cluster and waits for nothing.
pub(super) fn start(
    supervisor: &Arc<Supervisor>,
    sandbox: &Arc<Sandbox>,
    cluster: &Cluster,
) -> Result<Daemon> {
    let directory = sandbox.directory().join("kubelet");
    let ca = cluster.ca();
    let user = cluster.certified(&format!("system:node:{NAME}"), Some("system:nodes"))?;
    ca.server(&[NAME], &[sandbox.address().into()])?.write(&directory, "server")?;
    write(&directory, "ca.crt", &ca.pem())?;
    // Only pods with `dnsPolicy: Default` use it.
    write(&directory, "resolv.conf", &format!("nameserver {DNS}\n"))?;
    let config = write(&directory, "config.json", &configuration(sandbox, &directory).to_string())?;
    let tool = Tool::new("kubelet", Binary::Kubelet.path(supervisor)?)
        .grace(Duration::ZERO)
        .flag("config", config.display())
        .flag("kubeconfig", user.kubectl.kubeconfig().display())
        .flag("hostname-override", NAME)
        .flag("node-ip", sandbox.address());
    let health = (sandbox.address(), HEALTH).into();
    Daemon::start(supervisor, sandbox.inside(tool), move || plain_http::probe(health, "/healthz"))
}

fn configuration(sandbox: &Sandbox, directory: &Path) -> Value {
    let path = |name: &str| directory.join(name).display().to_string();
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
        // The default is a directory of this host.
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "makeIPTablesUtilChains": false,
        // The host's other processes are as important.
        "oomScoreAdj": 0,
        "maxPods": 240,
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        // Restarts a container that failed to start soon, instead of after ten seconds and more.
        "crashLoopBackOff": {"maxContainerRestartPeriod": "2s"},
        // The kubelet reports devices with its next status.
        "nodeStatusUpdateFrequency": "2s",
        // It is renewed every quarter of this time.
        "nodeLeaseDurationSeconds": 10,
    })
}
