use super::*;

fn address(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], 1))
}

/// Opens a connection of each of these addresses, one after another.
async fn open(limit: &Arc<ConnectionLimit>, addresses: &[u8]) -> Vec<Permit> {
    let mut permits = Vec::new();
    for last in addresses {
        permits.push(limit.acquire(address(*last)).unwrap());
        tokio::time::advance(Duration::from_millis(10)).await;
    }
    permits
}

/// Receives a whole request.
fn begin_review(permit: &Permit) {
    permit.state().begin_request();
    permit.state().end_body();
}

/// Returns the positions of the connections that must close.
async fn replaced(permits: &[Permit]) -> Vec<usize> {
    let mut all = Vec::new();
    for (at, permit) in permits.iter().enumerate() {
        if tokio::time::timeout(Duration::ZERO, permit.replaced()).await.is_ok() {
            all.push(at);
        }
    }
    all
}

#[tokio::test(start_paused = true)]
async fn the_connection_that_has_waited_longest_closes_at_the_limit() {
    let limit = ConnectionLimit::new("webhook", 4);
    let permits = open(&limit, &[1, 1, 1, 1]).await;
    // One has a review, one is idle, one receives a body, and one has done nothing.
    begin_review(&permits[0]);
    begin_review(&permits[1]);
    tokio::time::advance(Duration::from_millis(10)).await;
    permits[1].state().end_request();
    permits[2].state().begin_request();
    let _new = limit.acquire(address(1)).unwrap();
    assert_eq!(replaced(&permits).await, [3]);
    tokio::time::advance(Duration::from_millis(10)).await;
    permits[1].state().begin_request();
    let _new = limit.acquire(address(1)).unwrap();
    assert_eq!(replaced(&permits).await, [2]);
}

#[tokio::test(start_paused = true)]
async fn the_address_with_most_waiting_connections_loses_one() {
    let limit = ConnectionLimit::new("webhook", 8);
    // The API server has the oldest connection and the most connections, but only one of them is idle.
    let permits = open(&limit, &[1, 1, 1, 1, 1, 2, 3, 3]).await;
    permits[1..5].iter().for_each(begin_review);
    let _new = limit.acquire(address(4)).unwrap();
    assert_eq!(replaced(&permits).await, [6]);
}

/// A pod has all connections, and opens more and more.
#[tokio::test(start_paused = true)]
async fn one_address_does_not_keep_another_out() {
    let limit = ConnectionLimit::new("webhook", 4);
    let mut pod = open(&limit, &[2, 2, 2, 2]).await;
    let api_server = limit.acquire(address(1)).unwrap();
    tokio::time::advance(Duration::from_millis(10)).await;
    for _ in 0..100 {
        pod.extend(open(&limit, &[2]).await);
    }
    begin_review(&api_server);
    assert_eq!(replaced(&[api_server]).await, [0; 0]);
    assert_eq!(replaced(&pod).await, (0..101).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn the_same_address_in_both_notations_is_one_peer() {
    let limit = ConnectionLimit::new("webhook", 3);
    let mut permits = Vec::new();
    for text in ["10.0.0.1:1", "10.0.0.2:1", "[::ffff:10.0.0.2]:1"] {
        permits.push(limit.acquire(text.parse().unwrap()).unwrap());
        tokio::time::advance(Duration::from_millis(10)).await;
    }
    let _new = limit.acquire(address(3)).unwrap();
    assert_eq!(replaced(&permits).await, [1]);
}

#[tokio::test(start_paused = true)]
async fn a_new_connection_is_refused_while_all_have_a_whole_request() {
    let limit = ConnectionLimit::new("webhook", 2);
    let mut permits = open(&limit, &[1, 2]).await;
    permits.iter().for_each(begin_review);
    assert!(limit.acquire(address(3)).is_none());
    permits.pop();
    let _new = limit.acquire(address(3)).unwrap();
    assert_eq!(replaced(&permits).await, [0; 0]);
}
