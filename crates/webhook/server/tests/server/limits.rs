//! Limits of memory, reviews and time.

use std::time::Duration;

use crate::harness::{Behavior, Client, Gate, ServerBuilder, Stub, TestServer, review, wait_until};

/// Cost of a body in addition to its bytes.
const COST: usize = server::Limits::BODY_COST;
/// Length of a patch that is far longer than the buffers of the kernel.
const LONG: usize = 16 << 20;

/// Budget for one body of 3 kB with its cost, and a little more.
async fn small_server(gate: &Gate) -> TestServer {
    ServerBuilder::new()
        .guard(Stub::new("wait", Behavior::Wait(gate.clone())))
        .guard(Stub::new("allow", Behavior::Allow))
        .with(|options| {
            options.limits.max_request_bytes = 3000;
            options.limits.max_total_bytes = 2 * COST + 4000;
            options.limits.max_concurrent_requests = 2;
        })
        .start()
        .await
}

async fn begin_review(server: &TestServer, path: &str, body: &str) -> Client {
    let mut client = server.connect().await;
    client.start(path, body.len()).await;
    client.send(body).await;
    client
}

#[tokio::test]
async fn bytes_over_the_budget_are_shed_until_a_review_is_answered() {
    let gate = Gate::new();
    let server = small_server(&gate).await;
    let body = review("web", 2000);
    let mut first = begin_review(&server, "/wait", &body).await;
    server.wait_for_metric("durward_bytes_in_flight", (COST + body.len()) as f64).await;

    let shed = server.post("/allow", &body).await;
    assert_eq!(shed.status, 503);
    assert_eq!(shed.header("retry-after"), Some("1"));
    assert!(shed.closes());
    assert_eq!(shed.header("content-type"), Some("text/plain; charset=utf-8"));
    assert!(shed.text().contains("use all memory"), "{}", shed.text());
    server.wait_for_metric("durward_shed_total{cause=\"bytes\"}", 1.0).await;
    // A shed review reserves nothing.
    server.wait_for_metric("durward_bytes_in_flight", (COST + body.len()) as f64).await;

    gate.open(1);
    assert_eq!(first.answer().await.unwrap().status, 200);
    assert_eq!(server.post("/allow", &body).await.status, 200);
    server.wait_for_metric("durward_bytes_in_flight", 0.0).await;
}

#[tokio::test]
async fn a_review_whose_values_find_no_memory_is_shed_until_another_is_answered() {
    let gate = Gate::new();
    let server = ServerBuilder::new()
        .guard(Stub::new("wait", Behavior::Wait(gate.clone())))
        .guard(Stub::new("values", Behavior::Charge(2 * COST)))
        .guard(Stub::new("more", Behavior::Charge(4 * COST)))
        .with(|options| {
            options.limits.max_request_bytes = 3000;
            options.limits.max_total_bytes = 4 * COST;
        })
        .start()
        .await;
    let body = review("web", 0);
    let mut first = begin_review(&server, "/wait", &body).await;
    server.wait_for_metric("durward_reviews_in_flight", 1.0).await;
    let shed = server.post("/values", &body).await;
    assert_eq!((shed.status, shed.header("retry-after")), (503, Some("1")));
    server.wait_for_metric("durward_shed_total{cause=\"bytes\"}", 1.0).await;
    // No other review can end so that this one fits.
    let unknown = server.post("/more", &body).await;
    assert!(unknown.status == 200 && unknown.text().contains("TooLarge"), "{}", unknown.text());
    server.wait_for_metric("durward_bytes_in_flight", (COST + body.len()) as f64).await;
    gate.open(1);
    assert_eq!(first.answer().await.unwrap().status, 200);
    let allowed = server.post("/values", &body).await;
    assert!(allowed.status == 200 && allowed.text().contains("\"allowed\":true"), "{}", allowed.text());
    server.wait_for_metric("durward_bytes_in_flight", 0.0).await;
}

