use super::*;

const A_MOMENT: Duration = Duration::from_millis(10);

fn peer() -> SocketAddr {
    address(1)
}

fn address(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], 1))
}

/// Receives a whole request.
fn begin_review(permit: &Permit) {
    permit.state().begin_request();
    permit.state().end_body();
}

async fn full(max: usize) -> (Arc<ConnectionLimit>, Vec<Permit>) {
    let limit = ConnectionLimit::new("webhook", max);
    let mut permits = Vec::new();
    for _ in 0..max {
        permits.push(limit.acquire(peer()).await.unwrap());
        tokio::time::advance(A_MOMENT).await;
    }
    tokio::time::advance(SHORT_GRACE).await;
    (limit, permits)
}

/// All connections receive a body, one after another.
async fn full_of_bodies(max: usize) -> (Arc<ConnectionLimit>, Vec<Permit>) {
    let (limit, permits) = full(max).await;
    for permit in &permits {
        permit.state().begin_request();
        tokio::time::sleep(A_MOMENT).await;
    }
    (limit, permits)
}

/// Starts another connection and returns its task, once it has asked for an eviction.
async fn another(limit: &Arc<ConnectionLimit>) -> tokio::task::JoinHandle<Option<Permit>> {
    another_from(limit, peer()).await
}

async fn another_from(
    limit: &Arc<ConnectionLimit>,
    peer: SocketAddr,
) -> tokio::task::JoinHandle<Option<Permit>> {
    let limit = Arc::clone(limit);
    let task = tokio::spawn(async move { limit.acquire(peer).await });
    yield_now().await;
    task
}

/// Returns whether the connection closes if its task runs now.
async fn closes(permit: &Permit) -> bool {
    let soon = async {
        for _ in 0..4 {
            yield_now().await;
        }
    };
    tokio::select! {
        biased;
        () = permit.must_close() => true,
        () = soon => false,
    }
}

