//! Memory budgets: a number of bytes, or of anything else, that concurrent tasks share.
//!
//! A reservation above the limit fails instead of waiting: a waiting task would keep what it has, and others could wait for that.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use json::Raw;

use crate::lock::lock;

/// A limit that reservations share.
pub struct Budget {
    used: AtomicUsize,
    max: usize,
    /// The budget that contains this one.
    whole: Option<Arc<Budget>>,
    on_change: Box<dyn Fn(i64) + Send + Sync>,
}

/// A reserved amount of a [`Budget`]. Dropping it returns the amount.
pub struct ReservedBytes {
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
        Arc::new(Self { used: AtomicUsize::new(0), max, whole: None, on_change: Box::new(on_change) })
    }

    /// Creates a budget within this one. The rest is left for the other users of this one.
    pub fn part(self: &Arc<Self>, max: usize) -> Arc<Self> {
        let whole = Some(Arc::clone(self));
        Arc::new(Self { used: AtomicUsize::new(0), max, whole, on_change: Box::new(|_| {}) })
    }

    /// Reserves an amount. Returns none if the rest is smaller.
    pub fn reserve(self: &Arc<Self>, amount: usize) -> Option<ReservedBytes> {
        let mut reservation = self.empty();
        reservation.grow(amount).then_some(reservation)
    }

    /// Creates a reservation of nothing, which can grow.
    pub fn empty(self: &Arc<Self>) -> ReservedBytes {
        ReservedBytes { budget: Arc::clone(self), amount: 0 }
    }

    /// Returns whether nothing is left. Another task can change that at any time.
    pub fn is_exhausted(&self) -> bool {
        self.used.load(Ordering::Relaxed) >= self.max
    }

    fn add(&self, more: usize) -> bool {
        let add = |used: usize| used.checked_add(more).filter(|sum| *sum <= self.max);
        // Relaxed: the number guards no other memory.
        if self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_err() {
            return false;
        }
        if self.whole.as_ref().is_some_and(|whole| !whole.add(more)) {
            self.used.fetch_sub(more, Ordering::Relaxed);
            return false;
        }
        (self.on_change)(signed(more));
        true
    }

    fn subtract(&self, less: usize) {
        self.used.fetch_sub(less, Ordering::Relaxed);
        (self.on_change)(-signed(less));
        if let Some(whole) = &self.whole {
            whole.subtract(less);
        }
    }
}

impl ReservedBytes {
    /// Reserves `more` in addition. Returns false and changes nothing if the rest is smaller.
    pub fn grow(&mut self, more: usize) -> bool {
        let is_added = self.budget.add(more);
        self.amount += if is_added { more } else { 0 };
        is_added
    }

    /// Changes the amount. Returns false and changes nothing if it grows and the rest is smaller.
    pub fn resize(&mut self, amount: usize) -> bool {
        let Some(less) = self.amount.checked_sub(amount) else { return self.grow(amount - self.amount) };
        self.amount = amount;
        self.budget.subtract(less);
        true
    }

    /// Returns the reserved amount.
    pub fn amount(&self) -> usize {
        self.amount
    }
}

impl Drop for ReservedBytes {
    fn drop(&mut self) {
        self.resize(0);
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget").field("used", &self.used).field("max", &self.max).finish_non_exhaustive()
    }
}

impl fmt::Debug for ReservedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReservedBytes").field("amount", &self.amount).finish_non_exhaustive()
    }
}

fn signed(amount: usize) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

/// Bytes of a parsed value: an entry of a map with two strings, or an object of a map in a list.
const VALUE: usize = 512;

/// Copies of the text: the object, and the strings in values that are parsed twice.
const COPIES: usize = 4;

/// The memory of one review: its body, and what a guard parses from it. Clones share it. The default is not counted, for commands
/// and tests.
#[derive(Debug, Clone, Default)]
pub struct ReviewMemory(Option<Arc<Mutex<Account>>>);

#[derive(Debug)]
struct Account {
    reservation: ReservedBytes,
    lacks_memory: bool,
}

