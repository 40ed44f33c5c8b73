//! What is noted of who leaves: of everybody who is let go, for as long as an allow may rest on it, in one place.

use std::time::Duration;

use futures_util::future::join;
use serde_json::{Value, json};

use super::super::fixture::{LEAST, NOW, delete, evict};
use super::fake::{Fake, Reply, Whom, alarm, deleted, deleted_by, evicted, ruled, told, word};
use super::{CONTROLLER, says};
use cluster::cause;
use cluster::etcd::AlarmKind;
use cluster::writer::TransferResult;

#[tokio::test(start_paused = true)]
async fn who_was_let_go_while_it_was_ill_counts_as_leaving_when_it_is_well_again() {
    for ill in [Reply::ReadHangs, Reply::Silent(cause::TIMEOUT), Reply::Silent(cause::NOT_LISTENING)] {
        let fake = Fake::of(3);
        fake.set("etcd-1", ill);
        says(&deleted(&fake, LEAST, "etcd-1").await, "allow", "");
        fake.set("etcd-1", Reply::Whole);
        says(&deleted(&fake, LEAST, "etcd-2").await, "deny", "leaving: its pod was asked for or let go");
    }
    // The alarm is taken back.
    let fake = Fake::of(3).with(|s| s.alarms = vec![alarm(11, AlarmKind::Corrupt)]);
    says(&deleted(&fake, LEAST, "etcd-1").await, "allow", "its data is corrupt");
    fake.state().alarms.clear();
    says(&deleted(&fake, LEAST, "etcd-2").await, "deny", "leaving: its pod was asked for or let go");
    // Of five, the leader and one that saw it go a moment too late.
    let fake = Fake::of(5);
    says(&deleted(&fake, LEAST, "etcd-0").await, "allow", "leadership moved to etcd-1");
    fake.set("etcd-2", Reply::ReadHangs);
    says(&deleted(&fake, LEAST, "etcd-2").await, "allow", "");
    fake.set("etcd-2", Reply::Whole);
    says(&deleted(&fake, LEAST, "etcd-3").await, "deny", "only 2 other members are healthy");
}

#[tokio::test(start_paused = true)]
async fn what_an_allow_of_another_review_rests_on_is_not_taken_back() {
    let fake = Fake::of(3);
    let (one, other) = (fake.door(LEAST), fake.door(LEAST));
    let body = delete("etcd-1", |_| {});
    // One looks again, and waits for a member; meanwhile another one finds the pod noted and all well.
    let meanwhile = async {
        fake.noted().await;
        fake.set("etcd-2", Reply::Hangs);
        tokio::time::sleep(Duration::from_millis(300)).await;
        fake.set("etcd-2", Reply::Whole);
        ruled(&other, &body).await
    };
    let (first, second) = join(ruled(&one, &body), meanwhile).await;
    says(&first, "deny", "only 1 other member is healthy");
    says(&second, "allow", "");
    says(&deleted(&fake, LEAST, "etcd-2").await, "deny", "asked for or let go a moment ago");
}

#[tokio::test(start_paused = true)]
async fn what_passes_although_nobody_can_say_is_noted_all_the_same() {
    let yaml = format!("whenUnknown: {{controllers: allow}}\n{LEAST}");
    // Offline at the second look, and at the first.
    for is_blind_at_once in [false, true] {
        let fake = Fake::of(3);
        let door = fake.door(&yaml);
        let body = delete("etcd-1", |r| r["userInfo"]["username"] = CONTROLLER.into());
        let blind = async {
            if !is_blind_at_once {
                fake.noted().await;
            }
            fake.set("etcd-2", Reply::Silent(cause::TLS));
        };
        let (ruling, ()) = join(ruled(&door, &body), blind).await;
        says(&ruling, "unknown", "");
        assert_eq!(fake.state().deeds, ["noted etcd-1"]);
        fake.set("etcd-2", Reply::Whole);
        says(&deleted(&fake, &yaml, "etcd-2").await, "deny", "asked for or let go a moment ago");
    }
    // Whom nobody lets pass is not on the way out. Where it cannot be noted, it passes as it would have.
    let fake = Fake::of(3);
    fake.set("etcd-2", Reply::Silent(cause::TLS));
    says(&deleted(&fake, &yaml, "etcd-1").await, "unknown", "");
    assert!(fake.state().deeds.is_empty());
    let fake = fake.refusing("write");
    says(&deleted_by(&fake, &yaml, "etcd-1", CONTROLLER, |_| {}).await, "unknown", "etcd-2: tls");
}

