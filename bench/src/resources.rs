//! The guard of policies: CPU of a review, relative to the evaluation of its policy plus the echo; 200 policies of which three can match,
//! relative to these three; resident memory with 200 policies.

use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

use policy::facts::Facts;
use policy::release::{NEWEST, Release};
use policy::request::{GroupVersion, Request};
use policy::set::Builder;
use policy::value::{Arena, read_json};
use serde_json::json;

use crate::peer::{Server, Snapshot};
use crate::{Result, load, review};

/// Limit of the CPU of a review, relative to the evaluation by the engine of `durward check` plus the echo.
const REVIEW_LIMIT: f64 = 1.5;
/// Limit of the CPU of a review with many policies, relative to those that can match.
const MANY_LIMIT: f64 = 1.2;
/// Limit in MiB.
const MEMORY_LIMIT: f64 = 40.0;
const MATCHING: usize = 3;
const MANY: usize = 200;
const ROUNDS: usize = 3;
const REQUESTS: usize = 40_000;
const EVALUATIONS: usize = 20_000;

/// The policy of the example.
const EXAMPLE: &str = include_str!("../../examples/kubernetesclusters/policy.yaml");

/// Measures and prints. Returns whether all figures are within their limits.
pub(crate) fn measure(folder: &Snapshot) -> Result<bool> {
    println!("guard resources, server on one core; best of {ROUNDS} rounds");
    let body = cluster_review();
    fs::write(folder.file("policies.yaml"), EXAMPLE)?;
    let (mut echo, mut example) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        echo = echo.min(cpu(&Server::echo(folder)?, folder, &body)?);
        example = example.min(cpu(&Server::policies(folder)?, folder, &body)?);
    }
    let evaluation = evaluate()?;
    let ratio = example.as_secs_f64() / (echo + evaluation).as_secs_f64();
    println!(
        "  review of {} bytes         echo {echo:>8.1?} + evaluation {evaluation:>8.1?}   durward {example:>8.1?}   ratio {ratio:.2} (limit {REVIEW_LIMIT})",
        body.len()
    );

    let pod = review::opted_in_pod();
    let (mut few, mut many, mut memory) = (Duration::MAX, Duration::MAX, 0.0_f64);
    for _ in 0..ROUNDS {
        fs::write(folder.file("policies.yaml"), policies(MATCHING))?;
        few = few.min(cpu(&Server::policies(folder)?, folder, &pod)?);
        fs::write(folder.file("policies.yaml"), policies(MANY))?;
        let server = Server::policies(folder)?;
        many = many.min(cpu(&server, folder, &pod)?);
        memory = memory.max(server.resident()?);
    }
    let more = many.as_secs_f64() / few.as_secs_f64();
    println!(
        "  {MANY} policies, {MATCHING} can match   {MATCHING} policies {few:>8.1?}   {MANY} policies {many:>8.1?}   ratio {more:.2} (limit {MANY_LIMIT})"
    );
    println!("  resident with {MANY} policies   {memory:>6.1} MiB (limit {MEMORY_LIMIT})");
    Ok(ratio <= REVIEW_LIMIT && more <= MANY_LIMIT && memory <= MEMORY_LIMIT)
}

/// Returns the CPU of a review.
fn cpu(server: &Server, folder: &Snapshot, body: &[u8]) -> Result<Duration> {
    let config = load::trusting(&folder.certificate())?;
    let request = load::request(server.path, body);
    load::closed(server.address, &config, &request, 8, REQUESTS / 8)?;
    let before = server.cpu()?;
    load::closed(server.address, &config, &request, 8, REQUESTS)?;
    Ok(server.cpu()?.saturating_sub(before) / u32::try_from(REQUESTS)?)
}

/// Returns a review of the example's object.
fn cluster_review() -> Vec<u8> {
    let kind = json!({"group": "ecs.yun.com", "version": "v1", "kind": "KubernetesCluster"});
    let resource = json!({"group": "ecs.yun.com", "version": "v1", "resource": "kubernetesclusters"});
    json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
        "uid": "e4c98957-8a52-4655-9441-cab6633c8b06", "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
        "name": "test-cluster", "namespace": "shop", "operation": "CREATE",
        "userInfo": {"username": "ann", "groups": ["developers", "system:authenticated"]},
        "object": cluster(), "oldObject": null, "dryRun": false, "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}}})
    .to_string()
    .into_bytes()
}

fn cluster() -> serde_json::Value {
    json!({"apiVersion": "ecs.yun.com/v1", "kind": "KubernetesCluster",
        "metadata": {"name": "test-cluster", "namespace": "shop", "uid": "f1b35ec7-d920-42b7-ac68-df7c09cd0db9", "generation": 1},
        "spec": {"clusterType": "kubernetes", "serviceCIDR": "", "masterList": [{"ip": "192.168.1.10"}], "nodeList": [{"ip": "192.168.1.11"}],
            "privateSSHKey": "ssh-ed25519 AAAA", "scaleUp": 0, "scaleDown": 0}})
}

/// Time from the text of the object to the verdict, by the engine of `durward check`.
fn evaluate() -> Result<Duration> {
    let arena = Arena::new();
    let mut builder = Builder::new(Release::for_new(NEWEST));
    for document in policy::document::read(EXAMPLE, &arena)? {
        builder.add("example", document.value());
    }
    let set = builder.finish().map_err(|errors| format!("the policies are refused: {errors:?}"))?;
    let (text, facts) = (cluster().to_string(), Facts::default());
    let mut arena = Arena::new();
    let mut best = Duration::MAX;
    for _ in 0..EVALUATIONS {
        let start = Instant::now();
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
            let evaluation = set.evaluate_partly(&request, &facts, &arena, &|| true);
            if evaluation.decisions.is_denied() || evaluation.decisions.evaluated.is_empty() {
                return Err(format!("the policy has another verdict: {evaluation:?}").into());
            }
        }
        arena.reset();
        best = best.min(start.elapsed());
    }
    Ok(best)
}

/// Returns policies of which the first three match pods, and the others match other resources.
fn policies(count: usize) -> String {
    let mut out = String::new();
    for number in 0..count {
        let (group, resource) = if number < MATCHING {
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
