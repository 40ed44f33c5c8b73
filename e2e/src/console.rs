//! Words to the person who runs the tests: one line each on standard error, so that standard output stays the
//! test report's.

use std::io::Write as _;

/// Says one thing. A closed terminal is no reason to fail: the line is then lost and nothing else.
pub fn print(words: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "e2e: {words}");
}
