//! The task that keeps the CA in the Secret and the certificate of this replica.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use admission::BoxFuture;
use rustls::pki_types::CertificateDer;
use server::{Issued, IssuedCertificate, IssuedCertificates, Metrics};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::authority::{AuthorityError, ServingName, seconds};
use crate::metrics::{CaMetrics, NOT_READ, NOT_REGISTERED};
use crate::pem;
use crate::record::Record;
use crate::state::{Change, LeafState, Lifetimes, needs_certificate, step, validity};
use crate::store::{
    Bundle, CaBundle, Registered, RegisteredBundle, Registrations, Store, StoreError, StoreFault, StoreResult,
};

/// Longest delay before the next pass while this replica has no certificate, and after a change of the Secret.
const RETRY: Duration = Duration::from_secs(2);

/// Difference of clocks above which it is logged. TLS clients accept a certificate from three days before it was signed.
const MAX_CLOCK_DIFFERENCE: Duration = Duration::from_secs(60);

/// Source of the local time.
pub(crate) type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// The task that keeps the CA and the certificate of this replica.
pub struct SelfManaged {
    names: Vec<ServingName>,
    lifetimes: Lifetimes,
    store: Arc<dyn Store>,
    registrations: Arc<dyn Registrations>,
    issued: watch::Sender<Issued>,
    metrics: Arc<CaMetrics>,
    clock: Clock,
}

/// The state of one run of the task.
#[derive(Debug, Default)]
struct RunState {
    /// The next CA, and since when every caBundle has contained it.
    next: Option<(CertificateDer<'static>, Instant)>,
    /// Since when a caBundle lacks a CA.
    lacking: Option<Instant>,
    /// The problem that was logged last.
    logged: Option<String>,
    /// Whether a difference of clocks was logged.
    is_clock_logged: bool,
}

/// The outcome of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// No change is needed now.
    Settled,
    /// The Secret has changed, so the next pass follows soon.
    Changed,
}

/// A problem of a pass. The next pass tries again.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PassError {
    /// The label of the metric.
    reason: &'static str,
    /// The problem and the next step.
    text: String,
}

impl From<StoreError> for PassError {
    fn from(error: StoreError) -> Self {
        Self { reason: error.reason.as_str(), text: error.to_string() }
    }
}

impl SelfManaged {
    /// Creates the task. A server with the returned source serves the certificate that the task signs.
    pub fn new(
        names: Vec<ServingName>,
        lifetimes: Lifetimes,
        store: Arc<dyn Store>,
        registrations: Arc<dyn Registrations>,
        metrics: &Metrics,
    ) -> (Self, IssuedCertificates) {
        let problem = Some(format!("{} was not read yet", store.place()));
        let (issued, receiver) = watch::channel(Issued { leaf: None, problem });
        let metrics = CaMetrics::registered(metrics);
        let clock: Clock = Arc::new(SystemTime::now);
        let task = Self { names, lifetimes, store, registrations, issued, metrics, clock };
        (task, IssuedCertificates::new(receiver))
    }

    /// Returns the source of the bundle that caBundles must contain: the Secret itself.
    pub fn bundle(store: Arc<dyn Store>) -> Arc<dyn Bundle> {
        Arc::new(StoredBundle(store))
    }

    /// Registers the metrics alone, for the reference page.
    pub fn register_metrics(metrics: &Metrics) {
        drop(CaMetrics::registered(metrics));
    }

    /// Keeps CA and certificate until it is dropped.
    pub async fn run(&self) {
        let mut progress = RunState::default();
        loop {
            let pass = self.pass(&mut progress).await;
            let is_waiting = pass == Ok(Pass::Changed) || self.issued.borrow().leaf.is_none();
            self.report(&mut progress, pass.err());
            let interval = self.lifetimes.interval();
            sleep(if is_waiting { interval.min(RETRY) } else { interval }).await;
        }
    }

