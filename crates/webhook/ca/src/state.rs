//! Decides about the CAs: which step the record of the Secret needs now, and whether a replica needs a new certificate.
//!
//! A rotation has three steps, each written by any replica:
//!
//! 1. At two thirds of its lifetime, or if it does not permit a name of the configuration, the signer gets a successor, which is
//!    added to every caBundle.
//! 2. When every caBundle has contained the successor for a while, it becomes the signer.
//! 3. The replaced CA leaves the caBundle after the last certificate that it signed has expired.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::authority::{Authority, AuthorityError, ServingName, Validity};
use crate::record::{Previous, Record};

/// How long before now a certificate becomes valid: a clock that is wrong by two days does no harm.
const BACKDATE: Duration = Duration::from_secs(3 * 86_400);

/// How long certificates are valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    /// A CA. It is replaced at two thirds of this time.
    pub ca: Duration,
    /// A serving certificate. It is replaced at two thirds of this time.
    pub certificate: Duration,
}

impl Lifetimes {
    /// Returns how long every caBundle must contain a CA before it signs. All API servers must notice the change of the webhook
    /// configuration. A watch delivers it within a second or two.
    pub fn introduction(&self) -> Duration {
        (self.ca / 10).min(Duration::from_secs(60))
    }

    /// Returns the interval of the passes.
    pub(crate) fn interval(&self) -> Duration {
        (self.ca.min(self.certificate) / 20).clamp(Duration::from_secs(1), Duration::from_secs(30))
    }
}

/// A change of the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// The first CA.
    Created,
    /// A successor was added to the bundle.
    Introduced,
    /// The successor signs.
    Promoted,
    /// The replaced CA left the bundle.
    Removed,
    /// The signer had expired, and another CA took its place at once.
    Replaced,
}

impl Change {
    /// All changes.
    pub(crate) const ALL: [Self; 5] =
        [Self::Created, Self::Introduced, Self::Promoted, Self::Removed, Self::Replaced];

    /// Returns the label of the metric.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Introduced => "introduced",
            Self::Promoted => "promoted",
            Self::Removed => "removed",
            Self::Replaced => "replaced",
        }
    }
}

/// Returns the record after the next step, or `None` if it needs none now.
///
/// `next_is_registered`: every caBundle has contained the next CA for [`Lifetimes::introduction`].
pub(crate) fn step(
    record: Option<&Record>,
    now: SystemTime,
    lifetimes: Lifetimes,
    names: &[ServingName],
    next_is_registered: bool,
) -> Result<Option<(Record, Change)>, AuthorityError> {
    let new_ca = |names: &[ServingName]| Authority::new(validity(now, lifetimes.ca), names).map(Arc::new);
    let Some(record) = record else {
        let record = Record { signer: new_ca(names)?, next: None, previous: None };
        return Ok(Some((record, Change::Created)));
    };
    let next = record.next.as_ref().filter(|next| next.not_after() > now);
    if record.signer.not_after() <= now {
        let signer = next.map_or_else(|| new_ca(names), |next| Ok(Arc::clone(next)))?;
        return Ok(Some((Record { signer, next: None, previous: None }, Change::Replaced)));
    }
    if record.previous.as_ref().is_some_and(|previous| previous.until <= now) {
        return Ok(Some((Record { previous: None, ..record.clone() }, Change::Removed)));
    }
    if let Some(next) = next {
        if !next_is_registered {
            return Ok(None);
        }
        // A half of the lifetime more, because the replicas' clocks and passes differ.
        let until = now + lifetimes.certificate + lifetimes.certificate / 2;
        let previous = Some(Previous { cert: record.signer.cert().to_owned(), until });
        return Ok(Some((Record { signer: Arc::clone(next), next: None, previous }, Change::Promoted)));
    }
    if !names.iter().all(|name| record.signer.permits(name)) {
        // Also the old names: during a rollout, replicas with the old configuration would otherwise replace this CA again.
        let names = [names, record.signer.permitted()].concat();
        return Ok(Some((Record { next: Some(new_ca(&names)?), ..record.clone() }, Change::Introduced)));
    }
    let remaining = record.signer.not_after().duration_since(now).unwrap_or_default();
    // One CA is replaced at a time, so the bundle has at most three. A clock that was wrong can keep the previous one too long.
    let is_free = record.previous.is_none() || remaining <= lifetimes.ca / 6;
    if remaining <= lifetimes.ca / 3 && is_free {
        return Ok(Some((Record { next: Some(new_ca(names)?), ..record.clone() }, Change::Introduced)));
    }
    Ok(None)
}

/// The certificate that a replica serves, as far as its renewal is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeafState<'l> {
    /// The DER of its CA.
    pub(crate) ca: &'l [u8],
    /// When it expires.
    pub(crate) not_after: SystemTime,
}

/// Returns whether a replica signs a new certificate.
///
/// `signer_is_registered`: every caBundle contains the signer. Without a valid certificate this does not matter, because calls
/// fail in any case.
pub(crate) fn needs_certificate(
    leaf: Option<LeafState<'_>>,
    signer: &Authority,
    now: SystemTime,
    lifetimes: Lifetimes,
    signer_is_registered: bool,
) -> bool {
    let Some(leaf) = leaf else { return true };
    let remaining = leaf.not_after.duration_since(now).unwrap_or_default();
    if remaining.is_zero() {
        return true;
    }
    if leaf.ca != signer.der().as_ref() {
        return signer_is_registered;
    }
    // A certificate that expires with its CA can't be renewed by it.
    remaining <= lifetimes.certificate / 3 && leaf.not_after < signer.not_after()
}

/// Returns the validity of a certificate that is created now.
pub(crate) fn validity(now: SystemTime, lifetime: Duration) -> Validity {
    Validity { not_before: now - BACKDATE, not_after: now + lifetime }
}
