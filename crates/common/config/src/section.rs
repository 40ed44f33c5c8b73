//! Reads a section key by key.

use std::cell::RefCell;
use std::rc::Rc;
use std::str::FromStr;
use std::time::Duration;

use super::node::{Node, Value};
use super::problem::{Place, Problem, nearest};
use super::shape::{Key, Shape};
use super::units::{duration, size};

/// Limit of the API server's timeout for webhooks.
const MAX_TIMEOUT: Duration = Duration::from_secs(30);

/// Reads `root` with `reader`. Returns the value, the keys and the problems. If there are problems, the caller must drop the value.
/// Without a `root`, it reads an empty section, which lists the keys.
pub fn read<T>(
    file: &str,
    root: Option<&Node>,
    reader: impl FnOnce(&mut Section<'_>) -> T,
) -> (T, Vec<Key>, Vec<Problem>) {
    let start = Place { file: file.to_owned(), line: 1, column: 1 };
    let problems = Rc::new(RefCell::new(Vec::new()));
    let mut section = Section {
        path: String::new(),
        place: start,
        entries: &[],
        written: false,
        keys: Vec::new(),
        removed: Vec::new(),
        other: None,
        problems,
    };
    section.open(root);
    let value = reader(&mut section);
    let problems = Rc::clone(&section.problems);
    let keys = section.close();
    let mut problems = problems.take();
    problems.sort_by(|a, b| a.place.cmp(&b.place));
    (value, keys, problems)
}

/// A map of the configuration.
#[derive(Debug)]
pub struct Section<'n> {
    path: String,
    place: Place,
    entries: &'n [(String, Place, Node)],
    written: bool,
    keys: Vec<Key>,
    /// Keys of earlier releases.
    removed: Vec<&'static str>,
    /// Place of a value that is not a map.
    other: Option<Place>,
    problems: Rc<RefCell<Vec<Problem>>>,
}

impl<'n> Section<'n> {
    /// Returns whether the section is in the file. Rules between keys are checked only then.
    pub fn is_written(&self) -> bool {
        self.written
    }

    /// Returns whether the section has the key.
    pub fn has(&self, key: &str) -> bool {
        self.find(key).is_some()
    }

    /// Returns whether the value is a map, for keys that take a word or a map.
    pub fn is_map(&self, key: &str) -> bool {
        self.find(key).is_some_and(|node| matches!(node.value, Value::Map(_)))
    }

    /// Returns whether the key is present without a value.
    pub fn is_blank(&self, key: &str) -> bool {
        self.entries.iter().any(|(name, _, node)| name == key && node.is_null())
    }

    /// Returns whether the value is an empty list.
    pub fn is_empty_list(&self, key: &str) -> bool {
        self.find(key).is_some_and(|node| matches!(&node.value, Value::List(items) if items.is_empty()))
    }

    /// Returns the place of the section.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Reports a problem with a key of this section.
    pub fn problem(&mut self, key: &str, why: impl Into<String>, next: Option<String>) {
        let (what, place) = (self.full(key), Some(self.place_of(key)));
        self.problems.borrow_mut().push(Problem { what, place, why: Some(why.into()), next });
    }

    /// Reports a problem of the files that the key names.
    pub fn report(&mut self, key: &str, problem: Problem) {
        let problem = match problem.place {
            Some(_) => problem,
            None => Problem {
                what: format!("{}: {}", self.full(key), problem.what),
                place: Some(self.place_of(key)),
                ..problem
            },
        };
        self.problems.borrow_mut().push(problem);
    }

    /// Refuses a key of an earlier release. `next` is one line that names its successor.
    pub fn removed(&mut self, key: &'static str, next: &str) {
        self.removed.push(key);
        let Some((_, place, _)) = self.entries.iter().find(|(name, ..)| name == key) else { return };
        let problem = Problem::new(format!("field {:?} was removed", self.full(key))).at(place.clone());
        self.problems.borrow_mut().push(problem.next(next));
    }

    fn place_of(&self, key: &str) -> Place {
        let entry = self.entries.iter().find(|(name, ..)| name == key);
        entry.map_or_else(|| self.place.clone(), |(_, _, node)| node.place.clone())
    }

