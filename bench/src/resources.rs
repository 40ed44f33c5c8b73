//! The guard of policies: CPU of a review, relative to the echo; many policies of which few can match, relative to these few; and the
//! memory of many policies.

use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use serde_json::json;

use crate::figures::{Limit, MIB, Row, Samples};
use crate::report::Report;
use crate::server::{ECHO, answer, cpu};
use crate::servers::{Folder, Guards, Server};
use crate::{Result, answers, reviews, rounds};

/// Limit of the CPU of a review with many policies, relative to those that can match.
const MANY_LIMIT: f64 = 1.2;
const MEMORY_LIMIT: f64 = 40.0 * MIB;
const MATCHING: usize = 3;
const MANY: usize = 200;
const CONNECTIONS: usize = 8;
const REQUESTS: usize = 20_000;

/// The policy of the example.
const EXAMPLE: &str = include_str!("../../examples/kubernetesclusters/policy.yaml");

/// Measures the guard.
pub(crate) fn measure(folder: &Folder, report: &mut Report) -> Result<()> {
    let body = reviews::cluster();
    fs::write(folder.file("policies.yaml"), EXAMPLE)?;
    let server = Server::durward(folder, Guards::Policies)?;
    answers::expect_plain(&body, &answer(&server, folder, server.path, &body)?)?;
    drop(server);
    let [mut durward, mut echo] = [const { Samples::NONE }; 2];
    for _ in 0..rounds() {
        echo.push_time(review(&Server::echo(folder)?, folder, &body)?);
        durward.push_time(review(&Server::durward(folder, Guards::Policies)?, folder, &body)?);
    }
    let pod = reviews::opted_in_pod();
    let [mut few, mut many, mut memory] = [const { Samples::NONE }; 3];
    for _ in 0..rounds() {
        fs::write(folder.file("policies.yaml"), policies(MATCHING, 0))?;
        few.push_time(review(&Server::durward(folder, Guards::Policies)?, folder, &pod)?);
        fs::write(folder.file("policies.yaml"), policies(MATCHING, MANY - MATCHING))?;
        let server = Server::durward(folder, Guards::Policies)?;
        many.push_time(review(&server, folder, &pod)?);
        memory.push(server.resident()?);
    }
    report.section(
        "The guard resources",
        "The first row has the policy of the examples. The other rows have generated policies with three validations and a variable.",
    );
    let row = Row::seconds(
        format!("custom resource of {} B with the policy of the examples: CPU", body.len()),
        durward,
    );
    report.row(row.against(ECHO, echo));
    let row = Row::seconds(format!("pod with {MANY} policies, {MATCHING} of which can match: CPU"), many);
    report.row(row.against("only these 3", few).limit(Limit::RatioAtMost(MANY_LIMIT)));
    report.row(
        Row::bytes(format!("memory with {MANY} policies, after the reviews"), memory)
            .limit(Limit::AtMost(MEMORY_LIMIT)),
    );
    Ok(())
}

fn review(server: &Server, folder: &Folder, body: &[u8]) -> Result<Duration> {
    cpu(server, folder, &server.request(body), CONNECTIONS, REQUESTS)
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
