//! A leader transfers leadership to a reserved successor, which stays during the transfer.

use std::time::Duration;

use admission::{Code, Verdict};
use futures_util::future::join;
use k8s_openapi::jiff::Timestamp;

use super::super::decide::{Reason, Warning};
use super::super::facts::Leaving;
use super::super::fixture::{LEAST, NOW, delete, evict};
use super::super::table::MemberState;
use super::CONTROLLER;
use super::expect::{Expected, Reviewed, assert_outcome, assert_text, text_of, verdict_of};
use super::fake::{Fake, Reply, deleted, deleted_by, evicted, review};
use cluster::cause;
use cluster::writer::TransferResult;

/// More yields than any review has.
const LONG: usize = 300;

/// Reviews the leader's deletion and, during its transfer, that of another member.
async fn while_it_hands_over(fake: &Fake, other: &[u8]) -> (Reviewed, Reviewed) {
    let (one, two) = (fake.guard(LEAST), fake.guard(LEAST));
    let leader = delete("etcd-0", |_| {});
    let meanwhile = async {
        fake.transferring().await;
        review(&two, other).await
    };
    join(review(&one, &leader), meanwhile).await
}

#[tokio::test(start_paused = true)]
async fn the_successor_stays_during_the_transfer() {
    let fake = Fake::of(5).with(|s| s.transfer_turns = LONG);
    let (leader, successor) = while_it_hands_over(&fake, &delete("etcd-1", |_| {})).await;
    assert_outcome(&leader, Warning::Transferred { to: "etcd-1".into() });
    assert_outcome(&successor, Reason::LeadershipTransfer { from: "etcd-0".into() });
    assert_text(&successor, "deny", "retry in ten seconds");
    let fake = Fake::of(5).with(|s| s.transfer_turns = LONG);
    let (leader, successor) = while_it_hands_over(&fake, &evict("etcd-1", |_| {})).await;
    assert_outcome(&leader, Expected::Allow);
    let Verdict::Deny(denial) = successor.ruling.verdict else { panic!() };
    assert_eq!(denial.code, Code::TooManyRequests);
    // The successor stays even if it stops answering.
    let fake = Fake::of(5).with(|s| s.transfer_turns = LONG);
    let falling = async {
        fake.transferring().await;
        fake.set("etcd-1", Reply::NoResponse(cause::TIMEOUT));
    };
    let successor = delete("etcd-1", |_| {});
    let ((_, successor), ()) = join(while_it_hands_over(&fake, &successor), falling).await;
    assert_outcome(&successor, Reason::LeadershipTransfer { from: "etcd-0".into() });
}

#[tokio::test(start_paused = true)]
async fn two_concurrent_deletions_of_five_never_kill_the_leader() {
    let mut both = 0;
    for transfer_turns in [0, 30, LONG] {
        for name in ["etcd-1", "etcd-2"] {
            for turns in (0..120).step_by(2) {
                let fake = Fake::of(5).with(|s| s.transfer_turns = transfer_turns);
                let (one, two) = (fake.guard(LEAST), fake.guard(LEAST));
                let (leader, other) = (delete("etcd-0", |_| {}), delete(name, |_| {}));
                let elapsed = async {
                    for _ in 0..turns {
                        tokio::task::yield_now().await;
                    }
                    review(&two, &other).await
                };
                let (leader, other) = join(review(&one, &leader), elapsed).await;
                let leads = fake.state().leader;
                let went = |ruling: &Reviewed, id| verdict_of(ruling) == "allow" && leads == Some(id);
                let id = if name == "etcd-1" { 11 } else { 12 };
                let actions = fake.state().actions.clone();
                assert!(!went(&leader, 10) && !went(&other, id), "{name} after {turns}: {actions:?}");
                assert!(
                    verdict_of(&leader) == "allow" || verdict_of(&other) == "allow",
                    "{name} after {turns}: {actions:?}"
                );
                both += usize::from(verdict_of(&leader) == "allow" && verdict_of(&other) == "allow");
            }
        }
    }
    assert!(both > 50, "two of five concurrent deletions were rarely allowed: {both}");
}

#[tokio::test(start_paused = true)]
async fn a_leaving_member_is_not_chosen_as_successor() {
    let fake = Fake::of(5);
    assert_outcome(&deleted(&fake, LEAST, "etcd-1").await, Expected::Allow);
    assert_outcome(&deleted(&fake, LEAST, "etcd-0").await, Warning::Transferred { to: "etcd-2".into() });
    assert_eq!(fake.state().actions, ["reserved etcd-1", "reserved etcd-1 etcd-0", "etcd-0 to 12"]);
}

/// Returns an etcd cluster whose leader was denied after the reservation named `etcd-1` as successor.
async fn refused() -> Fake {
    let why = admission::Cause::new(cause::TIMEOUT, "leader transfer took too long");
    let fake = Fake::of(5).with(|s| s.transfer_result = Some(TransferResult::Unknown(why)));
    assert_outcome(&deleted(&fake, LEAST, "etcd-0").await, Expected::Unread(cause::TIMEOUT));
    assert_eq!(fake.reservations()[0].to, ["uid-etcd-1"]);
    assert_outcome(
        &deleted(&fake, LEAST, "etcd-1").await,
        Reason::LeadershipTransfer { from: "etcd-0".into() },
    );
    fake.state().transfer_result = None;
    fake
}