    /// Reads `true` or `false`.
    pub fn bool(&mut self, key: &'static str, doc: &'static str, default: bool) -> bool {
        self.scalar(key, doc, &Shape::Bool, Some(default.to_string()), |text| match text {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(String::new()),
        })
        .unwrap_or(default)
    }

    /// Reads a whole number.
    pub fn number(&mut self, key: &'static str, doc: &'static str, default: u64, bounds: (u64, u64)) -> u64 {
        let shape = Shape::Number(bounds.0, bounds.1);
        self.scalar(key, doc, &shape, Some(default.to_string()), |text| match text.parse::<u64>() {
            Ok(number) if (bounds.0..=bounds.1).contains(&number) => Ok(number),
            _ => Err(String::new()),
        })
        .unwrap_or(default)
    }

    /// Reads a whole number without a default.
    pub fn optional_number(
        &mut self,
        key: &'static str,
        doc: &'static str,
        bounds: (u64, u64),
    ) -> Option<u64> {
        self.scalar(key, doc, &Shape::Number(bounds.0, bounds.1), None, |text| match text.parse::<u64>() {
            Ok(number) if (bounds.0..=bounds.1).contains(&number) => Ok(number),
            _ => Err(String::new()),
        })
    }

    /// Reads a text.
    pub fn text(
        &mut self,
        key: &'static str,
        what: &'static str,
        doc: &'static str,
        default: &str,
    ) -> String {
        let default_yaml = Some(if default.is_empty() { "\"\"".to_owned() } else { default.to_owned() });
        self.scalar(key, doc, &Shape::Text(what), default_yaml, |text| Ok(text.to_owned()))
            .unwrap_or_else(|| default.to_owned())
    }

    /// Reads a text without a default.
    pub fn optional_text(
        &mut self,
        key: &'static str,
        what: &'static str,
        doc: &'static str,
    ) -> Option<String> {
        self.scalar(key, doc, &Shape::Text(what), None, |text| Ok(text.to_owned()))
    }

    /// Reads a text that is required if the section is present.
    pub fn required_text(&mut self, key: &'static str, what: &'static str, doc: &'static str) -> String {
        self.required_name(key, what, doc, |_| Ok(()))
    }

    /// Parses a text. The user sees the error of its type.
    pub fn parsed<T: FromStr<Err = E>, E: ToString>(
        &mut self,
        key: &'static str,
        what: &'static str,
        doc: &'static str,
        default: Option<(&str, T)>,
    ) -> Option<T> {
        let (yaml, default) =
            default.map_or((None, None), |(yaml, value)| (Some(yaml.to_owned()), Some(value)));
        self.scalar(key, doc, &Shape::Text(what), yaml, |text| text.parse().map_err(|e: E| e.to_string()))
            .or(default)
    }

    /// Reads a duration like `300ms`, `10s`, `2m` or `12h`.
    pub fn duration(
        &mut self,
        key: &'static str,
        doc: &'static str,
        default: &str,
        most: Duration,
    ) -> Duration {
        let read = |text: &str| match duration(text) {
            Some(time) if time <= most => Ok(time),
            Some(_) => Err(format!("is longer than {most:?}")),
            None => Err(String::new()),
        };
        let shape = Shape::Text(if most <= MAX_TIMEOUT {
            "time like 300ms or 10s"
        } else {
            "time like 300ms, 10s, 2m or 12h"
        });
        self.scalar(key, doc, &shape, Some(default.to_owned()), read)
            .or_else(|| duration(default))
            .unwrap_or_default()
    }

    /// Reads a timeout: not zero, and at most the API server's timeout for webhooks.
    pub fn wait(&mut self, key: &'static str, doc: &'static str, default: &str) -> Duration {
        let time = self.duration(key, doc, default, MAX_TIMEOUT);
        if time.is_zero() {
            let next = format!("must be a time like 300ms or {default}");
            self.problem(key, "is too short", Some(next));
        }
        time
    }

    /// Reads a size like `8Mi`.
    pub fn size(&mut self, key: &'static str, doc: &'static str, default: &str) -> usize {
        let shape = Shape::Text("size like 512Ki, 8Mi or 1Gi");
        self.scalar(key, doc, &shape, Some(default.to_owned()), |text| size(text).ok_or_else(String::new))
            .or_else(|| size(default))
            .unwrap_or_default()
    }

