//! Metrics of the CA. They exist only if certificates are self-managed.

use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use server::Metrics;

use crate::state::Change;
use crate::store::StoreFault;

/// The reason `not_registered`: a caBundle lacks a CA that it must contain.
pub(crate) const NOT_REGISTERED: &str = "not_registered";
/// The reason `not_read`: the webhook configurations of an API server can't be read.
pub(crate) const NOT_READ: &str = "not_read";

const REASONS: [&str; 7] = [
    StoreFault::Missing.as_str(),
    StoreFault::Foreign.as_str(),
    StoreFault::Forbidden.as_str(),
    StoreFault::Unreachable.as_str(),
    StoreFault::Invalid.as_str(),
    NOT_REGISTERED,
    NOT_READ,
];

/// The metrics of self-managed certificates.
#[derive(Debug, Clone)]
pub(crate) struct CaMetrics {
    /// Expiry of the CA that signs.
    pub(crate) not_after: Gauge,
    /// Clock of this machine minus clock of the API server.
    pub(crate) clock_difference: Gauge,
    errors: Family<[(&'static str, &'static str); 1], Gauge>,
    changes: Family<[(&'static str, &'static str); 1], Counter>,
}

impl CaMetrics {
    pub(crate) fn registered(metrics: &Metrics) -> Arc<Self> {
        let own = Self {
            not_after: Gauge::default(),
            clock_difference: Gauge::default(),
            errors: Family::default(),
            changes: Family::default(),
        };
        let help = "Expiry of the self-managed CA that signs serving certificates, in seconds since 1970";
        metrics.register("ca_not_after_seconds", &[], help, own.not_after.clone());
        let help = "Clock of this machine minus the clock of the API server that has the Secret of the CA";
        metrics.register("clock_difference_seconds", &[], help, own.clock_difference.clone());
        metrics.register(
            "ca_error",
            &[("reason", "missing, foreign, forbidden, unreachable, invalid, not_registered, not_read")],
            "1 while the Secret of the CA or the caBundles can't be used",
            own.errors.clone(),
        );
        metrics.register(
            "ca_changes",
            &[("change", "created, introduced, promoted, removed, replaced")],
            "Changes of the self-managed CA by this replica",
            own.changes.clone(),
        );
        for change in Change::ALL {
            drop(own.changes.get_or_create(&[("change", change.as_str())]));
        }
        own.set_error(None);
        Arc::new(own)
    }

    /// Sets this reason to 1, and all others to 0.
    pub(crate) fn set_error(&self, current: Option<&'static str>) {
        for reason in REASONS {
            self.errors.get_or_create(&[("reason", reason)]).set(i64::from(current == Some(reason)));
        }
    }

    pub(crate) fn count(&self, change: Change) {
        self.changes.get_or_create(&[("change", change.as_str())]).inc();
    }
}