#[tokio::test(start_paused = true)]
async fn a_transfer_ends_with_the_pod_that_transfers() {
    // Its pod is being deleted.
    for leader in [12, 10] {
        let fake = refused().await;
        fake.mark_deleted("etcd-0");
        fake.state().leader = Some(leader);
        assert_outcome(&deleted(&fake, LEAST, "etcd-1").await, Expected::Allow);
    }
    // Its pod is deleted.
    let fake = refused().await;
    fake.replace("etcd-0");
    assert_outcome(&deleted(&fake, LEAST, "etcd-1").await, Expected::Allow);
    // Another member leads.
    let fake = refused().await;
    fake.state().leader = Some(12);
    assert_outcome(&deleted(&fake, LEAST, "etcd-1").await, Expected::Allow);
    // The successor leads, and transfers leadership itself.
    let fake = refused().await;
    fake.state().leader = Some(11);
    assert_outcome(&deleted(&fake, LEAST, "etcd-1").await, Warning::Transferred { to: "etcd-2".into() });
    // The reservation expired.
    let fake = refused().await;
    fake.state().elapsed = Duration::from_secs(53);
    assert_outcome(
        &deleted(&fake, LEAST, "etcd-1").await,
        Reason::LeadershipTransfer { from: "etcd-0".into() },
    );
    fake.state().elapsed = Duration::from_secs(54);
    assert_outcome(&deleted(&fake, LEAST, "etcd-1").await, Expected::Allow);
}

