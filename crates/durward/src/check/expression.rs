//! Places within expressions: from line and column of the expression to those of the file.

use policy::field::Path;

use super::objects::Object;
use super::report::Position;

/// Returns the place of a position in an expression. For a folded or escaped text it is the start of the text, or near it.
pub(crate) fn position(object: &Object, path: &Path, (line, column): (usize, usize)) -> Position {
    let text = object.source.text.as_str();
    let start = object.origin.value_place(text, path);
    let at = |line: usize, column: usize| Position { file: object.source.name.clone(), line, column };
    let lines: Vec<&str> = text.lines().skip(start.line.saturating_sub(1)).collect();
    let first: String = lines
        .first()
        .map(|line| line.chars().skip(start.column.saturating_sub(1)).collect())
        .unwrap_or_default();
    match first.chars().next() {
        Some('|') => {
            let content = lines.iter().skip(1).find(|line| !line.trim().is_empty());
            let indent = content.map_or(0, |line| line.len() - line.trim_start().len());
            at(start.line + line, indent + column)
        }
        Some('>') => folded(&lines, start.line, column, at),
        Some('"' | '\'') => at(start.line, start.column + column),
        _ if line == 1 => at(start.line, start.column + column - 1),
        _ => at(start.line, start.column),
    }
}

/// Returns the place of a column in a folded text, whose lines are joined by spaces.
fn folded(lines: &[&str], start: usize, column: usize, at: impl Fn(usize, usize) -> Position) -> Position {
    let mut rest = column;
    for (index, line) in lines.iter().enumerate().skip(1) {
        let content = line.trim();
        let length = content.chars().count() + 1;
        if rest <= length {
            return at(start + index, line.len() - line.trim_start().len() + rest);
        }
        rest -= length;
    }
    at(start, 1)
}
