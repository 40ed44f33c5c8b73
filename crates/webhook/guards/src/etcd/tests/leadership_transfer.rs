//! A leader transfers leadership to a reserved successor, which stays during the transfer.

use admission::{Code, Verdict};
use futures_util::future::join;
use k8s_openapi::jiff::Timestamp;

use super::super::decide::{DenyReason, Warning};
use super::super::fixture::{LEAST, NOW, delete, evict};
use super::CONTROLLER;
use super::expect::{Expected, Reviewed, assert_outcome, assert_text, reserved, text_of, verdict_of};
use super::fake::{Fake, Reply, ReportedLeader, deleted, deleted_by, evicted, review};
use cluster::cause;
use cluster::testing::RequestFault;
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
    let fake = Fake::of(5).with(|s| s.fault("write: leader", RequestFault::Yields(LONG)));
    let (leader, successor) = while_it_hands_over(&fake, &delete("etcd-1", |_| {})).await;
    assert_outcome(&leader, Warning::Transferred { to: "etcd-1".into() });
    assert_outcome(&successor, reserved("etcd-0"));
    assert_text(&successor, "deny", "retry when that pod is back");
    let fake = Fake::of(5).with(|s| s.fault("write: leader", RequestFault::Yields(LONG)));
    let (leader, successor) = while_it_hands_over(&fake, &evict("etcd-1", |_| {})).await;
    assert_outcome(&leader, Expected::Allow);
    let Verdict::Deny(denial) = successor.ruling.verdict else { panic!() };
    assert_eq!(denial.code, Code::TooManyRequests);
    // The successor stays even if it stops answering.
    let fake = Fake::of(5).with(|s| s.fault("write: leader", RequestFault::Yields(LONG)));
    let falling = async {
        fake.transferring().await;
        fake.set("etcd-1", Reply::NoResponse(cause::TIMEOUT));
    };
    let successor = delete("etcd-1", |_| {});
    let ((_, successor), ()) = join(while_it_hands_over(&fake, &successor), falling).await;
    assert_outcome(&successor, reserved("etcd-0"));
}