#[tokio::test(start_paused = true)]
async fn in_audit_mode_nothing_is_noted_and_nobody_hands_over() {
    let fake = Fake::of(3);
    let yaml = format!("mode: audit\n{LEAST}");
    says(&deleted(&fake, &yaml, "etcd-0").await, "allow", "it leads, and would hand over to etcd-1 first");
    says(&deleted(&fake, &yaml, "etcd-1").await, "allow", "");
    assert!(fake.state().deeds.is_empty(), "{:?}", fake.state().deeds);
    // What could not be noted is told as it would be.
    let ruling = deleted(&fake.refusing("leases"), &yaml, "etcd-1").await;
    says(&ruling, "unknown", "it cannot be noted that it leaves");
}

/// A member whose container is being started again.
fn restarting(name: &str) -> Fake {
    let fake = Fake::of(3);
    fake.set(name, Reply::Silent(cause::NOT_LISTENING));
    fake.container(name, "waiting");
    fake
}

#[tokio::test(start_paused = true)]
async fn who_was_let_go_while_its_container_was_down_counts_as_leaving_when_it_runs_again() {
    for user in ["ann", CONTROLLER, "system:node:n1"] {
        let fake = restarting("etcd-1");
        let ruling = deleted_by(&fake, LEAST, "etcd-1", user, |_| {}).await;
        says(&ruling, "allow", "");
        assert!(ruling.warnings.is_empty(), "{:?}", ruling.warnings);
        assert_eq!(fake.untouched(), (0, 1));
        fake.set("etcd-1", Reply::Whole);
        fake.container("etcd-1", "running");
        says(&deleted(&fake, LEAST, "etcd-2").await, "deny", "leaving: its pod was asked for or let go");
    }
    // It is noted beside whatever else is, whoever writes at the same time.
    let fake = restarting("etcd-1");
    let stored = fake.pod("etcd-1");
    let (one, other) = (fake.door(LEAST), fake.door(LEAST));
    let (a, b) = (delete("etcd-1", |r| r["oldObject"] = stored), delete("etcd-2", |_| {}));
    let (a, b) = join(ruled(&one, &a), ruled(&other, &b)).await;
    says(&a, "allow", "");
    says(&b, "deny", "only 1 other member is healthy");
    assert!(fake.book().iter().any(|held| held.uid == "uid-etcd-1"));
}

#[tokio::test(start_paused = true)]
async fn who_passes_by_broken_glass_counts_as_leaving_too() {
    let glass = |name: &str| {
        json!({
            "durward.dev/delete-anyway": name,
            "durward.dev/delete-reason": "x",
            "durward.dev/delete-until": "2026-11-21T11:00:00Z"
        })
    };
    let on_pod = Fake::of(3).with(|s| s.pods[1]["metadata"]["annotations"] = glass("etcd-1"));
    says(&evicted(&on_pod, LEAST, "etcd-1").await, "allow", "passes unchecked");
    says(&deleted(&on_pod, LEAST, "etcd-2").await, "deny", "leaving: its pod was asked for or let go");
    // The same on the namespace, which is whole again after that.
    let on_namespace = Fake::of(3);
    let set = |annotations: Value| {
        let mut state = on_namespace.state();
        state.others.get_mut(&("namespaces", "db".to_owned())).unwrap()["metadata"]["annotations"] =
            annotations;
    };
    set(glass("db"));
    says(&evicted(&on_namespace, LEAST, "etcd-1").await, "allow", "passes unchecked");
    set(json!({}));
    says(&deleted(&on_namespace, LEAST, "etcd-2").await, "deny", "leaving: its pod was asked for or let go");
}

