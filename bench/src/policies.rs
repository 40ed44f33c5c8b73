//! Admission policies: evaluation and load, relative to the API server's Go code.
//!
//! The peer is the Go program of `crates/evaluator/policy/parity`. It evaluates as a policy does, on a pod that is decoded already, and
//! checks policies that are decoded already. Durward starts from JSON text in both cases. A sample is the mean of a batch, so that it
//! contains Go's garbage collection.

use std::io::{Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use policy::expression::{Expression, Variables};
use policy::release::Release;
use policy::set::Builder;
use policy::value::{Arena, read_json};
use serde_json::{Value as Json, json};

use crate::figures::{Limit, Row, Samples};
use crate::peers::Peer;
use crate::report::Report;
use crate::servers::pinned;
use crate::steps::RULE;
use crate::{Result, reviews, rounds, scaled};

/// Limit of the ratio for one evaluation.
const EVALUATE_LIMIT: f64 = 0.25;
/// Limit of the ratio for loading policies.
const LOAD_LIMIT: f64 = 0.15;
const POLICIES: usize = 60;
/// Evaluations and loads of a batch.
const EVALUATIONS: usize = 20_000;
const LOADS: usize = 20;
/// Minor of the API server.
pub(crate) const MINOR: u8 = 35;

/// Measures both.
pub(crate) fn measure(report: &mut Report) -> Result<()> {
    let review: Json = serde_json::from_slice(&reviews::opted_in_pod())?;
    let object = review.pointer("/request/object").ok_or("the review has no object")?;
    let pod = object.to_string();
    let policies: Vec<Json> = (0..POLICIES).map(policy).collect();
    let (evaluations, loads) = (scaled(EVALUATIONS), scaled(LOADS));
    let [mut evaluated, mut loaded, mut go_evaluated, mut go_loaded] = [const { Samples::NONE }; 4];
    for _ in 0..rounds() {
        go_evaluated.push_time(time(&json!({"expression": RULE, "object": object, "rounds": evaluations}))?);
        evaluated.push_time(evaluate(&pod, evaluations)?);
        go_loaded.push_time(time(&json!({"policies": policies, "rounds": loads}))?);
        loaded.push_time(load(&policies, loads)?);
    }
    report.section(
        "Policies and CRDs beside the API server's code",
        "The peer is the API server's own code (k8s.io/apiserver and k8s.io/apiextensions-apiserver 0.35.4). Both programs run on one core \
         each. Go starts with the decoded pod and the decoded policies, Durward with their JSON. Both must get the same results before a \
         time counts.",
    );
    let row = Row::seconds(format!("rule with three clauses on a pod of {} B", pod.len()), evaluated);
    report.row(row.against(GO, go_evaluated).limit(Limit::RatioAtMost(EVALUATE_LIMIT)));
    let row = Row::seconds(format!("loading and checking {POLICIES} policies"), loaded);
    report.row(row.against(GO, go_loaded).limit(Limit::RatioAtMost(LOAD_LIMIT)));
    Ok(())
}

/// The name of the peer.
pub(crate) const GO: &str = "API server's Go code";

/// Time from the text of an object to the result of the rule. The peer ends with an error if its result is another one.
fn evaluate(pod: &str, count: usize) -> Result<Duration> {
    let expression = Expression::compile(RULE, Release::for_stored(MINOR))?;
    let mut arena = Arena::new();
    let start = Instant::now();
    for _ in 0..count {
        {
            let variables = Variables { object: read_json(pod, &arena)?, ..Variables::default() };
            let (result, _) = expression.evaluate(&variables, &|_| None, &arena);
            if !matches!(result, Ok(policy::value::Value::Bool(true))) {
                return Err(format!("the rule has the result {result:?}").into());
            }
        }
        arena.reset();
    }
    Ok(start.elapsed() / u32::try_from(count)?)
}

/// Time from the text of policies to a set that can evaluate requests. The peer ends with an error if it refuses one.
fn load(policies: &[Json], count: usize) -> Result<Duration> {
    let texts: Vec<String> = policies.iter().map(Json::to_string).collect();
    let start = Instant::now();
    for _ in 0..count {
        let arena = Arena::new();
        let mut builder = Builder::new(Release::for_new(MINOR));
        for text in &texts {
            builder.add("policies", read_json(text, &arena)?);
        }
        let set = builder.finish().map_err(|errors| format!("the policies are refused: {errors:?}"))?;
        if set.len() != policies.len() {
            return Err("a policy is missing".into());
        }
    }
    Ok(start.elapsed() / u32::try_from(count)?)
}

/// A policy with a variable, a match condition, three validations and a message expression.
fn policy(number: usize) -> Json {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": format!("policy-{number}") },
        "spec": {
            "matchConstraints": { "resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["pods"],
            }] },
            "matchConditions": [{ "name": "users", "expression": format!("request.userInfo.username != 'user-{number}'") }],
            "variables": [{ "name": "images", "expression": "object.spec.containers.map(c, c.image)" }],
            "validations": [
                { "expression": RULE },
                { "expression": format!("variables.images.all(image, image.matches('^registry[.][a-z]+/v{number}/'))") },
                {
                    "expression": format!("object.spec.?replicas.orValue(1) <= {number}"),
                    "messageExpression": format!("'at most {number} replicas, not ' + string(object.spec.replicas)"),
                },
            ],
        },
    })
}

/// Returns the mean time of the Go program for one round of a measurement.
pub(crate) fn time(measurement: &Json) -> Result<Duration> {
    let answer = ask(&json!({ "measure": measurement }))?;
    Ok(Duration::from_nanos(answer["nanoseconds"].as_u64().ok_or("no time")?))
}

/// Returns the answer of the Go program to a question.
pub(crate) fn ask(question: &Json) -> Result<Json> {
    let mut child =
        pinned(&Peer::ApiServer.program()?).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut input = child.stdin.take().ok_or("no input")?;
    writeln!(input, "{question}")?;
    drop(input);
    let mut answer = String::new();
    child.stdout.take().ok_or("no output")?.read_to_string(&mut answer)?;
    let status = child.wait()?;
    if !status.success() {
        return Err(format!("the API server's code ended with {status}").into());
    }
    Ok(serde_json::from_str(&answer)?)
}
