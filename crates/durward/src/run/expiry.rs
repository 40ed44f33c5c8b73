//! Reports when the certificates and tokens expire that Durward uses and does not renew: metrics, log and `/readyz?verbose`.
//!
//! The serving certificate and the self-managed CA have metrics of their own, in `server`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use admission::lock;
use cluster::live::{CredentialKind as Kind, Expiry};
use config::Problem;
use console::input;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use server::{Check, Checks, Metrics};
use tokio::time::{MissedTickBehavior, interval};

use crate::certificates::{days_until, now, rfc3339};
use crate::clients::control_planes::ControlPlanes;
use crate::file::File;

/// Interval at which files and Secrets are read again.
const INTERVAL: Duration = Duration::from_secs(60);

/// Time between two log lines about the same certificate.
const LOG_INTERVAL: i64 = 86_400;

/// Time before the expiry at which it is reported, if a sixth of the lifetime is not shorter. The alert rule has the same limit.
const NOTICE: i64 = 30 * 86_400;

/// The name of the check.
const CHECK: &str = "credentials";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    credential: &'static str,
}

/// The metrics.
#[derive(Debug, Clone, Default)]
struct Numbers {
    not_after: Family<KindLabel, Gauge>,
    not_before: Family<KindLabel, Gauge>,
}

impl Numbers {
    fn register(&self, metrics: &Metrics) {
        let labels = &[(
            "credential",
            "serving_ca, client_ca, api_server_ca, api_server_client, api_server_token, member_ca, member_client, member_token, etcd_ca, etcd_client",
        )];
        let help =
            "First expiry of the certificates or tokens that Durward does not renew, in seconds since 1970";
        metrics.register("credential_not_after_seconds", labels, help, self.not_after.clone());
        let help = "Start of the validity of the certificate or token of `credential_not_after_seconds`, in seconds since 1970";
        metrics.register("credential_not_before_seconds", labels, help, self.not_before.clone());
    }
}

/// Registers the metrics, for the reference page.
#[cfg(test)]
pub(crate) fn register_metrics(metrics: &Metrics) {
    Numbers::default().register(metrics);
}

/// The metrics, the check and the log.
pub(crate) struct ExpiryReport {
    check: Check,
    numbers: Numbers,
    /// When each problem was logged, in seconds since 1970.
    logged: Mutex<BTreeMap<(Kind, String), i64>>,
}

impl ExpiryReport {
    /// Registers the metrics and adds the check.
    pub(crate) fn new(checks: &Checks, metrics: &Metrics) -> Self {
        let numbers = Numbers::default();
        numbers.register(metrics);
        let check = checks.add(CHECK);
        check.pass();
        Self { check, numbers, logged: Mutex::default() }
    }

    /// Publishes all expiries.
    pub(crate) fn publish(&self, expiries: &[Expiry], now: i64) {
        for kind in Kind::ALL {
            let label = KindLabel { credential: kind.as_str() };
            let of_kind = expiries.iter().filter(|expiry| expiry.kind == kind);
            // A short lifetime ends earlier, but a warning can be due earlier for a long one.
            if let Some(first) = of_kind.min_by_key(|expiry| expiry.not_after.saturating_sub(notice(expiry)))
            {
                self.numbers.not_after.get_or_create(&label).set(first.not_after);
                self.numbers.not_before.get_or_create(&label).set(first.not_before);
            } else {
                self.numbers.not_after.remove(&label);
                self.numbers.not_before.remove(&label);
            }
        }
        let due: Vec<(&Expiry, Problem)> =
            expiries.iter().filter_map(|expiry| Some((expiry, problem(expiry, now)?))).collect();
        let mut logged = lock(&self.logged);
        logged.retain(|(kind, source), _| {
            due.iter().any(|(expiry, _)| expiry.kind == *kind && expiry.source == *source)
        });
        for (expiry, problem) in &due {
            let last = logged.entry((expiry.kind, expiry.source.clone())).or_insert(i64::MIN);
            if now.saturating_sub(*last) >= LOG_INTERVAL {
                tracing::warn!(credential = expiry.kind.as_str(), %problem, "a certificate or token must be renewed");
                *last = now;
            }
        }
        match due.as_slice() {
            [] => self.check.pass(),
            due => {
                let lines: Vec<String> = due.iter().map(|(_, problem)| one_line(problem)).collect();
                self.check.note(lines.join("\n    "));
            }
        }
    }

    /// Reads and publishes the expiries until it is dropped. `others` are those that don't change.
    pub(crate) async fn run(&self, file: &ServerFiles, others: &[Expiry], control_planes: &ControlPlanes) {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let mut expiries = control_planes.expiries().await;
            expiries.extend(file.read().await);
            expiries.extend_from_slice(others);
            self.publish(&expiries, now());
        }
    }
}

/// The CA files of the `server` section.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ServerFiles(Arc<Vec<(Kind, &'static str, PathBuf)>>);

