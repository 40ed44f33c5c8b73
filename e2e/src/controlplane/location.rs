//! Where a control plane stands: on this host, beside others of the same run, or alone in the network of a
//! node.
//!
//! On this host several API servers share one etcd and the loopback device: each has ports of its own, and
//! none may claim to be *the* endpoint of `kubernetes`. In a node's network there is only one, and everything
//! is where upstream puts it: 443, 2379, the `kubernetes` Service at an address that leads to it, and a
//! kubelet which it calls for logs and `exec`.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;

use crate::certificates::{self, Ca};
use crate::node::Sandbox;
use crate::ports;
use crate::supervisor::Tool;

/// Where it stands.
#[derive(Debug, Clone)]
pub(crate) enum Location {
    /// On this host, on 127.0.0.1.
    Host,
    /// In the network of a node.
    Node(Arc<Sandbox>),
}

impl Location {
    /// The tool, as it is started there.
    pub(super) fn tool(&self, tool: Tool) -> Tool {
        match self {
            Self::Host => tool,
            Self::Node(sandbox) => sandbox.in_network(tool),
        }
    }

    /// Where tests reach what listens there.
    pub(super) fn address(&self) -> Ipv4Addr {
        match self {
            Self::Host => Ipv4Addr::LOCALHOST,
            Self::Node(sandbox) => sandbox.address(),
        }
    }

    /// Where the API server reaches what listens on this host.
    pub(super) fn host(&self) -> Ipv4Addr {
        match self {
            Self::Host => Ipv4Addr::LOCALHOST,
            Self::Node(sandbox) => sandbox.host_address(),
        }
    }

    /// The API server's port. Pods know 443 from the `kubernetes` Service, and no proxy leads them elsewhere.
    pub(super) fn server_port(&self) -> Result<u16> {
        match self {
            Self::Host => ports::free(),
            Self::Node(_) => Ok(443),
        }
    }

    /// etcd's ports, for clients and for peers.
    pub(super) fn etcd_ports(&self) -> Result<(u16, u16)> {
        match self {
            Self::Host => Ok((ports::free()?, ports::free()?)),
            Self::Node(_) => Ok((2379, 2380)),
        }
    }

    /// The API server's flags that follow. Writes the files that they name.
    pub(super) fn server_flags(&self, folder: &Path, ca: &Ca) -> Result<Vec<String>> {
        let mut flags = vec![format!("--advertise-address={}", self.address())];
        match self {
            Self::Host => flags.extend([
                "--endpoint-reconciler-type=none".to_owned(),
                "--authorization-mode=RBAC".to_owned(),
            ]),
            Self::Node(_) => {
                let leaf = ca.client("kube-apiserver-kubelet-client", Some("system:masters"))?;
                let (certificate, key) = leaf.write(folder, "kubelet-client")?;
                let of_the_kubelet = certificates::write(folder, "kubelet-ca.crt", &ca.pem())?;
                flags.extend([
                    "--authorization-mode=Node,RBAC".to_owned(),
                    "--enable-admission-plugins=NodeRestriction".to_owned(),
                    format!("--kubelet-client-certificate={}", certificate.display()),
                    format!("--kubelet-client-key={}", key.display()),
                    format!("--kubelet-certificate-authority={}", of_the_kubelet.display()),
                    // The node's name is in no DNS.
                    "--kubelet-preferred-address-types=InternalIP".to_owned(),
                ]);
            }
        }
        Ok(flags)
    }
}
