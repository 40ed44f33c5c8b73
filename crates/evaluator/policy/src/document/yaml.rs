//! Events of YAML.

use std::borrow::Cow;
use std::ops::Range;

use granit_parser::{ErrorKind, Marker, Options, Parser, ScalarStyle, StrInput, StructureStyle};

use super::event::{Event, Fault, Item};
use super::limits::MAX_DEPTH;
use super::scalar::Scalar;

/// The events of a text.
pub(super) struct Events<'t> {
    parser: Parser<'t, StrInput<'t>>,
    text: &'t str,
    base: usize,
    /// Open lists and maps.
    open: Vec<Level>,
    /// End of the last scalar, alias or bracket, and of the blanks after a plain scalar.
    end: usize,
    /// Whether a document has ended.
    has_ended: bool,
}

/// A list or map that is not complete.
#[derive(Clone, Copy, Default)]
struct Level {
    in_brackets: bool,
    /// Least number of spaces before its text.
    indent: usize,
}

impl<'t> Events<'t> {
    /// Starts at an offset, which is the start of a line.
    pub(super) fn new(text: &'t str, base: usize) -> Self {
        let mut options = Options::default();
        options.set_emit_comments(false);
        options.emit_anchor_events = true;
        options.flow_nesting_limit = MAX_DEPTH + 1;
        options.block_nesting_limit = MAX_DEPTH + 1;
        options.disallow_directives = true;
        let parser = Parser::new_from_str_with_options(text.get(base..).unwrap_or_default(), options);
        Self { parser, text, base, open: Vec::new(), end: base, has_ended: false }
    }

