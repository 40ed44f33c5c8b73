//! Keeps the greeting in step with the files: reads them again and again, compares by content, and exchanges certificate, key
//! and authorities only as a whole that can be served. Whatever is wrong with new files, the old certificate stays.
//!
//! Files are polled, not watched: kubelet replaces a mounted Secret by swapping the symlink `..data`, which watchers of the
//! file itself do not see (kubewarden/policy-server#1026, #1061).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, MissedTickBehavior, timeout};

use super::Greeting;
use super::certificate::{Certificate, CertificateError, Material, read_pem};
use crate::checks::Check;
use crate::deadline::told;
use crate::metrics::Metrics;
use crate::settings::TlsSettings;

/// Holds what is served and knows what it was made of.
pub(crate) struct Keeper {
    settings: TlsSettings,
    greeting: Arc<ArcSwap<Greeting>>,
    standing: Standing,
    digest: [u8; 32],
    complaint: Option<String>,
    metrics: Metrics,
}

/// The certificate in force and the check that tells of it. Clones are the same two, so that its end is told even while a look at
/// the files hangs and holds the keeper.
#[derive(Clone)]
pub(crate) struct Standing {
    certificate: Arc<ArcSwap<Certificate>>,
    check: Check,
}

/// What the files hold at one moment.
struct Found {
    material: Material,
    authorities: Option<Vec<u8>>,
    digest: [u8; 32],
}

impl Found {
    fn read(settings: &TlsSettings) -> Result<Self, CertificateError> {
        let material = Material::read(&settings.certificate)?;
        let authorities = settings.client.ca().map(|path| read_pem(path)).transpose()?;
        let mut digest = Sha256::new();
        for part in [Some(&material.cert), Some(&material.key), authorities.as_ref()].into_iter().flatten() {
            digest.update(part.len().to_be_bytes());
            digest.update(part);
        }
        Ok(Self { material, authorities, digest: digest.finalize().into() })
    }

    fn made(&self, settings: &TlsSettings) -> Result<(Certificate, Greeting), CertificateError> {
        let certificate = Certificate::from_material(&self.material)?;
        let place = || match settings.client.ca() {
            Some(path) => path.display().to_string(),
            None => self.material.cert_place.clone(),
        };
        let greeting =
            Greeting::new(&certificate, settings.min_version, &settings.client, self.authorities.as_deref())
                .map_err(|fault| CertificateError { place: place(), fault })?;
        Ok((certificate, greeting))
    }
}

impl Keeper {
    /// Reads the files for the first time. Here, with nothing older to fall back on, every fault is an error.
    pub(crate) fn start(
        settings: TlsSettings,
        metrics: Metrics,
        check: Check,
        now: SystemTime,
    ) -> Result<Self, CertificateError> {
        let found = Found::read(&settings)?;
        let (certificate, greeting) = found.made(&settings)?;
        certificate
            .valid_at(now)
            .map_err(|fault| CertificateError { place: found.material.cert_place.clone(), fault })?;
        metrics.door().certificate_not_after.set(certificate.not_after_seconds());
        check.pass();
        Ok(Self {
            settings,
            greeting: Arc::new(ArcSwap::from_pointee(greeting)),
            standing: Standing { certificate: Arc::new(ArcSwap::from_pointee(certificate)), check },
            digest: found.digest,
            complaint: None,
            metrics,
        })
    }

    /// Where the greeting in force lies.
    pub(crate) fn greeting(&self) -> Arc<ArcSwap<Greeting>> {
        Arc::clone(&self.greeting)
    }

    /// What can be told without the keeper.
    pub(crate) fn standing(&self) -> Standing {
        self.standing.clone()
    }

    /// Looks at the files once.
    pub(crate) fn look(&mut self, now: SystemTime) {
        match self.changed(now) {
            Ok(None) => self.nothing_new(now),
            Ok(Some((certificate, greeting, digest))) => self.take(certificate, greeting, digest, now),
            Err(error) => self.complain(&error.to_string(), now),
        }
    }

    fn changed(
        &self,
        now: SystemTime,
    ) -> Result<Option<(Certificate, Greeting, [u8; 32])>, CertificateError> {
        let mut found = Found::read(&self.settings)?;
        if found.digest == self.digest {
            return Ok(None);
        }
        let mut made = found.made(&self.settings);
        if made.is_err() {
            // The certificate may have been read before an exchange and the key after it. If the files now hold something
            // else, that counts.
            let again = Found::read(&self.settings)?;
            if again.digest != found.digest {
                made = again.made(&self.settings);
                found = again;
            }
        }
        let (certificate, greeting) = made?;
        match certificate.valid_at(now) {
            // Two invalid certificates: the files are what the operator can see, so they win.
            Err(fault) if self.standing.certificate.load().valid_at(now).is_ok() => {
                Err(CertificateError { place: found.material.cert_place, fault })
            }
            _ => Ok(Some((certificate, greeting, found.digest))),
        }
    }

