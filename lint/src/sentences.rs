//! Splits a paragraph into sentences.

use std::iter::repeat_n;

use crate::markdown::Paragraph;

/// Words that end with a period inside a sentence, without the last period.
const ABBREVIATIONS: [&str; 9] = ["e.g", "i.e", "etc", "cf", "vs", "approx", "resp", "incl", "excl"];

/// A sentence of a paragraph.
pub(crate) struct Sentence<'a> {
    pub(crate) text: &'a str,
    /// The same text without code, links and addresses, which no rule is about.
    pub(crate) words: String,
    /// The numbers of its first and its last line in the file.
    pub(crate) lines: (usize, usize),
}

impl Sentence<'_> {
    /// Counts the words. Code counts as one word.
    pub(crate) fn length(&self) -> usize {
        self.words.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count()
    }
}

/// Returns the sentences of `paragraph`.
pub(crate) fn sentences(paragraph: &Paragraph) -> Vec<Sentence<'_>> {
    let words = without_code(&paragraph.text);
    let mut start = 0;
    let mut sentences = Vec::new();
    for end in ends(&words) {
        if let (Some(text), Some(words)) = (paragraph.text.get(start..end), words.get(start..end)) {
            let first = start + text.len() - text.trim_start().len();
            let lines = (paragraph.line_at(first), paragraph.line_at(end.saturating_sub(1)));
            sentences.push(Sentence { text: text.trim(), words: words.trim().to_owned(), lines });
        }
        start = end;
    }
    sentences.retain(|sentence| !sentence.text.is_empty());
    sentences
}

/// Returns the positions behind each sentence.
fn ends(text: &str) -> Vec<usize> {
    let mut ends = Vec::new();
    for (at, mark) in text.char_indices().filter(|(_, c)| matches!(c, '.' | '!' | '?')) {
        let (before, after) = (&text[..at], &text[at + 1..]);
        let next = after.trim_start_matches(['"', '\'', ')', ']', '*', '_', '”', '’']);
        let is_quoted = after.starts_with(['"', '\'', '”', '’']);
        let last_word = before.rsplit(char::is_whitespace).next().unwrap_or_default();
        let last_word = last_word.trim_start_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
        let is_lowercase = next.trim_start().starts_with(char::is_lowercase);
        let goes_on = !next.starts_with(char::is_whitespace)
            || (mark == '.' && ABBREVIATIONS.contains(&last_word.as_str()))
            || (is_lowercase && (is_quoted || before.ends_with('.')));
        if !goes_on {
            ends.push(text.len() - next.len());
        }
    }
    ends.push(text.len());
    ends
}

/// Replaces code, addresses and link targets, and keeps every position.
///
/// Code and addresses stay a word, so that a sentence can begin with them.
fn without_code(text: &str) -> String {
    let mut words = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (length, filler) = match first {
            '`' => (code_span(rest), Some('x')),
            'h' if rest.starts_with("https://") || rest.starts_with("http://") => (address(rest), Some('x')),
            ']' if rest.starts_with("](") => (rest.find(')').map_or(1, |end| end + 1), Some(' ')),
            '<' if rest.starts_with("<!--") => (rest.find("-->").map_or(1, |end| end + 3), Some(' ')),
            _ => (first.len_utf8(), None),
        };
        match filler {
            Some(filler) => words.extend(repeat_n(filler, length)),
            None => words.push(first),
        }
        rest = rest.get(length..).unwrap_or_default();
    }
    words
}

/// Returns the length of a code span with its backticks, or 1 if it is not closed.
fn code_span(rest: &str) -> usize {
    let body = rest.trim_start_matches('`');
    let ticks = rest.len() - body.len();
    let end = body.match_indices(&rest[..ticks]).map(|(at, _)| at);
    end.map(|at| at + ticks).find(|end| !body[*end..].starts_with('`')).map_or(ticks, |end| ticks + end)
}

/// Returns the length of an address without the punctuation behind it.
fn address(rest: &str) -> usize {
    let word = rest.split(|c: char| c.is_whitespace() || matches!(c, '>' | ')')).next().unwrap_or_default();
    word.trim_end_matches(['.', ',', ';', ':', '!', '?']).len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::markdown::{Line, paragraphs};

    fn split(text: &str) -> Vec<String> {
        let lines: Vec<_> = (1..).zip(text.lines()).map(|(number, text)| Line { number, text }).collect();
        let paragraphs = paragraphs(&lines);
        paragraphs.iter().flat_map(sentences).map(|sentence| sentence.text.to_owned()).collect()
    }

    #[test]
    fn splits_at_periods_and_other_marks() {
        assert_eq!(
            split("Reads a file. Is it closed? Yes! (It is.) etcd answers. End"),
            ["Reads a file.", "Is it closed?", "Yes!", "(It is.)", "etcd answers.", "End"]
        );
    }

    #[test]
    fn splits_no_abbreviation_number_or_ellipsis() {
        for text in
            ["Some types, e.g. Pods, i.e. objects vs. None.", "A budget of 1.5 s.", "From a, b, ... and c."]
        {
            assert_eq!(split(text), [text]);
        }
    }

    #[test]
    fn splits_neither_code_nor_addresses() {
        for text in
            ["The call `a. B` returns `x?. Y`.", "See https://a.b/c?d=e! now", "A [link](a. B) is kept."]
        {
            assert_eq!(split(text).len(), 1 + usize::from(text.contains("now")), "{text}");
        }
    }

    #[test]
    fn a_sentence_knows_its_lines() {
        let lines = [Line { number: 3, text: "One. Two is" }, Line { number: 4, text: "longer. Three." }];
        let paragraphs = paragraphs(&lines);
        let lines: Vec<_> = paragraphs.iter().flat_map(sentences).map(|sentence| sentence.lines).collect();
        assert_eq!(lines, [(3, 3), (3, 4), (4, 4)]);
    }

    #[test]
    fn code_is_one_word() {
        let lines = [Line { number: 1, text: "``a ` b c`` is `None - 1`, see [`d e`](f g)." }];
        let paragraphs = paragraphs(&lines);
        assert_eq!(paragraphs.iter().flat_map(sentences).map(|sentence| sentence.length()).sum::<usize>(), 5);
    }

    #[test]
    fn an_open_backtick_hides_nothing() {
        assert_eq!(split("A ` mark. None."), ["A ` mark.", "None."]);
    }
}
