//! Memory for the values of one evaluation, with a limit in bytes.

use std::cell::Cell;

/// Bytes that an arena gives. A policy of 45 lines can ask for terabytes, since each expression has a cost limit of its own.
pub const MAX_BYTES: usize = 256 << 20;

/// Memory that an arena keeps for the next evaluation.
const MAX_KEPT: usize = 16 << 20;

/// Memory for the values of one evaluation. Reset it between documents.
///
/// A full arena returns empty values. Callers must ask [`Arena::is_full`] before they use a result.
#[derive(Default)]
pub struct Arena {
    bump: bumpalo::Bump,
    used: Cell<usize>,
    is_full: Cell<bool>,
}

impl Arena {
    /// Creates an empty arena.
    pub fn new() -> Self {
        Self::default()
    }

    /// Frees all values. A little memory is kept for the next evaluation.
    pub fn reset(&mut self) {
        if self.used.replace(0) > MAX_KEPT {
            self.bump = bumpalo::Bump::new();
        }
        self.bump.reset();
        self.is_full.set(false);
    }

    /// Returns whether values are missing, because they needed more than [`MAX_BYTES`].
    pub fn is_full(&self) -> bool {
        self.is_full.get()
    }

    /// Returns whether so many bytes are left. If not, the arena is full from now on. Callers ask before they build a large value
    /// outside of the arena.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        let has_room = !self.is_full.get() && self.used.get().saturating_add(bytes) <= MAX_BYTES;
        self.is_full.set(!has_room);
        has_room
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
}
