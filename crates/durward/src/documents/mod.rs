//! Files with several documents: a stream of JSON values, or YAML documents between `---` lines, as kubectl takes them.
//!
//! Documents are passed on as JSON text, because guards read JSON. In a JSON file a changed document is written back to its place
//! and every other byte stays. In a YAML file unchanged documents keep their text; changed ones are written anew, without comments.

mod splice;
mod value;
mod yaml;

use std::ops::Range;

use admission::{Raw, Scanner};
use config::{Place, Problem};

pub(crate) use splice::{apply, members};
pub(crate) use value::OrderedValue;

/// The documents of a file.
#[derive(Debug)]
pub(crate) enum Documents {
    /// A stream of JSON values.
    Json {
        /// The text of the file.
        text: String,
        /// The byte range of each value.
        spans: Vec<Range<usize>>,
    },
    /// A stream of YAML documents.
    Yaml {
        /// The documents as JSON text, without empty ones.
        documents: Vec<String>,
        /// The documents as they were written, or `None` if the file can't be split at its lines.
        source: Option<Vec<String>>,
        /// Whether the file ends with a newline. kubectl reads a block scalar at the end of a file as if a newline followed;
        /// other readers don't. The output ends as the input does, so that the value stays the same for both.
        ends_with_newline: bool,
    },
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
        let documents = if text.trim_start_matches('\u{feff}').trim_start().starts_with(['{', '[']) {
            let spans = json_spans(name, &text)?;
            Self::Json { text, spans }
        } else {
            let values = yaml::read(name, &text)?;
            let documents: Vec<String> = values.iter().map(OrderedValue::to_json).collect();
            let source = yaml::split(&text).filter(|source| source.len() == documents.len());
            Self::Yaml { documents, source, ends_with_newline: text.ends_with('\n') }
        };
        if documents.iter().next().is_none() {
            return Err(Problem::new(format!("{name} holds no document")));
        }
        Ok(documents)
    }

    /// Returns each document as JSON text.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        let (text, spans, documents) = match self {
            Self::Json { text, spans } => (text.as_str(), spans.as_slice(), [].as_slice()),
            Self::Yaml { documents, .. } => ("", [].as_slice(), documents.as_slice()),
        };
        let spans = spans.iter().filter_map(move |span| text.get(span.clone()));
        spans.chain(documents.iter().map(String::as_str))
    }

    /// Returns the file with its documents replaced, in the format of the file. A document that does not change keeps its text.
    pub(crate) fn rewritten(&self, documents: &[String]) -> Result<Rewritten, Problem> {
        match self {
            Self::Json { text, spans } => {
                let mut out = String::with_capacity(text.len());
                let mut at = 0;
                for (span, document) in spans.iter().zip(documents) {
                    out.push_str(text.get(at..span.start).unwrap_or_default());
                    out.push_str(document);
                    at = span.end;
                }
                out.push_str(text.get(at..).unwrap_or_default());
                Ok(Rewritten { text: out, lost_comments: false })
            }
            Self::Yaml { documents: before, source, ends_with_newline } => {
                let (mut parts, mut lost_comments) = (Vec::new(), false);
                for (index, (old, new)) in before.iter().zip(documents).enumerate() {
                    let source = source.as_ref().and_then(|source| source.get(index));
                    match source {
                        Some(source) if old == new => parts.push(source.clone()),
                        _ => {
                            lost_comments |= source.is_none_or(|source| yaml::has_comment(source));
                            parts.push(yaml::write(&OrderedValue::from_json(new)?)?);
                        }
                    }
                }
                let mut text = parts.join("---\n");
                if !ends_with_newline && text.ends_with('\n') {
                    text.pop();
                }
                Ok(Rewritten { text, lost_comments })
            }
        }
    }
}

/// Writes documents as YAML, separated by `---`.
pub(crate) fn yaml_stream(values: &[OrderedValue]) -> Result<String, Problem> {
    Ok(values.iter().map(yaml::write).collect::<Result<Vec<_>, _>>()?.join("---\n"))
}

/// Returns the byte range of each value of a JSON stream.
fn json_spans(name: &str, text: &str) -> Result<Vec<Range<usize>>, Problem> {
    let skipped = text.len() - text.trim_start_matches('\u{feff}').len();
    let mut scanner = Scanner::new(text.get(skipped..).unwrap_or_default());
    let mut spans = Vec::new();
    loop {
        if scanner.end().is_ok() {
            return Ok(spans);
        }
        let raw: Raw<'_> = scanner.value().map_err(|error| {
            let (line, column) = position(text, skipped + error.at);
            let place = Place { file: name.to_owned(), line, column };
            Problem::new("this is not JSON").at(place).why(error.what)
        })?;
        let end = skipped + scanner.offset();
        spans.push(end - raw.get().len()..end);
    }
}

