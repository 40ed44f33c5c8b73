//! JSON: values one after the other.

use std::ops::Range;

use super::node::{Content, DocumentNode};
use super::tree::{Built, DocumentTree, TreeKey};
use super::{Position, SyntaxError, scalar};

const NEXT: &str = "check the commas, quotes and brackets up to this place";

/// Reads all values, with their byte ranges.
pub(super) fn read(text: &str) -> Built<Vec<(DocumentNode, Range<usize>)>> {
    let mut reader = JsonDocuments { text, at: 0, seen: (0, Position::START), tree: DocumentTree::new() };
    let mut documents = Vec::new();
    loop {
        reader.skip_space();
        if reader.at >= text.len() {
            return Ok(documents);
        }
        let start = reader.at;
        reader.value()?;
        documents.extend(reader.tree.take().map(|root| (root, start..reader.at)));
    }
}

struct JsonDocuments<'t> {
    text: &'t str,
    at: usize,
    /// The last offset whose place was asked for, and this place.
    seen: (usize, Position),
    tree: DocumentTree,
}

impl<'t> JsonDocuments<'t> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\t' | b'\r')) {
            self.at += 1;
        }
    }

    fn place(&mut self) -> Position {
        let (offset, place) = self.seen;
        self.seen = (self.at, place.after(self.text.get(offset..self.at).unwrap_or_default()));
        self.seen.1
    }

    fn fail<T>(&mut self, message: &str) -> Built<T> {
        let message = if self.at >= self.text.len() { "the text ends too early" } else { message };
        Err(SyntaxError::new(self.place(), format!("this is not JSON: {message}"), NEXT))
    }

    /// Consumes a byte if it is next.
    fn accept(&mut self, byte: u8) -> bool {
        self.skip_space();
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    /// Reads a value with all that it contains.
    fn value(&mut self) -> Built {
        loop {
            self.skip_space();
            let place = self.place();
            if self.accept(b'{') {
                self.tree.open_map(place)?;
                if !self.accept(b'}') {
                    self.key()?;
                    continue;
                }
                self.tree.close()?;
            } else if self.accept(b'[') {
                self.tree.open_list(place)?;
                if !self.accept(b']') {
                    continue;
                }
                self.tree.close()?;
            } else {
                let content = self.scalar()?;
                self.tree.scalar(content, place)?;
            }
            if !self.after_value()? {
                return Ok(());
            }
        }
    }

    /// Reads the end of lists and maps, and a comma. Returns whether another value follows.
    fn after_value(&mut self) -> Built<bool> {
        while let Some(is_map) = self.tree.is_in_map() {
            if self.accept(b',') {
                if is_map {
                    self.key()?;
                }
                return Ok(true);
            }
            if !self.accept(if is_map { b'}' } else { b']' }) {
                return self.fail(if is_map { "expected ',' or '}'" } else { "expected ',' or ']'" });
            }
            self.tree.close()?;
        }
        Ok(false)
    }

    fn key(&mut self) -> Built {
        self.skip_space();
        if self.peek() != Some(b'"') {
            return self.fail("expected a key in double quotes");
        }
        let place = self.place();
        let key = self.string()?;
        self.tree.key(TreeKey::Text(key), place)?;
        if self.accept(b':') { Ok(()) } else { self.fail("expected ':'") }
    }

    fn scalar(&mut self) -> Built<Content> {
        match self.peek() {
            Some(b'"') => self.string().map(Content::Text),
            Some(b'-' | b'0'..=b'9') => {
                let mut scanner = json::Scanner::new(self.rest());
                let Ok(number) = scanner.value() else { return self.fail("invalid number") };
                let place = self.place();
                let content = scalar::number(number.get(), place)?;
                self.at += scanner.offset();
                Ok(content)
            }
            _ => self.word(),
        }
    }

    fn word(&mut self) -> Built<Content> {
        for (word, content) in
            [("true", Content::Bool(true)), ("false", Content::Bool(false)), ("null", Content::Null)]
        {
            if let Some(rest) = self.rest().strip_prefix(word)
                && !rest.starts_with(|next: char| next.is_alphanumeric())
            {
                self.at += word.len();
                return Ok(content);
            }
        }
        self.fail("expected a value")
    }

    fn string(&mut self) -> Built<Box<str>> {
        let mut scanner = json::Scanner::new(self.rest());
        let Ok(text) = scanner.string() else {
            return self.fail("a string is not closed or has an invalid character");
        };
        let text = text.into();
        self.at += scanner.offset();
        Ok(text)
    }
}
