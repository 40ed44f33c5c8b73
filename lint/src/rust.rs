//! Reads the comments of a Rust source file.
//!
//! The scanner knows as much of Rust's syntax as it takes to tell a comment from a string that contains `//`. String
//! literals are tokens of their own, so a check of texts for users can use the same scanner.

use crate::markdown::Line;

/// A piece of source text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Token {
    LineComment,
    BlockComment,
    String,
    Other,
}

/// Returns the comments of `source` as blocks of Markdown lines.
///
/// Adjacent lines with the same marker (`//`, `///` or `//!`) are one block. A comment behind code is a block of its own.
pub(crate) fn comments(source: &str) -> Vec<Vec<Line<'_>>> {
    let mut blocks: Vec<Vec<Line<'_>>> = Vec::new();
    let mut previous = (0, "");
    let (mut number, mut starts_line, mut rest) = (1, true, source);
    while !rest.is_empty() {
        let (token, length) = next_token(rest);
        let (text, after) = rest.split_at_checked(length.max(1)).unwrap_or((rest, ""));
        if token == Token::LineComment {
            let (marker, text) = split_marker(text);
            let line = Line { number, text };
            match blocks.last_mut() {
                Some(block) if starts_line && previous == (number - 1, marker) => block.push(line),
                _ => blocks.push(vec![line]),
            }
            previous = if starts_line { (number, marker) } else { (0, "") };
        } else if token == Token::BlockComment {
            let text = text.trim_start_matches(['/', '*', '!']).trim_end_matches(['/', '*']);
            let lines = text.lines().map(|line| line.trim_start().trim_start_matches('*').trim_start());
            blocks.push(lines.zip(number..).map(|(text, number)| Line { number, text }).collect());
        }
        number += text.matches('\n').count();
        starts_line = text.ends_with('\n') || (starts_line && text.trim().is_empty());
        rest = after;
    }
    blocks
}

/// Returns the string literals of `source` that are texts for users, each with its line number. Literals of tests are left out.
pub(crate) fn texts(source: &str) -> Vec<(usize, String)> {
    let mut texts = Vec::new();
    let (mut number, mut rest) = (1, source);
    while !rest.is_empty() && !rest.starts_with("#[cfg(test)]") {
        let (token, length) = next_token(rest);
        let (text, after) = rest.split_at_checked(length.max(1)).unwrap_or((rest, ""));
        if token == Token::String && text.starts_with('"') {
            let literal = unescaped(text.trim_matches('"'));
            if is_prose(&literal) {
                texts.push((number, literal));
            }
        }
        number += text.matches('\n').count();
        rest = after;
    }
    texts
}

/// Returns the value of a literal, with one word in place of each `{placeholder}`.
fn unescaped(literal: &str) -> String {
    let mut text = String::new();
    let mut chars = literal.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('\\', Some('n')) => {
                chars.next();
                text.push('\n');
            }
            ('\\', Some('\n')) => while chars.next_if(|c| c.is_whitespace()).is_some() {},
            ('\\', Some('x')) => {
                let _ = chars.by_ref().take(3).count();
                text.push(' ');
            }
            ('\\', Some(_)) => text.extend(chars.next()),
            ('{', Some('{')) => drop(chars.next()),
            ('{', _) => {
                while chars.next().is_some_and(|c| c != '}') {}
                text.push_str("`x`");
            }
            _ => text.push(c),
        }
    }
    text
}

/// Returns whether a literal is a text: four words with letters and spaces between them.
fn is_prose(text: &str) -> bool {
    let is_word = |word: &&str| word.chars().all(|c| c.is_alphabetic() || ",.:;()".contains(c));
    text.split(' ').filter(|word| word.len() > 1).filter(is_word).count() >= 4
}

/// Splits a line comment into its marker and its text, without the space between them.
fn split_marker(comment: &str) -> (&str, &str) {
    let marker =
        ["///", "//!", "//"].into_iter().find(|marker| comment.starts_with(marker)).unwrap_or_default();
    let text = comment.strip_prefix(marker).unwrap_or(comment);
    (marker, text.strip_prefix(' ').unwrap_or(text))
}

