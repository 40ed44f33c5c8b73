//! Reads the comments of files in which `#` starts a comment: TOML, YAML, shell, make and similar files.
//!
//! A `#` starts a comment at the start of a line or after a space, unless a quotation mark before it on the line is open. So it
//! also reads the comments of a shell script in a YAML file. Other texts that it reads are the comments of Helm templates, and
//! the keys `description` and `reason` of TOML files.

use crate::markdown::Line;

/// Texts of TOML files.
const KEYS: [&str; 2] = ["description = \"", "reason = \""];

/// Returns the comments of `source` as blocks of lines. Adjacent lines with nothing but a comment are one block.
pub(crate) fn comments(source: &str) -> Vec<Vec<Line<'_>>> {
    let mut blocks: Vec<Vec<Line<'_>>> = Vec::new();
    let mut previous = 0;
    for (number, line) in (1..).zip(source.lines()) {
        let texts = KEYS.iter().filter_map(|key| line.split_once(key)?.1.split('"').next());
        blocks.extend(texts.map(|text| vec![Line { number, text }]));
        let Some((before, comment)) = split(line) else { continue };
        let line = Line { number, text: text(comment) };
        let is_alone = before.trim().is_empty();
        match blocks.last_mut() {
            Some(block) if is_alone && previous + 1 == number => block.push(line),
            _ => blocks.push(vec![line]),
        }
        previous = if is_alone { number } else { 0 };
    }
    blocks.extend(template_comments(source));
    blocks
}

/// Splits a line before its comment. `#!` and `#[` start no comment.
fn split(line: &str) -> Option<(&str, &str)> {
    let mut quote = None;
    let mut before = ' ';
    for (at, c) in line.char_indices() {
        match quote {
            Some(mark) if c == mark && before != '\\' => quote = None,
            // After a letter it is an apostrophe.
            None if matches!(c, '"' | '\'') && !before.is_alphanumeric() => quote = Some(c),
            None if c == '#' && before.is_whitespace() => {
                let (code, comment) = line.split_at_checked(at)?;
                let is_comment =
                    comment.trim_start_matches('#').chars().next().is_none_or(char::is_whitespace);
                return is_comment.then_some((code, comment));
            }
            _ => {}
        }
        before = c;
    }
    None
}

/// Returns the text of a comment, without the mark of a chart's value (`# --`). An indented line is an example and has no text.
fn text(comment: &str) -> &str {
    let text = comment.trim_start_matches('#');
    let text = text.strip_prefix(' ').unwrap_or(text);
    let text = text.strip_prefix("-- ").unwrap_or(text);
    if text.starts_with("  ") { "" } else { text }
}

/// Returns the comments of a Helm template: `{{/* text */}}`.
fn template_comments(source: &str) -> Vec<Vec<Line<'_>>> {
    let mut blocks = Vec::new();
    let (mut number, mut rest) = (1, source);
    while let Some((before, after)) = rest.split_once("/*") {
        number += before.matches('\n').count();
        rest = after;
        if before.trim_end_matches([' ', '-']).ends_with("{{") {
            let (comment, after) = after.split_once("*/").unwrap_or((after, ""));
            let lines = comment.lines().zip(number..);
            blocks.push(lines.map(|(text, number)| Line { number, text: text.trim() }).collect());
            number += comment.matches('\n').count();
            rest = after;
        }
    }
    blocks
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
    fn joins_adjacent_lines() {
        let source = "# head\n# more\n\n#\n# other\nkey = 1 # trailing\n# own\n## Help\n";
        assert_eq!(texts(source), ["1 head|2 more", "4 |5 other", "6 trailing", "7 own|8 Help"]);
    }

    #[test]
    fn ignores_a_hash_in_strings_and_words() {
        let source =
            "a = \"x # no\"\nb: 'x # no' # yes\nc=$# ${d#x} e#f\ng: \"\\\" # no\"\nh: the pod's name # and\n";
        assert_eq!(texts(source), ["2 yes", "5 and"]);
    }

    #[test]
    fn ignores_interpreters_and_attributes() {
        assert_eq!(texts("#!/bin/sh\n #[test]\n#![allow(x)]\n#hex\n# yes\n"), ["5 yes"]);
    }

    #[test]
    fn reads_the_comments_of_a_script_in_a_yaml_file() {
        assert_eq!(texts("run: |\n  # one\n  echo 'a' # two\n"), ["2 one", "3 two"]);
    }

    #[test]
    fn reads_descriptions_and_reasons() {
        let source = "description = \"What it is.\"\n    { name = \"a\", reason = \"no one\" }, # why\n";
        assert_eq!(texts(source), ["1 What it is.", "2 no one", "2 why"]);
    }

    #[test]
    fn leaves_out_examples_and_marks() {
        assert_eq!(texts("# -- The image.\n#\n#   make test\n"), ["1 The image.|2 |3 "]);
    }

    #[test]
    fn reads_the_comments_of_a_template() {
        let source = "{{/* One. */}}\nglob: mutants/*.txt\n{{- /*\nTwo\nlines. */ -}}\nx: 1\n";
        assert_eq!(texts(source), ["1 One.", "3 |4 Two|5 lines."]);
    }
}
