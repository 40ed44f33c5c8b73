//! Applies a guard's patch to JSON text without touching any other byte.
//!
//! Only the operation `add` is supported, because a guard's patch contains no other. An addition copies the white space of its
//! neighbor.

use std::ops::Range;

use admission::{JsonError, Scanner, Shape};
use serde::Deserialize;
use serde_json::value::RawValue;

/// Returns the document after `patch`, a JSON array of `add` operations. An error names the operation that does not apply.
pub(crate) fn apply(document: &str, patch: &[u8]) -> Result<String, String> {
    #[derive(Deserialize)]
    struct Add<'a> {
        op: &'a str,
        path: String,
        #[serde(borrow)]
        value: &'a RawValue,
    }
    let operations: Vec<Add<'_>> = serde_json::from_slice(patch)
        .map_err(|error| format!("the patch is no list of operations: {error}"))?;
    let mut text = document.to_owned();
    for Add { op, path, value } in operations {
        if op != "add" {
            return Err(format!("{op} {path}: only add is known"));
        }
        text = add(&text, &path, value.get()).map_err(|why| format!("add {path}: {why}"))?;
    }
    Ok(text)
}

fn add(text: &str, path: &str, value: &str) -> Result<String, &'static str> {
    let mut segments = path.split('/').skip(1).map(|s| s.replace("~1", "/").replace("~0", "~")).peekable();
    let mut at = 0..text.len();
    while let Some(segment) = segments.next() {
        let inner = text.get(at.clone()).unwrap_or_default();
        let parent = Parent::read(inner).map_err(|error| error.what)?;
        let found = parent.find(&segment);
        if segments.peek().is_none() {
            return parent.with(text, at.start, &segment, found, value);
        }
        let found = found.ok_or("its parent is not there")?;
        at = at.start + found.start..at.start + found.end;
    }
    Err("the whole document cannot be added")
}

/// Returns key and byte range of each member of an object. The keys of an array are its indices.
pub(crate) fn members(text: &str) -> Result<Vec<(String, Range<usize>)>, JsonError> {
    Parent::read(text).map(|parent| parent.members)
}

/// An object or array that receives an addition.
struct Parent {
    is_array: bool,
    /// The offset after the opening bracket.
    open: usize,
    members: Vec<(String, Range<usize>)>,
    /// The white space before the first member or element.
    lead: String,
}

impl Parent {
    fn read(text: &str) -> Result<Self, JsonError> {
        let mut scanner = Scanner::new(text);
        let shape = scanner.peek()?;
        let open = scanner.offset() + 1;
        let white = |from: usize| {
            let rest = text.get(from..).unwrap_or_default();
            rest.get(..rest.len() - rest.trim_start().len()).unwrap_or_default().to_owned()
        };
        let mut members = Vec::new();
        match shape {
            Shape::Object => scanner.object(|scanner, key| {
                members.push((key.into_owned(), span(scanner)?));
                Ok::<(), JsonError>(())
            })?,
            Shape::Array => scanner.array(|scanner, index| {
                members.push((index.to_string(), span(scanner)?));
                Ok::<(), JsonError>(())
            })?,
            _ => return Err(JsonError { at: 0, what: "its parent is neither an object nor a list" }),
        }
        Ok(Self { is_array: shape == Shape::Array, open, members, lead: white(open) })
    }

    fn find(&self, segment: &str) -> Option<Range<usize>> {
        self.members.iter().find(|(key, _)| key == segment).map(|(_, span)| span.clone())
    }

