//! Policies that the API server does not enforce: entries that are missing, or narrower than the policies.

use guards::resources::PolicyRules;
use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;

use super::*;

fn rules(resources: &[&str]) -> Value {
    json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": resources, "scope": "*"}])
}

/// Returns a replica with one entry for the policies `pods` and `services`.
fn replica(manage: Manage, server: &FakeServer) -> Replica {
    let replica = Replica::new(manage, server, None);
    let mut entry = entry("resources-fail");
    entry["rules"] = rules(&["pods", "services"]);
    let policy = |name: &str| PolicyRules {
        policy: name.to_owned(),
        entry: "resources-fail",
        rules: serde_json::from_value::<Vec<RuleWithOperations>>(rules(&[name])).unwrap(),
    };
    replica.need(|target| {
        target.entries = [vec![entry], Vec::new()];
        target.policies = ["pods", "services"].map(policy).to_vec();
    });
    replica
}

fn unenforced(count: usize) -> String {
    format!("durward_policies_not_enforced{{target=\"cluster\"}} {count}")
}

/// Puts the needed entry into the configuration, with a change.
fn put(server: &FakeServer, replica: &Replica, change: impl Fn(&mut Value)) {
    let mut entry = replica.shared.needs().targets[0].entries[0][0].clone();
    change(&mut entry);
    server.edit(&validating(), |object| object["webhooks"] = json!([entry.clone()]));
}

#[tokio::test]
async fn policies_are_named_with_the_command_while_durward_may_not_write_their_entries() {
    for manage in [Manage::None, Manage::CaBundle] {
        let server = FakeServer::installed("u1");
        let mut replica = replica(manage, &server);
        replica.pass().await;
        let next = "next: replace it: durward manifests --config durward.yaml --only webhooks | kubectl replace -f -";
        let (_, text) = replica.readiness();
        let line = text.lines().find(|line| line.contains("policies are not enforced: pods, services"));
        assert!(line.is_some_and(|line| line.contains(next)), "{text}");
        assert!(replica.has_metric(&unenforced(2)));

        // The API server stores no empty list of match conditions.
        put(&server, &replica, |entry| {
            entry.as_object_mut().unwrap().remove("matchConditions");
        });
        replica.pass().await;
        assert!(!replica.readiness().1.contains("not enforced"));
        assert!(replica.has_metric(&unenforced(0)));
    }
}

#[tokio::test]
async fn an_entry_that_was_narrowed_by_hand_does_not_enforce_the_policies_that_it_misses() {
    let server = FakeServer::installed("u1");
    let mut replica = replica(Manage::None, &server);
    for (field, value, expected) in [
        ("rules", rules(&["pods"]), "policies are not enforced: services:"),
        ("rules", json!([]), "policies are not enforced: pods, services:"),
        ("failurePolicy", "Ignore".into(), "policies are not enforced: pods, services:"),
        (
            "matchConditions",
            json!([{"name": "off", "expression": "false"}]),
            "policies are not enforced: pods, services:",
        ),
        ("timeoutSeconds", 3.into(), ""),
        ("rules", rules(&["*"]), ""),
    ] {
        put(&server, &replica, |entry| entry[field] = value.clone());
        replica.pass().await;
        let (_, text) = replica.readiness();
        // An apply does not remove a field that another client added.
        let next = "next: replace it: durward manifests --config durward.yaml --only webhooks | kubectl replace -f -";
        assert_eq!(text.contains(next), !expected.is_empty(), "{text}");
        assert_eq!(text.contains("not enforced"), !expected.is_empty(), "{field} {value}: {text}");
        assert!(text.contains(expected), "{text}");
    }
}

#[tokio::test]
async fn a_replica_that_manages_the_entries_enforces_all_policies_after_a_pass() {
    let server = FakeServer::installed("u1");
    let mut replica = replica(Manage::All, &server);
    replica.pass().await;
    assert!(replica.has_metric(&unenforced(0)), "{}", replica.metrics.encode());
}

#[tokio::test]
async fn an_api_server_that_does_not_answer_keeps_the_last_number() {
    let server = FakeServer::installed("u1");
    let mut replica = replica(Manage::None, &server);
    replica.pass().await;
    server.forbid(Method::GET, "validatingwebhookconfigurations");
    replica.pass().await;
    assert!(replica.has_metric(&unenforced(2)));
}
