//! YAML: the events of the parser to documents.

use std::collections::HashMap;
use std::ops::Range;

use granit_parser::{ErrorKind, Event, Marker, Options, Parser, ScalarStyle, Span};

use super::node::{Content, DocumentNode};
use super::tree::{DocumentTree, TreeKey, too_deep};
use super::{MAX_DEPTH, Position, SyntaxError, scalar};

/// Reads all documents. Their ranges are empty.
pub(super) fn read(text: &str) -> Result<Vec<(DocumentNode, Range<usize>)>, SyntaxError> {
    check_characters(text)?;
    let mut options = Options::default();
    options.set_emit_comments(false);
    options.flow_nesting_limit = MAX_DEPTH + 1;
    options.block_nesting_limit = MAX_DEPTH + 1;
    options.disallow_directives = true;
    let mut reader = YamlDocuments { tree: DocumentTree::new(), anchors: HashMap::new(), open: Vec::new() };
    let mut documents = Vec::new();
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(|error| {
            let at = place(error.marker());
            if matches!(error.kind(), ErrorKind::RecursionLimitExceeded) {
                return too_deep(at);
            }
            let message = format!("this is not YAML: {}", error.info());
            SyntaxError::new(at, message, "check the indentation, quotes and brackets up to this place")
        })?;
        let is_end = matches!(event, Event::DocumentEnd);
        reader.event(event, &span)?;
        if is_end {
            documents.extend(reader.tree.take().map(|root| (root, 0..0)));
            reader.anchors.clear();
        }
    }
    Ok(documents)
}

fn place(marker: &Marker) -> Position {
    Position { line: marker.line(), column: marker.col() + 1 }
}

/// Refuses the characters that end a line in YAML 1.1, which `kubectl` reads, and not in YAML 1.2.
fn check_characters(text: &str) -> Result<(), SyntaxError> {
    let Some((at, found)) = text.match_indices(['\u{85}', '\u{2028}', '\u{2029}']).next() else {
        return Ok(());
    };
    let code = found.chars().next().map_or(0, u32::from);
    let place = Position::START.after(text.get(..at).unwrap_or_default());
    let message = format!("YAML readers differ on whether the character U+{code:04X} ends a line");
    Err(SyntaxError::new(place, message, "remove it, or write it as an escape in double quotes"))
}

struct YamlDocuments {
    tree: DocumentTree,
    /// Complete values with an anchor.
    anchors: HashMap<usize, DocumentNode>,
    /// The anchor of each open list or map, or 0.
    open: Vec<usize>,
}

impl YamlDocuments {
    fn event(&mut self, event: Event<'_>, span: &Span) -> Result<(), SyntaxError> {
        let place = place(&span.start);
        match event {
            Event::SequenceStart(_, anchor, tag) => {
                check_tag(tag.is_some(), place)?;
                self.open.push(anchor);
                self.tree.open_list(place)
            }
            Event::MappingStart(_, anchor, tag) => {
                check_tag(tag.is_some(), place)?;
                self.open.push(anchor);
                self.tree.open_map(place)
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let anchor = self.open.pop().unwrap_or_default();
                let node = self.tree.close()?.filter(|_| anchor > 0);
                self.anchors.extend(node.map(|node| (anchor, node.clone())));
                Ok(())
            }
            Event::Scalar(text, style, anchor, tag) => {
                check_tag(tag.is_some(), place)?;
                let is_plain = style == ScalarStyle::Plain;
                if is_plain && text == "<<" && self.tree.expects_key() {
                    return self.tree.key(TreeKey::Merge, place);
                }
                let content =
                    if is_plain { scalar::plain(&text, place)? } else { Content::Text(text.clone().into()) };
                if self.tree.expects_key() {
                    scalar::check_key(&content, &text, place)?;
                }
                self.scalar(content, anchor, place)
            }
            Event::Alias(anchor) => {
                let Some(node) = self.anchors.get(&anchor) else {
                    let next = "write the value instead of the alias";
                    return Err(SyntaxError::new(place, "the alias contains itself", next));
                };
                if self.tree.expects_key() {
                    let content = node.content.clone();
                    return self.scalar(content, 0, place);
                }
                self.tree.alias(node, place)
            }
            _ => Ok(()),
        }
    }

    /// Adds a scalar as a key or a value.
    fn scalar(&mut self, content: Content, anchor: usize, place: Position) -> Result<(), SyntaxError> {
        if self.tree.expects_key() {
            if anchor > 0 {
                self.anchors.insert(anchor, DocumentNode::new(place, content.clone()));
            }
            return self.tree.key(TreeKey::Text(scalar::into_key(content, place)?), place);
        }
        let node = self.tree.scalar(content, place)?.filter(|_| anchor > 0);
        self.anchors.extend(node.map(|node| (anchor, node.clone())));
        Ok(())
    }
}

/// Refuses tags: readers know different ones, and some ignore them.
fn check_tag(is_tagged: bool, place: Position) -> Result<(), SyntaxError> {
    if !is_tagged {
        return Ok(());
    }
    let message = "the value has a tag, which YAML readers read differently";
    Err(SyntaxError::new(place, message, "remove the tag, and quote a text"))
}