impl ServerFiles {
    /// Returns the files that a configuration names.
    pub(crate) fn of(file: &File) -> Self {
        let tls = &file.server.tls;
        let serving_ca = tls.ca.iter().map(|path| (Kind::ServingCa, "server.tls.files.ca", path.clone()));
        let client_ca = tls
            .client_auth
            .ca_file()
            .map(|path| (Kind::ClientCa, "server.tls.clientAuth.caFile", path.clone()));
        Self(Arc::new(serving_ca.chain(client_ca).collect()))
    }

    /// Reads the files. One that can't be read has no expiry: the code that uses it reports that.
    pub(crate) async fn read(&self) -> Vec<Expiry> {
        let files = self.clone();
        // A mounted file system can hang, and must not block a worker of the runtime.
        let reading = tokio::task::spawn_blocking(move || {
            let read = |(kind, key, path): &(Kind, &str, PathBuf)| {
                let pem = input::bytes(path, input::SMALL).ok()?;
                Expiry::of_pem(*kind, &format!("{key} {}", path.display()), &pem)
            };
            files.0.iter().filter_map(read).collect()
        });
        reading.await.unwrap_or_default()
    }
}

/// Returns the time before the end of the validity from which a warning is due.
fn notice(expiry: &Expiry) -> i64 {
    NOTICE.min(expiry.not_after.saturating_sub(expiry.not_before) / 6)
}

/// Returns the problem of a certificate or token that has expired or expires soon.
pub(crate) fn problem(expiry: &Expiry, now: i64) -> Option<Problem> {
    let Expiry { kind, source, not_after, .. } = expiry;
    let left = not_after.saturating_sub(now);
    if left >= notice(expiry) {
        return None;
    }
    let (what, next) = words(*kind);
    let at = rfc3339(*not_after);
    let text = if left <= 0 {
        format!("{what} in {source} expired at {at}")
    } else {
        format!("{what} in {source} expires at {at}, in {} days", days_until(*not_after, now))
    };
    Some(Problem::new(text).next(next))
}

/// Returns the name of a kind in messages, and how to renew it.
fn words(kind: Kind) -> (&'static str, &'static str) {
    const RESTART: &str = "replace the kubeconfig, and restart Durward, which reads it once: kubectl rollout restart deploy/durward, in its namespace";
    const MEMBER: &str = "replace the kubeconfig of the member cluster; Durward reads it again";
    const ETCD: &str =
        "replace it in the Secret or file; Durward reads it again. Remove CAs that no member uses";
    match kind {
        Kind::ServingCa => (
            "a CA",
            "create the next CA and certificate with durward certs new, and add this CA to the file before you replace the certificate, as Replace the CA on the page Certificates describes. Remove CAs that are not used any more",
        ),
        Kind::ClientCa => {
            ("a CA of client certificates", "add the next CA to the file; Durward reads it again")
        }
        Kind::ApiServerCa => ("the CA of the API server", RESTART),
        Kind::ApiServerClient => ("Durward's client certificate for the API server", RESTART),
        Kind::ApiServerToken => ("Durward's token for the API server", RESTART),
        Kind::MemberCa => ("the CA of a member cluster", MEMBER),
        Kind::MemberClient => ("Durward's client certificate for a member cluster", MEMBER),
        Kind::MemberToken => ("Durward's token for a member cluster", MEMBER),
        Kind::EtcdCa => ("the CA of etcd members", ETCD),
        Kind::EtcdClient => ("Durward's client certificate for etcd members", ETCD),
    }
}

