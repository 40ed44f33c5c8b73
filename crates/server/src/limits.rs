//! What is taken on at once: reviews, and bytes of bodies. Past a limit a request is shed, never queued: a queue in front of a
//! webhook only moves the time-out, and the API server has another replica to ask.
//!
//! Bytes are charged as they arrive and not by `Content-Length`, so that whoever announces much and sends nothing holds nothing.
//! With the first one comes a fixed charge for what holds them ([`Limits::BODY_COST`](crate::Limits::BODY_COST)).

use std::sync::atomic::{AtomicUsize, Ordering};

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
pub(crate) struct Share<'a> {
    meter: &'a Meter,
    held: usize,
}

impl Meter {
    pub(crate) fn new(most: usize, shown: Gauge) -> Self {
        Self { used: AtomicUsize::new(0), most, shown }
    }

    /// A share of nothing, to grow.
    pub(crate) fn share(&self) -> Share<'_> {
        Share { meter: self, held: 0 }
    }

    /// Whether not even one more fits. Only a hint: it may have changed by the time the caller looks.
    pub(crate) fn is_full(&self) -> bool {
        self.used.load(Ordering::Relaxed) >= self.most
    }
}

impl Share<'_> {
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
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.meter.used.fetch_sub(self.held, Ordering::Relaxed);
        self.meter.shown.dec_by(signed(self.held));
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
}
