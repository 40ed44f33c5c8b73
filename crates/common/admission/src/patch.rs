//! JSON Patch (RFC 6902), written as text. It has only `add`, because a guard never changes values of others.

use std::fmt::Write as _;

use serde::Serialize;

/// A path into a document (RFC 6901), built segment by segment, as the content of a JSON string.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pointer(String);

impl Pointer {
    /// Returns the pointer to the whole document, with capacity for a usual path, so that building one needs one allocation.
    pub fn root() -> Self {
        Self(String::with_capacity(48))
    }

    /// Appends a key, with escapes.
    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        self.0.push('/');
        let is_special = |c: char| matches!(c, '~' | '/' | '"' | '\\') || c < ' ';
        let mut rest = key;
        while let Some((at, special)) = rest.char_indices().find(|&(_, c)| is_special(c)) {
            let (plain, after) = rest.split_at(at);
            self.0.push_str(plain);
            // Writing to a String cannot fail.
            let _ = match special {
                '~' => self.0.write_str("~0"),
                '/' => self.0.write_str("~1"),
                other => write!(self.0, "\\u{:04x}", u32::from(other)),
            };
            rest = after.get(1..).unwrap_or_default();
        }
        self.0.push_str(rest);
        self
    }

    /// Appends an index.
    #[must_use]
    pub fn index(mut self, index: usize) -> Self {
        // Writing to a String cannot fail.
        let _ = write!(self.0, "/{index}");
        self
    }

    /// Appends `-`: the position after the last element of an array.
    #[must_use]
    pub fn append(mut self) -> Self {
        self.0.push_str("/-");
        self
    }
}

/// A list of operations, kept as the JSON of the answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Patch {
    /// Empty, or an array with its brackets.
    json: Vec<u8>,
    operations: usize,
}

impl Patch {
    /// Creates an empty patch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty patch with capacity for this many bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { json: Vec::with_capacity(bytes), operations: 0 }
    }

    /// Adds `value` at `path`: a new key, or with [`Pointer::append`] a new last element.
    pub fn add(&mut self, path: &Pointer, value: &impl Serialize) -> Result<(), serde_json::Error> {
        let before = self.json.len();
        match self.json.last_mut() {
            Some(bracket) => *bracket = b',',
            None => self.json.push(b'['),
        }
        for part in [r#"{"op":"add","path":""#, &path.0, r#"","value":"#] {
            self.json.extend_from_slice(part.as_bytes());
        }
        let written = serde_json::to_writer(&mut self.json, value);
        if written.is_ok() {
            self.json.extend_from_slice(b"}]");
            self.operations += 1;
        } else {
            self.json.truncate(before);
            if let Some(comma) = self.json.last_mut() {
                *comma = b']';
            }
        }
        written
    }

    /// Returns the number of operations.
    pub fn len(&self) -> usize {
        self.operations
    }

    /// Returns whether the patch has no operations.
    pub fn is_empty(&self) -> bool {
        self.operations == 0
    }

    /// Returns the patch as a JSON array.
    pub fn as_json(&self) -> &[u8] {
        if self.is_empty() { b"[]" } else { &self.json }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_keys_and_keeps_order() {
        let mut patch = Patch::new();
        assert_eq!(patch.as_json(), b"[]");
        patch.add(&Pointer::root().key("metadata").key("annotations").key("a~b/c"), &"\"x\"").unwrap();
        patch
            .add(&Pointer::root().key("spec").key("containers").index(1).key("volumeMounts").append(), &7)
            .unwrap();
        assert_eq!(
            std::str::from_utf8(patch.as_json()).unwrap(),
            r#"[{"op":"add","path":"/metadata/annotations/a~0b~1c","value":"\"x\""},{"op":"add","path":"/spec/containers/1/volumeMounts/-","value":7}]"#
        );
        assert_eq!(patch.len(), 2);
    }

    #[test]
    fn another_implementation_applies_the_patch() {
        let mut document = serde_json::json!({"m": {"a~b/c": 1}, "list": [1]});
        let mut patch = Patch::new();
        patch.add(&Pointer::root().key("m").key("x/y"), &true).unwrap();
        patch.add(&Pointer::root().key("list").append(), &2).unwrap();
        patch.add(&Pointer::root().key("m").key("é\"\\\u{1}~"), &3).unwrap();
        let parsed: json_patch::Patch = serde_json::from_slice(patch.as_json()).unwrap();
        json_patch::patch(&mut document, &parsed).unwrap();
        let expected = serde_json::json!({"m": {"a~b/c": 1, "x/y": true, "é\"\\\u{1}~": 3}, "list": [1, 2]});
        assert_eq!(document, expected);
    }

    #[test]
    fn a_value_that_cannot_be_written_leaves_the_patch_as_it_was() {
        let unwritable = std::collections::BTreeMap::from([((1, 2), 3)]);
        let mut patch = Patch::new();
        for expected in ["[]", r#"[{"op":"add","path":"/a","value":1}]"#] {
            assert!(patch.add(&Pointer::root().key("b"), &unwritable).is_err());
            assert_eq!(std::str::from_utf8(patch.as_json()).unwrap(), expected);
            patch.add(&Pointer::root().key("a"), &1).unwrap();
        }
    }
}
