//! A server that runs inside a test.

use std::sync::{Arc, Once};
use std::time::Duration;

use admission::Guard;
use server::{
    Addresses, BindError, CertificatePem, CertificateSource, Checks, LogControl, Metrics, Plan, PlanCell,
    Server, Settings, Shutdown, Stop, Stopped, TlsSettings,
};
use tokio::task::JoinHandle;

use super::{Answer, Authority, Client, Stub, Trust, plain};

/// Settings and guards of a server that is about to start.
pub(crate) struct Plans {
    pub(crate) settings: Settings,
    pub(crate) authority: Authority,
    guards: Vec<Arc<dyn Guard>>,
    log: Option<Arc<dyn LogControl>>,
}

/// The server.
pub(crate) struct House {
    pub(crate) addresses: Addresses,
    pub(crate) metrics: Metrics,
    pub(crate) checks: Checks,
    pub(crate) plan: PlanCell,
    pub(crate) trust: Trust,
    pub(crate) stop: Stop,
    serving: JoinHandle<Stopped>,
}

impl Plans {
    /// Free loopback ports, default limits, a certificate in memory; it leaves at once when it is asked to.
    pub(crate) fn new() -> Self {
        listen_to_all();
        let authority = Authority::new("test authority");
        let issued = authority.issue(1);
        let pem = CertificatePem { cert: issued.cert.into_bytes(), key: issued.key.into_bytes() };
        let free = "127.0.0.1:0".parse().unwrap();
        let settings = Settings {
            listen: free,
            admin: free,
            local: Some(free),
            tls: TlsSettings::new(CertificateSource::Pem(pem)),
            limits: server::Limits::default(),
            timeouts: server::Timeouts::default(),
            drain: server::Drain { lame_duck: Duration::ZERO, ..server::Drain::default() },
        };
        Self { settings, authority, guards: Vec::new(), log: None }
    }

    pub(crate) fn guard(mut self, guard: Stub) -> Self {
        self.guards.push(Arc::new(guard));
        self
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    pub(crate) fn log(mut self, log: Arc<dyn LogControl>) -> Self {
        self.log = Some(log);
        self
    }

    pub(crate) async fn try_start(self) -> Result<House, BindError> {
        let (metrics, checks) = (Metrics::new("test"), Checks::new());
        let plan = PlanCell::new(Plan::new(1, self.guards, &metrics).unwrap());
        let bound =
            Server::bind(self.settings, plan.clone(), metrics.clone(), checks.clone(), self.log).await?;
        let addresses = bound.addresses();
        let (stop, shutdown) = Shutdown::by_hand();
        let serving = tokio::spawn(bound.serve(shutdown));
        let trust = Trust::in_authority(&self.authority.pem);
        Ok(House { addresses, metrics, checks, plan, trust, stop, serving })
    }

    pub(crate) async fn start(self) -> House {
        self.try_start().await.unwrap()
    }
}

impl House {
    pub(crate) async fn connect(&self) -> Client {
        Client::connect(self.addresses.listen, &self.trust).await.unwrap()
    }

    /// One review on a connection of its own.
    pub(crate) async fn post(&self, path: &str, body: impl AsRef<[u8]>) -> Answer {
        self.connect().await.post(path, body).await
    }

    pub(crate) async fn admin(&self, path: &str) -> Answer {
        plain(self.addresses.admin, "GET", path, "").await
    }

    /// The value of one series, 0 if there is none.
    pub(crate) fn number(&self, series: &str) -> f64 {
        let text = self.metrics.encode();
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map_or(0.0, |value| value.parse().unwrap())
    }

    /// Waits until a series has a value.
    pub(crate) async fn reaches(&self, series: &str, value: f64) {
        super::eventually(&format!("{series} is {value}"), async || {
            (self.number(series) - value).abs() < f64::EPSILON
        })
        .await;
        // Of a name that is misspelled everything would be 0.
        let name = series.split('{').next().unwrap_or_default();
        let family = ["_total", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        let is_there = self.metrics.encode().contains(&format!("# TYPE {family} "));
        assert!(is_there, "there is no metric {family}");
    }

    /// How serving ended.
    pub(crate) async fn stopped(self) -> Stopped {
        tokio::time::timeout(Duration::from_secs(20), self.serving).await.expect("it never stopped").unwrap()
    }
}

/// Tests that look at log lines listen on their own thread. Where nobody listens on any, tracing remembers of a place that logs
/// that nobody wants it, and forgets that too late for a listener that comes at the same moment.
fn listen_to_all() {
    static LISTENING: Once = Once::new();
    LISTENING.call_once(|| tracing::subscriber::set_global_default(tracing_subscriber::registry()).unwrap());
}