/// Returns the line and column of a byte offset, both from 1.
fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    (line, before.len() - before.rfind('\n').map_or(0, |newline| newline + 1) + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn documents(text: &str) -> Vec<String> {
        Documents::parse("f", text.to_owned()).unwrap().iter().map(str::to_owned).collect()
    }

    #[test]
    fn rewrites_a_json_stream_byte_for_byte() {
        let text = " {\"a\": 1}\n\n[2]\n{\"b\":{}}\n";
        let parsed = Documents::parse("f", text.to_owned()).unwrap();
        let all: Vec<_> = parsed.iter().map(str::to_owned).collect();
        assert_eq!(all, ["{\"a\": 1}", "[2]", "{\"b\":{}}"]);
        assert_eq!(parsed.rewritten(&all).unwrap().text, text);
    }

    #[test]
    fn reads_yaml_as_kubectl_does() {
        assert_eq!(
            documents("a: yes\nmode: 0644\nname: \"yes\"\nn: 1.5\nx: null\n---\n---\n- b\n"),
            [r#"{"a":true,"mode":420,"name":"yes","n":1.5,"x":null}"#, r#"["b"]"#]
        );
    }

    #[test]
    fn errors_name_file_line_and_column() {
        let error = |text: &str| Documents::parse("f.json", text.to_owned()).unwrap_err().to_string();
        assert_eq!(
            error("{\n  \"a\": b}"),
            "f.json:2:8: this is not JSON: a value must begin with one of {, [, \", a digit, -, true, false, null"
        );
        assert!(error("a: [1\nb: 2").starts_with("f.json:"), "{}", error("a: [1\nb: 2"));
        assert_eq!(error("# nothing\n"), "f.json holds no document");
        assert!(error("a: 1\na: 2\n").contains('a'));
    }

    #[test]
    fn writes_yaml_keys_in_the_order_of_the_file() {
        let text = "# why\nz: 1\na: [x, {w: 'on'}]\n---\nb: {c: d} # kept\n";
        let parsed = Documents::parse("f", text.to_owned()).unwrap();
        let mut all: Vec<_> = parsed.iter().map(str::to_owned).collect();
        let same = parsed.rewritten(&all).unwrap();
        assert_eq!((same.text.as_str(), same.lost_comments), (text, false));
        all[0] = all[0].replace("[\"x\"", "[\"new\"");
        let changed = parsed.rewritten(&all).unwrap();
        assert_eq!(changed.text, "z: 1\na:\n- new\n- w: \"on\"\n---\nb: {c: d} # kept\n");
        assert!(changed.lost_comments);
    }

    #[test]
    fn a_block_scalar_at_the_end_of_the_file_gains_no_newline() {
        let text = "a: 1\n---\nb: |\n  x";
        let parsed = Documents::parse("f", text.to_owned()).unwrap();
        let all: Vec<_> = parsed.iter().map(str::to_owned).collect();
        assert_eq!(all[1], r#"{"b":"x\n"}"#, "as kubectl reads it");
        let first_changed = parsed.rewritten(&[r#"{"a":2}"#.to_owned(), all[1].clone()]).unwrap();
        assert_eq!(first_changed.text, "a: 2\n---\nb: |\n  x");
        let last_changed = parsed.rewritten(&[all[0].clone(), r#"{"a":1,"b":"x\n"}"#.to_owned()]).unwrap();
        assert_eq!(last_changed.text, "a: 1\n---\na: 1\nb: |\n  x");
    }

    fn value() -> impl Strategy<Value = serde_json::Value> {
        let text = prop_oneof![
            "[ -~\n\t]{0,12}",
            "(yes|on|0644|1e3|~|null|- a|a: b|#x|\\|)",
            "([a-z ]{0,4}\n){0,3}"
        ];
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            text.prop_map(Into::into),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
                prop::collection::btree_map("[a-z./-]{1,6}", inner, 0..4)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
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
                .map(|value| yaml::write(&OrderedValue::of(&serde_json::json!({ "value": value })).unwrap()).unwrap())
                .collect();
            documents.push(last);
            let parsed = Documents::parse("f", documents.join("---\n")).unwrap();
            let before: Vec<_> = parsed.iter().map(str::to_owned).collect();
            prop_assert_eq!(before.len(), values.len() + 1);
            for (value, read) in values.iter().zip(&before) {
                prop_assert_eq!(&serde_json::from_str::<serde_json::Value>(read).unwrap()["value"], value);
            }
            let mut after = before.clone();
            after[0] = r#"{"changed":true}"#.to_owned();
            let rewritten = parsed.rewritten(&after).unwrap().text;
            let again = Documents::parse("f", rewritten).unwrap();
            prop_assert_eq!(again.iter().map(str::to_owned).collect::<Vec<_>>(), after);
        }
    }
}
