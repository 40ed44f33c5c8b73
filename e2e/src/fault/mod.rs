//! A proxy in front of a member's API server that misbehaves on request: for answers that no real part can be made to give.
//!
//! A member is registered in Karmada under the proxy's [`url`](Proxy::url). Everything passes through untouched, credentials,
//! impersonation and watches included, until a test says otherwise, and again when the rule goes out of scope:
//!
//! ```no_run
//! # use e2e::fault::{Fault, Proxy};
//! # fn case(authority: &e2e::certificates::Ca) -> anyhow::Result<()> {
//! let proxy = Proxy::before("https://127.0.0.1:20443", authority)?;
//! let garbage = proxy.on("/pods").answers(Fault::Garbage);
//! // … delete the namespace, see it refused …
//! anyhow::ensure!(garbage.hits() > 0, "nobody asked the member for pods");
//! # Ok(()) }
//! ```
//!
//! Faults are in [`answer`], what carries them in `line.rs`. Left to others: what the real thing can be made to do (a process
//! that is stopped or frozen, packets that are dropped). Not passed through: upgrades, which exec and port-forward need, and
//! client certificates, which end where TLS ends: Karmada asks members with tokens.

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
pub use relay::Relay;

use crate::certificates::Ca;

/// A proxy that runs until it is dropped.
pub struct Proxy {
    address: SocketAddr,
    desk: Arc<Desk>,
    runtime: Option<Runtime>,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Proxy({})", self.address)
    }
}

impl Proxy {
    /// In front of the API server at this URL (`https://host:port`), on a port of its own. The authority is the one that
    /// signed the API server's certificate; it signs the proxy's too, so that whoever trusts the one trusts the other.
    pub fn before(upstream: &str, ca: &Ca) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("fault-proxy")
            .enable_all()
            .build()?;
        let upstream = upstream::Upstream::new(upstream, ca)?;
        let leaf = ca.server(&["localhost"], &[Ipv4Addr::LOCALHOST.into()])?;
        let desk = Arc::new(Desk::default());
        let tls = connection::acceptor(&leaf)?;
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
            .context("the fault proxy has no port")?;
        let address = listener.local_addr()?;
        runtime.spawn(connection::accept(listener, tls, upstream, Arc::clone(&desk)));
        Ok(Self { address, desk, runtime: Some(runtime) })
    }

    /// What to publish as the member's API endpoint.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The requests whose path, query included, contains this.
    pub fn on(&self, part: &str) -> On {
        On { desk: Arc::clone(&self.desk), method: None, part: part.to_owned(), whole: false }
    }

    /// From now on connections are taken and never spoken to, not even TLS, until what is returned goes out of scope. Those
    /// that are open already go on.
    pub fn goes_mute(&self) -> Mute {
        let (alive, ended) = watch::channel(());
        let hits = Arc::new(AtomicUsize::new(0));
        *lock(&self.desk.mute) = Some(Silence { ended, hits: Arc::clone(&hits) });
        Mute { hits, _alive: alive }
    }

    /// How many requests have come, whatever became of them.
    pub fn asked(&self) -> usize {
        self.desk.asked.load(Ordering::Relaxed)
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

/// Requests of which something is about to be said.
#[must_use = "say what they are answered"]
pub struct On {
    desk: Arc<Desk>,
    method: Option<Method>,
    part: String,
    whole: bool,
}

impl On {
    /// Only those of this method.
    pub fn method(mut self, method: Method) -> Self {
        self.method = Some(method);
        self
    }

    /// Only those whose path, without the query, is exactly this: `/api/v1/namespaces/shop`, and not what is in it.
    pub fn exactly(mut self) -> Self {
        self.whole = true;
        self
    }

    /// They are answered so from now on. Of several rules that fit, the newest counts. A request that is under way keeps what
    /// it got: so does an open watch.
    pub fn answers(self, fault: Fault) -> Rule {
        let (alive, ended) = watch::channel(());
        let Self { desk, method, part, whole } = self;
        let entry = Arc::new(Entry { method, part, whole, fault, hits: AtomicUsize::new(0), ended });
        lock(&desk.rules).push(Arc::clone(&entry));
        Rule { desk, entry, _alive: alive }
    }
}

/// A fault that lasts as long as this value. When it goes, whoever still waits for an answer loses the connection.
#[must_use = "the fault ends with this value"]
pub struct Rule {
    desk: Arc<Desk>,
    entry: Arc<Entry>,
    _alive: watch::Sender<()>,
}

impl Rule {
    /// How many requests it has hit. A test whose fault hit nothing has proven nothing.
    pub fn hits(&self) -> usize {
        self.entry.hits.load(Ordering::Relaxed)
    }
}

impl Drop for Rule {
    fn drop(&mut self) {
        lock(&self.desk.rules).retain(|entry| !Arc::ptr_eq(entry, &self.entry));
    }
}

/// New connections are taken and never spoken to as long as this value lives; then they are closed.
#[must_use = "the silence ends with this value"]
pub struct Mute {
    hits: Arc<AtomicUsize>,
    _alive: watch::Sender<()>,
}

impl Mute {
    /// How many connections it has met.
    pub fn hits(&self) -> usize {
        self.hits.load(Ordering::Relaxed)
    }
}

/// What tests have said so far.
#[derive(Default)]
struct Desk {
    rules: Mutex<Vec<Arc<Entry>>>,
    mute: Mutex<Option<Silence>>,
    asked: AtomicUsize,
}

/// What a mute proxy's connections wait for.
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
    /// Closed when the rule has gone.
    ended: watch::Receiver<()>,
}

impl Desk {
    /// The newest rule for a request, which is counted.
    fn rule<B>(&self, request: &Request<B>) -> Option<Arc<Entry>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let found = lock(&self.rules).iter().rev().find(|entry| entry.is_for(request)).map(Arc::clone)?;
        found.hits.fetch_add(1, Ordering::Relaxed);
        Some(found)
    }

    /// What ends the silence, if there is one now, which is counted.
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

    /// Waits until the rule has gone.
    async fn ended(&self) {
        let mut ended = self.ended.clone();
        // Nothing is ever sent: the only news is that the other end has gone.
        while ended.changed().await.is_ok() {}
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