    /// Reads the Secret and the webhook configurations, and takes at most one step.
    async fn pass(&self, progress: &mut RunState) -> Result<Pass, PassError> {
        let local = (self.clock)();
        let stored = self.store.read().await?;
        let now = stored.server_time.unwrap_or(local);
        self.compare_clocks(progress, local, now);
        let record = Record::parse(&stored.data).map_err(|why| invalid(&*self.store, &why))?;
        // Read after the record: a signer that the caBundles contain now stays there for as long as a certificate lasts.
        let registered = self.registrations.read().await;
        let next_is_registered = self.follow_next(progress, record.as_ref(), &registered);
        let cannot = |error: AuthorityError| invalid(&*self.store, &error.to_string());
        // First the certificate, so that neither a step nor a conflict delays its renewal.
        if let Some(record) = record.as_ref().filter(|record| record.signer.not_after() > now) {
            self.metrics.not_after.set(seconds(record.signer.not_after()));
            self.issue(record, now, &registered).map_err(cannot)?;
        }
        let step =
            step(record.as_ref(), now, self.lifetimes, &self.names, next_is_registered).map_err(cannot)?;
        if let Some((record, change)) = step {
            if self.store.write(&stored.version, &record.write(&stored.data)).await? == StoreResult::Done {
                self.count(&record, change);
                self.registrations.publish().await;
            }
            return Ok(Pass::Changed);
        }
        if let Some(record) = &record {
            self.check_registered(progress, record, &registered).await?;
        }
        Ok(Pass::Settled)
    }

    /// Signs a certificate if this replica needs one.
    fn issue(&self, record: &Record, now: SystemTime, registered: &Registered) -> Result<(), AuthorityError> {
        let signer = &record.signer;
        let current = self.issued.borrow().leaf.clone();
        let leaf = current.as_ref().map(|leaf| LeafState { ca: &leaf.ca, not_after: leaf.not_after });
        let is_registered = contains(registered, signer.der());
        if !needs_certificate(leaf, signer, now, self.lifetimes, is_registered) {
            return Ok(());
        }
        let validity = validity(now, self.lifetimes.certificate);
        // API servers reject a certificate with any name that its CA does not permit, so a new name waits for the next CA.
        let permitted: Vec<_> = self.names.iter().filter(|name| signer.permits(name)).cloned().collect();
        let names = if permitted.is_empty() { &self.names } else { &permitted };
        let pem = signer.sign(names, validity)?;
        let not_after = validity.not_after.min(signer.not_after());
        let leaf = IssuedCertificate { pem, ca: signer.der().to_vec(), not_after };
        self.issued.send_modify(|issued| issued.leaf = Some(Arc::new(leaf)));
        Ok(())
    }

    /// Returns whether every caBundle has contained the next CA for long enough.
    fn follow_next(&self, progress: &mut RunState, record: Option<&Record>, registered: &Registered) -> bool {
        let next = record.and_then(|record| record.next.as_ref());
        let Some(next) = next.filter(|next| contains(registered, next.der())) else {
            progress.next = None;
            return false;
        };
        let since = match &progress.next {
            Some((der, since)) if der == next.der() => *since,
            _ => Instant::now(),
        };
        progress.next = Some((next.der().clone(), since));
        since.elapsed() >= self.lifetimes.introduction()
    }

    /// Asks for a pass over the webhook configurations if a caBundle lacks a CA. Fails if this lasts.
    async fn check_registered(
        &self,
        progress: &mut RunState,
        record: &Record,
        registered: &Registered,
    ) -> Result<(), PassError> {
        let bundles = match registered {
            Registered::Bundles(bundles) => bundles,
            Registered::Unknown(why) => {
                let text = format!("the caBundles of the webhook configurations can't be read: {why}");
                return Err(PassError { reason: NOT_READ, text });
            }
        };
        let mut authorities = std::iter::once(&record.signer).chain(&record.next);
        let lacking =
            authorities.find_map(|ca| bundles.iter().find(|bundle| !pem::contains(&bundle.pem, ca.der())));
        let Some(RegisteredBundle { place, apply_command, .. }) = lacking else {
            progress.lacking = None;
            return Ok(());
        };
        self.registrations.publish().await;
        let since = *progress.lacking.get_or_insert_with(Instant::now);
        // Each rotation has a moment in which the caBundles are not written yet.
        if since.elapsed() < self.lifetimes.introduction() {
            return Ok(());
        }
        let text = format!(
            "the caBundle of the {place} lacks the CA of {}; next: set server.webhookConfiguration.manage to all or caBundle, or \
             run: {apply_command}",
            self.store.place()
        );
        Err(PassError { reason: NOT_REGISTERED, text })
    }

