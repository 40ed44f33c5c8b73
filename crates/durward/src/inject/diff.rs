//! The difference between an object and what the guards make of it.

use similar::TextDiff;

/// Returns a unified diff, or an empty string if nothing changes.
pub(super) fn unified(name: &str, before: &str, after: &str) -> String {
    if before == after {
        return String::new();
    }
    let diff = TextDiff::from_lines(before, after);
    diff.unified_diff().header(name, &format!("{name} (after the guards)")).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_an_addition_with_three_lines_of_context() {
        let before = "a\nb\nc\nd\ne\nf\ng\n";
        let after = "a\nb\nc\nd\nx\ne\nf\ng\ny\n";
        assert_eq!(
            unified("f", before, after),
            "--- f\n+++ f (after the guards)\n@@ -2,6 +2,8 @@\n b\n c\n d\n+x\n e\n f\n g\n+y\n"
        );
    }

    #[test]
    fn is_empty_without_a_change() {
        assert_eq!(unified("f", "a\n", "a\n"), "");
    }
}
