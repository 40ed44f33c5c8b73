//! Publishes when the client certificates expire that Durward uses and does not renew. `doctor install` names them.
//!
//! The serving certificate and the self-managed CA have metrics of their own, in `server`.

use std::sync::Arc;
use std::time::Duration;

use cluster::live::{CredentialKind as Kind, Expiry};
use config::Problem;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use server::Metrics;
use tokio::time::{MissedTickBehavior, interval};

use crate::certificates::{days_until, rfc3339};
use crate::clients::control_planes::ControlPlanes;

/// Interval at which files and Secrets are read again.
const INTERVAL: Duration = Duration::from_secs(60);

/// Time before the expiry from which `doctor` reports it. The alert rule has the same limit.
const NOTICE: i64 = 14 * 86_400;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    credential: &'static str,
}

/// The metric.
#[derive(Debug, Default)]
pub(crate) struct ExpiryReport(Family<KindLabel, Gauge>);

impl ExpiryReport {
    /// Registers the metric.
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let report = Self::default();
        let labels = &[("credential", "api_server_client, member_client, etcd_client")];
        let help =
            "First expiry of the client certificates that Durward does not renew, in seconds since 1970";
        metrics.register("credential_not_after_seconds", labels, help, report.0.clone());
        report
    }

    /// Publishes all expiries. A kind without a certificate has no series.
    fn publish(&self, expiries: &[Expiry]) {
        for kind in Kind::ALL {
            let label = KindLabel { credential: kind.as_str() };
            match expiries.iter().filter(|expiry| expiry.kind == kind).map(|expiry| expiry.not_after).min() {
                Some(first) => _ = self.0.get_or_create(&label).set(first),
                None => _ = self.0.remove(&label),
            }
        }
    }

    /// Reads and publishes the expiries until it is dropped.
    pub(crate) async fn run(self: Arc<Self>, control_planes: Arc<ControlPlanes>) {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.publish(&control_planes.expiries().await);
        }
    }
}

/// Returns the problem of a certificate that has expired or expires soon.
pub(crate) fn problem(expiry: &Expiry, now: i64) -> Option<Problem> {
    let Expiry { kind, source, not_after, .. } = expiry;
    let left = not_after.saturating_sub(now);
    if left >= NOTICE {
        return None;
    }
    let (server, next) = match kind {
        Kind::ApiServerClient => {
            ("the API server", "replace the kubeconfig; Durward reads it again within a minute")
        }
        Kind::MemberClient => {
            ("a member cluster", "replace the kubeconfig of the member cluster; Durward reads it again")
        }
        Kind::EtcdClient => ("etcd members", "replace it in the Secret or file; Durward reads it again"),
    };
    let (what, at) = (format!("Durward's client certificate for {server} in {source}"), rfc3339(*not_after));
    let text = if left <= 0 {
        format!("{what} expired at {at}")
    } else {
        format!("{what} expires at {at}, in {} days", days_until(*not_after, now))
    };
    Some(Problem::new(text).next(next))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400;
    const NOW: i64 = 20_000 * DAY;

    /// An expiry after so many days.
    fn expires(kind: Kind, days: i64) -> Expiry {
        Expiry { kind, source: "kubeconfig k".to_owned(), not_after: NOW + days * DAY }
    }

    #[test]
    fn publishes_the_first_expiry_of_each_kind() {
        let metrics = Metrics::new("t");
        let report = ExpiryReport::new(&metrics);
        let lines = || {
            let text = metrics.encode();
            let lines = text.lines().filter(|line| line.starts_with("durward_credential_"));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        report.publish(&[expires(Kind::EtcdClient, 300), expires(Kind::EtcdClient, 200)]);
        let first = NOW + 200 * DAY;
        assert_eq!(
            lines(),
            [format!("durward_credential_not_after_seconds{{credential=\"etcd_client\"}} {first}")]
        );
        report.publish(&[]);
        assert_eq!(lines(), [""; 0], "a kind that is not configured any more has no series");
    }

    #[test]
    fn reports_a_certificate_in_its_last_two_weeks() {
        assert_eq!(problem(&expires(Kind::EtcdClient, 14), NOW), None);
        let text = |days| problem(&expires(Kind::ApiServerClient, days), NOW).unwrap();
        let soon = text(10);
        assert_eq!(
            soon.what,
            "Durward's client certificate for the API server in kubeconfig k expires at 2024-10-14T00:00:00Z, in 10 days"
        );
        assert!(soon.next.unwrap().contains("replace the kubeconfig"));
        assert!(text(0).what.ends_with("kubeconfig k expired at 2024-10-04T00:00:00Z"), "{}", text(0).what);
    }
}
