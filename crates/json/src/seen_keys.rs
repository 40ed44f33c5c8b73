//! Detects duplicate keys in an object.
//!
//! JSON allows a key twice and does not say which value counts. Two readers could then understand a review differently, so a
//! review with a duplicate key is rejected. API servers write none.

use crate::scanner::Scanner;

/// Error: an object has the same key twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{key} is a duplicate key{object}")]
pub struct DuplicateKey {
    /// Offset of the second value.
    pub at: usize,
    /// The key.
    pub key: &'static str,
    /// The end of the error text that names the object, for instance ` in the request`.
    pub object: &'static str,
}

/// The keys of an object that were read, as a set of bits.
#[derive(Debug)]
pub struct SeenKeys {
    keys: &'static [&'static str],
    object: &'static str,
    seen: u32,
}

impl SeenKeys {
    /// Creates an empty set for an object with at most 32 keys. Other keys are ignored: their values are not read.
    pub fn new(object: &'static str, keys: &'static [&'static str]) -> Self {
        debug_assert!(keys.len() <= 32, "a bit for each key");
        Self { keys, object, seen: 0 }
    }

    /// Adds a key. The scanner is before its value, which can be null.
    pub fn insert(&mut self, key: &str, scanner: &Scanner<'_>) -> Result<(), DuplicateKey> {
        let Some((index, &key)) = self.keys.iter().enumerate().find(|(_, name)| **name == key) else {
            return Ok(());
        };
        let bit = 1 << index;
        if self.seen & bit != 0 {
            return Err(DuplicateKey { at: scanner.offset(), key, object: self.object });
        }
        self.seen |= bit;
        Ok(())
    }
}
