//! Events of a text: the common form of YAML and JSON before a tree is built.

use std::borrow::Cow;

use super::limits::MAX_DEPTH;
use super::scalar::Scalar;

/// An event and the byte offset of its first character.
pub(super) type Item<'t> = Result<(Event<'t>, usize), Fault>;

/// A part of a text.
#[derive(Debug)]
pub(super) enum Event<'t> {
    /// A document begins.
    DocumentStart,
    /// A document ends.
    DocumentEnd,
    /// A list begins. The number names its anchor, or is 0.
    ListStart(usize),
    /// A map begins. The number names its anchor, or is 0.
    MapStart(usize),
    /// A list or map ends.
    End,
    /// A scalar.
    Scalar {
        /// Its value.
        scalar: Scalar<'t>,
        /// Its anchor, or 0.
        anchor: usize,
        /// Whether it is the key `<<` that merges a map.
        merges: bool,
    },
    /// The value of an anchor.
    Alias(usize),
}

/// A problem at a byte offset.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) offset: usize,
    pub(super) message: Cow<'static, str>,
    pub(super) next: &'static str,
    /// Offset of an earlier place that the problem refers to.
    pub(super) earlier: Option<usize>,
    /// Whether the text is not of the format. Otherwise the text is understood, and its content is refused.
    pub(super) is_syntax: bool,
}

impl Fault {
    pub(super) fn refused(offset: usize, message: impl Into<Cow<'static, str>>, next: &'static str) -> Self {
        Self { offset, message: message.into(), next, earlier: None, is_syntax: false }
    }

    pub(super) fn syntax(offset: usize, message: impl Into<Cow<'static, str>>, next: &'static str) -> Self {
        Self { offset, message: message.into(), next, earlier: None, is_syntax: true }
    }

    pub(super) fn too_deep(offset: usize) -> Self {
        let message = format!("lists and maps are nested deeper than {MAX_DEPTH} levels");
        Self::refused(offset, message, "remove levels")
    }
}
