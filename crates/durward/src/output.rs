//! Writes to the terminal: data to standard output, messages to standard error. No other module does.

use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal as _, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use config::Problem;
use serde::Serialize;

use crate::args::Format;
use crate::documents::yaml_stream;
use crate::exit::Stop;

/// Writes data without changes.
pub(crate) fn data(text: &str) -> Result<(), Stop> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| {
        if error.kind() == ErrorKind::BrokenPipe {
            return Stop::broken_pipe();
        }
        Stop::fault(Problem::new("standard output cannot be written").why(error.to_string()))
    })
}

/// Writes a value as indented JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Stop> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Stop::fault(Problem::new("the result is not JSON").why(error.to_string())))?;
    data(&format!("{text}\n"))
}

/// Writes a value as JSON or YAML, or as the text that `text` makes of it.
pub(crate) fn report<T: Serialize>(
    format: Format,
    value: &T,
    text: impl FnOnce(&T, Style) -> String,
) -> Result<(), Stop> {
    match format {
        Format::Text => data(&text(value, Style::stdout())),
        Format::Json => json(value),
        Format::Yaml => data(&yaml(value)?),
    }
}

/// Returns a value as YAML.
pub(crate) fn yaml(value: &impl Serialize) -> Result<String, Stop> {
    let value = serde_json::to_value(value)
        .map_err(|error| Stop::fault(Problem::new("the result is not JSON").why(error.to_string())))?;
    Ok(yaml_stream(&[value])?)
}

/// Whether notes are dropped.
static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// Drops all notes from now on.
pub(crate) fn be_quiet() {
    IS_QUIET.store(true, Ordering::Relaxed);
}

/// Writes a message to standard error, unless the user wants none.
pub(crate) fn note(text: impl Display) {
    if IS_QUIET.load(Ordering::Relaxed) {
        return;
    }
    write_stderr(&format!("{text}\n"));
}

/// Writes all problems to standard error.
pub(crate) fn problems(problems: &[Problem]) {
    let style = Style::stderr();
    write_stderr(&lines(problems.iter().map(|problem| format!("{} {problem}", style.red("error:")))));
}

/// Joins lines, each with a newline.
pub(crate) fn lines(lines: impl IntoIterator<Item = String>) -> String {
    lines.into_iter().flat_map(|line| [line, "\n".to_owned()]).collect()
}

fn write_stderr(text: &str) {
    // If standard error is closed, the text is dropped.
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// A progress line that is overwritten in place and removed on drop. Without a terminal it prints nothing.
#[derive(Debug)]
pub(crate) struct ProgressLine {
    is_shown: bool,
}

impl ProgressLine {
    /// Creates an empty line.
    pub(crate) fn new() -> Self {
        Self {
            is_shown: io::stderr().is_terminal()
                && std::env::var_os("TERM").is_none_or(|term| term != "dumb"),
        }
    }

    /// Replaces the text of the line. Control characters are removed and the text is cut to one line.
    pub(crate) fn show(&self, text: &str) {
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

/// Colors of the terminal, if it has any.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    uses_color: bool,
}

impl Style {
    /// Returns the colors of standard output.
    pub(crate) fn stdout() -> Self {
        Self { uses_color: io::stdout().is_terminal() && is_color_wanted() }
    }

    /// Returns the colors of standard error.
    pub(crate) fn stderr() -> Self {
        Self { uses_color: io::stderr().is_terminal() && is_color_wanted() }
    }

    /// Returns no colors, for files.
    pub(crate) fn plain() -> Self {
        Self { uses_color: false }
    }

    /// Returns whether colors are used.
    pub(crate) fn uses_color(self) -> bool {
        self.uses_color
    }

    /// Marks denials and faults.
    pub(crate) fn red(self, text: &str) -> String {
        self.paint("31", text)
    }

    /// Marks success.
    pub(crate) fn green(self, text: &str) -> String {
        self.paint("32", text)
    }

    /// Marks warnings.
    pub(crate) fn yellow(self, text: &str) -> String {
        self.paint("33", text)
    }

    /// Marks changes.
    pub(crate) fn cyan(self, text: &str) -> String {
        self.paint("36", text)
    }

    /// Marks headings.
    pub(crate) fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    /// Marks details.
    pub(crate) fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.uses_color { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// Returns whether the user wants colors: see <https://no-color.org>.
fn is_color_wanted() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}