    /// Returns `text` with `value` at `segment` of this parent, which begins at offset `start`.
    fn with(
        &self,
        text: &str,
        start: usize,
        segment: &str,
        found: Option<Range<usize>>,
        value: &str,
    ) -> Result<String, &'static str> {
        let cut = |range: Range<usize>, with: &str| {
            let before = text.get(..start + range.start).unwrap_or_default();
            let after = text.get(start + range.end..).unwrap_or_default();
            format!("{before}{with}{after}")
        };
        let Self { lead, .. } = self;
        let end = self.members.last().map(|(_, span)| span.end..span.end);
        if !self.is_array {
            let key = serde_json::Value::from(segment).to_string();
            let colon = if lead.is_empty() { ":" } else { ": " };
            return Ok(match (found, end) {
                (Some(found), _) => cut(found, value),
                (None, Some(end)) => cut(end, &format!(",{lead}{key}{colon}{value}")),
                (None, None) => cut(self.open..self.open, &format!("{key}:{value}")),
            });
        }
        let index =
            if segment == "-" { self.members.len() } else { segment.parse().map_err(|_| "is no index")? };
        Ok(match (self.members.get(index), end) {
            (Some((_, span)), _) => cut(span.start..span.start, &format!("{value},{lead}")),
            (None, Some(end)) if index == self.members.len() => cut(end, &format!(",{lead}{value}")),
            (None, None) if index == 0 => cut(self.open..self.open, value),
            _ => return Err("the index is past the end"),
        })
    }
}

/// Skips one value and returns its byte range.
fn span(scanner: &mut Scanner<'_>) -> Result<Range<usize>, JsonError> {
    let length = scanner.value()?.get().len();
    let end = scanner.offset();
    Ok(end - length..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(document: &str, path: &str, value: &str) -> Result<String, String> {
        apply(document, format!(r#"[{{"op":"add","path":{path:?},"value":{value}}}]"#).as_bytes())
    }

    #[test]
    fn touches_nothing_else() {
        let document =
            "{\n  \"metadata\": {\n    \"name\": \"web\"\n  },\n  \"list\": [1,  2],\"future\": 1.10 }";
        assert_eq!(
            added(document, "/metadata/labels", r#"{"a":1}"#).unwrap(),
            document.replace("\"web\"", "\"web\",\n    \"labels\": {\"a\":1}")
        );
        assert_eq!(added(document, "/list/-", "3").unwrap(), document.replace("2]", "2,3]"));
        assert_eq!(added(document, "/list/0", "0").unwrap(), document.replace("[1", "[0,1"));
        assert_eq!(added(document, "/list/2", "3").unwrap(), document.replace("2]", "2,3]"));
        assert_eq!(added(document, "/metadata/name", "\"x\"").unwrap(), document.replace("web", "x"));
    }

    #[test]
    fn agrees_with_a_library() {
        for (document, path, value) in [
            (r#"{"a":{}}"#, "/a/b~1c", "1"),
            (r#"{"a":null}"#, "/a", "[]"),
            (r#"{"a":[]}"#, "/a/-", "{}"),
            (r#"{"a":[[1],[2]]}"#, "/a/1/0", "9"),
            (r#"{ "a" : [ ] }"#, "/a/0", "9"),
            ("{ }", "/x", "true"),
        ] {
            let patch = format!(r#"[{{"op":"add","path":"{path}","value":{value}}}]"#);
            let mut expected: serde_json::Value = serde_json::from_str(document).unwrap();
            json_patch::patch(&mut expected, &serde_json::from_str::<json_patch::Patch>(&patch).unwrap())
                .unwrap();
            let spliced = apply(document, patch.as_bytes()).unwrap();
            assert_eq!(serde_json::from_str::<serde_json::Value>(&spliced).unwrap(), expected, "{spliced}");
        }
    }

    #[test]
    fn names_the_operation_that_does_not_apply() {
        assert_eq!(added("{}", "/a/b", "1").unwrap_err(), "add /a/b: its parent is not there");
        assert_eq!(
            added("{\"a\":1}", "/a/b", "1").unwrap_err(),
            "add /a/b: its parent is neither an object nor a list"
        );
        assert_eq!(added("[1]", "/3", "1").unwrap_err(), "add /3: the index is past the end");
        assert!(apply("{}", br#"[{"op":"remove","path":"/a","value":1}]"#).unwrap_err().contains("only add"));
    }
}