#[tokio::test(start_paused = true)]
async fn the_longest_waiting_connection_closes_and_the_new_one_gets_its_permit() {
    let (limit, mut permits) = full(3).await;
    begin_review(&permits[0]);
    permits[0].state().end_request();
    let waiting = another(&limit).await;
    assert!(!closes(&permits[0]).await && !closes(&permits[2]).await);
    assert!(closes(&permits[1]).await);
    assert!(!waiting.is_finished());
    drop(permits.remove(1));
    assert!(waiting.await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_got_a_request_after_it_was_asked_stays_and_another_is_asked() {
    let (limit, permits) = full(2).await;
    let waiting = another(&limit).await;
    begin_review(&permits[0]);
    yield_now().await;
    assert!(!closes(&permits[0]).await);
    assert!(closes(&permits[1]).await);
    drop(permits);
    assert!(waiting.await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_handshake_has_a_short_time() {
    let limit = ConnectionLimit::new("webhook", 1);
    let permit = limit.acquire(peer()).await.unwrap();
    for other in [peer(), address(2)] {
        let waiting = another_from(&limit, other).await;
        assert!(!closes(&permit).await);
        waiting.abort();
    }
    tokio::time::advance(SHORT_GRACE).await;
    assert!(closes(&permit).await);
}

#[tokio::test(start_paused = true)]
async fn a_busy_connection_is_not_asked_and_the_new_one_is_refused() {
    let (limit, permits) = full(3).await;
    permits.iter().for_each(begin_review);
    assert!(limit.acquire(peer()).await.is_none());
    assert!(limit.acquire(address(2)).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_peer_has_time_to_read_its_answer() {
    for (unflushed, time) in [(Unflushed::Answer, BODY_GRACE), (Unflushed::Close, LAST_READ)] {
        let (limit, permits) = full(1).await;
        begin_review(&permits[0]);
        permits[0].state().end_request();
        permits[0].state().set_unflushed(unflushed);
        let _waiting = another(&limit).await;
        tokio::time::sleep(time.saturating_sub(A_MOMENT)).await;
        assert!(!closes(&permits[0]).await, "{unflushed:?}");
        tokio::time::sleep(A_MOMENT).await;
        assert!(closes(&permits[0]).await, "{unflushed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_read_does_not_keep_another_address_out() {
    let (limit, permits) = full(2).await;
    for permit in &permits {
        permit.state().set_unflushed(Unflushed::Answer);
    }
    let _waiting = another_from(&limit, address(2)).await;
    assert!(closes(&permits[0]).await);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_arrive_can_be_closed_after_a_second() {
    let (limit, permits) = full_of_bodies(2).await;
    // The new connection waits, instead of being refused: the API server would report a failed call.
    let waiting = another(&limit).await;
    assert!(!closes(&permits[0]).await);
    tokio::time::sleep(BODY_GRACE + A_MOMENT).await;
    assert!(closes(&permits[0]).await);
    assert!(!closes(&permits[1]).await);
    drop(permits);
    assert!(waiting.await.unwrap().is_some());
}

/// Behind SNAT, an attacker has the address of the API server. In the first second of the attack, no connection with a body can be closed.
#[tokio::test(start_paused = true)]
async fn a_handshake_is_not_closed_for_a_body_that_waits_longer() {
    let limit = ConnectionLimit::new("webhook", 2);
    let body = limit.acquire(peer()).await.unwrap();
    body.state().begin_request();
    tokio::time::advance(A_MOMENT).await;
    let handshake = limit.acquire(peer()).await.unwrap();
    let waiting = another(&limit).await;
    tokio::time::sleep(BODY_GRACE).await;
    assert!(!closes(&handshake).await);
    assert!(closes(&body).await);
    drop(body);
    assert!(waiting.await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_arrives_in_its_second_is_kept_and_another_connection_is_asked() {
    let (limit, permits) = full_of_bodies(2).await;
    let _waiting = another(&limit).await;
    permits[0].state().end_body();
    assert!(!permits[0].state().is_asked());
    tokio::time::sleep(BODY_GRACE + A_MOMENT).await;
    assert!(!closes(&permits[0]).await);
    assert!(closes(&permits[1]).await);
    // It closes after its answer.
    assert!(timeout(A_MOMENT, permits[0].asked_to_close()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_closes_meanwhile_lets_the_new_one_in_at_once() {
    let (limit, mut permits) = full_of_bodies(2).await;
    let waiting = another(&limit).await;
    drop(permits.pop());
    yield_now().await;
    assert!(waiting.is_finished());
    // The connection that was asked closes too, and leaves its permit to the next one.
    tokio::time::sleep(BODY_GRACE).await;
    assert!(closes(&permits[0]).await);
    drop(permits);
    assert_eq!(limit.lock().open.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_place_goes_to_the_address_with_the_fewest_waiting_connections() {
    let (limit, mut permits) = full_of_bodies(2).await;
    let own = another(&limit).await;
    let other = another_from(&limit, address(2)).await;
    tokio::time::sleep(SHORT_GRACE).await;
    assert!(closes(&permits[0]).await);
    drop(permits.remove(0));
    let _other = other.await.unwrap().unwrap();
    assert!(!own.is_finished());
    drop(permits.remove(0));
    assert!(own.await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_waits_to_close_learns_of_a_stronger_claim() {
    let (limit, permits) = full_of_bodies(1).await;
    let _own = another(&limit).await;
    let start = Instant::now();
    let asks = async {
        let _other = another_from(&limit, address(2)).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = permits[0].must_close() => {}
        () = asks => {}
    }
    assert!(start.elapsed() <= SHORT_GRACE);
}

/// A pod fills all places with bodies that take 0.9 s, and opens many more connections.
#[tokio::test(start_paused = true)]
async fn connections_that_their_own_address_has_asked_can_be_closed_for_another_address() {
    let (limit, permits) = full_of_bodies(4).await;
    let mut own = Vec::new();
    for _ in 0..8 {
        own.push(another(&limit).await);
    }
    let waiting = another_from(&limit, address(2)).await;
    tokio::time::sleep(SHORT_GRACE).await;
    assert!(closes(&permits[0]).await);
    drop(permits);
    assert!(waiting.await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_connection_can_be_asked_again_if_the_new_one_has_left() {
    let (limit, permits) = full_of_bodies(1).await;
    let waiting = another(&limit).await;
    waiting.abort();
    assert!(waiting.await.is_err());
    let waiting = another(&limit).await;
    tokio::time::sleep(BODY_GRACE).await;
    assert!(closes(&permits[0]).await);
    drop(permits);
    assert!(waiting.await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_was_asked_learns_it_when_it_looks_again() {
    let (limit, permits) = full_of_bodies(1).await;
    let _waiting = another(&limit).await;
    for _ in 0..3 {
        assert!(timeout(BODY_GRACE / 4, permits[0].must_close()).await.is_err());
    }
    permits[0].asked_to_close().await;
    permits[0].must_close().await;
}

#[tokio::test(start_paused = true)]
async fn a_body_of_an_address_with_more_waiting_connections_has_a_short_time() {
    let (limit, permits) = full(3).await;
    begin_review(&permits[0]);
    permits[1].state().begin_request();
    tokio::time::advance(A_MOMENT).await;
    permits[2].state().begin_request();
    let waiting = another_from(&limit, address(2)).await;
    assert!(!closes(&permits[1]).await);
    tokio::time::sleep(SHORT_GRACE).await;
    assert!(closes(&permits[1]).await);
    drop(permits);
    assert!(waiting.await.unwrap().is_some());
    // A connection that was asked while it was idle, by one that waits as much, keeps a body that has begun since.
    let (limit, permits) = full(2).await;
    let _waiting = another(&limit).await;
    permits[0].state().begin_request();
    assert!(!closes(&permits[0]).await);
    tokio::time::sleep(BODY_GRACE).await;
    assert!(closes(&permits[0]).await);
}

#[tokio::test(start_paused = true)]
async fn the_address_with_most_waiting_connections_loses_one() {
    let limit = ConnectionLimit::new("webhook", 8);
    let mut permits = Vec::new();
    // The API server has the oldest connection and the most connections, but only one of them is idle.
    for last in [1, 1, 1, 1, 1, 2, 3, 3] {
        permits.push(limit.acquire(address(last)).await.unwrap());
        tokio::time::advance(A_MOMENT).await;
    }
    for permit in &permits[1..5] {
        begin_review(permit);
    }
    tokio::time::advance(SHORT_GRACE).await;
    for (peer, victim) in [(4, 6), (3, 6)] {
        let waiting = another_from(&limit, address(peer)).await;
        for (at, permit) in permits.iter().enumerate().filter(|(at, _)| *at != victim) {
            assert!(!closes(permit).await, "{at}");
        }
        assert!(closes(&permits[victim]).await);
        waiting.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn keeps_connections_of_an_address_with_fewer_waiting_ones_than_the_new_connection() {
    let limit = ConnectionLimit::new("webhook", 3);
    let mut permits = Vec::new();
    for last in [1, 2, 2] {
        permits.push(limit.acquire(address(last)).await.unwrap());
    }
    // The API server is in its handshake. The other connections are within BODY_GRACE, so they can't be closed yet.
    for permit in &permits[1..] {
        permit.state().begin_request();
        tokio::time::advance(A_MOMENT).await;
    }
    let waiting = another_from(&limit, address(2)).await;
    assert!(!closes(&permits[0]).await);
    tokio::time::sleep(BODY_GRACE + A_MOMENT).await;
    assert!(!closes(&permits[0]).await);
    assert!(closes(&permits[1]).await);
    drop(permits.remove(1));
    assert!(waiting.await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn the_same_address_in_both_notations_is_one_peer() {
    let limit = ConnectionLimit::new("webhook", 3);
    let mut permits = Vec::new();
    for text in ["10.0.0.1:1", "10.0.0.2:1", "[::ffff:10.0.0.2]:1"] {
        permits.push(limit.acquire(text.parse().unwrap()).await.unwrap());
        tokio::time::advance(A_MOMENT).await;
    }
    tokio::time::advance(SHORT_GRACE).await;
    let _waiting = another(&limit).await;
    assert!(!closes(&permits[0]).await);
    assert!(closes(&permits[1]).await);
}

#[tokio::test(start_paused = true)]
async fn a_new_connection_is_refused_if_no_other_closes_in_time() {
    let (limit, permits) = full(1).await;
    let start = Instant::now();
    let (first, second) = tokio::join!(limit.acquire(peer()), limit.acquire(peer()));
    assert!(first.is_none() && second.is_none());
    assert_eq!(start.elapsed(), EVICT_TIMEOUT);
    drop(permits);
    assert!(limit.lock().open.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_youngest_are_refused_if_too_many_wait() {
    let (limit, permits) = full_of_bodies(2).await;
    let mut waiting = Vec::new();
    for _ in 0..MAX_QUEUE + 2 {
        waiting.push(another(&limit).await);
    }
    yield_now().await;
    let refused: Vec<bool> = waiting.iter().map(tokio::task::JoinHandle::is_finished).collect();
    assert_eq!(refused[MAX_QUEUE - 1..], [false, true, true]);
    assert_eq!(limit.lock().queue.len(), MAX_QUEUE);
    drop(permits);
    yield_now().await;
    let admitted: Vec<bool> = waiting.iter().map(tokio::task::JoinHandle::is_finished).collect();
    assert_eq!(admitted[..3], [true, true, false], "the oldest come first");
}

#[tokio::test(start_paused = true)]
async fn a_reached_limit_is_logged_once_a_minute() {
    let (limit, permits) = full(1).await;
    begin_review(&permits[0]);
    for _ in 0..5 {
        assert!(limit.acquire(peer()).await.is_none());
    }
    assert_eq!(limit.lock().refused, 4);
    tokio::time::advance(LOG_INTERVAL).await;
    assert!(limit.acquire(peer()).await.is_none());
    assert_eq!(limit.lock().refused, 0);
}

/// A second pod with many new connections can't make the API server lose its connections.
#[tokio::test(start_paused = true)]
async fn new_connections_of_one_pod_do_not_close_those_of_an_address_with_fewer() {
    let limit = ConnectionLimit::new("webhook", 4);
    let mut permits = Vec::new();
    for last in [1, 2, 2, 2] {
        permits.push(limit.acquire(address(last)).await.unwrap());
    }
    tokio::time::advance(SHORT_GRACE).await;
    begin_review(&permits[0]);
    permits[0].state().end_request();
    for permit in &permits[1..] {
        permit.state().begin_request();
    }
    let mut new = Vec::new();
    for _ in 0..4 {
        new.push(another_from(&limit, address(3)).await);
    }
    assert!(!closes(&permits[0]).await);
    assert!(!new.iter().any(tokio::task::JoinHandle::is_finished));
    tokio::time::sleep(SHORT_GRACE).await;
    // Two places each are more even than three of one pod and none of the other.
    assert!(closes(&permits[1]).await && closes(&permits[2]).await && !closes(&permits[3]).await);
}

#[tokio::test(start_paused = true)]
async fn new_connections_at_once_close_as_many_of_their_own_address() {
    let (limit, permits) = full(4).await;
    for permit in &permits {
        begin_review(permit);
        permit.state().end_request();
    }
    let mut new = Vec::new();
    for _ in 0..3 {
        new.push(another(&limit).await);
    }
    for (permit, expected) in permits.iter().zip([true, true, true, false]) {
        assert_eq!(closes(permit).await, expected);
    }
}

/// The API server has the most connections, and does not lose all of them to the new connections of a pod.
#[tokio::test(start_paused = true)]
async fn new_connections_at_once_do_not_close_all_of_another_address() {
    let limit = ConnectionLimit::new("webhook", 8);
    let mut permits = Vec::new();
    for last in [1, 1, 1, 1, 2, 2, 3, 3] {
        permits.push(limit.acquire(address(last)).await.unwrap());
        tokio::time::advance(A_MOMENT).await;
    }
    tokio::time::advance(SHORT_GRACE).await;
    let mut new = Vec::new();
    for _ in 0..4 {
        new.push(another_from(&limit, address(4)).await);
    }
    let mut closing = Vec::new();
    for permit in &permits {
        closing.push(closes(permit).await);
    }
    assert_eq!(closing, [true, true, true, false, false, false, false, false]);
}

/// A pod has all connections, and another one has as many new ones as can wait.
#[tokio::test(start_paused = true)]
async fn new_connections_of_one_pod_do_not_keep_another_address_out() {
    let (limit, permits) = full(4).await;
    let mut pod = Vec::new();
    for _ in 0..MAX_QUEUE {
        pod.push(another_from(&limit, address(3)).await);
    }
    let first = another_from(&limit, address(2)).await;
    let second = another_from(&limit, address(2)).await;
    yield_now().await;
    assert_eq!(pod.iter().filter(|new| new.is_finished()).count(), 2, "the youngest are refused");
    for permit in permits {
        drop(permit);
        yield_now().await;
    }
    assert!(first.await.unwrap().is_some() && second.await.unwrap().is_some());
}

/// One address has many new connections, and each of many others has one connection.
#[tokio::test(start_paused = true)]
async fn an_address_with_fewer_connections_than_others_gets_one_after_another() {
    let limit = ConnectionLimit::new("webhook", 8);
    let mut silent = Vec::new();
    for last in 2..10 {
        silent.push(limit.acquire(address(last)).await.unwrap());
    }
    tokio::time::advance(SHORT_GRACE).await;
    let mut api_server = Vec::new();
    for _ in 0..6 {
        api_server.push(another(&limit).await);
    }
    let mut answered = 0;
    for _ in 0..6 {
        let mut kept = Vec::new();
        for permit in silent.drain(..) {
            if !closes(&permit).await {
                kept.push(permit);
            }
        }
        silent = kept;
        yield_now().await;
        let mut waiting = Vec::new();
        for new in api_server.drain(..) {
            if !new.is_finished() {
                waiting.push(new);
                continue;
            }
            let permit = new.await.unwrap().unwrap();
            begin_review(&permit);
            permit.state().end_request();
            answered += 1;
            silent.push(permit);
        }
        api_server = waiting;
    }
    assert_eq!(answered, 6);
}

/// An answer can make a connection the first one that can be closed.
#[tokio::test(start_paused = true)]
async fn a_new_connection_waits_for_the_end_of_a_request() {
    let (limit, mut permits) = full(2).await;
    permits.iter().for_each(begin_review);
    let waiting = another(&limit).await;
    tokio::time::sleep(BODY_GRACE).await;
    permits[0].state().end_request();
    assert!(closes(&permits[0]).await);
    drop(permits.remove(0));
    assert!(waiting.await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_was_asked_before_its_first_request_can_still_send_it() {
    let (limit, permits) = full_of_bodies(1).await;
    drop(permits);
    let permit = limit.acquire(peer()).await.unwrap();
    let _waiting = another(&limit).await;
    let early = timeout(SHORT_GRACE.saturating_sub(A_MOMENT), async {
        tokio::select! {
            () = permit.asked_to_close() => {}
            () = permit.must_close() => {}
        }
    });
    assert!(early.await.is_err());
    permit.state().begin_request();
    permit.asked_to_close().await;
    assert!(!closes(&permit).await, "its body has a second");
}
