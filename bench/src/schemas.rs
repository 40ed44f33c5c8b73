//! Custom resources: all steps of a creation relative to the API server's Go code, and memory of CRDs and of a large object.

use std::fs;
use std::time::{Duration, Instant};

use policy::crd::Crd;
use policy::value::{Arena, write_json};
use serde_json::{Value as Json, json};

use crate::figures::{Limit, Row, Samples};
use crate::policies::{GO, ask, time};
use crate::report::Report;
use crate::steps::{GATEWAY_API, Route, count_allocations, repository};
use crate::{Result, rounds, scaled, steps};

/// Limit of the time of a creation.
const CREATE_LIMIT: f64 = 0.3;
/// Creations of a batch.
const CREATIONS: usize = 4_000;
/// Limit of 14 CRDs in memory: 20 MB.
const CRDS_LIMIT: f64 = 20e6;
/// Limit of a tree, relative to its text.
const TREE_LIMIT: f64 = 12.0;

/// Measures all figures. They belong to the table of the policies.
pub(crate) fn measure(report: &mut Report) -> Result<()> {
    let crd = Route::crd()?;
    let crd_json: Json = {
        let (text, arena) = (Route::crd_text()?, Arena::new());
        let documents = policy::document::read(&text)?;
        serde_json::from_str(&write_json(documents.first().ok_or("the file has no document")?.value(&arena)))?
    };
    compare(&crd, &crd_json)?;
    let text = Route::object().to_string();
    let count = scaled(CREATIONS);
    let [mut durward, mut go] = [const { Samples::NONE }; 2];
    for _ in 0..rounds() {
        go.push_time(time(&json!({"crd": crd_json, "customResource": text, "rounds": count}))?);
        durward.push_time(create(&crd, &text, count)?);
    }
    let row = Row::seconds(format!("creation of an HTTPRoute of {} B, all steps", text.len()), durward);
    report.row(row.against(GO, go).limit(Limit::RatioAtMost(CREATE_LIMIT)));
    let counts = count_allocations()?;
    let number = |step: &str, key: &str| counts[step][key].as_f64().map(Samples::one).ok_or("not counted");
    let row = Row::bytes("14 CRDs of Gateway API in memory, rules compiled", number("crds", "bytes")?);
    report.row(row.limit(Limit::AtMost(CRDS_LIMIT)));
    let row = Row::bytes("tree of an object in JSON", number("tree", "bytes")?);
    report.row(row.limited_by("its text", number("tree", "text")?).limit(Limit::RatioAtMost(TREE_LIMIT)));
    Ok(())
}

/// Compares the errors of all recorded routes with those of the API server's code.
fn compare(crd: &Crd, crd_json: &Json) -> Result<()> {
    let mut objects = vec![Route::object()];
    for line in fs::read_to_string(repository().join(GATEWAY_API).join("cases.jsonl"))?.lines() {
        let case: Json = serde_json::from_str(line)?;
        if case["crd"] == "standard-gateway.networking.k8s.io_httproutes.yaml" && case["version"] == "v1" {
            let mut object = case["object"].clone();
            object["metadata"]["namespace"] = json!("default");
            objects.push(object);
        }
    }
    let questions: Vec<Json> = objects
        .iter()
        .map(|object| json!({"object": object.to_string(), "fieldValidation": "Strict"}))
        .collect();
    let answer = ask(&json!({"crdCase": {"crd": crd_json, "objects": questions}}))?;
    let theirs = answer["objects"].as_array().ok_or("the API server's code has no answers")?;
    if theirs.len() != objects.len() {
        return Err("the API server's code did not answer all questions".into());
    }
    for (object, theirs) in objects.iter().zip(theirs) {
        let text = object.to_string();
        let mut ours = steps::create(crd, Route::VERSION, &text, &Arena::new())?;
        ours.sort();
        ours.dedup();
        // Go's answer has each distinct result once.
        let theirs = &theirs[0];
        let equal = match theirs["errors"].as_array() {
            Some(errors) => {
                let mut errors: Vec<&str> = errors.iter().filter_map(Json::as_str).collect();
                errors.sort_unstable();
                errors.iter().copied().eq(ours.iter().map(String::as_str))
            }
            None => !ours.is_empty(),
        };
        if !equal {
            return Err(
                format!("the answers to {object} differ: Durward {ours:?}, the API server {theirs}").into()
            );
        }
    }
    println!("Durward and the API server's code have the same answers to {} HTTPRoutes", objects.len());
    Ok(())
}

fn create(crd: &Crd, text: &str, count: usize) -> Result<Duration> {
    let mut arena = Arena::new();
    steps::create(crd, Route::VERSION, text, &arena)?;
    let start = Instant::now();
    for _ in 0..count {
        arena.reset();
        if !steps::create(crd, Route::VERSION, text, &arena)?.is_empty() {
            return Err("the HTTPRoute is refused".into());
        }
    }
    Ok(start.elapsed() / u32::try_from(count)?)
}