/// Error: a review needs more memory than there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoMemory {
    /// It needs more than the whole budget.
    TooLarge,
    /// Other reviews have it. The server answers 503, whatever the guard returns.
    Busy,
}

impl ReviewMemory {
    /// Creates the memory of a review from the reservation of its body.
    pub fn new(reservation: ReservedBytes) -> Self {
        Self(Some(Arc::new(Mutex::new(Account { reservation, lacks_memory: false }))))
    }

    /// Reserves bytes until the review ends. Guards call it before they use memory in proportion to the body.
    pub fn charge(&self, bytes: usize) -> Result<(), NoMemory> {
        let Some(account) = &self.0 else { return Ok(()) };
        let mut account = lock(account);
        if account.reservation.amount().saturating_add(bytes) > account.reservation.budget.max {
            return Err(NoMemory::TooLarge);
        }
        if account.reservation.grow(bytes) {
            return Ok(());
        }
        account.lacks_memory = true;
        Err(NoMemory::Busy)
    }

    /// Reserves what typed values or maps of strings of this JSON take at most.
    pub fn charge_parsed(&self, json: Raw<'_>) -> Result<(), NoMemory> {
        let text = json.get().as_bytes();
        let values = text.iter().filter(|byte| matches!(byte, b',' | b'{' | b'[')).count();
        self.charge(text.len().saturating_mul(COPIES).saturating_add(values.saturating_mul(VALUE)))
    }

    /// Returns whether a charge failed because of other reviews.
    pub fn lacks_memory(&self) -> bool {
        self.0.as_ref().is_some_and(|account| lock(account).lacks_memory)
    }

    /// Changes the whole amount. Returns false and changes nothing if it grows and the rest is smaller.
    pub fn resize(&self, amount: usize) -> bool {
        self.0.as_ref().is_none_or(|account| lock(account).reservation.resize(amount))
    }
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

    #[test]
    fn a_part_leaves_the_rest_of_the_whole_to_others() {
        let whole = Budget::new(8);
        let part = whole.part(6);
        let large = part.reserve(6).unwrap();
        assert!(part.reserve(1).is_none());
        let small = whole.reserve(2).unwrap();
        assert!(whole.is_exhausted());
        drop(large);
        assert!(whole.reserve(7).is_none());
        let others = whole.reserve(4).unwrap();
        assert!(part.reserve(3).is_none());
        let mut rest = part.reserve(2).unwrap();
        drop((small, others));
        assert!(rest.grow(4) && !rest.grow(1));
        drop(rest);
        assert!(whole.reserve(8).is_some());
    }

    #[test]
    fn a_review_that_needs_too_much_is_not_busy() {
        let budget = Budget::new(10);
        let other = budget.reserve(4).unwrap();
        let memory = ReviewMemory::new(budget.reserve(2).unwrap());
        assert_eq!(memory.charge(9), Err(NoMemory::TooLarge));
        assert!(!memory.lacks_memory());
        assert_eq!(memory.charge(4), Ok(()));
        assert_eq!(memory.clone().charge(1), Err(NoMemory::Busy));
        assert!(memory.lacks_memory() && !memory.resize(7) && memory.resize(1));
        drop((other, memory));
        assert!(budget.reserve(10).is_some());
        assert_eq!(ReviewMemory::default().charge(usize::MAX), Ok(()));
    }

    #[test]
    fn parsed_values_are_charged_by_their_number() {
        let budget = Budget::new(10 << 10);
        let memory = ReviewMemory::new(budget.empty());
        let charged = |text| {
            memory.resize(0);
            memory.charge_parsed(Raw::from_text(text).unwrap()).unwrap();
            let left = (0..=10 << 10).rev().find(|left| budget.reserve(*left).is_some()).unwrap();
            (10 << 10) - left
        };
        assert_eq!(charged("\"text\""), COPIES * 6);
        assert_eq!(charged(r#"[{"a":1},{}]"#), COPIES * 12 + 4 * VALUE);
    }
}
