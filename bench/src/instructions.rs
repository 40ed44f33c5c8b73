//! Counts the instructions of each step with callgrind, and compares them with `baseline.json`.
//!
//! Instructions don't depend on the load of the machine, so a small change for the worse is found on any machine. The count of a step is
//! the difference between two numbers of rounds, so that the start of the program does not count. Counts depend on rustc and the
//! architecture, which are the key of a baseline.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::report::rustc;
use crate::steps::NAMES;

/// Allowed growth in percent.
const ALLOWED: f64 = 5.0;
/// Rounds of the two runs.
const ROUNDS: (u32, u32) = (10, 60);
/// The large review takes a minute, and runs the same code as the small one.
const LEFT_OUT: &str = "decode-large";

/// Instructions of a round by step.
type Counts = BTreeMap<String, u64>;
/// Baselines by version of rustc and architecture.
type Baselines = BTreeMap<String, Counts>;

/// Compares, and prints how to accept new counts. Returns whether no step needs more than 5 % more instructions.
pub(crate) fn compare() -> Result<bool> {
    let key = key();
    let baselines = read()?;
    let update =
        "To accept new counts, run make bench-instructions UPDATE=update, and commit bench/baseline.json.";
    let Some(baseline) = baselines.get(&key) else {
        return Err(format!("bench/baseline.json has no counts for rustc {key}. {update}").into());
    };
    let mut is_good = true;
    println!("instructions of a round, rustc {key}");
    for (name, count) in count()? {
        let Some(&before) = baseline.get(&name) else {
            println!("  {name:<14} {count:>12}, not in the baseline");
            is_good = false;
            continue;
        };
        let change = (count as f64 / before as f64 - 1.0) * 100.0;
        let is_over = change > ALLOWED;
        let remark = if is_over { format!("more than {ALLOWED} % over the baseline") } else { String::new() };
        println!("  {name:<14} {count:>12}, before {before:>12}, {change:>+6.1} %  {remark}");
        is_good &= !is_over;
    }
    if !is_good {
        println!("{update}");
    }
    Ok(is_good)
}

/// Writes the counts of this version of rustc into the baseline.
pub(crate) fn update() -> Result<bool> {
    let mut baselines = read()?;
    let counts = count()?;
    for (name, count) in &counts {
        println!("  {name:<14} {count:>12}");
    }
    baselines.insert(key(), counts);
    fs::write(path(), serde_json::to_string_pretty(&baselines)? + "\n")?;
    Ok(true)
}

fn count() -> Result<Counts> {
    let mut counts = Counts::new();
    for name in NAMES.into_iter().filter(|name| *name != LEFT_OUT) {
        let (few, many) = ROUNDS;
        let difference = instructions(name, many)?.saturating_sub(instructions(name, few)?);
        counts.insert(name.to_owned(), difference / u64::from(many - few));
    }
    Ok(counts)
}

/// Returns the instructions of a whole process.
fn instructions(step: &str, rounds: u32) -> Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .args(["step", step, &rounds.to_string()])
        .output()
        .map_err(|error| format!("valgrind (Debian: valgrind) did not start: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("valgrind ended with {}: {text}", output.status).into());
    }
    // words of valgrind: callgrind/main.c
    let count =
        text.lines().find_map(|line| line.split_once("Collected :")).ok_or("valgrind printed no count")?.1;
    Ok(count.trim().parse()?)
}

fn key() -> String {
    format!("{} {}", rustc(), std::env::consts::ARCH)
}

fn read() -> Result<Baselines> {
    match fs::read_to_string(path()) {
        Ok(text) => Ok(serde_json::from_str(&text)?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Baselines::new()),
        Err(error) => Err(error.into()),
    }
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("baseline.json")
}
