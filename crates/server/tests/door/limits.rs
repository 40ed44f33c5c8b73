//! What is shed, and what slow or silent callers hold.

use std::time::Duration;

use crate::harness::{Client, Gate, House, Plans, Stub, Turn, eventually, review};

/// What each body costs beside its bytes.
const COST: usize = server::Limits::BODY_COST;

/// Room for one body of 3 kB and for what holds it, and a little more.
async fn small_house(gate: &Gate) -> House {
    Plans::new()
        .guard(Stub::new("wait", Turn::Wait(gate.clone())))
        .guard(Stub::new("allow", Turn::Allow))
        .with(|settings| {
            settings.limits.body_bytes = 3000;
            settings.limits.bytes_in_flight = 2 * COST + 4000;
            settings.limits.in_flight = 2;
        })
        .start()
        .await
}

async fn begun(house: &House, path: &str, body: &str) -> Client {
    let mut client = house.connect().await;
    client.start(path, body.len()).await;
    client.send(body).await;
    client
}

#[tokio::test]
async fn bytes_over_the_budget_are_shed_until_a_review_is_answered() {
    let gate = Gate::new();
    let house = small_house(&gate).await;
    let body = review("web", 2000);
    let mut first = begun(&house, "/wait", &body).await;
    house.reaches("durward_bytes_in_flight", (COST + body.len()) as f64).await;

    let shed = house.post("/allow", &body).await;
    assert_eq!(shed.status, 503);
    assert_eq!(shed.header("retry-after"), Some("1"));
    assert!(shed.closes());
    assert_eq!(shed.header("content-type"), Some("text/plain; charset=utf-8"));
    assert!(shed.text().contains("fill the memory"), "{}", shed.text());
    house.reaches("durward_shed_total{cause=\"bytes\"}", 1.0).await;
    // What was shed holds nothing.
    house.reaches("durward_bytes_in_flight", (COST + body.len()) as f64).await;

    gate.open(1);
    assert_eq!(first.answer().await.unwrap().status, 200);
    assert_eq!(house.post("/allow", &body).await.status, 200);
    house.reaches("durward_bytes_in_flight", 0.0).await;
}

#[tokio::test]
async fn reviews_over_the_limit_are_shed_until_one_is_answered() {
    let gate = Gate::new();
    let house = small_house(&gate).await;
    let body = review("web", 0);
    let mut first = begun(&house, "/wait", &body).await;
    let mut second = begun(&house, "/wait", &body).await;
    house.reaches("durward_reviews_in_flight", 2.0).await;
    let shed = house.post("/allow", &body).await;
    assert_eq!(shed.status, 503);
    assert_eq!(shed.header("retry-after"), Some("1"));
    assert!(shed.closes());
    house.reaches("durward_shed_total{cause=\"in_flight\"}", 1.0).await;
    gate.open(2);
    assert_eq!(first.answer().await.unwrap().status, 200);
    assert_eq!(second.answer().await.unwrap().status, 200);
    assert_eq!(house.post("/allow", &body).await.status, 200);
}

#[tokio::test]
async fn senders_that_announce_much_and_send_nothing_hold_nothing() {
    let house = small_house(&Gate::new()).await;
    let mut idle = Vec::new();
    for _ in 0..5 {
        let mut client = house.connect().await;
        client.start("/allow", 3000).await;
        idle.push(client);
    }
    idle[0].send("{").await;
    house.reaches("durward_bytes_in_flight", (COST + 1) as f64).await;
    assert_eq!(house.post("/allow", review("web", 2000)).await.status, 200);
}

#[tokio::test]
async fn a_body_of_one_byte_is_charged_for_what_holds_it() {
    let house = small_house(&Gate::new()).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut client = house.connect().await;
        client.start("/allow", 3000).await;
        client.send("{").await;
        held.push(client);
    }
    house.reaches("durward_bytes_in_flight", (2 * (COST + 1)) as f64).await;
    let mut third = house.connect().await;
    third.start("/allow", 3000).await;
    third.send("{").await;
    assert_eq!(third.answer().await.unwrap().status, 503);
    house.reaches("durward_shed_total{cause=\"bytes\"}", 1.0).await;
}

#[tokio::test]
async fn a_sender_that_hangs_up_gives_back_what_it_held() {
    let house = small_house(&Gate::new()).await;
    let mut client = house.connect().await;
    client.start("/allow", 3000).await;
    client.send(vec![b' '; 2500]).await;
    house.reaches("durward_bytes_in_flight", (COST + 2500) as f64).await;
    drop(client);
    house.reaches("durward_bytes_in_flight", 0.0).await;
    house.reaches("durward_connections", 0.0).await;
}

