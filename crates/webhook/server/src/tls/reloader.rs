//! Replaces the TLS configuration when its files change. It reads them periodically, compares them by content, and replaces
//! certificate, key and client CA only together. If the new files cannot be used, the old certificate stays. A self-managed
//! certificate is replaced in the same way when the task that signs it issues another one.
//!
//! Files are read periodically, not watched: kubelet replaces a mounted Secret by a new symlink `..data`, and a watcher of the
//! file itself does not notice this (kubewarden/policy-server#1026, #1061).

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use admission::lock;
use arc_swap::{ArcSwap, ArcSwapOption};
use rustls::ServerConfig;
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, MissedTickBehavior, timeout};

use super::certificate::{Certificate, CertificateError, KeyPair, read_pem};
use super::server_config;
use crate::checks::Check;
use crate::deadline::format_duration;
use crate::issued::IssuedCertificates;
use crate::metrics::Metrics;
use crate::settings::{CertificateSource, TlsSettings};

/// Reloads the certificate.
pub(crate) struct CertReloader {
    settings: TlsSettings,
    tls: Arc<ArcSwap<ServerConfig>>,
    status: CertStatus,
    digest: [u8; 32],
    last_error: Option<String>,
    metrics: Metrics,
}

/// The current certificate and its check. Clones share both, so that the expiry is reported even while a read of the files hangs
/// and holds the reloader.
#[derive(Clone)]
pub(crate) struct CertStatus {
    /// `None` while a self-managed certificate is not signed yet.
    certificate: Arc<ArcSwapOption<Certificate>>,
    check: Check,
}

/// The contents of the files at one moment.
struct TlsContents {
    /// `None` while a self-managed certificate is not signed yet.
    material: Option<KeyPair>,
    ca: Option<Vec<u8>>,
    digest: [u8; 32],
}

impl TlsContents {
    fn read(settings: &TlsSettings) -> Result<Self, CertificateError> {
        let material = KeyPair::read(&settings.certificate)?;
        let ca = settings.client_auth.ca_file().map(|path| read_pem(path)).transpose()?;
        let mut digest = Sha256::new();
        let parts = material.iter().flat_map(|material| [&material.cert, &material.key]);
        for part in parts.chain(ca.as_ref()) {
            digest.update(part.len().to_be_bytes());
            digest.update(part);
        }
        Ok(Self { material, ca, digest: digest.finalize().into() })
    }

    fn load(&self, settings: &TlsSettings) -> Result<(Option<Certificate>, ServerConfig), CertificateError> {
        let certificate = self.material.as_ref().map(Certificate::from_material).transpose()?;
        let place = || match settings.client_auth.ca_file() {
            Some(path) => path.display().to_string(),
            None => self.place(),
        };
        let (versions, client) = (settings.min_version, &settings.client_auth);
        let tls = server_config(certificate.as_ref(), versions, client, self.ca.as_deref())
            .map_err(|fault| CertificateError { place: place(), fault })?;
        Ok((certificate, tls))
    }

    /// Returns the name of the certificate in messages.
    fn place(&self) -> String {
        self.material.as_ref().map_or_else(String::new, |material| material.cert_place.clone())
    }
}

impl CertReloader {
    /// Loads the certificate for the first time. Without an older one, every fault is an error.
    pub(crate) fn start(
        settings: TlsSettings,
        metrics: Metrics,
        check: Check,
        now: SystemTime,
    ) -> Result<Self, CertificateError> {
        let files = TlsContents::read(&settings)?;
        let (certificate, tls) = files.load(&settings)?;
        if let Some(certificate) = &certificate {
            let invalid = |fault| CertificateError { place: files.place(), fault };
            certificate.valid_at(now).map_err(invalid)?;
            metrics.server().set_certificate(certificate.validity());
        }
        let certificate = Arc::new(ArcSwapOption::from_pointee(certificate));
        let reloader = Self {
            settings,
            tls: Arc::new(ArcSwap::from_pointee(tls)),
            status: CertStatus { certificate, check },
            digest: files.digest,
            last_error: None,
            metrics,
        };
        reloader.status.report(reloader.problem().as_deref(), now);
        Ok(reloader)
    }

