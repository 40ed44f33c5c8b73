//! What is taken on at once: reviews, and bytes of bodies and answers. Past a limit a request is shed, never queued: a queue in
//! front of a webhook only moves the time-out, and the API server has another replica to ask.
//!
//! Bytes are charged as they arrive and not by `Content-Length`, so that whoever announces much and sends nothing holds nothing.
//! With the first one comes a fixed charge for what holds them ([`Limits::BODY_COST`](crate::Limits::BODY_COST)). Once there is
//! an answer the charge is for that, and goes with it until the peer has taken it: an answer may be many times its question, and
//! who does not read holds it for as long as the connection lasts. Taken is what TLS has taken, which keeps at most 64 KiB back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use prometheus_client::metrics::gauge::Gauge;

/// A quantity with an upper bound.
#[derive(Debug)]
pub(crate) struct Meter {
    used: AtomicUsize,
    most: usize,
    shown: Gauge,
}

/// What one request has of a [`Meter`]; given back when dropped, on whatever way the request ends.
#[derive(Debug)]
pub(crate) struct Share {
    meter: Arc<Meter>,
    held: usize,
}

impl Meter {
    pub(crate) fn new(most: usize, shown: Gauge) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), most, shown })
    }

    /// A share of nothing, to grow.
    pub(crate) fn share(self: &Arc<Self>) -> Share {
        Share { meter: Arc::clone(self), held: 0 }
    }

    /// Whether not even one more fits. Only a hint: it may have changed by the time the caller looks.
    pub(crate) fn is_full(&self) -> bool {
        self.used.load(Ordering::Relaxed) >= self.most
    }
}

impl Share {
    /// Takes `more`, if that much is left.
    pub(crate) fn grow(&mut self, more: usize) -> bool {
        let add = |used: usize| used.checked_add(more).filter(|sum| *sum <= self.meter.most);
        // Relaxed: the number guards no other memory.
        if self.meter.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_err() {
            return false;
        }
        self.held += more;
        self.meter.shown.inc_by(signed(more));
        true
    }

    /// Holds `held` from now on, if what that is more is left. Less always fits.
    pub(crate) fn become_of(&mut self, held: usize) -> bool {
        if let Some(less) = self.held.checked_sub(held) {
            self.give_back(less);
            return true;
        }
        self.grow(held - self.held)
    }

    /// `bytes`, without a copy, and this share with them until the last of them is dropped.
    pub(crate) fn with(self, bytes: Vec<u8>) -> Bytes {
        Bytes::from_owner(Charged { bytes, _share: self })
    }

    fn give_back(&mut self, less: usize) {
        self.held -= less;
        self.meter.used.fetch_sub(less, Ordering::Relaxed);
        self.meter.shown.dec_by(signed(less));
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.give_back(self.held);
    }
}

/// Bytes that are dropped together with what they are charged to.
struct Charged {
    bytes: Vec<u8>,
    _share: Share,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// No body comes near 2^63 bytes.
fn signed(amount: usize) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_grows_up_to_the_bound_and_gives_back_what_it_held() {
        let shown = Gauge::default();
        let meter = Meter::new(10, shown.clone());
        let mut first = meter.share();
        let mut second = meter.share();
        assert!(first.grow(6));
        assert!(!second.grow(5));
        assert!(second.grow(4));
        assert!(meter.is_full());
        assert_eq!(shown.get(), 10);
        drop(first);
        assert!(!meter.is_full());
        assert!(second.grow(6));
        assert!(!second.grow(usize::MAX));
        drop(second);
        assert_eq!(shown.get(), 0);
    }

    #[test]
    fn a_share_of_a_question_becomes_one_of_its_answer_and_goes_with_the_last_of_its_bytes() {
        let shown = Gauge::default();
        let meter = Meter::new(10, shown.clone());
        let mut share = meter.share();
        assert!(share.grow(8));
        assert!(share.become_of(3));
        assert_eq!(shown.get(), 3);
        assert!(!share.become_of(11));
        assert!(share.become_of(4));
        let answer = vec![7; 4];
        let at = answer.as_ptr();
        let mut bytes = share.with(answer);
        assert_eq!(bytes.as_ptr(), at);
        let first = bytes.split_to(1);
        drop(bytes);
        assert_eq!(shown.get(), 4);
        drop(first);
        assert_eq!(shown.get(), 0);
    }
}
