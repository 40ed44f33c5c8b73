//! What comes back from guards.

use std::sync::Arc;

use admission::{Mode, OnUnknown, SettlePolicy};
use server::Plan;

use crate::harness::{Gate, Plans, Stub, Turn, review};

#[tokio::test]
async fn each_verdict_comes_back_as_http_200_with_the_uid_of_the_question() {
    let allowing = SettlePolicy::new(OnUnknown::Allow);
    let house = Plans::new()
        .guard(Stub::new("allow", Turn::Allow))
        .guard(Stub::new("deny", Turn::Deny))
        .guard(Stub::new("mutate", Turn::Mutate))
        .guard(Stub::new("unknown", Turn::Unknown))
        .guard(Stub::new("blind-allow", Turn::Unknown).standing(allowing))
        .start()
        .await;
    let mut client = house.connect().await;
    for (guard, allowed, verdict) in [
        ("allow", true, "allow"),
        ("deny", false, "deny"),
        ("mutate", true, "mutate"),
        ("unknown", false, "unknown"),
        ("blind-allow", true, "unknown"),
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
        house.reaches(&series, 1.0).await;
    }
    assert_eq!(client.post("/deny", review("web", 0)).await.json()["response"]["status"]["code"], 403);
    let patched = client.post("/mutate", review("web", 0)).await.json();
    assert_eq!(patched["response"]["patchType"], "JSONPatch");
    house.reaches("durward_unknown_total{guard=\"unknown\",cause=\"unreachable\"}", 1.0).await;
    house.reaches("durward_review_decode_bytes_count", 7.0).await;
    house.reaches("durward_review_duration_seconds_count{guard=\"deny\"}", 2.0).await;
}

#[tokio::test]
async fn a_v1beta1_review_is_answered_in_its_own_version() {
    let house = Plans::new().guard(Stub::new("g", Turn::Allow)).start().await;
    let answer = house.post("/g", review("web", 0).replace("k8s.io/v1\"", "k8s.io/v1beta1\"")).await;
    assert_eq!(answer.json()["apiVersion"], "admission.k8s.io/v1beta1");
}

#[tokio::test]
async fn audit_mode_counts_what_it_lets_through() {
    let settle_policy = SettlePolicy { mode: Mode::Audit, ..SettlePolicy::deny_unknown() };
    let house = Plans::new().guard(Stub::new("g", Turn::Deny).standing(settle_policy)).start().await;
    let answer = house.post("/g", review("web", 0)).await.json();
    assert_eq!(answer["response"]["allowed"], true);
    house.reaches("durward_would_deny_total{guard=\"g\"}", 1.0).await;
}

#[tokio::test]
async fn a_panic_is_an_unknown_that_does_not_tell_its_words() {
    let house = Plans::new()
        .guard(Stub::new("at-once", Turn::PanicAtOnce))
        .guard(Stub::new("later", Turn::PanicLater))
        .start()
        .await;
    let mut client = house.connect().await;
    for guard in ["at-once", "later"] {
        let answer = client.post(&format!("/{guard}"), review("web", 0)).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.json()["response"]["allowed"], false);
        let message = answer.json()["response"]["status"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(&format!("the {guard} guard failed in itself")), "{message}");
        assert!(!answer.text().contains("inner words"));
        house.reaches(&format!("durward_guard_panics_total{{guard=\"{guard}\"}}"), 1.0).await;
        house.reaches(&format!("durward_unknown_total{{guard=\"{guard}\",cause=\"panic\"}}"), 1.0).await;
    }
}

#[tokio::test]
async fn a_review_that_began_under_the_old_plan_ends_under_it() {
    let gate = Gate::new();
    let house = Plans::new().guard(Stub::new("g", Turn::Wait(gate.clone()))).start().await;
    let mut begun = house.connect().await;
    let body = review("web", 0);
    begun.start("/g", body.len()).await;
    begun.send(body).await;
    house.reaches("durward_reviews_in_flight", 1.0).await;
    let next = Plan::new(2, vec![Arc::new(Stub::new("g", Turn::Deny))], &house.metrics).unwrap();
    house.plan.swap(next);
    assert_eq!(house.post("/g", review("new", 0)).await.json()["response"]["allowed"], false);
    gate.open(1);
    assert_eq!(begun.answer().await.unwrap().json()["response"]["allowed"], true);
    assert_eq!(begun.post("/g", review("again", 0)).await.json()["response"]["allowed"], false);
    house.reaches("durward_config_generation", 2.0).await;
}

#[tokio::test]
async fn a_review_whose_caller_hangs_up_is_stopped_and_counted() {
    let gate = Gate::new();
    let house = Plans::new().guard(Stub::new("g", Turn::Wait(gate))).start().await;
    let mut client = house.connect().await;
    let body = review("web", 0);
    client.start("/g", body.len()).await;
    client.send(body).await;
    house.reaches("durward_reviews_in_flight", 1.0).await;
    drop(client);
    house.reaches("durward_reviews_abandoned_total{guard=\"g\"}", 1.0).await;
    house.reaches("durward_reviews_in_flight", 0.0).await;
    house.reaches("durward_bytes_in_flight", 0.0).await;
}

#[tokio::test]
async fn a_panic_outside_of_a_ruling_ends_its_connection_and_is_counted() {
    let house = Plans::new()
        .guard(Stub::new("odd", Turn::PanicInStance))
        .guard(Stub::new("g", Turn::Allow))
        .start()
        .await;
    let mut client = house.connect().await;
    let body = review("web", 0);
    client.start("/odd", body.len()).await;
    client.send(&body).await;
    assert!(client.answer().await.is_err());
    house.reaches("durward_connection_panics_total", 1.0).await;
    assert_eq!(house.post("/g", body).await.status, 200);
    house.reaches("durward_connections", 0.0).await;
}
