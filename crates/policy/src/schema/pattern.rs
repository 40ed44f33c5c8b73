//! Patterns, compiled once.

use std::sync::OnceLock;

use crate::cel::library::regex::{self, Refusal};
use crate::cel::re2;

/// A pattern in the syntax of RE2. It is compiled at its first use, since most patterns of a schema see no value.
#[derive(Debug)]
pub(crate) struct Pattern {
    /// The text.
    pub(crate) source: Box<str>,
    compiled: OnceLock<Result<::regex::Regex, Refusal>>,
}

impl Pattern {
    pub(crate) fn new(source: &str) -> Self {
        Self { source: source.into(), compiled: OnceLock::new() }
    }

    /// Go's error of a pattern with invalid syntax.
    pub(crate) fn syntax_error(&self) -> Option<String> {
        re2::translate(&self.source).err().map(|error| error.to_string())
    }

    /// Whether the pattern occurs in a text, or `None` if that can't be decided in bounded time and memory.
    pub(crate) fn is_match(&self, text: &str) -> Option<bool> {
        let regex = self.compiled.get_or_init(|| regex::compile(&self.source)).as_ref().ok()?;
        regex::is_searchable(regex, text).then(|| regex.is_match(text))
    }
}
