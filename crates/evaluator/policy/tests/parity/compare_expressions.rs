//! Compares phase, value or error text, type and cost of expressions.

use std::collections::BTreeMap;

use policy::expression::AccessCheck;
use policy::release::Release;
use serde_json::{Value as Json, json};

use crate::answer::{Answer, answer};
use crate::case::decide;
use crate::expressions::{Generator, Source};
use crate::server::{Server, servers};
use crate::words::comparable;
use crate::{PRINTED, assert_share, both, count, literals, percent, rng};

/// Values of the variables that a run uses.
const VARIABLES: usize = 16;

/// The release of a question: that of new expressions or that of stored ones.
fn release(server: &Server, index: usize) -> Release {
    if index.is_multiple_of(2) { Release::for_new(server.minor) } else { Release::for_stored(server.minor) }
}

#[test]
#[ignore = "needs Go: make parity"]
fn answers_generated_expressions_as_the_api_server_does() {
    let mut rng = rng();
    let servers = servers();
    let newest = servers.last().expect("a server");
    let overloads = newest.functions(newest.minor);
    let variables: Vec<Json> = (0..VARIABLES).map(|_| literals::variables(&mut rng)).collect();
    let mut generator = Generator::new(rng, &overloads);
    let sources = generator.sources(count("PARITY_EXPRESSIONS", 10_000));
    let mut used: BTreeMap<&str, usize> = generator.functions().map(|name| (name, 0)).collect();
    let mut different = 0;
    for server in &servers {
        let question = |(index, source): (usize, &Source)| {
            json!({
                "expression": source.text,
                "environment": format!("1.{}", release(server, index).environment),
                "variables": variables[index * VARIABLES / sources.len()],
            })
        };
        let questions: Vec<Json> = sources.iter().enumerate().map(question).collect();
        let (theirs, ours) = both(server, &questions, |index, question| {
            let decide = |check: &AccessCheck| Some(decide(check));
            answer(&sources[index].text, release(server, index), &question["variables"].to_string(), &decide)
        });
        let mut tally = Tally::default();
        for (((want, have), source), question) in theirs.iter().zip(&ours).zip(&sources).zip(&questions) {
            let phase = tally.add(want);
            if phase != "compile-error" {
                for name in &source.functions {
                    *used.entry(name).or_default() += 1;
                }
            }
            if tally.is_different(want, have) && tally.different <= PRINTED {
                println!("\n1.{} environment {} {}", server.minor, question["environment"], source.text);
                println!("  want {want}\n  have {have:?}");
            }
        }
        tally.check(server, sources.len());
        different += tally.different;
    }
    println!("  {} functions", used.len());
    let rare: Vec<_> = used.iter().filter(|(_, calls)| **calls < 3).collect();
    assert!(rare.is_empty(), "fewer than three expressions that load call these functions: {rare:?}");
    assert_eq!(different, 0, "{different} answers differ");
}

/// Counts of answers.
#[derive(Default)]
struct Tally {
    phases: BTreeMap<String, usize>,
    /// Answers that depend on the order of a map.
    orders: usize,
    different: usize,
}

impl Tally {
    /// Counts an answer of the server. Returns its phase.
    fn add<'j>(&mut self, want: &'j Json) -> &'j str {
        let phase = want[0]["phase"].as_str().unwrap_or_default();
        *self.phases.entry(phase.to_owned()).or_default() += 1;
        self.orders += usize::from(want[1].is_object());
        phase
    }

    fn is_different(&mut self, want: &Json, have: &Answer) -> bool {
        let same = |want: &Json| {
            want["phase"] == have.phase
                && comparable(want["value"].as_str().unwrap_or_default()) == comparable(&have.value)
                && want["type"] == have.of
                && want["cost"] == have.cost
        };
        // cel-go panics where this crate has a failure within the API server, and its parser does after some syntax errors.
        let panics = |want: &Json| {
            let own = ["internal error: ", "Syntax error: "];
            want["phase"] == "panic" && have.phase != "ok" && own.iter().any(|own| have.value.contains(own))
        };
        if want.as_array().expect("answers").iter().any(|want| same(want) || panics(want)) {
            return false;
        }
        self.different += 1;
        true
    }

    fn check(&self, server: &Server, all: usize) {
        println!("1.{}: {} expressions, {} differ", server.minor, all, self.different);
        println!("  {:?}, {} depend on the order of a map", self.phases, self.orders);
        let phase = |name: &str| self.phases.get(name).copied().unwrap_or_default();
        assert_share("refused", phase("compile-error"), all, 20.0);
        assert_share("runtime errors", phase("eval-error"), all, 10.0);
        assert!(percent(self.orders, all) < 2.0, "too many depend on the order of a map");
    }
}
