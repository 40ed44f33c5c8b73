//! Removes, repeats, swaps or inserts a token of an expression.

use fastrand::Rng;

use crate::literals::pick;

/// Tokens that are inserted.
const TOKENS: [&str; 26] = [
    "(", ")", "[", "]", "{", "}", ",", ".", ":", "?", "+", "&&", "!", "'", "\"", "in", "true", "1", "x", "$",
    "#", "&", "0x", "for", "==", "\u{e9}",
];

/// Changes a token.
pub(crate) fn spoil(rng: &mut Rng, source: &str) -> String {
    let mut tokens = tokens(source);
    let index = rng.usize(..tokens.len());
    match rng.u32(..4) {
        0 => {
            tokens.remove(index);
        }
        1 => tokens.insert(index, tokens[index]),
        2 if index + 1 < tokens.len() => tokens.swap(index, index + 1),
        _ => tokens.insert(index, pick(rng, &TOKENS)),
    }
    tokens.concat()
}

/// Words, spaces and single characters.
fn tokens(source: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let is_word = |character: char| character.is_alphanumeric() || character == '_';
        let end = if is_word(first) {
            rest.find(|character| !is_word(character)).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        found.push(&rest[..end]);
        rest = &rest[end..];
    }
    found
}
