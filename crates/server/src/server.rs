//! Starts, serves and drains a server. Everything that can fail at the start fails in [`Server::bind`]; later only a shutdown
//! request ends it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use prometheus_client::metrics::gauge::Gauge;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::admin::{self, AdminPort, LocalPort, LogControl, Port};
use crate::checks::{Check, Checks};
use crate::connection::Connections;
use crate::connection_limit::ConnectionLimit;
use crate::drain::DrainSignal;
use crate::errors::{BindError, Socket};
use crate::listener::{accept_forever, log_panic};
use crate::metrics::Metrics;
use crate::pipeline::Pipeline;
use crate::plan::PlanCell;
use crate::settings::{Limits, ServerOptions};
use crate::shutdown::{Shutdown, Stopped};
use crate::supervisor::supervise;
use crate::tls::{CertReloader, reload_periodically};

/// Valid options of a server.
#[derive(Debug, Clone)]
pub struct Settings(ServerOptions);

impl Settings {
    /// Checks the options. Fails if a server with them would start and could not serve.
    pub fn new(options: ServerOptions) -> Result<Self, BindError> {
        if let Some(address) = options.local.filter(|address| !address.ip().is_loopback()) {
            return Err(BindError::NotLoopback { address });
        }
        let Limits { in_flight, body_bytes, bytes_in_flight, deadline, connections } = &options.limits;
        for (key, is_zero) in [
            ("server.limits.inFlight", *in_flight == 0),
            ("server.limits.bodyBytes", *body_bytes == 0),
            ("server.limits.connections", *connections == 0),
            ("server.limits.deadline", deadline.is_zero()),
            ("server.tls.poll", options.tls.poll.is_zero()),
        ] {
            if is_zero {
                return Err(BindError::Setting { key, why: "nothing could be served with none".to_owned() });
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
        Ok(Self(options))
    }
}

/// A server that is not started yet.
#[derive(Debug)]
pub struct Server;

/// A server with open sockets and a loaded certificate. Clients can connect and wait until it serves.
pub struct Bound {
    options: ServerOptions,
    plan: PlanCell,
    metrics: Metrics,
    checks: Checks,
    log: Option<Arc<dyn LogControl>>,
    reloader: CertReloader,
    shutdown_check: Check,
    listen: TcpListener,
    admin: TcpListener,
    local: Option<TcpListener>,
    addresses: Addresses,
}

/// The addresses of a bound server, with the ports that the kernel chose.
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
    /// Opens the sockets and loads the certificate. Requests are answered after [`Bound::serve`].
    ///
    /// Adds the checks `certificate` and `shutdown` to `checks`.
    pub async fn bind(
        settings: Settings,
        plan: PlanCell,
        metrics: Metrics,
        checks: Checks,
        log: Option<Arc<dyn LogControl>>,
    ) -> Result<Bound, BindError> {
        let options = settings.0;
        let certificate_check = checks.add("certificate");
        let now = SystemTime::now();
        let reloader = CertReloader::start(options.tls.clone(), metrics.clone(), certificate_check, now)?;
        let shutdown_check = checks.add("shutdown");
        shutdown_check.fail("not serving yet");
        let (listen, listen_address) = open(Socket::Listen, options.listen).await?;
        let (admin, admin_address) = open(Socket::Admin, options.admin).await?;
        let local = match options.local {
            Some(address) => Some(open(Socket::Local, address).await?),
            None => None,
        };
        let (local, local_address) = local.unzip();
        let addresses = Addresses { listen: listen_address, admin: admin_address, local: local_address };
        Ok(Bound {
            options,
            plan,
            metrics,
            checks,
            log,
            reloader,
            shutdown_check,
            listen,
            admin,
            local,
            addresses,
        })
    }
}

async fn open(socket: Socket, address: SocketAddr) -> Result<(TcpListener, SocketAddr), BindError> {
    let failed = |source| BindError::Address { socket, address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

impl Bound {
    /// Returns the addresses.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Serves until `shutdown` is requested, then stops in order:
    ///
    /// 1. `/readyz` fails, and every answer has `Connection: close`.
    /// 2. The server accepts connections for `drain.lame_duck` more.
    /// 3. It accepts no more connections, closes idle ones, and waits for requests in flight, at most `drain.finish`.
    pub async fn serve(self, mut shutdown: Shutdown) -> Stopped {
        let Self {
            options, plan, metrics, checks, log, reloader, shutdown_check, listen, admin, local, ..
        } = self;
        let drain = DrainSignal::new();
        shutdown_check.pass();
        let tls = reloader.tls();
        // Background tasks stop when this is dropped, after everything else: probes and scrapes see the drain.
        let mut background = JoinSet::new();
        let (status, poll) = (reloader.status(), options.tls.poll);
        let reloader = Arc::new(Mutex::new(reloader));
        background.spawn(supervise("certificate", metrics.clone(), move || {
            reload_periodically(Arc::clone(&reloader), status.clone(), poll)
        }));
        let admin_port = AdminPort { checks, metrics: metrics.clone() };
        background.spawn(serve_port("admin", admin, admin_port, metrics.clone()));
        if let Some(local) = local {
            background.spawn(serve_port("local", local, LocalPort { log }, metrics.clone()));
        }
        let limit = ConnectionLimit::new("listen", options.limits.connections);
        let pipeline = Pipeline::new(plan, options.limits, &options.timeouts, drain.watch(), &metrics);
        let metrics = metrics.server().clone();
        let connections = Arc::new(Connections {
            tls,
            pipeline: Arc::new(pipeline),
            timeouts: options.timeouts,
            metrics: metrics.clone(),
        });
        let acceptor = Acceptor { listener: listen, limit, connections, drain };
        let mut tasks = JoinSet::new();
        tokio::select! {
            never = acceptor.accept(&mut tasks) => match never {},
            () = shutdown.requested() => {}
        }
        shutdown_check.fail("the server is stopping");
        acceptor.drain.start_lame_duck();
        tracing::info!(lame_duck = ?options.drain.lame_duck, connections = tasks.len(), "stopping: no longer ready");
        tokio::select! {
            never = acceptor.accept(&mut tasks) => match never {},
            () = sleep(options.drain.lame_duck) => {}
            () = shutdown.forced() => return aborted(tasks.len()),
        }
        let Acceptor { listener, drain, .. } = acceptor;
        drop(listener);
        drain.start_drain();
        let finish = options.drain.finish;
        tracing::info!(?finish, connections = tasks.len(), "stopping: no longer accepting");
        let all_ended = async {
            while let Some(end) = tasks.join_next().await {
                log_panic(end, &metrics);
            }
        };
        let is_clean = tokio::select! {
            end = timeout(finish, all_ended) => end.is_ok(),
            () = shutdown.forced() => return aborted(tasks.len()),
        };
        if is_clean {
            tracing::info!("stopped: everything in flight was answered");
            return Stopped::Clean;
        }
        tracing::warn!(connections = tasks.len(), "stopped: connections were still busy and are cut");
        Stopped::CutOff { connections: tasks.len() }
    }
}

/// Serves a port without TLS, and restarts it if it fails.
async fn serve_port<P: Port>(name: &'static str, listener: TcpListener, port: P, metrics: Metrics) {
    let (listener, port) = (Arc::new(listener), Arc::new(port));
    let supervised = metrics.clone();
    supervise(name, supervised, move || {
        admin::serve(name, Arc::clone(&listener), Arc::clone(&port), metrics.clone())
    })
    .await;
}

fn aborted(connections: usize) -> Stopped {
    tracing::warn!(connections, "asked to stop a second time: stopped at once");
    Stopped::Aborted
}

/// The HTTPS listener with what its connections need.
struct Acceptor {
    listener: TcpListener,
    limit: Arc<ConnectionLimit>,
    connections: Arc<Connections>,
    drain: DrainSignal,
}

impl Acceptor {
    async fn accept(&self, tasks: &mut JoinSet<()>) -> Infallible {
        let metrics = &self.connections.metrics;
        accept_forever(&self.listener, tasks, metrics, |tcp, peer| {
            let (limit, connections) = (Arc::clone(&self.limit), Arc::clone(&self.connections));
            let drain = self.drain.watch();
            async move {
                connections.metrics.connections_accepted.inc();
                let Some(permit) = limit.acquire(peer).await else {
                    connections.metrics.count_shed("connections");
                    return;
                };
                let _counted = CountGuard::new(&connections.metrics.connections);
                connections.serve(tcp, peer, drain, &permit).await;
            }
        })
        .await
    }
}

/// Counts one in a gauge until it is dropped.
struct CountGuard(Gauge);

impl CountGuard {
    fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}
