//! Finds the end of a value, and checks its grammar. Each function takes the offset of a first byte and returns the offset after
//! the last one.
//!
//! Offsets are passed by value, so that the compiler keeps them in registers. Most of a review is keys and short strings, which
//! [`short_string`] reads.

use crate::json_error::JsonError;

/// Limit of nested arrays and objects, as in Go's `encoding/json`.
pub(crate) const MAX_DEPTH: usize = 10_000;

/// Levels of one call of [`levels`].
const LEVELS: usize = 62;

/// The levels of a call while none is open.
const END: u64 = 0b10;

/// Skips white space. API servers write none, so the usual case is one comparison.
#[inline]
pub(crate) fn white(bytes: &[u8], at: usize) -> usize {
    if bytes.get(at).is_some_and(|&byte| byte > b' ') { at } else { rest_of_white(bytes, at) }
}

#[cold]
fn rest_of_white(bytes: &[u8], mut at: usize) -> usize {
    while matches!(bytes.get(at), Some(b' ' | b'\n' | b'\r' | b'\t')) {
        at += 1;
    }
    at
}

/// Skips white space and `byte`.
#[inline]
pub(crate) fn expect(bytes: &[u8], at: usize, byte: u8, what: &'static str) -> Result<usize, JsonError> {
    let at = white(bytes, at);
    if bytes.get(at) == Some(&byte) { Ok(at + 1) } else { Err(JsonError { at, what }) }
}

/// Skips white space and a value.
pub(crate) fn value(bytes: &[u8], at: usize) -> Result<usize, JsonError> {
    levels(bytes, at, 0)
}

/// Skips a value below `above` open arrays and objects. It calls itself once for [`LEVELS`] of them, so the stack stays small.
fn levels(bytes: &[u8], mut at: usize, above: usize) -> Result<usize, JsonError> {
    // Below the bit of the end, a bit for each open level: whether it is an object.
    let mut open = END;
    let full = END << LEVELS.min(MAX_DEPTH - above);
    loop {
        if open & 1 == 1 {
            at = key(bytes, at)?;
        }
        at = white(bytes, at);
        at = match bytes.get(at) {
            Some(b'"') => string(bytes, at)?,
            Some(&opening @ (b'{' | b'[')) => {
                let is_object = opening == b'{';
                let first = white(bytes, at + 1);
                if bytes.get(first) == Some(&closing(is_object)) {
                    first + 1
                } else if open >= full {
                    deeper(bytes, at, above + LEVELS)?
                } else {
                    open = open << 1 | u64::from(is_object);
                    at = first;
                    continue;
                }
            }
            Some(b'-' | b'0'..=b'9') => number(bytes, at)?,
            _ => word(bytes, at)?,
        };
        // A value has ended: close its parents, or continue with its sibling.
        loop {
            if open == END {
                return Ok(at);
            }
            let is_object = open & 1 == 1;
            at = white(bytes, at);
            match bytes.get(at) {
                Some(b',') => {
                    at += 1;
                    break;
                }
                Some(&byte) if byte == closing(is_object) => {
                    open >>= 1;
                    at += 1;
                }
                _ => return Err(unclosed(at, is_object)),
            }
        }
    }
}

fn closing(is_object: bool) -> u8 {
    if is_object { b'}' } else { b']' }
}

#[cold]
fn unclosed(at: usize, is_object: bool) -> JsonError {
    JsonError { at, what: if is_object { "a comma or } is expected" } else { "a comma or ] is expected" } }
}

#[cold]
fn deeper(bytes: &[u8], at: usize, above: usize) -> Result<usize, JsonError> {
    if above >= MAX_DEPTH {
        let what = "arrays and objects are nested deeper than 10000 levels";
        return Err(JsonError { at, what });
    }
    levels(bytes, at, above)
}

/// Skips white space, a key and its colon.
#[inline]
fn key(bytes: &[u8], at: usize) -> Result<usize, JsonError> {
    let at = white(bytes, at);
    if bytes.get(at) != Some(&b'"') {
        return Err(JsonError { at, what: "a key in double quotes is expected" });
    }
    expect(bytes, string(bytes, at)?, b':', "a colon is expected after the key")
}

/// Skips a string from its opening quote.
#[inline]
pub(crate) fn string(bytes: &[u8], quote: usize) -> Result<usize, JsonError> {
    match short_string(bytes, quote) {
        Some(end) => Ok(end + 1),
        None => Ok(long_string(bytes, quote)?.0),
    }
}

/// Returns the offset of the closing quote of a string that is shorter than [`STEP`] bytes and has no escapes. Returns none for
/// other strings and near the end of the text, which [`long_string`] reads. Most strings of a review are short, so only this
/// function is inlined.
#[inline]
pub(crate) fn short_string(bytes: &[u8], quote: usize) -> Option<usize> {
    let (first, step) = bytes.get(quote..)?.first_chunk::<{ 1 + STEP }>()?.split_first()?;
    let (words, _) = step.as_chunks();
    let end = quote + 1 + first_special(words)?;
    (*first == b'"' && bytes.get(end) == Some(&b'"')).then_some(end)
}

