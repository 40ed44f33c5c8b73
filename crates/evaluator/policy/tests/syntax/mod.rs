//! Syntax errors of expressions: this crate has words of its own, so only the rejection is compared.

const REFUSED: &str = "compilation failed: ";

/// A text that ends where the API server's or our words about a syntax error begin.
pub(crate) fn without_syntax_error(text: &str) -> String {
    match text.split_once(REFUSED) {
        Some((before, error)) if error.contains("Syntax error") => format!("{before}{REFUSED}Syntax error"),
        _ => text.to_owned(),
    }
}
