//! Errors while decoding.

use json::{DuplicateKey, JsonError};

/// An error while decoding, with its offset.
pub(crate) enum DecodeError {
    Json(JsonError),
    DuplicateKey(DuplicateKey),
}

impl From<JsonError> for DecodeError {
    fn from(error: JsonError) -> Self {
        Self::Json(error)
    }
}

impl From<DuplicateKey> for DecodeError {
    fn from(error: DuplicateKey) -> Self {
        Self::DuplicateKey(error)
    }
}