#[tokio::test]
async fn large_bodies_leave_a_quarter_to_small_ones() {
    let gate = Gate::new();
    let server = ServerBuilder::new()
        .guard(Stub::new("wait", Behavior::Wait(gate.clone())))
        .guard(Stub::new("allow", Behavior::Allow))
        .with(|options| options.limits.max_total_bytes = 16 << 20)
        .start()
        .await;
    let large = review("web", 8 << 20);
    let mut first = begin_review(&server, "/wait", &large).await;
    server.wait_for_metric("durward_reviews_in_flight", 1.0).await;
    // Two of them would be 16 MiB, and large ones can use 12.
    let mut second = server.connect().await;
    second.start("/allow", large.len()).await;
    second.send(large.get(..(5 << 20)).unwrap()).await;
    assert_eq!(second.answer().await.unwrap().status, 503);
    let small = review("web", 200 << 10);
    assert_eq!(server.post("/allow", &small).await.status, 200);
    gate.open(1);
    assert_eq!(first.answer().await.unwrap().status, 200);
    assert_eq!(server.post("/allow", &large).await.status, 200);
}

#[tokio::test]
async fn sheds_reviews_over_the_limit_until_one_is_answered() {
    let gate = Gate::new();
    let server = small_server(&gate).await;
    let body = review("web", 0);
    let mut first = begin_review(&server, "/wait", &body).await;
    let mut second = begin_review(&server, "/wait", &body).await;
    server.wait_for_metric("durward_reviews_in_flight", 2.0).await;
    let shed = server.post("/allow", &body).await;
    assert_eq!(shed.status, 503);
    assert_eq!(shed.header("retry-after"), Some("1"));
    assert!(shed.closes());
    server.wait_for_metric("durward_shed_total{cause=\"in_flight\"}", 1.0).await;
    gate.open(2);
    assert_eq!(first.answer().await.unwrap().status, 200);
    assert_eq!(second.answer().await.unwrap().status, 200);
    assert_eq!(server.post("/allow", &body).await.status, 200);
}

#[tokio::test]
async fn announced_bodies_reserve_no_memory() {
    let server = small_server(&Gate::new()).await;
    let mut idle = Vec::new();
    for _ in 0..5 {
        let mut client = server.connect().await;
        client.start("/allow", 3000).await;
        idle.push(client);
    }
    idle[0].send("{").await;
    server.wait_for_metric("durward_bytes_in_flight", (COST + 1) as f64).await;
    assert_eq!(server.post("/allow", review("web", 2000)).await.status, 200);
}

#[tokio::test]
async fn a_body_of_one_byte_reserves_the_cost_of_its_connection() {
    let server = small_server(&Gate::new()).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut client = server.connect().await;
        client.start("/allow", 3000).await;
        client.send("{").await;
        held.push(client);
    }
    server.wait_for_metric("durward_bytes_in_flight", (2 * (COST + 1)) as f64).await;
    let mut third = server.connect().await;
    third.start("/allow", 3000).await;
    third.send("{").await;
    assert_eq!(third.answer().await.unwrap().status, 503);
    server.wait_for_metric("durward_shed_total{cause=\"bytes\"}", 1.0).await;
}

#[tokio::test]
async fn returns_the_memory_of_a_sender_that_hangs_up() {
    let server = small_server(&Gate::new()).await;
    let mut client = server.connect().await;
    client.start("/allow", 3000).await;
    client.send(vec![b' '; 2500]).await;
    server.wait_for_metric("durward_bytes_in_flight", (COST + 2500) as f64).await;
    drop(client);
    server.wait_for_metric("durward_bytes_in_flight", 0.0).await;
    server.wait_for_metric("durward_connections", 0.0).await;
}

#[tokio::test]
async fn answers_408_to_a_body_that_does_not_arrive_in_time() {
    let server = ServerBuilder::new()
        .guard(Stub::new("allow", Behavior::Allow))
        .with(|options| options.timeouts.body = Duration::from_millis(100))
        .start()
        .await;
    let mut client = server.connect().await;
    client.start("/allow", 3000).await;
    client.send("{\"kind\":").await;
    let answer = client.answer().await.unwrap();
    assert_eq!(answer.status, 408);
    assert_eq!(answer.text(), "only 8 of 3000 bytes arrived within 100 ms\n");
    assert!(answer.closes());
    assert!(client.is_closed().await);
    server.wait_for_metric("durward_bytes_in_flight", 0.0).await;
}

