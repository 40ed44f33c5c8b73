//! Errors of expressions with their position and source line, as cel-go prints them. Only syntax errors have words of this crate.

use crate::value::number::chars;

/// Errors that are printed; cel-go counts the others.
const MAX_ERRORS: usize = 100;
/// Longest source line that is printed, in bytes.
const MAX_SNIPPET: usize = 16_384;

/// An error at an offset in code points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExpressionProblem {
    /// Absent for errors without a position, such as too deep recursion.
    pub(crate) offset: Option<usize>,
    pub(crate) message: String,
}

/// The errors of one expression.
#[derive(Clone, Debug, Default)]
pub(crate) struct Problems {
    list: Vec<ExpressionProblem>,
    count: usize,
}

impl Problems {
    pub(crate) fn report(&mut self, offset: usize, message: String) {
        self.push(ExpressionProblem { offset: Some(offset), message });
    }

    /// Records a syntax error.
    pub(crate) fn report_syntax(&mut self, offset: usize, message: &str) {
        self.report(offset, format!("Syntax error: {message}"));
    }

    /// Records an error without a position.
    pub(crate) fn report_internal(&mut self, message: String) {
        self.push(ExpressionProblem { offset: None, message });
    }

    fn push(&mut self, problem: ExpressionProblem) {
        self.count += 1;
        if self.count <= MAX_ERRORS {
            self.list.push(problem);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All errors by position, each with its source line and a marker.
    pub(crate) fn display(&self, source: &str) -> String {
        let lines = Lines::new(source);
        let mut located: Vec<(i64, i64, &ExpressionProblem)> = self
            .list
            .iter()
            .map(|problem| match problem.offset {
                Some(offset) => {
                    let (line, column) = lines.locate(offset);
                    (
                        i64::try_from(line).unwrap_or(i64::MAX),
                        i64::try_from(column).unwrap_or(i64::MAX),
                        problem,
                    )
                }
                None => (-1, -1, problem),
            })
            .collect();
        located.sort_by_key(|(line, column, _)| (*line, *column));
        let mut texts: Vec<String> = located
            .into_iter()
            .map(|(line, column, problem)| {
                let mut text = format!("ERROR: <input>:{line}:{}: {}", column + 1, problem.message);
                if let (Ok(line), Ok(column)) = (usize::try_from(line), usize::try_from(column))
                    && let Some(snippet) = lines.text(line)
                {
                    mark(&mut text, snippet, column);
                }
                text
            })
            .collect();
        if self.count > MAX_ERRORS {
            texts.push(format!("{} more errors were truncated", self.count - MAX_ERRORS));
        }
        texts.join("\n")
    }

    /// Line and column (from 1) and text of each error.
    pub(crate) fn places(&self, source: &str) -> Vec<(usize, usize, String)> {
        let lines = Lines::new(source);
        let place = |problem: &ExpressionProblem| {
            let (line, column) = problem.offset.map_or((1, 0), |offset| lines.locate(offset));
            (line, column + 1, problem.message.clone())
        };
        self.list.iter().map(place).collect()
    }
}

/// Appends the source line and a line that marks the column.
fn mark(text: &mut String, snippet: &str, column: usize) {
    if snippet.len() > MAX_SNIPPET {
        return;
    }
    text.push_str("\n | ");
    text.push_str(&snippet.replace('\t', " "));
    text.push_str("\n | ");
    let mut wide = snippet.chars().map(|character| character.len_utf8() > 1);
    for _ in 0..column {
        match wide.next() {
            Some(true) => text.push('\u{ff0e}'),
            Some(false) => text.push('.'),
            None => break,
        }
    }
    text.push(if wide.next() == Some(true) { '\u{ff3e}' } else { '^' });
}

struct Lines<'s> {
    lines: Vec<&'s str>,
    starts: Vec<usize>,
}

impl<'s> Lines<'s> {
    fn new(source: &'s str) -> Self {
        let lines: Vec<&str> = source.split('\n').collect();
        let mut start = 0;
        let mut starts = Vec::with_capacity(lines.len());
        for line in &lines {
            starts.push(start);
            start += chars(line) + 1;
        }
        Self { lines, starts }
    }

    /// Line from 1 and column from 0.
    fn locate(&self, offset: usize) -> (usize, usize) {
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = line.checked_sub(1).and_then(|index| self.starts.get(index)).copied().unwrap_or(0);
        (line, offset - start)
    }

    fn text(&self, line: usize) -> Option<&'s str> {
        self.lines.get(line.checked_sub(1)?).copied()
    }
}