    fn event(
        &mut self,
        event: granit_parser::Event<'t>,
        (offset, end): (usize, usize),
        tag: Option<Range<usize>>,
    ) -> Result<Option<Event<'t>>, Fault> {
        use granit_parser::Event as Yaml;
        if let Some(tag) = tag {
            let text = self.text.get(tag.clone()).unwrap_or_default();
            let end = tag.start + text.find('#').unwrap_or(text.len());
            self.check_property(end, |next| !next.is_whitespace())?;
        }
        match event {
            Yaml::Scalar(..) | Yaml::SequenceStart(..) | Yaml::MappingStart(..) | Yaml::Alias(_) => {
                self.check_indent(offset)?;
            }
            Yaml::DocumentEnd => self.check_tabs(self.end..offset, usize::MAX)?,
            _ => {}
        }
        Ok(Some(match event {
            Yaml::DocumentStart(explicit, _) => {
                if explicit {
                    self.check_separator(offset)?;
                } else if self.has_ended {
                    let message = "kubectl ignores the text between a line of ... and the next line of ---";
                    return Err(Fault::refused(offset, message, "replace ... by ---"));
                }
                Event::DocumentStart
            }
            Yaml::DocumentEnd => {
                self.has_ended = true;
                Event::DocumentEnd
            }
            Yaml::SequenceStart(style, anchor, _) => {
                self.open(style, offset);
                Event::ListStart(anchor)
            }
            Yaml::MappingStart(style, anchor, _) => {
                self.open(style, offset);
                Event::MapStart(anchor)
            }
            Yaml::SequenceEnd | Yaml::MappingEnd => {
                if self.open.pop().is_some_and(|level| level.in_brackets) {
                    self.end = end;
                }
                Event::End
            }
            Yaml::Alias(anchor) => {
                self.end = end;
                Event::Alias(anchor)
            }
            Yaml::Anchor(_, name) => {
                if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')) {
                    let message = format!("kubectl can't read the name of the anchor &{name}");
                    return Err(Fault::syntax(offset, message, "use letters, digits, - and _"));
                }
                self.check_property(end, |next| matches!(next, '[' | '{'))?;
                return Ok(None);
            }
            Yaml::Scalar(text, style, anchor, tag) => {
                let tag = tag.map(|tag| format!("{}{}", tag.handle(), tag.suffix()));
                let plain = style == ScalarStyle::Plain;
                if matches!(style, ScalarStyle::Literal | ScalarStyle::Folded) {
                    self.check_block(offset)?;
                }
                if plain && text.starts_with("---") && self.line_before(offset).is_empty() {
                    return Err(separator(offset));
                }
                self.end = self.end.max(end);
                if plain && offset < end {
                    let after = self.text.get(end..).unwrap_or_default();
                    self.end += after.len() - after.trim_start_matches([' ', '\t', '\n', '\r']).len();
                    self.check_tabs(offset..self.end, self.level().indent)?;
                }
                if style == ScalarStyle::DoubleQuoted {
                    self.check_escapes(offset..end)?;
                }
                if plain && self.in_brackets() {
                    self.check_brackets(offset..end)?;
                }
                let merges =
                    text == "<<" && tag.as_deref().map_or(plain, |tag| tag == "tag:yaml.org,2002:merge");
                let scalar = resolve(text, plain, tag.as_deref())
                    .map_err(|refusal| Fault::refused(offset, refusal.message, refusal.next))?;
                Event::Scalar { scalar, anchor, merges }
            }
            _ => return Ok(None),
        }))
    }

    /// The text of the line before an offset.
    fn line_before(&self, offset: usize) -> &'t str {
        let before = self.text.get(self.base..offset).unwrap_or_default();
        let end = before.bytes().rposition(|byte| matches!(byte, b'\n' | b'\r'));
        end.map_or(before, |end| &before[end + 1..])
    }

    fn level(&self) -> Level {
        self.open.last().copied().unwrap_or_default()
    }

    fn in_brackets(&self) -> bool {
        self.level().in_brackets
    }

    fn open(&mut self, style: StructureStyle, offset: usize) {
        let level = if style == StructureStyle::Flow {
            Level { in_brackets: true, ..self.level() }
        } else {
            Level { in_brackets: false, indent: self.line_before(offset).chars().count() + 1 }
        };
        self.open.push(level);
    }

    /// Refuses tabs before the first value of a line and in empty lines before it, unless they are in brackets.
    fn check_indent(&self, offset: usize) -> Result<(), Fault> {
        if self.in_brackets() {
            return Ok(());
        }
        self.check_tabs(self.end..offset, usize::MAX)?;
        let indent = self.line_before(offset);
        if indent.contains('\t') && indent.bytes().all(|byte| matches!(byte, b' ' | b'\t' | b'-')) {
            return Err(tab(offset));
        }
        Ok(())
    }

    /// Refuses lines that begin in a part of the text with a tab after less than a number of spaces.
    fn check_tabs(&self, part: Range<usize>, indent: usize) -> Result<(), Fault> {
        let before = self.text.get(self.base..part.start).unwrap_or_default().trim_end_matches(' ');
        let is_start = before.is_empty() || before.ends_with(['\n', '\r']);
        let (start, part) = (part.start, self.text.get(part).unwrap_or_default());
        let lines = part.match_indices(['\n', '\r']).map(|(at, _)| at + 1);
        for line in is_start.then_some(0).into_iter().chain(lines) {
            let rest = part.get(line..).unwrap_or_default();
            let content = rest.trim_start_matches(' ');
            let spaces = rest.len() - content.len();
            if content.starts_with('\t') && spaces < indent {
                return Err(tab(start + line + spaces));
            }
        }
        Ok(())
    }

    /// Refuses a block scalar whose text begins with a tab, which `kubectl` takes for indentation, unless its header has a number.
    fn check_block(&self, offset: usize) -> Result<(), Fault> {
        if !self.text.get(offset..).is_some_and(|text| text.starts_with('\t')) {
            return Ok(());
        }
        let before = self.text.get(self.end..offset).unwrap_or_default().trim_end();
        let line = before.lines().next_back().and_then(|line| line.split('#').next()).unwrap_or_default();
        let header = line.split_whitespace().next_back().unwrap_or_default();
        if header.contains(|character: char| character.is_ascii_digit()) { Ok(()) } else { Err(tab(offset)) }
    }

    /// `kubectl` splits the text at lines that begin with `---`, and refuses other text than a comment on such a line.
    fn check_separator(&self, offset: usize) -> Result<(), Fault> {
        let line = self.text.get(offset..).and_then(|rest| rest.lines().next()).unwrap_or_default();
        let rest = line.strip_prefix("---").unwrap_or(line).trim();
        if rest.is_empty() || rest.starts_with('#') {
            return Ok(());
        }
        Err(separator(offset))
    }

    /// Refuses escapes that only JSON has: of a slash, and of code points beyond 16 bits in two parts.
    fn check_escapes(&self, scalar: Range<usize>) -> Result<(), Fault> {
        let (offset, text) = (scalar.start, self.text.get(scalar).unwrap_or_default());
        // An escape of a backslash is a pair of its own.
        for (at, _) in text.replace("\\\\", "  ").match_indices('\\') {
            let escape = text.get(at + 1..).unwrap_or_default().as_bytes();
            if matches!(escape, [b'/', ..] | [b'u', b'd' | b'D', b'8'..=b'9' | b'a'..=b'f' | b'A'..=b'F', ..])
            {
                let message = "kubectl reads this escape in JSON only";
                return Err(Fault::refused(offset + at, message, "write the character itself"));
            }
        }
        Ok(())
    }

    /// Refuses a character that continues a tag or an anchor in `kubectl`. It drops the second element of `[a, !!str, b]`.
    fn check_property(&self, end: usize, continues: impl Fn(char) -> bool) -> Result<(), Fault> {
        if self.text.get(end..).and_then(|after| after.chars().next()).is_some_and(continues) {
            let message = "kubectl takes this character for a part of the tag or anchor";
            return Err(Fault::refused(end, message, "write a space before it"));
        }
        Ok(())
    }

    /// Refuses `[:a]`, `[?a]` and `[a?b]`: in brackets, `kubectl` takes these characters for the marks of keys and values. Refuses
    /// `{a:}` and `[a :]`, in which it reads a key with a colon.
    fn check_brackets(&self, scalar: Range<usize>) -> Result<(), Fault> {
        let offset = scalar.start;
        let text = self.text.get(scalar).unwrap_or_default();
        if text.starts_with(':') || text.contains('?') {
            let message = "kubectl can't read this text in brackets without quotes";
            return Err(Fault::refused(offset, message, "quote the text"));
        }
        let after = self.text.get(self.end..).and_then(|after| after.strip_prefix(':'));
        if !text.is_empty() && after.is_some_and(|after| after.starts_with([',', '}', ']'])) {
            let message = "kubectl takes this colon for a part of the key";
            return Err(Fault::refused(self.end, message, "write a space after the colon, or a value"));
        }
        Ok(())
    }
}

