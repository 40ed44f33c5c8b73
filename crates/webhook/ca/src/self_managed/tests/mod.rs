//! Tests of self-managed certificates: each state of the Secret, and rotations in every order of events.

mod rotation;
mod states;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;
use std::time::{Duration, SystemTime};

use admission::{BoxFuture, lock};
use server::{Certificate, CertificateSource};

use super::*;
use crate::store::Stored;

const DAY: Duration = Duration::from_secs(86_400);
const LIFETIMES: Lifetimes = Lifetimes { ca: DAY.saturating_mul(365), certificate: DAY.saturating_mul(7) };

/// An API server with the Secret and a webhook configuration.
struct ApiServerState {
    /// The right time, which is that of the API server.
    now: SystemTime,
    /// Whether answers contain the time.
    has_date: bool,
    data: BTreeMap<String, Vec<u8>>,
    version: u64,
    /// The error of reads and writes.
    fault: Option<StoreError>,
    /// The caBundle, if there is a webhook configuration with an entry.
    bundle: Option<Vec<u8>>,
    bundle_version: u64,
    /// Why the webhook configuration can't be read.
    unreadable: Option<String>,
    published: usize,
}

#[derive(Clone)]
struct FakeApiServer(Arc<Mutex<ApiServerState>>);

impl FakeApiServer {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(ApiServerState {
            now: SystemTime::UNIX_EPOCH + DAY * 20_000,
            has_date: true,
            data: BTreeMap::new(),
            version: 1,
            fault: None,
            bundle: None,
            bundle_version: 1,
            unreadable: None,
            published: 0,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, ApiServerState> {
        lock(&self.0)
    }

    /// Writes the bundle of the Secret to the webhook configuration.
    async fn publish(&self) {
        let bundle = SelfManaged::bundle(Arc::new(self.clone())).read().await.unwrap();
        self.lock().bundle = Some(bundle.pem.into_bytes());
    }
}

/// Lets other tasks run once.
async fn pause() {
    let mut is_second = false;
    std::future::poll_fn(|_| {
        if std::mem::replace(&mut is_second, true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

impl Store for FakeApiServer {
    fn place(&self) -> &'static str {
        "Secret durward-system/durward-ca"
    }

    fn reset_command(&self) -> String {
        "RESET".to_owned()
    }

    fn read(&self) -> BoxFuture<'_, Result<Stored, StoreError>> {
        Box::pin(async {
            pause().await;
            let stored = {
                let api_server = self.lock();
                let server_time = api_server.has_date.then_some(api_server.now);
                let stored = Stored {
                    data: api_server.data.clone(),
                    version: api_server.version.to_string(),
                    server_time,
                };
                api_server.fault.clone().map_or(Ok(stored), Err)
            };
            pause().await;
            stored
        })
    }

    fn write<'a>(
        &'a self,
        version: &'a str,
        data: &'a BTreeMap<String, Vec<u8>>,
    ) -> BoxFuture<'a, Result<StoreResult, StoreError>> {
        Box::pin(async move {
            pause().await;
            let written = {
                let mut api_server = self.lock();
                if api_server.version.to_string() == version {
                    api_server.version += 1;
                    api_server.data = data.clone();
                    Ok(StoreResult::Done)
                } else {
                    Ok(StoreResult::Conflict)
                }
            };
            pause().await;
            written
        })
    }
}

impl Registrations for FakeApiServer {
    fn publish(&self) -> BoxFuture<'_, ()> {
        self.lock().published += 1;
        Box::pin(std::future::ready(()))
    }

    fn read(&self) -> BoxFuture<'_, Registered> {
        Box::pin(async {
            pause().await;
            let registered = {
                let api_server = self.lock();
                let place = "webhook etcd.durward.dev of ValidatingWebhookConfiguration durward".to_owned();
                let bundles = api_server.bundle.iter();
                let bundles = bundles.map(|pem| RegisteredBundle {
                    place: place.clone(),
                    pem: pem.clone(),
                    apply_command: "APPLY".to_owned(),
                });
                let bundles = bundles.collect();
                api_server.unreadable.clone().map_or(Registered::Bundles(bundles), Registered::Unknown)
            };
            pause().await;
            registered
        })
    }
}

/// One replica.
struct Replica {
    task: SelfManaged,
    progress: RunState,
    issued: IssuedCertificates,
    metrics: Metrics,
    /// Difference of its clock, in seconds.
    clock: Arc<Mutex<i64>>,
}

impl Replica {
    fn new(api_server: &FakeApiServer, lifetimes: Lifetimes) -> Self {
        let metrics = Metrics::new("t");
        let names = vec![ServingName::Dns("durward.durward-system.svc".to_owned())];
        let store: Arc<dyn Store> = Arc::new(api_server.clone());
        let (mut task, issued) =
            SelfManaged::new(names, lifetimes, store, Arc::new(api_server.clone()), &metrics);
        let clock = Arc::new(Mutex::new(0));
        let (of, at) = (api_server.clone(), Arc::clone(&clock));
        task.clock = Arc::new(move || shifted(of.lock().now, *at.lock().unwrap()));
        Self { task, progress: RunState::default(), issued, metrics, clock }
    }

    /// Runs one pass.
    async fn pass(&mut self) -> Result<Pass, PassError> {
        let pass = unpaused(self.task.pass(&mut self.progress)).await;
        self.task.report(&mut self.progress, pass.clone().err());
        pass
    }

    /// Runs passes until no change is needed.
    async fn settle(&mut self) {
        for _ in 0..10 {
            if self.pass().await.unwrap() == Pass::Settled {
                return;
            }
        }
        panic!("10 passes did not settle");
    }

    fn leaf(&self) -> Option<Arc<IssuedCertificate>> {
        self.issued.current().leaf
    }

    fn problem(&self) -> String {
        self.issued.current().problem.unwrap_or_default()
    }

    fn has_metric(&self, line: &str) -> bool {
        self.metrics.encode().lines().any(|found| found == line)
    }

    /// Returns the certificate as its server loads it.
    fn certificate(&self) -> Certificate {
        Certificate::load(&CertificateSource::SelfManaged(self.issued.clone())).unwrap()
    }
}

fn shifted(time: SystemTime, seconds: i64) -> SystemTime {
    let distance = Duration::from_secs(seconds.unsigned_abs());
    if seconds < 0 { time - distance } else { time + distance }
}

/// Polls a future until it is ready, although nothing wakes it.
async fn unpaused<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|context| {
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(output);
            }
        }
    })
    .await
}
