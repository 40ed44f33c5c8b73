//! Reads the comments and the texts for users of source files.

use std::sync::LazyLock;

use regex::Regex;

use crate::rules::regex;

/// A page, a comment or a text, and the line on which it starts.
pub(crate) struct Block {
    pub(crate) line: usize,
    pub(crate) text: String,
}

/// Comments and literals of Rust. A character is matched so that its quotation mark does not start a string.
static TOKEN: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r#"(?xs)
        (?<marker> ///|//!|// )(?<comment> [^\n]* )
        | /\*[*!]? (?<block> .*? ) \*/
        | \b[bc]?r ( "[^"]*" | \#".*?"\# | \#\#".*?"\#\# )
        | \b[bc]" (?: [^"\\] | \\. )* "
        | " (?<string> (?: [^"\\] | \\. )* ) "
        | ' (?: [^'\\] | \\ [^']+ | \\' ) '
        "#,
    )
});

/// Returns the comments of Rust code and, if `with_texts`, its strings that are texts for users. Strings of tests are left out.
///
/// Adjacent lines with the same marker are one block. A comment behind code is a block of its own.
pub(crate) fn rust(code: &str, with_texts: bool) -> Vec<Block> {
    let tests = code.find("#[cfg(test)]").unwrap_or(code.len());
    let line_ends: Vec<usize> = code.match_indices('\n').map(|(at, _)| at).collect();
    let mut comments = Comments::default();
    let mut texts = Vec::new();
    for token in TOKEN.captures_iter(code) {
        let start = token.get(0).map_or(0, |token| token.start());
        let line = line_ends.partition_point(|end| *end < start) + 1;
        if let (Some(marker), Some(comment)) = (token.name("marker"), token.name("comment")) {
            let indented = code[..start].rsplit('\n').next().unwrap_or_default();
            comments.push(line, marker.as_str(), indented.trim().is_empty(), comment.as_str());
        } else if let Some(comment) = token.name("block") {
            let text = comment.as_str().lines().map(|line| line.trim_start_matches([' ', '*']));
            texts.push(Block { line, text: text.collect::<Vec<_>>().join("\n") });
        } else if let Some(string) = token.name("string").filter(|_| with_texts && start < tests) {
            let text = value(string.as_str());
            texts.extend(is_prose(&text).then_some(Block { line, text }));
        }
    }
    comments.blocks.into_iter().chain(texts).collect()
}

/// Line comments. Adjacent ones are one block.
#[derive(Default)]
struct Comments<'a> {
    blocks: Vec<Block>,
    /// The line and the marker of the last comment, if nothing is before it on its line.
    previous: (usize, &'a str),
}

impl<'a> Comments<'a> {
    fn push(&mut self, line: usize, marker: &'a str, is_alone: bool, text: &str) {
        let text = text.strip_prefix(' ').unwrap_or(text);
        match self.blocks.last_mut() {
            Some(block) if is_alone && self.previous == (line - 1, marker) => {
                block.text.push('\n');
                block.text.push_str(text);
            }
            _ => self.blocks.push(Block { line, text: text.to_owned() }),
        }
        self.previous = if is_alone { (line, marker) } else { (0, "") };
    }
}

/// Returns the value of a string, with a piece of code in place of each `{placeholder}`.
fn value(string: &str) -> String {
    static ESCAPE: LazyLock<Regex> =
        LazyLock::new(|| regex(r"\\n[ ]*|\\\n\s*|\\x..|\\u\{[^}]*\}|\\.|\{\{|\}\}|\{[^}]*\}"));
    let value = |escape: &regex::Captures<'_>| match &escape[0] {
        escape if escape.starts_with("\\n") => "\n".to_owned(),
        escape if escape.starts_with("\\x") || escape.starts_with("\\u") => " ".to_owned(),
        escape if escape.starts_with("\\\n") => String::new(),
        escape if escape.starts_with('\\') => escape[1..].to_owned(),
        "{{" | "}}" => escape[0][1..].to_owned(),
        _ => "`x`".to_owned(),
    };
    ESCAPE.replace_all(string, value).trim_start().to_owned()
}

/// Returns whether a string is a text: four words with letters and spaces between them.
fn is_prose(text: &str) -> bool {
    let is_word = |word: &&str| word.chars().all(|c| c.is_alphabetic() || ",.:;()".contains(c));
    text.split(' ').filter(|word| word.len() > 1).filter(is_word).count() >= 4
}

