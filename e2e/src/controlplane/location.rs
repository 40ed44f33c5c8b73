//! The network of a control plane: this host's, or that of a node.
//!
//! On the host, several API servers share one etcd and the loopback device. Each has its own ports, and none is *the* endpoint
//! of `kubernetes`. In a node's network there is only one, with upstream's ports 443 and 2379. The address of the `kubernetes`
//! Service leads to it, and it calls a kubelet for logs and `exec`.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;

use crate::certificates::{self, Ca};
use crate::node::Sandbox;
use crate::ports;
use crate::supervisor::Tool;

/// The network of a control plane.
#[derive(Debug, Clone)]
pub(crate) enum Location {
    /// This host, at 127.0.0.1.
    Host,
    /// The network of a node.
    Node(Arc<Sandbox>),
}

impl Location {
    /// Returns the tool as it is started there.
    pub(super) fn tool(&self, tool: Tool) -> Tool {
        match self {
            Self::Host => tool,
            Self::Node(sandbox) => sandbox.in_network(tool),
        }
    }

    /// Returns the address at which tests reach it.
    pub(super) fn address(&self) -> Ipv4Addr {
        match self {
            Self::Host => Ipv4Addr::LOCALHOST,
            Self::Node(sandbox) => sandbox.address(),
        }
    }

    /// Returns the address at which the API server reaches this host.
    pub(super) fn host(&self) -> Ipv4Addr {
        match self {
            Self::Host => Ipv4Addr::LOCALHOST,
            Self::Node(sandbox) => sandbox.host_address(),
        }
    }

    /// Returns the API server's port. Pods get 443 from the `kubernetes` Service, and there is no proxy.
    pub(super) fn server_port(&self) -> Result<u16> {
        match self {
            Self::Host => ports::free(),
            Self::Node(_) => Ok(443),
        }
    }

    /// Returns etcd's ports for clients and peers.
    pub(super) fn etcd_ports(&self) -> Result<(u16, u16)> {
        match self {
            Self::Host => Ok((ports::free()?, ports::free()?)),
            Self::Node(_) => Ok((2379, 2380)),
        }
    }

    /// Returns flags of the API server and writes the files that they name.
    pub(super) fn server_flags(&self, directory: &Path, ca: &Ca) -> Result<Vec<String>> {
        let mut flags = vec![format!("--advertise-address={}", self.address())];
        match self {
            Self::Host => flags.extend([
                "--endpoint-reconciler-type=none".to_owned(),
                "--authorization-mode=RBAC".to_owned(),
            ]),
            Self::Node(_) => {
                let leaf = ca.client("kube-apiserver-kubelet-client", Some("system:masters"))?;
                let (certificate, key) = leaf.write(directory, "kubelet-client")?;
                let of_the_kubelet = certificates::write(directory, "kubelet-ca.crt", &ca.pem())?;
                flags.extend([
                    "--authorization-mode=Node,RBAC".to_owned(),
                    "--enable-admission-plugins=NodeRestriction".to_owned(),
                    format!("--kubelet-client-certificate={}", certificate.display()),
                    format!("--kubelet-client-key={}", key.display()),
                    format!("--kubelet-certificate-authority={}", of_the_kubelet.display()),
                    // No DNS has the node's name.
                    "--kubelet-preferred-address-types=InternalIP".to_owned(),
                ]);
            }
        }
        Ok(flags)
    }
}
