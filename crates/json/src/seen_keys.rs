//! Keys that may stand once in their object.
//!
//! JSON allows a key to stand twice and leaves open which one counts. A review that was read one way here and another way by
//! whoever passed it on would be answered for a question that nobody asked, so it is refused. API servers write no such review.

use crate::scanner::{JsonError, Scanner};

/// A key, and what is said if it stands there twice.
pub type Key = (&'static str, &'static str);

/// The keys of one object, each with its place in a set of bits.
#[derive(Debug)]
pub struct SeenKeys {
    keys: &'static [Key],
    seen: u32,
}

impl SeenKeys {
    /// For an object of these keys, of which there are at most 32. Others may stand there as often as they like: nothing is
    /// read from them.
    pub fn of(keys: &'static [Key]) -> Self {
        debug_assert!(keys.len() <= 32, "a bit for each key");
        Self { keys, seen: 0 }
    }

    /// Takes note of a key, the scanner standing at its value. Null counts: it stands there too.
    pub fn see(&mut self, key: &str, scanner: &Scanner<'_>) -> Result<(), JsonError> {
        let Some((place, (_, twice))) = self.keys.iter().enumerate().find(|(_, (name, _))| *name == key)
        else {
            return Ok(());
        };
        let bit = 1 << place;
        if self.seen & bit != 0 {
            return Err(JsonError { at: scanner.offset(), what: twice });
        }
        self.seen |= bit;
        Ok(())
    }
}
