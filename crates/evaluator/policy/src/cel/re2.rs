//! RE2 syntax, as Go's `regexp` accepts it, translated to the syntax of the crate `regex`.
//!
//! Both engines find the same matches for the same syntax tree, but they read some texts differently. In RE2 `\d`, `\w`, `\s` and
//! `\b` are ASCII, and a class has no set operations and no nested classes. `\Q…\E` quotes, and `a{,2}` is literal. `a**`,
//! `(?x)` and repetitions over 1,000 are refused. This module parses a
//! pattern and prints it for `regex`, with each character escaped.

use std::fmt::Write as _;

use super::unicode_names::{CATEGORIES, SCRIPTS};

/// Largest count of a repetition, also of nested ones together.
const MAX_REPEAT: u32 = 1_000;
/// Deepest nesting.
const MAX_DEPTH: usize = 250;

/// A refused pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("error parsing regexp: {code}: `{text}`")]
pub(crate) struct PatternSyntaxError {
    code: &'static str,
    text: String,
}

fn error<T>(code: &'static str, text: &str) -> Result<T, PatternSyntaxError> {
    Err(PatternSyntaxError { code, text: text.to_owned() })
}

/// Translates a pattern.
pub(crate) fn translate(pattern: &str) -> Result<String, PatternSyntaxError> {
    let mut translator = Translator { pattern, at: 0, out: String::with_capacity(pattern.len() + 16) };
    translator.alternation(0)?;
    if translator.at < pattern.len() {
        return error("unexpected )", pattern);
    }
    Ok(translator.out)
}

struct Translator<'p> {
    pattern: &'p str,
    at: usize,
    out: String,
}

