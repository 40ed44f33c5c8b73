//! The rules that a program can check.

use crate::markdown::{Line, paragraphs};
use crate::sentences::{Sentence, sentences};

/// Words that no sentence opens with (rule L2).
const OPENINGS: [&str; 9] = ["What", "Where", "Who", "Whom", "Of", "None", "Nothing", "Nobody", "Whoever"];

/// Phrases that no text contains, and the rule against each.
const PHRASES: [(&str, &str); 10] = [
    ("whoever", "L1"),
    ("is told", "L3"),
    ("are told", "L3"),
    ("stands here", "L3"),
    ("stands there", "L3"),
    ("stands beside", "L3"),
    ("comes about", "L3"),
    ("in vain", "L4"),
    ("in spite of all", "L4"),
    ("may not", "L6"),
];

/// A shorter text is a label, not a sentence.
const SHORTEST_SENTENCE: usize = 3;

/// A longer sentence is counted against rule L7.
const LONGEST_SENTENCE: usize = 30;

/// A longer line of a page breaks rule L10. Code blocks, tables and the targets of links do not count.
const WIDEST_LINE: usize = 160;

/// A sentence or a line that breaks a rule.
pub(crate) struct Finding {
    pub(crate) line: usize,
    pub(crate) rule: &'static str,
    pub(crate) sentence: String,
}

/// The results of a text, or of several.
#[derive(Default)]
pub(crate) struct Results {
    pub(crate) sentences: usize,
    /// Lines that the rules do not apply to, because of a `lint: allow`.
    pub(crate) allowed: usize,
    pub(crate) openings: Vec<Finding>,
    pub(crate) long: Vec<Finding>,
    /// Findings of rules without a share: phrases and the length of lines.
    pub(crate) forbidden: Vec<Finding>,
}

