//! From settings to a server that runs: everything that can go wrong goes wrong in [`Server::bind`].

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;

use crate::checks::Checks;
use crate::metrics::Metrics;
use crate::plan::PlanCell;
use crate::settings::Settings;
use crate::shutdown::{Shutdown, Stopped};

/// Reads and sets what is logged while the server runs; given by whoever set logging up.
pub trait LogControl: Send + Sync {
    /// The filter in force, in the form that [`LogControl::set_filter`] takes.
    fn filter(&self) -> String;

    /// Puts another filter in force, for instance `info` or `info,server=debug`. On error the old one stays, and the text says
    /// what is wrong with the new one.
    fn set_filter(&self, filter: &str) -> Result<(), String>;
}

/// A server that is not yet one.
#[derive(Debug)]
pub struct Server;

/// A server with its sockets open and its certificate loaded; callers can connect and wait until it serves.
pub struct Bound {
    settings: Settings,
    plan: PlanCell,
    metrics: Metrics,
    checks: Checks,
    log: Option<Arc<dyn LogControl>>,
    listen: TcpListener,
    admin: TcpListener,
    local: Option<TcpListener>,
    addresses: Addresses,
}

/// Where a bound server listens, with the ports that it really got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// HTTPS, for the API server.
    pub listen: SocketAddr,
    /// Plain HTTP: `/livez`, `/readyz`, `/metrics`.
    pub admin: SocketAddr,
    /// Plain HTTP on loopback: `/log-level`.
    pub local: Option<SocketAddr>,
}

/// One of the server's sockets, by its key in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// `server.listen`
    Listen,
    /// `server.admin`
    Admin,
    /// `server.local`
    Local,
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Listen => "server.listen",
            Self::Admin => "server.admin",
            Self::Local => "server.local",
        })
    }
}

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// A socket cannot be opened.
    #[error("cannot listen on {address} ({port}): {source}")]
    Address {
        /// Which one.
        port: Port,
        /// Where.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The local port is reachable from elsewhere.
    #[error("{address} (server.local) is not a loopback address")]
    NotLoopback {
        /// Where.
        address: SocketAddr,
    },
}

impl Server {
    /// Opens the sockets and loads the certificate. Nobody is answered before [`Bound::serve`].
    pub async fn bind(
        settings: Settings,
        plan: PlanCell,
        metrics: Metrics,
        checks: Checks,
        log: Option<Arc<dyn LogControl>>,
    ) -> Result<Bound, BindError> {
        if let Some(address) = settings.local.filter(|address| !address.ip().is_loopback()) {
            return Err(BindError::NotLoopback { address });
        }
        let listen = open(Port::Listen, settings.listen).await?;
        let admin = open(Port::Admin, settings.admin).await?;
        let local = match settings.local {
            Some(address) => Some(open(Port::Local, address).await?),
            None => None,
        };
        let addresses =
            Addresses { listen: listen.1, admin: admin.1, local: local.as_ref().map(|local| local.1) };
        Ok(Bound {
            settings,
            plan,
            metrics,
            checks,
            log,
            listen: listen.0,
            admin: admin.0,
            local: local.map(|local| local.0),
            addresses,
        })
    }
}

async fn open(port: Port, address: SocketAddr) -> Result<(TcpListener, SocketAddr), BindError> {
    let failed = |source| BindError::Address { port, address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

impl Bound {
    /// Where it listens.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Serves until `shutdown` says so.
    pub async fn serve(self, mut shutdown: Shutdown) -> Stopped {
        let Self {
            settings: _, plan: _, metrics: _, checks: _, log: _, listen: _, admin: _, local: _, ..
        } = self;
        shutdown.asked().await;
        Stopped::Clean
    }
}
