//! Compares the verdicts of policies: errors at load, denials, warnings and audit annotations.

use policy::release::Release;
use policy::set::PolicySetBuilder;
use serde_json::{Value as Json, json};

use fastrand::Rng;

use crate::case::{comparable_texts, evaluate, items, load, text};
use crate::cases::{Accepted, Cases};
use crate::expressions::Generator;
use crate::server::{Server, servers};
use crate::{PRINTED, assert_share, both, count, rng};

/// Expressions of each type that are generated for the policies of a server.
const EXPRESSIONS: usize = 2_000;

#[test]
#[ignore = "needs Go: make parity"]
fn judges_generated_policies_as_the_api_server_does() {
    let mut rng = rng();
    let mut different = 0;
    let count = count("PARITY_POLICIES", 2_000);
    for server in &servers() {
        let mut cases = Cases::new(rng.fork(), accepted(server, rng.fork()));
        let cases: Vec<Json> = (0..count).map(|_| cases.case()).collect();
        let questions: Vec<Json> = cases.iter().map(|case| json!({ "case": case })).collect();
        let (theirs, ours) = both(server, &questions, |index, _| {
            let answer = match load(&cases[index], PolicySetBuilder::new(Release::for_new(server.minor))) {
                Err(errors) => refused(errors),
                Ok(set) => evaluate(&cases[index], &set),
            };
            comparable_texts(&answer)
        });
        let mut tally = Tally::default();
        for ((case, want), have) in cases.iter().zip(&theirs).zip(&ours) {
            let wants = want.as_array().expect("answers");
            tally.add(case, &wants[0]);
            if wants.iter().any(|want| comparable_texts(&comparable(want)) == *have) {
                continue;
            }
            different += 1;
            if different <= PRINTED {
                println!("\n1.{} {case}\n  want {want}\n  have {have}", server.minor);
            }
        }
        println!("1.{}: {count} cases of policies", server.minor);
        tally.check(count);
    }
    assert_eq!(different, 0, "{different} verdicts differ");
}

/// Generates expressions and asks the server which it accepts, so that not most cases are refused.
fn accepted(server: &Server, rng: Rng) -> Accepted {
    let environment = Release::for_new(server.minor).environment;
    let mut generator = Generator::new(rng, &server.functions(environment));
    let mut keep = |of: &str| {
        let mut sources: Vec<String> = (0..EXPRESSIONS).map(|_| generator.of_type(of)).collect();
        // Policies without paramKind have no parameters, and message expressions can't ask the authorizer.
        sources
            .retain(|source| !source.contains("params") && (of == "bool" || !source.contains("authorizer")));
        let question = |source: &String| {
            json!({
                "expression": source,
                "environment": format!("1.{environment}"),
                "variables": { "object": null, "request": {} },
            })
        };
        let answers = server.ask(&sources.iter().map(question).collect::<Vec<_>>());
        let is_accepted = |(source, answer): (String, Json)| (answer[0]["type"] == of).then_some(source);
        sources.into_iter().zip(answers).filter_map(is_accepted).collect()
    };
    Accepted { conditions: keep("bool"), texts: keep("string") }
}

/// Errors in the order of their text: the server checks some fields in random order.
fn refused(mut errors: Vec<String>) -> Json {
    errors.retain(|error| !error.ends_with("no document defines this policy"));
    errors.sort();
    json!({ "refused": errors })
}

/// The part of a server's answer that this crate gives as well.
fn comparable(want: &Json) -> Json {
    if want["refused"].is_array() {
        return refused(items(want, "refused").iter().filter_map(Json::as_str).map(str::to_owned).collect());
    }
    // An error text names Go's type of a list; 1.37 has another one for lists of the request.
    let text = want.to_string().replace("*common.reflectSchemalessTypedList", "*types.baseList");
    let mut want: Json = serde_json::from_str(&text).expect("JSON");
    want.as_object_mut().expect("an answer").remove("decisions");
    want
}

/// Counts of cases.
#[derive(Default)]
struct Tally {
    refused: usize,
    denied: usize,
    errors_fail: usize,
    errors_ignore: usize,
    skipped: usize,
    updates: usize,
}

impl Tally {
    fn add(&mut self, case: &Json, want: &Json) {
        self.updates += usize::from(matches!(text(&case["request"], "operation"), "UPDATE" | "DELETE"));
        if want["refused"].is_array() {
            self.refused += 1;
            return;
        }
        self.denied += usize::from(want["message"].is_string());
        let decisions: Vec<&str> = items(want, "decisions").iter().filter_map(Json::as_str).collect();
        self.skipped += usize::from(decisions.iter().all(|decision| decision.ends_with(" skip")));
        let failed = |policy: &str| {
            decisions.iter().any(|decision| {
                let name = decision.strip_suffix(" error").and_then(|decision| decision.split(' ').next());
                items(case, "policies").iter().any(|candidate| {
                    name == candidate["metadata"]["name"].as_str()
                        && candidate["spec"]["failurePolicy"] == policy
                })
            })
        };
        self.errors_fail += usize::from(failed("Fail"));
        self.errors_ignore += usize::from(failed("Ignore"));
    }

    fn check(&self, all: usize) {
        assert_share("refused at load", self.refused, all, 20.0);
        assert_share("denied", self.denied, all, 20.0);
        assert_share("runtime errors with failurePolicy Fail", self.errors_fail, all, 15.0);
        assert_share("runtime errors with failurePolicy Ignore", self.errors_ignore, all, 15.0);
        assert_share("skipped by matching", self.skipped, all, 10.0);
        assert_share("updates or deletes", self.updates, all, 10.0);
    }
}
