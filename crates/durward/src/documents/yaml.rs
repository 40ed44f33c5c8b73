//! YAML as kubectl reads and writes it.
//!
//! Fact: kubectl reads YAML 1.1 (`sigs.k8s.io/yaml`), where a plain `yes`, `on` or `0644` is no text. So every text that any
//! reader could take for something else is written in quotes.

use std::fmt::Write as _;

use config::{Place, Problem};

use super::tree::{Tree, quoted};

/// Reads all documents; empty ones are left out.
pub(super) fn read(name: &str, text: &str) -> Result<Vec<Tree>, Problem> {
    let options = serde_saphyr::options! { legacy_octal_numbers: true, with_snippet: false };
    let trees: Vec<Tree> = serde_saphyr::from_multiple_with_options(text, options).map_err(|error| {
        let problem = Problem::new("this is not YAML that kubectl takes").why(error.to_string());
        match error.location() {
            Some(at) => {
                let number = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
                problem.at(Place {
                    file: name.to_owned(),
                    line: number(at.line()),
                    column: number(at.column()),
                })
            }
            None => problem.at(Place { file: name.to_owned(), line: 1, column: 1 }),
        }
    })?;
    Ok(trees.into_iter().filter(|tree| *tree != Tree::Null).collect())
}

/// Cuts a text into its documents by the lines between them, so that one that does not change can stay as it is. What holds
/// only comments stays with the document behind it. None where lines alone do not tell.
pub(super) fn cut(text: &str) -> Option<Vec<String>> {
    let (mut parts, mut part, mut is_empty) = (Vec::new(), String::new(), true);
    for line in text.lines() {
        if line.starts_with("...") || line.starts_with('%') {
            return None;
        }
        if line.starts_with("---") {
            let behind = line.trim_start_matches('-').trim_start();
            if !behind.is_empty() && !behind.starts_with('#') {
                return None;
            }
            if !is_empty {
                parts.push(std::mem::take(&mut part));
            } else if !part.trim().is_empty() {
                part.push_str(line);
                part.push('\n');
            }
            is_empty = true;
            continue;
        }
        is_empty &= line.trim().is_empty() || line.trim_start().starts_with('#');
        part.push_str(line);
        part.push('\n');
    }
    if !is_empty {
        parts.push(part);
    }
    Some(parts)
}

/// Whether something stands there that only people read. A `#` in a text counts too: better told once too often.
pub(super) fn is_commented(text: &str) -> bool {
    text.lines().any(|line| line.trim_start().starts_with('#') || line.contains(" #"))
}

/// One document, with a line end.
pub(super) fn write(tree: &Tree) -> String {
    let mut out = String::new();
    match tree {
        Tree::Map(entries) if !entries.is_empty() => write_map(entries, 0, false, &mut out),
        Tree::List(items) if !items.is_empty() => write_list(items, 0, &mut out),
        scalar => {
            write_scalar(scalar, 0, &mut out);
            out.push('\n');
        }
    }
    out
}

/// `begun`: the first key stands behind a `- ` that is there already.
fn write_map(entries: &[(String, Tree)], indent: usize, begun: bool, out: &mut String) {
    for (index, (key, value)) in entries.iter().enumerate() {
        if index > 0 || !begun {
            pad(indent, out);
        }
        out.push_str(&scalar(key));
        out.push(':');
        match value {
            Tree::Map(inner) if !inner.is_empty() => {
                out.push('\n');
                write_map(inner, indent + 2, false, out);
            }
            Tree::List(items) if !items.is_empty() => {
                out.push('\n');
                write_list(items, indent, out);
            }
            other => {
                out.push(' ');
                write_scalar(other, indent + 2, out);
                out.push('\n');
            }
        }
    }
}

fn write_list(items: &[Tree], indent: usize, out: &mut String) {
    for item in items {
        pad(indent, out);
        match item {
            Tree::Map(inner) if !inner.is_empty() => {
                out.push_str("- ");
                write_map(inner, indent + 2, true, out);
            }
            Tree::List(inner) if !inner.is_empty() => {
                out.push_str("-\n");
                write_list(inner, indent + 2, out);
            }
            other => {
                out.push_str("- ");
                write_scalar(other, indent + 2, out);
                out.push('\n');
            }
        }
    }
}

fn write_scalar(tree: &Tree, indent: usize, out: &mut String) {
    match tree {
        Tree::Null => out.push_str("null"),
        Tree::Bool(value) => {
            let _ = write!(out, "{value}");
        }
        Tree::Number(text) => out.push_str(text),
        Tree::List(_) => out.push_str("[]"),
        Tree::Map(_) => out.push_str("{}"),
        Tree::Text(text) if is_block(text) => {
            out.push_str(if text.ends_with('\n') { "|" } else { "|-" });
            for line in text.lines() {
                out.push('\n');
                if !line.is_empty() {
                    pad(indent, out);
                    out.push_str(line);
                }
            }
        }
        Tree::Text(text) => out.push_str(&scalar(text)),
    }
}