/// Returns the kind and the length of the token that `rest` begins with.
fn next_token(rest: &str) -> (Token, usize) {
    let Some(first) = rest.chars().next() else { return (Token::Other, 0) };
    match first {
        '/' if rest.starts_with("//") => (Token::LineComment, rest.find('\n').unwrap_or(rest.len())),
        '/' if rest.starts_with("/*") => (Token::BlockComment, block_comment(rest)),
        '"' => (Token::String, 1 + until(&rest[1..], '"')),
        '\'' => (Token::Other, character(rest)),
        _ if first.is_alphabetic() || first == '_' => {
            let name = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            let (prefix, after) = rest.split_at(name);
            let hashes = after.len() - after.trim_start_matches('#').len();
            let quoted = after[hashes..].starts_with('"');
            match prefix {
                "r" | "br" | "cr" if quoted => {
                    let end = format!("\"{}", "#".repeat(hashes));
                    let body = name + hashes + 1;
                    (Token::String, rest[body..].find(&end).map_or(rest.len(), |at| body + at + end.len()))
                }
                "b" | "c" if quoted && hashes == 0 => (Token::String, name + 1 + until(&after[1..], '"')),
                _ => (Token::Other, name),
            }
        }
        _ => (Token::Other, first.len_utf8()),
    }
}

/// Returns the length of a literal's text and its closing `quote`, which a backslash can escape.
fn until(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        if c == quote && !escaped {
            return at + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    text.len()
}

/// Returns the length of a character literal, or 1 for the quote of a lifetime.
fn character(rest: &str) -> usize {
    let mut chars = rest.chars().skip(1);
    match (chars.next(), chars.next()) {
        (Some('\\'), _) => 1 + until(&rest[1..], '\''),
        (Some(c), Some('\'')) => 2 + c.len_utf8(),
        _ => 1,
    }
}

/// Returns the length of a block comment, which can contain others.
fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        let after = rest.get(at..).unwrap_or_default();
        if after.starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if after.starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<String> {
        let text = |block: &Vec<Line<'_>>| {
            block.iter().map(|line| format!("{} {}", line.number, line.text)).collect::<Vec<_>>().join("|")
        };
        comments(source).iter().map(text).collect()
    }

    #[test]
    fn joins_adjacent_lines_with_the_same_marker() {
        let source = "//! head\n//! more\n\n/// item\n// inner\nfn f() {} // trailing\n// own\n";
        assert_eq!(texts(source), ["1 head|2 more", "4 item", "5 inner", "6 trailing", "7 own"]);
    }

    #[test]
    fn ignores_comment_markers_in_literals() {
        let source = "let a = \"// no\";\nlet b = r#\"\n// \"no\" \"#;\nlet c = b\"\\\"// no\";\nlet d = ('\"', '\\'', '/'); // yes\n";
        assert_eq!(texts(source), ["5 yes"]);
    }

    #[test]
    fn reads_texts_for_users_and_no_other_literals() {
        let source = "fn f() {\n    g(\"apps/v1\", \"it cannot be read: {why}\");\n    // \"a comment is no literal\"\n}\n#[cfg(test)]\nmod tests { \"none of this is read\" }";
        assert_eq!(super::texts(source), [(2, "it cannot be read: `x`".to_owned())]);
        let escaped = r#"let a = "first line of it\nsecond \"line\" of \
            the same text";"#;
        assert_eq!(
            super::texts(escaped),
            [(1, "first line of it\nsecond \"line\" of the same text".to_owned())]
        );
    }

    #[test]
    fn tells_lifetimes_from_characters() {
        assert_eq!(
            texts("fn f<'a>(x: &'a str) -> &'a str { x } // yes\nlet c = 'ä'; // and\n"),
            ["1 yes", "2 and"]
        );
    }

    #[test]
    fn reads_block_comments_with_others_inside() {
        assert_eq!(
            texts("/* one /* two */\n * three */ let a = 1; // four"),
            ["1 one /* two */|2 three ", "2 four"]
        );
    }

    #[test]
    fn ends_with_an_unfinished_literal() {
        assert_eq!(texts("let a = \"x\n// y"), Vec::<String>::new());
    }
}