#[tokio::test]
async fn disconnects_a_caller_that_does_not_read_its_answer() {
    let server = ServerBuilder::new()
        .guard(Stub::new("long", Behavior::LongPatch(LONG)))
        .with(|options| options.timeouts.write_stall = Duration::from_millis(100))
        .start()
        .await;
    let _client = begin_review(&server, "/long", &review("web", 0)).await;
    server.wait_for_metric("durward_connections", 1.0).await;
    server.wait_for_metric("durward_connections", 0.0).await;
}

#[tokio::test]
async fn a_caller_that_does_not_read_its_answer_makes_room_at_the_connection_limit() {
    let server = ServerBuilder::new()
        .guard(Stub::new("long", Behavior::LongPatch(LONG)))
        .guard(Stub::new("allow", Behavior::Allow))
        .with(|options| options.limits.max_connections = 1)
        .start()
        .await;
    let _client = begin_review(&server, "/long", &review("web", 0)).await;
    wait_until("a new connection is accepted", async || server.try_connect().await.is_ok()).await;
    assert_eq!(server.post("/allow", &review("web", 0)).await.status, 200);
}

#[tokio::test]
async fn reserves_an_answer_until_its_caller_is_disconnected() {
    let server = ServerBuilder::new()
        .guard(Stub::new("long", Behavior::LongPatch(LONG)))
        .with(|options| options.timeouts.write_stall = Duration::from_millis(200))
        .start()
        .await;
    let client = begin_review(&server, "/long", &review("web", 0)).await;
    wait_until("the answer is reserved", async || server.metric("durward_bytes_in_flight") > LONG as f64)
        .await;
    server.wait_for_metric("durward_reviews_in_flight", 0.0).await;
    server.wait_for_metric("durward_bytes_in_flight", 0.0).await;
    server.wait_for_metric("durward_connections", 0.0).await;
    drop(client);
}

#[tokio::test]
async fn unread_answers_fill_the_budget_until_their_callers_hang_up() {
    let server = ServerBuilder::new()
        .guard(Stub::new("long", Behavior::LongPatch(LONG)))
        .guard(Stub::new("allow", Behavior::Allow))
        .with(|options| options.limits.max_total_bytes = 2 * LONG)
        .start()
        .await;
    let body = review("web", 0);
    let client = begin_review(&server, "/long", &body).await;
    wait_until("the answer is reserved", async || server.metric("durward_bytes_in_flight") > LONG as f64)
        .await;
    // Two of them exceed the limit; a small one fits.
    let shed = server.post("/long", &body).await;
    assert_eq!((shed.status, shed.header("retry-after")), (503, Some("1")));
    assert!(shed.text().contains("and responses use all memory"), "{}", shed.text());
    server.wait_for_metric("durward_shed_total{cause=\"bytes\"}", 1.0).await;
    server.wait_for_metric("durward_reviews_abandoned_total{guard=\"long\"}", 0.0).await;
    assert_eq!(server.post("/allow", &body).await.status, 200);
    drop(client);
    server.wait_for_metric("durward_bytes_in_flight", 0.0).await;
    assert_eq!(server.post("/long", &body).await.status, 200);
}

#[tokio::test]
async fn closes_a_silent_connection_after_the_first_header_timeout() {
    let server = ServerBuilder::new()
        .with(|options| {
            options.timeouts.first_header = Duration::from_millis(50);
            options.timeouts.close = Duration::from_millis(50);
        })
        .start()
        .await;
    assert!(server.connect().await.is_closed().await);
    let mut slow = server.connect().await;
    slow.send("POST /x HT").await;
    assert!(slow.is_closed().await);
}

#[tokio::test]
async fn closes_an_idle_connection_after_the_idle_timeout() {
    let server = ServerBuilder::new()
        .guard(Stub::new("allow", Behavior::Allow))
        .with(|options| {
            options.timeouts.first_header = Duration::from_millis(50);
            options.timeouts.idle = Duration::from_millis(400);
        })
        .start()
        .await;
    let mut client = server.connect().await;
    assert_eq!(client.post("/allow", review("web", 0)).await.status, 200);
    let idle_since = std::time::Instant::now();
    assert!(client.is_closed().await);
    assert!(idle_since.elapsed() >= Duration::from_millis(390), "{:?}", idle_since.elapsed());
}
