//! The Lease whose holder removes what no guard needs. Serving does not depend on it.
//!
//! As in client-go, a holder is recognized by changes of the Lease, not by its times, so clocks of replicas can differ.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;

use crate::registration::api::{ApiClient, Fault};
use crate::registration::names::LEASE;
use cluster::ApiError;

/// Time without a change after which another replica becomes the holder.
const DURATION: Duration = Duration::from_secs(30);

/// The holder renews the Lease after this time, so that it keeps the Lease after two failures in a row.
const RENEW_AFTER: Duration = Duration::from_secs(10);

/// A replica that holds the Lease or waits for it.
pub(super) struct Candidate {
    identity: String,
    /// The version that was read last, and when it was read first.
    observed: Option<(String, Instant)>,
}

/// The next step of a candidate.
#[derive(Debug, PartialEq)]
enum Step {
    /// Another replica is the holder.
    Follow,
    /// This replica is the holder, and renewed the Lease recently.
    Hold,
    /// The Lease must be written. This replica is the holder if that succeeds.
    Write(Box<Lease>),
}

impl Candidate {
    /// Creates a candidate. No other process can have this identity.
    pub(super) fn new(identity: String) -> Self {
        Self { identity, observed: None }
    }

    /// Reads the Lease, writes it if needed, and returns whether this replica is the holder.
    pub(super) async fn hold(
        &mut self,
        client: &ApiClient,
        namespace: &str,
        now: Instant,
    ) -> Result<bool, Fault> {
        let lease = client.lease(namespace, LEASE).await?;
        let mut lease = match self.step(lease, now) {
            Step::Follow => return Ok(false),
            Step::Hold => return Ok(true),
            Step::Write(lease) => lease,
        };
        lease.metadata.namespace = Some(namespace.to_owned());
        match client.write_lease(namespace, &lease).await {
            Ok(written) => {
                self.observed = written.metadata.resource_version.map(|version| (version, now));
                Ok(true)
            }
            Err(Fault { kind: ApiError::Conflict, .. }) => Ok(false),
            Err(fault) => Err(fault),
        }
    }

    fn step(&mut self, lease: Option<Lease>, now: Instant) -> Step {
        let Some(lease) = lease else { return self.write(ObjectMeta::default(), None) };
        let version = lease.metadata.resource_version.clone().unwrap_or_default();
        if self.observed.as_ref().is_none_or(|(known, _)| *known != version) {
            self.observed = Some((version, now));
        }
        let unchanged_for =
            self.observed.as_ref().map_or(Duration::ZERO, |(_, since)| now.saturating_duration_since(*since));
        let spec = lease.spec.unwrap_or_default();
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        let must_write = if holder == self.identity {
            unchanged_for >= RENEW_AFTER
        } else {
            holder.is_empty() || unchanged_for >= DURATION
        };
        if must_write {
            return self.write(lease.metadata, Some(spec));
        }
        if holder == self.identity { Step::Hold } else { Step::Follow }
    }

    fn write(&self, metadata: ObjectMeta, before: Option<LeaseSpec>) -> Step {
        let before = before.unwrap_or_default();
        let (now, is_mine) = (Timestamp::now(), before.holder_identity.as_deref() == Some(&self.identity));
        let transitions = before.lease_transitions.unwrap_or_default();
        let spec = LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            acquire_time: if is_mine { before.acquire_time } else { Some(MicroTime(now)) },
            renew_time: Some(MicroTime(now)),
            lease_transitions: Some(if is_mine { transitions } else { transitions.saturating_add(1) }),
            ..LeaseSpec::default()
        };
        let metadata = ObjectMeta {
            name: Some(LEASE.to_owned()),
            resource_version: metadata.resource_version,
            labels: metadata.labels,
            annotations: metadata.annotations,
            owner_references: metadata.owner_references,
            ..ObjectMeta::default()
        };
        Step::Write(Box::new(Lease { metadata, spec: Some(spec) }))
    }
}

/// Returns an identity of this process: the name of the pod, the process id and the time.
pub(super) fn identity() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "durward".to_owned());
    format!("{host}_{}_{}", std::process::id(), Timestamp::now().as_microsecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *START.get_or_init(Instant::now) + Duration::from_secs(seconds)
    }

    fn held_by(holder: &str, version: &str) -> Lease {
        let metadata = ObjectMeta { resource_version: Some(version.to_owned()), ..ObjectMeta::default() };
        let spec = LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_transitions: Some(4),
            ..LeaseSpec::default()
        };
        Lease { metadata, spec: Some(spec) }
    }

    fn written(step: Step) -> Lease {
        match step {
            Step::Write(lease) => *lease,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn creates_a_lease_that_does_not_exist() {
        let lease = written(Candidate::new("a".to_owned()).step(None, at(0)));
        assert_eq!(lease.metadata.resource_version, None);
        assert_eq!(lease.spec.unwrap().holder_identity.as_deref(), Some("a"));
    }

    #[test]
    fn takes_a_lease_that_did_not_change_for_its_duration() {
        let mut candidate = Candidate::new("b".to_owned());
        assert_eq!(candidate.step(Some(held_by("a", "1")), at(0)), Step::Follow);
        assert_eq!(candidate.step(Some(held_by("a", "2")), at(29)), Step::Follow);
        assert_eq!(candidate.step(Some(held_by("a", "2")), at(58)), Step::Follow, "renewed 29 s ago");
        let lease = written(candidate.step(Some(held_by("a", "2")), at(59)));
        assert_eq!(lease.metadata.resource_version.as_deref(), Some("2"));
        assert_eq!(lease.spec.unwrap().lease_transitions, Some(5));
    }

    #[test]
    fn renews_its_own_lease_before_another_replica_takes_it() {
        let mut candidate = Candidate::new("a".to_owned());
        assert_eq!(candidate.step(Some(held_by("a", "1")), at(0)), Step::Hold);
        assert_eq!(candidate.step(Some(held_by("a", "1")), at(9)), Step::Hold);
        let lease = written(candidate.step(Some(held_by("a", "1")), at(10)));
        assert_eq!(lease.spec.unwrap().lease_transitions, Some(4));
    }

    #[test]
    fn takes_a_lease_without_holder_at_once() {
        written(Candidate::new("a".to_owned()).step(Some(held_by("", "1")), at(0)));
    }
}