    fn nothing_new(&mut self, now: SystemTime) {
        self.complaint = None;
        self.standing.say(None, now);
    }

    fn take(&mut self, certificate: Certificate, greeting: Greeting, digest: [u8; 32], now: SystemTime) {
        self.greeting.store(Arc::new(greeting));
        let door = self.metrics.door();
        door.certificate_not_after.set(certificate.not_after_seconds());
        door.count_certificate_load("taken");
        tracing::info!(
            serial = certificate.serial(),
            names = certificate.names().join(","),
            not_after = certificate.not_after_text(),
            "new certificate in force"
        );
        self.standing.certificate.store(Arc::new(certificate));
        self.digest = digest;
        self.complaint = None;
        self.standing.say(None, now);
    }

    fn complain(&mut self, why: &str, now: SystemTime) {
        if self.complaint.as_deref() != Some(why) {
            self.metrics.door().count_certificate_load("refused");
            let certificate = self.standing.certificate.load();
            tracing::warn!(
                reason = why,
                serial = certificate.serial(),
                not_after = certificate.not_after_text(),
                "the certificate files changed and cannot be served: the certificate from before stays in force"
            );
            self.complaint = Some(why.to_owned());
        }
        let trouble = format!("new files cannot be served: {why}");
        self.standing.say(Some(&trouble), now);
    }
}

// === impl Standing ===

impl Standing {
    /// How it stands by the clock, and what is the matter with its files.
    fn say(&self, trouble: Option<&str>, now: SystemTime) {
        let certificate = self.certificate.load();
        match (certificate.valid_at(now).err(), trouble) {
            (None, None) => self.check.pass(),
            (None, Some(trouble)) => self.check.note(format!(
                "{trouble}; the certificate from before stays, until {}",
                certificate.not_after_text()
            )),
            (Some(fault), None) => self.check.fail(fault.to_string()),
            (Some(fault), Some(trouble)) => self.check.fail(format!("{fault}; and {trouble}")),
        }
    }
}