#[tokio::test]
async fn a_body_that_does_not_arrive_in_time_is_408() {
    let house = Plans::new()
        .guard(Stub::new("allow", Turn::Allow))
        .with(|settings| settings.timeouts.body = Duration::from_millis(100))
        .start()
        .await;
    let mut client = house.connect().await;
    client.start("/allow", 3000).await;
    client.send("{\"kind\":").await;
    let answer = client.answer().await.unwrap();
    assert_eq!(answer.status, 408);
    assert_eq!(answer.text(), "of 3000 bytes only 8 arrived within 100 ms\n");
    assert!(answer.closes());
    assert!(client.is_closed().await);
    house.reaches("durward_bytes_in_flight", 0.0).await;
}

#[tokio::test]
async fn a_caller_that_does_not_take_its_answer_is_given_up() {
    let house = Plans::new()
        .guard(Stub::new("long", Turn::MutateAtLength(32 << 20)))
        .with(|settings| settings.timeouts.write_stall = Duration::from_millis(100))
        .start()
        .await;
    let _client = begun(&house, "/long", &review("web", 0)).await;
    house.reaches("durward_connections", 1.0).await;
    house.reaches("durward_connections", 0.0).await;
}

#[tokio::test]
async fn an_answer_that_is_not_taken_is_charged_until_its_caller_is_given_up() {
    let house = Plans::new()
        .guard(Stub::new("long", Turn::MutateAtLength(32 << 20)))
        .with(|settings| settings.timeouts.write_stall = Duration::from_secs(1))
        .start()
        .await;
    let client = begun(&house, "/long", &review("web", 0)).await;
    eventually("the answer is charged", async || {
        house.number("durward_bytes_in_flight") > f64::from(32 << 20)
    })
    .await;
    house.reaches("durward_reviews_in_flight", 0.0).await;
    house.reaches("durward_bytes_in_flight", 0.0).await;
    house.reaches("durward_connections", 0.0).await;
    drop(client);
}

#[tokio::test]
async fn answers_that_are_not_taken_fill_the_budget_and_a_hang_up_gives_it_back() {
    let house = Plans::new()
        .guard(Stub::new("long", Turn::MutateAtLength(32 << 20)))
        .guard(Stub::new("allow", Turn::Allow))
        .start()
        .await;
    let body = review("web", 0);
    let client = begun(&house, "/long", &body).await;
    eventually("the answer is charged", async || {
        house.number("durward_bytes_in_flight") > f64::from(32 << 20)
    })
    .await;
    // Two of them are more than the 64 MiB of the default; a small one is not.
    let shed = house.post("/long", &body).await;
    assert_eq!((shed.status, shed.header("retry-after")), (503, Some("1")));
    assert!(shed.text().contains("and their answers, fill the memory"), "{}", shed.text());
    house.reaches("durward_shed_total{cause=\"bytes\"}", 1.0).await;
    house.reaches("durward_reviews_abandoned_total{guard=\"long\"}", 0.0).await;
    assert_eq!(house.post("/allow", &body).await.status, 200);
    drop(client);
    house.reaches("durward_bytes_in_flight", 0.0).await;
    assert_eq!(house.post("/long", &body).await.status, 200);
}

#[tokio::test]
async fn a_silent_connection_ends_at_its_first_header_limit() {
    let house = Plans::new()
        .with(|settings| settings.timeouts.first_header = Duration::from_millis(50))
        .start()
        .await;
    assert!(house.connect().await.is_closed().await);
    let mut slow = house.connect().await;
    slow.send("POST /x HT").await;
    assert!(slow.is_closed().await);
}

#[tokio::test]
async fn an_idle_connection_outlives_the_first_header_limit_and_ends_at_its_own() {
    let house = Plans::new()
        .guard(Stub::new("allow", Turn::Allow))
        .with(|settings| {
            settings.timeouts.first_header = Duration::from_millis(50);
            settings.timeouts.idle = Duration::from_millis(400);
        })
        .start()
        .await;
    let mut client = house.connect().await;
    assert_eq!(client.post("/allow", review("web", 0)).await.status, 200);
    let idle_since = std::time::Instant::now();
    assert!(client.is_closed().await);
    assert!(idle_since.elapsed() >= Duration::from_millis(390), "{:?}", idle_since.elapsed());
}
