//! Tests of shared requests and of members that hang.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use tokio::sync::Notify;

use super::*;
use crate::cause;
use crate::etcd::EtcdResponse;

fn term(answer: &EtcdResult) -> u64 {
    match answer {
        Ok(EtcdResponse::Status(status)) => status.term,
        other => panic!("{other:?}"),
    }
}

/// A member that reports the number of requests as its term.
fn counting(count: &Arc<AtomicUsize>) -> impl Fn(&Heard) -> Say + Send + Sync + 'static {
    let count = Arc::clone(count);
    move |_| {
        let raft_term = count.fetch_add(1, Ordering::SeqCst) as u64 + 1;
        say(&StatusResponse { raft_term, ..status("3.5.16") })
    }
}

#[tokio::test]
async fn two_hundred_callers_share_a_few_answers_that_are_newer_than_their_calls() {
    let count = Arc::<AtomicUsize>::default();
    let member = FakeMember::plain(counting(&count)).await;
    let (live, peer) = (live(), peer(&member, ClientOptions::default()));
    assert!(ask(&live, &peer, EtcdRequest::Status).await.is_ok());
    let before = count.load(Ordering::SeqCst);
    let all = join_all((0..200).map(|_| ask(&live, &peer, EtcdRequest::Status))).await;
    let asked = count.load(Ordering::SeqCst) - before;
    assert!((1..=4).contains(&asked), "{asked}");
    // Each answer is newer than all answers before the call.
    assert!(all.iter().all(|answer| term(answer) > before as u64));
    for _ in 0..20 {
        let seen = count.load(Ordering::SeqCst) as u64;
        assert!(term(&ask(&live, &peer, EtcdRequest::Status).await) > seen);
    }
}

#[tokio::test]
async fn a_caller_does_not_share_a_request_that_was_sent_before_it_asked() {
    let (sent, count) = (Arc::new(Notify::new()), Arc::<AtomicUsize>::default());
    let (answers, was_sent) = (counting(&count), Arc::clone(&sent));
    let member = FakeMember::plain(move |heard| {
        // The answer is on its way when the second caller starts.
        was_sent.notify_one();
        answers(heard)
    })
    .await;
    let (live, peer) = (live(), peer(&member, ClientOptions::default()));
    let (first, second) = tokio::join!(ask(&live, &peer, EtcdRequest::Status), async {
        sent.notified().await;
        let seen = count.load(Ordering::SeqCst) as u64;
        (seen, ask(&live, &peer, EtcdRequest::Status).await)
    });
    assert_eq!(term(&first), 1);
    assert!(term(&second.1) > second.0, "the answer is older than the call");
}

#[tokio::test]
async fn a_member_that_hangs_delays_only_its_own_callers() {
    let hangs = FakeMember::plain(|_| Say::Nothing).await;
    let good = FakeMember::plain(answers("3.5.16")).await;
    let live = live();
    let (silent, quick) = (peer(&hangs, ClientOptions::default()), peer(&good, ClientOptions::default()));
    let began = Instant::now();
    let deadline = began + Duration::from_millis(400);
    let waiting = join_all(
        (0..50).flat_map(|_| EtcdRequest::ALL).map(|question| live.call(&silent, question, deadline)),
    );
    let asking = async {
        let all = join_all(EtcdRequest::ALL.map(|question| ask(&live, &quick, question))).await;
        (all, began.elapsed())
    };
    let (late, (all, took)) = tokio::join!(waiting, asking);
    assert!(all.iter().all(Result::is_ok), "{all:?}");
    assert!(took < Duration::from_millis(350), "{took:?}");
    assert!(late.iter().all(|answer| answer.as_ref().unwrap_err().code == cause::TIMEOUT), "{late:?}");
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(300) && took < Duration::from_millis(1500), "{took:?}");
    // A request without callers is cancelled, so the next request is sent at once.
    hangs.says(answers("3.5.16"));
    let again = Instant::now();
    assert!(ask(&live, &silent, EtcdRequest::Status).await.is_ok());
    assert!(again.elapsed() < Duration::from_millis(350), "{:?}", again.elapsed());
}

#[tokio::test]
async fn a_request_without_an_answer_ends_at_its_deadline() {
    let member = FakeMember::plain(|_| Say::Nothing).await;
    let (live, peer) = (live(), peer(&member, ClientOptions::default()));
    let past = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
    let cause = live.call(&peer, EtcdRequest::Read, past).await.unwrap_err();
    assert_eq!(cause.code, cause::TIMEOUT);
    assert_eq!(member.calls(), [""; 0], "no time was left for a request");
    let cause =
        live.call(&peer, EtcdRequest::Read, Instant::now() + Duration::from_millis(50)).await.unwrap_err();
    assert_eq!(cause.code, cause::TIMEOUT);
    assert!(cause.text.starts_with("etcd-0 did not return a linearizable read: "), "{}", cause.text);
}