    /// Reads one of a few words.
    pub fn choice<T: Copy + PartialEq>(
        &mut self,
        key: &'static str,
        doc: &'static str,
        words: &[(&'static str, T)],
        default: T,
    ) -> T {
        let yaml = words.iter().find(|(_, value)| *value == default).map(|(word, _)| (*word).to_owned());
        self.word(key, doc, words, yaml).unwrap_or(default)
    }

    /// Reads one of a few words whose default depends on other keys. The doc must name them; no default is printed.
    pub fn optional_choice<T: Copy>(
        &mut self,
        key: &'static str,
        doc: &'static str,
        words: &[(&'static str, T)],
    ) -> Option<T> {
        self.word(key, doc, words, None)
    }

    fn word<T: Copy>(
        &mut self,
        key: &'static str,
        doc: &'static str,
        words: &[(&'static str, T)],
        yaml: Option<String>,
    ) -> Option<T> {
        let shape = Shape::Choice(words.iter().map(|(word, _)| *word).collect());
        self.scalar(key, doc, &shape, yaml, |text| {
            let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
            found.ok_or_else(|| suggestion(text, words.iter().map(|(word, _)| *word)))
        })
    }

    /// A list of texts.
    pub fn texts(
        &mut self,
        key: &'static str,
        what: &'static str,
        doc: &'static str,
        default: &[&str],
    ) -> Vec<String> {
        let read = |text: &str| Ok(text.to_owned());
        let yaml = format!("[{}]", default.join(", "));
        self.list(key, doc, &Shape::Text(what), Some(yaml), read)
            .unwrap_or_else(|| default.iter().map(|&text| text.to_owned()).collect())
    }

    /// A list of a few words, each at most once.
    pub fn choices<T: Copy + PartialEq>(
        &mut self,
        key: &'static str,
        doc: &'static str,
        words: &[(&'static str, T)],
        default: &[T],
    ) -> Vec<T> {
        self.choices_except(key, doc, words, default, |_| None)
    }

    /// Reads a list of words. `refused` explains why a word is not allowed.
    pub fn choices_except<T: Copy + PartialEq>(
        &mut self,
        key: &'static str,
        doc: &'static str,
        words: &[(&'static str, T)],
        default: &[T],
        refused: impl Fn(&str) -> Option<String>,
    ) -> Vec<T> {
        let offered: Vec<&'static str> = words.iter().map(|(word, _)| *word).collect();
        let word_of = |value: &T| words.iter().find(|(_, v)| v == value).map_or("", |(word, _)| word);
        let yaml = format!("[{}]", default.iter().map(word_of).collect::<Vec<_>>().join(", "));
        let read = |text: &str| {
            let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
            found.ok_or_else(|| refused(text).unwrap_or_else(|| suggestion(text, offered.iter().copied())))
        };
        let values = self.list(key, doc, &Shape::Choice(offered.clone()), Some(yaml), read);
        let values = values.unwrap_or_else(|| default.to_vec());
        if values.iter().enumerate().any(|(at, value)| values.iter().take(at).any(|earlier| earlier == value))
        {
            self.problem(key, "has a duplicate entry", None);
        }
        values
    }

    /// Reads a section. The reader is called with an empty one if the key is absent.
    pub fn section<T>(
        &mut self,
        key: &'static str,
        doc: &'static str,
        reader: impl FnOnce(&mut Section<'_>) -> T,
    ) -> T {
        let mut inner = self.inner(key);
        inner.open(self.find(key));
        let value = reader(&mut inner);
        let keys = inner.close();
        self.declare(key, doc, Shape::Section(keys), None);
        value
    }

    /// Reads a list of sections.
    pub fn sections<T>(
        &mut self,
        key: &'static str,
        doc: &'static str,
        mut reader: impl FnMut(&mut Section<'_>) -> T,
    ) -> Vec<T> {
        self.entry_list(key, doc, Shape::Section, None, |section, _| reader(section))
    }

    fn scalar<T>(
        &mut self,
        key: &'static str,
        doc: &'static str,
        shape: &Shape,
        default: Option<String>,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        self.declare(key, doc, shape.clone(), default);
        let node = self.find(key)?;
        let value = self.entry(key, node, shape, read);
        if value.is_none() && node.is_null() {
            return None;
        }
        value
    }

    fn list<T>(
        &mut self,
        key: &'static str,
        doc: &'static str,
        of: &Shape,
        default: Option<String>,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        self.declare(key, doc, Shape::List(Box::new(of.clone())), default);
        let node = self.find(key)?;
        let Value::List(items) = &node.value else {
            let next = format!("must be a list: {key}: [ … ]; each entry: {}", of.values());
            self.problem(key, "is not a list", Some(next));
            return None;
        };
        Some(items.iter().filter_map(|item| self.entry(key, item, of, &read)).collect())
    }

    /// Reads one scalar, and reports it if it is invalid.
    fn entry<T>(
        &mut self,
        key: &str,
        node: &Node,
        shape: &Shape,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let Value::Scalar { text, quoted } = &node.value else {
            self.misplaced(key, node.place.clone(), shape);
            return None;
        };
        let wrongly_quoted = *quoted && matches!(shape, Shape::Bool | Shape::Number(..));
        let read = if wrongly_quoted { Err("is a string in quotes".to_owned()) } else { read(text) };
        match read {
            Ok(value) => Some(value),
            Err(why) => {
                self.problems
                    .borrow_mut()
                    .push(invalid(self.full(key), &node.place, text, &why).next(shape.must()));
                None
            }
        }
    }

    fn misplaced(&mut self, key: &str, place: Place, shape: &Shape) {
        let problem = Problem::new(self.full(key)).at(place).why("is a list or a map");
        self.problems.borrow_mut().push(problem.next(shape.must()));
    }

    fn declare(&mut self, name: &'static str, doc: &'static str, shape: Shape, default: Option<String>) {
        if !self.keys.iter().any(|key| key.name == name) {
            self.keys.push(Key { name, doc, shape, default });
        }
    }

    /// Returns the node at the key, unless it is null.
    fn find(&self, key: &str) -> Option<&'n Node> {
        self.entries
            .iter()
            .find(|(name, ..)| name == key)
            .map(|(_, _, node)| node)
            .filter(|node| !node.is_null())
    }

    fn full(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn inner<'i>(&self, key: &str) -> Section<'i> {
        let entry = self.entries.iter().find(|(name, ..)| name == key);
        Section {
            path: self.full(key),
            place: entry.map_or_else(|| self.place.clone(), |(_, place, _)| place.clone()),
            entries: &[],
            written: false,
            keys: Vec::new(),
            removed: Vec::new(),
            other: None,
            problems: Rc::clone(&self.problems),
        }
    }

    fn open(&mut self, node: Option<&'n Node>) {
        match node.map(|node| (&node.value, &node.place)) {
            None => {}
            Some((Value::Map(entries), _)) => {
                self.entries = entries;
                self.written = true;
            }
            Some((_, place)) => self.other = Some(place.clone()),
        }
    }

    /// Reports unknown keys, or a value that is not a map.
    fn close(self) -> Vec<Key> {
        if let Some(place) = &self.other {
            let what = if self.path.is_empty() { "the file".to_owned() } else { self.path.clone() };
            let problem = Problem::new(what).at(place.clone()).why("is not a map");
            let next = Shape::Section(self.keys.clone()).must();
            self.problems.borrow_mut().push(problem.next(next));
            return self.keys;
        }
        for (name, place, _) in self.entries {
            let known = || self.keys.iter().map(|key| key.name);
            if !known().chain(self.removed.iter().copied()).any(|key| key == name) {
                let problem = Problem::new(format!("unknown field {:?}", self.full(name))).at(place.clone());
                let next = format!("known fields: {}", known().collect::<Vec<_>>().join(", "));
                let suggestion = suggestion(name, known());
                let why = Some(suggestion).filter(|suggestion| !suggestion.is_empty());
                self.problems.borrow_mut().push(Problem { why, ..problem.next(next) });
            }
        }
        self.keys
    }
}

/// Returns the problem with a value. `why` is the reason, a suggestion, or empty.
pub(super) fn invalid(key: String, place: &Place, value: &str, why: &str) -> Problem {
    let why = if why.is_empty() { String::new() } else { format!(": {why}") };
    Problem::new(key).at(place.clone()).why(format!("invalid value {value:?}{why}"))
}

fn suggestion<'a>(word: &str, allowed: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, allowed).map_or_else(String::new, |near| format!("did you mean {near}?"))
}

mod either;
mod named;
#[cfg(test)]
mod tests;
