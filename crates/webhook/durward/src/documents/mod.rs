//! Files with several documents: a stream of JSON values, or YAML documents between `---` lines, as kubectl takes them.
//!
//! A document that does not change keeps its text. A changed document is written again in the format of the file, without
//! comments.

mod yaml;

use std::ops::Range;

use config::{Place, Problem};
use console::yaml::write;
use policy::document::{Content, DocumentNode, read_stream};
use serde_json::Value;

/// The documents of a file.
#[derive(Debug)]
pub(crate) struct Documents {
    text: String,
    is_json: bool,
    documents: Vec<Document>,
}

/// One document.
#[derive(Debug)]
struct Document {
    /// The JSON text, which guards read.
    json: String,
    /// The text as it was written, or `None` if the file can't be split at its lines.
    source: Option<String>,
}

/// A file whose documents were replaced.
pub(crate) struct Rewritten {
    /// The text of the file.
    pub(crate) text: String,
    /// Whether comments were dropped.
    pub(crate) lost_comments: bool,
}

impl Documents {
    /// Parses a text. `name` is the file name in errors.
    pub(crate) fn parse(name: &str, text: String) -> Result<Self, Problem> {
        let (is_json, documents) = read(name, &text)?;
        if documents.is_empty() {
            return Err(Problem::new(format!("{name} contains no document")));
        }
        Ok(Self { text, is_json, documents })
    }

    /// Returns each document as JSON text.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.documents.iter().map(|document| document.json.as_str())
    }

    /// Returns the file with its documents replaced. `None` means a document that does not change.
    pub(crate) fn rewritten(&self, changed: &[Option<Value>]) -> Result<Rewritten, Problem> {
        if changed.iter().all(Option::is_none) {
            return Ok(Rewritten { text: self.text.clone(), lost_comments: false });
        }
        let (mut parts, mut lost_comments) = (Vec::new(), false);
        for (document, changed) in self.documents.iter().zip(changed) {
            let source = document.source.as_deref();
            parts.push(match (changed, source) {
                (None, Some(source)) => source.to_owned(),
                (changed, _) => {
                    let same = || serde_json::from_str(&document.json).unwrap_or_default();
                    let value = changed.clone().unwrap_or_else(same);
                    lost_comments |= !self.is_json && source.is_none_or(yaml::has_comment);
                    if self.is_json { format!("{value:#}\n") } else { write(&value)? }
                }
            });
        }
        let mut text = if self.is_json { parts.concat() } else { parts.join("---\n") };
        // kubectl reads a block scalar at the end of a file as if a newline followed, and other readers don't. The output ends as
        // the input does, so that the value stays the same for both.
        if !self.text.ends_with('\n') && text.ends_with('\n') {
            text.pop();
        }
        Ok(Rewritten { text, lost_comments })
    }
}

/// Reads a text with the reader of `policy`, which policies and schemas are read with too.
fn read(name: &str, text: &str) -> Result<(bool, Vec<Document>), Problem> {
    let stream = read_stream(text).map_err(|error| {
        let place = Place { file: name.to_owned(), line: error.place.line, column: error.place.column };
        Problem::new(error.message).at(place).next(error.next)
    })?;
    let sources = if stream.is_json { None } else { yaml::split(text) };
    let sources = sources.filter(|sources| sources.len() == stream.documents.len());
    let document = |(index, (node, range)): (usize, &(DocumentNode, Range<usize>))| {
        if stream.is_json {
            let json = text.get(range.clone()).unwrap_or_default().to_owned();
            return Document { source: Some(format!("{json}\n")), json };
        }
        let source = sources.as_ref().and_then(|sources| sources.get(index).cloned());
        Document { json: to_json(node).to_string(), source }
    };
    Ok((stream.is_json, stream.documents.iter().enumerate().map(document).collect()))
}

