//! Guards that take longer than the caller waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use admission::{OnUnknown, SettlePolicy};

use crate::harness::{Plans, Stub, Turn, review};

#[tokio::test]
async fn a_guard_over_its_deadline_is_dropped_and_settled_by_its_stance() {
    let dropped = Arc::new(AtomicBool::new(false));
    let house = Plans::new()
        .guard(Stub::new("strict", Turn::Hang(Arc::clone(&dropped))))
        .guard(Stub::new("lenient", Turn::Hang(Arc::default())).standing(SettlePolicy::new(OnUnknown::Allow)))
        .start()
        .await;
    let strict = house.post("/strict?timeout=300ms", review("web", 0)).await.json();
    assert_eq!(strict["response"]["allowed"], false);
    assert_eq!(
        strict["response"]["status"]["message"],
        "pod \"web\" could not be checked: the strict guard did not rule within 150 ms"
    );
    assert!(dropped.load(Ordering::SeqCst));
    let lenient = house.post("/lenient?timeout=300ms", review("web", 0)).await.json();
    assert_eq!(lenient["response"]["allowed"], true);
    assert_eq!(
        lenient["response"]["warnings"][0],
        "allowed unchecked: the lenient guard did not rule within 150 ms"
    );
    house.reaches("durward_guard_deadlines_total{guard=\"strict\"}", 1.0).await;
    house.reaches("durward_unknown_total{guard=\"strict\",cause=\"deadline\"}", 1.0).await;
    house.reaches("durward_reviews_in_flight", 0.0).await;
}

#[tokio::test]
async fn the_callers_patience_is_capped_by_the_configured_deadline() {
    let house = Plans::new()
        .guard(Stub::new("hang", Turn::Hang(Arc::default())))
        .with(|settings| settings.limits.deadline = Duration::from_millis(200))
        .start()
        .await;
    for query in ["", "?timeout=30s"] {
        let answer = house.post(&format!("/hang{query}"), review("web", 0)).await;
        assert!(answer.text().contains("did not rule within 100 ms"), "{}", answer.text());
    }
}

#[tokio::test]
async fn a_caller_that_waits_no_longer_is_answered_without_asking_the_guard() {
    let house = Plans::new().guard(Stub::new("panic", Turn::PanicAtOnce)).start().await;
    let answer = house.post("/panic?timeout=0s", review("web", 0)).await;
    assert!(answer.text().contains("not here whole within 0 ms, too late to ask"), "{}", answer.text());
    assert!(house.number("durward_guard_panics_total{guard=\"panic\"}") < 1.0);
}

#[tokio::test]
async fn a_body_that_comes_late_is_not_held_against_the_guard() {
    let house = Plans::new().guard(Stub::new("prompt", Turn::Allow)).start().await;
    let mut client = house.connect().await;
    let body = review("web", 0);
    let (first, rest) = body.split_at(50);
    client.start("/prompt?timeout=100ms", body.len()).await;
    client.send(first).await;
    // Once a part of it is in, the time runs.
    house.reaches("durward_bytes_in_flight", (server::Limits::BODY_COST + 50) as f64).await;
    tokio::time::sleep(Duration::from_millis(60)).await;
    client.send(rest).await;
    let answer = client.answer().await.unwrap().json();
    assert_eq!(answer["response"]["allowed"], false);
    assert_eq!(
        answer["response"]["status"]["message"],
        "pod \"web\" could not be checked: the review was not here whole within 50 ms, too late to ask"
    );
    house.reaches("durward_unknown_total{guard=\"prompt\",cause=\"late\"}", 1.0).await;
    house.reaches("durward_guard_deadlines_total{guard=\"prompt\"}", 0.0).await;
}

#[tokio::test]
async fn a_guard_that_panics_while_it_is_stopped_is_answered_all_the_same() {
    let house = Plans::new().guard(Stub::new("bomb", Turn::PanicWhenDropped)).start().await;
    let mut client = house.connect().await;
    for _ in 0..2 {
        let answer = client.post("/bomb?timeout=100ms", review("web", 0)).await;
        assert_eq!(answer.status, 200);
        assert!(answer.text().contains("did not rule within 50 ms"), "{}", answer.text());
    }
}
