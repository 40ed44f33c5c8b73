//! Concurrent deletions, reviewed by several replicas.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;

use super::super::facts::Leaving;
use super::super::fixture::{LEAST, delete, evict};
use super::super::table::MemberState;
use super::expect::{Expected, assert_outcome, quorum, verdict_of};
use super::fake::{Fake, Reply, deleted, evicted, review};
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
async fn two_of_three_concurrent_deletions_at_five_members_are_allowed() {
    assert_eq!(passing(&Fake::of(5), LEAST, &["etcd-1", "etcd-2", "etcd-3"]).await, 2);
    assert_eq!(passing(&Fake::of(5), LEAST, &["etcd-0", "etcd-1", "etcd-2", "etcd-3", "etcd-4"]).await, 2);
}

#[tokio::test(start_paused = true)]
async fn concurrent_deletions_are_allowed_up_to_the_quorum_and_the_rest_later() {
    for members in [3, 4, 5, 7] {
        let fake = Fake::of(members);
        let mut waiting: Vec<String> = (0..members).map(|at| format!("etcd-{at}")).collect();
        let most = usize::try_from(members - members / 2 - 1).unwrap();
        while !waiting.is_empty() {
            let guards: Vec<_> = waiting
                .iter()
                .map(|name| {
                    let stored = fake.pod(name);
                    (fake.guard(LEAST), delete(name, |request| request["oldObject"] = stored))
                })
                .collect();
            let rulings = join_all(guards.iter().map(|(guard, body)| review(guard, body))).await;
            let passed: Vec<String> = waiting
                .iter()
                .zip(&rulings)
                .filter(|(_, ruling)| verdict_of(ruling) == "allow")
                .map(|(name, _)| name.clone())
                .collect();
            // The successor waits for the transfer.
            let all = most.min(waiting.len());
            assert!(passed.len() <= most && passed.len() + 1 >= all, "{passed:?} of {waiting:?}");
            assert!(
                !passed.is_empty() && (waiting.len() < 3 || passed.len() == all),
                "{passed:?} of {waiting:?}"
            );
            waiting.retain(|name| !passed.contains(name));
            for name in &passed {
                fake.mark_deleted(name);
            }
            for name in &waiting {
                if passed.len() == most {
                    assert_outcome(&deleted(&fake, LEAST, name).await, Expected::Deny);
                }
            }
            for name in &passed {
                fake.replace(name);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn local_reservations_need_no_lease() {
    // Local reservations outlive a test, so this one has its own namespace.
    let local = format!("namespace: one-process\ncoordination: inMemory\n{LEAST}");
    let fake = Fake::of(3).with(|s| {
        s.errors.insert("leases", cause::FORBIDDEN);
        s.errors.insert("write", cause::FORBIDDEN);
    });
    assert_eq!(passing(&fake, &local, &["etcd-1", "etcd-2"]).await, 1);
    assert!(fake.state().lease.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_retry_is_allowed_and_another_pod_denied() {
    let fake = Fake::of(3);
    assert_outcome(&deleted(&fake, LEAST, "etcd-1").await, Expected::Allow);
    assert_outcome(&evicted(&fake, LEAST, "etcd-1").await, Expected::Allow);
    assert_eq!(fake.state().actions, ["reserved etcd-1"], "it is reserved once");
    fake.state().elapsed = Duration::from_secs(6);
    assert_outcome(&deleted(&fake, LEAST, "etcd-1").await, Expected::Allow);
    assert_eq!(fake.state().actions.len(), 2, "it is renewed before it expires");
    let ruling = deleted(&fake, LEAST, "etcd-2").await;
    assert_outcome(&ruling, MemberState::Leaving(Leaving::Reserved));
}

#[tokio::test(start_paused = true)]
async fn a_reservation_expires_unless_the_pod_is_being_deleted() {
    let fake = Fake::of(3);
    assert_outcome(&deleted(&fake, LEAST, "etcd-1").await, Expected::Allow);
    // The review ends after 8.3 s, and the reservation 45 s later.
    fake.state().elapsed = Duration::from_secs(53);
    assert_outcome(&deleted(&fake, LEAST, "etcd-2").await, MemberState::Leaving(Leaving::Reserved));
    fake.state().elapsed = Duration::from_secs(54);
    assert_outcome(&deleted(&fake, LEAST, "etcd-2").await, Expected::Allow);
    let fake = Fake::of(3);
    assert_outcome(&deleted(&fake, LEAST, "etcd-1").await, Expected::Allow);
    fake.mark_deleted("etcd-1");
    fake.state().elapsed = Duration::from_secs(3600);
    assert_outcome(&deleted(&fake, LEAST, "etcd-2").await, MemberState::Leaving(Leaving::Deleting));
}

#[tokio::test(start_paused = true)]
async fn the_next_member_is_allowed_once_the_replacement_is_healthy() {
    let fake = Fake::of(3);
    assert_outcome(&deleted(&fake, LEAST, "etcd-2").await, Expected::Allow);
    fake.state().pods[2]["metadata"]["uid"] = "uid-of-the-next".into();
    fake.state().members.get_mut("etcd-2").unwrap().reply = Reply::Hangs;
    assert_outcome(&evicted(&fake, LEAST, "etcd-1").await, quorum(1, 3));
    fake.state().members.get_mut("etcd-2").unwrap().reply = Reply::Full;
    assert_outcome(&evicted(&fake, LEAST, "etcd-1").await, Expected::Allow);
}

#[tokio::test(start_paused = true)]
async fn health_is_read_again_after_the_reservation() {
    let fake = Fake::of(3);
    // The member becomes unhealthy after the write, so all answers before it are healthy.
    let guard = fake.guard(LEAST);
    let body = delete("etcd-1", |_| {});
    let falling = async {
        while fake.state().lease.is_none() {
            tokio::task::yield_now().await;
        }
        fake.state().members.get_mut("etcd-2").unwrap().reply = Reply::NoResponse(cause::TIMEOUT);
    };
    let (ruling, ()) = futures_util::future::join(review(&guard, &body), falling).await;
    assert_outcome(&ruling, quorum(1, 3));
    assert_eq!(fake.state().actions, ["reserved etcd-1"]);
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
    let broken = Fake::of(3).with(|s| {
        let lease = json!({"metadata": {"annotations": {"durward.dev/reservations": "soon"}}});
        s.lease = Some((1, lease));
    });
    assert_outcome(&deleted(&broken, LEAST, "etcd-1").await, Expected::NotReserved);
}

#[tokio::test(start_paused = true)]
async fn two_clusters_do_not_affect_each_other() {
    let fake = Fake::of(3).with(|s| {
        let mut other = s.pods[1].clone();
        other["metadata"]["name"] = "other-0".into();
        other["metadata"]["uid"] = "uid-other-0".into();
        other["metadata"]["ownerReferences"][0]["name"] = "other".into();
        other["metadata"]["ownerReferences"][0]["uid"] = "uid-other".into();
        s.pods.push(other);
    });
    // It does not count for the other etcd cluster.
    assert_outcome(&evicted(&fake, LEAST, "etcd-1").await, Expected::Allow);
    let other_pod = evict("other-0", |_| {});
    assert_outcome(&review(&fake.guard(LEAST), &other_pod).await, Expected::Allow);
}