/// Checks the lines of a page or of a comment.
pub(crate) fn check(lines: &[Line<'_>], results: &mut Results) {
    let allowed: Vec<usize> =
        lines.iter().filter(|line| is_allowed(line.text)).map(|line| line.number).collect();
    results.allowed += allowed.len();
    for paragraph in paragraphs(lines) {
        for sentence in sentences(&paragraph) {
            let (first, last) = sentence.lines;
            if allowed.iter().any(|line| (first..=last).contains(line)) {
                continue;
            }
            let finding = |rule| Finding { line: first, rule, sentence: sentence.text.to_owned() };
            if paragraph.is_prose && sentence.length() >= SHORTEST_SENTENCE {
                results.sentences += 1;
                if has_forbidden_opening(&sentence) {
                    results.openings.push(finding("L2"));
                }
                if sentence.length() > LONGEST_SENTENCE {
                    results.long.push(finding("L7"));
                }
            }
            results.forbidden.extend(forbidden_phrases(&sentence).map(finding));
        }
    }
}

/// Checks the length of a page's lines.
pub(crate) fn check_width(lines: &[Line<'_>], results: &mut Results) {
    let mut is_code = false;
    for Line { number, text } in lines {
        if text.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if !is_code && !text.trim_start().starts_with('|') && width(text) > WIDEST_LINE {
            let sentence = format!("the line has more than {WIDEST_LINE} characters");
            results.forbidden.push(Finding { line: *number, rule: "L10", sentence });
        }
    }
}

/// Returns the number of characters of a line without the targets of its links.
fn width(line: &str) -> usize {
    let mut parts = line.split("](");
    let first = parts.next().map_or(0, |part| part.chars().count());
    first
        + parts
            .map(|part| part.split_once(')').map_or(part, |(_, after)| after).chars().count())
            .sum::<usize>()
}

/// Whether a line has a `lint: allow(REASON)` outside code.
fn is_allowed(line: &str) -> bool {
    let after = line.split_once("lint: allow(").map(|(before, after)| (before.matches('`').count(), after));
    after.is_some_and(|(ticks, after)| ticks % 2 == 0 && after.find(')').is_some_and(|end| end > 0))
}

fn has_forbidden_opening(sentence: &Sentence<'_>) -> bool {
    let opening = sentence.words.trim_start_matches(|c: char| !c.is_alphanumeric());
    let end = opening.find(|c: char| !c.is_alphabetic()).unwrap_or(opening.len());
    opening.get(..end).is_some_and(|word| OPENINGS.iter().any(|opening| opening.eq_ignore_ascii_case(word)))
}

/// Returns the rules that the sentence breaks with a phrase.
fn forbidden_phrases(sentence: &Sentence<'_>) -> impl Iterator<Item = &'static str> {
    let words = sentence.words.to_lowercase();
    let words: Vec<&str> =
        words.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let text = format!(" {} ", words.join(" "));
    PHRASES.iter().filter(move |(phrase, _)| text.contains(&format!(" {phrase} "))).map(|(_, rule)| *rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(text: &str) -> Vec<&'static str> {
        let lines: Vec<_> = (1..).zip(text.lines()).map(|(number, text)| Line { number, text }).collect();
        let mut results = Results::default();
        check(&lines, &mut results);
        results.openings.iter().chain(&results.forbidden).map(|finding| finding.rule).collect()
    }

    #[test]
    fn finds_each_forbidden_opening() {
        for opening in OPENINGS {
            assert!(broken(&format!("It works. {opening} it is.")).contains(&"L2"), "{opening}");
            assert!(broken(&format!("({} it is.)", opening.to_lowercase())).contains(&"L2"), "{opening}");
        }
        assert_eq!(broken("What's read is kept."), ["L2"]);
        assert_eq!(broken("- **Of** two, one goes."), ["L2"]);
    }

    #[test]
    fn counts_long_sentences() {
        let long = |words: usize| {
            let text = vec!["word"; words].join(" ");
            let mut results = Results::default();
            check(&[Line { number: 1, text: &text }], &mut results);
            results.long.len()
        };
        assert_eq!((long(30), long(31)), (0, 1));
    }

    #[test]
    fn allows_code_headings_cells_and_other_openings() {
        for text in [
            "`None` if it is unknown.",
            "[`None`] is returned then.",
            "## What it does now",
            "| Where | What it is about |",
            "What else?",
            "Whereas this is fine.",
            "Offers all of it.",
        ] {
            assert_eq!(broken(text), Vec::<&str>::new(), "{text}");
        }
    }

    #[test]
    fn finds_long_lines_outside_code_tables_and_targets() {
        let (long, short) = ("ä".repeat(161), "ä".repeat(150));
        let page = format!(
            "{long}\n{short}[a](https://example.org)\n| {long} |\n```\n{long}\n```\n  {short} more words\n"
        );
        let lines: Vec<_> = (1..).zip(page.lines()).map(|(number, text)| Line { number, text }).collect();
        let mut results = Results::default();
        check_width(&lines, &mut results);
        let found: Vec<_> = results.forbidden.iter().map(|finding| (finding.line, finding.rule)).collect();
        assert_eq!(found, [(1, "L10"), (7, "L10")]);
    }

    #[test]
    fn finds_each_forbidden_phrase() {
        for (phrase, rule) in PHRASES {
            assert_eq!(broken(&format!("It {phrase}, then.")), [rule], "{phrase}");
            assert_eq!(broken(&format!("| It {} |", phrase.to_uppercase())), [rule], "{phrase}");
        }
        assert_eq!(broken("The caller is\ntold so."), ["L3"]);
    }

    #[test]
    fn finds_phrases_only_as_whole_words_and_outside_code() {
        for text in
            ["This told us.", "It may note it.", "The text `is told` is here.", "It is a\n\ntold tale."]
        {
            assert_eq!(broken(text), Vec::<&str>::new(), "{text}");
        }
    }

    #[test]
    fn skips_a_line_with_a_reason() {
        let page =
            "What is it for? lint: allow(a quotation)\n\nIt may not. <!-- lint: allow(text of an API) -->\n";
        assert_eq!(broken(page), Vec::<&str>::new());
        assert_eq!(broken("What is it for? lint: allow()"), ["L2"]);
        assert_eq!(broken("What does `lint: allow(REASON)` do?"), ["L2"]);
    }

    #[test]
    fn reports_the_line_of_the_sentence() {
        let lines = [
            Line { number: 8, text: "One is here now." },
            Line { number: 9, text: "Two is. None of it is." },
        ];
        let mut results = Results::default();
        check(&lines, &mut results);
        let finding = results.openings.first().unwrap();
        assert_eq!((finding.line, finding.sentence.as_str(), results.sentences), (9, "None of it is.", 2));
    }
}
