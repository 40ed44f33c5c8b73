//! JSON Patch (RFC 6902), written as text. It has only `add`, because a guard never changes values of others.

use std::fmt::Write as _;

use serde::Serialize;

/// A path into a document (RFC 6901), built segment by segment. `~` and `/` in a segment are escaped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pointer(String);

impl Pointer {
    /// Returns the pointer to the whole document, with capacity for a usual path, so that building one needs one allocation.
    pub fn root() -> Self {
        Self(String::with_capacity(48))
    }

    /// Appends a key.
    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        self.0.push('/');
        let mut rest = key;
        while let Some((plain, special)) = rest.find(['~', '/']).and_then(|at| rest.split_at_checked(at)) {
            self.0.push_str(plain);
            self.0.push_str(if special.starts_with('~') { "~0" } else { "~1" });
            rest = special.get(1..).unwrap_or_default();
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

    /// Returns the text of the pointer.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A list of operations, kept as the JSON of the answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Patch {
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
        #[derive(Serialize)]
        struct Add<'a, T> {
            op: &'static str,
            path: &'a str,
            value: &'a T,
        }
        let before = self.json.len();
        self.json.push(if self.operations == 0 { b'[' } else { b',' });
        let written = serde_json::to_writer(&mut self.json, &Add { op: "add", path: path.as_str(), value });
        match written {
            Ok(()) => self.operations += 1,
            Err(_) => self.json.truncate(before),
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
    pub fn to_json(&self) -> Vec<u8> {
        let mut json = if self.is_empty() { b"[".to_vec() } else { self.json.clone() };
        json.push(b']');
        json
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_keys_and_keeps_order() {
        let mut patch = Patch::new();
        assert_eq!(patch.to_json(), b"[]");
        patch.add(&Pointer::root().key("metadata").key("annotations").key("a~b/c"), &"\"x\"").unwrap();
        patch
            .add(&Pointer::root().key("spec").key("containers").index(1).key("volumeMounts").append(), &7)
            .unwrap();
        assert_eq!(
            String::from_utf8(patch.to_json()).unwrap(),
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
        let parsed: json_patch::Patch = serde_json::from_slice(&patch.to_json()).unwrap();
        json_patch::patch(&mut document, &parsed).unwrap();
        assert_eq!(document, serde_json::json!({"m": {"a~b/c": 1, "x/y": true}, "list": [1, 2]}));
    }
}
