//! Output formats of a report.
//!
//! Each format is a function from a [`CheckReport`] to a text. No format contains a time, so equal runs give equal texts.

mod github;
mod junit;
mod parts;
mod sarif;
#[cfg(test)]
mod tests;
mod text;

use std::fs;

use config::Problem;
use console::exit::Stop;
use console::input;
use console::output::{self, Style};

use crate::args::{Args, OutputFormat, OutputTarget};
use crate::report::CheckReport;
use parts::Gate;

/// Refuses two formats for one place. Only the formats of lines can share standard output.
pub(super) fn validate(targets: &[OutputTarget]) -> Result<(), Stop> {
    let is_lines = |format| matches!(format, OutputFormat::Text | OutputFormat::Github);
    for (index, target) in targets.iter().enumerate() {
        let is_excluded = |earlier: &OutputTarget| {
            let can_share = target.file.is_none() && is_lines(earlier.format) && is_lines(target.format);
            earlier.file == target.file && (!can_share || earlier.format == target.format)
        };
        if targets.iter().take(index).any(is_excluded) {
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
pub(super) fn write(report: &CheckReport, args: &Args, target: &OutputTarget) -> Result<(), Stop> {
    let gate = Gate { fail_on: args.fail_on, allow_unknown: args.allow_unknown };
    let style = if target.file.is_none() { Style::stdout() } else { Style::plain() };
    let text = match target.format {
        OutputFormat::Text => text::text(report, style),
        OutputFormat::Json => output::plain_json(report)?,
        OutputFormat::Yaml => output::yaml(report)?,
        OutputFormat::Junit => junit::write(report, gate),
        OutputFormat::Sarif => output::plain_json(&sarif::write(report))?,
        OutputFormat::Github => github::write(report),
    };
    let Some(file) = &target.file else { return output::data(&text) };
    input::check_links(file)?;
    fs::write(file, text).map_err(|error| {
        Problem::new(format!("{} cannot be written", file.display())).why(error.to_string()).into()
    })
}
