//! The recorded answers of API servers: phase, value, type, cost and error text of 327 expressions.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test fails by them and says why"
)]

use std::collections::BTreeMap;
use std::path::Path;

use answer::answer;
use policy::Authorization;
use policy::expression::AccessCheck;
use policy::release::Release;
use words::comparable;

mod answer;
mod show;
mod words;

/// Loops over maps that stop early: their cost depends on the order of the map, which is random in Go.
const ANY_ORDER: [(u64, &[u64]); 1] = [(57, &[16, 25, 34, 43])];

fn data(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cel").join(name);
    std::fs::read_to_string(path).expect("test data")
}

fn check(server: u8, environment: u8, file: &str) -> (usize, usize) {
    let variables = data("vars.json");
    let release = Release { server, environment };
    let allow =
        |_: &AccessCheck| Some(Authorization { allowed: true, reason: "because".to_owned(), error: None });
    let (mut agreed, mut total) = (0, 0);
    for line in data(file).lines() {
        let record: serde_json::Value = serde_json::from_str(line).expect("a record");
        let text = |name: &str| record[name].as_str().unwrap_or_default().to_owned();
        let number = record["n"].as_u64().unwrap_or_default();
        let phase = text("phase");
        let source = text("expr");
        let mut found = answer(&source, release, &variables, &allow);
        if found.phase == "eval-error" {
            found.value = format!("expression '{source}' resulted in error: {}", found.value);
        }
        found.value = comparable(&found.value);
        let cost = record["cost"].as_u64().unwrap_or_default();
        let costs = ANY_ORDER
            .iter()
            .find(|(case, _)| *case == number)
            .map_or(vec![cost], |(_, costs)| costs.to_vec());
        let same = found.phase == phase
            && found.value == comparable(&text("value"))
            && (found.of == text("type") || phase == "compile-error")
            && costs.contains(&found.cost);
        total += 1;
        if same {
            agreed += 1;
        } else {
            eprintln!(
                "{file} {number} {}\n  found {found:?}\n  want  {phase} {} {} {cost}",
                text("expr"),
                text("value"),
                text("type")
            );
        }
    }
    (agreed, total)
}

#[test]
fn agrees_with_every_recorded_server_and_environment() {
    let mut results = BTreeMap::new();
    for (server, name, environments) in
        [(35, "1.35.4", [30, 33, 34, 35].as_slice()), (37, "1.37.2", [30, 31, 32, 33, 34, 36, 37].as_slice())]
    {
        for environment in environments {
            let file = format!("server-{name}-env-1.{environment}.jsonl");
            results.insert(file.clone(), check(server, *environment, &file));
        }
    }
    for (file, (agreed, total)) in &results {
        println!("{file}: {agreed} of {total}");
    }
    assert!(results.values().all(|(agreed, total)| agreed == total && *total == 327));
}

#[test]
fn agrees_on_generated_expressions() {
    for (server, name, environment) in [(35, "1.35.4", 34), (37, "1.37.2", 37)] {
        let file = format!("generated-{name}-env-1.{environment}.jsonl");
        let (agreed, total) = check(server, environment, &file);
        println!("{file}: {agreed} of {total}");
        assert!(agreed == total && total > 1_700);
    }
}