    /// Returns the problem of a self-managed certificate with its CA.
    fn problem(&self) -> Option<String> {
        self.issued().and_then(|issued| issued.current().problem)
    }

    /// Returns the source of a self-managed certificate.
    pub(crate) fn issued(&self) -> Option<&IssuedCertificates> {
        match &self.settings.certificate {
            CertificateSource::SelfManaged(issued) => Some(issued),
            CertificateSource::Files(_) | CertificateSource::Pem(_) => None,
        }
    }

    /// Returns the current TLS configuration, which every reload replaces.
    pub(crate) fn tls(&self) -> Arc<ArcSwap<ServerConfig>> {
        Arc::clone(&self.tls)
    }

    pub(crate) fn status(&self) -> CertStatus {
        self.status.clone()
    }

    /// Reads the files once.
    pub(crate) fn reload(&mut self, now: SystemTime) {
        let error = self.replace(now).err().map(|error| error.to_string());
        let problem = error.as_ref().map(|error| format!("new files are invalid: {error}"));
        let problem = problem.or_else(|| self.problem());
        self.status.report(problem.as_deref(), now);
        if let Some(error) = error.as_deref().filter(|error| self.last_error.as_deref() != Some(error)) {
            self.metrics.server().count_certificate_load("rejected");
            let certificate = self.status.certificate.load();
            let certificate = certificate.as_ref();
            tracing::warn!(
                reason = error,
                serial = certificate.map(|certificate| certificate.serial()),
                not_after = certificate.map(|certificate| certificate.not_after_text()),
                "the new certificate files are invalid; the old certificate stays active"
            );
        }
        self.last_error = error;
    }

    /// Replaces the certificate if the files have changed.
    fn replace(&mut self, now: SystemTime) -> Result<(), CertificateError> {
        let mut files = TlsContents::read(&self.settings)?;
        if files.digest == self.digest {
            return Ok(());
        }
        let mut loaded = files.load(&self.settings);
        if loaded.is_err() {
            // The certificate may be from before a change and the key from after it, so changed files are loaded again.
            let again = TlsContents::read(&self.settings)?;
            if again.digest != files.digest {
                loaded = again.load(&self.settings);
                files = again;
            }
        }
        let (Some(certificate), tls) = loaded? else { return Ok(()) };
        // Between two invalid certificates the new one wins, because it is the one that the operator sees.
        let is_valid = |old: &Arc<Certificate>| old.valid_at(now).is_ok();
        if let Err(fault) = certificate.valid_at(now)
            && self.status.certificate.load().as_ref().is_some_and(is_valid)
        {
            return Err(CertificateError { place: files.place(), fault });
        }
        self.tls.store(Arc::new(tls));
        let metrics = self.metrics.server();
        metrics.set_certificate(certificate.validity());
        metrics.count_certificate_load("loaded");
        tracing::info!(
            serial = certificate.serial(),
            names = certificate.names().join(","),
            not_after = certificate.not_after_text(),
            "new certificate loaded"
        );
        self.status.certificate.store(Some(Arc::new(certificate)));
        self.digest = files.digest;
        Ok(())
    }
}

impl CertStatus {
    /// Sets the check from the certificate's validity and a problem with its files.
    fn report(&self, problem: Option<&str>, now: SystemTime) {
        let certificate = self.certificate.load();
        let Some(certificate) = certificate.as_ref() else {
            let problem = problem.unwrap_or("the CA is being read");
            return self.check.fail(format!("no certificate is signed yet: {problem}"));
        };
        match (certificate.valid_at(now).err(), problem) {
            (None, None) => self.check.pass(),
            (None, Some(problem)) => self.check.note(format!(
                "{problem}; the old certificate stays active until {}",
                certificate.not_after_text()
            )),
            (Some(fault), None) => self.check.fail(fault.to_string()),
            (Some(fault), Some(problem)) => self.check.fail(format!("{fault}; and {problem}")),
        }
    }
}