fn one_line(problem: &Problem) -> String {
    let next = problem.next.as_ref().map(|next| format!("; next: {next}")).unwrap_or_default();
    admission::one_line(&format!("{}{next}", problem.what))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400;
    const NOW: i64 = 20_000 * DAY;

    /// An expiry after so many days of a lifetime.
    fn expires(kind: Kind, source: &str, days: i64, lifetime: i64) -> Expiry {
        let not_after = NOW + days * DAY;
        Expiry { kind, source: source.to_owned(), not_before: not_after - lifetime * DAY, not_after }
    }

    fn report() -> (ExpiryReport, Checks, Metrics) {
        let (checks, metrics) = (Checks::new(), Metrics::new("t"));
        (ExpiryReport::new(&checks, &metrics), checks, metrics)
    }

    #[test]
    fn publishes_the_first_expiry_of_each_kind() {
        let (report, checks, metrics) = report();
        let lines = || {
            let text = metrics.encode();
            let lines = text.lines().filter(|line| line.starts_with("durward_credential_"));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(lines(), [""; 0], "a kind that is not configured has no series");
        assert_eq!(checks.readiness_of(CHECK).unwrap().text, "[+]credentials ok\n");
        report.publish(
            &[
                expires(Kind::EtcdCa, "a", 300, 365),
                expires(Kind::EtcdCa, "b", 200, 3650),
                expires(Kind::ClientCa, "c", 100, 365),
            ],
            NOW,
        );
        let of = |kind: &str, name: &str, days: i64| {
            format!("durward_credential_{name}_seconds{{credential=\"{kind}\"}} {}", NOW + days * DAY)
        };
        let expected = [
            of("client_ca", "not_after", 100),
            of("client_ca", "not_before", 100 - 365),
            of("etcd_ca", "not_after", 200),
            of("etcd_ca", "not_before", 200 - 3650),
        ];
        let mut found = lines();
        found.sort_by_key(|line| !line.contains("client_ca"));
        for line in &expected {
            assert!(found.contains(line), "{line} is not in {found:?}");
        }
        assert_eq!(found.len(), 4, "{found:?}");
        // A year is due a month before its end; a token of a day only four hours before.
        let (year, day) = (expires(Kind::MemberToken, "a", 10, 365), expires(Kind::MemberToken, "b", 1, 1));
        report.publish(&[day, year], NOW);
        assert!(lines().contains(&of("member_token", "not_after", 10)), "{:?}", lines());
        report.publish(&[], NOW);
        assert_eq!(lines(), [""; 0], "a kind that is not configured any more has no series");
    }

    #[test]
    fn reports_a_certificate_in_the_last_sixth_of_its_life_and_at_most_a_month_before() {
        for (days, lifetime, is_due) in [
            (31, 3650, false),
            (29, 3650, true),
            (2, 7, false),
            (1, 7, true),
            (0, 3650, true),
            (-1, 3650, true),
            (-1, 1, true),
        ] {
            let found = problem(&expires(Kind::EtcdCa, "a", days, lifetime), NOW);
            assert_eq!(found.is_some(), is_due, "{days} of {lifetime}");
        }
        let text = |days| problem(&expires(Kind::ApiServerClient, "kubeconfig k", days, 365), NOW).unwrap();
        let soon = text(10);
        assert_eq!(
            soon.what,
            "Durward's client certificate for the API server in kubeconfig k expires at 2024-10-14T00:00:00Z, in 10 days"
        );
        assert!(soon.next.unwrap().contains("rollout restart deploy/durward"), "it is read once");
        assert!(text(0).what.ends_with("kubeconfig k expired at 2024-10-04T00:00:00Z"), "{}", text(0).what);
        for kind in Kind::ALL {
            assert!(problem(&expires(kind, "a", 1, 365), NOW).unwrap().next.is_some());
        }
    }

    #[test]
    fn notes_each_source_and_stays_ready() {
        let (report, checks, _) = report();
        let due = |kind, source| expires(kind, source, 1, 365);
        let all = [due(Kind::EtcdClient, "Secret db/a"), due(Kind::EtcdClient, "Secret db/b")];
        report.publish(&all, NOW);
        let readiness = checks.readiness();
        assert!(readiness.ready, "{}", readiness.text);
        for part in [
            "[!]credentials: Durward's client certificate for etcd members in Secret db/a expires",
            "db/b",
            "; next: ",
        ] {
            assert!(readiness.text.contains(part), "{part} is not in {}", readiness.text);
        }
        report.publish(&[], NOW);
        assert_eq!(checks.readiness_of(CHECK).unwrap().text, "[+]credentials ok\n");
    }

    #[test]
    fn logs_each_problem_once_a_day() {
        let (report, _, _) = report();
        let due = [expires(Kind::EtcdClient, "a", 1, 365), expires(Kind::EtcdCa, "a", 1, 365)];
        let logged = |expiries: &[Expiry], now: i64| {
            report.publish(expiries, now);
            let logged = report.logged.lock().unwrap();
            logged.values().filter(|at| **at == now).count()
        };
        assert_eq!(logged(&due, NOW), 2);
        assert_eq!(logged(&due, NOW + DAY - 1), 0);
        assert_eq!(logged(&due, NOW + DAY), 2);
        assert_eq!(logged(&[], NOW + DAY + 1), 0);
        assert_eq!(logged(&due, NOW + DAY + 2), 2, "it was renewed in between");
    }

    #[tokio::test]
    async fn reads_the_ca_files_of_the_server_section() {
        let directory = tempfile::tempdir().unwrap();
        let lifetime = Duration::from_secs(86_400 * 90);
        let ca = ca::Authority::new(ca::Validity::from_now(lifetime), &[]).unwrap().cert().to_owned();
        for name in ["ca.crt", "clients.crt"] {
            std::fs::write(directory.path().join(name), &ca).unwrap();
        }
        let text = "apiVersion: durward.dev/v1alpha1\nkind: Configuration\nguards: {lxcfs: {}}\n\
            server: {tls: {clientAuth: {mode: require, allowedNames: [a], caFile: clients.crt}, files: {cert: c, key: k, ca: ca.crt}}}\n";
        let path = directory.path().join("durward.yaml");
        let file = File::from_text(&path, text.to_owned(), crate::file::Purpose::Guards).ok().unwrap();
        let files = ServerFiles::of(&file);
        let read = files.read().await;
        assert_eq!(read.iter().map(|one| one.kind).collect::<Vec<_>>(), [Kind::ServingCa, Kind::ClientCa]);
        let source = format!("server.tls.files.ca {}", directory.path().join("ca.crt").display());
        assert_eq!(read[0].source, source);
        assert_eq!(days_until(read[0].not_after, now() + 60), 89);
        std::fs::remove_file(directory.path().join("ca.crt")).unwrap();
        assert_eq!(files.read().await.len(), 1, "the code that uses it reports a file that is gone");
    }
}
