//! The lexer: longest match, positions in code points.

/// A kind of token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CelToken {
    Equals,
    NotEquals,
    In,
    Less,
    LessEquals,
    GreaterEquals,
    Greater,
    And,
    Or,
    LeftBracket,
    RightBracket,
    LeftBrace,
    RightBrace,
    LeftParen,
    RightParen,
    Dot,
    Comma,
    Minus,
    Not,
    Question,
    Colon,
    Plus,
    Star,
    Slash,
    Percent,
    True,
    False,
    Null,
    Float,
    Int,
    Uint,
    String,
    Bytes,
    Identifier,
    EscapedIdentifier,
    End,
}

impl CelToken {
    /// Whether it is a literal without a sign.
    pub(super) fn is_literal(self) -> bool {
        matches!(
            self,
            Self::True
                | Self::False
                | Self::Null
                | Self::Float
                | Self::Int
                | Self::Uint
                | Self::String
                | Self::Bytes
        )
    }
}

/// A token with its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lexeme<'s> {
    pub(crate) token: CelToken,
    /// Offset in code points.
    pub(crate) offset: usize,
    pub(crate) text: &'s str,
}

/// Reads all tokens; the last one is [`CelToken::End`]. The error contains the offset and the text where no token begins.
pub(crate) fn tokens(source: &str) -> Result<Vec<Lexeme<'_>>, (usize, String)> {
    let mut lexemes = Vec::new();
    let (mut at, mut offset) = (0, 0);
    while let Some(rest) = source.get(at..)
        && let Some(first) = rest.chars().next()
    {
        let len = match scan(rest, first) {
            Scan::Hidden(len) => len,
            Scan::Token(token, len) => {
                lexemes.push(Lexeme { token, offset, text: rest.get(..len).unwrap_or_default() });
                len
            }
            Scan::Error => {
                let message = match first {
                    '"' | '\'' => "the string has no end, or an invalid escape".to_owned(),
                    '`' => "the name in backticks has no end, or an invalid character".to_owned(),
                    other => format!("unexpected character {other:?}"),
                };
                return Err((offset, message));
            }
        };
        offset += crate::value::number::chars(rest.get(..len).unwrap_or_default());
        at += len;
    }
    lexemes.push(Lexeme { token: CelToken::End, offset, text: "" });
    Ok(lexemes)
}

enum Scan {
    Hidden(usize),
    Token(CelToken, usize),
    /// No token.
    Error,
}

fn scan(rest: &str, first: char) -> Scan {
    let bytes = rest.as_bytes();
    let second = bytes.get(1).copied();
    let one = |token| Scan::Token(token, 1);
    let two = |byte: u8, token, otherwise: Option<CelToken>| match (second == Some(byte), otherwise) {
        (true, _) => Scan::Token(token, 2),
        (false, Some(single)) => Scan::Token(single, 1),
        (false, None) => Scan::Error,
    };
    match first {
        ' ' | '\t' | '\r' | '\n' | '\u{c}' => Scan::Hidden(
            bytes.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | 0xc)).count(),
        ),
        '/' if second == Some(b'/') => Scan::Hidden(rest.find('\n').unwrap_or(rest.len())),
        '=' => two(b'=', CelToken::Equals, None),
        '!' => two(b'=', CelToken::NotEquals, Some(CelToken::Not)),
        '<' => two(b'=', CelToken::LessEquals, Some(CelToken::Less)),
        '>' => two(b'=', CelToken::GreaterEquals, Some(CelToken::Greater)),
        '&' => two(b'&', CelToken::And, None),
        '|' => two(b'|', CelToken::Or, None),
        '[' => one(CelToken::LeftBracket),
        ']' => one(CelToken::RightBracket),
        '{' => one(CelToken::LeftBrace),
        '}' => one(CelToken::RightBrace),
        '(' => one(CelToken::LeftParen),
        ')' => one(CelToken::RightParen),
        ',' => one(CelToken::Comma),
        '-' => one(CelToken::Minus),
        '?' => one(CelToken::Question),
        ':' => one(CelToken::Colon),
        '+' => one(CelToken::Plus),
        '*' => one(CelToken::Star),
        '/' => one(CelToken::Slash),
        '%' => one(CelToken::Percent),
        '.' if !second.is_some_and(|byte| byte.is_ascii_digit()) => one(CelToken::Dot),
        '.' | '0'..='9' => number(bytes),
        '"' | '\'' => match string(bytes, 0, false) {
            Some(len) => Scan::Token(CelToken::String, len),
            None => Scan::Error,
        },
        '`' => escaped_identifier(bytes),
        'a'..='z' | 'A'..='Z' | '_' => word(rest),
        _ => Scan::Error,
    }
}

