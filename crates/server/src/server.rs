//! From settings to a server that runs, and from there to its end. Everything that can go wrong at the start goes wrong in
//! [`Server::bind`]; after that only being asked ends it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::admin::{self, Admin, Local, Page};
use crate::beside::keep_running;
use crate::checks::{Check, Checks};
use crate::connection::Connections;
use crate::drain::Leaving;
use crate::errors::{BindError, Port};
use crate::house::House;
use crate::listener::{accept_for_ever, tell_panic};
use crate::metrics::Metrics;
use crate::pipeline::Pipeline;
use crate::plan::PlanCell;
use crate::settings::{Limits, Settings};
use crate::shutdown::{Shutdown, Stopped};
use crate::tls::{Keeper, keep};

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
    keeper: Keeper,
    standing: Check,
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

impl Server {
    /// Opens the sockets and loads the certificate. Nobody is answered before [`Bound::serve`].
    ///
    /// Adds the checks `certificate` and `shutdown` to `checks`.
    pub async fn bind(
        settings: Settings,
        plan: PlanCell,
        metrics: Metrics,
        checks: Checks,
        log: Option<Arc<dyn LogControl>>,
    ) -> Result<Bound, BindError> {
        check(&settings)?;
        let now = SystemTime::now();
        let keeper = Keeper::start(settings.tls.clone(), metrics.clone(), checks.add("certificate"), now)?;
        let standing = checks.add("shutdown");
        standing.fail("not serving yet");
        let (listen, listen_address) = open(Port::Listen, settings.listen).await?;
        let (admin, admin_address) = open(Port::Admin, settings.admin).await?;
        let local = match settings.local {
            Some(address) => Some(open(Port::Local, address).await?),
            None => None,
        };
        let (local, local_address) = local.unzip();
        let addresses = Addresses { listen: listen_address, admin: admin_address, local: local_address };
        Ok(Bound { settings, plan, metrics, checks, log, keeper, standing, listen, admin, local, addresses })
    }
}

