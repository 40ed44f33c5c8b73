//! Strict reading of the fields of a document, with the place of each problem.

use policy::field::Path;
use policy::value::Value;

use manifests::LoadProblem;
use manifests::objects::Manifest;

/// Reads fields of an object and collects the problems.
pub(super) struct FieldReader<'o> {
    pub(super) object: &'o Manifest,
    pub(super) problems: Vec<LoadProblem>,
}

/// A map and its path.
#[derive(Clone)]
pub(super) struct FieldMap<'a> {
    entries: &'a [(&'a str, Value<'a>)],
    pub(super) path: Path,
}

impl<'a> FieldMap<'a> {
    /// Returns a value with its path. Null counts as absent.
    pub(super) fn get(&self, key: &str) -> Option<(Value<'a>, Path)> {
        let (_, value) = self.entries.iter().find(|(name, _)| *name == key)?;
        (!matches!(value, Value::Null)).then(|| (*value, self.path.child(key)))
    }

    /// The entries in the order of their keys.
    pub(super) fn entries(&self) -> &'a [(&'a str, Value<'a>)] {
        self.entries
    }
}

impl FieldReader<'_> {
    /// Adds a problem.
    pub(super) fn report(&mut self, path: &Path, message: impl Into<String>, next: impl Into<String>) {
        self.problems.push(LoadProblem { next: next.into(), ..self.object.problem(path, message) });
    }

    /// Reads a map with known keys. An empty list of keys allows all.
    pub(super) fn map<'a>(
        &mut self,
        value: Value<'a>,
        path: Path,
        keys: &[&'static str],
    ) -> Option<FieldMap<'a>> {
        let Value::Object(entries) = value else {
            self.report(&path, "must be a map", "");
            return None;
        };
        for (key, _) in entries.iter().filter(|(key, _)| !keys.is_empty() && !keys.contains(key)) {
            let next = match config::nearest(key, keys.iter().copied()) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("known are: {}", keys.join(", ")),
            };
            self.report(&path.child(key), "unknown field", next);
        }
        Some(FieldMap { entries, path })
    }

    /// Reads a list.
    pub(super) fn list<'a>(&mut self, map: &FieldMap<'a>, key: &str) -> Vec<(Value<'a>, Path)> {
        match map.get(key) {
            None => Vec::new(),
            Some((Value::List(items), path)) => {
                items.iter().enumerate().map(|(index, item)| (*item, path.index(index))).collect()
            }
            Some((_, path)) => {
                self.report(&path, "must be a list", "");
                Vec::new()
            }
        }
    }

    /// Reads a text.
    pub(super) fn text<'a>(&mut self, map: &FieldMap<'a>, key: &str) -> Option<&'a str> {
        let (value, path) = map.get(key)?;
        self.as_text(value, &path)
    }

    /// Reads a list of texts.
    pub(super) fn texts(&mut self, map: &FieldMap<'_>, key: &str) -> Vec<String> {
        let items = self.list(map, key);
        items.iter().filter_map(|(value, path)| self.as_text(*value, path)).map(str::to_owned).collect()
    }

    pub(super) fn as_text<'a>(&mut self, value: Value<'a>, path: &Path) -> Option<&'a str> {
        let text = value.as_str();
        if text.is_none() {
            self.report(path, "must be a text", "write it in quotes");
        }
        text
    }

    /// Reads one of several words.
    pub(super) fn word<T: Copy>(
        &mut self,
        map: &FieldMap<'_>,
        key: &str,
        words: &[(&'static str, T)],
    ) -> Option<T> {
        let text = self.text(map, key)?;
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            let path = map.path.child(key);
            let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.report(
                &path,
                format!("{text:?} is not a known value"),
                format!("use one of: {}", names.join(", ")),
            );
        }
        found
    }
}
