//! Admission policies: evaluation and load, relative to the API server's Go code.
//!
//! The peer is the Go program of `crates/policy/parity`. It evaluates as a policy does, on a pod that is decoded already, and
//! checks policies that are decoded already. Durward starts from JSON text in both cases.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use policy::expression::{Expression, Variables};
use policy::release::Release;
use policy::set::Builder;
use policy::value::{Arena, read_json};
use serde_json::{Value as Json, json};

use crate::{Result, review};

/// Limit of the ratio for one evaluation.
const EVALUATE_LIMIT: f64 = 0.25;
/// Limit of the ratio for loading policies.
const LOAD_LIMIT: f64 = 0.15;
const POLICIES: usize = 60;
/// Evaluations and loads, of which the shortest counts.
const EVALUATIONS: usize = 20_000;
const LOADS: usize = 20;
/// Minor of the API server.
const MINOR: u8 = 35;

/// A rule with three clauses.
const RULE: &str = "object.spec.containers.all(c, has(c.resources.limits) && c.image.startsWith('registry.')) \
    && object.metadata.labels['app'] == 'web' && (!has(object.spec.hostNetwork) || !object.spec.hostNetwork)";

/// Measures and prints. Returns whether both ratios are within their limits.
pub(crate) fn measure() -> Result<bool> {
    let review: Json = serde_json::from_slice(&review::opted_in_pod())?;
    let pod = review.pointer("/request/object").ok_or("the review has no object")?.to_string();
    println!("policies, the peer is the API server's Go code; shortest time");
    let peer = Peer::build()?;
    let object: Json = serde_json::from_str(&pod)?;
    let question = json!({ "expression": RULE, "object": object, "rounds": EVALUATIONS });
    let theirs = peer.measure(&question)?;
    let evaluated =
        ratio(&format!("rule on a pod of {} bytes", pod.len()), theirs, evaluate(&pod)?, EVALUATE_LIMIT);
    let policies: Vec<Json> = (0..POLICIES).map(policy).collect();
    let theirs = peer.measure(&json!({ "policies": policies, "rounds": LOADS }))?;
    let loaded = ratio(&format!("loading {POLICIES} policies"), theirs, load(&policies)?, LOAD_LIMIT);
    Ok(evaluated && loaded)
}

fn ratio(what: &str, theirs: Duration, ours: Duration, limit: f64) -> bool {
    let ratio = ours.as_secs_f64() / theirs.as_secs_f64();
    println!("  {what:<28} Go {theirs:>9.1?}   durward {ours:>9.1?}   ratio {ratio:.3} (limit {limit})");
    ratio <= limit
}

/// Time from the text of an object to the result of the rule.
fn evaluate(pod: &str) -> Result<Duration> {
    let expression = Expression::compile(RULE, Release::for_stored(MINOR))?;
    let mut best = Duration::MAX;
    let mut arena = Arena::new();
    for _ in 0..EVALUATIONS {
        let start = Instant::now();
        {
            let variables = Variables { object: read_json(pod, &arena)?, ..Variables::default() };
            let (result, _) = expression.evaluate(&variables, &|_| None, &arena);
            if !matches!(result, Ok(policy::value::Value::Bool(true))) {
                return Err(format!("the rule has the result {result:?}").into());
            }
        }
        arena.reset();
        best = best.min(start.elapsed());
    }
    Ok(best)
}

/// Time from the text of policies to a set that can evaluate requests.
fn load(policies: &[Json]) -> Result<Duration> {
    let texts: Vec<String> = policies.iter().map(Json::to_string).collect();
    let mut best = Duration::MAX;
    for _ in 0..LOADS {
        let start = Instant::now();
        let arena = Arena::new();
        let mut builder = Builder::new(Release::for_new(MINOR));
        for text in &texts {
            builder.add("policies", read_json(text, &arena)?);
        }
        let set = builder.finish().map_err(|errors| format!("the policies are refused: {errors:?}"))?;
        best = best.min(start.elapsed());
        if set.len() != policies.len() {
            return Err("a policy is missing".into());
        }
    }
    Ok(best)
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

/// The Go program.
struct Peer {
    program: std::path::PathBuf,
}

impl Peer {
    fn build() -> Result<Self> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/policy/parity");
        let program = std::env::current_exe()?.with_file_name("parity-1.35");
        let go = Command::new("go").args(["build", "-o"]).arg(&program).arg(".").current_dir(source).status();
        let status = go.map_err(|error| format!("the peer needs Go: {error}"))?;
        if status.success() { Ok(Self { program }) } else { Err("go build failed".into()) }
    }

    fn measure(&self, question: &Json) -> Result<Duration> {
        let mut child = Command::new(&self.program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut input = child.stdin.take().ok_or("no input")?;
        writeln!(input, "{}", json!({ "measure": question }))?;
        drop(input);
        let mut answer = String::new();
        child.stdout.take().ok_or("no output")?.read_to_string(&mut answer)?;
        child.wait()?;
        let answer: Json = serde_json::from_str(&answer)?;
        Ok(Duration::from_nanos(answer["nanoseconds"].as_u64().ok_or("no time")?))
    }
}
