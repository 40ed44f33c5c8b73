//! What is noted of who leaves: of everybody who is let go, for as long as an allow may rest on it, in one place.

use std::time::Duration;

use futures_util::future::join;
use serde_json::{Value, json};

use super::super::fixture::{LEAST, NOW, delete, evict};
use super::fake::{Fake, Reply, Whom, alarm, deleted, deleted_by, evicted, ruled, told, word};
use super::{CONTROLLER, says};
use crate::world::cause;
use crate::world::etcd::AlarmKind;

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
    // Blind at the second look, and at the first.
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
    let fake = of(3, "etcd-2", 30);
    says(&deleted(&fake, LEAST, "etcd-1").await, "deny", "let go a moment ago");
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
    says(&ruling, "unknown", "somebody took the annotation durward.dev/reservations off the Lease");
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
