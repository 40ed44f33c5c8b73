//! A server at its connection limit.

use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use crate::harness::{
    Behavior, Client, Gate, ServerBuilder, Stub, TestServer, connect_tcp, review, wait_until,
};

const MAX: usize = 4;

async fn server(gate: &Gate) -> TestServer {
    ServerBuilder::new()
        .guard(Stub::new("wait", Behavior::Wait(gate.clone())))
        .guard(Stub::new("allow", Behavior::Allow))
        .with(|options| options.limits.max_connections = MAX)
        .start()
        .await
}

async fn begin_review(server: &TestServer, path: &str) -> Client {
    let mut client = server.connect().await;
    let body = review("web", 0);
    client.start(path, body.len()).await;
    client.send(body).await;
    client
}

/// Makes every connection of the server wait for a verdict.
async fn busy(server: &TestServer) -> Vec<Client> {
    let mut busy = Vec::new();
    for _ in 0..MAX {
        busy.push(begin_review(server, "/wait").await);
    }
    server.wait_for_metric("durward_reviews_in_flight", MAX as f64).await;
    busy
}

#[tokio::test]
async fn closes_the_longest_idle_connection_at_the_limit() {
    let server = server(&Gate::new()).await;
    let mut idle = Vec::new();
    for _ in 0..MAX {
        idle.push(server.connect().await);
    }
    // The order of the answers is not the order of the connections.
    for at in [2, 0, 3, 1] {
        assert_eq!(idle[at].post("/allow", review("web", 0)).await.status, 200);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut another = server.connect().await;
    assert_eq!(another.post("/allow", review("web", 0)).await.status, 200);
    assert!(idle[2].is_closed().await);
    for at in [0, 3, 1] {
        assert_eq!(idle[at].post("/allow", review("web", 0)).await.status, 200);
    }
    assert_eq!(another.post("/allow", review("web", 0)).await.status, 200);
    server.wait_for_metric("durward_idle_connections_closed_total", 1.0).await;
    server.wait_for_metric("durward_connections", MAX as f64).await;
    server.wait_for_metric("durward_shed_total{cause=\"connections\"}", 0.0).await;
}

#[tokio::test]
async fn hundreds_of_idle_connections_do_not_block_reviews() {
    let server = server(&Gate::new()).await;
    let mut idle = Vec::new();
    for _ in 0..25 * MAX {
        // A pod that kept the API server out did this: its request was read and refused, and the connection stayed idle.
        let mut client = server.connect().await;
        assert_eq!(client.post("/allow", "{}").await.status, 400);
        idle.push(client);
    }
    assert_eq!(server.post("/allow", review("web", 0)).await.status, 200);
    server.wait_for_metric("durward_shed_total{cause=\"connections\"}", 0.0).await;
}

#[tokio::test]
async fn closes_silent_handshakes_and_half_read_heads_at_the_limit() {
    let server = server(&Gate::new()).await;
    let mut silent = Vec::new();
    for _ in 0..2 * MAX {
        silent.push(TcpStream::connect(server.addresses.webhook).await.unwrap());
    }
    for _ in 0..3 {
        assert_eq!(server.post("/allow", review("web", 0)).await.status, 200);
    }
    assert_eq!(silent[0].read(&mut [0; 1]).await.unwrap_or(0), 0);
    let mut slow = Vec::new();
    for _ in 0..2 * MAX {
        let mut client = server.connect().await;
        client.send("POST /allow HT").await;
        slow.push(client);
    }
    assert_eq!(server.post("/allow", review("web", 0)).await.status, 200);
    assert!(slow[0].is_closed().await);
    server.wait_for_metric("durward_shed_total{cause=\"connections\"}", 0.0).await;
}

#[tokio::test]
async fn closes_half_sent_bodies_at_the_limit() {
    let server = server(&Gate::new()).await;
    let mut slow = Vec::new();
    for _ in 0..MAX {
        let mut client = server.connect().await;
        let body = review("web", 0);
        client.start("/allow", body.len()).await;
        client.send(&body[..10]).await;
        slow.push(client);
    }
    assert!(Client::connect(server.addresses.webhook, &server.trust).await.is_ok());
    assert_eq!(server.post("/allow", review("web", 0)).await.status, 200);
    assert!(slow[0].is_closed().await);
    server.wait_for_metric("durward_shed_total{cause=\"bytes\"}", 0.0).await;
}

#[tokio::test]
async fn refuses_a_connection_while_all_are_busy_and_answers_each() {
    let gate = Gate::new();
    let server = server(&gate).await;
    let mut busy = busy(&server).await;
    let another = || Client::connect(server.addresses.webhook, &server.trust);
    let (first, second, third) = tokio::join!(another(), another(), another());
    assert!(first.is_err() && second.is_err() && third.is_err());
    server.wait_for_metric("durward_shed_total{cause=\"connections\"}", 3.0).await;
    gate.open(MAX);
    for client in &mut busy {
        let answer = client.answer().await.unwrap();
        assert!(answer.status == 200 && !answer.closes());
    }
    // All are answered, so one of them is closed.
    assert_eq!(server.post("/allow", review("web", 0)).await.status, 200);
    server.wait_for_metric("durward_idle_connections_closed_total", 1.0).await;
}

#[tokio::test]
async fn silent_connections_do_not_block_probes_on_the_admin_port() {
    let server = server(&Gate::new()).await;
    let mut silent = Vec::new();
    for at in 0..300 {
        let tcp = TcpStream::connect(server.addresses.metrics).await.unwrap();
        if at % 2 == 0 {
            tcp.writable().await.unwrap();
            tcp.try_write(b"GET /livez HT").unwrap();
        }
        silent.push(tcp);
    }
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(server.admin(path).await.status, 200);
    }
    assert_eq!(silent[0].read(&mut [0; 1]).await.unwrap_or(0), 0);
}

