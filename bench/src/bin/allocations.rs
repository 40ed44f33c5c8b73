//! Counts the allocations of each step, and prints them as JSON. It is a program of its own, because a counting allocator would slow
//! down the servers that `durward-bench` measures.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the output is the product of a benchmark")]
#![allow(dead_code, reason = "durward-bench uses the other items of these modules")]

#[path = "../steps/list.rs"]
mod list;
#[path = "../reviews.rs"]
mod reviews;

use std::alloc::System;
use std::error::Error;
use std::fs;
use std::process::ExitCode;

use policy::crd::Crd;
use policy::value::{Arena, read_json};
use serde_json::{Map, Value, json};
use stats_alloc::{Region, StatsAlloc};

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// The number of CRDs of Gateway API.
const CRDS: usize = 14;
/// Bytes of the large object.
const LARGE: usize = 3_000_000;

#[global_allocator]
static ALLOCATOR: StatsAlloc<System> = StatsAlloc::system();

fn main() -> ExitCode {
    match count() {
        Ok(counts) => {
            println!("{}", json!(counts));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn count() -> Result<Map<String, Value>> {
    let mut counts = Map::new();
    for name in list::NAMES {
        let mut run = list::prepare(name)?;
        // The first run fills caches.
        run()?;
        let region = Region::new(&ALLOCATOR);
        run()?;
        let change = region.change();
        let allocations = change.allocations + change.reallocations;
        counts.insert(name.to_owned(), json!({"allocations": allocations}));
    }
    counts.insert("crds".to_owned(), json!({"bytes": crds()?}));
    let (bytes, text) = tree()?;
    counts.insert("tree".to_owned(), json!({"bytes": bytes, "text": text}));
    Ok(counts)
}

/// Returns the bytes of all CRDs of Gateway API, after an object of each has compiled its rules.
fn crds() -> Result<usize> {
    let directory = list::repository().join(list::GATEWAY_API);
    let cases = fs::read_to_string(directory.join("cases.jsonl"))?;
    let cases: Vec<Value> = cases.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let region = Region::new(&ALLOCATOR);
    let mut crds = Vec::new();
    for entry in fs::read_dir(&directory)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let (text, arena) = (fs::read_to_string(&path)?, Arena::new());
        let documents = policy::document::read(&text)?;
        let document = documents.first().ok_or("the file has no document")?.value(&arena);
        let crd = Crd::read(document).map_err(|errors| format!("{errors:?}"))?;
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        for case in cases.iter().filter(|case| case["crd"] == name) {
            let version = case["version"].as_str().unwrap_or_default();
            list::create(&crd, version, &case["object"].to_string(), &Arena::new())?;
        }
        crds.push(crd);
    }
    let change = region.change();
    if crds.len() != CRDS {
        return Err(format!("{} CRDs were loaded, not {CRDS}", crds.len()).into());
    }
    Ok(change.bytes_allocated - change.bytes_deallocated)
}

/// Returns the bytes of the tree of a large object, and those of its text.
fn tree() -> Result<(usize, usize)> {
    let review: Value = serde_json::from_slice(&reviews::large_pod(LARGE))?;
    let text = review["request"]["object"].to_string();
    let region = Region::new(&ALLOCATOR);
    let arena = Arena::new();
    let tree = read_json(&text, &arena)?;
    let change = region.change();
    if tree.field("spec").is_none() || arena.is_full() {
        return Err("the object was not read".into());
    }
    Ok((change.bytes_allocated - change.bytes_deallocated, text.len()))
}