async fn open(port: Port, address: SocketAddr) -> Result<(TcpListener, SocketAddr), BindError> {
    let failed = |source| BindError::Address { port, address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

/// Settings with which a server would start and then serve nobody.
fn check(settings: &Settings) -> Result<(), BindError> {
    if let Some(address) = settings.local.filter(|address| !address.ip().is_loopback()) {
        return Err(BindError::NotLoopback { address });
    }
    let Limits { in_flight, body_bytes, bytes_in_flight, deadline, connections } = &settings.limits;
    let zero = "nothing could be served with none".to_owned();
    for (key, is_zero) in [
        ("server.limits.inFlight", *in_flight == 0),
        ("server.limits.bodyBytes", *body_bytes == 0),
        ("server.limits.connections", *connections == 0),
        ("server.limits.deadline", deadline.is_zero()),
        ("server.tls.poll", settings.tls.poll.is_zero()),
    ] {
        if is_zero {
            return Err(BindError::Setting { key, why: zero });
        }
    }
    let largest = body_bytes.saturating_add(Limits::BODY_COST);
    if *bytes_in_flight < largest {
        let why = format!(
            "{bytes_in_flight} bytes for all bodies are less than the {largest} that one may take: bodyBytes, and {} for \
             whatever holds it",
            Limits::BODY_COST
        );
        return Err(BindError::Setting { key: "server.limits.bytesInFlight", why });
    }
    Ok(())
}

impl Bound {
    /// Where it listens.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Serves until `shutdown` says so, then leaves in order: not ready and `Connection: close` on every answer; accepting for
    /// `drain.lame_duck` more; then no new connection, idle ones ended, and what is in flight awaited for `drain.finish`.
    pub async fn serve(self, mut shutdown: Shutdown) -> Stopped {
        let Self { settings, plan, metrics, checks, log, keeper, standing, listen, admin, local, .. } = self;
        let leaving = Arc::new(Leaving::new());
        standing.pass();
        let greeting = keeper.greeting();
        // What runs beside the door ends when this is dropped: last of all, so that probes and scrapes see the drain.
        let mut beside = JoinSet::new();
        let (in_force, poll) = (keeper.standing(), settings.tls.poll);
        let keeper = Arc::new(Mutex::new(keeper));
        beside.spawn(keep_running("certificate", metrics.clone(), move || {
            keep(Arc::clone(&keeper), in_force.clone(), poll)
        }));
        beside.spawn(port("admin", admin, Admin { checks, metrics: metrics.clone() }, metrics.clone()));
        if let Some(local) = local {
            beside.spawn(port("local", local, Local { log }, metrics.clone()));
        }
        let limits = settings.limits;
        let house = House::new("listen", limits.connections);
        let pipeline = Pipeline::new(plan, limits, &settings.timeouts, Arc::clone(&leaving), &metrics);
        let door = Door {
            listener: listen,
            house,
            connections: Arc::new(Connections {
                greeting,
                pipeline: Arc::new(pipeline),
                timeouts: settings.timeouts,
                numbers: metrics.door().clone(),
            }),
            leaving,
        };
        let mut open = JoinSet::new();
        tokio::select! {
            never = door.accept(&mut open) => match never {},
            () = shutdown.asked() => {}
        }
        standing.fail("the server is stopping");
        door.leaving.close_connections();
        tracing::info!(lame_duck = ?settings.drain.lame_duck, connections = open.len(), "stopping: no longer ready");
        tokio::select! {
            never = door.accept(&mut open) => match never {},
            () = sleep(settings.drain.lame_duck) => {}
            () = shutdown.asked_twice() => return aborted(open.len()),
        }
        door.leaving.drain();
        let (finish, numbers) = (settings.drain.finish, door.connections.numbers.clone());
        drop(door);
        tracing::info!(?finish, connections = open.len(), "stopping: no longer accepting");
        let ended = async {
            while let Some(ended) = open.join_next().await {
                tell_panic(ended, &numbers);
            }
        };
        let stopped = tokio::select! {
            ended = timeout(finish, ended) => ended.is_ok(),
            () = shutdown.asked_twice() => return aborted(open.len()),
        };
        if stopped {
            tracing::info!("stopped: everything in flight was answered");
            return Stopped::Clean;
        }
        tracing::warn!(connections = open.len(), "stopped: connections were still busy and are cut");
        Stopped::CutOff { connections: open.len() }
    }
}

/// A port without TLS, served for as long as this runs.
async fn port<P: Page>(name: &'static str, listener: TcpListener, page: P, metrics: Metrics) {
    let (listener, page) = (Arc::new(listener), Arc::new(page));
    let serving = metrics.clone();
    keep_running(name, metrics, move || {
        admin::serve(name, Arc::clone(&listener), Arc::clone(&page), serving.clone())
    })
    .await;
}

fn aborted(connections: usize) -> Stopped {
    tracing::warn!(connections, "asked to stop a second time: stopped at once");
    Stopped::Aborted
}

/// The listening socket with what it needs to serve.
struct Door {
    listener: TcpListener,
    house: Arc<House>,
    connections: Arc<Connections>,
    leaving: Arc<Leaving>,
}

impl Door {
    async fn accept(&self, open: &mut JoinSet<()>) -> std::convert::Infallible {
        let numbers = &self.connections.numbers;
        let take = |tcp, peer| {
            numbers.connections_accepted.inc();
            let Some(room) = self.house.room(peer) else {
                numbers.count_shed("connections");
                return None;
            };
            let (connections, leaving) = (Arc::clone(&self.connections), self.leaving.listen());
            Some(async move {
                let Some(seated) = room.seated().await else {
                    connections.numbers.count_shed("connections");
                    return;
                };
                let _counted = Counted::new(&connections.numbers.connections);
                connections.serve(tcp, peer, leaving, &seated).await;
            })
        };
        accept_for_ever(&self.listener, open, numbers, take).await
    }
}

/// One in a gauge for as long as it lives.
struct Counted(prometheus_client::metrics::gauge::Gauge);

impl Counted {
    fn new(gauge: &prometheus_client::metrics::gauge::Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}