impl<'p> Translator<'p> {
    fn rest(&self) -> &'p str {
        self.pattern.get(self.at..).unwrap_or_default()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.rest().chars().next()?;
        self.at += next.len_utf8();
        Some(next)
    }

    fn literal(&mut self, character: char) {
        self.out.push_str(&::regex::escape(character.encode_utf8(&mut [0; 4])));
    }

    /// Alternatives up to a closing parenthesis or the end. Returns the product of the repetitions within.
    fn alternation(&mut self, depth: usize) -> Result<u32, PatternSyntaxError> {
        if depth > MAX_DEPTH {
            return error("expression nests too deeply", self.pattern);
        }
        let mut largest = 1;
        // Whether there is an expression that can be repeated, and the text of a repetition just before.
        let mut repeatable: Option<u32> = None;
        let mut last_repeat: Option<usize> = None;
        while let Some(first) = self.rest().chars().next() {
            let start = self.at;
            match first {
                ')' => break,
                '|' => {
                    self.at += 1;
                    self.out.push('|');
                    repeatable = None;
                    last_repeat = None;
                    continue;
                }
                '*' | '+' | '?' => {
                    self.at += 1;
                    self.repetition(start, repeatable, last_repeat, &first.to_string())?;
                    last_repeat = Some(start);
                    continue;
                }
                '{' => {
                    if let Some((min, max, len)) = counts(self.rest()) {
                        self.at += len;
                        let text = self.pattern.get(start..self.at).unwrap_or_default();
                        if min > MAX_REPEAT || max.is_some_and(|max| max > MAX_REPEAT || max < min) {
                            return error("invalid repeat count", text);
                        }
                        let copies = max.unwrap_or(min).max(1);
                        let total = repeatable.unwrap_or(1).saturating_mul(copies);
                        if total > MAX_REPEAT && copies > 1 {
                            return error("invalid repeat count", text);
                        }
                        let written = match max {
                            Some(max) if max == min => format!("{{{min}}}"),
                            Some(max) => format!("{{{min},{max}}}"),
                            None => format!("{{{min},}}"),
                        };
                        self.repetition(start, repeatable, last_repeat, &written)?;
                        largest = largest.max(total);
                        repeatable = repeatable.map(|_| total);
                        last_repeat = Some(start);
                        continue;
                    }
                    self.at += 1;
                    self.literal('{');
                    repeatable = Some(1);
                }
                '(' => {
                    let inner = self.group(depth)?;
                    if let Some(inner) = inner {
                        largest = largest.max(inner);
                        repeatable = Some(inner);
                    }
                }
                '[' => {
                    self.class()?;
                    repeatable = Some(1);
                }
                '\\' => {
                    if self.rest().starts_with("\\Q") {
                        self.quoted();
                    } else {
                        self.escape()?;
                    }
                    repeatable = Some(1);
                }
                '.' | '^' | '$' => {
                    self.at += 1;
                    self.out.push(first);
                    repeatable = Some(1);
                }
                _ => {
                    self.at += first.len_utf8();
                    self.literal(first);
                    repeatable = Some(1);
                }
            }
            last_repeat = None;
        }
        Ok(largest)
    }

    /// Writes a repetition and its `?`.
    fn repetition(
        &mut self,
        start: usize,
        repeatable: Option<u32>,
        last: Option<usize>,
        written: &str,
    ) -> Result<(), PatternSyntaxError> {
        let lazy = self.rest().starts_with('?');
        self.at += usize::from(lazy);
        if let Some(last) = last {
            return error(
                "invalid nested repetition operator",
                self.pattern.get(last..self.at).unwrap_or_default(),
            );
        }
        if repeatable.is_none() {
            return error(
                "missing argument to repetition operator",
                self.pattern.get(start..self.at).unwrap_or_default(),
            );
        }
        self.out.push_str(written);
        if lazy {
            self.out.push('?');
        }
        Ok(())
    }

    /// A group. Flags without a group return nothing to repeat.
    fn group(&mut self, depth: usize) -> Result<Option<u32>, PatternSyntaxError> {
        let start = self.at;
        self.at += 1;
        if self.rest().starts_with('?') {
            if self.group_head(start)? {
                return Ok(None);
            }
        } else {
            self.out.push('(');
        }
        let inner = self.alternation(depth + 1)?;
        if !self.rest().starts_with(')') {
            return error("missing closing )", self.pattern);
        }
        self.at += 1;
        self.out.push(')');
        Ok(Some(inner))
    }

    /// The head of `(?…`. Returns whether it was flags for the rest of the group.
    fn group_head(&mut self, start: usize) -> Result<bool, PatternSyntaxError> {
        let rest = self.rest();
        for prefix in ["?P<", "?<"] {
            let Some(name_start) = rest.strip_prefix(prefix) else { continue };
            let whole = self.pattern.get(start..).unwrap_or_default();
            let Some(end) = name_start.find('>') else { return error("invalid named capture", whole) };
            let name = name_start.get(..end).unwrap_or_default();
            let text = self.pattern.get(start..=start + prefix.len() + 1 + end).unwrap_or_default();
            let valid =
                !name.is_empty() && name.chars().all(|next| next == '_' || next.is_ascii_alphanumeric());
            if !valid {
                return error("invalid named capture", text);
            }
            let _ = write!(self.out, "(?P<n{}_{name}>", self.out.len());
            self.at += prefix.len() + end + 1;
            return Ok(false);
        }
        // A repeated flag is an error of the crate `regex`. In RE2 the last one counts.
        let (mut on, mut off) = (String::new(), String::new());
        let (mut is_negated, mut seen) = (false, false);
        self.at += 1;
        while let Some(next) = self.next() {
            match next {
                'i' | 'm' | 's' | 'U' => {
                    on.retain(|flag| flag != next);
                    off.retain(|flag| flag != next);
                    if is_negated { &mut off } else { &mut on }.push(next);
                    seen = true;
                }
                '-' if !is_negated => {
                    is_negated = true;
                    seen = false;
                }
                ':' | ')' if !is_negated || seen => {
                    if !seen && next == ')' {
                        return Ok(true);
                    }
                    let minus = if off.is_empty() { "" } else { "-" };
                    let _ = write!(self.out, "(?{on}{minus}{off}{next}");
                    return Ok(next == ')');
                }
                _ => break,
            }
        }
        error("invalid or unsupported Perl syntax", self.pattern.get(start..self.at).unwrap_or_default())
    }

    fn quoted(&mut self) {
        self.at += 2;
        let rest = self.rest();
        let end = rest.find("\\E");
        let text = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
        for character in text.chars() {
            self.literal(character);
        }
        self.at += text.len() + if end.is_some() { 2 } else { 0 };
    }

    fn escape(&mut self) -> Result<(), PatternSyntaxError> {
        let rest = self.rest();
        let kind = rest.chars().nth(1);
        let written = match kind {
            Some('A') => "\\A",
            Some('z') => "\\z",
            Some('b') => "(?-u:\\b)",
            Some('B') => "(?-u:\\B)",
            _ => "",
        };
        if !written.is_empty() {
            self.at += 2;
            self.out.push_str(written);
            return Ok(());
        }
        if let Some(class) = self.class_escape()? {
            let _ = write!(self.out, "[{class}]");
            return Ok(());
        }
        let character = self.character_escape()?;
        self.literal(character);
        Ok(())
    }

    /// `\d`, `\pL` and the like, as the content of a class.
    fn class_escape(&mut self) -> Result<Option<String>, PatternSyntaxError> {
        let mut chars = self.rest().chars();
        chars.next();
        let Some(kind) = chars.next() else { return Ok(None) };
        let perl = match kind.to_ascii_lowercase() {
            'd' => "0-9",
            's' => "\\t\\n\\x0C\\r\\x20",
            'w' => "0-9A-Za-z_",
            'p' => return self.unicode_class(kind == 'P').map(Some),
            _ => return Ok(None),
        };
        self.at += 2;
        Ok(Some(if kind.is_ascii_uppercase() { format!("[^{perl}]") } else { perl.to_owned() }))
    }

    fn unicode_class(&mut self, negated: bool) -> Result<String, PatternSyntaxError> {
        let start = self.at;
        self.at += 2;
        let text = match self.next() {
            Some('{') => {
                let rest = self.rest();
                let Some(end) = rest.find('}') else {
                    return error(
                        "invalid character class range",
                        self.pattern.get(start..).unwrap_or_default(),
                    );
                };
                self.at += end + 1;
                rest.get(..end).unwrap_or_default()
            }
            Some(letter) => self.pattern.get(self.at - letter.len_utf8()..self.at).unwrap_or_default(),
            None => "",
        };
        let (negated, name) = match text.strip_prefix('^') {
            Some(name) => (!negated, name),
            None => (negated, text),
        };
        let sign = if negated { 'P' } else { 'p' };
        if name == "Any" {
            return Ok(if negated { "[^\\x{0}-\\x{10FFFF}]" } else { "\\x{0}-\\x{10FFFF}" }.to_owned());
        }
        // From Go 1.25 on names are compared without case, spaces and dashes, and categories have long names.
        let loose = |name: &str| name.to_ascii_lowercase().replace(['_', '-', ' '], "");
        let wanted = loose(name);
        let find = |names: &'static str| names.split(' ').find(|known| loose(known) == wanted);
        if let Some(category) = find(CATEGORIES) {
            return Ok(format!("\\{sign}{{gc={category}}}"));
        }
        if let Some(script) = find(SCRIPTS) {
            return Ok(format!("\\{sign}{{sc={script}}}"));
        }
        error("invalid character class range", self.pattern.get(start..self.at).unwrap_or_default())
    }

    /// An escape that stands for one character.
    fn character_escape(&mut self) -> Result<char, PatternSyntaxError> {
        let start = self.at;
        self.at += 1;
        let Some(kind) = self.next() else { return error("trailing backslash at end of expression", "") };
        let simple = match kind {
            'a' => Some('\u{7}'),
            'f' => Some('\u{c}'),
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            'v' => Some('\u{b}'),
            _ if kind.is_ascii() && !kind.is_ascii_alphanumeric() => Some(kind),
            '1'..='7' if !self.rest().starts_with(|next: char| next.is_digit(8)) => None,
            '0'..='7' => {
                let mut value = kind.to_digit(8).unwrap_or(0);
                for _ in 0..2 {
                    let Some(digit) = self.rest().chars().next().and_then(|next| next.to_digit(8)) else {
                        break;
                    };
                    value = value * 8 + digit;
                    self.at += 1;
                }
                char::from_u32(value)
            }
            'x' => self.hexadecimal(),
            _ => None,
        };
        match simple {
            Some(character) => Ok(character),
            None => error("invalid escape sequence", self.pattern.get(start..self.at).unwrap_or_default()),
        }
    }

    fn hexadecimal(&mut self) -> Option<char> {
        let first = self.next()?;
        let mut value: u32 = 0;
        if first == '{' {
            let mut digits = 0;
            loop {
                let next = self.next()?;
                if next == '}' {
                    return if digits > 0 { char::from_u32(value) } else { None };
                }
                value = value * 16 + next.to_digit(16)?;
                if value > u32::from(char::MAX) {
                    return None;
                }
                digits += 1;
            }
        }
        let second = self.next();
        value = first.to_digit(16)? * 16 + second?.to_digit(16)?;
        char::from_u32(value)
    }

    fn class(&mut self) -> Result<(), PatternSyntaxError> {
        let whole = self.rest();
        self.at += 1;
        let negated = self.rest().starts_with('^');
        if negated {
            self.at += 1;
        }
        let mut content = String::new();
        let mut first = true;
        loop {
            let rest = self.rest();
            if rest.is_empty() {
                return error("missing closing ]", whole);
            }
            if rest.starts_with(']') && !first {
                self.at += 1;
                break;
            }
            first = false;
            if let Some(posix) = rest.strip_prefix("[:")
                && let Some(end) = posix.find(":]")
            {
                let name = posix.get(..end).unwrap_or_default();
                let text = rest.get(..end + 4).unwrap_or_default();
                let Some(class) = posix_class(name) else {
                    return error("invalid character class range", text);
                };
                content.push_str(&class);
                self.at += end + 4;
                continue;
            }
            if rest.starts_with('\\')
                && let Some(class) = self.class_escape()?
            {
                content.push_str(&class);
                continue;
            }
            self.range(whole, &mut content)?;
        }
        if content.is_empty() {
            content.push_str("[^\\x{0}-\\x{10FFFF}]");
        }
        let _ = write!(self.out, "[{}{content}]", if negated { "^" } else { "" });
        Ok(())
    }

    /// One character or range of a class.
    fn range(&mut self, whole: &str, content: &mut String) -> Result<(), PatternSyntaxError> {
        let start = self.at;
        let low = self.class_character(whole)?;
        let mut high = low;
        let rest = self.rest();
        if rest.starts_with('-') && rest.len() > 1 && !rest.starts_with("-]") {
            self.at += 1;
            high = self.class_character(whole)?;
            if high < low {
                return error(
                    "invalid character class range",
                    self.pattern.get(start..self.at).unwrap_or_default(),
                );
            }
        }
        let _ = write!(content, "\\x{{{:X}}}-\\x{{{:X}}}", u32::from(low), u32::from(high));
        Ok(())
    }

    fn class_character(&mut self, whole: &str) -> Result<char, PatternSyntaxError> {
        if self.rest().starts_with('\\') {
            return self.character_escape();
        }
        match self.next() {
            Some(character) => Ok(character),
            None => error("missing closing ]", whole),
        }
    }
}

