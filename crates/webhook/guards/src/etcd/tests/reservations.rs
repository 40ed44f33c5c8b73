//! Reservations: every allowed deletion has one, for as long as a review can rely on it.

use std::time::Duration;

use admission::{Code, Verdict};
use futures_util::future::join;
use serde_json::{Value, json};

use super::super::decide::{Allowed, DenyReason, UnknownCause, Warning};
use super::super::fixture::{LEAST, NOW, delete, evict};
use super::CONTROLLER;
use super::expect::{Expected, assert_outcome, assert_text, quorum, reserved};
use super::fake::{
    Fake, FakeContent, LEASE, LEASES, NAMESPACES, NODES, PODS, Reply, ReportedLeader, STATEFUL_SETS, alarm,
    deleted, deleted_by, evicted, review,
};
use cluster::cause;
use cluster::etcd::AlarmKind;
use cluster::testing::RequestFault;
use cluster::writer::TransferResult;

#[tokio::test(start_paused = true)]
async fn a_member_that_was_allowed_while_unhealthy_counts_as_leaving() {
    for ill in [Reply::ReadHangs, Reply::NoResponse(cause::TIMEOUT), Reply::NoResponse(cause::NOT_LISTENING)]
    {
        let fake = Fake::of(3);
        fake.set("etcd-1", ill);
        assert_outcome(&deleted(&fake, LEAST, "etcd-1").await, Expected::Allow);
        fake.set("etcd-1", Reply::Full);
        assert_outcome(&deleted(&fake, LEAST, "etcd-2").await, reserved("etcd-1"));
    }
    // The alarm is disarmed.
    let fake = Fake::of(3).with(|s| s.etcd.alarms = vec![alarm(11, AlarmKind::Corrupt)]);
    assert_outcome(&deleted(&fake, LEAST, "etcd-1").await, Warning::CorruptData);
    fake.content().etcd.alarms.clear();
    assert_outcome(&deleted(&fake, LEAST, "etcd-2").await, reserved("etcd-1"));
}

#[tokio::test(start_paused = true)]
async fn reservations_are_not_withdrawn() {
    let fake = Fake::of(3);
    let (one, other) = (fake.guard(LEAST), fake.guard(LEAST));
    let body = delete("etcd-1", |_| {});
    // One review waits for a member, while another one finds the reservation and healthy members.
    let meanwhile = async {
        fake.reserved().await;
        fake.set("etcd-2", Reply::Hangs);
        tokio::time::sleep(Duration::from_millis(300)).await;
        fake.set("etcd-2", Reply::Full);
        review(&other, &body).await
    };
    let (first, second) = join(review(&one, &body), meanwhile).await;
    assert_outcome(&first, quorum(1, 3));
    assert_outcome(&second, Expected::Allow);
    assert_outcome(&deleted(&fake, LEAST, "etcd-2").await, reserved("etcd-1"));
}

#[tokio::test(start_paused = true)]
async fn an_allowed_unknown_is_reserved() {
    let yaml = format!("onUnknown: {{controllers: allow}}\n{LEAST}");
    // A member fails in the second read, and in the first.
    for is_blind_at_once in [false, true] {
        let fake = Fake::of(3);
        let guard = fake.guard(&yaml);
        let body = delete("etcd-1", |r| r["userInfo"]["username"] = CONTROLLER.into());
        let blind = async {
            if !is_blind_at_once {
                fake.reserved().await;
            }
            fake.set("etcd-2", Reply::NoResponse(cause::TLS));
        };
        let (ruling, ()) = join(review(&guard, &body), blind).await;
        assert_outcome(&ruling, Expected::Unknown);
        assert_eq!(fake.content().actions, ["reserved etcd-1"]);
        fake.set("etcd-2", Reply::Full);
        assert_outcome(&deleted(&fake, &yaml, "etcd-2").await, reserved("etcd-1"));
    }
    // A denied pod is not reserved. A failed reservation does not change the verdict.
    let fake = Fake::of(3);
    fake.set("etcd-2", Reply::NoResponse(cause::TLS));
    assert_outcome(&deleted(&fake, &yaml, "etcd-1").await, Expected::Unknown);
    assert!(fake.content().actions.is_empty());
    let fake = fake.with_error("write");
    assert_outcome(
        &deleted_by(&fake, &yaml, "etcd-1", CONTROLLER, |_| {}).await,
        Expected::NoResponse("etcd-2", cause::TLS),
    );
}

