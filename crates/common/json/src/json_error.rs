//! The error of a text that is not JSON.

/// Error: a text is not JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {at}")]
pub struct JsonError {
    /// Offset of the invalid byte.
    pub at: usize,
    /// The error, as the end of a sentence.
    pub what: &'static str,
}
