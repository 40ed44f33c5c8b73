//! Concurrent deletions, reviewed by several replicas.

use futures_util::future::join_all;
use serde_json::json;

use super::super::facts::Leaving;
use super::super::fixture::{LEAST, delete, evict, pod};
use super::super::table::MemberState;
use super::expect::{Expected, Reviewed, assert_outcome, quorum, reserved, verdict_of};
use super::fake::{Fake, PODS, Reply, deleted, evicted, review};
use cluster::cause;

/// Returns how many of these deletions are allowed, each by its own replica.
async fn passing(fake: &Fake, yaml: &str, names: &[&str]) -> usize {
    let guards: Vec<_> = names.iter().map(|name| (fake.guard(yaml), delete(name, |_| {}))).collect();
    let rulings = join_all(guards.iter().map(|(guard, body)| review(guard, body))).await;
    rulings.iter().filter(|ruling| verdict_of(ruling) == "allow").count()
}

#[tokio::test(start_paused = true)]
async fn one_of_two_concurrent_deletions_at_three_members_is_allowed() {
    for names in [["etcd-1", "etcd-2"], ["etcd-2", "etcd-1"], ["etcd-0", "etcd-1"]] {
        assert_eq!(passing(&Fake::of(3), LEAST, &names).await, 1, "{names:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_of_five_concurrent_deletions_at_five_members_is_allowed() {
    let all = ["etcd-0", "etcd-1", "etcd-2", "etcd-3", "etcd-4"];
    assert_eq!(passing(&Fake::of(5), LEAST, &all).await, 1);
}

#[tokio::test(start_paused = true)]
async fn concurrent_deletions_are_allowed_one_after_another() {
    for members in [3, 4, 5, 7] {
        let fake = Fake::of(members);
        let mut waiting: Vec<String> = (0..members).map(|at| format!("etcd-{at}")).collect();
        while !waiting.is_empty() {
            let guards: Vec<_> = waiting
                .iter()
                .map(|name| {
                    let stored = fake.pod(name);
                    (fake.guard(LEAST), delete(name, |request| request["oldObject"] = stored))
                })
                .collect();
            let rulings = join_all(guards.iter().map(|(guard, body)| review(guard, body))).await;
            let passed = |(_, ruling): &(&String, &Reviewed)| verdict_of(ruling) == "allow";
            let passed: Vec<String> =
                waiting.iter().zip(&rulings).filter(passed).map(|(name, _)| name.clone()).collect();
            let [name] = passed.as_slice() else { panic!("{passed:?} of {waiting:?}") };
            waiting.retain(|other| other != name);
            fake.mark_deleted(name);
            for other in &waiting {
                assert_outcome(&deleted(&fake, LEAST, other).await, Expected::Deny);
            }
            fake.replace(name);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_is_allowed_and_another_pod_denied() {
    let fake = Fake::of(3);
    assert_outcome(&deleted(&fake, LEAST, "etcd-1").await, Expected::Allow);
    assert_outcome(&evicted(&fake, LEAST, "etcd-1").await, Expected::Allow);
    assert_eq!(fake.content().actions, ["reserved etcd-1"], "it is reserved once");
    fake.at(6);
    assert_outcome(&deleted(&fake, LEAST, "etcd-1").await, Expected::Allow);
    assert_eq!(fake.content().actions.len(), 2, "it is renewed before it expires");
    assert_outcome(&deleted(&fake, LEAST, "etcd-2").await, reserved("etcd-1"));
}

#[tokio::test(start_paused = true)]
async fn a_reservation_expires_unless_the_pod_is_being_deleted() {
    let fake = Fake::of(3);
    assert_outcome(&deleted(&fake, LEAST, "etcd-1").await, Expected::Allow);
    fake.at(45);
    assert_outcome(&deleted(&fake, LEAST, "etcd-2").await, reserved("etcd-1"));
    fake.at(46);
    assert_outcome(&deleted(&fake, LEAST, "etcd-2").await, Expected::Allow);
    let fake = Fake::of(3);
    assert_outcome(&deleted(&fake, LEAST, "etcd-1").await, Expected::Allow);
    fake.mark_deleted("etcd-1");
    fake.at(3600);
    assert_outcome(&deleted(&fake, LEAST, "etcd-2").await, MemberState::Leaving(Leaving::Deleting));
}

#[tokio::test(start_paused = true)]
async fn the_next_member_is_allowed_once_the_replacement_is_healthy() {
    let fake = Fake::of(3);
    assert_outcome(&deleted(&fake, LEAST, "etcd-2").await, Expected::Allow);
    fake.content().edit(PODS, "etcd-2", |pod| pod["metadata"]["uid"] = "uid-of-the-next".into());
    fake.content().etcd_member("etcd-2").reply = Reply::Hangs;
    assert_outcome(&evicted(&fake, LEAST, "etcd-1").await, quorum(1, 3));
    fake.content().etcd_member("etcd-2").reply = Reply::Full;
    assert_outcome(&evicted(&fake, LEAST, "etcd-1").await, Expected::Allow);
}

#[tokio::test(start_paused = true)]
async fn the_next_member_of_five_waits_for_the_replacement_but_not_for_a_dead_member() {
    let fake = Fake::of(5).down(&["etcd-4"]);
    assert_outcome(&evicted(&fake, LEAST, "etcd-2").await, Expected::Allow);
    fake.mark_deleted("etcd-2");
    assert_outcome(&evicted(&fake, LEAST, "etcd-1").await, quorum(2, 5));
    fake.replace("etcd-2");
    assert_outcome(&evicted(&fake, LEAST, "etcd-1").await, Expected::Allow);
    // A replacement that never gets healthy delays others until the reservation ends.
    let fake = Fake::of(5);
    assert_outcome(&evicted(&fake, LEAST, "etcd-2").await, Expected::Allow);
    fake.replace("etcd-2");
    fake.set("etcd-2", Reply::NoResponse(cause::NOT_LISTENING));
    for name in ["etcd-1", "etcd-2"] {
        let stored = fake.pod(name);
        let body = delete(name, |r| r["oldObject"] = stored);
        assert_outcome(&review(&fake.guard(LEAST), &body).await, reserved("etcd-2"));
    }
    fake.at(46);
    assert_outcome(&deleted(&fake, LEAST, "etcd-2").await, Expected::Allow);
}

#[tokio::test(start_paused = true)]
async fn health_is_read_again_after_the_reservation() {
    let fake = Fake::of(3);
    // The member becomes unhealthy after the write, so all answers before it are healthy.
    let guard = fake.guard(LEAST);
    let body = delete("etcd-1", |_| {});
    let falling = async {
        fake.reserved().await;
        fake.content().etcd_member("etcd-2").reply = Reply::NoResponse(cause::TIMEOUT);
    };
    let (ruling, ()) = futures_util::future::join(review(&guard, &body), falling).await;
    assert_outcome(&ruling, quorum(1, 3));
    assert_eq!(fake.content().actions, ["reserved etcd-1"]);
}

#[tokio::test(start_paused = true)]
async fn without_reservations_no_healthy_member_is_allowed() {
    for what in ["leases", "write"] {
        let fake = Fake::of(3).with_error(what);
        let ruling = deleted(&fake, LEAST, "etcd-1").await;
        assert_outcome(&ruling, Expected::NotReserved);
        let down = fake.down(&["etcd-2"]);
        assert_outcome(&deleted(&down, LEAST, "etcd-2").await, Expected::Unreserved);
    }
    let broken = Fake::of(3);
    broken.set_lease(json!({"metadata": {}, "spec": {"holderIdentity": "u"}}));
    assert_outcome(&deleted(&broken, LEAST, "etcd-1").await, Expected::NotReserved);
}

#[tokio::test(start_paused = true)]
async fn two_clusters_do_not_affect_each_other() {
    let fake = Fake::of(3).with(|s| {
        let mut other = pod("etcd-1");
        other["metadata"]["name"] = "other-0".into();
        other["metadata"]["uid"] = "uid-other-0".into();
        other["metadata"]["ownerReferences"][0]["name"] = "other".into();
        other["metadata"]["ownerReferences"][0]["uid"] = "uid-other".into();
        s.insert(PODS, other);
    });
    // It does not count for the other etcd cluster.
    assert_outcome(&evicted(&fake, LEAST, "etcd-1").await, Expected::Allow);
    let other_pod = evict("other-0", |_| {});
    assert_outcome(&review(&fake.guard(LEAST), &other_pod).await, Expected::Allow);
}