/// Sends a body for 0.9 s, again and again, until the server closes the connection.
async fn send_slowly(mut client: Client) {
    loop {
        client.start("/allow", 2).await;
        if client.try_send("{").await.is_err() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(900)).await;
        if client.try_send("}").await.is_err() || client.answer().await.is_err() {
            return;
        }
    }
}

/// The pod opens more connections than the server accepts.
#[tokio::test]
async fn a_pod_with_slow_bodies_does_not_keep_the_api_server_out() {
    let server = server(&Gate::new()).await;
    // Behind SNAT, the pod has the address of the API server.
    for (pod, silent) in [(Ipv4Addr::new(127, 0, 0, 2), 3 * MAX), (Ipv4Addr::LOCALHOST, 1)] {
        let mut slow = Vec::new();
        for _ in 0..MAX {
            let client = Client::connect_from(pod, server.addresses.webhook, &server.trust).await.unwrap();
            slow.push(tokio::spawn(send_slowly(client)));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let mut held = Vec::new();
        for _ in 0..silent {
            held.push(connect_tcp(pod, server.addresses.webhook).await.unwrap());
        }
        for _ in 0..3 {
            assert_eq!(server.post("/allow", review("web", 0)).await.status, 200, "{pod}");
        }
        slow.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

#[tokio::test]
async fn a_pod_that_pipelines_requests_does_not_keep_the_api_server_out() {
    /// With fewer connections, the server is sometimes idle between requests.
    const MANY: usize = 24;
    let server = ServerBuilder::new()
        .guard(Stub::new("allow", Behavior::Allow))
        .with(|options| options.limits.max_connections = MANY)
        .start()
        .await;
    let request = "POST /allow HTTP/1.1\r\nHost: durward\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
    let mut ahead = Vec::new();
    for _ in 0..MANY {
        let pod = Ipv4Addr::new(127, 0, 0, 2);
        let client = Client::connect_from(pod, server.addresses.webhook, &server.trust).await.unwrap();
        ahead.push(tokio::spawn(async move { client.send_ahead(&request.repeat(64)).await }));
    }
    wait_until("requests of the pod", async || {
        server.metric("durward_requests_refused_total{reason=\"malformed\"}") > 1000.0
    })
    .await;
    for _ in 0..4 {
        assert_eq!(server.post("/allow", review("web", 0)).await.status, 200);
    }
}