#[tokio::test(start_paused = true)]
async fn audit_mode_neither_reserves_nor_transfers() {
    let fake = Fake::of(3);
    let yaml = format!("mode: audit\n{LEAST}");
    assert_outcome(&deleted(&fake, &yaml, "etcd-0").await, Warning::WouldTransfer { to: "etcd-1".into() });
    assert_outcome(&deleted(&fake, &yaml, "etcd-1").await, Expected::Allow);
    assert!(fake.content().actions.is_empty(), "{:?}", fake.content().actions);
    // A failed read of the Lease is reported.
    let ruling = deleted(&fake.with_error("leases"), &yaml, "etcd-1").await;
    assert_outcome(&ruling, Expected::NotReserved);
}

/// Returns three members. The container of this one is being restarted.
fn restarting(name: &str) -> Fake {
    let fake = Fake::of(3);
    fake.set(name, Reply::NoResponse(cause::NOT_LISTENING));
    fake.set_container(name, "waiting");
    fake
}

#[tokio::test(start_paused = true)]
async fn a_member_that_was_allowed_while_down_counts_as_leaving() {
    for user in ["ann", CONTROLLER, "system:node:n1"] {
        let fake = restarting("etcd-1");
        let ruling = deleted_by(&fake, LEAST, "etcd-1", user, |_| {}).await;
        assert_outcome(&ruling, Expected::Allow);
        assert!(ruling.warnings.is_empty(), "{:?}", ruling.warnings);
        assert_eq!(fake.activity().1, 1);
        fake.set("etcd-1", Reply::Full);
        fake.set_container("etcd-1", "running");
        assert_outcome(&deleted(&fake, LEAST, "etcd-2").await, reserved("etcd-1"));
    }
    // A concurrent write keeps its reservation.
    let fake = restarting("etcd-1");
    let stored = fake.pod("etcd-1");
    let (one, other) = (fake.guard(LEAST), fake.guard(LEAST));
    let (a, b) = (delete("etcd-1", |r| r["oldObject"] = stored), delete("etcd-2", |_| {}));
    let (a, b) = join(review(&one, &a), review(&other, &b)).await;
    assert_outcome(&a, Expected::Allow);
    assert_outcome(&b, quorum(1, 3));
    assert!(fake.reservation().is_some_and(|held| held.uid == "uid-etcd-1"));
}

#[tokio::test(start_paused = true)]
async fn an_overridden_member_is_reserved_even_over_another_one() {
    let override_annotations = |name: &str| {
        json!({
            "durward.dev/delete-anyway": name,
            "durward.dev/delete-reason": "x",
            "durward.dev/delete-until": "2026-11-21T11:00:00Z"
        })
    };
    let on_pod = Fake::of(3).with(|s| {
        s.edit(PODS, "etcd-1", |pod| pod["metadata"]["annotations"] = override_annotations("etcd-1"));
    });
    assert_outcome(&evicted(&on_pod, LEAST, "etcd-2").await, Expected::Allow);
    assert_outcome(&evicted(&on_pod, LEAST, "etcd-1").await, Expected::Overridden);
    assert_outcome(&deleted(&on_pod, LEAST, "etcd-2").await, reserved("etcd-1"));
    // An override on the namespace, which is removed afterwards.
    let on_namespace = Fake::of(3);
    let set = |annotations: Value| {
        let mut state = on_namespace.content();
        state.edit(NAMESPACES, "db", |it| it["metadata"]["annotations"] = annotations);
    };
    set(override_annotations("db"));
    assert_outcome(&evicted(&on_namespace, LEAST, "etcd-1").await, Expected::Overridden);
    set(json!({}));
    assert_outcome(&deleted(&on_namespace, LEAST, "etcd-2").await, reserved("etcd-1"));
}