    /// Compares the clock of this machine with that of the API server.
    fn compare_clocks(&self, progress: &mut RunState, local: SystemTime, server: SystemTime) {
        let difference = seconds(local) - seconds(server);
        self.metrics.clock_difference.set(difference);
        let is_wrong = difference.unsigned_abs() > MAX_CLOCK_DIFFERENCE.as_secs();
        if is_wrong && !progress.is_clock_logged {
            tracing::warn!(
                seconds = difference,
                "the clock of this machine differs from that of the API server; certificates use the time of the API server. \
                 Next: check the time synchronization of this node: timedatectl, or chronyc tracking"
            );
        }
        progress.is_clock_logged = is_wrong;
    }

    /// Writes the outcome of a pass to metrics, log and readiness.
    fn report(&self, progress: &mut RunState, error: Option<PassError>) {
        self.metrics.set_error(error.as_ref().map(|error| error.reason));
        let text = error.as_ref().map(|error| error.text.clone());
        match &error {
            Some(PassError { reason, text }) if progress.logged.as_ref() != Some(text) => {
                tracing::warn!(reason, problem = text, "self-managed certificates have a problem");
            }
            None if progress.logged.is_some() => {
                tracing::info!("self-managed certificates have no problem any more");
            }
            _ => {}
        }
        progress.logged = text;
        // The check of the webhook configurations reports the rest.
        let is_of_secret = |error: &PassError| ![NOT_READ, NOT_REGISTERED].contains(&error.reason);
        let problem = error.filter(is_of_secret).map(|error| error.text);
        self.issued.send_if_modified(|issued| {
            let is_new = issued.problem != problem;
            issued.problem = problem;
            is_new
        });
    }

    fn count(&self, record: &Record, change: Change) {
        self.metrics.count(change);
        let (secret, expires) = (self.store.place(), config::time::format(record.signer.not_after()));
        if change == Change::Replaced {
            tracing::error!(
                secret,
                expires,
                "the CA had expired and was replaced at once; calls fail until every caBundle contains the new one. \
                 Next: check that Durward runs all the time, and that the clocks are right"
            );
        } else {
            tracing::info!(secret, expires, change = change.as_str(), "the CA changed");
        }
    }
}

/// Returns whether every caBundle contains a CA.
fn contains(registered: &Registered, ca: &CertificateDer<'_>) -> bool {
    match registered {
        Registered::Bundles(bundles) => bundles.iter().all(|bundle| pem::contains(&bundle.pem, ca)),
        Registered::Unknown(_) => false,
    }
}

fn invalid(store: &dyn Store, why: &str) -> StoreError {
    StoreError {
        reason: StoreFault::Invalid,
        text: format!("{} {why}", store.place()),
        next: format!("restore its values, or let Durward create a new CA: {}", store.reset_command()),
    }
}

/// The bundle of the Secret.
struct StoredBundle(Arc<dyn Store>);

impl Bundle for StoredBundle {
    fn read(&self) -> BoxFuture<'_, Result<CaBundle, StoreError>> {
        Box::pin(async {
            let data = self.0.read().await?.data;
            let record = Record::parse(&data).map_err(|why| invalid(&*self.0, &why))?;
            record.map(|record| record.bundle()).ok_or_else(|| StoreError {
                reason: StoreFault::Missing,
                text: format!("{} has no CA yet", self.0.place()),
                next: "wait until Durward has written it".to_owned(),
            })
        })
    }
}