fn pad(indent: usize, out: &mut String) {
    out.extend(std::iter::repeat_n(' ', indent));
}

/// Whether a text reads well as a block, and comes back as it was.
fn is_block(text: &str) -> bool {
    text.trim_end_matches('\n').contains('\n')
        && !text.ends_with("\n\n")
        && !text.starts_with([' ', '\t', '\n'])
        && text.chars().all(|c| c == '\n' || is_printable(c))
        && text.lines().all(|line| !line.ends_with([' ', '\t']) && !line.starts_with('\t'))
}

fn is_printable(c: char) -> bool {
    matches!(c, '\t' | ' '..='~')
        || (c >= '\u{a0}' && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'))
}

/// A text on one line: plain where nobody can take it for anything else, else in double quotes.
fn scalar(text: &str) -> String {
    if is_plain(text) {
        return text.to_owned();
    }
    let mut out = String::new();
    for c in quoted(text).chars() {
        if is_printable(c) {
            out.push(c);
        } else {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
    out
}

fn is_plain(text: &str) -> bool {
    const WORDS: [&str; 9] = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];
    if is_quantity(text) {
        return true;
    }
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '_' | '/'));
    let good = |c: char| {
        c.is_ascii_alphanumeric()
            || matches!(c, '_' | '-' | '.' | '/' | ':' | '@' | '+' | '=' | ',' | '(' | ')' | ' ' | '\'')
    };
    begins
        && text.chars().all(good)
        && !text.contains(": ")
        && !text.ends_with([':', ' '])
        && !WORDS.contains(&text.to_ascii_lowercase().as_str())
}

/// `256Mi`, `100m`: a number with a unit is a text to every reader, and looks odd in quotes.
fn is_quantity(text: &str) -> bool {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    unit.len() < text.len() && matches!(unit, "m" | "k" | "M" | "G" | "T" | "Ki" | "Mi" | "Gi" | "Ti")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_comes_back_as_the_same_text() {
        let texts = [
            "",
            "a",
            "yes",
            "On",
            "0644",
            "1",
            "1.5",
            "1e3",
            "0x1f",
            ".5",
            "-",
            "- a",
            "a: b",
            "a:",
            "a #b",
            "#a",
            "null",
            "~",
            "2001-01-01",
            "12:30",
            "{a}",
            "[a]",
            "*a",
            "&a",
            "!a",
            "|",
            ">",
            "%a",
            "@a",
            "`a`",
            "'a'",
            "\"a\"",
            "a\nb",
            "a\nb\n",
            "a\n\nb",
            "a\n\n",
            " a",
            "a ",
            "\ta",
            "a\tb",
            "a\rb",
            "a\u{7f}",
            "a\u{85}b",
            "a\u{2028}b",
            "é",
            "😀",
            "a\n b\n",
            "\n",
            "<<",
            "256Mi",
            "100m",
            "1M",
            "m",
            "0b1",
            "=",
            "a\\b",
            "a, b",
            "durward.dev/lxcfs",
            "x\n\ty",
            "k8s.io/a: b\nc",
            "\u{feff}",
            "a\u{0}b",
        ];
        for text in texts {
            for tree in [
                Tree::Text(text.to_owned()),
                Tree::Map(vec![("k".to_owned(), Tree::List(vec![Tree::Text(text.to_owned())]))]),
                Tree::Map(vec![(
                    text.to_owned(),
                    Tree::Map(vec![("k".to_owned(), Tree::Text(text.to_owned()))]),
                )]),
            ] {
                let yaml = write(&tree);
                let back = read("-", &yaml).unwrap_or_else(|e| panic!("{e}\n{yaml}"));
                assert_eq!(back, [tree], "{yaml}");
            }
        }
    }

    #[test]
    fn is_written_as_kubectl_writes_it() {
        let json = r#"{"kind":"Pod","spec":{"containers":[{"name":"a","args":["x",[1,2]],"env":[]},{}],"x":{}},"s":"a\nb"}"#;
        assert_eq!(
            write(&Tree::from_json(json).unwrap()),
            "kind: Pod\nspec:\n  containers:\n  - name: a\n    args:\n    - x\n    -\n      - 1\n      - 2\n    env: []\n  - {}\n  x: {}\ns: |-\n  a\n  b\n"
        );
    }
}
