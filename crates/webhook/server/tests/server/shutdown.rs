//! The shutdown of a server.

use std::time::Duration;

use server::Stopped;
use tokio::net::TcpStream;

use crate::harness::{Behavior, Client, Gate, ServerBuilder, Stub, TestServer, review, wait_until};

const LONG: Duration = Duration::from_secs(60);

async fn server(gate: &Gate, lame_duck: Duration, finish: Duration) -> TestServer {
    ServerBuilder::new()
        .guard(Stub::new("wait", Behavior::Wait(gate.clone())))
        .guard(Stub::new("allow", Behavior::Allow))
        .with(|options| {
            options.shutdown.delay = lame_duck;
            options.shutdown.timeout = finish;
        })
        .start()
        .await
}

async fn waiting(server: &TestServer) -> Client {
    let mut client = server.connect().await;
    let body = review("web", 0);
    client.start("/wait", body.len()).await;
    client.send(body).await;
    server.wait_for_metric("durward_reviews_in_flight", 1.0).await;
    client
}

#[tokio::test]
async fn a_lame_duck_is_not_ready_accepts_connections_and_closes_each_after_its_answer() {
    let gate = Gate::new();
    let server = server(&gate, LONG, LONG).await;
    let mut kept = server.connect().await;
    assert!(!kept.post("/allow", review("web", 0)).await.closes());
    let mut busy = waiting(&server).await;
    assert_eq!(server.admin("/readyz").await.status, 200);

    server.shutdown.request();
    wait_until("it is not ready", async || server.admin("/readyz").await.status == 503).await;
    assert!(server.admin("/readyz").await.text().contains("[-]shutdown failed: the server is stopping"));
    assert_eq!(server.admin("/livez").await.status, 200);
    for client in [&mut kept, &mut server.connect().await] {
        let answer = client.post("/allow", review("web", 0)).await;
        assert_eq!(answer.status, 200);
        assert!(answer.closes());
        assert!(client.is_closed().await);
    }
    gate.open(1);
    let answer = busy.answer().await.unwrap();
    assert!(answer.status == 200 && answer.closes());

    server.shutdown.request();
    assert_eq!(server.stopped().await, Stopped::Aborted);
}

#[tokio::test]
async fn a_drain_closes_idle_connections_and_waits_for_reviews_in_flight() {
    let gate = Gate::new();
    let server = server(&gate, Duration::ZERO, LONG).await;
    let mut idle = server.connect().await;
    assert_eq!(idle.post("/allow", review("web", 0)).await.status, 200);
    let mut busy = waiting(&server).await;
    let listen = server.addresses.webhook;

    server.shutdown.request();
    assert!(idle.is_closed().await);
    drop(idle);
    wait_until("no more connections are accepted", async || TcpStream::connect(listen).await.is_err()).await;
    gate.open(1);
    let answer = busy.answer().await.unwrap();
    assert_eq!(answer.status, 200);
    assert!(answer.closes());
    assert!(busy.is_closed().await);
    drop(busy);
    assert_eq!(server.stopped().await, Stopped::Clean);
}

#[tokio::test]
async fn closes_busy_connections_after_the_time_limit() {
    let server = server(&Gate::new(), Duration::ZERO, Duration::from_millis(50)).await;
    let mut busy = waiting(&server).await;
    server.shutdown.request();
    assert_eq!(server.stopped().await, Stopped::CutOff { connections: 1 });
    assert!(busy.answer().await.is_err());
}

#[tokio::test]
async fn a_second_request_aborts_reviews_in_flight() {
    let server = server(&Gate::new(), Duration::ZERO, LONG).await;
    let mut busy = waiting(&server).await;
    server.shutdown.request();
    let listen = server.addresses.webhook;
    wait_until("it drains", async || TcpStream::connect(listen).await.is_err()).await;
    server.shutdown.request();
    assert_eq!(server.stopped().await, Stopped::Aborted);
    assert!(busy.answer().await.is_err());
}

#[tokio::test]
async fn answers_the_first_request_of_a_new_connection_while_draining() {
    let gate = Gate::new();
    let server = server(&gate, Duration::ZERO, LONG).await;
    let mut fresh = server.connect().await;
    server.wait_for_metric("durward_connections", 1.0).await;
    server.shutdown.request();
    let listen = server.addresses.webhook;
    wait_until("it drains", async || TcpStream::connect(listen).await.is_err()).await;
    let answer = fresh.post("/allow", review("web", 0)).await;
    assert!(answer.status == 200 && answer.closes());
    drop(fresh);
    assert_eq!(server.stopped().await, Stopped::Clean);
}
