//! The sources of the expected size.

use serde_json::{Value, json};

use super::super::decide::{DenyReason, Warning};
use super::super::facts::Leaving;
use super::super::fixture::LEAST;
use super::super::table::MemberState;
use super::CONTROLLER;
use super::expect::{Expected, assert_outcome, assert_text, quorum, reserved, text_of, verdict_of};
use super::fake::{
    ETCD_CLUSTERS, Fake, FakeContent, PODS, Reply, STATEFUL_SETS, deleted, deleted_by, evicted,
};
use cluster::cause;

const TOGETHER: &str = "clusters: [{namespace: db, selector: app=etcd, groupBy: selector}]";
const NAMED: &str = "clusters: [{namespace: db, selector: app=etcd, owner: {apiVersion: etcd.example.org/v1, kind: EtcdCluster}}]";

/// Removes the owners of all pods.
fn bare(state: &mut FakeContent) {
    state.edit_all(PODS, |pod| drop(pod["metadata"].as_object_mut().unwrap().remove("ownerReferences")));
}

/// Gives each pod its own `StatefulSet`: `a`, `b`, `c`.
fn each_its_own(state: &mut FakeContent) {
    for (at, name) in ["a", "b", "c"].into_iter().enumerate() {
        let uid = format!("uid-{name}");
        let set = json!({"metadata": {"name": name, "namespace": "db", "uid": uid}, "spec": {"replicas": 1, "ordinals": {"start": at}}});
        state.edit_all(PODS, |pod| {
            if pod["metadata"]["name"] == format!("etcd-{at}") {
                let owner = &mut pod["metadata"]["ownerReferences"][0];
                (owner["name"], owner["uid"]) = (name.into(), uid.clone().into());
            }
        });
        state.insert(STATEFUL_SETS, set);
    }
}

/// Makes a custom object the owner of all pods.
fn made(state: &mut FakeContent, spec: &Value) {
    let cluster = json!({"apiVersion": "etcd.example.org/v1", "kind": "EtcdCluster", "metadata": {"name": "prod", "namespace": "db", "uid": "uid-prod"}, "spec": spec});
    state.insert(ETCD_CLUSTERS, cluster);
    let owner = json!([{"apiVersion": "etcd.example.org/v1", "kind": "EtcdCluster", "name": "prod", "uid": "uid-prod", "controller": true}]);
    state.edit_all(PODS, |pod| pod["metadata"]["ownerReferences"] = owner.clone());
}

/// Returns two of three members. The third was removed from the list, and its pod is deleted.
fn two_are_left(change: impl FnOnce(&mut FakeContent)) -> Fake {
    Fake::of(3).with(|state| {
        state.etcd.members.retain(|name, _| name != "etcd-2");
        state.remove(PODS, "etcd-2");
        change(state);
    })
}

#[track_caller]
fn with(yaml: &str, key: &str) -> String {
    yaml.replacen("namespace: db,", &format!("namespace: db, {key},"), 1)
}

