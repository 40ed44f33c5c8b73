//! The rules of CONTRIBUTING.md that a program can check.

use std::sync::LazyLock;

use regex::Regex;

use crate::markdown::{Paragraph, paragraphs};
use crate::source::Block;

/// Words that no sentence opens with (rule L2).
const OPENINGS: &str = "What|Where|Who|Whom|Of|None|Nothing|Nobody|Whoever";

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

/// Words that end with a period inside a sentence, without the last period.
const ABBREVIATIONS: [&str; 9] = ["e.g", "i.e", "etc", "cf", "vs", "approx", "resp", "incl", "excl"];

/// A shorter text is a label, not a sentence.
const SHORTEST_SENTENCE: usize = 3;

/// A longer sentence is counted against rule L7.
const LONGEST_SENTENCE: usize = 30;

/// A longer line of a page breaks rule L10. Code blocks, tables and the targets of links do not count.
const WIDEST_LINE: usize = 160;

static OPENING: LazyLock<Regex> = LazyLock::new(|| regex(&format!(r"(?i)^\W*({OPENINGS})\b")));

static PHRASE: LazyLock<Regex> = LazyLock::new(|| {
    let phrases: Vec<&str> = PHRASES.iter().map(|(phrase, _)| *phrase).collect();
    regex(&format!(r"(?i)\b({})\b", phrases.join("|")))
});

/// The end of a sentence, unless the text around it says otherwise.
static END: LazyLock<Regex> = LazyLock::new(|| regex(r#"[.!?](["')\]*_”’]*)\s+"#));

static TARGET: LazyLock<Regex> = LazyLock::new(|| regex(r"\]\([^)]*\)"));

static ALLOWED: LazyLock<Regex> = LazyLock::new(|| regex(r"^([^`]|`[^`]*`)*lint: allow\([^)]+\)"));

#[allow(clippy::expect_used, reason = "the expressions are constants, and every test compiles them")]
pub(crate) fn regex(expression: &str) -> Regex {
    Regex::new(expression).expect("a valid expression")
}

/// A sentence or a line that breaks a rule.
pub(crate) struct Finding {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) rule: &'static str,
    pub(crate) sentence: String,
}

/// The results of all texts.
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

/// Checks a page or a comment.
pub(crate) fn check(file: &str, block: &Block, results: &mut Results) {
    let lines = block.text.lines().enumerate();
    let allowed: Vec<usize> =
        lines.filter(|(_, line)| ALLOWED.is_match(line)).map(|(number, _)| number).collect();
    results.allowed += allowed.len();
    for paragraph in paragraphs(&block.text) {
        for (start, sentence) in sentences(&paragraph) {
            let first = paragraph.line_at(start);
            let last = paragraph.line_at(start + sentence.len() - 1);
            if allowed.iter().any(|line| (first..=last).contains(line)) {
                continue;
            }
            let finding = |rule| Finding {
                file: file.to_owned(),
                line: block.line + first,
                rule,
                sentence: sentence.to_owned(),
            };
            let is_word = |word: &&str| word.contains(char::is_alphanumeric);
            let length = sentence.split_whitespace().filter(is_word).count();
            if paragraph.is_prose && length >= SHORTEST_SENTENCE {
                results.sentences += 1;
                results.openings.extend(OPENING.is_match(sentence).then(|| finding("L2")));
                results.long.extend((length > LONGEST_SENTENCE).then(|| finding("L7")));
            }
            for found in PHRASE.find_iter(sentence) {
                let rule = PHRASES.iter().find(|(phrase, _)| phrase.eq_ignore_ascii_case(found.as_str()));
                results.forbidden.extend(rule.map(|(_, rule)| finding(rule)));
            }
        }
    }
}

/// Returns the sentences of a paragraph with their positions.
fn sentences(paragraph: &Paragraph) -> Vec<(usize, &str)> {
    let text = paragraph.text.as_str();
    let is_end = |found: &regex::Match<'_>| {
        let before = &text[..found.start()];
        let word = before.rsplit(char::is_whitespace).next().unwrap_or_default().to_lowercase();
        let word = word.trim_start_matches(|c: char| !c.is_alphanumeric());
        let is_quoted = found.as_str().contains(['"', '\'', '”', '’']);
        let continues =
            text[found.end()..].starts_with(char::is_lowercase) && (is_quoted || before.ends_with('.'));
        let is_abbreviation = found.as_str().starts_with('.') && ABBREVIATIONS.contains(&word);
        !continues && !is_abbreviation
    };
    let mut start = 0;
    let mut sentences = Vec::new();
    for end in END.find_iter(text).filter(is_end).map(|found| found.end()).chain([text.len()]) {
        sentences.push((start, text[start..end].trim_end()));
        start = end;
    }
    sentences.retain(|(_, sentence)| !sentence.is_empty());
    sentences
}

