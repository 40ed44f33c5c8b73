//! Starts, serves and drains a server. Everything that can fail at the start fails in [`Server::bind`]; later only a shutdown
//! request ends it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use prometheus_client::metrics::gauge::Gauge;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::admin::{self, MetricsPort};
use crate::checks::{Check, Checks};
use crate::connection::SharedParts;
use crate::connection_limit::ConnectionLimit;
use crate::drain::DrainSignal;
use crate::errors::{BindAddress, BindError};
use crate::listener::{accept_forever, remove_ended};
use crate::metrics::Metrics;
use crate::pipeline::Pipeline;
use crate::plan::PlanCell;
use crate::settings::{Limits, ServerOptions};
use crate::shutdown::{Shutdown, Stopped};
use crate::supervisor::supervise;
use crate::tls::{CertReloader, reload_periodically};

/// Bytes that the kernel keeps of the answers on one connection; it doubles the number. By default it keeps up to 4 MiB, and a client
/// that reads nothing could fill the memory of the container with 512 connections.
const SEND_BUFFER: u32 = 64 << 10;
/// Connections that the kernel accepts before the server does.
const BACKLOG: u32 = 1024;

/// Valid options of a server.
#[derive(Debug, Clone)]
pub struct Settings(ServerOptions);

impl Settings {
    /// Checks the options. Fails if a server with them would start and could not serve.
    pub fn new(options: ServerOptions) -> Result<Self, BindError> {
        let limits = &options.limits;
        for (key, is_zero) in [
            ("server.limits.maxConcurrentRequests", limits.max_concurrent_requests == 0),
            ("server.limits.maxRequestBytes", limits.max_request_bytes == 0),
            ("server.limits.maxConnections", limits.max_connections == 0),
            ("the longest timeout of a request", limits.request_timeout.is_zero()),
            ("server.tls.poll", options.tls.poll.is_zero()),
        ] {
            if is_zero {
                return Err(BindError::Setting { key, why: "it must be greater than zero".to_owned() });
            }
        }
        let largest = limits.max_request_bytes.saturating_add(Limits::BODY_COST);
        if limits.max_total_bytes < largest {
            let why = format!(
                "{} bytes are less than the {largest} bytes of the largest request: maxRequestBytes, and {} for its connection",
                limits.max_total_bytes,
                Limits::BODY_COST
            );
            return Err(BindError::Setting { key: "server.limits.maxTotalBytes", why });
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
    reloader: CertReloader,
    shutdown_check: Check,
    webhook_listener: TcpListener,
    metrics_listener: TcpListener,
    addresses: Addresses,
}

/// The addresses of a bound server, with the ports that the kernel chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// HTTPS, for the API server.
    pub webhook: SocketAddr,
    /// Plain HTTP: `/livez`, `/readyz`, `/metrics`.
    pub metrics: SocketAddr,
}

impl Server {
    /// Opens the sockets and loads the certificate. Requests are answered after [`Bound::serve`].
    ///
    /// Adds the checks `certificate` and `shutdown` to `checks`. Must be called within a tokio runtime.
    pub fn bind(
        settings: Settings,
        plan: PlanCell,
        metrics: Metrics,
        checks: Checks,
    ) -> Result<Bound, BindError> {
        let options = settings.0;
        let certificate_check = checks.add("certificate");
        let now = SystemTime::now();
        let reloader = CertReloader::start(options.tls.clone(), metrics.clone(), certificate_check, now)?;
        let shutdown_check = checks.add("shutdown");
        shutdown_check.fail("not serving yet");
        let (webhook_listener, webhook) = open(BindAddress::Webhook, options.bind_address)?;
        let (metrics_listener, metrics_address) = open(BindAddress::Metrics, options.metrics_bind_address)?;
        let addresses = Addresses { webhook, metrics: metrics_address };
        Ok(Bound {
            options,
            plan,
            metrics,
            checks,
            reloader,
            shutdown_check,
            webhook_listener,
            metrics_listener,
            addresses,
        })
    }
}

fn open(key: BindAddress, address: SocketAddr) -> Result<(TcpListener, SocketAddr), BindError> {
    let listener = listen(address).and_then(|listener| Ok((listener.local_addr()?, listener)));
    let (bound, listener) = listener.map_err(|source| BindError::Address { key, address, source })?;
    Ok((listener, bound))
}

/// Listens as [`TcpListener::bind`] does, and with a [`SEND_BUFFER`] and a [`BACKLOG`].
fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

impl Bound {
    /// Returns the addresses.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Serves until `shutdown` is requested, then stops in order:
    ///
    /// 1. `/readyz` fails, and every answer has `Connection: close`.
    /// 2. The server accepts connections for `shutdown.delay` more.
    /// 3. It accepts no more connections, closes idle ones, and waits for requests in flight, at most `shutdown.timeout`.
    pub async fn serve(self, mut shutdown: Shutdown) -> Stopped {
        let Self {
            options,
            plan,
            metrics,
            checks,
            reloader,
            shutdown_check,
            webhook_listener,
            metrics_listener,
            ..
        } = self;
        let drain = DrainSignal::new();
        shutdown_check.pass();
        let tls = reloader.tls();
        // Background tasks stop when this is dropped, after everything else: probes and scrapes see the drain.
        let mut background = JoinSet::new();
        let (status, poll, issued) = (reloader.status(), options.tls.poll, reloader.issued().cloned());
        let reloader = Arc::new(Mutex::new(reloader));
        background.spawn(supervise("certificate", metrics.clone(), move || {
            reload_periodically(Arc::clone(&reloader), status.clone(), poll, issued.clone())
        }));
        let metrics_port = Arc::new(MetricsPort { checks, metrics: metrics.clone() });
        let metrics_listener = Arc::new(metrics_listener);
        background.spawn(supervise("metrics", metrics.clone(), move || {
            admin::serve(Arc::clone(&metrics_listener), Arc::clone(&metrics_port))
        }));
        let limit = ConnectionLimit::new("webhook", options.limits.max_connections);
        let pipeline = Pipeline::new(plan, options.limits, &options.timeouts, drain.watch(), &metrics);
        let connections = Arc::new(SharedParts {
            tls,
            pipeline: Arc::new(pipeline),
            timeouts: options.timeouts,
            metrics: metrics.server().clone(),
        });
        let acceptor = Acceptor { listener: webhook_listener, limit, connections, drain };
        let mut tasks = JoinSet::new();
        tokio::select! {
            never = acceptor.accept(&mut tasks) => match never {},
            () = shutdown.requested() => {}
        }
        shutdown_check.fail("the server is stopping");
        acceptor.drain.start_lame_duck();
        remove_ended(&mut tasks);
        tracing::info!(delay = ?options.shutdown.delay, connections = tasks.len(), "shutdown started: not ready");
        tokio::select! {
            never = acceptor.accept(&mut tasks) => match never {},
            () = sleep(options.shutdown.delay) => {}
            () = shutdown.forced() => return aborted(&mut tasks),
        }
        let Acceptor { listener, drain, .. } = acceptor;
        drop(listener);
        drain.start_drain();
        remove_ended(&mut tasks);
        let finish = options.shutdown.timeout;
        tracing::info!(timeout = ?finish, connections = tasks.len(), "draining: no new connections");
        let all_ended = async { while tasks.join_next().await.is_some() {} };
        let is_clean = tokio::select! {
            end = timeout(finish, all_ended) => end.is_ok(),
            () = shutdown.forced() => return aborted(&mut tasks),
        };
        remove_ended(&mut tasks);
        if is_clean {
            tracing::info!("drained: all requests were answered");
            return Stopped::Clean;
        }
        tracing::warn!(connections = tasks.len(), "shutdown timeout reached: busy connections are closed");
        Stopped::CutOff { connections: tasks.len() }
    }
}

fn aborted(tasks: &mut JoinSet<()>) -> Stopped {
    remove_ended(tasks);
    tracing::warn!(connections = tasks.len(), "second stop signal: all connections are closed");
    Stopped::Aborted
}

/// The HTTPS listener with what its connections need.
struct Acceptor {
    listener: TcpListener,
    limit: Arc<ConnectionLimit>,
    connections: Arc<SharedParts>,
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
                let Some(permit) = limit.acquire(peer) else {
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
