//! Errors while decoding.

use json::JsonError;

/// An error while decoding, with its offset.
pub(crate) enum DecodeError {
    /// The text is not JSON, or a value has the wrong type.
    Json(JsonError),
    /// An object has the same key twice.
    DuplicateKey {
        /// Offset of the second value.
        at: usize,
        /// The key.
        key: &'static str,
        /// The end of the error text that names the object, for instance ` in the request`.
        object: &'static str,
    },
}

impl From<JsonError> for DecodeError {
    fn from(error: JsonError) -> Self {
        Self::Json(error)
    }
}
