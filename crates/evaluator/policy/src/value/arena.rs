//! Memory for the values of one evaluation, with a limit in bytes.

use std::cell::Cell;

/// Bytes that an arena gives by default. A policy of 45 lines can ask for terabytes, since each expression has a cost limit of its own.
pub const MAX_BYTES: usize = 256 << 20;

/// Memory that an arena keeps for the next evaluation.
const MAX_KEPT: usize = 16 << 20;

/// Bytes that are charged at once.
const CHUNK: usize = 64 << 10;

/// Allocations above 32 MiB are mapped and unmapped by themselves. glibc keeps smaller ones after they are freed, if one of their size
/// was freed before (`M_MMAP_THRESHOLD`). Memory that is not written to is not resident.
pub(super) const MAPPED: usize = 33 << 20;

/// An arena of more bytes is mapped. Smaller ones are for ordinary requests.
const LARGE: usize = 21 << 20;

/// Reserves memory. Returns false if there is not so much.
type Charge = Box<dyn Fn(usize) -> bool + Send>;

/// Memory for the values of one evaluation. Reset it between documents.
///
/// A full arena returns empty values. Callers must ask [`Arena::is_full`] before they use a result.
pub struct Arena {
    bump: bumpalo::Bump,
    used: Cell<usize>,
    is_full: Cell<bool>,
    max: usize,
    charged: Cell<usize>,
    charge: Option<Charge>,
}

impl Default for Arena {
    fn default() -> Self {
        Self::with(MAX_BYTES, None)
    }
}

impl Arena {
    /// Creates an empty arena of at most [`MAX_BYTES`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty arena of at most `max` bytes, which calls `charge` before it uses memory. It is full after a false answer.
    pub fn charged(max: usize, charge: impl Fn(usize) -> bool + Send + 'static) -> Self {
        let arena = Self::with(max.min(MAX_BYTES), Some(Box::new(charge)));
        if max > LARGE { Self { bump: bumpalo::Bump::with_capacity(MAPPED), ..arena } } else { arena }
    }

    fn with(max: usize, charge: Option<Charge>) -> Self {
        let (used, charged) = (Cell::new(0), Cell::new(0));
        Self { bump: bumpalo::Bump::new(), used, is_full: Cell::new(false), max, charged, charge }
    }

    /// Frees all values. A little memory is kept for the next evaluation.
    pub fn reset(&mut self) {
        if self.used.replace(0) > MAX_KEPT {
            self.bump = bumpalo::Bump::new();
        }
        self.bump.reset();
        self.is_full.set(false);
    }

    /// Returns whether values are missing, because they needed more than the limit, or than could be charged.
    pub fn is_full(&self) -> bool {
        self.is_full.get()
    }

    /// Returns whether so many bytes are left. If not, the arena is full from now on. Callers ask before they build a large value
    /// outside of the arena.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        let needed = self.used.get().saturating_add(bytes);
        let has_room = !self.is_full.get() && needed <= self.max && self.is_charged(needed);
        self.is_full.set(!has_room);
        has_room
    }

    fn is_charged(&self, needed: usize) -> bool {
        let charged = self.charged.get();
        let (Some(charge), true) = (&self.charge, needed > charged) else { return true };
        // No chunk exceeds the limit, so that an arena can use all of it.
        let more = (needed - charged).max(CHUNK).min(self.max - charged);
        let is_charged = charge(more);
        self.charged.set(charged + if is_charged { more } else { 0 });
        is_charged
    }

    fn take(&self, bytes: usize) -> bool {
        let has_room = self.has_room(bytes);
        if has_room {
            self.used.set(self.used.get() + bytes);
        }
        has_room
    }

    /// Copies text into the arena.
    pub fn text(&self, text: &str) -> &str {
        if self.take(text.len()) { self.bump.alloc_str(text) } else { "" }
    }

    /// Copies a list of texts, which are in the arena already.
    pub fn texts<'a>(&'a self, texts: &[&'a str]) -> &'a [&'a str] {
        self.slice(texts)
    }

    pub(crate) fn slice<T: Copy>(&self, items: &[T]) -> &[T] {
        if self.take(size_of_val(items)) { self.bump.alloc_slice_copy(items) } else { &[] }
    }

    pub(crate) fn store<T: Copy>(&self, item: T) -> &T {
        // A single value is stored in any case, so that there is one to return.
        self.take(size_of::<T>());
        self.bump.alloc(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_empty_values_above_the_limit_and_says_so() {
        let mut arena = Arena::new();
        let half = "x".repeat(MAX_BYTES / 2);
        assert_eq!(arena.text(&half).len(), half.len());
        assert!(arena.has_room(half.len()) && !arena.is_full());
        assert_eq!(arena.text(&half).len(), half.len());
        assert_eq!(arena.text("y"), "");
        assert!(arena.is_full() && arena.slice(&[1, 2]).is_empty());
        arena.reset();
        assert_eq!(arena.text("y"), "y");
        assert!(!arena.is_full() && arena.bump.allocated_bytes() < MAX_KEPT);
        assert!(!arena.has_room(MAX_BYTES) && arena.is_full());
    }

    #[test]
    fn charges_chunks_before_it_uses_them() {
        let (sender, charges) = std::sync::mpsc::channel();
        let arena = Arena::charged(4 * CHUNK, move |bytes| {
            sender.send(bytes).unwrap();
            bytes <= CHUNK
        });
        assert_eq!(arena.text("a"), "a");
        assert_eq!(arena.text(&"b".repeat(CHUNK - 1)).len(), CHUNK - 1);
        assert_eq!(charges.try_iter().collect::<Vec<_>>(), [CHUNK]);
        assert_eq!(arena.text("c"), "c");
        assert!(arena.text(&"d".repeat(2 * CHUNK)).is_empty() && arena.is_full());
        assert_eq!(charges.try_iter().collect::<Vec<_>>(), [CHUNK, CHUNK + 1]);
    }

    #[test]
    fn an_arena_that_can_charge_no_more_is_full() {
        let arena = Arena::charged(3 * CHUNK, |bytes| bytes <= CHUNK);
        assert!(arena.has_room(CHUNK) && !arena.is_full());
        assert!(arena.text(&"a".repeat(2 * CHUNK + 1)).is_empty() && arena.is_full());
        assert_eq!(arena.text("b"), "");
    }
}
