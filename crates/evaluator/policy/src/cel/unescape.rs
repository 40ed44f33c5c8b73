//! Values of literals.

use super::ast::Literal;
use super::token::{CelToken, Lexeme};

/// Why a literal is refused, in cel-go's words.
const INVALID: &str = "unable to unescape string";

/// The bytes of a literal with its quotes. Escapes of bytes stand for bytes, those of strings for code points.
pub(crate) fn unescape(literal: &str, bytes: bool) -> Result<Vec<u8>, String> {
    let text = literal.replace("\r\n", "\n").replace('\r', "\n");
    let (raw, text) = match text.strip_prefix(['r', 'R']) {
        Some(rest) => (true, rest),
        None => (false, text.as_str()),
    };
    let quotes =
        if text.len() >= 6 && (text.starts_with("'''") || text.starts_with("\"\"\"")) { 3 } else { 1 };
    let inner = text.get(quotes..text.len().saturating_sub(quotes)).ok_or(INVALID)?;
    if raw || !inner.contains('\\') {
        return Ok(inner.as_bytes().to_vec());
    }
    let mut out = Vec::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(next) = chars.next() {
        if next == '\\' {
            escape(&mut chars, bytes, &mut out)?;
        } else {
            push(next, &mut out);
        }
    }
    Ok(out)
}

fn push(character: char, out: &mut Vec<u8>) {
    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
}

fn escape(chars: &mut std::str::Chars<'_>, bytes: bool, out: &mut Vec<u8>) -> Result<(), String> {
    let kind = chars.next().ok_or("unable to unescape string, found '\\' as last character")?;
    let simple = match kind {
        'a' => 7,
        'b' => 8,
        'f' => 12,
        'n' => 10,
        'r' => 13,
        't' => 9,
        'v' => 11,
        '\\' | '\'' | '"' | '`' | '?' => u8::try_from(kind).unwrap_or(b'?'),
        'x' | 'X' => return code(chars, 16, 2, 0, bytes, out),
        'u' if !bytes => return code(chars, 16, 4, 0, false, out),
        'U' if !bytes => return code(chars, 16, 8, 0, false, out),
        '0'..='3' => return code(chars, 8, 2, kind.to_digit(8).unwrap_or(0), bytes, out),
        _ => return Err(INVALID.to_owned()),
    };
    out.push(simple);
    Ok(())
}

fn code(
    chars: &mut std::str::Chars<'_>,
    radix: u32,
    digits: usize,
    first: u32,
    bytes: bool,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let error = if radix == 8 { "unable to unescape octal sequence in string" } else { INVALID };
    let mut value = first;
    for _ in 0..digits {
        let digit = chars.next().and_then(|next| next.to_digit(radix)).ok_or(error)?;
        value = value.wrapping_mul(radix).wrapping_add(digit);
    }
    if bytes {
        out.push(u8::try_from(value & 0xff).unwrap_or(0));
    } else {
        push(char::from_u32(value).ok_or("invalid unicode code point")?, out);
    }
    Ok(())
}

/// The value of a literal's token.
pub(super) fn literal(lexeme: Lexeme<'_>, negative: bool) -> Result<Literal, String> {
    let text = lexeme.text;
    let sign = if negative { "-" } else { "" };
    let radix = |text: &str| match text.strip_prefix("0x") {
        Some(hex) => (format!("{sign}{hex}"), 16),
        None => (format!("{sign}{text}"), 10),
    };
    match lexeme.token {
        CelToken::Int => {
            let (digits, radix) = radix(text);
            i64::from_str_radix(&digits, radix)
                .map(Literal::Int)
                .map_err(|_| "invalid int literal".to_owned())
        }
        CelToken::Uint => {
            let (digits, radix) = radix(text.trim_end_matches(['u', 'U']));
            u64::from_str_radix(&digits, radix)
                .map(Literal::Uint)
                .map_err(|_| "invalid uint literal".to_owned())
        }
        CelToken::Float => match format!("{sign}{text}").parse::<f64>() {
            Ok(double) if double.is_finite() => Ok(Literal::Double(double)),
            _ => Err("invalid double literal".to_owned()),
        },
        CelToken::String => {
            let bytes = unescape(text, false)?;
            String::from_utf8(bytes).map(Literal::String).map_err(|_| "unable to unescape string".to_owned())
        }
        CelToken::Bytes => unescape(text.get(1..).unwrap_or_default(), true).map(Literal::Bytes),
        CelToken::True => Ok(Literal::Bool(true)),
        CelToken::False => Ok(Literal::Bool(false)),
        _ => Ok(Literal::Null),
    }
}