/// A value whose keys keep their order.
fn to_json(node: &DocumentNode) -> Value {
    match &node.content {
        Content::Null => Value::Null,
        Content::Bool(value) => (*value).into(),
        Content::Int(value) => (*value).into(),
        Content::Uint(value) => (*value).into(),
        Content::Float(value) => (*value).into(),
        Content::Text(text) => (**text).into(),
        Content::List(items) => items.iter().map(to_json).collect(),
        Content::Map(entries) => {
            entries.iter().map(|entry| (entry.key.to_string(), to_json(&entry.node))).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn documents(text: &str) -> Vec<String> {
        Documents::parse("f", text.to_owned()).unwrap().iter().map(str::to_owned).collect()
    }

    #[test]
    fn json_documents_that_do_not_change_keep_their_text() {
        let text = " {\"a\": 1}\n\n[2]\n{\"z\": 1.5, \"b\":{}}\n";
        let parsed = Documents::parse("f", text.to_owned()).unwrap();
        let all: Vec<_> = parsed.iter().map(str::to_owned).collect();
        assert_eq!(all, ["{\"a\": 1}", "[2]", "{\"z\": 1.5, \"b\":{}}"]);
        assert_eq!(parsed.rewritten(&[None, None, None]).unwrap().text, text);
        let mut value: Value = serde_json::from_str(&all[2]).unwrap();
        value["c"] = true.into();
        let changed = parsed.rewritten(&[None, None, Some(value)]).unwrap();
        assert_eq!(changed.text, "{\"a\": 1}\n[2]\n{\n  \"z\": 1.5,\n  \"b\": {},\n  \"c\": true\n}\n");
        assert!(!changed.lost_comments);
    }

    #[test]
    fn reads_yaml_as_kubectl_does() {
        assert_eq!(
            documents("a: yes\nmode: 0644\nname: \"yes\"\nn: 1.5\nx: null\n---\n---\n- b\n"),
            [r#"{"a":true,"mode":420,"name":"yes","false":1.5,"x":null}"#, r#"["b"]"#]
        );
    }

    #[test]
    fn errors_name_file_line_and_column() {
        let error = |text: &str| Documents::parse("f.json", text.to_owned()).unwrap_err().to_string();
        assert_eq!(
            error("{\n  \"a\": ]}"),
            "f.json:2:8: this is not JSON: expected a value\n    check the commas, quotes and brackets up to this place"
        );
        assert!(error("a: [1\nb: 2").starts_with("f.json:"), "{}", error("a: [1\nb: 2"));
        assert_eq!(error("# nothing\n"), "f.json contains no document");
        assert_eq!(
            error("a: 1\na: 2\n"),
            "f.json:2:1: duplicate key \"a\" (the first is in line 1)\n    keep one of the two keys"
        );
        assert!(error("{\"a\": 1,\n \"a\": 2}").starts_with("f.json:2:2: duplicate key \"a\""));
        assert!(error("a:\n  b: .nan\n").starts_with("f.json:2:6: readers of YAML and JSON differ"));
        assert!(error(&format!("a: {}", "[".repeat(100_000))).contains("nested deeper than 1000 levels"));
    }

    #[test]
    fn refuses_integers_that_would_change() {
        let error = |text: &str| Documents::parse("f", text.to_owned()).unwrap_err().to_string();
        assert!(error("a: 123456789012345678901").starts_with("f:1:4: readers of YAML and JSON differ"));
        assert!(error("{\"a\": 123456789012345678901}").starts_with("f:1:7: readers"));
        assert_eq!(documents("a: 18446744073709551615\n"), [r#"{"a":18446744073709551615}"#]);
    }

    #[test]
    fn writes_yaml_keys_in_the_order_of_the_file() {
        let text = "# why\nz: 1\na: [x, {w: 'on'}]\n---\nb: {c: d} # kept\n";
        let parsed = Documents::parse("f", text.to_owned()).unwrap();
        let same = parsed.rewritten(&[None, None]).unwrap();
        assert_eq!((same.text.as_str(), same.lost_comments), (text, false));
        let first = parsed.iter().next().unwrap().replace("[\"x\"", "[\"new\"");
        let changed = parsed.rewritten(&[Some(serde_json::from_str(&first).unwrap()), None]).unwrap();
        assert_eq!(changed.text, "z: 1\na:\n- new\n- w: \"on\"\n---\nb: {c: d} # kept\n");
        assert!(changed.lost_comments);
    }

    #[test]
    fn a_block_scalar_at_the_end_of_the_file_gains_no_newline() {
        let text = "a: 1\n---\nb: |\n  x";
        let parsed = Documents::parse("f", text.to_owned()).unwrap();
        let all: Vec<_> = parsed.iter().map(str::to_owned).collect();
        assert_eq!(all[1], r#"{"b":"x\n"}"#, "as kubectl reads it");
        let first_changed = parsed.rewritten(&[Some(serde_json::json!({"a": 2})), None]).unwrap();
        assert_eq!(first_changed.text, "a: 2\n---\nb: |\n  x");
        let last = Some(serde_json::json!({"a": 1, "b": "x\n"}));
        let last_changed = parsed.rewritten(&[None, last]).unwrap();
        assert_eq!(last_changed.text, "a: 1\n---\na: 1\nb: |\n  x");
    }

    fn value() -> impl Strategy<Value = Value> {
        let text = prop_oneof![
            "[ -~\n\t]{0,12}",
            "(yes|on|0644|1e3|~|null|- a|a: b|#x|\\|)",
            "([a-z ]{0,4}\n){0,3}"
        ];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            text.prop_map(Into::into),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
                prop::collection::btree_map("[a-z./-]{1,6}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_change_of_one_document_keeps_the_values_of_the_others(
            values in prop::collection::vec(value(), 1..4),
            block in "[a-z]{1,5}(\n[a-z]{1,5}){0,2}",
            style in prop_oneof![Just("|"), Just("|-"), Just("|+"), Just(">")],
            ends_with_newline in any::<bool>(),
        ) {
            // The last document is a block scalar, whose value depends on the newline at the end of the file.
            let indented: Vec<_> = block.lines().map(|line| format!("  {line}")).collect();
            let last = format!("block: {style}\n{}{}", indented.join("\n"), if ends_with_newline { "\n" } else { "" });
            let mut documents: Vec<String> = values
                .iter()
                .map(|value| write(&serde_json::json!({ "value": value })).unwrap())
                .collect();
            documents.push(last);
            let parsed = Documents::parse("f", documents.join("---\n")).unwrap();
            let before: Vec<_> = parsed.iter().map(str::to_owned).collect();
            prop_assert_eq!(before.len(), values.len() + 1);
            for (value, read) in values.iter().zip(&before) {
                prop_assert_eq!(&serde_json::from_str::<Value>(read).unwrap()["value"], value);
            }
            let mut after = before.clone();
            after[0] = r#"{"changed":true}"#.to_owned();
            let mut changed = vec![None; before.len()];
            changed[0] = Some(serde_json::json!({"changed": true}));
            let rewritten = parsed.rewritten(&changed).unwrap().text;
            let again = Documents::parse("f", rewritten).unwrap();
            prop_assert_eq!(again.iter().map(str::to_owned).collect::<Vec<_>>(), after);
        }
    }
}