/// Reloads every `poll`, and when a self-managed certificate is signed, until it is dropped. While a read hangs, `status` is
/// reported anyway.
pub(crate) async fn reload_periodically(
    reloader: Arc<Mutex<CertReloader>>,
    status: CertStatus,
    poll: Duration,
    mut issued: Option<IssuedCertificates>,
) {
    let mut ticks = tokio::time::interval(poll);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick is immediate, and the files were just loaded.
    ticks.tick().await;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = changed(issued.as_mut()) => {}
        }
        let reloader = Arc::clone(&reloader);
        // A mounted file system can hang, and must not block a worker of the runtime.
        let mut reload = tokio::task::spawn_blocking(move || {
            lock(&reloader).reload(SystemTime::now());
        });
        let (began, mut is_logged) = (Instant::now(), false);
        let result = loop {
            if let Ok(result) = timeout(poll, &mut reload).await {
                break result;
            }
            if !std::mem::replace(&mut is_logged, true) {
                tracing::warn!("reading the certificate files hangs; check the file system they are on");
            }
            let waited = format_duration(Duration::from_secs(began.elapsed().as_secs()));
            let problem = format!("reading the certificate files has hung for {waited}");
            status.report(Some(&problem), SystemTime::now());
        };
        if let Err(error) = result {
            tracing::error!(reason = %error, "reading the certificate files failed; the old certificate stays active");
        }
    }
}

