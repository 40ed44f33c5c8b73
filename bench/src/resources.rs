//! The guard of policies: CPU of a review, relative to the evaluation of its policy plus the echo; many policies of which few can match,
//! relative to these few; memory and CPU against the number of policies.

use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

use policy::facts::Facts;
use policy::release::{NEWEST, Release};
use policy::request::{GroupVersion, Request};
use policy::set::Builder;
use policy::value::{Arena, read_json};
use serde_json::json;

use crate::figures::{Curve, Limit, MIB, Row, Samples, Unit};
use crate::report::Report;
use crate::server::{answer, cost};
use crate::servers::{Folder, Guards, Server};
use crate::{Result, answers, reviews, rounds, scaled};

/// Limit of the CPU of a review, relative to the evaluation by the engine of `durward check` plus the echo.
const REVIEW_LIMIT: f64 = 1.5;
/// Limit of the CPU of a review with many policies, relative to those that can match.
const MANY_LIMIT: f64 = 1.2;
const MEMORY_LIMIT: f64 = 40.0 * MIB;
const MATCHING: usize = 3;
const MANY: usize = 200;
const CONNECTIONS: usize = 8;
const REQUESTS: usize = 40_000;
const EVALUATIONS: usize = 20_000;
/// Numbers of policies on the curves.
const CAN_MATCH: [usize; 5] = [1, 3, 10, 30, 100];
const CAN_NOT_MATCH: [usize; 4] = [3, 50, 200, 600];

/// The policy of the example.
const EXAMPLE: &str = include_str!("../../examples/kubernetesclusters/policy.yaml");

/// Measures the guard.
pub(crate) fn measure(folder: &Folder, report: &mut Report) -> Result<()> {
    example(folder, report)?;
    numbers(folder, report)
}

fn example(folder: &Folder, report: &mut Report) -> Result<()> {
    let body = reviews::cluster();
    fs::write(folder.file("policies.yaml"), EXAMPLE)?;
    let server = Server::durward(folder, Guards::Policies)?;
    answers::expect_plain(&body, &answer(&server, folder, server.path, &body)?)?;
    drop(server);
    let [mut durward, mut least] = [const { Samples::NONE }; 2];
    for _ in 0..rounds() {
        let echo = cpu(&Server::echo(folder)?, folder, &body)?;
        least.push_time(echo + evaluate()?);
        durward.push_time(cpu(&Server::durward(folder, Guards::Policies)?, folder, &body)?);
    }
    let pod = reviews::opted_in_pod();
    let [mut few, mut many, mut memory] = [const { Samples::NONE }; 3];
    for _ in 0..rounds() {
        fs::write(folder.file("policies.yaml"), policies(MATCHING, 0))?;
        few.push_time(cpu(&Server::durward(folder, Guards::Policies)?, folder, &pod)?);
        fs::write(folder.file("policies.yaml"), policies(MATCHING, MANY - MATCHING))?;
        let server = Server::durward(folder, Guards::Policies)?;
        many.push_time(cpu(&server, folder, &pod)?);
        memory.push(server.resident()?);
    }
    report.section(
        "The guard resources",
        "The first row has the policy of the examples. Its peer is the CPU of the echo plus the time of the evaluation by the engine of \
         `durward check`. The other rows have generated policies with three validations and a variable.",
    );
    let row = Row::seconds(
        format!("custom resource of {} B with the policy of the examples: CPU", body.len()),
        durward,
    );
    report.row(row.limited_by("echo and evaluation", least).limit(Limit::RatioAtMost(REVIEW_LIMIT)));
    let row = Row::seconds(format!("pod with {MANY} policies, {MATCHING} of which can match: CPU"), many);
    report.row(row.limited_by("only these 3", few).limit(Limit::RatioAtMost(MANY_LIMIT)));
    report.row(
        Row::bytes(format!("memory with {MANY} policies, after the reviews"), memory)
            .limit(Limit::AtMost(MEMORY_LIMIT)),
    );
    Ok(())
}

