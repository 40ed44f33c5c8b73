//! A proxy in front of a member's API server with answers that no real API server gives.
//!
//! A member is registered in Karmada under the proxy's [`url`](Proxy::url). Requests, credentials, impersonation and watches
//! pass unchanged until a rule answers them, and again when the rule is dropped:
//!
//! ```no_run
//! # use e2e::fault::{Fault, Proxy};
//! # fn case(ca: &e2e::certificates::Ca) -> anyhow::Result<()> {
//! let proxy = Proxy::before("https://127.0.0.1:20443", ca)?;
//! let garbage = proxy.on("/pods").answers(Fault::Garbage);
//! // … delete the namespace and expect a denial …
//! anyhow::ensure!(garbage.hits() > 0, "no request for pods");
//! # Ok(()) }
//! ```
//!
//! [`answer`] has the faults, `connection.rs` the transport. Upgrades (exec, port-forward) and client certificates do not
//! pass; Karmada uses tokens.

pub mod answer;
pub mod relay;

mod connection;
mod upstream;

#[cfg(test)]
mod tests;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result};
use http::{Method, Request};
use tokio::runtime::Runtime;
use tokio::sync::watch;

pub use answer::Fault;
pub(crate) use connection::acceptor;
pub use relay::Relay;

use crate::certificates::Ca;

/// A proxy that runs until it is dropped.
pub struct Proxy {
    address: SocketAddr,
    state: Arc<ProxyState>,
    runtime: Option<Runtime>,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Proxy({})", self.address)
    }
}

impl Proxy {
    /// Starts a proxy for the API server at this URL (`https://host:port`) on a port of its own. `ca` has signed the
    /// API server's certificate and signs the proxy's, so clients trust both.
    pub fn before(upstream: &str, ca: &Ca) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("fault-proxy")
            .enable_all()
            .build()?;
        let upstream = upstream::Upstream::new(upstream, ca)?;
        let leaf = ca.server(&["localhost"], &[Ipv4Addr::LOCALHOST.into()])?;
        let state = Arc::new(ProxyState::default());
        let tls = connection::acceptor(&leaf, &["h2", "http/1.1"])?;
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
            .context("the fault proxy has no port")?;
        let address = listener.local_addr()?;
        runtime.spawn(connection::accept(listener, tls, upstream, Arc::clone(&state)));
        Ok(Self { address, state, runtime: Some(runtime) })
    }

    /// Returns the URL to publish as the member's API endpoint.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Selects the requests whose path or query contains this.
    pub fn on(&self, part: &str) -> On {
        On { state: Arc::clone(&self.state), method: None, part: part.to_owned(), whole: false }
    }

    /// Accepts connections without reading from them, not even TLS, until the result is dropped. Open connections
    /// continue.
    pub fn mute(&self) -> Mute {
        let (alive, ended) = watch::channel(());
        let hits = Arc::new(AtomicUsize::new(0));
        *lock(&self.state.mute) = Some(Silence { ended, hits: Arc::clone(&hits) });
        Mute { hits, _alive: alive }
    }

    /// Returns the number of requests so far.
    pub fn requests(&self) -> usize {
        self.state.asked.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Open watches would keep it for minutes.
            runtime.shutdown_background();
        }
    }
}

/// A selection of requests.
#[must_use = "a selection alone answers nothing; call `answers`"]
pub struct On {
    state: Arc<ProxyState>,
    method: Option<Method>,
    part: String,
    whole: bool,
}

impl On {
    /// Selects only requests with this method.
    pub fn method(mut self, method: Method) -> Self {
        self.method = Some(method);
        self
    }

    /// Selects only requests whose path, without the query, is exactly this.
    pub fn exactly(mut self) -> Self {
        self.whole = true;
        self
    }

    /// Answers them with this fault from now on. The newest of several matching rules counts. Requests in flight and
    /// open watches keep their answer.
    pub fn answers(self, fault: Fault) -> Rule {
        let (alive, ended) = watch::channel(());
        let Self { state, method, part, whole } = self;
        let entry = Arc::new(Entry { method, part, whole, fault, hits: AtomicUsize::new(0), ended });
        lock(&state.rules).push(Arc::clone(&entry));
        Rule { state, entry, _alive: alive }
    }
}

/// A fault that lasts as long as this value. Then requests that still wait lose their connection.
#[must_use = "the fault ends with this value"]
pub struct Rule {
    state: Arc<ProxyState>,
    entry: Arc<Entry>,
    _alive: watch::Sender<()>,
}

impl Rule {
    /// Returns the number of requests that it has answered. A case whose fault answered none has proven nothing.
    pub fn hits(&self) -> usize {
        self.entry.hits.load(Ordering::Relaxed)
    }
}

impl Drop for Rule {
    fn drop(&mut self) {
        lock(&self.state.rules).retain(|entry| !Arc::ptr_eq(entry, &self.entry));
    }
}

/// New connections get no answer as long as this value lives; then they are closed.
#[must_use = "the silence ends with this value"]
pub struct Mute {
    hits: Arc<AtomicUsize>,
    _alive: watch::Sender<()>,
}

impl Mute {
    /// Returns the number of such connections.
    pub fn hits(&self) -> usize {
        self.hits.load(Ordering::Relaxed)
    }
}

/// The state that the proxy and its rules share.
#[derive(Default)]
struct ProxyState {
    rules: Mutex<Vec<Arc<Entry>>>,
    mute: Mutex<Option<Silence>>,
    asked: AtomicUsize,
}

/// The end of a [`Mute`].
struct Silence {
    ended: watch::Receiver<()>,
    hits: Arc<AtomicUsize>,
}

struct Entry {
    method: Option<Method>,
    part: String,
    whole: bool,
    fault: Fault,
    hits: AtomicUsize,
    /// Closed when the rule is dropped.
    ended: watch::Receiver<()>,
}

impl ProxyState {
    /// Returns the newest rule for a request and counts it.
    fn rule<B>(&self, request: &Request<B>) -> Option<Arc<Entry>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let found = lock(&self.rules).iter().rev().find(|entry| entry.is_for(request)).map(Arc::clone)?;
        found.hits.fetch_add(1, Ordering::Relaxed);
        Some(found)
    }

    /// Returns the end of the current [`Mute`] and counts the connection.
    fn mute(&self) -> Option<watch::Receiver<()>> {
        let mute = lock(&self.mute);
        let silence = mute.as_ref().filter(|silence| silence.ended.has_changed().is_ok())?;
        silence.hits.fetch_add(1, Ordering::Relaxed);
        Some(silence.ended.clone())
    }
}

impl Entry {
    fn is_for<B>(&self, request: &Request<B>) -> bool {
        let asked = request.uri().path_and_query().map_or("", http::uri::PathAndQuery::as_str);
        let fits = if self.whole { request.uri().path() == self.part } else { asked.contains(&self.part) };
        fits && self.method.as_ref().is_none_or(|method| method == request.method())
    }

    /// Waits until the rule is dropped.
    async fn ended(&self) {
        let mut ended = self.ended.clone();
        // The channel carries no values; it only closes.
        while ended.changed().await.is_ok() {}
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
