//! The keys of a section, as its readers declare them; see [`Section`](super::Section).

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

/// The longest line of a comment in printed defaults.
const WIDTH: usize = 100;

/// A key of a section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The name.
    pub name: &'static str,
    /// One sentence of documentation.
    pub doc: &'static str,
    /// The allowed values.
    pub shape: Shape,
    /// The default as one line of YAML, if there is one.
    pub default: Option<String>,
}

/// The allowed values of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// `true` or `false`.
    Bool,
    /// Any text, with a word for it (`address`, `path`, …).
    Text(&'static str),
    /// A whole number within these bounds.
    Number(u64, u64),
    /// One of these words.
    Choice(Vec<&'static str>),
    /// One of these words, or these keys.
    ChoiceOrSection(Vec<&'static str>, Vec<Key>),
    /// A text, with a word for it, or these keys.
    TextOrSection(&'static str, Vec<Key>),
    /// A list.
    List(Box<Shape>),
    /// A section with these keys.
    Section(Vec<Key>),
    /// A map from names to texts.
    Labels,
}

impl Shape {
    /// Returns the JSON schema.
    pub fn schema(&self) -> Value {
        match self {
            Self::Bool => json!({"type": "boolean"}),
            Self::Text(_) => json!({"type": "string"}),
            Self::Number(least, most) => json!({"type": "integer", "minimum": least, "maximum": most}),
            Self::Choice(words) => json!({"enum": words}),
            Self::List(of) => json!({"type": "array", "items": of.schema()}),
            Self::Labels => json!({"type": "object", "additionalProperties": {"type": "string"}}),
            Self::ChoiceOrSection(words, keys) => json!({"anyOf": [{"enum": words}, object(keys)]}),
            Self::TextOrSection(_, keys) => json!({"anyOf": [{"type": "string"}, object(keys)]}),
            Self::Section(keys) => object(keys),
        }
    }

    /// Returns the allowed values for an error message: `must be true or false`.
    pub fn must(&self) -> String {
        match self {
            Self::Choice(words) if words.len() > 1 => format!("must be one of: {}", words.join(", ")),
            shape => format!("must be {}", shape.values()),
        }
    }

    /// Describes the allowed values.
    pub fn values(&self) -> String {
        let or_map = |first: String, keys: &[Key]| format!("{first}, or a map with: {}", names(keys));
        match self {
            Self::Bool => "true or false".to_owned(),
            Self::Text(what) => with_article(what),
            Self::TextOrSection(what, keys) => or_map(with_article(what), keys),
            Self::Number(least, most) => format!("a whole number from {least} to {most}"),
            Self::Choice(words) => words.join(", "),
            Self::ChoiceOrSection(words, keys) => or_map(words.join(", "), keys),
            Self::List(of) => format!("a list; each entry: {}", of.values()),
            Self::Labels => "a map of strings".to_owned(),
            Self::Section(keys) => format!("a map with: {}", names(keys)),
        }
    }
}

fn names(keys: &[Key]) -> String {
    keys.iter().map(|key| key.name).collect::<Vec<_>>().join(", ")
}

/// Adds `a` or `an`, by sound: `a URL`, `an RFC 3339 time`.
fn with_article(what: &str) -> String {
    let is_vowel =
        what.starts_with(['a', 'e', 'i', 'o', 'u', 'A', 'E', 'I', 'O']) && !what.starts_with("user");
    // Abbreviations follow the sound of their first letter.
    let is_an = is_vowel || what.starts_with("RFC");
    format!("{} {what}", if is_an { "an" } else { "a" })
}

fn object(keys: &[Key]) -> Value {
    let properties: Map<String, Value> = keys.iter().map(|k| (k.name.to_owned(), k.schema())).collect();
    json!({"type": "object", "additionalProperties": false, "properties": properties})
}

impl Key {
    fn schema(&self) -> Value {
        let mut schema = self.shape.schema();
        if let Some(object) = schema.as_object_mut() {
            object.insert("description".to_owned(), self.doc.into());
        }
        schema
    }

    /// Returns all keys with defaults and documentation as YAML with comments.
    pub fn defaults(keys: &[Self]) -> String {
        let mut out = String::new();
        write_defaults(keys, 0, &mut out);
        out
    }
}

fn write_defaults(keys: &[Key], indent: usize, out: &mut String) {
    let pad = " ".repeat(indent);
    for Key { name, doc, shape, default } in keys {
        write_comment(doc, &pad, out);
        // Writing to a String cannot fail.
        let _ = match (shape, default) {
            (Shape::Section(inner), None) if !inner.is_empty() => {
                let written = writeln!(out, "{pad}{name}:");
                write_defaults(inner, indent + 2, out);
                written
            }
            // Other YAML parsers read these words as a number or a boolean.
            (Shape::Choice(_), Some(word))
                if word.parse::<f64>().is_ok() || matches!(word.as_str(), "on" | "off") =>
            {
                writeln!(out, "{pad}{name}: {word:?}")
            }
            (Shape::List(of), Some(default)) if matches!(**of, Shape::Section(_)) => {
                let written = writeln!(out, "{pad}{name}: {default}");
                write_entry(of, indent + 2, out);
                written
            }
            (_, Some(default)) => writeln!(out, "{pad}{name}: {default}"),
            (shape, None) => writeln!(out, "{pad}# {name}: {}", shape.values()),
        };
    }
}

/// Writes a comment in lines of at most [`WIDTH`] characters.
fn write_comment(text: &str, pad: &str, out: &mut String) {
    let mut line = format!("{pad}#");
    for word in text.split(' ') {
        if line.chars().count() + 1 + word.chars().count() > WIDTH {
            out.push_str(&line);
            out.push('\n');
            line = format!("{pad}#");
        }
        line.push(' ');
        line.push_str(word);
    }
    out.push_str(&line);
    out.push('\n');
}

/// Writes an example of an entry as a comment, because the list is empty by default.
fn write_entry(of: &Shape, indent: usize, out: &mut String) {
    let Shape::Section(keys) = of else { return };
    let mut entry = String::new();
    write_defaults(keys, 0, &mut entry);
    let pad = " ".repeat(indent);
    for (at, line) in entry.lines().enumerate() {
        let mark = if at == 0 { "-" } else { " " };
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{pad}# {mark} {line}");
    }
}
