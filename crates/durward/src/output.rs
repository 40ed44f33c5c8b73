//! The only place that writes to the terminal: data on standard output, words on standard error.

use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal as _, Write};

use config::Problem;
use serde::Serialize;

use crate::exit::Stop;

/// Writes data as it is.
pub(crate) fn data(text: &str) -> Result<(), Stop> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| {
        if error.kind() == ErrorKind::BrokenPipe {
            return Stop::unheard();
        }
        Stop::fault(Problem::new("standard output cannot be written").why(error.to_string()))
    })
}

/// Writes a value as JSON, readable, with a line end.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Stop> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Stop::fault(Problem::new("the answer is no JSON").why(error.to_string())))?;
    data(&format!("{text}\n"))
}

/// Says something beside the data.
pub(crate) fn note(text: impl Display) {
    words(&format!("{text}\n"));
}

/// Tells everything that is wrong.
pub(crate) fn problems(problems: &[Problem]) {
    let style = Style::of_stderr();
    words(&lines(problems.iter().map(|problem| format!("{} {problem}", style.red("error:")))));
}

/// Lines as a text, each with its end.
pub(crate) fn lines(lines: impl IntoIterator<Item = String>) -> String {
    lines.into_iter().flat_map(|line| [line, "\n".to_owned()]).collect()
}

fn words(text: &str) {
    // A standard error that is closed leaves nobody to tell.
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// A line on the terminal that is written over while something is waited for, and taken away in the end; nothing where standard
/// error is no terminal.
#[derive(Debug)]
pub(crate) struct Live {
    is_shown: bool,
}

impl Live {
    /// Shows nothing yet.
    pub(crate) fn on_terminal() -> Self {
        Self {
            is_shown: io::stderr().is_terminal()
                && std::env::var_os("TERM").is_none_or(|term| term != "dumb"),
        }
    }

    /// Shows this from now on. What comes from a cluster moves no cursor, and what is longer than a line does not break it.
    pub(crate) fn show(&self, text: &str) {
        if self.is_shown {
            let line: String = text.chars().filter(|c| !c.is_control()).take(78).collect();
            words(&format!("\r\u{1b}[2K{line}"));
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if self.is_shown {
            words("\r\u{1b}[2K");
        }
    }
}

/// Colours, or none: only on a terminal that wants them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    coloured: bool,
}

impl Style {
    /// For what goes to standard output.
    pub(crate) fn of_stdout() -> Self {
        Self { coloured: io::stdout().is_terminal() && wanted() }
    }

    /// For what goes to standard error.
    pub(crate) fn of_stderr() -> Self {
        Self { coloured: io::stderr().is_terminal() && wanted() }
    }

    /// Whether colours are shown at all.
    pub(crate) fn is_coloured(self) -> bool {
        self.coloured
    }

    /// For refusals and faults.
    pub(crate) fn red(self, text: &str) -> String {
        self.paint("31", text)
    }

    /// For what is as it should be.
    pub(crate) fn green(self, text: &str) -> String {
        self.paint("32", text)
    }

    /// For what someone should look at.
    pub(crate) fn yellow(self, text: &str) -> String {
        self.paint("33", text)
    }

    /// For what changes.
    pub(crate) fn cyan(self, text: &str) -> String {
        self.paint("36", text)
    }

    /// For headings.
    pub(crate) fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    /// For what may be passed over.
    pub(crate) fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.coloured { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// <https://no-color.org>: set to anything but nothing turns colours off.
fn wanted() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}