/// Waits for a new self-managed certificate.
async fn changed(issued: Option<&mut IssuedCertificates>) {
    match issued {
        Some(issued) => issued.changed().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;
    use crate::checks::Checks;
    use crate::issued::{CertificatePem, Issued, IssuedCertificate};
    use crate::settings::{CertificateFiles, CertificateSource};

    fn year(year: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs((year - 1970) * 31_556_952)
    }

    /// Creates a certificate that is valid from the beginning of one year to that of another, and its key.
    fn certificate(from: i32, to: i32) -> (String, String) {
        let mut params = CertificateParams::new(vec!["durward.svc".to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(from, 1, 1), date_time_ymd(to, 1, 1));
        let key = KeyPair::generate().unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    fn write(directory: &Path, from: i32, to: i32) {
        let (cert, key) = certificate(from, to);
        std::fs::write(directory.join("c"), cert).unwrap();
        std::fs::write(directory.join("k"), key).unwrap();
    }

    fn start(directory: &Path, now: SystemTime) -> (Checks, Result<CertReloader, CertificateError>) {
        let files = CertificateFiles { cert: directory.join("c"), key: directory.join("k") };
        let settings = TlsSettings::new(CertificateSource::Files(files));
        let checks = Checks::new();
        let reloader = CertReloader::start(settings, Metrics::new("t"), checks.add("certificate"), now);
        (checks, reloader)
    }

    fn issued(from: i32, to: i32) -> IssuedCertificate {
        let (cert, key) = certificate(from, to);
        let pem = CertificatePem { cert: cert.into_bytes(), key: key.into_bytes() };
        IssuedCertificate { pem, ca: Vec::new(), not_after: year(2032) }
    }

    #[test]
    fn an_issued_certificate_stays_while_its_issuer_has_a_problem() {
        let (issuer, receiver) = tokio::sync::watch::channel(Issued::default());
        let settings = TlsSettings::new(CertificateSource::SelfManaged(IssuedCertificates::new(receiver)));
        let checks = Checks::new();
        let check = checks.add("certificate");
        let mut reloader = CertReloader::start(settings, Metrics::new("t"), check, year(2031)).unwrap();
        let mut text_with = |leaf, problem: Option<&str>| {
            issuer.send_replace(Issued { leaf, problem: problem.map(str::to_owned) });
            reloader.reload(year(2031));
            checks.readiness_of("certificate").unwrap().text
        };
        let unsigned = text_with(None, Some("the Secret is missing"));
        assert_eq!(unsigned, "[-]certificate failed: no certificate is signed yet: the Secret is missing\n");
        let leaf = Some(Arc::new(issued(2030, 2032)));
        assert_eq!(text_with(leaf.clone(), None), "[+]certificate ok\n");
        let old = "[!]certificate: the Secret is missing; the old certificate stays active until 2032-01-01T00:00:00Z\n";
        assert_eq!(text_with(leaf.clone(), Some("the Secret is missing")), old);
        assert_eq!(text_with(leaf, None), "[+]certificate ok\n");
    }

    #[test]
    fn rejects_a_certificate_that_is_not_valid_at_the_start() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), 2030, 2032);
        let early = start(directory.path(), year(2029)).1.err().unwrap().to_string();
        assert!(
            early.ends_with("not valid before 2030-01-01T00:00:00Z; check the clock of this machine"),
            "{early}"
        );
        let late = start(directory.path(), year(2033)).1.err().unwrap().to_string();
        assert!(late.ends_with("the certificate expired at 2032-01-01T00:00:00Z; renew it"), "{late}");
    }

    #[test]
    fn an_expired_certificate_makes_the_server_unready_until_it_is_renewed() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), 2030, 2032);
        let (checks, reloader) = start(directory.path(), year(2031));
        let mut reloader = reloader.unwrap();
        assert!(checks.readiness().ready);
        reloader.reload(year(2033));
        assert!(
            checks.readiness().text.contains("[-]certificate failed: the certificate expired at 2032-01-01")
        );
        write(directory.path(), 2032, 2035);
        reloader.reload(year(2033));
        assert!(checks.readiness().ready);
        assert!(reloader.metrics.encode().contains("durward_certificate_not_after_seconds 2051222400"));
    }

    #[tokio::test]
    async fn reports_the_expiry_while_a_read_of_the_files_hangs() {
        for (to, expected) in [
            (
                2020,
                "[-]certificate failed: the certificate expired at 2020-01-01T00:00:00Z; renew it; and reading",
            ),
            (4000, "[!]certificate: reading the certificate files has hung for "),
        ] {
            let directory = tempfile::tempdir().unwrap();
            write(directory.path(), 2018, to);
            let (checks, reloader) = start(directory.path(), year(2019));
            let reloader = reloader.unwrap();
            let status = reloader.status();
            let reloader = Arc::new(Mutex::new(reloader));
            let holds = Arc::clone(&reloader);
            let (end, ended) = std::sync::mpsc::channel::<()>();
            let (held, is_held) = tokio::sync::oneshot::channel();
            // A reload hangs while this thread holds the reloader.
            let holder = std::thread::spawn(move || {
                let _hangs = holds.lock().unwrap();
                held.send(()).unwrap();
                ended.recv().unwrap();
            });
            is_held.await.unwrap();
            let text = || checks.readiness_of("certificate").unwrap().text;
            let reported = async {
                while !text().contains(expected) {
                    tokio::task::yield_now().await;
                }
                end.send(()).unwrap();
                // The reload continues, and its result counts.
                while text().contains("hung") {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                () = reload_periodically(reloader, status, Duration::from_millis(10), None) => {}
                end = timeout(Duration::from_secs(20), reported) => {
                    assert!(end.is_ok(), "{expected} is not in {}", text());
                }
            }
            holder.join().unwrap();
        }
    }

    #[test]
    fn replaces_the_certificate_when_the_new_one_becomes_valid() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), 2030, 2034);
        let (checks, reloader) = start(directory.path(), year(2031));
        let mut reloader = reloader.unwrap();
        write(directory.path(), 2032, 2036);
        reloader.reload(year(2031));
        assert!(checks.readiness().text.contains("[!]certificate: new files are invalid"));
        reloader.reload(year(2033));
        assert_eq!(checks.readiness_of("certificate").unwrap().text, "[+]certificate ok\n");
    }

    #[test]
    fn replaces_an_expired_certificate_by_another_expired_one() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), 2030, 2032);
        let (checks, reloader) = start(directory.path(), year(2031));
        let mut reloader = reloader.unwrap();
        write(directory.path(), 2031, 2033);
        reloader.reload(year(2034));
        assert!(checks.readiness().text.contains("expired at 2033-01-01"), "{}", checks.readiness().text);
    }

    #[test]
    fn counts_the_same_fault_once() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), 2030, 2032);
        let mut reloader = start(directory.path(), year(2031)).1.unwrap();
        std::fs::write(directory.path().join("k"), "half a key").unwrap();
        reloader.reload(year(2031));
        reloader.reload(year(2031));
        assert!(reloader.metrics.encode().contains("durward_certificate_loads_total{result=\"rejected\"} 1"));
    }
}
