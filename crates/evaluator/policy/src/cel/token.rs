//! The lexer: longest match, positions in code points, the error texts of cel-go's ANTLR lexer.

use super::error::Problems;

/// A kind of token. The order is that of cel-go's grammar, since its messages list expected tokens in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Token {
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

/// All tokens with their names in messages.
const NAMES: [(Token, &str); 36] = [
    (Token::Equals, "'=='"),
    (Token::NotEquals, "'!='"),
    (Token::In, "'in'"),
    (Token::Less, "'<'"),
    (Token::LessEquals, "'<='"),
    (Token::GreaterEquals, "'>='"),
    (Token::Greater, "'>'"),
    (Token::And, "'&&'"),
    (Token::Or, "'||'"),
    (Token::LeftBracket, "'['"),
    (Token::RightBracket, "']'"),
    (Token::LeftBrace, "'{'"),
    (Token::RightBrace, "'}'"),
    (Token::LeftParen, "'('"),
    (Token::RightParen, "')'"),
    (Token::Dot, "'.'"),
    (Token::Comma, "','"),
    (Token::Minus, "'-'"),
    (Token::Not, "'!'"),
    (Token::Question, "'?'"),
    (Token::Colon, "':'"),
    (Token::Plus, "'+'"),
    (Token::Star, "'*'"),
    (Token::Slash, "'/'"),
    (Token::Percent, "'%'"),
    (Token::True, "'true'"),
    (Token::False, "'false'"),
    (Token::Null, "'null'"),
    (Token::Float, "NUM_FLOAT"),
    (Token::Int, "NUM_INT"),
    (Token::Uint, "NUM_UINT"),
    (Token::String, "STRING"),
    (Token::Bytes, "BYTES"),
    (Token::Identifier, "IDENTIFIER"),
    (Token::EscapedIdentifier, "ESC_IDENTIFIER"),
    (Token::End, "<EOF>"),
];

/// A set of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tokens(u64);

impl Tokens {
    pub(crate) const fn of(tokens: &[Token]) -> Self {
        let mut set = 0;
        let mut index = 0;
        while index < tokens.len() {
            set |= 1 << tokens[index] as u8;
            index += 1;
        }
        Self(set)
    }

    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn contains(self, token: Token) -> bool {
        self.0 & (1 << token as u8) != 0
    }

    /// The set as ANTLR prints it.
    pub(crate) fn display(self) -> String {
        let mut names: Vec<&str> = NAMES
            .iter()
            .filter(|(token, _)| *token != Token::End && self.contains(*token))
            .map(|(_, name)| *name)
            .collect();
        if self.contains(Token::End) {
            names.insert(0, "<EOF>");
        }
        match names.as_slice() {
            [name] => (*name).to_owned(),
            names => format!("{{{}}}", names.join(", ")),
        }
    }
}

/// A token with its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lexeme<'s> {
    pub(crate) token: Token,
    /// Offset in code points.
    pub(crate) offset: usize,
    pub(crate) text: &'s str,
}

/// Reads all tokens; the last one is [`Token::End`].
pub(crate) fn tokens<'s>(source: &'s str, problems: &mut dyn FnMut(usize, String)) -> Vec<Lexeme<'s>> {
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
            Scan::Error(matched) => {
                // The message contains the character that did not match as well, and both are skipped.
                let len = matched
                    + rest.get(matched..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8);
                problems(
                    offset,
                    format!("token recognition error at: '{}'", rest.get(..len).unwrap_or_default()),
                );
                len.max(1)
            }
        };
        offset += crate::value::number::chars(rest.get(..len).unwrap_or_default());
        at += len;
    }
    lexemes.push(Lexeme { token: Token::End, offset, text: "<EOF>" });
    lexemes
}

enum Scan {
    Hidden(usize),
    Token(Token, usize),
    /// No token; so many bytes matched the start of one.
    Error(usize),
}

