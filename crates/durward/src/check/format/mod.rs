//! Output formats of a report.

mod text;

use std::fs;

use config::Problem;

use super::args::{OutputFormat, OutputTarget};
use super::report::Report;
use crate::exit::Stop;
use crate::output::{self, Style};

/// Refuses two formats for one place.
pub(super) fn validate(targets: &[OutputTarget]) -> Result<(), Stop> {
    for (index, target) in targets.iter().enumerate() {
        if targets.iter().take(index).any(|earlier| earlier.file == target.file) {
            let what = match &target.file {
                Some(file) => format!("two formats go to {}", file.display()),
                None => "two formats go to standard output".to_owned(),
            };
            let next = "name a file for all but one: -o text -o json=report.json";
            return Err(Problem::new(what).next(next).into());
        }
    }
    Ok(())
}

/// Writes a report to standard output or a file.
pub(super) fn write(report: &Report, target: &OutputTarget) -> Result<(), Stop> {
    let style = if target.file.is_none() { Style::stdout() } else { Style::plain() };
    let text = match target.format {
        OutputFormat::Text => text::text(report, style),
        OutputFormat::Json => json(report)?,
    };
    let Some(file) = &target.file else { return output::data(&text) };
    fs::write(file, text).map_err(|error| {
        Problem::new(format!("{} cannot be written", file.display())).why(error.to_string()).into()
    })
}

fn json(report: &Report) -> Result<String, Problem> {
    let text = serde_json::to_string_pretty(report);
    text.map(|text| text + "\n")
        .map_err(|error| Problem::new("the report is not JSON").why(error.to_string()))
}
