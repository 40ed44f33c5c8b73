//! Memory budgets: a number of bytes, or of anything else, that concurrent tasks share.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A limit that reservations share. A reservation above it fails instead of waiting.
pub struct Budget {
    used: AtomicUsize,
    max: usize,
    on_change: Box<dyn Fn(i64) + Send + Sync>,
}

/// A part of a [`Budget`]. Dropping it returns the part.
pub struct Reservation {
    budget: Arc<Budget>,
    amount: usize,
}

impl Budget {
    /// Creates a budget.
    pub fn new(max: usize) -> Arc<Self> {
        Self::observed(max, |_| {})
    }

    /// Creates a budget that reports every change, for instance to a gauge.
    pub fn observed(max: usize, on_change: impl Fn(i64) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), max, on_change: Box::new(on_change) })
    }

    /// Reserves an amount. Returns none if the rest is smaller.
    pub fn reserve(self: &Arc<Self>, amount: usize) -> Option<Reservation> {
        let mut reservation = self.empty();
        reservation.grow(amount).then_some(reservation)
    }

    /// Creates a reservation of nothing, which can grow.
    pub fn empty(self: &Arc<Self>) -> Reservation {
        Reservation { budget: Arc::clone(self), amount: 0 }
    }

    /// Returns whether nothing is left. Another task can change that at any time.
    pub fn is_exhausted(&self) -> bool {
        self.used.load(Ordering::Relaxed) >= self.max
    }
}

impl Reservation {
    /// Reserves `more` in addition. Returns false and changes nothing if the rest is smaller.
    pub fn grow(&mut self, more: usize) -> bool {
        let add = |used: usize| used.checked_add(more).filter(|sum| *sum <= self.budget.max);
        // Relaxed: the number guards no other memory.
        if self.budget.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_err() {
            return false;
        }
        self.amount += more;
        (self.budget.on_change)(signed(more));
        true
    }

    /// Changes the amount. Returns false and changes nothing if it grows and the rest is smaller.
    pub fn resize(&mut self, amount: usize) -> bool {
        let Some(less) = self.amount.checked_sub(amount) else { return self.grow(amount - self.amount) };
        self.amount = amount;
        self.budget.used.fetch_sub(less, Ordering::Relaxed);
        (self.budget.on_change)(-signed(less));
        true
    }

    /// Returns the reserved amount.
    pub fn amount(&self) -> usize {
        self.amount
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.resize(0);
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget").field("used", &self.used).field("max", &self.max).finish_non_exhaustive()
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("amount", &self.amount).finish_non_exhaustive()
    }
}

fn signed(amount: usize) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicI64;

    use super::*;

    #[test]
    fn reservations_share_the_limit_and_return_their_part() {
        let gauge = Arc::new(AtomicI64::new(0));
        let shown = Arc::clone(&gauge);
        let budget = Budget::observed(10, move |change| {
            shown.fetch_add(change, Ordering::Relaxed);
        });
        let first = budget.reserve(6).unwrap();
        assert!(budget.reserve(5).is_none());
        let mut second = budget.reserve(4).unwrap();
        assert!(budget.is_exhausted());
        assert_eq!(gauge.load(Ordering::Relaxed), 10);
        drop(first);
        assert!(!budget.is_exhausted());
        assert!(second.grow(6));
        assert!(!second.grow(usize::MAX));
        assert_eq!(second.amount(), 10);
        drop(second);
        assert_eq!(gauge.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_reservation_shrinks_and_grows_within_the_limit() {
        let budget = Budget::new(10);
        let mut reservation = budget.reserve(8).unwrap();
        assert!(reservation.resize(3));
        assert!(!reservation.resize(11));
        assert_eq!(reservation.amount(), 3);
        assert!(budget.reserve(7).is_some());
        assert!(reservation.resize(10));
        assert!(budget.reserve(1).is_none());
    }
}