#[tokio::test(start_paused = true)]
async fn two_concurrent_deletions_of_five_never_kill_the_leader() {
    for transfer_turns in [0, 30, LONG] {
        for name in ["etcd-1", "etcd-2"] {
            for turns in (0..120).step_by(2) {
                let fake =
                    Fake::of(5).with(|s| s.fault("write: leader", RequestFault::Yields(transfer_turns)));
                let (one, two) = (fake.guard(LEAST), fake.guard(LEAST));
                let (leader, other) = (delete("etcd-0", |_| {}), delete(name, |_| {}));
                let elapsed = async {
                    for _ in 0..turns {
                        tokio::task::yield_now().await;
                    }
                    review(&two, &other).await
                };
                let (leader, other) = join(review(&one, &leader), elapsed).await;
                let leads = fake.content().etcd.leader;
                let went = |ruling: &Reviewed, id| verdict_of(ruling) == "allow" && leads == Some(id);
                let id = if name == "etcd-1" { 11 } else { 12 };
                let actions = fake.content().actions.clone();
                assert!(!went(&leader, 10) && !went(&other, id), "{name} after {turns}: {actions:?}");
                assert!(
                    verdict_of(&leader) == "allow" || verdict_of(&other) == "allow",
                    "{name} after {turns}: {actions:?}"
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_leaving_member_is_not_chosen_as_successor() {
    let fake = Fake::of(5);
    fake.mark_deleted("etcd-1");
    assert_outcome(&deleted(&fake, LEAST, "etcd-0").await, Warning::Transferred { to: "etcd-2".into() });
    assert_eq!(fake.content().actions, ["reserved etcd-0", "etcd-0 to 12"]);
}

#[tokio::test(start_paused = true)]
async fn after_a_transfer_with_an_unknown_result_the_leader_is_allowed_and_others_wait() {
    let refused = async || {
        let why = admission::Cause::new(cause::TIMEOUT, "leader transfer took too long");
        let fake = Fake::of(5).with(|s| s.etcd.transfer_result = Some(TransferResult::Unknown(why)));
        assert_outcome(&deleted(&fake, LEAST, "etcd-0").await, Expected::Unread(cause::TIMEOUT));
        assert_outcome(&deleted(&fake, LEAST, "etcd-1").await, reserved("etcd-0"));
        fake.content().etcd.transfer_result = None;
        fake
    };
    let fake = refused().await;
    assert_outcome(&deleted(&fake, LEAST, "etcd-0").await, Warning::Transferred { to: "etcd-1".into() });
    // It is replaced, or its reservation has ended.
    fake.replace("etcd-0");
    assert_outcome(&deleted(&fake, LEAST, "etcd-2").await, Expected::Allow);
    let fake = refused().await;
    fake.at(46);
    assert_outcome(&deleted(&fake, LEAST, "etcd-1").await, Expected::Allow);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_never_transfers_does_not_block_others_forever() {
    let fake = Fake::of(3).with(|s| s.etcd.transfer_result = Some(TransferResult::Unsupported));
    for seconds in (0..=105).step_by(5) {
        fake.at(seconds);
        let ruling = evicted(&fake, LEAST, "etcd-0").await;
        let expected = if seconds <= 60 { DenyReason::NoTransfer.into() } else { Expected::Backoff };
        assert_outcome(&ruling, expected);
        assert_outcome(&evicted(&fake, LEAST, "etcd-1").await, reserved("etcd-0"));
    }
    fake.at(106);
    assert_outcome(&evicted(&fake, LEAST, "etcd-1").await, Expected::Allow);
    // The leader itself is allowed later.
    let fake = Fake::of(3).with(|s| s.etcd.transfer_result = Some(TransferResult::Unsupported));
    assert_outcome(&evicted(&fake, LEAST, "etcd-0").await, DenyReason::NoTransfer);
    fake.at(46);
    fake.content().etcd.transfer_result = None;
    assert_outcome(&evicted(&fake, LEAST, "etcd-0").await, Warning::Transferred { to: "etcd-1".into() });
}

#[tokio::test(start_paused = true)]
async fn a_leader_is_allowed_when_most_members_report_the_new_leader() {
    for members in [3, 5] {
        // The followers report the previous leader until the guard has read 40 statuses after the transfer.
        let fake = Fake::of(members).with(|s| {
            let mut statuses = 0;
            s.rules.push(Box::new(move |s, request| {
                statuses += u32::from(s.actions.len() > 1 && request.text.ends_with(" status"));
                let seen = if statuses < 40 { ReportedLeader::Member(10) } else { ReportedLeader::Consensus };
                s.etcd.members.values_mut().filter(|one| one.id != 11).for_each(|one| one.leader = seen);
                None
            }));
        });
        assert_outcome(&deleted(&fake, LEAST, "etcd-0").await, Warning::Transferred { to: "etcd-1".into() });
        assert_eq!(fake.content().actions, ["reserved etcd-0", "etcd-0 to 11"], "one transfer is sent");
        let seen = fake.content().etcd_member("etcd-2").leader;
        assert_eq!(seen, ReportedLeader::Consensus, "some members had not seen the new leader");
    }
}

/// Retries two deletions every 5 s, the second one so many seconds later, for an hour at most. Returns after how many
/// seconds the second one is allowed.
async fn until_the_second_goes(fake: &Fake, first: &str, second: &str, elapsed: u64) -> u64 {
    for at in (0..3600).step_by(5) {
        fake.at(at);
        drop(evicted(fake, LEAST, first).await);
        fake.at(at + elapsed);
        if verdict_of(&deleted_by(fake, LEAST, second, CONTROLLER, |_| {}).await) == "allow" {
            return at;
        }
    }
    3600
}

#[tokio::test(start_paused = true)]
async fn failing_retries_block_others_for_105_seconds() {
    for elapsed in 0..5 {
        // A drain that a PDB denies, and the rolling update that the PDB waits for.
        let fake = Fake::of(3);
        let after = until_the_second_goes(&fake, "etcd-1", "etcd-2", elapsed).await;
        assert!((105..=110).contains(&after), "after {after} s");
        // After the update, retries of the drain are allowed again.
        fake.mark_deleted("etcd-2");
        fake.replace("etcd-2");
        let began = after + elapsed;
        let again = async {
            for at in (0..120).step_by(5) {
                fake.at(began + at);
                if verdict_of(&evicted(&fake, LEAST, "etcd-1").await) == "allow" {
                    return at;
                }
            }
            120
        };
        let again = again.await;
        assert_eq!(again, 0);
        // A leader that never transfers, and another member.
        let fake = Fake::of(3).with(|s| s.etcd.transfer_result = Some(TransferResult::Unsupported));
        let after = until_the_second_goes(&fake, "etcd-0", "etcd-1", elapsed).await;
        assert!(after <= 110, "after {after} s");
    }
}

#[tokio::test(start_paused = true)]
async fn failing_retries_back_off_after_a_minute_until_others_had_time() {
    let fake = Fake::of(3);
    let at = |seconds| {
        fake.at(seconds);
        evicted(&fake, LEAST, "etcd-1")
    };
    let since = |seconds| Timestamp::from_second(NOW + seconds).unwrap();
    for seconds in (0..=60).step_by(10) {
        assert_outcome(&at(seconds).await, Expected::Allow);
    }
    // The last reservation ends after 105 s. Other pods have 15 s more.
    for seconds in [65, 90, 105, 120] {
        assert_outcome(&at(seconds).await, DenyReason::Backoff { since: since(0) });
        let dry = evict("etcd-1", |r| r["dryRun"] = true.into());
        assert_outcome(&review(&fake.guard(LEAST), &dry).await, Expected::Backoff);
    }
    for seconds in [121, 150, 181] {
        assert_outcome(&at(seconds).await, Expected::Allow);
    }
    assert_outcome(&at(186).await, DenyReason::Backoff { since: since(121) });
    // A pod that is being deleted needs no reservation.
    fake.mark_deleted("etcd-1");
    assert_outcome(&deleted(&fake, LEAST, "etcd-1").await, Expected::Allow);
}

#[tokio::test(start_paused = true)]
async fn a_rolling_update_succeeds_with_any_leader() {
    for members in [3, 5] {
        for leader in 0..members {
            let fake = Fake::of(members).with(|s| s.etcd.leader = Some(10 + leader));
            for (turn, at) in (1..).zip((0..members).rev()) {
                let name = format!("etcd-{at}");
                fake.at(3 * turn);
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
                assert_ne!(fake.content().etcd.leader, Some(10 + at), "{name} is killed as the leader");
                fake.replace(&name);
            }
        }
    }
}