/// Returns the comments of a file in which `#` starts one, and other texts: `description` and `reason` in TOML, and the comments
/// of Helm templates (`{{/* text */}}`).
///
/// A comment starts at the start of a line or after a space. It also has a space behind `#`, unlike `#!` and `#[`. A quoted text
/// before it is closed.
pub(crate) fn hash(source: &str) -> Vec<Block> {
    static COMMENT: LazyLock<Regex> = LazyLock::new(|| {
        regex(r#"^((?:[^"'\s#]\S*|["'](?:[^"'\\]|\\.)*["']\S*|\s)*?)(?:^|\s)#+(?:$|\s(.*))"#)
    });
    static KEY: LazyLock<Regex> = LazyLock::new(|| regex(r#"\b(?:description|reason) = "([^"]*)"#));
    static TEMPLATE: LazyLock<Regex> = LazyLock::new(|| regex(r"(?s)\{\{-?\s*/\*(.*?)\*/"));
    let mut comments = Comments::default();
    let mut texts = Vec::new();
    for (number, line) in (1..).zip(source.lines()) {
        let keys = KEY.captures_iter(line);
        texts.extend(keys.map(|key| Block { line: number, text: key[1].to_owned() }));
        let Some(comment) = COMMENT.captures(line) else { continue };
        let text = comment.get(2).map_or("", |text| text.as_str());
        // The mark of a chart's value; then an indented line, which is an example.
        let text = text.strip_prefix("-- ").unwrap_or(text);
        let text = if text.starts_with("  ") { "" } else { text };
        comments.push(number, "#", comment[1].trim().is_empty(), text);
    }
    for comment in TEMPLATE.captures_iter(source) {
        let start = comment.get(1).map_or(0, |comment| comment.start());
        let text: Vec<&str> = comment[1].lines().map(str::trim).collect();
        texts.push(Block { line: source[..start].matches('\n').count() + 1, text: text.join("\n") });
    }
    comments.blocks.into_iter().chain(texts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(blocks: &[Block]) -> Vec<String> {
        blocks.iter().map(|Block { line, text }| format!("{line} {}", text.replace('\n', "|"))).collect()
    }

    fn comments(code: &str) -> Vec<String> {
        blocks(&rust(code, false))
    }

    #[test]
    fn joins_adjacent_lines_with_the_same_marker() {
        let code = "//! head\n//! more\n\n/// item\n// inner\nfn f() {} // trailing\n// own\n";
        assert_eq!(comments(code), ["1 head|more", "4 item", "5 inner", "6 trailing", "7 own"]);
        assert_eq!(comments("/* one\n * two */ let a = 1; // three"), ["2 three", "1 one|two "]);
    }

    #[test]
    fn reads_no_comment_in_a_literal_and_no_literal_in_a_comment() {
        let code = "let a = \"// no\";\nlet b = r#\"\n// \"no\" \"#;\nlet c = b\"\\\"// no\";\nlet d = ('\"', '\\'', '/'); // yes\n";
        assert_eq!(comments(code), ["5 yes"]);
        let code = "fn f<'a>(x: &'a str) -> &'a str { x } // yes, don't\nlet c = 'ä'; // and\n";
        assert_eq!(comments(code), ["1 yes, don't", "2 and"]);
    }

    #[test]
    fn reads_texts_for_users_and_no_other_literals() {
        let code = "fn f() {\n    g(\"apps/v1\", \"it cannot be read: {why}\");\n    // \"a comment is no literal\"\n}\n\
                    #[cfg(test)]\nmod tests { \"none of this is read\" }";
        assert_eq!(blocks(&rust(code, true)), ["3 \"a comment is no literal\"", "2 it cannot be read: `x`"]);
        let escaped = r#"let a = "first {{line}} of it\nsecond \"line\" of \
            the same text";"#;
        assert_eq!(blocks(&rust(escaped, true)), ["1 first {line} of it|second \"line\" of the same text"]);
    }

    #[test]
    fn reads_comments_behind_a_hash() {
        let source = "#!/bin/sh\n# one\n# two\n#   example\n\na: b # -- three\nc: 'd # no' # four don't\ne#f: \"#g\"\n#[h]\n# five\n";
        assert_eq!(blocks(&hash(source)), ["2 one|two|", "6 three", "7 four don't", "10 five"]);
    }

    #[test]
    fn reads_texts_of_toml_and_templates() {
        let source = "description = \"one\"\nx = { a = 1, reason = \"two\" }\n{{- /*\nthree\n*/ -}}\n";
        assert_eq!(blocks(&hash(source)), ["1 one", "2 two", "3 |three"]);
    }
}
