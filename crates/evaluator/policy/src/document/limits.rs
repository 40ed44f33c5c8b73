//! Limits of a text, and the messages above them.

/// Longest text that is read, in bytes. An API server accepts 3 MiB per object; bundles of CRDs have up to 10 MiB.
pub const MAX_TEXT: usize = 64 << 20;

/// Levels of nesting that are read. Go reads 10,000, but no object that is judged comes near.
pub const MAX_DEPTH: usize = 1_000;

/// Objects of one text. Problems and findings need memory for each of them.
pub const MAX_OBJECTS: usize = 200_000;

pub(super) const TOO_LARGE: &str = "the values of the text need too much memory";
pub(super) const TOO_MANY: &str = "the text has more than 200,000 objects";
pub(super) const SPLIT: &str = "split it into several files";
