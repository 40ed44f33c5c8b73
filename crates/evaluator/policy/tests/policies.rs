//! Policies and bindings: what the API server refuses, and what it answers to requests, as recorded from its own code.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test fails by them and says why"
)]

use std::path::Path;

use case::{comparable_texts, evaluate, load};
use policy::release::Release;
use policy::set::PolicySetBuilder;
use serde_json::{Value as Json, json};

mod case;
mod words;

fn data(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/policies").join(name);
    std::fs::read_to_string(path).expect("test data")
}

fn lines(name: &str) -> Vec<Json> {
    let text = data(name);
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn compare(server: u8, file: &str) {
    let mut cases = lines("cases.jsonl");
    let defaults: Json = serde_json::from_str(&data("defaults.json")).expect("JSON");
    for case in &mut cases {
        for field in ["request", "namespaces"] {
            if case[field].is_null() {
                case[field] = defaults[field].clone();
            }
        }
    }
    let answers = lines(file);
    assert_eq!(cases.len(), answers.len());
    let (mut different, mut skipped) = (0, 0);
    for (case, want) in cases.iter().zip(&answers) {
        if want.as_object().is_none_or(serde_json::Map::is_empty) {
            skipped += 1;
            continue;
        }
        // The answers of 1.37 are those of its dispatcher, which checks nothing.
        let stored = case["mode"] == "skip" || server == 37;
        let builder = if stored {
            PolicySetBuilder::stored(server)
        } else {
            PolicySetBuilder::new(Release::for_new(server))
        };
        let alone = case["mode"] == "create";
        let have = match load(case, builder) {
            Err(mut errors) => {
                errors.retain(|error| !(alone && error.ends_with("no document defines this policy")));
                json!({ "refused": errors })
            }
            Ok(_) if alone => json!({ "refused": [] }),
            Ok(set) => evaluate(case, &set),
        };
        let have = comparable_texts(&have);
        let mut want = want.clone();
        if let Some(fields) = want.as_object_mut() {
            fields.remove("causes");
            if fields.get("warnings").is_some_and(Json::is_null) {
                fields.insert("warnings".to_owned(), json!([]));
            }
        }
        if have != comparable_texts(&want) {
            different += 1;
            let title = &case["title"];
            eprintln!("{title}\n  want {want}\n  have {have}");
        }
    }
    eprintln!("{} of {} cases agree", cases.len() - different, cases.len());
    // The records of 1.37 have no answers for objects that its dispatcher was not asked about.
    assert_eq!((different, skipped), (0, if server == 37 { 140 } else { 0 }));
}

#[test]
fn answers_as_version_1_35_does() {
    compare(35, "server-1.35.4.jsonl");
}

#[test]
fn answers_as_version_1_37_does() {
    compare(37, "server-1.37.2.jsonl");
}
