//! Keys with a word or a text, or a section with more detail.

use std::str::FromStr;

use super::super::node::{Node, Value};
use super::super::shape::{Key, Shape};
use super::Section;

impl Section<'_> {
    /// Reads one of a few words, or a section. The reader gets the word from the file or the default.
    pub fn choice_or_section<T: Copy + PartialEq, R>(
        &mut self,
        key: &'static str,
        doc: &'static str,
        words: &[(&'static str, T)],
        default: T,
        reader: impl FnOnce(&mut Section<'_>, T) -> R,
    ) -> R {
        let mut inner = self.inner(key);
        let word = if self.is_map(key) {
            inner.open(self.find(key));
            default
        } else {
            self.choice(key, doc, words, default)
        };
        let value = reader(&mut inner, word);
        let keys = inner.close();
        self.keys.retain(|declared| declared.name != key);
        let yaml = words.iter().find(|(_, value)| *value == default).map(|(word, _)| (*word).to_owned());
        let names = words.iter().map(|(word, _)| *word).collect();
        self.declare(key, doc, Shape::ChoiceOrSection(names, keys), yaml);
        value
    }

    /// Parses a text, or reads a section that the reader converts.
    pub fn parsed_or_section<T: FromStr<Err = E>, E: ToString>(
        &mut self,
        key: &'static str,
        what: &'static str,
        doc: &'static str,
        reader: impl FnOnce(&mut Section<'_>) -> Option<T>,
    ) -> Option<T> {
        let mut inner = self.inner(key);
        let text = if self.is_map(key) {
            inner.open(self.find(key));
            None
        } else {
            self.parsed(key, what, doc, None)
        };
        let value = reader(&mut inner);
        let keys = inner.close();
        self.keys.retain(|declared| declared.name != key);
        self.declare(key, doc, Shape::TextOrSection(what, keys), None);
        text.or(value)
    }

    /// Reads a list of texts and sections. The reader gets the text of an entry, or none for a section.
    pub fn texts_or_sections<T>(
        &mut self,
        key: &'static str,
        what: &'static str,
        doc: &'static str,
        reader: impl FnMut(&mut Section<'_>, Option<&str>) -> T,
    ) -> Vec<T> {
        self.entry_list(key, doc, |keys| Shape::TextOrSection(what, keys), Some(what), reader)
    }

    /// Reads a list of sections, and of texts if `what` names them.
    pub(super) fn entry_list<T>(
        &mut self,
        key: &'static str,
        doc: &'static str,
        shape: impl FnOnce(Vec<Key>) -> Shape,
        what: Option<&str>,
        mut reader: impl FnMut(&mut Section<'_>, Option<&str>) -> T,
    ) -> Vec<T> {
        // An empty section lists the keys.
        let mut empty = self.inner(key);
        reader(&mut empty, None);
        self.declare(key, doc, Shape::List(Box::new(shape(empty.keys))), Some("[]".to_owned()));
        let Some(node) = self.find(key) else { return Vec::new() };
        let Value::List(items) = &node.value else {
            let next = match what {
                None => format!("must be a list of maps: {key}: [{{ … }}]"),
                Some(what) => format!("must be a list: {key}: [{what}, {{ … }}]"),
            };
            self.problem(key, "is not a list", Some(next));
            return Vec::new();
        };
        let read = |(index, item): (usize, &Node)| {
            let mut inner = self.inner(key);
            inner.path = format!("{}[{index}]", inner.path);
            inner.place = item.place.clone();
            if let (Some(_), Value::Scalar { text, .. }) = (what, &item.value) {
                return reader(&mut inner, Some(text));
            }
            inner.open(Some(item));
            let value = reader(&mut inner, None);
            inner.close();
            value
        };
        items.iter().enumerate().map(read).collect()
    }
}
