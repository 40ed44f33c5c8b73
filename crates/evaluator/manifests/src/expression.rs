//! Places within expressions: from line and column of the expression to those of the file.

use policy::field::Path;

use config::Place;

use crate::objects::Manifest;

/// Returns the place of a position in an expression. For a text with escapes it is near it.
pub fn position(object: &Manifest, path: &Path, (line, column): (usize, usize)) -> Place {
    let text = object.source.text.as_str();
    let (key, value) = (object.document.place(path), object.document.value_place(path));
    let at = |line: usize, column: usize| Place { file: object.source.name.clone(), line, column };
    let lines: Vec<&str> = text.lines().skip(key.line.saturating_sub(1)).collect();
    let key_line = lines.first().copied().unwrap_or_default();
    // The value of a block begins in the line after its indicator.
    let indicator = key_line.split_once(": ").and_then(|(_, rest)| rest.trim_start().chars().next());
    match indicator {
        Some('|') if value.line > key.line => {
            let content = lines.iter().skip(1).find(|line| !line.trim().is_empty());
            at(key.line + line, content.map_or(0, |line| indent(line)) + column)
        }
        Some('>') if value.line > key.line => folded(&lines, key.line, column, at),
        Some('"' | '\'') => at(value.line, value.column + column),
        _ if line == 1 => at(value.line, value.column + column - 1),
        _ => at(value.line, value.column),
    }
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Returns the place of a column in a folded text, whose lines are joined by spaces.
fn folded(lines: &[&str], start: usize, column: usize, at: impl Fn(usize, usize) -> Place) -> Place {
    let mut rest = column;
    for (index, line) in lines.iter().enumerate().skip(1) {
        let content = line.trim();
        let length = content.chars().count() + 1;
        if rest <= length {
            return at(start + index, indent(line) + rest);
        }
        rest -= length;
    }
    at(start, 1)
}
