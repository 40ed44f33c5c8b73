//! The steps of a review without a server: their time, and what they allocate.

mod list;

use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value as Json;
use serde_json::value::RawValue;

use crate::figures::{Limit, Row, Samples, Unit};
use crate::report::Report;
use crate::{Result, is_short, reviews, rounds};

pub(crate) use list::{GATEWAY_API, NAMES, RULE, Route, create, repository};

/// Limit of reading a large review, relative to `serde_json::Value`.
const DECODE_LIMIT: f64 = 0.15;
/// Time of a batch.
const BATCH: Duration = Duration::from_millis(400);
/// The program that counts allocations.
const ALLOCATIONS: &str = "durward-bench-allocations";

/// Measures all steps.
pub(crate) fn measure(report: &mut Report) -> Result<()> {
    let large = reviews::update(list::LARGE);
    let small = reviews::opted_in_pod();
    let [mut tree, mut raw, mut small_tree] = [const { Samples::NONE }; 3];
    let mut steps = Vec::new();
    for name in NAMES {
        steps.push((name, list::prepare(name)?, Samples::default()));
    }
    for _ in 0..rounds() {
        for (_, run, samples) in &mut steps {
            samples.push_time(time(run)?);
        }
        tree.push_time(time(&mut || parse::<Json>(&large))?);
        raw.push_time(time(&mut || parse::<&RawValue>(&large))?);
        small_tree.push_time(time(&mut || parse::<Json>(&small))?);
    }
    report.section(
        "Steps of a review",
        "In one process, without a server. `serde_json::Value` builds a tree; `RawValue` only finds the end of the value. The reviews by \
         snapshots contain the search of the snapshot's objects. Allocations are counted in another process.",
    );
    for (name, _, samples) in steps {
        let row = Row::seconds(list::describe(name), samples);
        match name {
            "decode-large" => {
                report.row(
                    row.clone()
                        .against("serde_json::Value", tree.clone())
                        .limit(Limit::RatioAtMost(DECODE_LIMIT)),
                );
                report.row(row.against("RawValue", raw.clone()));
            }
            "decode" => report.row(row.against("serde_json::Value", small_tree.clone())),
            _ => report.row(row),
        }
    }
    allocations(report)
}

fn parse<'a, T: serde::Deserialize<'a>>(text: &'a [u8]) -> Result<()> {
    black_box(serde_json::from_slice::<T>(black_box(text))?);
    Ok(())
}

/// Adds what the steps allocate.
fn allocations(report: &mut Report) -> Result<()> {
    let counts = count_allocations()?;
    for name in NAMES {
        let count = counts[name]["allocations"].as_f64().ok_or("a step was not counted")?;
        let row =
            Row::new(format!("{}: allocations", list::describe(name)), Unit::Count, Samples::one(count));
        report.row(if name.starts_with("decode") { row.limit(Limit::AtMost(0.0)) } else { row });
    }
    Ok(())
}

/// Runs the program that counts allocations.
pub(crate) fn count_allocations() -> Result<Json> {
    let program = std::env::current_exe()?.with_file_name(ALLOCATIONS);
    let output = Command::new(&program).output();
    let output = output.map_err(|error| format!("{}: {error}: run make bench-deps", program.display()))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Returns the mean time of a run in one batch.
fn time(run: &mut dyn FnMut() -> Result<()>) -> Result<Duration> {
    let batch = if is_short() { BATCH / 40 } else { BATCH };
    let start = Instant::now();
    let mut count = 0;
    // The clock is read once for 16 runs, unless they take long.
    while count == 0 || start.elapsed() < batch {
        for _ in 0..if start.elapsed() * 8 > batch && count < 16 { 1 } else { 16 } {
            run()?;
            count += 1;
        }
    }
    Ok(start.elapsed() / count)
}

/// Repeats a step. `durward-bench instructions` counts the instructions of two numbers of rounds.
pub(crate) fn repeat(name: &str, rounds: &str) -> Result<bool> {
    let mut run = list::prepare(name)?;
    for _ in 0..rounds.parse::<u32>()? {
        run()?;
    }
    Ok(true)
}
