//! A house with as many connections as there may be: who makes room, and who stays.

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use crate::harness::{Client, Gate, House, Plans, Stub, Turn, eventually, review};

const MOST: usize = 4;

async fn house(gate: &Gate) -> House {
    Plans::new()
        .guard(Stub::new("wait", Turn::Wait(gate.clone())))
        .guard(Stub::new("allow", Turn::Allow))
        .guard(Stub::new("long", Turn::MutateAtLength(16 << 20)))
        .with(|settings| settings.limits.connections = MOST)
        .start()
        .await
}

async fn begun(house: &House, path: &str) -> Client {
    let mut client = house.connect().await;
    let body = review("web", 0);
    client.start(path, body.len()).await;
    client.send(body).await;
    client
}

/// A house in which every connection waits for a verdict.
async fn busy(house: &House) -> Vec<Client> {
    let mut busy = Vec::new();
    for _ in 0..MOST {
        busy.push(begun(house, "/wait").await);
    }
    house.reaches("durward_reviews_in_flight", MOST as f64).await;
    busy
}

#[tokio::test]
async fn of_idle_connections_the_one_that_is_idle_the_longest_makes_room_for_a_review() {
    let house = house(&Gate::new()).await;
    let mut idle = Vec::new();
    for _ in 0..MOST {
        idle.push(house.connect().await);
    }
    // Answered in another order than they came.
    for at in [2, 0, 3, 1] {
        assert_eq!(idle[at].post("/allow", review("web", 0)).await.status, 200);
        // Ages are in milliseconds.
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let mut newcomer = house.connect().await;
    assert_eq!(newcomer.post("/allow", review("web", 0)).await.status, 200);
    assert!(idle[2].is_closed().await);
    for at in [0, 3, 1] {
        assert_eq!(idle[at].post("/allow", review("web", 0)).await.status, 200);
    }
    assert_eq!(newcomer.post("/allow", review("web", 0)).await.status, 200);
    house.reaches("durward_connections_made_room_total", 1.0).await;
    house.reaches("durward_connections", MOST as f64).await;
    house.reaches("durward_shed_total{cause=\"connections\"}", 0.0).await;
}

#[tokio::test]
async fn idle_connections_by_the_hundred_keep_no_review_out() {
    let house = house(&Gate::new()).await;
    let mut idle = Vec::new();
    for _ in 0..25 * MOST {
        // What a pod did that kept the API server out: read to its end, refused, and idle from then on.
        let mut client = house.connect().await;
        assert_eq!(client.post("/allow", "{}").await.status, 400);
        idle.push(client);
    }
    assert_eq!(house.post("/allow", review("web", 0)).await.status, 200);
    house.reaches("durward_shed_total{cause=\"connections\"}", 0.0).await;
}

#[tokio::test]
async fn handshakes_that_say_nothing_and_heads_that_never_end_make_room() {
    let house = house(&Gate::new()).await;
    let mut silent = Vec::new();
    for _ in 0..2 * MOST {
        silent.push(TcpStream::connect(house.addresses.listen).await.unwrap());
    }
    for _ in 0..3 {
        assert_eq!(house.post("/allow", review("web", 0)).await.status, 200);
    }
    assert_eq!(silent[0].read(&mut [0; 1]).await.unwrap_or(0), 0);
    let mut slow = Vec::new();
    for _ in 0..2 * MOST {
        let mut client = house.connect().await;
        client.send("POST /allow HT").await;
        slow.push(client);
    }
    assert_eq!(house.post("/allow", review("web", 0)).await.status, 200);
    assert!(slow[0].is_closed().await);
    house.reaches("durward_shed_total{cause=\"connections\"}", 0.0).await;
}

#[tokio::test]
async fn while_all_are_busy_the_newcomer_is_turned_away_and_each_is_answered() {
    let gate = Gate::new();
    let house = house(&gate).await;
    let mut busy = busy(&house).await;
    for _ in 0..3 {
        assert!(Client::connect(house.addresses.listen, &house.trust).await.is_err());
    }
    house.reaches("durward_shed_total{cause=\"connections\"}", 3.0).await;
    gate.open(MOST);
    for client in &mut busy {
        let answer = client.answer().await.unwrap();
        assert!(answer.status == 200 && !answer.closes());
    }
    // Now that they are answered, one of them makes room.
    assert_eq!(house.post("/allow", review("web", 0)).await.status, 200);
    house.reaches("durward_connections_made_room_total", 1.0).await;
}

#[tokio::test]
async fn an_answer_that_is_not_yet_taken_is_not_cut_off_for_a_newcomer() {
    let gate = Gate::new();
    let house = house(&gate).await;
    let mut taking = begun(&house, "/long").await;
    // Ruled, and far more than the kernel holds of it.
    house.reaches("durward_reviews_total{guard=\"long\",operation=\"CREATE\",verdict=\"mutate\"}", 1.0).await;
    let mut others = Vec::new();
    for _ in 1..MOST {
        others.push(begun(&house, "/wait").await);
    }
    house.reaches("durward_reviews_in_flight", (MOST - 1) as f64).await;
    assert!(Client::connect(house.addresses.listen, &house.trust).await.is_err());
    let answer = taking.answer().await.unwrap();
    assert_eq!(answer.status, 200);
    assert!(answer.body.len() > 16 << 20);
    // Taken, it is as any other.
    eventually("the one that has taken its answer makes room", async || {
        Client::connect(house.addresses.listen, &house.trust).await.is_ok()
    })
    .await;
    assert!(taking.is_closed().await);
    gate.open(MOST);
    for client in &mut others {
        assert_eq!(client.answer().await.unwrap().status, 200);
    }
}

#[tokio::test]
async fn connections_that_say_nothing_keep_no_probe_off_the_admin_port() {
    let house = house(&Gate::new()).await;
    let mut silent = Vec::new();
    for at in 0..300 {
        let tcp = TcpStream::connect(house.addresses.admin).await.unwrap();
        if at % 2 == 0 {
            tcp.writable().await.unwrap();
            tcp.try_write(b"GET /livez HT").unwrap();
        }
        silent.push(tcp);
    }
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(house.admin(path).await.status, 200);
    }
    assert_eq!(silent[0].read(&mut [0; 1]).await.unwrap_or(0), 0);
}