#[tokio::test(start_paused = true)]
async fn a_configured_size_below_the_voters_or_pods_is_ignored() {
    // The third member was removed from the list, and its pod remains.
    let three = |change: fn(&mut FakeContent)| {
        Fake::of(3).with(|state| {
            state.etcd.members.retain(|name, _| name != "etcd-2");
            change(state);
        })
    };
    let (one, two) = (with(LEAST, "expectedMembers: 1"), with(LEAST, "expectedMembers: 2"));
    let undeclared = || DenyReason::UndeclaredSize { voters: 2 };
    let shapes: [(Fake, &str, DenyReason); 5] = [
        (two_are_left(bare), &one, undeclared()),
        (two_are_left(|s| made(s, &json!({"replicas": 1}))), NAMED, undeclared()),
        (three(bare), &two, DenyReason::TooFewVoters { voters: 2, expected: 3 }),
        (three(bare), &one, DenyReason::TooFewVoters { voters: 2, expected: 3 }),
        (three(|s| made(s, &json!({"size": 2}))), NAMED, DenyReason::TooFewVoters { voters: 2, expected: 3 }),
    ];
    for (at, (fake, yaml, reason)) in shapes.into_iter().enumerate() {
        for name in ["etcd-0", "etcd-1"] {
            let ruling = deleted(&fake, yaml, name).await;
            assert_eq!(verdict_of(&ruling), "deny", "{at} {name}: {}", text_of(&ruling));
            assert_outcome(&ruling, reason.clone());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn two_voters_of_an_undeclared_cluster_both_stay() {
    let scaled = |state: &mut FakeContent| {
        each_its_own(state);
        let set =
            json!({"metadata": {"name": "c", "namespace": "db", "uid": "uid-c"}, "spec": {"replicas": 0}});
        state.insert(STATEFUL_SETS, set);
    };
    let shapes: [(Fake, &str); 5] = [
        (two_are_left(bare), LEAST),
        (two_are_left(bare), TOGETHER),
        (two_are_left(scaled), TOGETHER),
        (two_are_left(|s| made(s, &Value::Null)), NAMED),
        // The entry does not configure the kind of this owner.
        (two_are_left(|s| made(s, &json!({"size": 2}))), LEAST),
    ];
    for (at, (fake, yaml)) in shapes.into_iter().enumerate() {
        for name in ["etcd-0", "etcd-1"] {
            for user in ["ann", CONTROLLER] {
                let ruling = deleted_by(&fake, yaml, name, user, |_| {}).await;
                assert_eq!(verdict_of(&ruling), "deny", "{at} {name} {user}: {}", text_of(&ruling));
                assert_outcome(&ruling, DenyReason::UndeclaredSize { voters: 2 });
            }
            assert_outcome(&evicted(&fake, yaml, name).await, DenyReason::UndeclaredSize { voters: 2 });
        }
        assert!(fake.content().actions.is_empty(), "{at}: {:?}", fake.content().actions);
        // With a declared size of two, one is allowed and the other one waits.
        let text = with(yaml, "expectedMembers: 2");
        assert_outcome(&deleted(&fake, &text, "etcd-1").await, Warning::Outage { voters: 2 });
        assert_outcome(&deleted(&fake, &text, "etcd-0").await, reserved("etcd-1"));
        let three = with(yaml, "expectedMembers: 3");
        assert_outcome(
            &deleted(&fake, &three, "etcd-1").await,
            DenyReason::TooFewVoters { voters: 2, expected: 3 },
        );
    }
    // A single member without a declared size may be the last one of more.
    let one = || Fake::of(1).with(bare);
    let ruling = deleted(&one(), LEAST, "etcd-0").await;
    assert_outcome(&ruling, DenyReason::UndeclaredSize { voters: 1 });
    assert_text(&ruling, "deny", "expectedMembers: 1");
    assert_outcome(
        &deleted(&one(), &with(LEAST, "expectedMembers: 1"), "etcd-0").await,
        Warning::Outage { voters: 1 },
    );
}

#[tokio::test(start_paused = true)]
async fn the_owner_declares_the_size() {
    let few = || Expected::Denied(DenyReason::TooFewVoters { voters: 2, expected: 3 });
    let small = || Expected::Warning(Warning::Outage { voters: 2 });
    let undeclared = || Expected::Denied(DenyReason::UndeclaredSize { voters: 2 });
    for (spec, expected) in [
        (json!({"size": 3}), few()),
        (json!({"replicas": 3}), few()),
        (json!({"size": 2}), small()),
        (json!({"replicas": 2, "size": "10Gi"}), small()),
        (json!({"size": 0}), undeclared()),
        (json!({"size": -2}), undeclared()),
    ] {
        let fake = two_are_left(|s| made(s, &spec));
        assert_outcome(&deleted(&fake, NAMED, "etcd-1").await, expected);
    }
    // The larger number counts.
    let set = |replicas: u64| {
        move |s: &mut FakeContent| {
            s.edit(STATEFUL_SETS, "etcd", |set| set["spec"]["replicas"] = replicas.into());
        }
    };
    for yaml in [with(LEAST, "expectedMembers: 2"), with(TOGETHER, "expectedMembers: 2")] {
        assert_outcome(
            &deleted(&two_are_left(set(3)), &yaml, "etcd-1").await,
            DenyReason::TooFewVoters { voters: 2, expected: 3 },
        );
        assert_outcome(&deleted(&two_are_left(set(2)), &yaml, "etcd-1").await, Warning::Outage { voters: 2 });
    }
    // A configured size of one does not override a StatefulSet of three.
    let one = with(LEAST, "expectedMembers: 1");
    assert_outcome(
        &deleted(&two_are_left(set(3)), &one, "etcd-1").await,
        DenyReason::TooFewVoters { voters: 2, expected: 3 },
    );
    // A `StatefulSet` without pods is not found, so the sum of the others is only a lower bound.
    assert_outcome(
        &deleted(&two_are_left(set(2)), TOGETHER, "etcd-1").await,
        DenyReason::UndeclaredSize { voters: 2 },
    );
    assert_outcome(&deleted(&two_are_left(set(2)), LEAST, "etcd-1").await, Warning::Outage { voters: 2 });
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_owner_makes_the_size_unknown() {
    for yaml in [LEAST.to_owned(), with(LEAST, "expectedMembers: 2"), with(TOGETHER, "expectedMembers: 2")] {
        let fake = two_are_left(|_| {}).with_error("statefulsets");
        for name in ["etcd-0", "etcd-1"] {
            let ruling = deleted(&fake, &yaml, name).await;
            assert_outcome(&ruling, Expected::UnreadSize);
        }
    }
    // The size does not matter for three voters.
    assert_outcome(&deleted(&Fake::of(3).with_error("statefulsets"), LEAST, "etcd-1").await, Expected::Allow);
    // A denial that does not depend on the size has its own reason.
    let unhealthy = two_are_left(|s| s.etcd_member("etcd-0").behind = 9000).with_error("statefulsets");
    assert_outcome(&deleted(&unhealthy, LEAST, "etcd-1").await, DenyReason::OtherUnhealthy);
    let fake = two_are_left(|s| made(s, &json!({"size": 3}))).with_error("etcdclusters");
    assert_outcome(&deleted(&fake, NAMED, "etcd-1").await, Expected::UnreadSize);
}

#[tokio::test(start_paused = true)]
async fn deleting_one_of_several_statefulsets_is_not_a_teardown() {
    let delete_second = |state: &mut FakeContent| {
        each_its_own(state);
        state.edit(STATEFUL_SETS, "b", |set| set["metadata"]["deletionTimestamp"] = "x".into());
    };
    let remove_second = |state: &mut FakeContent| {
        each_its_own(state);
        state.remove(STATEFUL_SETS, "b");
    };
    let end = |state: &mut FakeContent| {
        each_its_own(state);
        state.edit(STATEFUL_SETS, "b", |it| it["spec"]["replicas"] = 0.into());
    };
    let changes: [fn(&mut FakeContent); 3] = [delete_second, remove_second, end];
    for (at, change) in changes.into_iter().enumerate() {
        // Another member is down, so even the garbage collector waits.
        let short = Fake::of(3).down(&["etcd-2"]).with(change);
        assert_outcome(&deleted_by(&short, TOGETHER, "etcd-1", CONTROLLER, |_| {}).await, quorum(1, 3));
        // The member without an owner does not count, so the others wait.
        let well = || Fake::of(3).with(change);
        for name in ["etcd-0", "etcd-2"] {
            let ruling = deleted(&well(), TOGETHER, name).await;
            assert_outcome(&ruling, quorum(1, 3));
            assert_outcome(&ruling, MemberState::Leaving(Leaving::WithoutOwner));
        }
        let fake = well();
        assert_outcome(&deleted_by(&fake, TOGETHER, "etcd-1", CONTROLLER, |_| {}).await, Expected::Allow);
        assert_eq!(
            fake.content().actions,
            ["reserved etcd-1"],
            "{at}: its members are asked, and its deletion is reserved"
        );
    }
    // Deleting all owners is a teardown.
    let all = Fake::of(3).down(&["etcd-2"]).with(|s| {
        delete_second(s);
        s.edit(STATEFUL_SETS, "a", |it| it["spec"]["replicas"] = 0.into());
        s.remove(STATEFUL_SETS, "c");
    });
    for name in ["etcd-0", "etcd-1"] {
        assert_outcome(&deleted_by(&all, TOGETHER, name, CONTROLLER, |_| {}).await, Expected::Allow);
    }
    assert!(all.content().actions.is_empty());
    // A pod whose etcd does not run is allowed and reserved.
    let crashed = Fake::of(3).with(delete_second);
    crashed.set_container("etcd-1", "waiting");
    assert_outcome(&deleted_by(&crashed, TOGETHER, "etcd-1", CONTROLLER, |_| {}).await, Expected::Allow);
    assert_eq!(crashed.content().actions, ["reserved etcd-1"]);
    // Without the list of pods, other owners may exist.
    let unseen = Fake::of(3).with(delete_second).with_error("pods");
    assert_outcome(&deleted_by(&unseen, TOGETHER, "etcd-1", CONTROLLER, |_| {}).await, Expected::Unknown);
}

#[tokio::test(start_paused = true)]
async fn a_scaled_down_member_of_two_must_leave_the_list_first() {
    let to = |replicas: u64| {
        Fake::of(2).with(|s| {
            s.edit(STATEFUL_SETS, "etcd", |set| set["spec"]["replicas"] = replicas.into());
        })
    };
    for user in ["ann", CONTROLLER] {
        let ruling = deleted_by(&to(1), LEAST, "etcd-1", user, |_| {}).await;
        assert_outcome(&ruling, DenyReason::ScaledAway { voters: 2 });
        assert_text(
            &ruling,
            "deny",
            "remove the member first (with TLS, add --cacert, --cert, --key), then retry: kubectl -n db exec etcd-0 -- etcdctl member remove b",
        );
        assert_outcome(
            &deleted_by(&to(2), LEAST, "etcd-1", user, |_| {}).await,
            Warning::Outage { voters: 2 },
        );
        // The other member comes back.
        assert_outcome(
            &deleted_by(&to(1), LEAST, "etcd-0", user, |_| {}).await,
            Warning::Outage { voters: 2 },
        );
    }
    // A member that was removed from the list stops, and its pod is allowed.
    let ended = to(1).with(|s| s.etcd.members.retain(|name, _| name != "etcd-1"));
    ended.set_container("etcd-1", "waiting");
    assert_outcome(&deleted_by(&ended, LEAST, "etcd-1", CONTROLLER, |_| {}).await, Expected::Allow);
    // The operator removes it from the list.
    let removed = with(LEAST, "memberOnPodDelete: remove");
    assert_outcome(&deleted_by(&to(1), &removed, "etcd-1", CONTROLLER, |_| {}).await, Expected::Allow);
    // A dead member can be deleted.
    let dead = to(1).leaderless().with(|s| {
        s.etcd_member("etcd-1").reply = Reply::NoResponse(cause::TIMEOUT);
    });
    assert_outcome(&deleted_by(&dead, LEAST, "etcd-1", CONTROLLER, |_| {}).await, Warning::QuorumLost);
    // A single member is not scaled away either.
    let last = Fake::of(3).with(|s| {
        each_its_own(s);
        s.etcd.members.retain(|name, _| name != "etcd-2");
        s.etcd_member("etcd-1").is_learner = true;
        s.remove(PODS, "etcd-2");
        s.remove(STATEFUL_SETS, "a");
    });
    let one = with(TOGETHER, "expectedMembers: 1");
    assert_outcome(
        &deleted_by(&last, &one, "etcd-0", CONTROLLER, |_| {}).await,
        DenyReason::UndeclaredSize { voters: 1 },
    );
}

#[tokio::test(start_paused = true)]
async fn a_failed_scale_up_can_be_scaled_back() {
    let up = || Fake::of(3).with(|s| s.etcd.members.retain(|name, _| name != "etcd-2"));
    let ruling = deleted(&up(), LEAST, "etcd-1").await;
    assert_outcome(&ruling, DenyReason::TooFewVoters { voters: 2, expected: 3 });
    assert_text(
        &ruling,
        "deny",
        "undo the scale-up, then retry: kubectl -n db scale statefulset etcd --replicas=2",
    );
    // Not if that would delete a voter.
    let other = Fake::of(3).with(|s| s.etcd.members.retain(|name, _| name != "etcd-1"));
    let text = text_of(&deleted(&other, LEAST, "etcd-2").await);
    assert!(
        text.contains("only 2 of 3 expected members vote") && !text.contains("undo the scale-up"),
        "{text}"
    );
}