#[tokio::test(start_paused = true)]
async fn repair_waits_for_no_note_and_what_only_asks_leaves_none() {
    // Nothing can be written, or read: it goes, with a word.
    for what in ["write", "leases"] {
        let fake = restarting("etcd-1").refusing(what);
        for user in ["ann", CONTROLLER, "system:node:n1"] {
            let ruling = deleted_by(&fake, LEAST, "etcd-1", user, |_| {}).await;
            says(&ruling, "allow", "; let no other go until this one is back");
        }
        assert!(fake.state().deeds.is_empty());
    }
    // Nobody answers: it goes within the time that a note may take.
    let fake = restarting("etcd-1").with(|s| s.is_stuck = true);
    let began = tokio::time::Instant::now();
    says(&deleted(&fake, LEAST, "etcd-1").await, "allow", "the API server did not answer in 1.0 s");
    assert!(began.elapsed() < Duration::from_millis(1100), "{:?}", began.elapsed());
    // A dry run, a review without hands, and audit mode.
    let fake = restarting("etcd-1");
    says(&deleted_by(&fake, LEAST, "etcd-1", "ann", |r| r["dryRun"] = true.into()).await, "allow", "");
    let stored = fake.pod("etcd-1");
    let body = delete("etcd-1", |r| r["oldObject"] = stored);
    says(&ruled(&fake.handless(LEAST), &body).await, "allow", "");
    says(&deleted(&fake, &format!("mode: audit\n{LEAST}"), "etcd-1").await, "allow", "");
    assert!(fake.state().deeds.is_empty(), "{:?}", fake.state().deeds);
}

