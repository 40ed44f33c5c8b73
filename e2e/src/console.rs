//! Messages to the person who runs the tests, on standard error. Standard output is the test report's.

use std::io::Write as _;

/// Prints one line. If the terminal is closed, the line is lost.
pub fn print(words: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "e2e: {words}");
}