fn tab(offset: usize) -> Fault {
    Fault::syntax(
        offset,
        "a tab can't indent YAML",
        "replace the tab by spaces, also in empty lines and before comments",
    )
}

fn separator(offset: usize) -> Fault {
    let message = "a line that begins with --- contains more than a comment";
    Fault::refused(offset, message, "move the text to the next line, as kubectl requires")
}

/// Refuses the characters that end a line in YAML 1.1, which `kubectl` reads, and not in YAML 1.2.
pub(super) fn check_characters(text: &str) -> Result<(), Fault> {
    if text.is_ascii() {
        return Ok(());
    }
    let Some((at, found)) = text.match_indices(['\u{85}', '\u{2028}', '\u{2029}']).next() else {
        return Ok(());
    };
    let code = found.chars().next().map_or(0, u32::from);
    let message = format!("the character U+{code:04X} ends a line for kubectl");
    Err(Fault::refused(at, message, "remove it, or write it as an escape in double quotes"))
}

fn resolve<'t>(text: Cow<'t, str>, plain: bool, tag: Option<&str>) -> Result<Scalar<'t>, super::Refusal> {
    match tag {
        None if plain => Ok(Scalar::plain(text)),
        Some("!") | None => Ok(Scalar::Text(text)),
        Some(tag) => match tag.strip_prefix("tag:yaml.org,2002:") {
            Some(name) => Scalar::tagged(name, text),
            None => Ok(Scalar::Text(text)),
        },
    }
}

impl<'t> Iterator for Events<'t> {
    type Item = Item<'t>;

    fn next(&mut self) -> Option<Item<'t>> {
        let base = self.base;
        let offset = |mark: &Marker| base + mark.byte_offset().unwrap_or_default();
        loop {
            match self.parser.next()? {
                Err(error) if matches!(error.kind(), ErrorKind::RecursionLimitExceeded) => {
                    return Some(Err(Fault::too_deep(offset(error.marker()))));
                }
                Err(error) => {
                    let message = format!("this is not YAML: {}", error.info());
                    let next = "check the indentation, quotes and brackets up to this place";
                    return Some(Err(Fault::syntax(offset(error.marker()), message, next)));
                }
                Ok((event, span)) => {
                    let tag = span.tag_span().map(|tag| offset(&tag.start)..offset(&tag.end));
                    let (offset, end) = (offset(&span.start), offset(&span.end));
                    match self.event(event, (offset, end), tag) {
                        Ok(None) => {}
                        Ok(Some(event)) => return Some(Ok((event, offset))),
                        Err(fault) => return Some(Err(fault)),
                    }
                }
            }
        }
    }
}
