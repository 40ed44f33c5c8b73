//! Mail addresses, as `ParseAddress` of Go's `net/mail` reads them.

use super::address;
use crate::release::Release;

/// Whether a text is one mail address, such as `Ada <ada@example.com>`.
pub(super) fn is_valid(text: &str, release: Release) -> bool {
    let mut parser = EmailParser { rest: text, release };
    parser.address(true) == Some(1) && parser.skip_comments() && parser.rest.is_empty()
}

struct EmailParser<'t> {
    rest: &'t str,
    release: Release,
}

impl<'t> EmailParser<'t> {
    /// Reads an address or, if allowed, a group. Returns the number of addresses.
    fn address(&mut self, allows_group: bool) -> Option<usize> {
        self.skip_space();
        if self.rest.is_empty() {
            return None;
        }
        let before = self.rest;
        if self.plain_address().is_some() {
            self.skip_space();
            if let Some(rest) = self.rest.strip_prefix('(') {
                self.rest = rest;
                let comment = self.comment()?;
                comment.split([' ', '\t']).all(is_readable).then_some(())?;
            }
            return Some(1);
        }
        self.rest = before;
        if !self.rest.starts_with('<') {
            self.phrase()?;
        }
        self.skip_space();
        if allows_group && self.consume(':') {
            return self.group();
        }
        (self.consume('<') && self.plain_address().is_some() && self.consume('>')).then_some(1)
    }

    fn group(&mut self) -> Option<usize> {
        self.skip_space();
        if self.consume(';') {
            return self.skip_comments().then_some(0);
        }
        let mut addresses = 0;
        loop {
            addresses += self.address(false)?;
            if !self.skip_comments() {
                return None;
            }
            if self.consume(';') {
                return self.skip_comments().then_some(addresses);
            }
            if !self.consume(',') {
                return None;
            }
        }
    }

    /// Reads `local@domain`.
    fn plain_address(&mut self) -> Option<()> {
        self.skip_space();
        if self.rest.starts_with('"') {
            if self.quoted()?.is_empty() {
                return None;
            }
        } else {
            self.strict_atom()?;
        }
        if !self.consume('@') {
            return None;
        }
        self.skip_space();
        if self.release.accepts_domain_literals()
            && let Some(literal) = self.rest.strip_prefix('[')
        {
            let (inner, rest) = literal.split_once(']')?;
            self.rest = rest;
            return address::is_address(inner).then_some(());
        }
        self.strict_atom()
    }

    /// Reads words until one is wrong. At least one is needed.
    fn phrase(&mut self) -> Option<()> {
        let mut words = 0;
        loop {
            if words > 0 && !self.skip_comments() {
                return None;
            }
            self.skip_space();
            if self.rest.is_empty() {
                break;
            }
            let word = if self.rest.starts_with('"') {
                self.quoted().map(|_| ())
            } else {
                self.atom().and_then(|atom| is_readable(atom).then_some(()))
            };
            if word.is_none() {
                break;
            }
            words += 1;
        }
        // The end of the text without a word is an empty phrase.
        (words > 0 || self.rest.is_empty()).then_some(())
    }

    fn quoted(&mut self) -> Option<&'t str> {
        let inner = self.rest.strip_prefix('"')?;
        let mut is_escaped = false;
        for (at, character) in inner.char_indices() {
            match character {
                '"' if !is_escaped => {
                    self.rest = inner.get(at + 1..)?;
                    return inner.get(..at);
                }
                '\\' if !is_escaped => is_escaped = true,
                ' ' | '\t' => is_escaped = false,
                other if is_visible(other) => is_escaped = false,
                _ => return None,
            }
        }
        None
    }

    fn strict_atom(&mut self) -> Option<()> {
        let atom = self.atom()?;
        (!atom.starts_with('.') && !atom.ends_with('.') && !atom.contains("..")).then_some(())
    }

    fn atom(&mut self) -> Option<&'t str> {
        const SPECIALS: &str = "()<>[]:;@\\,\"";
        let is_atom = |character: char| is_visible(character) && !SPECIALS.contains(character);
        let end = self.rest.find(|character| !is_atom(character)).unwrap_or(self.rest.len());
        let (atom, rest) = self.rest.split_at_checked(end)?;
        self.rest = rest;
        (!atom.is_empty()).then_some(atom)
    }

    /// Skips spaces and comments. Returns false if a comment has no end.
    fn skip_comments(&mut self) -> bool {
        self.skip_space();
        while self.consume('(') {
            if self.comment().is_none() {
                return false;
            }
            self.skip_space();
        }
        true
    }

    /// Reads a comment after its parenthesis.
    fn comment(&mut self) -> Option<String> {
        let mut comment = String::new();
        let mut depth = 1;
        let mut characters = self.rest.chars();
        while depth > 0 {
            let mut character = characters.next()?;
            match character {
                '\\' => character = characters.next().unwrap_or('\\'),
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => {}
            }
            if depth > 0 {
                comment.push(character);
            }
        }
        self.rest = characters.as_str();
        Some(comment)
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
    }

    fn consume(&mut self, character: char) -> bool {
        let rest = self.rest.strip_prefix(character);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }
}

fn is_visible(character: char) -> bool {
    !matches!(character, '\0'..=' ' | '\u{7f}')
}

/// Whether Go reads a word. It refuses encoded words of character sets that it does not know.
fn is_readable(word: &str) -> bool {
    let Some(inner) = word.strip_prefix("=?").and_then(|word| word.strip_suffix("?=")) else { return true };
    let parts: Vec<&str> = inner.split('?').collect();
    let [charset, encoding, content] = parts.as_slice() else { return true };
    let is_known = ["utf-8", "iso-8859-1", "us-ascii"].iter().any(|name| name.eq_ignore_ascii_case(charset));
    if is_known || charset.is_empty() {
        return true;
    }
    let is_encoded = match *encoding {
        "B" | "b" => content.is_empty() || crate::cel::library::formats::is_base64(content),
        "Q" | "q" => is_quoted_printable(content),
        _ => false,
    };
    !is_encoded
}

fn is_quoted_printable(text: &str) -> bool {
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let is_valid = match byte {
            b'=' => [bytes.next(), bytes.next()]
                .iter()
                .all(|digit| digit.is_some_and(|digit| digit.is_ascii_hexdigit())),
            b' '..=b'~' | b'\n' | b'\r' | b'\t' => true,
            _ => false,
        };
        if !is_valid {
            return false;
        }
    }
    true
}
