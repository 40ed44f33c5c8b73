//! Reads the paragraphs of a page or of a comment.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// A paragraph, a list item, a heading or a table cell, as one line of text. Each piece of code is the word `x`.
#[derive(Default)]
pub(crate) struct Paragraph {
    pub(crate) text: String,
    /// False for headings and table cells: they are phrases, and don't count as sentences.
    pub(crate) is_prose: bool,
    /// The position in `text` at which each piece of it starts, and the line of the piece.
    starts: Vec<(usize, usize)>,
}

impl Paragraph {
    /// Returns the line that contains the byte at `position` of the text, counted from 0.
    pub(crate) fn line_at(&self, position: usize) -> usize {
        let after = self.starts.partition_point(|(start, _)| *start <= position);
        self.starts.get(after.saturating_sub(1)).map_or(0, |(_, line)| *line)
    }
}

/// Returns the events of a page, each with the line it starts on, counted from 0.
pub(crate) fn events(text: &str) -> impl Iterator<Item = (Event<'_>, usize)> {
    let line_ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
    Parser::new_ext(text, Options::ENABLE_TABLES)
        .into_offset_iter()
        .map(move |(event, range)| (event, line_ends.partition_point(|end| *end < range.start)))
}

/// Returns the paragraphs of `text`, without code blocks, comments and the targets of links.
pub(crate) fn paragraphs(text: &str) -> Vec<Paragraph> {
    let mut paragraphs = Vec::new();
    let mut open = Paragraph { is_prose: true, ..Paragraph::default() };
    let mut is_code_block = false;
    for (event, line) in events(text) {
        let piece = match &event {
            Event::Text(_) if is_code_block => continue,
            Event::Text(text) => text,
            Event::Code(_) => "x",
            Event::SoftBreak | Event::HardBreak => " ",
            Event::Start(tag) if is_inline(tag.to_end()) => continue,
            Event::End(tag) if is_inline(*tag) => continue,
            Event::Start(tag) => {
                is_code_block = matches!(tag, Tag::CodeBlock(_));
                let is_prose = !matches!(tag, Tag::Heading { .. } | Tag::TableCell);
                paragraphs.push(std::mem::replace(&mut open, Paragraph { is_prose, ..Paragraph::default() }));
                continue;
            }
            Event::End(_) => {
                is_code_block = false;
                let next = Paragraph { is_prose: true, ..Paragraph::default() };
                paragraphs.push(std::mem::replace(&mut open, next));
                continue;
            }
            _ => continue,
        };
        open.starts.push((open.text.len(), line));
        open.text.push_str(piece);
    }
    paragraphs.retain(|paragraph| paragraph.text.contains(char::is_alphanumeric));
    paragraphs
}

/// Returns whether the element is a part of a paragraph.
fn is_inline(tag: TagEnd) -> bool {
    matches!(tag, TagEnd::Emphasis | TagEnd::Strong | TagEnd::Link | TagEnd::Image)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prose(page: &str) -> Vec<String> {
        paragraphs(page).into_iter().filter(|it| it.is_prose).map(|it| it.text).collect()
    }

    #[test]
    fn joins_lines_and_splits_list_items() {
        assert_eq!(prose("one\n**two**\n\nthree\n"), ["one two", "three"]);
        assert_eq!(prose("Before:\n- one\n  more\n- two\n"), ["Before:", "one more", "two"]);
    }

    #[test]
    fn leaves_out_code_comments_and_targets() {
        let page = "a `b` [c](d)\n```rust\nlet e = 1;\n\n```\n<!-- f -->\ng\n\n[h]: https://i\n~~~\nj\n~~~\n";
        assert_eq!(prose(page), ["a x c", "g"]);
    }

    #[test]
    fn headings_and_cells_are_phrases() {
        let page = "## What it does\n\n| a | b c |\n|---|---|\n| d | e |\n\nf\n";
        let split = paragraphs(page);
        let split: Vec<_> = split.iter().map(|it| (it.text.as_str(), it.is_prose, it.line_at(0))).collect();
        let phrases = [("What it does", 0), ("a", 2), ("b c", 2), ("d", 4), ("e", 4)];
        assert_eq!(split[..5], phrases.map(|(text, line)| (text, false, line)));
        assert_eq!(split[5..], [("f", true, 6)]);
    }

    #[test]
    fn a_paragraph_knows_the_line_of_each_position() {
        let paragraph = paragraphs("\none\ntwo").remove(0);
        assert_eq!([0, 3, 4, 6].map(|position| paragraph.line_at(position)), [1, 1, 2, 2]);
    }
}
