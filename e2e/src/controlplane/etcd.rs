//! The etcd of a run or of a node: one member, a directory that ends with the run, no fsync.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;

use crate::binaries::Binary;
use crate::daemon::Daemon;
use crate::plain_http;
use crate::supervisor::{Supervisor, Tool};

use super::location::Location;

/// A running etcd.
#[derive(Debug)]
pub struct Etcd {
    url: String,
    daemon: Daemon,
}

impl Etcd {
    /// Starts it and returns when it is healthy.
    pub(crate) fn start(supervisor: &Arc<Supervisor>, place: &Location) -> Result<Self> {
        let address = place.address();
        let (client, peer) = place.etcd_ports()?;
        let url = format!("http://{address}:{client}");
        let peer = format!("http://{address}:{peer}");
        let (name, directory) = match place {
            Location::Host => ("etcd", supervisor.work().join("etcd")),
            // A run can have several nodes.
            Location::Node(sandbox) => ("etcd-node", sandbox.directory().join("etcd")),
        };
        let tool = Tool::new(name, Binary::Etcd.path(supervisor)?)
            .grace(Duration::ZERO)
            .flag("name", "e2e")
            .flag("data-dir", directory.display())
            .flag("listen-client-urls", &url)
            .flag("advertise-client-urls", &url)
            .flag("listen-peer-urls", &peer)
            .flag("initial-advertise-peer-urls", &peer)
            .flag("initial-cluster", format_args!("e2e={peer}"))
            .argument("--unsafe-no-fsync");
        let health = (address, client).into();
        let daemon =
            Daemon::start(supervisor, place.tool(tool), move || plain_http::probe(health, "/health"))?;
        daemon.await_ready()?;
        Ok(Self { url, daemon })
    }

    /// Returns its process id.
    pub fn pid(&self) -> i32 {
        self.daemon.pid()
    }

    /// Ends it.
    pub(crate) fn end(&self) {
        let _ = self.daemon.end();
    }

    /// Returns its URL, plain HTTP.
    pub fn url(&self) -> &str {
        &self.url
    }
}