/// Checks the length of a page's lines.
pub(crate) fn check_width(file: &str, page: &str, results: &mut Results) {
    let mut is_code = false;
    for (number, line) in (1..).zip(page.lines()) {
        is_code ^= line.trim_start().starts_with("```");
        let width = || TARGET.replace_all(line, "]").chars().count();
        if !is_code && !line.trim_start().starts_with('|') && width() > WIDEST_LINE {
            let sentence = format!("the line has more than {WIDEST_LINE} characters");
            results.forbidden.push(Finding { file: file.to_owned(), line: number, rule: "L10", sentence });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(text: &str) -> Results {
        let mut results = Results::default();
        check("a.md", &Block { line: 1, text: text.to_owned() }, &mut results);
        results
    }

    fn broken(text: &str) -> Vec<&'static str> {
        let results = results(text);
        results.openings.iter().chain(&results.forbidden).map(|finding| finding.rule).collect()
    }

    fn split(text: &str) -> Vec<String> {
        let paragraphs = paragraphs(text);
        paragraphs.iter().flat_map(sentences).map(|(_, sentence)| sentence.to_owned()).collect()
    }

    #[test]
    fn splits_at_periods_and_other_marks() {
        assert_eq!(
            split("Reads a file. Is it closed? Yes! (It is.) etcd answers. End"),
            ["Reads a file.", "Is it closed?", "Yes!", "(It is.)", "etcd answers.", "End"]
        );
    }

    #[test]
    fn splits_no_abbreviation_number_ellipsis_code_or_address() {
        for text in [
            "Some types, e.g. Pods, i.e. objects vs. None.",
            "A pool of 1.5 s.",
            "From a, b, ... and c.",
            "The call `a. B` returns `x?. Y`.",
            "A [link](a.md) to https://a.b/c?d=e!f is kept.",
        ] {
            assert_eq!(split(text).len(), 1, "{text}");
        }
    }

    #[test]
    fn finds_each_forbidden_opening() {
        for opening in OPENINGS.split('|') {
            assert!(broken(&format!("It works. {opening} it is.")).contains(&"L2"), "{opening}");
            assert!(broken(&format!("({} it is.)", opening.to_lowercase())).contains(&"L2"), "{opening}");
        }
        assert_eq!(broken("What's read is kept."), ["L2"]);
        assert_eq!(broken("- **Of** two, one goes."), ["L2"]);
    }

    #[test]
    fn finds_each_forbidden_phrase() {
        for (phrase, rule) in PHRASES {
            assert_eq!(broken(&format!("It {phrase}, then.")), [rule], "{phrase}");
            assert_eq!(broken(&format!("# It {}", phrase.to_uppercase())), [rule], "{phrase}");
        }
        assert_eq!(broken("The caller is\ntold so."), ["L3"]);
    }

    #[test]
    fn allows_code_phrases_and_other_openings() {
        for text in [
            "`None` if it is unknown.",
            "## What it does now",
            "| Where | What it is about |\n|---|---|\n",
            "What else?",
            "Whereas this is fine.",
            "Offers all of it.",
            "This told us.",
            "It may note it.",
            "The text `is told` is here.",
            "It is a\n\ntold tale.",
        ] {
            assert_eq!(broken(text), Vec::<&str>::new(), "{text}");
        }
    }

    #[test]
    fn counts_long_sentences_and_code_as_one_word() {
        let long = |words: usize| results(&vec!["`a b`"; words].join(" ")).long.len();
        assert_eq!((long(30), long(31)), (0, 1));
    }

    #[test]
    fn finds_long_lines_outside_code_tables_and_targets() {
        let (long, short) = ("ä".repeat(161), "ä".repeat(150));
        let page = format!(
            "{long}\n{short}[a](https://example.org)\n| {long} |\n```\n{long}\n```\n  {short} more words\n"
        );
        let mut results = Results::default();
        check_width("a.md", &page, &mut results);
        let found: Vec<_> = results.forbidden.iter().map(|finding| (finding.line, finding.rule)).collect();
        assert_eq!(found, [(1, "L10"), (7, "L10")]);
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
        let mut results = Results::default();
        let block = Block { line: 8, text: "One is here now.\nTwo is. None of it is.".to_owned() };
        check("a.rs", &block, &mut results);
        let finding = results.openings.first().unwrap();
        assert_eq!((finding.line, finding.sentence.as_str(), results.sentences), (9, "None of it is.", 2));
    }
}
