//! Events of YAML.

use std::borrow::Cow;

use granit_parser::{ErrorKind, Marker, Options, Parser, ScalarStyle, StrInput, StructureStyle};

use super::MAX_DEPTH;
use super::Scalar;
use super::event::{Event, Fault, Item};

/// The events of a text.
pub(super) struct Events<'t> {
    parser: Parser<'t, StrInput<'t>>,
    text: &'t str,
    base: usize,
    /// Whether each open list or map is written with brackets.
    flow: Vec<bool>,
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
        Self { parser, text, base, flow: Vec::new() }
    }

    fn event(&mut self, event: granit_parser::Event<'t>, offset: usize) -> Result<Option<Event<'t>>, Fault> {
        use granit_parser::Event as Yaml;
        if matches!(event, Yaml::Scalar(..) | Yaml::SequenceStart(..) | Yaml::MappingStart(..)) {
            self.check_indent(offset)?;
        }
        Ok(Some(match event {
            Yaml::DocumentStart(explicit, _) => {
                if explicit {
                    self.check_separator(offset)?;
                }
                Event::DocumentStart
            }
            Yaml::DocumentEnd => Event::DocumentEnd,
            Yaml::SequenceStart(style, anchor, _) => {
                self.flow.push(style == StructureStyle::Flow);
                Event::ListStart(anchor)
            }
            Yaml::MappingStart(style, anchor, _) => {
                self.flow.push(style == StructureStyle::Flow);
                Event::MapStart(anchor)
            }
            Yaml::SequenceEnd | Yaml::MappingEnd => {
                self.flow.pop();
                Event::End
            }
            Yaml::Alias(anchor) => Event::Alias(anchor),
            Yaml::Anchor(_, name) => {
                if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')) {
                    let message = format!("kubectl can't read the name of the anchor &{name}");
                    return Err(Fault::syntax(offset, message, "use letters, digits, - and _"));
                }
                return Ok(None);
            }
            Yaml::Scalar(text, style, anchor, tag) => {
                let tag = tag.map(|tag| format!("{}{}", tag.handle(), tag.suffix()));
                let plain = style == ScalarStyle::Plain;
                if plain && text.starts_with("---") && self.line_before(offset).is_empty() {
                    self.check_separator(offset)?;
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
        before.rsplit(['\n', '\r']).next().unwrap_or_default()
    }

    /// Refuses tabs before the first value of a line, unless it is in brackets.
    fn check_indent(&self, offset: usize) -> Result<(), Fault> {
        if self.flow.last() == Some(&true) {
            return Ok(());
        }
        let indent = self.line_before(offset);
        if indent.contains('\t') && indent.bytes().all(|byte| matches!(byte, b' ' | b'\t' | b'-')) {
            return Err(Fault::syntax(offset, "a tab can't indent YAML", "replace the tab by spaces"));
        }
        Ok(())
    }

    /// `kubectl` splits the text at lines that begin with `---`, and refuses other text than a comment on such a line.
    fn check_separator(&self, offset: usize) -> Result<(), Fault> {
        let line = self.text.get(offset..).and_then(|rest| rest.lines().next()).unwrap_or_default();
        let rest = line.strip_prefix("---").unwrap_or(line).trim();
        if rest.is_empty() || rest.starts_with('#') {
            return Ok(());
        }
        let message = "a line that begins with --- contains more than a comment";
        Err(Fault::refused(offset, message, "move the text to the next line, as kubectl requires"))
    }
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
                    let offset = offset(&span.start);
                    match self.event(event, offset) {
                        Ok(None) => {}
                        Ok(Some(event)) => return Some(Ok((event, offset))),
                        Err(fault) => return Some(Err(fault)),
                    }
                }
            }
        }
    }
}