fn number(bytes: &[u8]) -> Scan {
    let digits = |from: usize| {
        bytes.get(from..).unwrap_or_default().iter().take_while(|byte| byte.is_ascii_digit()).count()
    };
    let suffixed = |len: usize| match bytes.get(len) {
        Some(b'u' | b'U') => Scan::Token(CelToken::Uint, len + 1),
        _ => Scan::Token(CelToken::Int, len),
    };
    if bytes.starts_with(b"0x") {
        let hex =
            bytes.get(2..).unwrap_or_default().iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        if hex > 0 {
            return suffixed(2 + hex);
        }
    }
    let whole = digits(0);
    let mut len = whole;
    if bytes.get(len) == Some(&b'.') && digits(len + 1) > 0 {
        len += 1 + digits(len + 1);
    }
    if matches!(bytes.get(len), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(len + 1), Some(b'+' | b'-')));
        let exponent = digits(len + 1 + sign);
        if exponent > 0 {
            return Scan::Token(CelToken::Float, len + 1 + sign + exponent);
        }
    }
    if len > whole { Scan::Token(CelToken::Float, len) } else { suffixed(whole) }
}

fn escaped_identifier(bytes: &[u8]) -> Scan {
    let len = bytes
        .iter()
        .skip(1)
        .take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-' | b'/' | b' '))
        .count();
    match bytes.get(1 + len) {
        Some(b'`') if len > 0 => Scan::Token(CelToken::EscapedIdentifier, len + 2),
        _ => Scan::Error,
    }
}

fn word(rest: &str) -> Scan {
    let bytes = rest.as_bytes();
    let len = bytes.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
    // A prefix of one or two letters can start a raw string or bytes.
    let prefix = bytes.iter().take_while(|byte| !matches!(byte, b'"' | b'\'')).count();
    if prefix == len && len <= 2 && bytes.get(len).is_some() {
        let (is_bytes, raw) = match rest.get(..len).unwrap_or_default() {
            "r" | "R" => (false, true),
            "b" | "B" => (true, false),
            "br" | "bR" | "Br" | "BR" => (true, true),
            _ => (false, false),
        };
        if (is_bytes || raw)
            && let Some(end) = string(bytes, len, raw)
        {
            return Scan::Token(if is_bytes { CelToken::Bytes } else { CelToken::String }, end);
        }
    }
    let token = match rest.get(..len).unwrap_or_default() {
        "in" => CelToken::In,
        "true" => CelToken::True,
        "false" => CelToken::False,
        "null" => CelToken::Null,
        _ => CelToken::Identifier,
    };
    Scan::Token(token, len)
}

/// The end of a string that starts with a quote at `start`.
fn string(bytes: &[u8], start: usize, raw: bool) -> Option<usize> {
    let quote = bytes.get(start).copied()?;
    let is_triple = bytes.get(start..start + 3) == Some(&[quote; 3]);
    // An empty string can precede a third quote.
    let triple = if is_triple { body(bytes, start + 3, raw, &[quote; 3]) } else { None };
    triple.or_else(|| body(bytes, start + 1, raw, &[quote]))
}

/// The end of a string after its opening quotes. One with a single quote ends in its line.
fn body(bytes: &[u8], start: usize, raw: bool, quotes: &[u8]) -> Option<usize> {
    let mut at = start;
    loop {
        let rest = bytes.get(at..)?;
        if rest.starts_with(quotes) {
            return Some(at + quotes.len());
        }
        match rest.first()? {
            b'\n' | b'\r' if quotes.len() == 1 => return None,
            b'\\' if !raw => at += escape(rest)?,
            _ => at += 1,
        }
    }
}

/// Length of an escape sequence.
fn escape(rest: &[u8]) -> Option<usize> {
    let digits = |len: usize, is_digit: fn(&u8) -> bool| {
        let digits = rest.get(2..2 + len)?;
        digits.iter().all(is_digit).then_some(2 + len)
    };
    match rest.get(1)? {
        b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'"' | b'\'' | b'\\' | b'?' | b'`' => Some(2),
        b'x' | b'X' => digits(2, u8::is_ascii_hexdigit),
        b'u' => digits(4, u8::is_ascii_hexdigit),
        b'U' => digits(8, u8::is_ascii_hexdigit),
        b'0'..=b'3' => digits(2, |byte| matches!(byte, b'0'..=b'7')),
        _ => None,
    }
}