#[tokio::test(start_paused = true)]
async fn what_is_torn_down_is_noted_by_nobody_even_where_its_etcd_is_down() {
    type Change = fn(&mut super::fake::State);
    let changes: [Change; 5] = [
        |s| {
            let key = ("namespaces", "db".to_owned());
            s.others.get_mut(&key).unwrap()["metadata"]["deletionTimestamp"] = "x".into();
        },
        |s| drop(s.others.remove(&("statefulsets", "etcd".to_owned()))),
        |s| {
            let key = ("statefulsets", "etcd".to_owned());
            s.others.get_mut(&key).unwrap()["metadata"]["deletionTimestamp"] = "x".into();
        },
        |s| {
            let key = ("statefulsets", "etcd".to_owned());
            s.others.get_mut(&key).unwrap()["spec"]["replicas"] = 0.into();
        },
        |s| drop(s.others.remove(&("nodes", "n1".to_owned()))),
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let fake = restarting("etcd-1").with(change);
        says(&deleted_by(&fake, LEAST, "etcd-1", CONTROLLER, |_| {}).await, "allow", "");
        assert_eq!(fake.untouched(), (0, 0), "{at}");
    }
    // What has ended for good does not come back.
    let ended = Fake::of(3).with(|s| s.pods[1]["status"]["phase"] = "Failed".into());
    says(&deleted(&ended, LEAST, "etcd-1").await, "allow", "");
    assert_eq!(ended.untouched(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn what_passes_where_not_even_the_pods_are_seen_is_noted() {
    let yaml = format!("whenUnknown: {{controllers: allow}}\n{LEAST}");
    let by_controller = |fake: &Fake| {
        let (fake, yaml) = (fake.clone(), yaml.clone());
        async move {
            let body = delete("etcd-1", |r| r["userInfo"]["username"] = CONTROLLER.into());
            ruled(&fake.door(&yaml), &body).await
        }
    };
    // The pods may not be listed.
    let fake = Fake::of(3).refusing("pods");
    says(&by_controller(&fake).await, "unknown", "pods may not be read");
    fake.state().refuses.clear();
    says(&deleted(&fake, &yaml, "etcd-2").await, "deny", "leaving: its pod was asked for or let go");
    // This one is not among them.
    let fake = Fake::of(3).with(|s| drop(s.pods.remove(1)));
    says(&by_controller(&fake).await, "unknown", "do not hold this one");
    assert_eq!(fake.state().deeds, ["noted etcd-1"]);
    // Nobody knows whether the leader has handed over.
    let why = admission::Cause::new(cause::TIMEOUT, "leader transfer took too long");
    let fake = Fake::of(3).with(|s| (s.leader, s.moves) = (Some(11), Some(TransferResult::Unknown(why))));
    says(&by_controller(&fake).await, "unknown", "took too long");
    assert!(fake.book().iter().any(|held| held.uid == "uid-etcd-1"));
    // Everything takes too long: others are always faster to write.
    let fake = Fake::of(3).with(|s| s.is_raced = true);
    says(&by_controller(&fake).await, "unknown", "let no other go until this one is back");
    // People may not have what nobody can say: nothing of it is noted.
    let fake = Fake::of(3).refusing("pods");
    says(&deleted(&fake, &yaml, "etcd-1").await, "unknown", "pods may not be read");
    assert!(fake.state().deeds.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_learner_that_was_let_go_and_is_promoted_counts_as_leaving() {
    let learner = || Fake::of(4).with(|s| s.members.get_mut("etcd-3").unwrap().is_learner = true);
    let fake = learner();
    says(&deleted(&fake, LEAST, "etcd-3").await, "allow", "it is a learner");
    assert_eq!(fake.state().deeds, ["noted etcd-3"]);
    fake.state().members.get_mut("etcd-3").unwrap().is_learner = false;
    let ruling = deleted(&fake, LEAST, "etcd-2").await;
    says(&ruling, "deny", "only 2 other members are healthy, and 3 of the 4");
    says(&ruling, "deny", "leaving: its pod was asked for or let go");
    // Where that cannot be noted it goes with a word.
    says(&deleted(&learner().refusing("write"), LEAST, "etcd-3").await, "allow", "let no other go until");
    // One that is in no list may be taken into it.
    let fake = Fake::of(4).with(|s| s.members.get_mut("etcd-3").unwrap().cluster = 7);
    says(&deleted(&fake, LEAST, "etcd-3").await, "allow", "does not miss it");
    assert_eq!(fake.state().deeds, ["noted etcd-3"]);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_not_well_stays_where_nothing_can_be_noted() {
    let yaml = "ensembles: [{namespace: db, selector: app=etcd, leader: allow}]";
    let fake = Fake::of(3).refusing("write");
    fake.set("etcd-0", Reply::ReadHangs);
    says(&deleted(&fake, yaml, "etcd-0").await, "unknown", "it cannot be noted that it leaves");
}

/// A Lease in which it is noted that these pods leave, so many seconds from now.
fn lease(entries: &[(&str, i64)]) -> Value {
    let entry = |(pod, ahead): &(&str, i64)| {
        let since = k8s_openapi::jiff::Timestamp::from_second(NOW + ahead).unwrap().to_string();
        json!({"uid": format!("uid-{pod}"), "pod": pod, "since": since})
    };
    let held: Value = entries.iter().map(entry).collect();
    json!({"metadata": {"annotations": {"durward.dev/reservations": held.to_string()}}})
}

#[tokio::test(start_paused = true)]
async fn clocks_that_differ_are_told_and_hold_nobody_up_without_a_word() {
    let of = |many, pod: &str, ahead| Fake::of(many).with(|s| s.lease = Some((1, lease(&[(pod, ahead)]))));
    let fake = of(3, "etcd-2", 3600);
    let why =
        "the clocks of Durward's replicas differ: etcd-2 is noted to leave 3600 s ahead of this one's clock";
    for name in ["etcd-0", "etcd-1", "etcd-2"] {
        let ruling = deleted(&fake, LEAST, name).await;
        says(&ruling, "unknown", why);
        says(&ruling, "unknown", "delete the Lease durward-etcd.db");
    }
    assert!(fake.state().deeds.is_empty());
    // One on which nobody counts goes. And what has gone, or goes, does not depend on any clock.
    let down = of(5, "etcd-2", 3600).down(&["etcd-1"]);
    says(&deleted(&down, LEAST, "etcd-1").await, "allow", "the clocks of Durward's replicas differ");
    says(&deleted(&of(3, "etcd-9", 3600), LEAST, "etcd-1").await, "allow", "");
    let going = of(5, "etcd-2", 3600);
    going.mark("etcd-2");
    says(&deleted(&going, LEAST, "etcd-1").await, "allow", "");
    // As far ahead as a review may take is no difference; nor does it count for ever.
    for ahead in [30, 34] {
        says(&deleted(&of(3, "etcd-2", ahead), LEAST, "etcd-1").await, "deny", "let go a moment ago");
    }
    says(&deleted(&of(3, "etcd-2", 36), LEAST, "etcd-1").await, "unknown", "36 s ahead");
    let fake = of(3, "etcd-2", 30);
    fake.state().later = Duration::from_secs(61);
    says(&deleted(&fake, LEAST, "etcd-1").await, "allow", "");
}

#[tokio::test(start_paused = true)]
async fn a_lease_from_which_somebody_took_the_set_is_not_an_empty_one() {
    let fake = Fake::of(3);
    says(&deleted(&fake, LEAST, "etcd-2").await, "allow", "");
    let fake = fake.with(|s| {
        let (_, lease) = s.lease.as_mut().unwrap();
        drop(lease["metadata"].as_object_mut().unwrap().remove("annotations"));
    });
    let ruling = deleted(&fake, LEAST, "etcd-1").await;
    let why = "somebody took the annotation durward.dev/reservations off the Lease durward-etcd.db in namespace durward-system";
    says(&ruling, "unknown", why);
    // Nor is one that cannot be read, and it is named too.
    let broken = json!({"metadata": {"annotations": {"durward.dev/reservations": "soon"}}});
    let ruling = deleted(&Fake::of(3).with(|s| s.lease = Some((1, broken))), LEAST, "etcd-1").await;
    says(&ruling, "unknown", "of the Lease durward-etcd.db in namespace durward-system cannot be read");
    says(&ruling, "unknown", "delete it when no pod leaves");
}

#[tokio::test(start_paused = true)]
async fn however_replicas_group_the_pods_they_note_in_one_place() {
    let together = "ensembles: [{namespace: db, selector: app=etcd, groupBy: selector}]";
    let fake = Fake::of(3);
    let (one, other) = (fake.door(LEAST), fake.door(together));
    let (a, b) = (delete("etcd-1", |_| {}), delete("etcd-2", |_| {}));
    let (a, b) = join(ruled(&one, &a), ruled(&other, &b)).await;
    assert_eq!([word(&a), word(&b)].iter().filter(|word| **word == "allow").count(), 1);
    // A StatefulSet that is deleted with --cascade=orphan leaves pods that have none.
    let fake = Fake::of(3);
    says(&deleted(&fake, LEAST, "etcd-2").await, "allow", "");
    for pod in &mut fake.state().pods {
        drop(pod["metadata"].as_object_mut().unwrap().remove("ownerReferences"));
    }
    says(&deleted(&fake, LEAST, "etcd-1").await, "deny", "let go a moment ago");
}

/// Two ensembles of three in one namespace, `etcd` with `etcd-0` to `etcd-2`, `other` with `etcd-3` to `etcd-5`.
fn two_ensembles() -> Fake {
    Fake::of(6).with(|s| {
        for at in 3..6 {
            let metadata = &mut s.pods[at]["metadata"];
            metadata["ownerReferences"][0]["name"] = "other".into();
            metadata["ownerReferences"][0]["uid"] = "uid-other".into();
            let one = s.members.get_mut(&format!("etcd-{at}")).unwrap();
            (one.cluster, one.leader) = (7, Whom::One(13));
        }
        let set = json!({"metadata": {"name": "other", "namespace": "db", "uid": "uid-other"}, "spec": {"replicas": 3}});
        s.others.insert(("statefulsets", "other".to_owned()), set);
    })
}

#[tokio::test(start_paused = true)]
async fn who_is_faster_about_another_ensemble_is_in_nobodys_way() {
    let fake = two_ensembles();
    let (one, other) = (fake.door(LEAST), fake.door(LEAST));
    let of = |name| {
        let stored = fake.pod(name);
        delete(name, |r| r["oldObject"] = stored)
    };
    let (a, b) = (of("etcd-1"), of("etcd-4"));
    let before = fake.state().asked;
    let (a, b) = join(ruled(&one, &a), ruled(&other, &b)).await;
    says(&a, "allow", "");
    says(&b, "allow", "");
    assert_eq!(fake.state().deeds, ["noted etcd-1", "noted etcd-1 etcd-4"]);
    let asked = fake.state().asked - before;
    assert_eq!(
        asked,
        2 * 2 * 3 * 5,
        "each looks twice at its three members, by five questions, and not again"
    );
    for name in ["etcd-2", "etcd-5"] {
        says(&deleted(&fake, LEAST, name).await, "deny", "let go a moment ago");
    }
}

#[tokio::test(start_paused = true)]
async fn an_eviction_of_the_pod_that_was_there_before_does_nothing_to_the_one_that_is() {
    let fake = Fake::of(3);
    let of = |uid: &str| {
        let options = json!({"preconditions": {"uid": uid}});
        evict("etcd-0", |r| r["object"]["deleteOptions"] = options)
    };
    let ruling = ruled(&fake.door(LEAST), &of("uid-of-the-one-before")).await;
    says(&ruling, "allow", "");
    assert_eq!(fake.untouched(), (0, 0));
    let why = ruling.audit.iter().find(|(key, _)| *key == "allowed").map(|(_, why)| why.to_owned());
    assert!(why.is_some_and(|why| why.contains("preconditions.uid")), "{ruling:?}");
    says(&ruled(&fake.door(LEAST), &of("uid-etcd-0")).await, "allow", "leadership moved");
    says(&evicted(&fake, LEAST, "etcd-1").await, "deny", "");
    assert!(told(&ruling).len() < 100);
}