fn scan(rest: &str, first: char) -> Scan {
    let bytes = rest.as_bytes();
    let second = bytes.get(1).copied();
    let one = |token| Scan::Token(token, 1);
    let two = |byte: u8, token, otherwise: Option<Token>| match (second == Some(byte), otherwise) {
        (true, _) => Scan::Token(token, 2),
        (false, Some(single)) => Scan::Token(single, 1),
        (false, None) => Scan::Error(1),
    };
    match first {
        ' ' | '\t' | '\r' | '\n' | '\u{c}' => Scan::Hidden(
            bytes.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | 0xc)).count(),
        ),
        '/' if second == Some(b'/') => Scan::Hidden(rest.find('\n').unwrap_or(rest.len())),
        '=' => two(b'=', Token::Equals, None),
        '!' => two(b'=', Token::NotEquals, Some(Token::Not)),
        '<' => two(b'=', Token::LessEquals, Some(Token::Less)),
        '>' => two(b'=', Token::GreaterEquals, Some(Token::Greater)),
        '&' => two(b'&', Token::And, None),
        '|' => two(b'|', Token::Or, None),
        '[' => one(Token::LeftBracket),
        ']' => one(Token::RightBracket),
        '{' => one(Token::LeftBrace),
        '}' => one(Token::RightBrace),
        '(' => one(Token::LeftParen),
        ')' => one(Token::RightParen),
        ',' => one(Token::Comma),
        '-' => one(Token::Minus),
        '?' => one(Token::Question),
        ':' => one(Token::Colon),
        '+' => one(Token::Plus),
        '*' => one(Token::Star),
        '/' => one(Token::Slash),
        '%' => one(Token::Percent),
        '.' if !second.is_some_and(|byte| byte.is_ascii_digit()) => one(Token::Dot),
        '.' | '0'..='9' => number(bytes),
        '"' | '\'' => match string(bytes, 0, false) {
            Ok(len) => Scan::Token(Token::String, len),
            Err(matched) => Scan::Error(matched),
        },
        '`' => escaped_identifier(bytes),
        'a'..='z' | 'A'..='Z' | '_' => word(rest),
        _ => Scan::Error(0),
    }
}

fn number(bytes: &[u8]) -> Scan {
    let digits = |from: usize| {
        bytes.get(from..).unwrap_or_default().iter().take_while(|byte| byte.is_ascii_digit()).count()
    };
    let suffixed = |len: usize| match bytes.get(len) {
        Some(b'u' | b'U') => Scan::Token(Token::Uint, len + 1),
        _ => Scan::Token(Token::Int, len),
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
            return Scan::Token(Token::Float, len + 1 + sign + exponent);
        }
    }
    if len > whole { Scan::Token(Token::Float, len) } else { suffixed(whole) }
}

fn escaped_identifier(bytes: &[u8]) -> Scan {
    let len = bytes
        .iter()
        .skip(1)
        .take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-' | b'/' | b' '))
        .count();
    match bytes.get(1 + len) {
        Some(b'`') if len > 0 => Scan::Token(Token::EscapedIdentifier, len + 2),
        _ => Scan::Error(1 + len),
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
            && let Ok(end) = string(bytes, len, raw)
        {
            return Scan::Token(if is_bytes { Token::Bytes } else { Token::String }, end);
        }
    }
    let token = match rest.get(..len).unwrap_or_default() {
        "in" => Token::In,
        "true" => Token::True,
        "false" => Token::False,
        "null" => Token::Null,
        _ => Token::Identifier,
    };
    Scan::Token(token, len)
}

/// The end of a string that starts with a quote at `start`, or how many bytes matched the start of a string.
fn string(bytes: &[u8], start: usize, raw: bool) -> Result<usize, usize> {
    let quote = bytes.get(start).copied().unwrap_or(b'"');
    let triple = bytes.get(start..start + 3) == Some(&[quote; 3]);
    let mut best = Err(start);
    if triple {
        match body(bytes, start + 3, raw, |rest| rest.starts_with(&[quote; 3]).then_some(3), false) {
            Ok(end) => return Ok(end),
            // An empty string precedes the third quote.
            Err(matched) => best = Err(matched),
        }
    }
    match body(bytes, start + 1, raw, |rest| (rest.first() == Some(&quote)).then_some(1), true) {
        Ok(end) => Ok(end),
        Err(matched) => Err(best.unwrap_or_else(|matched| matched).max(matched)),
    }
}

fn body(
    bytes: &[u8],
    start: usize,
    raw: bool,
    end: impl Fn(&[u8]) -> Option<usize>,
    one_line: bool,
) -> Result<usize, usize> {
    let mut at = start;
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        if let Some(len) = end(rest) {
            return Ok(at + len);
        }
        match rest.first() {
            None => return Err(at),
            Some(b'\n' | b'\r') if one_line => return Err(at),
            Some(b'\\') if !raw => at += escape(rest).map_err(|matched| at + matched)?,
            Some(_) => at += 1,
        }
    }
}

/// Length of an escape sequence, or how many of its bytes matched.
fn escape(rest: &[u8]) -> Result<usize, usize> {
    let hex = |len: usize| {
        let found = rest.iter().skip(2).take(len).take_while(|byte| byte.is_ascii_hexdigit()).count();
        if found == len { Ok(2 + len) } else { Err(2 + found) }
    };
    match rest.get(1) {
        Some(b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'"' | b'\'' | b'\\' | b'?' | b'`') => Ok(2),
        Some(b'x' | b'X') => hex(2),
        Some(b'u') => hex(4),
        Some(b'U') => hex(8),
        Some(b'0'..=b'3') => {
            let found = rest.iter().skip(2).take(2).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
            if found == 2 { Ok(4) } else { Err(2 + found) }
        }
        _ => Err(1),
    }
}

/// Reports lexer errors as syntax errors.
pub(crate) fn into_problems(problems: &mut Problems) -> impl FnMut(usize, String) {
    |offset, message| problems.report(offset, format!("Syntax error: {message}"))
}
