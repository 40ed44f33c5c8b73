//! Compares answers to generated expressions, policies and CRDs with those of the API server's code: `make parity`.
//!
//! The seed is printed. `PARITY_SEED` repeats a run. `PARITY_EXPRESSIONS`, `PARITY_POLICIES`, `PARITY_CRDS` and `PARITY_OBJECTS` change
//! its length.

#![allow(
    clippy::cast_precision_loss,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::string_slice,
    reason = "a test fails by them and says why"
)]

use std::thread;

use fastrand::Rng;
use serde_json::Value as Json;
use server::Server;

#[path = "../answer/mod.rs"]
mod answer;
#[path = "../case/mod.rs"]
mod case;
mod cases;
mod compare_crds;
mod compare_definitions;
mod compare_expressions;
mod compare_policies;
mod custom_resources;
mod defects;
#[path = "../definition/mod.rs"]
mod definition;
mod definition_defects;
mod expressions;
mod literals;
mod objects;
mod rules;
mod schema_defects;
mod schemas;
mod server;
#[path = "../show/mod.rs"]
mod show;
mod spoil;
mod texts;
mod types;
#[path = "../words/mod.rs"]
mod words;

/// Differences that are printed.
const PRINTED: usize = 40;
/// Stack of a thread that evaluates. Some expressions are deep.
const STACK: usize = 64 << 20;

/// A number from the environment of the process.
fn number(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).unwrap_or_default();
    if text.is_empty() { default } else { text.parse().expect("a number") }
}

fn count(name: &str, default: u64) -> usize {
    usize::try_from(number(name, default)).expect("a count")
}

/// The generator of random numbers. Its seed is printed.
fn rng() -> Rng {
    let seed = number("PARITY_SEED", fastrand::u64(..1 << 48));
    println!("parity: seed {seed}");
    Rng::with_seed(seed)
}

fn percent(part: usize, all: usize) -> f64 {
    100.0 * part as f64 / all as f64
}

/// Prints a share, and fails if it is smaller than `least` percent.
fn assert_share(name: &str, part: usize, all: usize, least: f64) {
    println!("  {name}: {part} of {all}");
    assert!(percent(part, all) >= least, "{name}: at least {least} % are needed");
}

/// Answers of a server and of this crate, computed at the same time.
fn both<A: Send>(
    server: &Server,
    questions: &[Json],
    ours: impl Fn(usize, &Json) -> A + Sync,
) -> (Vec<Json>, Vec<A>) {
    thread::scope(|scope| {
        let theirs = scope.spawn(|| server.ask(questions));
        let evaluate =
            || questions.iter().enumerate().map(|(index, question)| ours(index, question)).collect();
        let have = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, evaluate).expect("a thread");
        (theirs.join().expect("the server's answers"), have.join().expect("our answers"))
    })
}
