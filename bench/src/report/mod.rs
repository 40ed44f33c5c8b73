//! The figures of a part: printed when they are measured, and stored in `target/bench` for the page of results.
//!
//! Each part is stored alone, so that a part can be repeated without the others. Ratios never mix two runs.

mod machine;
mod page;
mod plot;

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::figures::{Curve, Row};
use crate::{Result, is_short};

pub(crate) use page::write;

use machine::Machine;

/// The figures of a part.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Report {
    part: String,
    machine: Machine,
    /// Whether the run was a short one, whose figures mean nothing.
    is_short: bool,
    sections: Vec<Section>,
}

/// One table, with the method of its figures.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Section {
    title: String,
    method: String,
    rows: Vec<Row>,
    /// The plot below the table. Only one section of the page has one.
    curve: Option<Curve>,
    /// The output of another program.
    output: String,
}

impl Report {
    pub(crate) fn new(part: &str) -> Self {
        Self { part: part.to_owned(), machine: Machine::now(), is_short: is_short(), sections: Vec::new() }
    }

    /// Starts a table.
    pub(crate) fn section(&mut self, title: &str, method: &str) {
        println!("{title}");
        self.sections.push(Section {
            title: title.to_owned(),
            method: method.to_owned(),
            rows: Vec::new(),
            curve: None,
            output: String::new(),
        });
    }

    /// Adds a figure to the table.
    pub(crate) fn row(&mut self, row: Row) {
        let [name, durward, peer, ratio, limit] = row.cells();
        println!("  {name:<56} {durward:>12}  {peer:<34} {ratio:<28} {limit}");
        if let Some(section) = self.sections.last_mut() {
            section.rows.push(row);
        }
    }

    /// Adds the plot.
    pub(crate) fn curve(&mut self, curve: Curve) {
        if let Some(section) = self.sections.last_mut() {
            section.curve = Some(curve);
        }
    }

    /// Adds the output of another program.
    pub(crate) fn output(&mut self, output: String) {
        println!("{output}");
        if let Some(section) = self.sections.last_mut() {
            section.output = output;
        }
    }

    /// Returns whether all figures are within their limits.
    pub(crate) fn is_good(&self) -> bool {
        self.rows().all(Row::is_within)
    }

    fn rows(&self) -> impl Iterator<Item = &Row> {
        self.sections.iter().flat_map(|section| &section.rows)
    }

    /// Stores the figures.
    pub(crate) fn store(&self) -> Result<()> {
        let directory = directory();
        fs::create_dir_all(&directory)?;
        let text = serde_json::to_string_pretty(self)?;
        Ok(fs::write(directory.join(format!("{}.json", self.part)), text)?)
    }

    /// Returns the stored figures of a part.
    fn stored(part: &str) -> Result<Option<Self>> {
        match fs::read_to_string(directory().join(format!("{part}.json"))) {
            Ok(text) => Ok(Some(serde_json::from_str(&text)?)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// The directory of stored figures and of peers.
pub(crate) fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bench")
}
