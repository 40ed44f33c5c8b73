//! Guards that exceed their time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use admission::{OnUnknown, SettlePolicy};

use crate::harness::{Behavior, ServerBuilder, Stub, review};

#[tokio::test]
async fn drops_a_guard_at_its_deadline_and_settles_by_its_policy() {
    let dropped = Arc::new(AtomicBool::new(false));
    let server = ServerBuilder::new()
        .guard(Stub::new("strict", Behavior::Hang(Arc::clone(&dropped))))
        .guard(
            Stub::new("lenient", Behavior::Hang(Arc::default()))
                .with_policy(SettlePolicy::new(OnUnknown::Allow)),
        )
        .start()
        .await;
    let strict = server.post("/strict?timeout=300ms", review("web", 0)).await.json();
    assert_eq!(strict["response"]["allowed"], false);
    assert_eq!(
        strict["response"]["status"]["message"],
        "pod \"web\" could not be checked: the strict guard did not answer within 150 ms"
    );
    assert!(dropped.load(Ordering::SeqCst));
    let lenient = server.post("/lenient?timeout=300ms", review("web", 0)).await.json();
    assert_eq!(lenient["response"]["allowed"], true);
    assert_eq!(
        lenient["response"]["warnings"][0],
        "allowed without a check: the lenient guard did not answer within 150 ms"
    );
    server.wait_for_metric("durward_guard_deadlines_total{guard=\"strict\"}", 1.0).await;
    server.wait_for_metric("durward_unknown_total{guard=\"strict\",cause=\"deadline\"}", 1.0).await;
    server.wait_for_metric("durward_reviews_in_flight", 0.0).await;
}

#[tokio::test]
async fn limits_the_timeout_of_the_caller_to_the_configured_deadline() {
    let server = ServerBuilder::new()
        .guard(Stub::new("hang", Behavior::Hang(Arc::default())))
        .with(|options| options.limits.request_timeout = Duration::from_millis(200))
        .start()
        .await;
    for query in ["", "?timeout=30s"] {
        let answer = server.post(&format!("/hang{query}"), review("web", 0)).await;
        assert!(answer.text().contains("did not answer within 100 ms"), "{}", answer.text());
    }
}

#[tokio::test]
async fn answers_a_timeout_of_zero_without_calling_the_guard() {
    let server = ServerBuilder::new().guard(Stub::new("panic", Behavior::PanicAtOnce)).start().await;
    let answer = server.post("/panic?timeout=0s", review("web", 0)).await;
    assert!(answer.text().contains("took longer than 0 ms to arrive"), "{}", answer.text());
    assert!(server.metric("durward_guard_panics_total{guard=\"panic\"}") < 1.0);
}

#[tokio::test]
async fn does_not_count_a_late_body_as_a_deadline_of_the_guard() {
    let server = ServerBuilder::new().guard(Stub::new("prompt", Behavior::Allow)).start().await;
    let mut client = server.connect().await;
    let body = review("web", 0);
    let (first, rest) = body.split_at(50);
    client.start("/prompt?timeout=100ms", body.len()).await;
    client.send(first).await;
    // The time runs once a part has arrived.
    server.wait_for_metric("durward_bytes_in_flight", (server::Limits::BODY_COST + 50) as f64).await;
    tokio::time::sleep(Duration::from_millis(60)).await;
    client.send(rest).await;
    let answer = client.answer().await.unwrap().json();
    assert_eq!(answer["response"]["allowed"], false);
    assert_eq!(
        answer["response"]["status"]["message"],
        "pod \"web\" could not be checked: the request took longer than 50 ms to arrive, so the guard was not called"
    );
    server.wait_for_metric("durward_unknown_total{guard=\"prompt\",cause=\"late\"}", 1.0).await;
    server.wait_for_metric("durward_guard_deadlines_total{guard=\"prompt\"}", 0.0).await;
}

#[tokio::test]
async fn answers_although_the_guard_panics_when_dropped() {
    let server = ServerBuilder::new().guard(Stub::new("bomb", Behavior::PanicWhenDropped)).start().await;
    let mut client = server.connect().await;
    for _ in 0..2 {
        let answer = client.post("/bomb?timeout=100ms", review("web", 0)).await;
        assert_eq!(answer.status, 200);
        assert!(answer.text().contains("did not answer within 50 ms"), "{}", answer.text());
    }
}

#[tokio::test]
async fn a_guard_that_reads_until_its_deadline_still_answers() {
    let server = ServerBuilder::new().guard(Stub::new("slow", Behavior::UseDeadline)).start().await;
    let answer = server.connect().await.post("/slow?timeout=4s", review("web", 0)).await.json();
    assert_eq!(answer["response"]["allowed"], true, "{answer}");
}
