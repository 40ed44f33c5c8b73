//! Writes to the terminal: data to standard output, messages to standard error. No other module does.
//!
//! Names, messages and paths come from files and clusters that others write. Such foreign text can contain terminal escapes, and
//! in GitHub Actions workflow commands. The runner reads both channels: it takes a line that starts with `::`, after white space,
//! and `##[` anywhere in a line. [`foreign`] cleans such a text for messages and text output, and [`plain_json`] for JSON. Both
//! channels are checked once more when they are written.

use std::borrow::Cow;
use std::fmt::Display;
use std::fmt::Write as _;
use std::io::{self, ErrorKind, IsTerminal as _, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use admission::text as clean;
use clap::ValueEnum;
use config::{Place, Problem};
use serde::Serialize;

use crate::exit::Stop;
use crate::yaml::write;

/// The format of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// Text
    #[default]
    Text,
    /// JSON
    Json,
    /// YAML
    Yaml,
}

/// Writes data without changes.
pub fn data(text: &str) -> Result<(), Stop> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| {
        if error.kind() == ErrorKind::BrokenPipe {
            return Stop::broken_pipe();
        }
        Stop::fault(Problem::new("standard output cannot be written").why(error.to_string()))
    })
}

/// Writes text for people, without control characters and workflow commands. Colors stay.
pub fn print(text: &str) -> Result<(), Stop> {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let color = COLORS.iter().find(|color| rest.starts_with(**color));
        if let Some(color) = color.filter(|_| c == '\u{1b}') {
            plain.push_str(color);
            rest = rest.get(color.len()..).unwrap_or_default();
            continue;
        }
        plain.push(if matches!(c, '\n' | '\t') || clean::is_printable(c) { c } else { ' ' });
        rest = rest.get(c.len_utf8()..).unwrap_or_default();
    }
    data(&without_commands(&plain))
}

/// Writes a value as indented JSON.
pub fn json(value: &impl Serialize) -> Result<(), Stop> {
    data(&plain_json(value)?)
}

/// Returns a value as indented JSON with escapes for all characters that a terminal or the runner of GitHub Actions interprets.
pub fn plain_json(value: &impl Serialize) -> Result<String, Stop> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Stop::fault(Problem::new("the result is not JSON").why(error.to_string())))?;
    let text = escaped(text) + "\n";
    // A result can be long, so it is copied only if it must be.
    Ok(if text.contains(OLD_COMMAND) { text.replace(OLD_COMMAND, "#\\u0023[") } else { text })
}

/// Escapes unprintable characters in JSON.
fn escaped(text: String) -> String {
    // Most results are plain.
    if text.bytes().all(|byte| byte == b'\n' || byte == b' ' || byte.is_ascii_graphic()) {
        return text;
    }
    let mut plain = String::with_capacity(text.len());
    // Outside of strings JSON is ASCII, and the only control character in this text is the line break between values.
    for c in text.chars() {
        if c == '\n' || clean::is_printable(c) {
            plain.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(plain, "\\u{unit:04x}");
        }
    }
    plain
}

/// Writes a value as JSON or YAML, or as the text that `text` makes of it.
pub fn report<T: Serialize>(
    format: Format,
    value: &T,
    text: impl FnOnce(&T, Style) -> String,
) -> Result<(), Stop> {
    match format {
        Format::Text => print(&text(value, Style::stdout())),
        Format::Json => json(value),
        Format::Yaml => data(&yaml(value)?),
    }
}

/// Returns a value as YAML. If the text would contain a workflow command or an unprintable character, the YAML is in the style of
/// JSON, which can escape both.
pub fn yaml(value: &impl Serialize) -> Result<String, Stop> {
    let json = serde_json::to_value(value)
        .map_err(|error| Stop::fault(Problem::new("the result is not JSON").why(error.to_string())))?;
    let text = write(&json)?;
    let is_plain = text.chars().all(|c| c == '\n' || clean::is_printable(c));
    if is_plain && !text.lines().any(|line| is_command(line) || line.contains(OLD_COMMAND)) {
        return Ok(text);
    }
    plain_json(value)
}

/// Start of a workflow command in the older syntax, which the runner finds anywhere in a line.
const OLD_COMMAND: &str = "##[";

/// Returns whether the runner of GitHub Actions takes a line for a workflow command.
fn is_command(line: &str) -> bool {
    line.trim_start().starts_with("::")
}

/// Returns whether the runner of GitHub Actions reads the output.
fn is_read_by_runner() -> bool {
    std::env::var_os("GITHUB_ACTIONS").is_some_and(|value| value == "true")
}

/// Adds a workflow command of GitHub Actions, which becomes an annotation at a place.
pub fn push_annotation(lines: &mut String, level: &str, place: Option<&Place>, title: &str, message: &str) {
    let _ = write!(lines, "::{level} ");
    if let Some(Place { file, line, column }) = place {
        let _ = write!(lines, "file={},line={line},col={column},", escape_property(file));
    }
    let _ = writeln!(lines, "title={}::{}", escape_property(title), escape_data(message));
}

/// `escapeData` of GitHub's toolkit, for cleaned text. The text contains no command in the older syntax.
fn escape_data(text: &str) -> String {
    clean::lines(text).replace(OLD_COMMAND, "# #[").replace('%', "%25").replace('\n', "%0A")
}