/// `{n}`, `{n,}` or `{n,m}`: counts and length of the text. Other texts are literal.
fn counts(text: &str) -> Option<(u32, Option<u32>, usize)> {
    let end = text.find('}')?;
    let inner = text.get(1..end)?;
    let number = |digits: &str| -> Option<u32> {
        let valid = !digits.is_empty()
            && digits.bytes().all(|byte| byte.is_ascii_digit())
            && (digits.len() == 1 || !digits.starts_with('0'));
        // Numbers that are too large are refused by the caller.
        valid.then(|| digits.parse().unwrap_or(u32::MAX))
    };
    let (min, max) = match inner.split_once(',') {
        None => {
            let count = number(inner)?;
            (count, Some(count))
        }
        Some((min, "")) => (number(min)?, None),
        Some((min, max)) => (number(min)?, Some(number(max)?)),
    };
    Some((min, max, end + 1))
}

fn posix_class(name: &str) -> Option<String> {
    let (negated, name) = match name.strip_prefix('^') {
        Some(name) => (true, name),
        None => (false, name),
    };
    let class = match name {
        "alnum" => "0-9A-Za-z",
        "alpha" => "A-Za-z",
        "ascii" => "\\x00-\\x7F",
        "blank" => "\\t\\x20",
        "cntrl" => "\\x00-\\x1F\\x7F",
        "digit" => "0-9",
        "graph" => "\\x21-\\x7E",
        "lower" => "a-z",
        "print" => "\\x20-\\x7E",
        "punct" => "\\x21-\\x2F\\x3A-\\x40\\x5B-\\x60\\x7B-\\x7E",
        "space" => "\\t\\n\\x0B\\x0C\\r\\x20",
        "upper" => "A-Z",
        "word" => "0-9A-Za-z_",
        "xdigit" => "0-9A-Fa-f",
        _ => return None,
    };
    Some(if negated { format!("[^{class}]") } else { class.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::translate;

    #[test]
    fn the_last_of_repeated_flags_counts() {
        let is_match = |pattern: &str, text: &str| {
            let translated = translate(pattern).map_err(|error| error.to_string()).unwrap();
            regex::Regex::new(&translated).unwrap().is_match(text)
        };
        assert!(is_match("(?ii)A", "a"));
        assert!(is_match("(?isi:A)", "a"));
        assert!(!is_match("(?i-i)A", "a"));
        assert!(is_match("(?i-s:A)", "a"));
        assert!(is_match("(?)A", "A") && !is_match("(?-i)A", "a"));
        assert!(translate("(?i-)A").is_err() && translate("(?-i-s)A").is_err());
    }
}