/// Looks at the files every `poll`, until it is dropped. While a look hangs, `standing` is looked at in its place.
pub(crate) async fn keep(keeper: Arc<Mutex<Keeper>>, standing: Standing, poll: Duration) {
    let mut ticks = tokio::time::interval(poll);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick is at once, and start has just looked.
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let keeper = Arc::clone(&keeper);
        // A mounted file system may hang; a worker that serves must not hang with it.
        let mut looked = tokio::task::spawn_blocking(move || {
            keeper.lock().unwrap_or_else(PoisonError::into_inner).look(SystemTime::now());
        });
        let (began, mut is_news) = (Instant::now(), true);
        let looked = loop {
            if let Ok(looked) = timeout(poll, &mut looked).await {
                break looked;
            }
            if std::mem::take(&mut is_news) {
                tracing::warn!(
                    "a look at the certificate files hangs: does what they are mounted from answer?"
                );
            }
            let waited = Duration::from_secs(began.elapsed().as_secs());
            let trouble = format!("a look at the certificate files has hung for {}", told(waited));
            standing.say(Some(&trouble), SystemTime::now());
        };
        if let Err(error) = looked {
            tracing::error!(reason = %error, "looking at the certificate files failed; the certificate in force stays");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;
    use crate::checks::Checks;
    use crate::settings::{CertificateFiles, CertificateSource};

    fn year(year: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs((year - 1970) * 31_556_952)
    }

    /// Writes a certificate that is valid from the beginning of one year to that of another.
    fn write(folder: &Path, from: i32, to: i32) {
        let mut params = CertificateParams::new(vec!["durward.svc".to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(from, 1, 1), date_time_ymd(to, 1, 1));
        let key = KeyPair::generate().unwrap();
        std::fs::write(folder.join("c"), params.self_signed(&key).unwrap().pem()).unwrap();
        std::fs::write(folder.join("k"), key.serialize_pem()).unwrap();
    }

    fn start(folder: &Path, now: SystemTime) -> (Checks, Result<Keeper, CertificateError>) {
        let files = CertificateFiles { cert: folder.join("c"), key: folder.join("k") };
        let settings = TlsSettings::new(CertificateSource::Files(files));
        let checks = Checks::new();
        let keeper = Keeper::start(settings, Metrics::new("t"), checks.add("certificate"), now);
        (checks, keeper)
    }

    #[test]
    fn a_certificate_that_is_not_valid_now_does_not_start() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), 2030, 2032);
        let early = start(folder.path(), year(2029)).1.err().unwrap().to_string();
        assert!(
            early.ends_with("valid only from 2030-01-01T00:00:00Z: is this machine's clock right?"),
            "{early}"
        );
        let late = start(folder.path(), year(2033)).1.err().unwrap().to_string();
        assert!(late.ends_with("the certificate ended at 2032-01-01T00:00:00Z: renew it"), "{late}");
    }

    #[test]
    fn a_certificate_that_ends_while_it_is_served_makes_unready_until_it_is_renewed() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), 2030, 2032);
        let (checks, keeper) = start(folder.path(), year(2031));
        let mut keeper = keeper.unwrap();
        assert!(checks.readiness().ready);
        keeper.look(year(2033));
        assert!(
            checks.readiness().text.contains("[-]certificate failed: the certificate ended at 2032-01-01")
        );
        write(folder.path(), 2032, 2035);
        keeper.look(year(2033));
        assert!(checks.readiness().ready);
        assert!(keeper.metrics.encode().contains("durward_certificate_not_after_seconds 2051222400"));
    }

    #[tokio::test]
    async fn the_end_of_a_certificate_is_told_while_a_look_at_its_files_hangs() {
        for (to, expected) in [
            (
                2020,
                "[-]certificate failed: the certificate ended at 2020-01-01T00:00:00Z: renew it; and a look",
            ),
            (4000, "[!]certificate: a look at the certificate files has hung for "),
        ] {
            let folder = tempfile::tempdir().unwrap();
            write(folder.path(), 2018, to);
            let (checks, keeper) = start(folder.path(), year(2019));
            let keeper = keeper.unwrap();
            let standing = keeper.standing();
            let keeper = Arc::new(Mutex::new(keeper));
            let holds = Arc::clone(&keeper);
            let (end, ended) = std::sync::mpsc::channel::<()>();
            let (held, is_held) = tokio::sync::oneshot::channel();
            // As long as this holds the keeper, a look hangs.
            let holder = std::thread::spawn(move || {
                let _hangs = holds.lock().unwrap();
                held.send(()).unwrap();
                ended.recv().unwrap();
            });
            is_held.await.unwrap();
            let text = || checks.readiness_of("certificate").unwrap().text;
            let told = async {
                while !text().contains(expected) {
                    tokio::task::yield_now().await;
                }
                end.send(()).unwrap();
                // The look goes on, and what it says counts.
                while text().contains("hung") {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                () = keep(keeper, standing, Duration::from_millis(10)) => {}
                told = timeout(Duration::from_secs(20), told) => {
                    assert!(told.is_ok(), "{expected} is not in {}", text());
                }
            }
            holder.join().unwrap();
        }
    }

    #[test]
    fn a_certificate_that_begins_later_is_taken_once_it_has_begun() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), 2030, 2034);
        let (checks, keeper) = start(folder.path(), year(2031));
        let mut keeper = keeper.unwrap();
        write(folder.path(), 2032, 2036);
        keeper.look(year(2031));
        assert!(checks.readiness().text.contains("[!]certificate: new files cannot be served"));
        keeper.look(year(2033));
        assert_eq!(checks.readiness_of("certificate").unwrap().text, "[+]certificate ok\n");
    }

    #[test]
    fn an_ended_certificate_is_replaced_even_by_one_that_is_not_valid_either() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), 2030, 2032);
        let (checks, keeper) = start(folder.path(), year(2031));
        let mut keeper = keeper.unwrap();
        write(folder.path(), 2031, 2033);
        keeper.look(year(2034));
        assert!(checks.readiness().text.contains("ended at 2033-01-01"), "{}", checks.readiness().text);
    }

    #[test]
    fn the_same_fault_is_counted_once() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), 2030, 2032);
        let mut keeper = start(folder.path(), year(2031)).1.unwrap();
        std::fs::write(folder.path().join("k"), "half a key").unwrap();
        keeper.look(year(2031));
        keeper.look(year(2031));
        assert!(keeper.metrics.encode().contains("durward_certificate_loads_total{result=\"refused\"} 1"));
    }
}
