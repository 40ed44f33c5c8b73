//! Splits Markdown, of a page or of a doc comment, into paragraphs.

/// A line of a page or of a comment, with its number in the file.
pub(crate) struct Line<'a> {
    pub(crate) number: usize,
    pub(crate) text: &'a str,
}

/// A paragraph, a list item, a heading or a table cell, as one line of text.
#[derive(Default)]
pub(crate) struct Paragraph {
    pub(crate) text: String,
    /// False for headings and table cells: they are phrases, and count as no sentences.
    pub(crate) is_prose: bool,
    /// The position in `text` at which each line of the file starts, and the number of that line.
    starts: Vec<(usize, usize)>,
}

impl Paragraph {
    fn phrase(number: usize, text: &str) -> Self {
        Self { text: text.trim().to_owned(), is_prose: false, starts: vec![(0, number)] }
    }

    fn push(&mut self, number: usize, text: &str) {
        if !self.text.is_empty() {
            self.text.push(' ');
        }
        self.is_prose = true;
        self.starts.push((self.text.len(), number));
        self.text.push_str(text.trim());
    }

    /// Returns the number of the line that contains the byte at `position` of the text.
    pub(crate) fn line_at(&self, position: usize) -> usize {
        let after = self.starts.partition_point(|(start, _)| *start <= position);
        self.starts.get(after.saturating_sub(1)).map_or(0, |(_, number)| *number)
    }
}

/// Returns the paragraphs of `lines`. Code blocks and link targets are left out.
pub(crate) fn paragraphs(lines: &[Line<'_>]) -> Vec<Paragraph> {
    let mut paragraphs = Vec::new();
    let mut open = Paragraph::default();
    let mut fence: Option<&str> = None;
    for &Line { number, text } in lines {
        let text = text.trim().trim_start_matches("> ");
        if let Some(mark) = fence {
            if text.starts_with(mark) {
                fence = None;
            }
            continue;
        }
        fence = ["```", "~~~"].into_iter().find(|mark| text.starts_with(mark));
        let item = list_item(text);
        let is_heading = text.trim_start_matches('#').starts_with(' ') && text.starts_with('#');
        let is_table = text.starts_with('|');
        let is_rule = !text.is_empty() && text.chars().all(|c| matches!(c, '-' | '=' | '*' | '_' | ' '));
        let is_link_definition = text.starts_with('[') && text.contains("]: ");
        let ends_paragraph = text.is_empty()
            || is_heading
            || is_table
            || is_rule
            || is_link_definition
            || fence.is_some()
            || item.is_some();
        if ends_paragraph {
            paragraphs.push(std::mem::take(&mut open));
        }
        if is_heading {
            paragraphs.push(Paragraph::phrase(number, text.trim_start_matches('#')));
        } else if is_table {
            paragraphs.extend(text.split('|').map(|cell| Paragraph::phrase(number, cell)));
        } else if let Some(item) = item {
            open.push(number, item);
        } else if !ends_paragraph {
            open.push(number, text);
        }
    }
    paragraphs.push(open);
    paragraphs.retain(|paragraph| paragraph.text.contains(char::is_alphanumeric));
    paragraphs
}

/// Returns the text of a list item without its bullet or number.
fn list_item(text: &str) -> Option<&str> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let after = match digits {
        0 => text.strip_prefix(['-', '*', '+'])?,
        1..=2 => text.get(digits..)?.strip_prefix(['.', ')'])?,
        _ => return None,
    };
    after.strip_prefix(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(page: &str) -> Vec<(String, bool, usize)> {
        let lines: Vec<_> = (1..).zip(page.lines()).map(|(number, text)| Line { number, text }).collect();
        paragraphs(&lines).into_iter().map(|p| (p.text.clone(), p.is_prose, p.line_at(0))).collect()
    }

    fn prose(page: &str) -> Vec<String> {
        split(page).into_iter().filter(|(_, is_prose, _)| *is_prose).map(|(text, ..)| text).collect()
    }

    #[test]
    fn joins_the_lines_of_a_paragraph() {
        assert_eq!(prose("one\ntwo\n\nthree\n"), ["one two", "three"]);
    }

    #[test]
    fn splits_list_items_and_joins_their_continuation() {
        assert_eq!(
            prose("Before:\n- one\n  more\n* two\n1. three\n"),
            ["Before:", "one more", "two", "three"]
        );
    }

    #[test]
    fn skips_code_blocks_and_link_definitions() {
        assert_eq!(prose("a\n```rust\nlet b = 1;\n\n```\nc\n[d]: https://e\n~~~\nf\n~~~\n"), ["a", "c"]);
    }

    #[test]
    fn headings_and_cells_are_phrases() {
        let phrases = [("What it does", false, 1), ("a", false, 2), ("b c", false, 2)];
        assert_eq!(
            split("## What it does\n| a | b c |\n|---|---|\n"),
            phrases.map(|(text, is_prose, line)| (text.to_owned(), is_prose, line))
        );
    }

    #[test]
    fn a_paragraph_knows_the_line_of_each_position() {
        let lines = [Line { number: 7, text: "one" }, Line { number: 8, text: "two" }];
        let paragraph = paragraphs(&lines).remove(0);
        assert_eq!([0, 3, 4, 6].map(|position| paragraph.line_at(position)), [7, 7, 8, 8]);
    }
}
