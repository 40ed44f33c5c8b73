//! Pods with false claims, members that contradict each other, and API servers that deny access.

use serde_json::json;

use super::super::decide::{DenyReason, UnknownCause, Warning};
use super::super::fixture::{LEAST, delete, pod};
use super::super::table::{MemberProblem, MemberState};
use super::expect::{Expected, assert_outcome, quorum, text_of, verdict_of};
use super::fake::{Fake, FakeEtcdMember, PODS, Reply, ReportedLeader, alarm, deleted, evicted, review};
use cluster::cause;
use cluster::etcd::{AlarmKind, Member};

/// Returns three members, one of them down, and a pod with matching labels and owner that runs another etcd.
fn rogue_pod(change: impl FnOnce(&mut FakeEtcdMember)) -> Fake {
    Fake::of(3).down(&["etcd-2"]).with(|s| {
        let mut pod = pod("etcd-1");
        pod["metadata"]["name"] = "etcd-9".into();
        pod["metadata"]["uid"] = "uid-etcd-9".into();
        let mut one = s.etcd.members["etcd-1"].clone();
        (one.id, one.cluster) = (19, 7);
        change(&mut one);
        s.insert(PODS, pod);
        s.etcd.members.insert("etcd-9".to_owned(), one);
    })
}

#[tokio::test(start_paused = true)]
async fn a_rogue_pod_confirms_no_member() {
    // A pod of another etcd cluster, so that no cluster has most pods.
    for change in [
        |_: &mut FakeEtcdMember| {},
        // With the id of the member that is down.
        |one: &mut FakeEtcdMember| (one.id, one.cluster) = (12, 7),
        // With the id of a healthy member.
        |one: &mut FakeEtcdMember| (one.id, one.cluster) = (10, 0xcdf8_1818_1818_1818),
    ] {
        for name in ["etcd-0", "etcd-1"] {
            let ruling = deleted(&rogue_pod(change), LEAST, name).await;
            assert_ne!(verdict_of(&ruling), "allow", "{name}: {}", text_of(&ruling));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_another_cluster_is_unknown() {
    let fake = rogue_pod(|_| {}).with(|s| s.etcd_member("etcd-2").reply = Reply::Full);
    assert_outcome(&evicted(&fake, LEAST, "etcd-9").await, UnknownCause::MixedClusters);
    assert_outcome(&evicted(&fake, LEAST, "etcd-1").await, Expected::Allow);
    // Two foreign pods are the majority beside the only member.
    let fake = Fake::of(3).with(|s| {
        for name in ["etcd-1", "etcd-2"] {
            s.etcd_member(name).cluster = 7;
        }
    });
    assert_outcome(&deleted(&fake, LEAST, "etcd-0").await, UnknownCause::MixedClusters);
    assert_eq!(fake.activity().1, 0);
}

#[tokio::test(start_paused = true)]
async fn failed_reads_are_unknown_and_members_that_are_down_are_not() {
    for code in [cause::TLS, cause::CREDENTIALS, cause::GARBAGE, cause::NOT_ETCD, cause::REFUSED] {
        let fake = Fake::of(5).with(|s| {
            for name in ["etcd-3", "etcd-4"] {
                s.etcd_member(name).reply = Reply::NoResponse(code);
            }
        });
        assert_outcome(&deleted(&fake, LEAST, "etcd-1").await, Expected::NoResponse("etcd-3", code));
    }
    let down = Fake::of(5).down(&["etcd-3", "etcd-4"]);
    assert_outcome(&deleted(&down, LEAST, "etcd-1").await, quorum(2, 5));
    let all = Fake::of(3).with(|s| {
        for one in s.etcd.members.values_mut() {
            one.reply = Reply::NoResponse(cause::TLS);
        }
    });
    assert_outcome(&deleted(&all, LEAST, "etcd-1").await, Expected::NoResponse("etcd-1", cause::TLS));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_does_not_answer_is_unknown() {
    let fake = Fake::of(3).with(|s| s.etcd_member("etcd-0").reply = Reply::NoResponse(cause::TIMEOUT));
    assert_outcome(&deleted(&fake, LEAST, "etcd-0").await, Expected::NoResponse("etcd-0", cause::TIMEOUT));
    // It refuses connections and does not lead any more.
    let dead = Fake::of(3).down(&["etcd-0"]).leaderless();
    assert_outcome(&deleted(&dead, LEAST, "etcd-0").await, Expected::Allow);
}

#[tokio::test(start_paused = true)]
async fn a_working_quorum_may_include_the_member_that_does_not_answer() {
    // One of three lags, so the member without a response must be in the quorum.
    let fake = Fake::of(3).with(|s| {
        s.etcd_member("etcd-1").behind = 9000;
        s.etcd_member("etcd-2").reply = Reply::NoResponse(cause::UNREACHABLE);
    });
    assert_outcome(
        &deleted(&fake, LEAST, "etcd-2").await,
        Expected::NoResponse("etcd-2", cause::UNREACHABLE),
    );
}

#[tokio::test(start_paused = true)]
async fn refused_connections_may_mean_a_wrong_port() {
    let fake = Fake::of(3).down(&["etcd-0", "etcd-1", "etcd-2"]);
    assert_outcome(
        &deleted(&fake, LEAST, "etcd-1").await,
        Expected::NoResponse("etcd-1", cause::NOT_LISTENING),
    );
    // One serves reads, so one of the others must be in its quorum.
    let fake = Fake::of(3).down(&["etcd-1", "etcd-2"]);
    assert_outcome(
        &deleted(&fake, LEAST, "etcd-1").await,
        Expected::NoResponse("etcd-1", cause::NOT_LISTENING),
    );
}

#[tokio::test(start_paused = true)]
async fn two_leaders_of_one_term_count_as_none() {
    let fake = Fake::of(3).with(|s| s.etcd_member("etcd-2").leader = ReportedLeader::Member(12));
    assert_outcome(&deleted(&fake, LEAST, "etcd-1").await, MemberProblem::NoLeader);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_not_listed_does_not_count() {
    let fake = Fake::of(3).with(|s| s.etcd.leader = Some(99));
    assert_outcome(&deleted(&fake, LEAST, "etcd-1").await, MemberProblem::NoLeader);
}

#[tokio::test(start_paused = true)]
async fn members_without_pods_do_not_count() {
    let fake = Fake::of(3).with(|s| {
        s.etcd.listed = (90..92)
            .map(|id| Member {
                id,
                name: format!("far-{id}"),
                client_urls: vec!["x".into()],
                ..Member::default()
            })
            .collect();
    });
    assert_outcome(&deleted(&fake, LEAST, "etcd-1").await, MemberState::NoPod);
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_an_address_does_not_count() {
    for address in ["", "etcd.evil.example", "127.0.0.1/../x"] {
        let fake =
            Fake::of(3).with(|s| s.edit(PODS, "etcd-2", |pod| pod["status"]["podIP"] = address.into()));
        assert_outcome(&deleted(&fake, LEAST, "etcd-1").await, quorum(1, 3));
    }
}

#[tokio::test(start_paused = true)]
async fn failed_reads_of_the_api_server_are_unknown() {
    let fake = Fake::of(3).with_error("pods");
    assert_outcome(&deleted(&fake, LEAST, "etcd-1").await, Expected::Unread(cause::FORBIDDEN));
    assert_outcome(&evicted(&fake, LEAST, "etcd-1").await, Expected::Unread(cause::FORBIDDEN));
    // These objects only allow deletions earlier.
    for plural in ["namespaces", "statefulsets", "nodes"] {
        let fake = Fake::of(3).with_error(plural);
        assert_outcome(&deleted(&fake, LEAST, "etcd-1").await, Expected::Allow);
    }
    let labelled = "clusters: [{namespaceSelector: {matchLabels: {t: u}}, selector: app=etcd}]";
    let fake = Fake::of(3).with_error("namespaces");
    assert_outcome(&deleted(&fake, labelled, "etcd-1").await, Expected::Unread(cause::FORBIDDEN));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_not_listed_is_unknown() {
    let fake = Fake::of(3).with(|s| s.edit(PODS, "etcd-1", |pod| pod["metadata"]["uid"] = "another".into()));
    assert_outcome(
        &review(&fake.guard(LEAST), &delete("etcd-1", |_| {})).await,
        UnknownCause::OtherApiServer,
    );
}

#[tokio::test(start_paused = true)]
async fn malformed_reviews_are_unknown() {
    let guard = Fake::of(3).guard(LEAST);
    for old in [
        json!(null),
        json!(7),
        json!({}),
        json!({"metadata": {"name": "etcd-1", "uid": "u", "labels": {"app": 7}}}),
    ] {
        let ruling = review(&guard, &delete("etcd-1", |r| r["oldObject"] = old.clone())).await;
        assert_eq!(verdict_of(&ruling), "unknown", "{old}");
    }
}

#[tokio::test(start_paused = true)]
async fn foreign_names_add_no_line() {
    let fake = Fake::of(3).down(&["etcd-2"]).with(|s| {
        s.etcd.listed = vec![Member {
            id: 90,
            name: "x\n  etcd-2  healthy".into(),
            client_urls: vec!["x".into()],
            ..Member::default()
        }];
    });
    let text = text_of(&deleted(&fake, LEAST, "etcd-1").await);
    assert!(text.contains("\n  x etcd-2 healthy - no pod answers as this member\n"), "{text}");
}

/// Returns eight pods in one group: five of one etcd cluster, and three of another, whose leader is `etcd-5`.
fn two_in_one(have_a_set: bool) -> Fake {
    Fake::of(8).with(|s| {
        for at in 5..8 {
            let one = s.etcd_member(&format!("etcd-{at}"));
            (one.cluster, one.leader) = (7, ReportedLeader::Member(15));
        }
        if !have_a_set {
            s.edit_all(PODS, |pod| drop(pod["metadata"].as_object_mut().unwrap().remove("ownerReferences")));
        }
    })
}

const TOGETHER: &str = "clusters: [{namespace: db, selector: app=etcd, groupBy: selector}]";

#[tokio::test(start_paused = true)]
async fn the_smaller_of_two_clusters_in_one_group_is_unknown() {
    for (yaml, have_a_set) in [(TOGETHER, true), (LEAST, false)] {
        for name in ["etcd-5", "etcd-6", "etcd-7"] {
            let ruling = deleted(&two_in_one(have_a_set), yaml, name).await;
            assert_outcome(&ruling, UnknownCause::MixedClusters);
            assert_outcome(&ruling, MemberState::OtherCluster(7));
        }
        // The others count by their own list.
        assert_outcome(&deleted(&two_in_one(have_a_set), yaml, "etcd-1").await, Expected::Allow);
        let lags = two_in_one(have_a_set).with(|s| {
            for name in ["etcd-2", "etcd-3"] {
                s.etcd_member(name).behind = 9000;
            }
        });
        assert_outcome(&deleted(&lags, yaml, "etcd-1").await, quorum(2, 5));
        // A pod without a response may belong to either.
        let unreachable = two_in_one(have_a_set)
            .with(|s| s.etcd_member("etcd-7").reply = Reply::NoResponse(cause::TIMEOUT));
        assert_outcome(
            &deleted(&unreachable, yaml, "etcd-7").await,
            Expected::NoResponse("etcd-7", cause::TIMEOUT),
        );
    }
}

#[tokio::test(start_paused = true)]
async fn recreated_members_do_not_exclude_the_one_with_the_data() {
    let fake = Fake::of(3).with(|s| {
        for name in ["etcd-1", "etcd-2"] {
            let one = s.etcd_member(name);
            (one.cluster, one.leader) = (7, ReportedLeader::Member(11));
        }
        s.etcd.leader = None;
        s.etcd_member("etcd-0").reply = Reply::ReadHangs;
        s.etcd.listed =
            [91, 92].map(|id| Member { id, name: format!("old-{id}"), ..Member::default() }).into();
    });
    assert_outcome(&deleted(&fake, LEAST, "etcd-0").await, UnknownCause::MixedClusters);
}

#[tokio::test(start_paused = true)]
async fn ended_pods_are_not_members() {
    for phase in ["Succeeded", "Failed"] {
        let fake = Fake::of(3).with(|s| {
            for at in 0..3 {
                let mut pod = pod("etcd-1");
                pod["metadata"]["name"] = format!("backup-{at}").into();
                pod["metadata"]["uid"] = format!("uid-backup-{at}").into();
                pod["status"]["phase"] = phase.into();
                s.insert(PODS, pod);
            }
        });
        assert_outcome(&deleted(&fake, TOGETHER, "etcd-1").await, Expected::Allow);
        assert_outcome(&deleted(&fake, TOGETHER, "backup-1").await, Expected::Allow);
        // The pod ended after the request.
        let fake = Fake::of(3)
            .down(&["etcd-2"])
            .with(|s| s.edit(PODS, "etcd-1", |pod| pod["status"]["phase"] = phase.into()));
        assert_outcome(&review(&fake.guard(LEAST), &delete("etcd-1", |_| {})).await, Expected::Allow);
    }
}

#[tokio::test(start_paused = true)]
async fn a_corrupt_alarm_without_a_member_denies_all_members() {
    let fake = || Fake::of(3).with(|s| s.etcd.alarms = vec![alarm(0, AlarmKind::Corrupt)]);
    for name in ["etcd-0", "etcd-1"] {
        let ruling = deleted(&fake(), LEAST, name).await;
        assert_outcome(&ruling, DenyReason::Corrupt);
        assert_outcome(&ruling, MemberProblem::Corruption);
        assert!(fake().content().actions.is_empty());
    }
    // A member that is down is allowed.
    assert_outcome(&deleted(&fake().down(&["etcd-2"]), LEAST, "etcd-2").await, Warning::QuorumUncertain);
}
