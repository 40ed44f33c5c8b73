//! YAML as a tree with positions.
//!
//! Two features of YAML are rejected: several documents in one file, and aliases, because a problem in an alias has no line of its
//! own.

use granit_parser::{Event, Options, Parser, ScalarStyle, Span};

use super::problem::{Place, Problem};

/// A value and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Place of its first character.
    pub place: Place,
    /// The value.
    pub value: Value,
}

/// The value of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A text. The reader decides whether it is a number or `true`, unless it was quoted.
    Scalar {
        /// Without the escapes of YAML.
        text: String,
        /// Whether it is in quotes.
        quoted: bool,
    },
    /// `- …`
    List(Vec<Node>),
    /// `key: …`, in the order of the file.
    Map(Vec<(String, Place, Node)>),
}

impl Node {
    /// Returns whether the value is absent (`key:`) or null.
    pub fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar { text, quoted: false } if matches!(text.as_str(), "" | "~" | "null"))
    }
}

/// Parses one document. Returns none for an empty file.
pub fn parse(file: &str, text: &str) -> Result<Option<Node>, Vec<Problem>> {
    let mut tree = Tree { file, open: Vec::new(), root: None, problems: Vec::new() };
    // The parser buffers comments up to a limit, and a file can have more.
    let mut options = Options::default();
    options.set_emit_comments(false);
    for event in Parser::new_from_str_with_options(text, options) {
        match event {
            Ok((event, span)) => tree.event(event, &span),
            Err(error) => {
                let mark = error.marker();
                let place = Place { file: file.to_owned(), line: mark.line(), column: mark.col() + 1 };
                tree.problems.push(Problem::new("the file is not YAML").at(place).why(error.info()));
                break;
            }
        }
    }
    if tree.problems.is_empty() { Ok(tree.root) } else { Err(tree.problems) }
}

struct Tree<'f> {
    file: &'f str,
    open: Vec<Open>,
    root: Option<Node>,
    problems: Vec<Problem>,
}

enum Open {
    List(Place, Vec<Node>),
    Map(Place, Vec<(String, Place, Node)>, Option<(String, Place)>),
}

impl Tree<'_> {
    fn event(&mut self, event: Event<'_>, span: &Span) {
        let place =
            Place { file: self.file.to_owned(), line: span.start.line(), column: span.start.col() + 1 };
        match event {
            Event::Scalar(text, style, ..) => {
                let quoted = !matches!(style, ScalarStyle::Plain);
                self.value(Node { place, value: Value::Scalar { text: text.into_owned(), quoted } });
            }
            Event::SequenceStart(..) => self.open.push(Open::List(place, Vec::new())),
            Event::MappingStart(..) => self.open.push(Open::Map(place, Vec::new(), None)),
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(Open::List(place, items)) => self.value(Node { place, value: Value::List(items) }),
                Some(Open::Map(place, entries, _)) => self.value(Node { place, value: Value::Map(entries) }),
                None => {}
            },
            Event::Alias(_) => {
                let problem = Problem::new("YAML aliases (*name) are not supported").at(place.clone());
                self.problems.push(problem.next("write the value instead"));
                self.value(Node { place, value: Value::Scalar { text: String::new(), quoted: false } });
            }
            Event::DocumentStart(..) if self.root.is_some() => {
                let problem = Problem::new("the file has a second document").at(place);
                self.problems.push(problem.next("keep one document in the file"));
            }
            _ => {}
        }
    }

    fn value(&mut self, node: Node) {
        match self.open.last_mut() {
            None => self.root = self.root.take().or(Some(node)),
            Some(Open::List(_, items)) => items.push(node),
            Some(Open::Map(_, entries, key)) => match (key.take(), node) {
                (Some((name, at)), node) => {
                    if let Some((_, first, _)) = entries.iter().find(|(other, ..)| *other == name) {
                        let problem = Problem::new(format!("{name}: duplicate field")).at(at.clone());
                        self.problems.push(problem.why(format!("first in line {}", first.line)));
                    }
                    entries.push((name, at, node));
                }
                (None, Node { place, value: Value::Scalar { text, .. } }) => *key = Some((text, place)),
                (None, Node { place, .. }) => {
                    self.problems.push(Problem::new("a key must be a string").at(place.clone()));
                    *key = Some((String::new(), place));
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> String {
        let problems = parse("d.yaml", text).unwrap_err();
        problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn reports_the_place_of_each_value() {
        let root = parse("d.yaml", "a: 1\nb:\n  - \"2\"\n  - c: x\n").unwrap().unwrap();
        let Value::Map(entries) = &root.value else { panic!() };
        let (name, place, node) = &entries[1];
        assert_eq!((name.as_str(), place.line, place.column), ("b", 2, 1));
        let Value::List(items) = &node.value else { panic!() };
        assert_eq!((items[0].place.line, items[0].place.column), (3, 5));
        assert_eq!(items[0].value, Value::Scalar { text: "2".into(), quoted: true });
    }

    #[test]
    fn an_empty_file_has_no_node() {
        assert_eq!(parse("d.yaml", "# nothing\n").unwrap(), None);
    }

    #[test]
    fn rejects_invalid_yaml_duplicate_keys_aliases_and_second_documents() {
        assert!(problems("a: [1").starts_with("d.yaml:"));
        assert!(problems("a: 1\nb: 2\na: 3\n").contains("d.yaml:3:1: a: duplicate field: first in line 1"));
        assert!(problems("a: &x 1\nb: *x\n").contains("d.yaml:2:4: YAML aliases"));
        assert!(problems("a: 1\n---\nb: 2\n").contains("a second document"));
        let comments = format!("a:\n{}b: 1\n", "# comment\n".repeat(500));
        assert!(parse("d.yaml", &comments).is_ok());
        assert!(problems("[a]: 1\n").contains("must be a string"));
    }
}