/// Measures against the number of policies.
fn numbers(folder: &Folder, report: &mut Report) -> Result<()> {
    const DURWARD: &str = "Durward";
    let new = |id, title, x, y, unit| Curve::new(id, title, x, (y, unit), &[DURWARD]);
    let mut matching = new(
        "policies-cpu",
        "CPU of a review by policies that can match",
        "policies that can match",
        "CPU of a review",
        Unit::Seconds,
    );
    let mut others = new(
        "policies-others-cpu",
        "CPU of a review by policies that can't match",
        "policies; 3 can match",
        "CPU of a review",
        Unit::Seconds,
    );
    let mut memory =
        new("policies-memory", "Memory by policies", "policies; 3 can match", "resident memory", Unit::Bytes);
    let pod = reviews::opted_in_pod();
    for _ in 0..rounds() {
        for count in CAN_MATCH {
            fs::write(folder.file("policies.yaml"), policies(count, 0))?;
            let server = Server::durward(folder, Guards::Policies)?;
            let cost = cost(&server, folder, &server.request(&pod), CONNECTIONS, REQUESTS / (4 + count))?;
            matching.add(DURWARD, count as f64, cost.cpu.as_secs_f64());
        }
        for count in CAN_NOT_MATCH {
            fs::write(folder.file("policies.yaml"), policies(MATCHING, count - MATCHING))?;
            let server = Server::durward(folder, Guards::Policies)?;
            let cost = cost(&server, folder, &server.request(&pod), CONNECTIONS, REQUESTS / 8)?;
            others.add(DURWARD, count as f64, cost.cpu.as_secs_f64());
            memory.add(DURWARD, count as f64, server.resident()?);
        }
    }
    report
        .section("Number of policies", "The generated policies of the guard resources, and a pod of 2.3 kB.");
    for curve in [matching, others, memory] {
        report.curve(curve);
    }
    Ok(())
}

fn cpu(server: &Server, folder: &Folder, body: &[u8]) -> Result<Duration> {
    Ok(cost(server, folder, &server.request(body), CONNECTIONS, REQUESTS / 2)?.cpu)
}

/// Time from the text of the object to the verdict, by the engine of `durward check`.
fn evaluate() -> Result<Duration> {
    let arena = Arena::new();
    let mut builder = Builder::new(Release::for_new(NEWEST));
    for document in policy::document::read(EXAMPLE)? {
        builder.add("example", document.value(&arena));
    }
    let set = builder.finish().map_err(|errors| format!("the policies are refused: {errors:?}"))?;
    let (text, facts) = (reviews::cluster_object().to_string(), Facts::default());
    let mut arena = Arena::new();
    let count = scaled(EVALUATIONS);
    let start = Instant::now();
    for _ in 0..count {
        {
            let of = |name| GroupVersion { group: "ecs.yun.com", version: "v1", name };
            let request = Request {
                operation: "CREATE",
                kind: of("KubernetesCluster"),
                resource: of("kubernetesclusters"),
                name: "test-cluster",
                namespace: "shop",
                object: read_json(&text, &arena)?,
                ..Request::default()
            };
            let evaluation = set.evaluate(&request, &facts, &arena, &|| true);
            if !evaluation.decisions.denials.is_empty() || evaluation.decisions.evaluated.is_empty() {
                return Err(format!("the policy has another verdict: {evaluation:?}").into());
            }
        }
        arena.reset();
    }
    Ok(start.elapsed() / u32::try_from(count)?)
}

/// Returns policies that match pods, and others for other resources.
pub(crate) fn policies(matching: usize, others: usize) -> String {
    let mut out = String::new();
    for number in 0..matching + others {
        let (group, resource) = if number < matching {
            (String::new(), "pods".to_owned())
        } else {
            (format!("g{}.example.org", number % 20), format!("r{number}"))
        };
        let policy = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": format!("policy-{number}")},
            "spec": {
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": [resource],
                }]},
                "variables": [{"name": "images", "expression": "object.spec.containers.map(c, c.image)"}],
                "validations": [
                    {"expression": "variables.images.all(image, image.startsWith('registry.'))"},
                    {"expression": "object.spec.containers.all(c, has(c.resources.limits))", "messageExpression": "'no limits in ' + object.metadata.name"},
                    {"expression": format!("object.metadata.labels.app != 'app-{number}'")},
                ],
            },
        });
        let binding = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": format!("policy-{number}")},
            "spec": {"policyName": format!("policy-{number}"), "validationActions": ["Deny"]},
        });
        // Writing to a `String` can't fail.
        let _ = write!(out, "---\n{policy}\n---\n{binding}\n");
    }
    out
}
