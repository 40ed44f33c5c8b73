//! What is not as it should be: pods that are not what they say, members that contradict each other, API servers that refuse.

use serde_json::json;

use super::super::fixture::{LEAST, delete};
use super::fake::{Fake, One, Reply, Whom, alarm, deleted, evicted, ruled, told, word};
use super::says;
use cluster::cause;
use cluster::etcd::{AlarmKind, Member};

/// An ensemble of three, one of them down, and a pod with the right labels and owner that runs another etcd.
fn rogue(change: impl FnOnce(&mut One)) -> Fake {
    Fake::of(3).down(&["etcd-2"]).with(|s| {
        let mut pod = s.pods[1].clone();
        pod["metadata"]["name"] = "etcd-9".into();
        pod["metadata"]["uid"] = "uid-etcd-9".into();
        let mut one = s.members["etcd-1"].clone();
        (one.id, one.cluster) = (19, 7);
        change(&mut one);
        s.pods.push(pod);
        s.members.insert("etcd-9".to_owned(), one);
    })
}

#[tokio::test(start_paused = true)]
async fn a_rogue_pod_vouches_for_nobody_whatever_it_says_that_it_is() {
    // Of another ensemble; then most pods are not of the ensemble, and nobody can say which one it is.
    for change in [
        |_: &mut One| {},
        // The member that is down.
        |one: &mut One| (one.id, one.cluster) = (12, 7),
        // The same, and of the same ensemble, as every answer of etcd has its ids.
        |one: &mut One| (one.id, one.cluster) = (12, 0xcdf8_1818_1818_1818),
        // One that is there.
        |one: &mut One| (one.id, one.cluster) = (10, 0xcdf8_1818_1818_1818),
    ] {
        for name in ["etcd-0", "etcd-1"] {
            let ruling = deleted(&rogue(change), LEAST, name).await;
            assert_ne!(word(&ruling), "allow", "{name}: {}", told(&ruling));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_another_ensemble_is_not_missed() {
    let fake = rogue(|_| {}).with(|s| s.members.get_mut("etcd-2").unwrap().reply = Reply::Whole);
    says(&evicted(&fake, LEAST, "etcd-9").await, "allow", "it is of another ensemble, 7");
    says(&evicted(&fake, LEAST, "etcd-1").await, "allow", "");
}

#[tokio::test(start_paused = true)]
async fn what_durward_fails_to_see_is_unknown_and_what_is_down_is_down() {
    for code in [cause::TLS, cause::CREDENTIALS, cause::GARBAGE, cause::NOT_ETCD, cause::REFUSED] {
        let fake = Fake::of(5).with(|s| {
            for name in ["etcd-3", "etcd-4"] {
                s.members.get_mut(name).unwrap().reply = Reply::Silent(code);
            }
        });
        says(&deleted(&fake, LEAST, "etcd-1").await, "unknown", &format!("etcd-3: {code}"));
    }
    let down = Fake::of(5).down(&["etcd-3", "etcd-4"]);
    says(&deleted(&down, LEAST, "etcd-1").await, "deny", "only 2 other members");
    let all = Fake::of(3).with(|s| {
        for one in s.members.values_mut() {
            one.reply = Reply::Silent(cause::TLS);
        }
    });
    says(&deleted(&all, LEAST, "etcd-1").await, "unknown", "etcd-1: tls");
}

#[tokio::test(start_paused = true)]
async fn a_silent_leader_is_not_killed_unseen() {
    let fake =
        Fake::of(3).with(|s| s.members.get_mut("etcd-0").unwrap().reply = Reply::Silent(cause::TIMEOUT));
    says(&deleted(&fake, LEAST, "etcd-0").await, "unknown", "etcd-0: timeout");
    // Nothing listens there: it leads no more, whatever the others know so far.
    let dead = Fake::of(3).down(&["etcd-0"]).lost();
    says(&deleted(&dead, LEAST, "etcd-0").await, "allow", "");
}

#[tokio::test(start_paused = true)]
async fn a_quorum_that_works_with_somebody_unseen_may_be_this_one() {
    // One of three is corrupt and two are enough: the silent one has to be the second.
    let fake = Fake::of(3).with(|s| {
        s.members.get_mut("etcd-1").unwrap().behind = 9000;
        s.members.get_mut("etcd-2").unwrap().reply = Reply::Silent(cause::UNREACHABLE);
    });
    says(&deleted(&fake, LEAST, "etcd-2").await, "unknown", "etcd-2: unreachable");
}

#[tokio::test(start_paused = true)]
async fn a_port_on_which_nobody_listens_may_be_the_wrong_one() {
    let fake = Fake::of(3).down(&["etcd-0", "etcd-1", "etcd-2"]);
    says(&deleted(&fake, LEAST, "etcd-1").await, "unknown", "etcd-1: not-listening");
    // One serves reads, and neither of the others listens: one of them has to be its quorum.
    let fake = Fake::of(3).down(&["etcd-1", "etcd-2"]);
    says(&deleted(&fake, LEAST, "etcd-1").await, "unknown", "etcd-1: not-listening");
}

#[tokio::test(start_paused = true)]
async fn two_leaders_of_one_term_cannot_be() {
    let fake = Fake::of(3).with(|s| s.members.get_mut("etcd-2").unwrap().leader = Whom::One(12));
    says(&deleted(&fake, LEAST, "etcd-1").await, "deny", "nobody leads");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_in_no_list_leads_nobody() {
    let fake = Fake::of(3).with(|s| s.leader = Some(99));
    says(&deleted(&fake, LEAST, "etcd-1").await, "deny", "nobody leads");
}

#[tokio::test(start_paused = true)]
async fn members_without_pods_count_as_missing() {
    let fake = Fake::of(3).with(|s| {
        s.listed = (90..92)
            .map(|id| Member {
                id,
                name: format!("far-{id}"),
                client_urls: vec!["x".into()],
                ..Member::default()
            })
            .collect();
    });
    says(
        &deleted(&fake, LEAST, "etcd-1").await,
        "deny",
        "far-90  -            -       -  no pod answers as it",
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_an_address_is_not_asked() {
    for address in ["", "etcd.evil.example", "127.0.0.1/../x"] {
        let fake = Fake::of(3).with(|s| s.pods[2]["status"]["podIP"] = address.into());
        says(&deleted(&fake, LEAST, "etcd-1").await, "deny", "only 1 other member");
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_api_server_does_not_tell_is_unknown() {
    let fake = Fake::of(3).refusing("pods");
    says(
        &deleted(&fake, LEAST, "etcd-1").await,
        "unknown",
        "durward manifests --config durward.yaml --only rbac | kubectl apply -f -",
    );
    says(&evicted(&fake, LEAST, "etcd-1").await, "unknown", "pods may not be read");
    // These only let through; without them everything else still counts.
    for plural in ["namespaces", "statefulsets", "nodes"] {
        let fake = Fake::of(3).refusing(plural);
        says(&deleted(&fake, LEAST, "etcd-1").await, "allow", "");
    }
    let labelled = "ensembles: [{namespaceSelector: {matchLabels: {t: u}}, selector: app=etcd}]";
    let fake = Fake::of(3).refusing("namespaces");
    says(&deleted(&fake, labelled, "etcd-1").await, "unknown", "namespaces may not be read");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_durward_does_not_see_is_not_let_go() {
    let fake = Fake::of(3).with(|s| s.pods[1]["metadata"]["uid"] = "another".into());
    says(&ruled(&fake.door(LEAST), &delete("etcd-1", |_| {})).await, "unknown", "looks at another cluster");
}

#[tokio::test(start_paused = true)]
async fn what_is_in_no_form_is_never_let_go() {
    let door = Fake::of(3).door(LEAST);
    for old in
        [json!(null), json!(7), json!({}), json!({"metadata": {"name": "etcd-1", "labels": {"app": 7}}})]
    {
        let ruling = ruled(&door, &delete("etcd-1", |r| r["oldObject"] = old.clone())).await;
        assert_eq!(word(&ruling), "unknown", "{old}");
    }
}

#[tokio::test(start_paused = true)]
async fn names_from_outside_forge_no_line() {
    let fake = Fake::of(3).down(&["etcd-2"]).with(|s| {
        s.listed = vec![Member {
            id: 90,
            name: "x\n  etcd-2  healthy".into(),
            client_urls: vec!["x".into()],
            ..Member::default()
        }];
    });
    let said = told(&deleted(&fake, LEAST, "etcd-1").await);
    assert!(said.contains("\n  x etcd-2 healthy  -            -       -  no pod answers as it\n"), "{said}");
}

/// Eight pods that one entry takes for one ensemble: five are of one, and three of another, in which `etcd-5` leads.
fn two_in_one(have_a_set: bool) -> Fake {
    Fake::of(8).with(|s| {
        for at in 5..8 {
            let one = s.members.get_mut(&format!("etcd-{at}")).unwrap();
            (one.cluster, one.leader) = (7, Whom::One(15));
        }
        for pod in s.pods.iter_mut().filter(|_| !have_a_set) {
            drop(pod["metadata"].as_object_mut().unwrap().remove("ownerReferences"));
        }
    })
}

const TOGETHER: &str = "ensembles: [{namespace: db, selector: app=etcd, groupBy: selector}]";

#[tokio::test(start_paused = true)]
async fn of_two_ensembles_in_one_group_the_smaller_one_is_not_taken_for_strangers() {
    for (yaml, have_a_set) in [(TOGETHER, true), (LEAST, false)] {
        for name in ["etcd-5", "etcd-6", "etcd-7"] {
            let ruling = deleted(&two_in_one(have_a_set), yaml, name).await;
            says(&ruling, "unknown", "give each ensemble an entry with a selector of its own");
            says(&ruling, "unknown", "it is of another ensemble, 7");
        }
        // The others are counted by their own list.
        says(&deleted(&two_in_one(have_a_set), yaml, "etcd-1").await, "allow", "");
        let lags = two_in_one(have_a_set).with(|s| {
            for name in ["etcd-2", "etcd-3"] {
                s.members.get_mut(name).unwrap().behind = 9000;
            }
        });
        says(&deleted(&lags, yaml, "etcd-1").await, "deny", "only 2 other members");
        // Of which of the two a silent pod is, it does not say.
        let silent = two_in_one(have_a_set)
            .with(|s| s.members.get_mut("etcd-7").unwrap().reply = Reply::Silent(cause::TIMEOUT));
        says(&deleted(&silent, yaml, "etcd-7").await, "unknown", "two ensembles");
    }
}

#[tokio::test(start_paused = true)]
async fn members_that_began_anew_make_no_stranger_of_the_one_with_the_data() {
    let fake = Fake::of(3).with(|s| {
        for name in ["etcd-1", "etcd-2"] {
            let one = s.members.get_mut(name).unwrap();
            (one.cluster, one.leader) = (7, Whom::One(11));
        }
        s.leader = None;
        s.members.get_mut("etcd-0").unwrap().reply = Reply::ReadHangs;
        s.listed = [91, 92].map(|id| Member { id, name: format!("old-{id}"), ..Member::default() }).into();
    });
    says(&deleted(&fake, LEAST, "etcd-0").await, "unknown", "two ensembles");
}

#[tokio::test(start_paused = true)]
async fn pods_without_a_gateway_vouch_for_nobody_beside_members_that_have_one() {
    let fake = |members: u64, poor: &[&str], down: &[&str]| {
        Fake::of(members).down(down).with(|s| {
            for name in poor {
                let one = s.members.get_mut(*name).unwrap();
                (one.cluster, one.reply) = (7, Reply::Poor);
            }
            s.others.get_mut(&("statefulsets", "etcd".to_owned())).unwrap()["spec"]["replicas"] = 3.into();
        })
    };
    let two = fake(5, &["etcd-3", "etcd-4"], &["etcd-2"]);
    assert_ne!(word(&deleted(&two, LEAST, "etcd-1").await), "allow");
    let one = fake(4, &["etcd-3"], &["etcd-2"]);
    assert_ne!(word(&deleted(&one, LEAST, "etcd-1").await), "allow");
    // Nor do they hold up anybody who is not needed, or stay themselves.
    let well = fake(4, &["etcd-3"], &[]);
    says(&deleted(&well, LEAST, "etcd-1").await, "allow", "");
    says(&deleted(&well, LEAST, "etcd-3").await, "allow", "");
    // And they hide no alarm.
    let corrupt = fake(4, &["etcd-3"], &[]).with(|s| s.alarms = vec![alarm(12, AlarmKind::Corrupt)]);
    assert_ne!(word(&deleted(&corrupt, LEAST, "etcd-1").await), "allow");
    // One that leads is not killed unasked.
    let leads = Fake::of(3).with(|s| s.members.get_mut("etcd-0").unwrap().reply = Reply::Poor);
    says(&deleted(&leads, LEAST, "etcd-0").await, "unknown", "has no JSON gateway");
}

#[tokio::test(start_paused = true)]
async fn without_a_gateway_and_a_set_nobody_knows_how_many_members_there_are() {
    let poor = || {
        Fake::of(3).with(|s| {
            for one in s.members.values_mut() {
                one.reply = Reply::Poor;
            }
        })
    };
    let alone = poor().with(|s| {
        for pod in &mut s.pods {
            drop(pod["metadata"].as_object_mut().unwrap().remove("ownerReferences"));
        }
    });
    says(&deleted(&alone, LEAST, "etcd-1").await, "unknown", "how many members there are");
    // Where several sets make one ensemble, one of them does not tell how many it has.
    says(&deleted(&poor(), TOGETHER, "etcd-1").await, "unknown", "how many members there are");
    says(&deleted(&poor(), LEAST, "etcd-1").await, "allow", "");
}

#[tokio::test(start_paused = true)]
async fn pods_that_have_ended_are_no_members() {
    for phase in ["Succeeded", "Failed"] {
        let fake = Fake::of(3).with(|s| {
            for at in 0..3 {
                let mut pod = s.pods[1].clone();
                pod["metadata"]["name"] = format!("backup-{at}").into();
                pod["metadata"]["uid"] = format!("uid-backup-{at}").into();
                pod["status"]["phase"] = phase.into();
                s.pods.push(pod);
            }
        });
        says(&deleted(&fake, TOGETHER, "etcd-1").await, "allow", "");
        says(&deleted(&fake, TOGETHER, "backup-1").await, "allow", "");
        // It ended since the review was made.
        let fake = Fake::of(3).down(&["etcd-2"]).with(|s| s.pods[1]["status"]["phase"] = phase.into());
        says(&ruled(&fake.door(LEAST), &delete("etcd-1", |_| {})).await, "allow", "");
    }
}

#[tokio::test(start_paused = true)]
async fn an_alarm_of_corrupt_data_that_names_nobody_is_about_everybody() {
    let fake = || Fake::of(3).with(|s| s.alarms = vec![alarm(0, AlarmKind::Corrupt)]);
    for name in ["etcd-0", "etcd-1"] {
        let ruling = deleted(&fake(), LEAST, name).await;
        says(&ruling, "deny", "the alarm CORRUPT names no member");
        says(&ruling, "deny", "etcd-2  follower     4       0  not healthy: the data of the ensemble is");
        assert!(fake().state().deeds.is_empty());
    }
    // What is down goes, and what was taken out of the list.
    says(
        &deleted(&fake().down(&["etcd-2"]), LEAST, "etcd-2").await,
        "allow",
        "the others are not known to be a quorum",
    );
    let removed = fake().with(|s| s.members.get_mut("etcd-2").unwrap().cluster = 7);
    says(&deleted(&removed, LEAST, "etcd-2").await, "allow", "it is of another ensemble");
}