#[tokio::test(start_paused = true)]
async fn repair_does_not_wait_for_a_reservation_and_dry_runs_make_none() {
    // Without access to the Lease it is allowed with a warning.
    for what in ["write", "leases"] {
        let fake = restarting("etcd-1").with_error(what);
        for user in ["ann", CONTROLLER, "system:node:n1"] {
            let ruling = deleted_by(&fake, LEAST, "etcd-1", user, |_| {}).await;
            assert_outcome(&ruling, Expected::Unreserved);
        }
        assert!(fake.content().actions.is_empty());
    }
    // If the API server hangs, it is allowed after the timeouts of a read and of the reservation.
    let fake = restarting("etcd-1").with(|s| s.fault("(local): leases", RequestFault::Hangs));
    let began = tokio::time::Instant::now();
    assert_outcome(&deleted(&fake, LEAST, "etcd-1").await, Expected::Unreserved);
    assert!(began.elapsed() < Duration::from_millis(3100), "{:?}", began.elapsed());
    // A dry run, a review without a writer, and audit mode.
    let fake = restarting("etcd-1");
    assert_outcome(
        &deleted_by(&fake, LEAST, "etcd-1", "ann", |r| r["dryRun"] = true.into()).await,
        Expected::Allow,
    );
    let stored = fake.pod("etcd-1");
    let body = delete("etcd-1", |r| r["oldObject"] = stored);
    assert_outcome(&review(&fake.without_writer(LEAST), &body).await, Expected::Allow);
    assert_outcome(&deleted(&fake, &format!("mode: audit\n{LEAST}"), "etcd-1").await, Expected::Allow);
    assert!(fake.content().actions.is_empty(), "{:?}", fake.content().actions);
}

