//! Patterns, compiled once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use regex::{Regex, RegexBuilder};

use crate::cel::library::regex::is_searchable;
use crate::cel::re2;

/// Bytes for the compiled patterns of one schema. Gateway API has 30 patterns in a schema.
const MAX_BYTES: usize = 512 << 20;
/// Largest size of nearly all patterns, and the memory of one search.
const SMALL: usize = 256 << 10;
/// Largest size of a pattern.
const LARGE: usize = 10 << 20;

/// The memory that the patterns of a schema share.
#[derive(Clone, Debug, Default)]
pub(super) struct PatternMemory(Arc<AtomicUsize>);

impl PatternMemory {
    fn take(&self, bytes: usize) -> bool {
        let before = self.0.fetch_add(bytes, Ordering::Relaxed);
        before.saturating_add(bytes) <= MAX_BYTES
    }
}

/// A pattern in the syntax of RE2. It is compiled at its first use, since most patterns of a schema see no value.
#[derive(Debug)]
pub(crate) struct Pattern {
    /// The text.
    pub(crate) source: Box<str>,
    memory: PatternMemory,
    compiled: OnceLock<Option<Regex>>,
}

impl Pattern {
    pub(super) fn new(source: &str, memory: &PatternMemory) -> Self {
        Self { source: source.into(), memory: memory.clone(), compiled: OnceLock::new() }
    }

    /// Go's error of a pattern with invalid syntax.
    pub(crate) fn syntax_error(&self) -> Option<String> {
        re2::translate(&self.source).err().map(|error| error.to_string())
    }

    /// Whether the pattern occurs in a text, or `None` if that can't be decided in bounded time and memory.
    pub(crate) fn is_match(&self, text: &str) -> Option<bool> {
        let regex = self.compiled.get_or_init(|| self.compile()).as_ref()?;
        is_searchable(regex, text).then(|| regex.is_match(text))
    }

    fn compile(&self) -> Option<Regex> {
        let translated = re2::translate(&self.source).ok()?;
        [SMALL, LARGE].into_iter().find_map(|size| {
            let mut builder = RegexBuilder::new(&translated);
            let regex = builder.size_limit(size).dfa_size_limit(SMALL).build().ok()?;
            self.memory.take(size + SMALL).then_some(regex)
        })
    }
}
