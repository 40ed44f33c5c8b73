//! CRDs that are created and updated, with the answers of the API server's code.

#![allow(clippy::expect_used, reason = "a test fails by it and says why")]

use serde_json::Value as Json;

#[path = "definition/mod.rs"]
mod definition;
mod words;

use definition::{admit, shown};

#[test]
fn crds_have_the_recorded_errors_and_warnings() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/definitions/cases.jsonl");
    let (mut refused, mut updates, mut different) = (0, 0, Vec::new());
    for (index, line) in std::fs::read_to_string(path).unwrap().lines().enumerate() {
        let case: Json = serde_json::from_str(line).unwrap();
        let old = Some(&case["old"]).filter(|old| !old.is_null());
        let recorded = |field: &str| {
            let texts = case["answer"][field].as_array().into_iter().flatten();
            shown(&texts.filter_map(|text| text.as_str().map(str::to_owned)).collect::<Vec<_>>())
        };
        let server = u8::try_from(case["server"].as_u64().unwrap()).unwrap();
        let answer = admit(&case["crd"], old, server).unwrap();
        let expected = recorded("all");
        refused += usize::from(!expected.is_empty());
        updates += usize::from(old.is_some());
        // Warnings of a CRD that is refused are not interesting.
        let warnings = if expected.is_empty() { recorded("warnings") } else { answer.warnings.clone() };
        if (&answer.errors, &answer.warnings, answer.undecided.len()) != (&expected, &warnings, 0) {
            different.push(format!("line {}: {expected:#?} {warnings:?} but {answer:#?}", index + 1));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
    assert!(refused > 50 && updates > 20, "{refused} {updates}");
}
