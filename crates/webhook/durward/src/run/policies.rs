//! Reports the policies in force: check `policies`, metrics and log. Replicas with the same hash have the same policies.

use guards::Remark;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use server::{Checks, Metrics};
use std::time::SystemTime;

use crate::file::File;

/// The name of the check.
const CHECK: &str = "policies";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HashLabel {
    hash: String,
}

/// The check and the metric.
pub(crate) struct PolicyReport {
    checks: Checks,
    /// The number of policies, by the hash of the set.
    policies: Family<HashLabel, Gauge>,
}

impl PolicyReport {
    /// Registers the metric. The check is added when policies are first loaded.
    pub(crate) fn new(checks: &Checks, metrics: &Metrics) -> Self {
        let report = Self { checks: checks.clone(), policies: Family::default() };
        let hash = &[("hash", "hash of the files, the same on replicas with the same policies")];
        metrics.register("policies", hash, "Policies in force", report.policies.clone());
        report
    }

    /// Reports the policies of a file that is in force now, and the warnings about its guards.
    pub(crate) fn publish(&self, file: &File) {
        let now = SystemTime::now();
        for guard in &file.guards {
            for remark in guard.configured.remarks(now) {
                if let Remark::Warning(text) = remark {
                    tracing::warn!(guard = guard.kind.name(), "{text}");
                }
            }
        }
        self.policies.clear();
        let Some(policies) = file.policies() else {
            if self.checks.readiness_of(CHECK).is_some() {
                self.checks.add(CHECK).note("no guard evaluates policies");
            }
            return;
        };
        let (hash, count) = (policies.digest().to_owned(), policies.set().policies().count());
        let noun = if count == 1 { "policy" } else { "policies" };
        self.checks.add(CHECK).note(format!("set {hash}: {count} {noun}"));
        tracing::info!(hash, policies = count, "policies in force");
        self.policies.get_or_create(&HashLabel { hash }).set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}