/// Skips any string from its opening quote. Also returns whether it has escapes.
#[inline(never)]
pub(crate) fn long_string(bytes: &[u8], quote: usize) -> Result<(usize, bool), JsonError> {
    if bytes.get(quote) != Some(&b'"') {
        return Err(JsonError { at: quote, what: "a string is expected" });
    }
    let (mut at, mut is_escaped) = (plain(bytes, quote + 1), false);
    loop {
        match bytes.get(at) {
            Some(b'"') => return Ok((at + 1, is_escaped)),
            Some(b'\\') => at = escape(bytes, at)?,
            Some(_) => {
                return Err(JsonError { at, what: "a control character must be escaped in a string" });
            }
            None => return Err(JsonError { at, what: "the text ends within a string" }),
        }
        is_escaped = true;
        at = plain(bytes, at);
    }
}

/// Skips an escape from its backslash.
fn escape(bytes: &[u8], at: usize) -> Result<usize, JsonError> {
    match bytes.get(at + 1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 2),
        Some(b'u')
            if bytes.get(at + 2..at + 6).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) =>
        {
            Ok(at + 6)
        }
        _ => Err(JsonError { at, what: "invalid escape in a string" }),
    }
}

/// Bytes of a string that are searched at once.
const STEP: usize = 16;

/// Skips bytes of a string that are not a quote, a backslash or a control character.
fn plain(bytes: &[u8], mut at: usize) -> usize {
    while let Some(step) = bytes.get(at..).and_then(<[u8]>::first_chunk::<STEP>) {
        let (words, _) = step.as_chunks();
        match first_special(words) {
            Some(offset) => return at + offset,
            None => at += STEP,
        }
    }
    let rest = bytes.get(at..).unwrap_or_default();
    let is_special = |byte: &u8| *byte == b'"' || *byte == b'\\' || *byte < 0x20;
    at + rest.iter().position(is_special).unwrap_or(rest.len())
}

/// Returns the offset of the first byte that is a quote, a backslash or a control character.
#[inline]
fn first_special(words: &[[u8; 8]]) -> Option<usize> {
    for (index, &word) in words.iter().enumerate() {
        let found = special(u64::from_le_bytes(word));
        if found != 0 {
            return Some(8 * index + (found.trailing_zeros() / 8) as usize);
        }
    }
    None
}

/// Sets the highest bit of the first byte that is a quote, a backslash or a control character. Bits of later bytes are undefined.
#[inline]
fn special(word: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    // The exclusive or with 2 swaps the quote (0x22) and the space (0x20), and maps control characters to control characters. The
    // result is below 0x21 only for a quote or a control character.
    let quote_or_control = (word ^ (EACH * 0x02)).wrapping_sub(EACH * 0x21);
    let backslash = (word ^ (EACH * 0x5c)).wrapping_sub(EACH);
    // A subtraction borrows from the highest bit. Bytes above 0x7f have it before.
    (quote_or_control | backslash) & !word & (EACH * 0x80)
}

/// Skips a number.
#[inline]
fn number(bytes: &[u8], mut at: usize) -> Result<usize, JsonError> {
    if bytes.get(at) == Some(&b'-') {
        at += 1;
    }
    at = if bytes.get(at) == Some(&b'0') { at + 1 } else { digits(bytes, at)? };
    if bytes.get(at) == Some(&b'.') {
        at = digits(bytes, at + 1)?;
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        at += 1;
        if matches!(bytes.get(at), Some(b'+' | b'-')) {
            at += 1;
        }
        at = digits(bytes, at)?;
    }
    Ok(at)
}

/// Skips one or more digits.
#[inline]
fn digits(bytes: &[u8], first: usize) -> Result<usize, JsonError> {
    let mut at = first;
    while bytes.get(at).is_some_and(u8::is_ascii_digit) {
        at += 1;
    }
    if at == first { Err(JsonError { at, what: "a digit is expected" }) } else { Ok(at) }
}

/// Skips `true`, `false` or `null`.
#[inline]
fn word(bytes: &[u8], at: usize) -> Result<usize, JsonError> {
    let rest = bytes.get(at..).unwrap_or_default();
    if rest.starts_with(b"true") || rest.starts_with(b"null") {
        Ok(at + 4)
    } else if rest.starts_with(b"false") {
        Ok(at + 5)
    } else {
        Err(not_a_value(bytes, at))
    }
}

/// Returns the error for a byte with which no value begins, or for a wrong word.
#[cold]
pub(crate) fn not_a_value(bytes: &[u8], at: usize) -> JsonError {
    let what = match bytes.get(at) {
        Some(b't' | b'f' | b'n') => "true, false or null is expected",
        Some(_) => "a value must begin with one of {, [, \", a digit, -, true, false, null",
        None => "the text ends where a value is expected",
    };
    JsonError { at, what }
}
