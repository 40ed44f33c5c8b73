//! A server that runs inside a test.

use std::sync::{Arc, Once};
use std::time::Duration;

use admission::Guard;
use server::{
    Addresses, BindError, CertificatePem, CertificateSource, Checks, Metrics, Plan, PlanCell, Server,
    ServerOptions, Settings, Shutdown, ShutdownHandle, Stopped, TlsSettings,
};
use tokio::task::JoinHandle;

use super::{Answer, Ca, Client, Stub, Trust, plain};

/// Builds a server.
pub(crate) struct ServerBuilder {
    pub(crate) options: ServerOptions,
    pub(crate) ca: Ca,
    guards: Vec<Arc<dyn Guard>>,
}

/// A running server.
pub(crate) struct TestServer {
    pub(crate) addresses: Addresses,
    pub(crate) metrics: Metrics,
    pub(crate) checks: Checks,
    pub(crate) plan: PlanCell,
    pub(crate) trust: Trust,
    pub(crate) shutdown: ShutdownHandle,
    serving: JoinHandle<Stopped>,
}

impl ServerBuilder {
    /// Creates a builder with free loopback ports, default limits, a certificate in memory, and no lame duck phase.
    pub(crate) fn new() -> Self {
        capture_on_all_threads();
        let ca = Ca::new("test authority");
        let issued = ca.issue(1);
        let pem = CertificatePem { cert: issued.cert.into_bytes(), key: issued.key.into_bytes() };
        let free = "127.0.0.1:0".parse().unwrap();
        let options = ServerOptions {
            bind_address: free,
            metrics_bind_address: free,
            tls: TlsSettings::new(CertificateSource::Pem(pem)),
            limits: server::Limits::default(),
            timeouts: server::Timeouts::default(),
            shutdown: server::ShutdownTimes { delay: Duration::ZERO, ..server::ShutdownTimes::default() },
        };
        Self { options, ca, guards: Vec::new() }
    }

    pub(crate) fn guard(mut self, guard: Stub) -> Self {
        self.guards.push(Arc::new(guard));
        self
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut ServerOptions)) -> Self {
        change(&mut self.options);
        self
    }

    #[expect(clippy::unused_async, reason = "it starts a task, so it needs a runtime")]
    pub(crate) async fn try_start(self) -> Result<TestServer, BindError> {
        let (metrics, checks) = (Metrics::new("test"), Checks::new());
        let plan = PlanCell::new(Plan::new(1, self.guards, &metrics).unwrap());
        let bound =
            Server::bind(Settings::new(self.options)?, plan.clone(), metrics.clone(), checks.clone())?;
        let addresses = bound.addresses();
        let (shutdown, requests) = Shutdown::manual();
        let serving = tokio::spawn(bound.serve(requests));
        let trust = Trust::new(&self.ca.pem);
        Ok(TestServer { addresses, metrics, checks, plan, trust, shutdown, serving })
    }

    pub(crate) async fn start(self) -> TestServer {
        self.try_start().await.unwrap()
    }
}

impl TestServer {
    pub(crate) async fn connect(&self) -> Client {
        self.try_connect().await.unwrap()
    }

    pub(crate) async fn try_connect(&self) -> std::io::Result<Client> {
        Client::connect(self.addresses.webhook, &self.trust).await
    }

    /// Sends one review on a new connection.
    pub(crate) async fn post(&self, path: &str, body: impl AsRef<[u8]>) -> Answer {
        self.connect().await.post(path, body).await
    }

    pub(crate) async fn admin(&self, path: &str) -> Answer {
        plain(self.addresses.metrics, "GET", path, "").await
    }

    /// Returns the value of a series, 0 if it does not exist.
    pub(crate) fn metric(&self, series: &str) -> f64 {
        let text = self.metrics.encode();
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map_or(0.0, |value| value.parse().unwrap())
    }

    /// Waits until a series has this value.
    pub(crate) async fn wait_for_metric(&self, series: &str, value: f64) {
        super::wait_until(&format!("{series} is {value}"), async || {
            (self.metric(series) - value).abs() < f64::EPSILON
        })
        .await;
        // A misspelled name would always be 0.
        let name = series.split('{').next().unwrap_or_default();
        let family = ["_total", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        let is_there = self.metrics.encode().contains(&format!("# TYPE {family} "));
        assert!(is_there, "there is no metric {family}");
    }

    /// Waits until the server has stopped.
    pub(crate) async fn stopped(self) -> Stopped {
        tokio::time::timeout(Duration::from_secs(20), self.serving).await.expect("it never stopped").unwrap()
    }
}

/// Sets a global subscriber. Tests of log lines set one for their thread. Without a global one, tracing caches that a call site
/// is disabled, and can miss a subscriber that is set at the same moment.
fn capture_on_all_threads() {
    static SUBSCRIBED: Once = Once::new();
    SUBSCRIBED.call_once(|| tracing::subscriber::set_global_default(tracing_subscriber::registry()).unwrap());
}