#[tokio::test(start_paused = true)]
async fn concurrent_reviews_of_the_leader_keep_both_successors() {
    let fake = refused().await;
    fake.state().transfer_result = Some(TransferResult::NotLeader);
    fake.set("etcd-1", Reply::ReadHangs);
    drop(deleted(&fake, LEAST, "etcd-0").await);
    fake.set("etcd-1", Reply::Full);
    assert_eq!(fake.reservations()[0].to, ["uid-etcd-1", "uid-etcd-2"]);
    for name in ["etcd-1", "etcd-2"] {
        assert_outcome(
            &deleted(&fake, LEAST, name).await,
            Reason::LeadershipTransfer { from: "etcd-0".into() },
        );
    }
    assert_outcome(&deleted(&fake, LEAST, "etcd-3").await, Expected::Allow);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_never_transfers_does_not_block_others_forever() {
    let fake = Fake::of(3).with(|s| s.transfer_result = Some(TransferResult::Unsupported));
    let first = Duration::from_secs(45) + Duration::from_millis(8300);
    for seconds in (0..=50).step_by(5) {
        fake.state().elapsed = Duration::from_secs(seconds);
        let ruling = evicted(&fake, LEAST, "etcd-0").await;
        // A transfer must end before the reservation expires.
        let reason = if seconds <= 45 { Reason::NoTransfer } else { Reason::ReservationExpires };
        assert_outcome(&ruling, reason);
        assert_outcome(&evicted(&fake, LEAST, "etcd-1").await, MemberState::Leaving(Leaving::Reserved));
        let held = fake.reservations()[0].since.as_second() - NOW;
        assert_eq!(held, 8, "it is reserved once, not at each attempt");
    }
    fake.state().elapsed = first + Duration::from_secs(1);
    assert_outcome(&evicted(&fake, LEAST, "etcd-1").await, Expected::Allow);
    // The leader itself is allowed later.
    let fake = Fake::of(3).with(|s| s.transfer_result = Some(TransferResult::Unsupported));
    assert_outcome(&evicted(&fake, LEAST, "etcd-0").await, Reason::NoTransfer);
    fake.state().elapsed = first + Duration::from_secs(1);
    fake.state().transfer_result = None;
    assert_outcome(&evicted(&fake, LEAST, "etcd-0").await, Warning::Transferred { to: "etcd-1".into() });
}

#[tokio::test(start_paused = true)]
async fn a_leader_is_allowed_when_most_members_report_the_new_leader() {
    for members in [3, 5] {
        let fake = Fake::of(members).with(|s| s.unseen_for = 40);
        assert_outcome(&deleted(&fake, LEAST, "etcd-0").await, Warning::Transferred { to: "etcd-1".into() });
        assert_eq!(fake.state().actions, ["reserved etcd-0", "etcd-0 to 11"], "one transfer is sent");
        assert_eq!(fake.state().before, None, "some members had not seen the new leader");
    }
}

#[tokio::test(start_paused = true)]
async fn another_successor_does_not_renew_the_reservation() {
    let fake = Fake::of(5).with(|s| s.transfer_result = Some(TransferResult::Unsupported));
    assert_outcome(&evicted(&fake, LEAST, "etcd-0").await, Reason::NoTransfer);
    let before = fake.reservations()[0].clone();
    assert_eq!(before.to, ["uid-etcd-1"]);
    fake.state().elapsed = Duration::from_secs(10);
    fake.set("etcd-1", Reply::ReadHangs);
    assert_outcome(&evicted(&fake, LEAST, "etcd-0").await, Reason::NoTransfer);
    let after = fake.reservations()[0].clone();
    assert_eq!(after.to, ["uid-etcd-1", "uid-etcd-2"]);
    assert_eq!((after.since, after.first), (before.since, before.first));
}

/// Retries two deletions every 5 s, the second one so many seconds later, for an hour at most. Returns after how many
/// seconds the second one is allowed.
async fn until_the_second_goes(fake: &Fake, first: &str, second: &str, elapsed: u64) -> u64 {
    for at in (0..3600).step_by(5) {
        fake.state().elapsed = Duration::from_secs(at);
        drop(evicted(fake, LEAST, first).await);
        fake.state().elapsed = Duration::from_secs(at + elapsed);
        if verdict_of(&deleted_by(fake, LEAST, second, CONTROLLER, |_| {}).await) == "allow" {
            return at;
        }
    }
    3600
}

#[tokio::test(start_paused = true)]
async fn failing_retries_block_others_for_two_minutes_at_most() {
    for elapsed in 0..5 {
        // A drain that a PDB denies, and the rolling update that the PDB waits for.
        let fake = Fake::of(3);
        let after = until_the_second_goes(&fake, "etcd-1", "etcd-2", elapsed).await;
        assert!((60..=125).contains(&after), "after {after} s");
        // After the update, retries of the drain are allowed again.
        fake.mark_deleted("etcd-2");
        fake.replace("etcd-2");
        let began = fake.state().elapsed;
        let again = async {
            for at in (0..120).step_by(5) {
                fake.state().elapsed = began + Duration::from_secs(at);
                if verdict_of(&evicted(&fake, LEAST, "etcd-1").await) == "allow" {
                    return at;
                }
            }
            120
        };
        let again = again.await;
        assert!(again <= 35, "after {again} s");
        // A leader that never transfers, and another member.
        let fake = Fake::of(3).with(|s| s.transfer_result = Some(TransferResult::Unsupported));
        let after = until_the_second_goes(&fake, "etcd-0", "etcd-1", elapsed).await;
        assert!(after <= 125, "after {after} s");
    }
}

#[tokio::test(start_paused = true)]
async fn failing_retries_back_off_after_a_minute_until_the_reservation_expired() {
    let fake = Fake::of(3);
    let at = |seconds| {
        fake.state().elapsed = Duration::from_secs(seconds);
        evicted(&fake, LEAST, "etcd-1")
    };
    let since = |seconds| Timestamp::from_second(NOW + seconds).unwrap();
    for seconds in (0..=60).step_by(10) {
        assert_outcome(&at(seconds).await, Expected::Allow);
    }
    // The last reservation is for a review that ended at 68.3 s, and expires 45 s later.
    for seconds in [70, 90, 114, 140] {
        assert_outcome(&at(seconds).await, Reason::Backoff { since: Some(since(0)) });
        let dry = evict("etcd-1", |r| r["dryRun"] = true.into());
        assert_outcome(&review(&fake.guard(LEAST), &dry).await, Expected::Backoff);
    }
    assert_outcome(&at(144).await, Expected::Allow);
    assert_outcome(&at(204).await, Expected::Allow);
    assert_outcome(&at(215).await, Reason::Backoff { since: Some(since(144)) });
    // Unhealthy members and pods that are being deleted need no backoff.
    fake.set("etcd-1", Reply::NoResponse(cause::NOT_LISTENING));
    assert_outcome(&at(220).await, Expected::Allow);
    fake.set("etcd-1", Reply::Full);
    fake.mark_deleted("etcd-1");
    assert_outcome(&deleted(&fake, LEAST, "etcd-1").await, Expected::Allow);
}

#[tokio::test(start_paused = true)]
async fn a_rolling_update_succeeds_with_any_leader() {
    for members in [3, 5] {
        for leader in 0..members {
            let fake = Fake::of(members).with(|s| s.leader = Some(10 + leader));
            for at in (0..members).rev() {
                let name = format!("etcd-{at}");
                fake.state().elapsed += Duration::from_secs(3);
                let ruling = deleted_by(&fake, LEAST, &name, CONTROLLER, |_| {}).await;
                assert_eq!(
                    verdict_of(&ruling),
                    "allow",
                    "{name} of {members} under {leader}: {}",
                    text_of(&ruling)
                );
                fake.mark_deleted(&name);
                // A retry during the deletion is allowed.
                assert_outcome(&deleted_by(&fake, LEAST, &name, CONTROLLER, |_| {}).await, Expected::Allow);
                assert_ne!(fake.state().leader, Some(10 + at), "{name} is killed as the leader");
                fake.replace(&name);
            }
        }
    }
}
