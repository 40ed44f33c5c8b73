//! Answers of guards.

use std::sync::Arc;

use admission::{Mode, OnUnknown, SettlePolicy};
use server::Plan;

use crate::harness::{Behavior, Gate, ServerBuilder, Stub, review};

#[tokio::test]
async fn answers_each_verdict_with_http_200_and_the_uid() {
    let allowing = SettlePolicy::new(OnUnknown::Allow);
    let server = ServerBuilder::new()
        .guard(Stub::new("allow", Behavior::Allow))
        .guard(Stub::new("deny", Behavior::Deny))
        .guard(Stub::new("mutate", Behavior::Mutate))
        .guard(Stub::new("unknown", Behavior::Unknown))
        .guard(Stub::new("unknown-allow", Behavior::Unknown).with_policy(allowing))
        .start()
        .await;
    let mut client = server.connect().await;
    for (guard, allowed, verdict) in [
        ("allow", true, "allow"),
        ("deny", false, "deny"),
        ("mutate", true, "mutate"),
        ("unknown", false, "unknown"),
        ("unknown-allow", true, "unknown"),
    ] {
        let answer = client.post(&format!("/{guard}?timeout=10s"), review("web", 2000)).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("content-type"), Some("application/json"));
        let json = answer.json();
        assert_eq!(json["apiVersion"], "admission.k8s.io/v1");
        assert_eq!(json["response"]["uid"], "uid-web");
        assert_eq!(json["response"]["allowed"], allowed, "{guard}");
        let series = "durward_reviews_total";
        let series = format!("{series}{{guard=\"{guard}\",operation=\"CREATE\",verdict=\"{verdict}\"}}");
        server.wait_for_metric(&series, 1.0).await;
    }
    assert_eq!(client.post("/deny", review("web", 0)).await.json()["response"]["status"]["code"], 403);
    let patched = client.post("/mutate", review("web", 0)).await.json();
    assert_eq!(patched["response"]["patchType"], "JSONPatch");
    server.wait_for_metric("durward_unknown_total{guard=\"unknown\",cause=\"unreachable\"}", 1.0).await;
    server.wait_for_metric("durward_review_decode_bytes_count", 7.0).await;
    server.wait_for_metric("durward_review_duration_seconds_count{guard=\"deny\"}", 2.0).await;
}

#[tokio::test]
async fn answers_a_v1beta1_review_in_its_own_version() {
    let server = ServerBuilder::new().guard(Stub::new("g", Behavior::Allow)).start().await;
    let answer = server.post("/g", review("web", 0).replace("k8s.io/v1\"", "k8s.io/v1beta1\"")).await;
    assert_eq!(answer.json()["apiVersion"], "admission.k8s.io/v1beta1");
}

#[tokio::test]
async fn a_guard_takes_note_of_each_answer() {
    let guard = Stub::new("g", Behavior::Deny);
    let answered = guard.answered();
    let server = ServerBuilder::new().guard(guard).start().await;
    server.post("/g", review("web", 0)).await;
    server.post("/g", review("etcd", 0)).await;
    assert_eq!(*answered.lock().unwrap(), ["web deny", "etcd deny"]);
}

#[tokio::test]
async fn audit_mode_counts_denials_that_it_allows() {
    let settle_policy = SettlePolicy { mode: Mode::Audit, ..SettlePolicy::deny_unknown() };
    let server =
        ServerBuilder::new().guard(Stub::new("g", Behavior::Deny).with_policy(settle_policy)).start().await;
    let answer = server.post("/g", review("web", 0)).await.json();
    assert_eq!(answer["response"]["allowed"], true);
    server.wait_for_metric("durward_would_deny_total{guard=\"g\"}", 1.0).await;
}

#[tokio::test]
async fn a_panic_is_unknown_and_its_message_is_not_answered() {
    let server = ServerBuilder::new()
        .guard(Stub::new("at-once", Behavior::PanicAtOnce))
        .guard(Stub::new("later", Behavior::PanicLater))
        .start()
        .await;
    let mut client = server.connect().await;
    for guard in ["at-once", "later"] {
        let answer = client.post(&format!("/{guard}"), review("web", 0)).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.json()["response"]["allowed"], false);
        let message = answer.json()["response"]["status"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(&format!("the {guard} guard failed (internal error)")), "{message}");
        assert!(!answer.text().contains("inner words"));
        server.wait_for_metric(&format!("durward_guard_panics_total{{guard=\"{guard}\"}}"), 1.0).await;
        server
            .wait_for_metric(&format!("durward_unknown_total{{guard=\"{guard}\",cause=\"panic\"}}"), 1.0)
            .await;
    }
}

#[tokio::test]
async fn a_review_keeps_the_plan_that_it_began_with() {
    let gate = Gate::new();
    let server = ServerBuilder::new().guard(Stub::new("g", Behavior::Wait(gate.clone()))).start().await;
    let mut begin_review = server.connect().await;
    let body = review("web", 0);
    begin_review.start("/g", body.len()).await;
    begin_review.send(body).await;
    server.wait_for_metric("durward_reviews_in_flight", 1.0).await;
    let next = Plan::new(2, vec![Arc::new(Stub::new("g", Behavior::Deny))], &server.metrics).unwrap();
    server.plan.swap(next);
    assert_eq!(server.post("/g", review("new", 0)).await.json()["response"]["allowed"], false);
    gate.open(1);
    assert_eq!(begin_review.answer().await.unwrap().json()["response"]["allowed"], true);
    assert_eq!(begin_review.post("/g", review("again", 0)).await.json()["response"]["allowed"], false);
    server.wait_for_metric("durward_config_generation", 2.0).await;
}

#[tokio::test]
async fn stops_and_counts_a_review_whose_caller_hangs_up() {
    let gate = Gate::new();
    let server = ServerBuilder::new().guard(Stub::new("g", Behavior::Wait(gate))).start().await;
    let mut client = server.connect().await;
    let body = review("web", 0);
    client.start("/g", body.len()).await;
    client.send(body).await;
    server.wait_for_metric("durward_reviews_in_flight", 1.0).await;
    drop(client);
    server.wait_for_metric("durward_reviews_abandoned_total{guard=\"g\"}", 1.0).await;
    server.wait_for_metric("durward_reviews_in_flight", 0.0).await;
    server.wait_for_metric("durward_bytes_in_flight", 0.0).await;
}

#[tokio::test]
async fn a_panic_outside_of_a_review_closes_its_connection_and_is_counted() {
    let server = ServerBuilder::new()
        .guard(Stub::new("odd", Behavior::PanicInPolicy))
        .guard(Stub::new("g", Behavior::Allow))
        .start()
        .await;
    let mut client = server.connect().await;
    let body = review("web", 0);
    client.start("/odd", body.len()).await;
    client.send(&body).await;
    assert!(client.answer().await.is_err());
    server.wait_for_metric("durward_connection_panics_total", 1.0).await;
    assert_eq!(server.post("/g", body).await.status, 200);
    server.wait_for_metric("durward_connections", 0.0).await;
}
