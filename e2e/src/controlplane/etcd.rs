//! The etcd of a run, or of its node. One member, a folder that ends with the run, nothing synchronised to disk.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;

use crate::keeper::{Keeper, Part, Tool};
use crate::parts::Binary;
use crate::patience::{Seen, eventually};
use crate::web;

use super::place::Place;

const READY_WITHIN: Duration = Duration::from_secs(60);

/// A running etcd.
#[derive(Debug)]
pub struct Etcd {
    url: String,
    part: Part,
}

impl Etcd {
    /// Starts it and returns when it is healthy.
    pub(crate) fn start(keeper: &Arc<Keeper>, place: &Place) -> Result<Self> {
        let address = place.address();
        let (client, peer) = place.etcd_ports()?;
        let url = format!("http://{address}:{client}");
        let peer = format!("http://{address}:{peer}");
        let (name, folder) = match place {
            Place::Host => ("etcd", keeper.work().join("etcd")),
            // A run may have several nodes.
            Place::Node(ground) => ("etcd-node", ground.folder().join("etcd")),
        };
        let tool = Tool::new(name, Binary::Etcd.path(keeper)?)
            .grace(Duration::ZERO)
            .flag("name", "e2e")
            .flag("data-dir", folder.display())
            .flag("listen-client-urls", &url)
            .flag("advertise-client-urls", &url)
            .flag("listen-peer-urls", &peer)
            .flag("initial-advertise-peer-urls", &peer)
            .flag("initial-cluster", format_args!("e2e={peer}"))
            .argument("--unsafe-no-fsync");
        let part = keeper.start_part(place.tool(tool))?;
        eventually("etcd to be healthy", READY_WITHIN, || {
            if let Some(ending) = part.ending()? {
                return Err(part.trouble(format_args!("ended while it was starting, with {ending}")));
            }
            Ok(match web::get((address, client).into(), "/health") {
                Ok(page) if page.status == 200 => Seen::Yes(()),
                Ok(page) => Seen::NotYet(format!("{} {}", page.status, page.body)),
                Err(error) => Seen::NotYet(format!("{error:#}")),
            })
        })
        .map_err(|error| part.trouble(error))?;
        Ok(Self { url, part })
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.part.pid()
    }

    /// Where it answers, over plain HTTP.
    pub fn url(&self) -> &str {
        &self.url
    }
}
