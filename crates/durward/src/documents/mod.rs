//! Files full of documents: JSON (a stream of values) or YAML (documents between `---`), as kubectl takes them.
//!
//! Everything is handed on as JSON text, because that is what guards read. A JSON file keeps its bytes: who changes one
//! document puts it back where it stood. YAML is read by the rules that kubectl reads it by (YAML 1.1 booleans, octal modes),
//! and is written anew: comments do not survive.

mod splice;
mod tree;
mod yaml;

use std::ops::Range;

use admission::{Raw, Scanner};
use config::{Place, Problem};

pub(crate) use splice::{apply, members};
pub(crate) use tree::Tree;

/// A file, cut into its documents.
#[derive(Debug)]
pub(crate) enum Documents {
    /// The text, and where each value stands in it.
    Json {
        /// The whole file.
        text: String,
        /// Each value.
        spans: Vec<Range<usize>>,
    },
    /// Each document as JSON text, and as it was written.
    Yaml {
        /// In the order of the file; empty documents are left out.
        documents: Vec<String>,
        /// The same as text, what stands between them included; none where the file cannot be cut by its lines.
        written: Option<Vec<String>>,
    },
}

/// A file with other documents in the places of its own.
pub(crate) struct Rewritten {
    /// The file.
    pub(crate) text: String,
    /// Whether comments got lost.
    pub(crate) lost_comments: bool,
}

impl Documents {
    /// Cuts a text into its documents; `name` is what errors call it.
    pub(crate) fn parse(name: &str, text: String) -> Result<Self, Problem> {
        let documents = if text.trim_start_matches('\u{feff}').trim_start().starts_with(['{', '[']) {
            let spans = json_spans(name, &text)?;
            Self::Json { text, spans }
        } else {
            let trees = yaml::read(name, &text)?;
            let documents: Vec<String> = trees.iter().map(Tree::to_json).collect();
            let written = yaml::cut(&text).filter(|written| written.len() == documents.len());
            Self::Yaml { documents, written }
        };
        if documents.iter().next().is_none() {
            return Err(Problem::new(format!("{name} holds no document")));
        }
        Ok(documents)
    }

    /// Each document as JSON text.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        let (text, spans, documents) = match self {
            Self::Json { text, spans } => (text.as_str(), spans.as_slice(), [].as_slice()),
            Self::Yaml { documents, .. } => ("", [].as_slice(), documents.as_slice()),
        };
        let spans = spans.iter().filter_map(move |span| text.get(span.clone()));
        spans.chain(documents.iter().map(String::as_str))
    }

    /// The file with other documents in the places of these, in its own format. A document that is the same stays as it was
    /// written; of the others, JSON keeps every byte around it and YAML is written anew.
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
            Self::Yaml { documents: before, written } => {
                let (mut parts, mut lost_comments) = (Vec::new(), false);
                for (index, (old, new)) in before.iter().zip(documents).enumerate() {
                    let source = written.as_ref().and_then(|written| written.get(index));
                    match source {
                        Some(source) if old == new => parts.push(source.clone()),
                        _ => {
                            lost_comments |= source.is_none_or(|source| yaml::is_commented(source));
                            parts.push(yaml::write(&Tree::from_json(new)?));
                        }
                    }
                }
                Ok(Rewritten { text: parts.join("---\n"), lost_comments })
            }
        }
    }
}

/// Documents as YAML, `---` between them.
pub(crate) fn yaml_stream(trees: &[Tree]) -> String {
    trees.iter().map(yaml::write).collect::<Vec<_>>().join("---\n")
}

/// Where each value of a JSON stream stands.
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

/// Line and column of a byte, both from 1.
fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    (line, before.len() - before.rfind('\n').map_or(0, |newline| newline + 1) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn documents(text: &str) -> Vec<String> {
        Documents::parse("f", text.to_owned()).unwrap().iter().map(str::to_owned).collect()
    }

    #[test]
    fn a_json_stream_is_cut_and_put_together_again_byte_for_byte() {
        let text = " {\"a\": 1}\n\n[2]\n{\"b\":{}}\n";
        let parsed = Documents::parse("f", text.to_owned()).unwrap();
        let all: Vec<_> = parsed.iter().map(str::to_owned).collect();
        assert_eq!(all, ["{\"a\": 1}", "[2]", "{\"b\":{}}"]);
        assert_eq!(parsed.rewritten(&all).unwrap().text, text);
    }

    #[test]
    fn yaml_is_read_as_kubectl_reads_it() {
        assert_eq!(
            documents("a: yes\nmode: 0644\nname: \"yes\"\nn: 1.5\nx: null\n---\n---\n- b\n"),
            [r#"{"a":true,"mode":420,"name":"yes","n":1.5,"x":null}"#, r#"["b"]"#]
        );
    }

    #[test]
    fn errors_say_where() {
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
    fn yaml_is_written_in_the_order_in_which_it_was_read() {
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
}
