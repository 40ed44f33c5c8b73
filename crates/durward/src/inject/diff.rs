//! What changes between two texts, line by line, in the unified form.

use std::fmt::Write as _;

/// Lines shown around a change.
const CONTEXT: usize = 3;
/// Past this many pairs of lines the middle is shown as replaced: nobody reads a diff of that size, and it must not take long.
const MOST: usize = 4_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line<'t> {
    Same(&'t str),
    Gone(&'t str),
    New(&'t str),
}

/// The difference, empty where there is none.
pub(super) fn unified(name: &str, before: &str, after: &str) -> String {
    if before == after {
        return String::new();
    }
    let lines = compare(&before.lines().collect::<Vec<_>>(), &after.lines().collect::<Vec<_>>());
    let mut out = format!("--- {name}\n+++ {name} (after the guards)\n");
    let is_change = |line: &Line<'_>| !matches!(line, Line::Same(_));
    let mut at = 0;
    while let Some(first) = lines.iter().skip(at).position(is_change).map(|found| at + found) {
        let start = first.saturating_sub(CONTEXT).max(at);
        let mut end = first;
        // A hunk goes on while the next change is near.
        while let Some(next) = lines.iter().skip(end).take(2 * CONTEXT + 1).position(is_change) {
            end += next + 1;
        }
        let end = (end + CONTEXT).min(lines.len());
        hunk(&lines, start, end, &mut out);
        at = end;
    }
    out
}

fn hunk(lines: &[Line<'_>], start: usize, end: usize, out: &mut String) {
    let count = |lines: &[Line<'_>], old: bool| {
        let counted = lines.iter().filter(|line| match line {
            Line::Same(_) => true,
            Line::Gone(_) => old,
            Line::New(_) => !old,
        });
        counted.count()
    };
    let (before, inside) =
        (lines.get(..start).unwrap_or_default(), lines.get(start..end).unwrap_or_default());
    let header = |old: bool| format!("{},{}", count(before, old) + 1, count(inside, old));
    // Writing to a String cannot fail.
    let _ = writeln!(out, "@@ -{} +{} @@", header(true), header(false));
    for line in inside {
        let (sign, text) = match line {
            Line::Same(text) => (' ', text),
            Line::Gone(text) => ('-', text),
            Line::New(text) => ('+', text),
        };
        out.push(sign);
        out.push_str(text);
        out.push('\n');
    }
}

/// The longest common subsequence, between the common beginning and the common end.
fn compare<'t>(before: &[&'t str], after: &[&'t str]) -> Vec<Line<'t>> {
    let head = before.iter().zip(after).take_while(|(a, b)| a == b).count();
    let (old, new) = (before.get(head..).unwrap_or_default(), after.get(head..).unwrap_or_default());
    let tail = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count();
    let old = old.get(..old.len() - tail).unwrap_or_default();
    let new = new.get(..new.len() - tail).unwrap_or_default();
    let mut lines: Vec<Line<'t>> = before.iter().take(head).map(|&line| Line::Same(line)).collect();
    if old.len().saturating_mul(new.len()) > MOST {
        lines.extend(old.iter().map(|&line| Line::Gone(line)));
        lines.extend(new.iter().map(|&line| Line::New(line)));
    } else {
        lines.extend(middle(old, new));
    }
    lines.extend(before.iter().skip(before.len() - tail).map(|&line| Line::Same(line)));
    lines
}

fn middle<'t>(old: &[&'t str], new: &[&'t str]) -> Vec<Line<'t>> {
    let width = new.len() + 1;
    // longest[i * width + j]: how much of old[i..] and new[j..] is common.
    let mut longest = vec![0u32; (old.len() + 1) * width];
    let at = |longest: &[u32], i: usize, j: usize| longest.get(i * width + j).copied().unwrap_or_default();
    for (i, x) in old.iter().enumerate().rev() {
        for (j, y) in new.iter().enumerate().rev() {
            let value = if x == y {
                at(&longest, i + 1, j + 1) + 1
            } else {
                at(&longest, i + 1, j).max(at(&longest, i, j + 1))
            };
            if let Some(cell) = longest.get_mut(i * width + j) {
                *cell = value;
            }
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut lines = Vec::new();
    loop {
        match (old.get(i), new.get(j)) {
            (Some(x), Some(y)) if x == y => {
                lines.push(Line::Same(x));
                (i, j) = (i + 1, j + 1);
            }
            (Some(x), y) if y.is_none() || at(&longest, i + 1, j) >= at(&longest, i, j + 1) => {
                lines.push(Line::Gone(x));
                i += 1;
            }
            (_, Some(y)) => {
                lines.push(Line::New(y));
                j += 1;
            }
            _ => return lines,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_what_is_added_with_three_lines_around() {
        let before = "a\nb\nc\nd\ne\nf\ng\n";
        let after = "a\nb\nc\nd\nx\ne\nf\ng\ny\n";
        assert_eq!(
            unified("f", before, after),
            "--- f\n+++ f (after the guards)\n@@ -2,6 +2,8 @@\n b\n c\n d\n+x\n e\n f\n g\n+y\n"
        );
    }

    #[test]
    fn far_changes_are_hunks_of_their_own() {
        let before: String = crate::output::lines((0..20).map(|n| n.to_string()));
        let after = before.replace("1\n2\n", "1\nx\n2\n").replace("18\n", "y\n");
        let diff = unified("f", &before, &after);
        assert_eq!(diff.matches("@@ -").count(), 2, "{diff}");
        assert!(diff.contains("-18\n+y\n"), "{diff}");
    }

    #[test]
    fn nothing_changed_is_nothing() {
        assert_eq!(unified("f", "a\n", "a\n"), "");
    }
}
