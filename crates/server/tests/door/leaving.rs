//! How the server leaves.

use std::time::Duration;

use server::Stopped;
use tokio::net::TcpStream;

use crate::harness::{Client, Gate, House, Plans, Stub, Turn, eventually, review};

const LONG: Duration = Duration::from_secs(60);

async fn house(gate: &Gate, lame_duck: Duration, finish: Duration) -> House {
    Plans::new()
        .guard(Stub::new("wait", Turn::Wait(gate.clone())))
        .guard(Stub::new("allow", Turn::Allow))
        .with(|settings| {
            settings.drain.lame_duck = lame_duck;
            settings.drain.finish = finish;
        })
        .start()
        .await
}

async fn waiting(house: &House) -> Client {
    let mut client = house.connect().await;
    let body = review("web", 0);
    client.start("/wait", body.len()).await;
    client.send(body).await;
    house.reaches("durward_reviews_in_flight", 1.0).await;
    client
}

#[tokio::test]
async fn a_lame_duck_is_not_ready_still_accepts_and_closes_after_each_answer() {
    let gate = Gate::new();
    let house = house(&gate, LONG, LONG).await;
    let mut kept = house.connect().await;
    assert!(!kept.post("/allow", review("web", 0)).await.closes());
    let mut busy = waiting(&house).await;
    assert_eq!(house.admin("/readyz").await.status, 200);

    house.stop.ask();
    eventually("it is not ready", async || house.admin("/readyz").await.status == 503).await;
    assert!(house.admin("/readyz").await.text().contains("[-]shutdown failed: the server is stopping"));
    assert_eq!(house.admin("/livez").await.status, 200);
    for client in [&mut kept, &mut house.connect().await] {
        let answer = client.post("/allow", review("web", 0)).await;
        assert_eq!(answer.status, 200);
        assert!(answer.closes());
        assert!(client.is_closed().await);
    }
    gate.open(1);
    let answer = busy.answer().await.unwrap();
    assert!(answer.status == 200 && answer.closes());

    house.stop.ask();
    assert_eq!(house.stopped().await, Stopped::Aborted);
}

#[tokio::test]
async fn a_drain_ends_idle_connections_and_awaits_what_is_in_flight() {
    let gate = Gate::new();
    let house = house(&gate, Duration::ZERO, LONG).await;
    let mut idle = house.connect().await;
    assert_eq!(idle.post("/allow", review("web", 0)).await.status, 200);
    let mut busy = waiting(&house).await;
    let listen = house.addresses.listen;

    house.stop.ask();
    assert!(idle.is_closed().await);
    drop(idle);
    eventually("nothing more is accepted", async || TcpStream::connect(listen).await.is_err()).await;
    gate.open(1);
    let answer = busy.answer().await.unwrap();
    assert_eq!(answer.status, 200);
    assert!(answer.closes());
    assert!(busy.is_closed().await);
    drop(busy);
    assert_eq!(house.stopped().await, Stopped::Clean);
}

#[tokio::test]
async fn what_is_not_finished_in_time_is_cut() {
    let house = house(&Gate::new(), Duration::ZERO, Duration::from_millis(50)).await;
    let mut busy = waiting(&house).await;
    house.stop.ask();
    assert_eq!(house.stopped().await, Stopped::CutOff { connections: 1 });
    assert!(busy.answer().await.is_err());
}

#[tokio::test]
async fn a_second_ask_aborts_what_is_in_flight() {
    let house = house(&Gate::new(), Duration::ZERO, LONG).await;
    let mut busy = waiting(&house).await;
    house.stop.ask();
    let listen = house.addresses.listen;
    eventually("it drains", async || TcpStream::connect(listen).await.is_err()).await;
    house.stop.ask();
    assert_eq!(house.stopped().await, Stopped::Aborted);
    assert!(busy.answer().await.is_err());
}

#[tokio::test]
async fn a_connection_that_was_just_opened_still_gets_its_first_answer() {
    let gate = Gate::new();
    let house = house(&gate, Duration::ZERO, LONG).await;
    let mut fresh = house.connect().await;
    house.reaches("durward_connections", 1.0).await;
    house.stop.ask();
    let listen = house.addresses.listen;
    eventually("it drains", async || TcpStream::connect(listen).await.is_err()).await;
    let answer = fresh.post("/allow", review("web", 0)).await;
    assert!(answer.status == 200 && answer.closes());
    drop(fresh);
    assert_eq!(house.stopped().await, Stopped::Clean);
}