#[tokio::test(start_paused = true)]
async fn a_teardown_is_not_reserved() {
    type Change = fn(&mut FakeContent);
    let changes: [Change; 5] = [
        |s| s.edit(NAMESPACES, "db", |it| it["metadata"]["deletionTimestamp"] = "x".into()),
        |s| s.remove(STATEFUL_SETS, "etcd"),
        |s| s.edit(STATEFUL_SETS, "etcd", |it| it["metadata"]["deletionTimestamp"] = "x".into()),
        |s| s.edit(STATEFUL_SETS, "etcd", |it| it["spec"]["replicas"] = 0.into()),
        |s| s.remove(NODES, "n1"),
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let fake = restarting("etcd-1").with(change);
        assert_outcome(&deleted_by(&fake, LEAST, "etcd-1", CONTROLLER, |_| {}).await, Expected::Allow);
        assert_eq!(fake.activity(), (0, 0), "{at}");
    }
    // A pod without a node is not reserved, and an ended one neither.
    let pending = Fake::of(3).down(&["etcd-2"]).with(|s| {
        s.edit(PODS, "etcd-1", |pod| {
            drop(pod["spec"].as_object_mut().unwrap().remove("nodeName"));
            pod["status"] = json!({"phase": "Pending"});
        });
    });
    assert_outcome(&deleted(&pending, LEAST, "etcd-1").await, Allowed::NeverScheduled);
    assert_eq!(pending.activity(), (0, 0));
    let ended = Fake::of(3).with(|s| s.edit(PODS, "etcd-1", |pod| pod["status"]["phase"] = "Failed".into()));
    assert_outcome(&deleted(&ended, LEAST, "etcd-1").await, Expected::Allow);
    assert_eq!(ended.activity(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_allowed_unknown_is_reserved_if_the_pod_exists() {
    let yaml = format!("onUnknown: {{controllers: allow}}\n{LEAST}");
    let by_controller = |fake: &Fake| {
        let (fake, yaml) = (fake.clone(), yaml.clone());
        async move {
            let body = delete("etcd-1", |r| r["userInfo"]["username"] = CONTROLLER.into());
            review(&fake.guard(&yaml), &body).await
        }
    };
    // The pods cannot be listed.
    let fake = Fake::of(3).with_error("pods");
    assert_outcome(&by_controller(&fake).await, Expected::Unread(cause::FORBIDDEN));
    assert!(fake.content().actions.is_empty(), "nothing proves that the pod of the review exists");
    // The pod is not in the list.
    let fake = Fake::of(3).with(|s| s.remove(PODS, "etcd-1"));
    assert_outcome(&by_controller(&fake).await, UnknownCause::OtherApiServer);
    assert!(fake.content().actions.is_empty());
    // The result of the transfer is unknown.
    let why = admission::Cause::new(cause::TIMEOUT, "leader transfer took too long");
    let fake = Fake::of(3)
        .with(|s| (s.etcd.leader, s.etcd.transfer_result) = (Some(11), Some(TransferResult::Unknown(why))));
    assert_outcome(&by_controller(&fake).await, Expected::Unread(cause::TIMEOUT));
    assert!(fake.reservation().is_some_and(|held| held.uid == "uid-etcd-1"));
    // Every write conflicts, because another replica has written the Lease.
    let fake = Fake::of(3).with(|s| {
        s.rules.push(Box::new(|s, request| {
            request.text.starts_with("write: lease").then(|| {
                s.set_lease(LEASE, json!({"metadata": {}, "spec": {}}));
                RequestFault::Takes(Duration::from_millis(50))
            })
        }));
    });
    assert_outcome(&by_controller(&fake).await, Expected::Unreserved);
    // An Unknown that is denied for users is not reserved.
    let fake = Fake::of(3).with_error("pods");
    assert_outcome(&deleted(&fake, &yaml, "etcd-1").await, Expected::Unread(cause::FORBIDDEN));
    assert!(fake.content().actions.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_allowed_learner_is_reserved_also_after_its_promotion() {
    let learner = || Fake::of(4).with(|s| s.etcd_member("etcd-3").is_learner = true);
    let fake = learner();
    assert_outcome(&deleted(&fake, LEAST, "etcd-3").await, Warning::Learner);
    assert_eq!(fake.content().actions, ["reserved etcd-3"]);
    fake.content().etcd_member("etcd-3").is_learner = false;
    assert_outcome(&deleted(&fake, LEAST, "etcd-2").await, reserved("etcd-3"));
    // Without a reservation it is allowed with a warning.
    assert_outcome(&deleted(&learner().with_error("write"), LEAST, "etcd-3").await, Expected::Unreserved);
}

#[tokio::test(start_paused = true)]
async fn an_unhealthy_leader_stays_without_reservations() {
    let yaml = "clusters: [{namespace: db, selector: app=etcd, onLeaderDelete: allow}]";
    let fake = Fake::of(3).with_error("write");
    fake.set("etcd-0", Reply::ReadHangs);
    assert_outcome(&deleted(&fake, yaml, "etcd-0").await, Expected::NotReserved);
}

/// Returns a Lease with a reservation of this pod, whose times are so many seconds ahead.
fn lease(pod: &str, ahead: i64) -> Value {
    let time = k8s_openapi::jiff::Timestamp::from_second(NOW + ahead).unwrap().to_string();
    let metadata = json!({"annotations": {"durward.dev/pod": format!("db/{pod}")}});
    let spec =
        json!({"holderIdentity": format!("uid-{pod}"), "acquireTime": time.clone(), "renewTime": time});
    json!({"metadata": metadata, "spec": spec})
}

#[tokio::test(start_paused = true)]
async fn clock_differences_are_reported() {
    let of = |ahead| {
        let fake = Fake::of(3);
        fake.set_lease(lease("etcd-2", ahead));
        fake
    };
    let fake = of(3600);
    let why = "clocks of Durward's replicas differ: Lease durward-etcd.db.etcd is 3600 s ahead";
    for name in ["etcd-0", "etcd-1", "etcd-2"] {
        assert_text(&deleted(&fake, LEAST, name).await, "unknown", why);
    }
    assert!(fake.content().actions.is_empty());
    // A member that does not count is allowed.
    assert_outcome(&deleted(&fake.down(&["etcd-1"]), LEAST, "etcd-1").await, Expected::Unreserved);
    // A small difference delays the end.
    let fake = of(30);
    fake.at(75);
    assert_outcome(&deleted(&fake, LEAST, "etcd-1").await, reserved("etcd-2"));
    fake.at(76);
    assert_outcome(&deleted(&fake, LEAST, "etcd-1").await, Expected::Allow);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_cannot_be_understood_is_unknown() {
    let fake = Fake::of(3);
    let mut broken = lease("etcd-2", 0);
    drop(broken["metadata"].as_object_mut().unwrap().remove("annotations"));
    fake.set_lease(broken);
    let why = "Lease durward-etcd.db.etcd has no valid annotation durward.dev/pod";
    assert_text(&deleted(&fake, LEAST, "etcd-1").await, "unknown", why);
}

#[tokio::test(start_paused = true)]
async fn the_namespace_of_the_pod_owns_the_lease() {
    let fake = Fake::of(3);
    assert_outcome(&deleted(&fake, LEAST, "etcd-1").await, Expected::Allow);
    let held = fake.reservation().unwrap();
    assert_eq!((held.namespace.as_str(), held.namespace_uid.as_deref()), ("db", Some("uid-db")));
}

/// Returns two etcd clusters in one namespace: `etcd` with `etcd-0` to `etcd-2`, `other` with `etcd-3` to `etcd-5`.
fn two_clusters() -> Fake {
    Fake::of(6).with(|s| {
        for at in 3..6 {
            s.edit(PODS, &format!("etcd-{at}"), |pod| {
                let owner = &mut pod["metadata"]["ownerReferences"][0];
                (owner["name"], owner["uid"]) = ("other".into(), "uid-other".into());
            });
            let one = s.etcd_member(&format!("etcd-{at}"));
            (one.cluster, one.leader) = (7, ReportedLeader::Member(13));
        }
        let set = json!({"metadata": {"name": "other", "namespace": "db", "uid": "uid-other"}, "spec": {"replicas": 3}});
        s.insert(STATEFUL_SETS, set);
    })
}

#[tokio::test(start_paused = true)]
async fn two_etcd_clusters_of_a_namespace_do_not_wait_for_each_other() {
    let fake = two_clusters();
    let (one, other) = (fake.guard(LEAST), fake.guard(LEAST));
    let of = |name| {
        let stored = fake.pod(name);
        delete(name, |r| r["oldObject"] = stored)
    };
    let (a, b) = (of("etcd-1"), of("etcd-4"));
    let (a, b) = join(review(&one, &a), review(&other, &b)).await;
    assert_outcome(&a, Expected::Allow);
    assert_outcome(&b, Expected::Allow);
    let leases: Vec<_> =
        fake.content().objects(LEASES).iter().map(|lease| lease["metadata"]["name"].clone()).collect();
    assert_eq!(leases, ["durward-etcd.db.etcd", "durward-etcd.db.other"]);
    for (name, holder) in [("etcd-2", "etcd-1"), ("etcd-5", "etcd-4")] {
        assert_outcome(&deleted(&fake, LEAST, name).await, reserved(holder));
    }
}

#[tokio::test(start_paused = true)]
async fn an_eviction_of_a_previous_pod_is_denied_like_that_of_a_missing_pod() {
    let fake = Fake::of(3);
    let of = |uid: &str| {
        let options = json!({"preconditions": {"uid": uid}});
        evict("etcd-0", |r| r["object"]["deleteOptions"] = options)
    };
    let ruling = review(&fake.guard(LEAST), &of("uid-of-the-one-before")).await;
    // The API server of another cluster can have a pod with that uid, so this is not an allow.
    assert_outcome(&ruling, DenyReason::NoPod);
    assert!(matches!(&ruling.verdict, Verdict::Deny(denial) if denial.code == Code::NotFound), "{ruling:?}");
    assert_eq!(fake.activity(), (0, 0));
    assert_outcome(
        &review(&fake.guard(LEAST), &of("uid-etcd-0")).await,
        Warning::Transferred { to: "etcd-1".into() },
    );
    assert_outcome(&evicted(&fake, LEAST, "etcd-1").await, Expected::Deny);
}