/// `escapeProperty` of GitHub's toolkit.
fn escape_property(text: &str) -> String {
    escape_data(text).replace(':', "%3A").replace(',', "%2C")
}

/// Returns foreign text without control and direction characters. Its further lines are indented, so that none of them looks like
/// a line of Durward. In GitHub Actions none of them is a workflow command.
pub fn foreign(text: &str) -> String {
    let line_break = if is_read_by_runner() { "\n    | " } else { "\n    " };
    let text = clean::lines(text).replace('\n', line_break);
    without_commands(&text).into_owned()
}

/// Returns text without workflow commands, if the runner of GitHub Actions reads it.
pub fn without_commands(text: &str) -> Cow<'_, str> {
    let is_harmless = |line: &str| !is_command(line) && !line.contains(OLD_COMMAND);
    if !is_read_by_runner() || text.lines().all(is_harmless) {
        return Cow::Borrowed(text);
    }
    let harmless = text.split_inclusive('\n').map(|line| {
        let mark = if is_command(line) { "| " } else { "" };
        format!("{mark}{}", line.replace(OLD_COMMAND, "# #["))
    });
    Cow::Owned(harmless.collect())
}

/// Whether notes are dropped.
static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// Drops all notes from now on.
pub fn be_quiet() {
    IS_QUIET.store(true, Ordering::Relaxed);
}

/// Writes a message to standard error, unless the user wants none.
pub fn note(text: impl Display) {
    if IS_QUIET.load(Ordering::Relaxed) {
        return;
    }
    write_stderr(&format!("{text}\n"));
}

/// Writes all problems to standard error.
pub fn problems(problems: &[Problem]) {
    let style = Style::stderr();
    let line = |problem: &Problem| format!("{} {}", style.red("error:"), printable(problem));
    write_stderr(&lines(problems.iter().map(line)));
}

/// Returns a problem with cleaned texts.
fn printable(problem: &Problem) -> Problem {
    let place = |place: &Place| Place { file: clean::one_line(&place.file), ..place.clone() };
    Problem {
        what: foreign(&problem.what),
        place: problem.place.as_ref().map(place),
        why: problem.why.as_deref().map(foreign),
        next: problem.next.as_deref().map(foreign),
    }
}

/// Returns the text as one word of a shell.
pub fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ":-._/".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// Joins lines, each with a newline.
pub fn lines(lines: impl IntoIterator<Item = String>) -> String {
    lines.into_iter().flat_map(|line| [line, "\n".to_owned()]).collect()
}

fn write_stderr(text: &str) {
    // If standard error is closed, the text is dropped.
    let _ = io::stderr().lock().write_all(without_commands(text).as_bytes());
}

/// A progress line that is overwritten in place and removed on drop. Without a terminal it prints nothing.
#[derive(Debug)]
pub struct ProgressLine {
    is_shown: bool,
}

impl ProgressLine {
    /// Creates an empty line on standard error.
    pub fn stderr() -> Self {
        Self {
            is_shown: io::stderr().is_terminal()
                && std::env::var_os("TERM").is_none_or(|term| term != "dumb"),
        }
    }

    /// Replaces the text of the line. Control characters are removed and the text is cut to one line.
    pub fn show(&self, text: &str) {
        if self.is_shown {
            let line: String = text.chars().filter(|c| !c.is_control()).take(78).collect();
            write_stderr(&format!("\r\u{1b}[2K{line}"));
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if self.is_shown {
            write_stderr("\r\u{1b}[2K");
        }
    }
}

/// The escape sequences of [`Style`]. The first one ends the others.
const COLORS: [&str; 7] =
    ["\u{1b}[0m", "\u{1b}[31m", "\u{1b}[32m", "\u{1b}[33m", "\u{1b}[36m", "\u{1b}[1m", "\u{1b}[2m"];

/// Colors of the terminal, if it has any.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    uses_color: bool,
}

impl Style {
    /// Returns the colors of standard output.
    pub fn stdout() -> Self {
        Self { uses_color: io::stdout().is_terminal() && is_color_wanted() }
    }

    /// Returns the colors of standard error.
    pub fn stderr() -> Self {
        Self { uses_color: io::stderr().is_terminal() && is_color_wanted() }
    }

    /// Returns no colors, for files.
    pub fn plain() -> Self {
        Self { uses_color: false }
    }

    /// Returns whether colors are used.
    pub fn uses_color(self) -> bool {
        self.uses_color
    }

    /// Marks denials and faults.
    pub fn red(self, text: &str) -> String {
        self.paint("31", text)
    }

    /// Marks success.
    pub fn green(self, text: &str) -> String {
        self.paint("32", text)
    }

    /// Marks warnings.
    pub fn yellow(self, text: &str) -> String {
        self.paint("33", text)
    }

    /// Marks changes.
    pub fn cyan(self, text: &str) -> String {
        self.paint("36", text)
    }

    /// Marks headings.
    pub fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    /// Marks details.
    pub fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    /// `code` is in [`COLORS`].
    fn paint(self, code: &str, text: &str) -> String {
        if self.uses_color { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// Returns whether the user wants colors: see <https://no-color.org>.
fn is_color_wanted() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_what_a_shell_would_split() {
        assert_eq!(quoted("2026-11-21T12:00:00Z"), "2026-11-21T12:00:00Z");
        assert_eq!(quoted("it's gone"), r"'it'\''s gone'");
        assert_eq!(quoted(""), "''");
    }
}
