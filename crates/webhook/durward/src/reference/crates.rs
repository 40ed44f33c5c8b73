//! The table of crates in `ARCHITECTURE.md` names the crates that each crate depends on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::ROOT;

/// Dependencies by crate.
type Crates = BTreeMap<String, BTreeSet<String>>;

/// Returns the crates of `crates/` as cargo knows them.
fn actual() -> Crates {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]).current_dir(ROOT);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let short = |package: &Value| package["name"].as_str().unwrap().trim_start_matches("durward-").to_owned();
    let is_own = |package: &&Value| package["manifest_path"].as_str().unwrap().contains("/crates/");
    let needs = |package: &Value| {
        let all = package["dependencies"].as_array().unwrap().iter();
        all.filter(|one| one["path"].is_string() && one["kind"].is_null()).map(short).collect()
    };
    packages.iter().filter(is_own).map(|package| (short(package), needs(package))).collect()
}

/// Returns the words in backticks.
fn quoted(cell: &str) -> impl Iterator<Item = String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned)
}

#[test]
fn the_table_of_crates_is_true() {
    let page = fs::read_to_string(Path::new(ROOT).join("ARCHITECTURE.md")).unwrap();
    let table = page.split("| crate | depends on | contents |\n").nth(1).unwrap();
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    let documented: Crates = rows
        .map(|row| {
            let mut cells = row.trim_matches('|').split('|');
            let name = quoted(cells.next().unwrap()).next().unwrap();
            (name, quoted(cells.next().unwrap()).collect())
        })
        .collect();
    assert_eq!(documented, actual());
}
