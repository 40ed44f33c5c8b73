//! The etcd of a run or of a node: one member, a directory that ends with the run, no fsync.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;

use crate::binaries::Binary;
use crate::plain_http;
use crate::supervisor::{Process, Supervisor, Tool};
use crate::wait::{Poll, eventually};

use super::location::Location;

const READY_WITHIN: Duration = Duration::from_secs(60);

/// A running etcd.
#[derive(Debug)]
pub struct Etcd {
    url: String,
    part: Process,
}

impl Etcd {
    /// Starts it and returns when it is healthy.
    pub(crate) fn start(supervisor: &Arc<Supervisor>, place: &Location) -> Result<Self> {
        let address = place.address();
        let (client, peer) = place.etcd_ports()?;
        let url = format!("http://{address}:{client}");
        let peer = format!("http://{address}:{peer}");
        let (name, folder) = match place {
            Location::Host => ("etcd", supervisor.work().join("etcd")),
            // A run can have several nodes.
            Location::Node(sandbox) => ("etcd-node", sandbox.folder().join("etcd")),
        };
        let tool = Tool::new(name, Binary::Etcd.path(supervisor)?)
            .grace(Duration::ZERO)
            .flag("name", "e2e")
            .flag("data-dir", folder.display())
            .flag("listen-client-urls", &url)
            .flag("advertise-client-urls", &url)
            .flag("listen-peer-urls", &peer)
            .flag("initial-advertise-peer-urls", &peer)
            .flag("initial-cluster", format_args!("e2e={peer}"))
            .argument("--unsafe-no-fsync");
        let part = supervisor.start_process(place.tool(tool))?;
        eventually("etcd to be healthy", READY_WITHIN, || {
            if let Some(exit) = part.exit()? {
                return Err(part.failure(format_args!("ended while it was starting, with {exit}")));
            }
            Ok(match plain_http::get((address, client).into(), "/health") {
                Ok(page) if page.status == 200 => Poll::Ready(()),
                Ok(page) => Poll::Pending(format!("{} {}", page.status, page.body)),
                Err(error) => Poll::Pending(format!("{error:#}")),
            })
        })
        .map_err(|error| part.failure(error))?;
        Ok(Self { url, part })
    }

    /// Returns its process id.
    pub fn pid(&self) -> i32 {
        self.part.pid()
    }

    /// Returns its URL, plain HTTP.
    pub fn url(&self) -> &str {
        &self.url
    }
}
