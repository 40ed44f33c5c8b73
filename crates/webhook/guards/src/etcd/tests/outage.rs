//! Lost quorums: which deletions are needed for the repair, and which would prevent it.

use serde_json::json;

use super::super::decide::{Concern, DenyReason, UnknownCause, Warning};
use super::super::fixture::{LEAST, pod};
use super::super::table::MemberProblem;
use super::expect::{Expected, assert_outcome, assert_text, quorum, reserved, text_of, verdict_of};
use super::fake::{
    Fake, FakeContent, PODS, Reply, ReportedLeader, STATEFUL_SETS, alarm, deleted, deleted_by, evicted,
};
use super::{CONTROLLER, REMOVED};
use cluster::cause;
use cluster::etcd::{AlarmKind, Member};

const TOGETHER: &str = "clusters: [{namespace: db, selector: app=etcd, groupBy: selector}]";

fn reply(state: &mut FakeContent, name: &str, reply: Reply) {
    state.etcd_member(name).reply = reply;
}

fn set(state: &mut FakeContent, name: &str, replicas: u64) {
    let set = json!({"metadata": {"name": name, "namespace": "db", "uid": format!("uid-{name}")}, "spec": {"replicas": replicas}});
    state.insert(STATEFUL_SETS, set);
}

fn at_once(request: &mut serde_json::Value) {
    request["options"]["gracePeriodSeconds"] = 0.into();
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_does_not_answer_stays_while_another_member_is_cut_off() {
    for yaml in [LEAST, REMOVED] {
        let fake = Fake::of(3).with(|s| {
            reply(s, "etcd-0", Reply::NoResponse(cause::TIMEOUT));
            reply(s, "etcd-2", Reply::ReadHangs);
            s.etcd_member("etcd-2").leader = ReportedLeader::None;
        });
        assert_outcome(&deleted(&fake, yaml, "etcd-0").await, Expected::NoResponse("etcd-0", cause::TIMEOUT));
    }
}

#[tokio::test(start_paused = true)]
async fn a_successful_read_disproves_a_lost_quorum() {
    // Two report no leader, and one serves reads, which is newer.
    let fake = Fake::of(3).with(|s| {
        reply(s, "etcd-1", Reply::NoResponse(cause::TIMEOUT));
        s.etcd.leader = None;
    });
    assert_outcome(&deleted(&fake, LEAST, "etcd-1").await, Expected::NoResponse("etcd-1", cause::TIMEOUT));
}

#[tokio::test(start_paused = true)]
async fn only_a_healthy_member_with_a_grace_period_leaves_the_list() {
    let four = || Fake::of(4).down(&["etcd-3"]);
    assert_outcome(&deleted(&four(), REMOVED, "etcd-1").await, Expected::Allow);
    assert_outcome(&deleted_by(&four(), REMOVED, "etcd-1", "ann", at_once).await, quorum(2, 4));
    let hasty = four()
        .with(|s| s.edit(PODS, "etcd-1", |pod| pod["spec"]["terminationGracePeriodSeconds"] = 0.into()));
    assert_outcome(&deleted(&hasty, REMOVED, "etcd-1").await, quorum(2, 4));
    let unhealthy = four().with(|s| s.etcd_member("etcd-1").behind = 9000);
    assert_outcome(&deleted(&unhealthy, REMOVED, "etcd-1").await, quorum(2, 4));
    // The loss of its data is intended, healthy or not.
    let lags = Fake::of(3).with(|s| {
        s.etcd_member("etcd-1").behind = 9000;
        s.edit(PODS, "etcd-1", |pod| pod["spec"]["volumes"] = json!([{"name": "data", "emptyDir": {}}]));
    });
    let ruling = deleted(&lags, REMOVED, "etcd-1").await;
    assert_outcome(&ruling, Warning::Unhealthy(MemberProblem::Behind(9000)));
    assert_eq!(ruling.warnings.fitted().len(), 1, "{:?}", ruling.warnings);
    assert_outcome(
        &deleted_by(&lags, REMOVED, "etcd-1", "ann", at_once).await,
        Warning::Concern(Concern::DataLoss),
    );
    // Without a grace period, one of two is an outage.
    assert_outcome(
        &deleted_by(&Fake::of(2), REMOVED, "etcd-1", "ann", at_once).await,
        Warning::Outage { voters: 2 },
    );
}

#[tokio::test(start_paused = true)]
async fn a_member_that_refuses_connections_stays_while_the_quorum_may_need_it() {
    // The others serve reads under its leadership, so it refuses only Durward.
    let leads = Fake::of(3).down(&["etcd-0"]);
    assert_outcome(
        &deleted(&leads, LEAST, "etcd-0").await,
        Expected::NoResponse("etcd-0", cause::NOT_LISTENING),
    );
    // Their reads fail for a moment, and they follow it, so it may lead.
    let slow = || {
        Fake::of(3).down(&["etcd-0"]).with(|s| {
            reply(s, "etcd-1", Reply::ReadHangs);
            reply(s, "etcd-2", Reply::ReadHangs);
        })
    };
    assert_outcome(
        &deleted(&slow(), LEAST, "etcd-0").await,
        Expected::NoResponse("etcd-0", cause::NOT_LISTENING),
    );
    // Members forget a dead leader within an election timeout.
    let dead = slow().with(|s| s.etcd.leader = None);
    assert_outcome(&deleted(&dead, LEAST, "etcd-0").await, Warning::QuorumUncertain);
    // One of the other two is leaving, so the quorum may need the third one.
    let leaving = Fake::of(3).down(&["etcd-1"]);
    leaving.mark_deleted("etcd-2");
    assert_outcome(
        &deleted(&leaving, LEAST, "etcd-1").await,
        Expected::NoResponse("etcd-1", cause::NOT_LISTENING),
    );
    let hangs = Fake::of(5).down(&["etcd-1"]).with(|s| reply(s, "etcd-2", Reply::Hangs));
    hangs.mark_deleted("etcd-3");
    assert_outcome(
        &deleted(&hangs, LEAST, "etcd-1").await,
        Expected::NoResponse("etcd-1", cause::NOT_LISTENING),
    );
    hangs.set("etcd-2", Reply::Full);
    assert_outcome(&deleted(&hangs, LEAST, "etcd-1").await, Expected::Allow);
    hangs.mark_deleted("etcd-2");
    assert_outcome(
        &deleted(&hangs, LEAST, "etcd-1").await,
        Expected::NoResponse("etcd-1", cause::NOT_LISTENING),
    );
    // A member that is down and not needed is allowed.
    assert_outcome(&deleted(&Fake::of(3).down(&["etcd-2"]), LEAST, "etcd-2").await, Expected::Allow);
}

#[tokio::test(start_paused = true)]
async fn a_corrupt_member_that_the_quorum_may_need_is_unknown_while_reads_fail() {
    let corrupt =
        || Fake::of(3).down(&["etcd-2"]).with(|s| s.etcd.alarms = vec![alarm(11, AlarmKind::Corrupt)]);
    let slow = corrupt().with(|s| {
        reply(s, "etcd-0", Reply::ReadHangs);
        reply(s, "etcd-1", Reply::ReadHangs);
    });
    assert_outcome(&deleted(&slow, LEAST, "etcd-1").await, UnknownCause::NoReads);
    // During an election neither knows a leader, and this member may be in the next quorum.
    assert_outcome(&deleted(&corrupt().leaderless(), LEAST, "etcd-1").await, UnknownCause::NoReads);
    // All know no leader, so the quorum is lost.
    let leaderless = Fake::of(3).with(|s| s.etcd.alarms = vec![alarm(11, AlarmKind::Corrupt)]).leaderless();
    assert_outcome(&deleted(&leaderless, LEAST, "etcd-1").await, Warning::CorruptData);
}

#[tokio::test(start_paused = true)]
async fn one_of_two_without_a_response_is_allowed_after_quorum_loss() {
    for code in [cause::TIMEOUT, cause::UNREACHABLE, cause::NO_ADDRESS] {
        let fake = Fake::of(2).leaderless().with(|s| reply(s, "etcd-1", Reply::NoResponse(code)));
        assert_outcome(&deleted(&fake, LEAST, "etcd-1").await, Warning::QuorumLost);
        assert_outcome(&evicted(&fake, LEAST, "etcd-1").await, Warning::QuorumLost);
        assert_outcome(&deleted(&fake, LEAST, "etcd-0").await, DenyReason::QuorumLost);
    }
    let four = Fake::of(4).leaderless().with(|s| {
        reply(s, "etcd-2", Reply::NoResponse(cause::TIMEOUT));
        reply(s, "etcd-3", Reply::NoResponse(cause::UNREACHABLE));
    });
    assert_outcome(&deleted(&four, LEAST, "etcd-3").await, Warning::QuorumLost);
    assert_outcome(&deleted(&four, LEAST, "etcd-1").await, DenyReason::QuorumLost);
}

#[tokio::test(start_paused = true)]
async fn few_members_prove_a_lost_quorum_only_without_contradictions() {
    // A leader; a successful read; more pods than listed members; more replicas than listed members.
    type Change = fn(&mut FakeContent);
    let changes: [Change; 4] = [
        |s| s.etcd.leader = Some(11),
        |s| reply(s, "etcd-0", Reply::Full),
        |s| s.insert(PODS, pod("etcd-2")),
        |s| set(s, "etcd", 3),
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let fake = Fake::of(2).leaderless().with(|s| {
            reply(s, "etcd-1", Reply::NoResponse(cause::TIMEOUT));
            change(s);
        });
        let ruling = deleted(&fake, LEAST, "etcd-1").await;
        assert_eq!(verdict_of(&ruling), "unknown", "{at}: {}", text_of(&ruling));
    }
    // One of three proves nothing: the other two may be a quorum.
    let three = Fake::of(3).leaderless().with(|s| {
        reply(s, "etcd-1", Reply::NoResponse(cause::TIMEOUT));
        reply(s, "etcd-2", Reply::NoResponse(cause::TIMEOUT));
    });
    assert_outcome(&deleted(&three, LEAST, "etcd-2").await, Expected::NoResponse("etcd-2", cause::TIMEOUT));
}

#[tokio::test(start_paused = true)]
async fn scaling_to_zero_is_a_teardown() {
    for user in ["ann", CONTROLLER, "system:kube-controller-manager"] {
        let fake = Fake::of(3).with(|s| {
            s.remove(PODS, "etcd-2");
            reply(s, "etcd-2", Reply::Hangs);
            set(s, "etcd", 0);
        });
        let ruling = deleted_by(&fake, LEAST, "etcd-1", user, |_| {}).await;
        assert_outcome(&ruling, Expected::Allow);
        assert!(ruling.audit.iter().any(|(_, why)| why.contains("is scaled to zero")), "{:?}", ruling.audit);
        assert_eq!(fake.activity(), (0, 0));
    }
    // Fewer replicas are not a teardown.
    let fewer = Fake::of(3).down(&["etcd-2"]).with(|s| set(s, "etcd", 1));
    assert_outcome(&deleted_by(&fewer, LEAST, "etcd-1", CONTROLLER, |_| {}).await, quorum(1, 3));
}

#[tokio::test(start_paused = true)]
async fn scaling_one_of_several_statefulsets_to_zero_is_not_a_teardown() {
    let each_its_own = || {
        Fake::of(3).down(&["etcd-2"]).with(|s| {
            for (at, name) in ["a", "b", "c"].into_iter().enumerate() {
                s.edit(PODS, &format!("etcd-{at}"), |pod| {
                    let owner = &mut pod["metadata"]["ownerReferences"][0];
                    (owner["name"], owner["uid"]) = (name.into(), format!("uid-{name}").into());
                });
                set(s, name, 1);
            }
            set(s, "b", 0);
        })
    };
    assert_outcome(&deleted_by(&each_its_own(), TOGETHER, "etcd-1", CONTROLLER, |_| {}).await, quorum(1, 3));
    let mixed = each_its_own().with(|s| {
        set(s, "a", 0);
        set(s, "c", 0);
        s.edit(PODS, "etcd-0", |pod| {
            drop(pod["metadata"].as_object_mut().unwrap().remove("ownerReferences"));
        });
    });
    assert_outcome(&deleted_by(&mixed, TOGETHER, "etcd-1", CONTROLLER, |_| {}).await, quorum(1, 3));
    let all = each_its_own().with(|s| {
        set(s, "a", 0);
        s.remove(STATEFUL_SETS, "c");
    });
    assert_outcome(&deleted_by(&all, TOGETHER, "etcd-1", CONTROLLER, |_| {}).await, Expected::Allow);
    let blind = each_its_own().with_error("statefulsets");
    assert_outcome(&deleted_by(&blind, TOGETHER, "etcd-1", CONTROLLER, |_| {}).await, quorum(1, 3));
}

#[tokio::test(start_paused = true)]
async fn leader_refuse_denies_the_leader_of_two() {
    let yaml = format!("onLeaderDelete: deny\n{LEAST}");
    assert_outcome(&deleted(&Fake::of(2), &yaml, "etcd-0").await, DenyReason::LeaderForbidden);
    assert_outcome(&deleted(&Fake::of(2), &yaml, "etcd-1").await, Warning::Outage { voters: 2 });
    assert_outcome(
        &deleted_by(&Fake::of(2), &yaml, "etcd-0", CONTROLLER, |_| {}).await,
        Warning::Outage { voters: 2 },
    );
    // A single member has no successor.
    assert_outcome(&deleted(&Fake::of(1), &yaml, "etcd-0").await, Warning::Outage { voters: 1 });
}

#[tokio::test(start_paused = true)]
async fn failing_reads_do_not_prove_that_a_member_is_gone() {
    // The leader answers, and one of the two others must be in its quorum.
    let fake = || {
        Fake::of(3).down(&["etcd-1"]).with(|s| {
            reply(s, "etcd-0", Reply::ReadHangs);
            reply(s, "etcd-2", Reply::NoResponse(cause::TIMEOUT));
        })
    };
    assert_outcome(
        &deleted(&fake(), LEAST, "etcd-1").await,
        Expected::NoResponse("etcd-1", cause::NOT_LISTENING),
    );
    // Two claim to lead one term, so a third may lead.
    let rivals =
        Fake::of(3).down(&["etcd-1"]).with(|s| s.etcd_member("etcd-2").leader = ReportedLeader::Member(12));
    assert_outcome(
        &deleted(&rivals, LEAST, "etcd-1").await,
        Expected::NoResponse("etcd-1", cause::NOT_LISTENING),
    );
    // A member without a leader may be cut off from the two others, which may be a quorum.
    let cut_off = fake().with(|s| s.etcd_member("etcd-0").leader = ReportedLeader::None);
    assert_outcome(
        &deleted(&cut_off, LEAST, "etcd-1").await,
        Expected::NoResponse("etcd-1", cause::NOT_LISTENING),
    );
    let led = Fake::of(3).down(&["etcd-1"]).with(|s| {
        reply(s, "etcd-0", Reply::ReadHangs);
        reply(s, "etcd-2", Reply::ReadHangs);
        s.etcd_member("etcd-2").leader = ReportedLeader::None;
    });
    assert_outcome(
        &deleted(&led, LEAST, "etcd-1").await,
        Expected::NoResponse("etcd-1", cause::NOT_LISTENING),
    );
    // Two of five that refuse connections are not a quorum, but may be one with a third that hangs.
    let five = Fake::of(5).down(&["etcd-1", "etcd-2"]).leaderless();
    assert_outcome(&deleted(&five, LEAST, "etcd-1").await, Warning::QuorumUncertain);
    five.set("etcd-3", Reply::Hangs);
    assert_outcome(
        &deleted(&five, LEAST, "etcd-1").await,
        Expected::NoResponse("etcd-1", cause::NOT_LISTENING),
    );
    // If two know no leader, no quorum is left.
    let leaderless = led.with(|s| s.etcd.leader = None);
    assert_outcome(&deleted(&leaderless, LEAST, "etcd-1").await, Warning::QuorumUncertain);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_refuses_connections_is_allowed_if_others_certainly_are_the_quorum() {
    // The third is dead and the fourth is cut off, so the leader and another member need this one.
    let four = |reply: Reply, leader: ReportedLeader| {
        Fake::of(5).down(&["etcd-1"]).with(|s| {
            s.etcd_member("etcd-2").reply = Reply::NoResponse(cause::TIMEOUT);
            let cut_off = s.etcd_member("etcd-3");
            (cut_off.reply, cut_off.leader) = (reply, leader);
        })
    };
    assert_outcome(
        &deleted(&four(Reply::ReadHangs, ReportedLeader::None), LEAST, "etcd-1").await,
        Expected::NoResponse("etcd-1", cause::NOT_LISTENING),
    );
    // Its disk hangs, so its report of the leader is outdated.
    assert_outcome(
        &deleted(&four(Reply::ReadHangs, ReportedLeader::Consensus), LEAST, "etcd-1").await,
        Expected::NoResponse("etcd-1", cause::NOT_LISTENING),
    );
    assert_outcome(
        &deleted(&four(Reply::Full, ReportedLeader::Consensus), LEAST, "etcd-1").await,
        Expected::Allow,
    );
    // It is unhealthy and still in the quorum.
    let behind = four(Reply::Full, ReportedLeader::Consensus).with(|s| s.etcd_member("etcd-3").behind = 9000);
    assert_outcome(&deleted(&behind, LEAST, "etcd-1").await, Warning::QuorumUncertain);
    // If the kubelet reports that its container is down, no member is asked.
    let crashed = four(Reply::ReadHangs, ReportedLeader::None);
    crashed.set_container("etcd-1", "waiting");
    assert_outcome(&deleted(&crashed, LEAST, "etcd-1").await, Expected::Allow);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_refuses_connections_is_allowed_if_no_quorum_is_possible() {
    let two = |second: &str| {
        let fake = Fake::of(3).down(&["etcd-1"]).leaderless();
        fake.content().etcd_member("etcd-2").reply = Reply::NoResponse(cause::TIMEOUT);
        fake.set_container("etcd-2", second);
        fake
    };
    assert_outcome(&deleted(&two("waiting"), LEAST, "etcd-1").await, Warning::QuorumUncertain);
    // The third member may answer this one.
    assert_outcome(
        &deleted(&two("running"), LEAST, "etcd-1").await,
        Expected::NoResponse("etcd-1", cause::NOT_LISTENING),
    );
}

#[tokio::test(start_paused = true)]
async fn two_voters_of_a_cluster_of_three_both_stay() {
    let learns = || Fake::of(3).with(|s| s.etcd_member("etcd-2").is_learner = true);
    let removed = || Fake::of(3).with(|s| s.etcd.members.retain(|name, _| name != "etcd-2"));
    let both = || learns().with(|s| s.etcd_member("etcd-1").is_learner = true);
    for yaml in [LEAST, TOGETHER] {
        for (fake, voters) in [(learns(), 2), (removed(), 2), (both(), 1)] {
            let few = || DenyReason::TooFewVoters { voters, expected: 3 };
            for name in ["etcd-0", "etcd-1"] {
                if fake.content().etcd.members[name].is_learner {
                    continue;
                }
                let ruling = evicted(&fake, yaml, name).await;
                assert_outcome(&ruling, few());
                let next = "wait until 3 members vote";
                assert_text(&deleted(&fake, yaml, name).await, "deny", next);
                assert_outcome(&deleted_by(&fake, yaml, name, CONTROLLER, |_| {}).await, few());
            }
            // The third one can be repaired.
            assert_outcome(&evicted(&fake, yaml, "etcd-2").await, Expected::Allow);
        }
    }
    // A member that was added and has not started counts towards the size.
    let unstarted =
        Fake::of(2).with(|s| s.etcd.listed = vec![Member { id: 90, is_learner: true, ..Member::default() }]);
    assert_outcome(
        &deleted(&unstarted, LEAST, "etcd-1").await,
        DenyReason::TooFewVoters { voters: 2, expected: 3 },
    );
    // A `StatefulSet` with two replicas and two members is small.
    let two = removed().with(|s| {
        set(s, "etcd", 2);
        s.remove(PODS, "etcd-2");
    });
    assert_outcome(&deleted(&two, LEAST, "etcd-1").await, Warning::Outage { voters: 2 });
}

#[tokio::test(start_paused = true)]
async fn two_members_are_allowed_one_after_the_other() {
    for user in ["ann", CONTROLLER] {
        let fake = Fake::of(2);
        assert_outcome(
            &deleted_by(&fake, LEAST, "etcd-1", user, |_| {}).await,
            Warning::Outage { voters: 2 },
        );
        // It is reserved, then deleted, then it does not answer.
        assert_outcome(&deleted_by(&fake, LEAST, "etcd-0", user, |_| {}).await, reserved("etcd-1"));
        fake.mark_deleted("etcd-1");
        fake.at(60);
        assert_outcome(&deleted_by(&fake, LEAST, "etcd-0", user, |_| {}).await, DenyReason::OtherLeaving);
        fake.set("etcd-1", Reply::NoResponse(cause::TIMEOUT));
        let ruling = deleted_by(&fake, LEAST, "etcd-0", user, |_| {}).await;
        assert_outcome(&ruling, Expected::Unread(cause::UNCLEAR));
        // Its replacement is healthy.
        fake.replace("etcd-1");
        fake.set("etcd-1", Reply::Full);
        assert_outcome(
            &deleted_by(&fake, LEAST, "etcd-0", user, |_| {}).await,
            Warning::Outage { voters: 2 },
        );
    }
    // A single member and a teardown do not wait.
    assert_outcome(&deleted(&Fake::of(1), LEAST, "etcd-0").await, Warning::Outage { voters: 1 });
    let end = Fake::of(2).with(|s| set(s, "etcd", 0));
    for name in ["etcd-0", "etcd-1"] {
        assert_outcome(&deleted_by(&end, LEAST, name, CONTROLLER, |_| {}).await, Expected::Allow);
        end.mark_deleted(name);
    }
}

#[tokio::test(start_paused = true)]
async fn the_healthy_one_of_two_members_stays() {
    let unhealthy = |change: fn(&mut FakeContent)| Fake::of(2).with(change);
    let lags = || unhealthy(|s| s.etcd_member("etcd-1").behind = 9000);
    assert_outcome(&deleted(&lags(), LEAST, "etcd-0").await, DenyReason::OtherUnhealthy);
    assert_outcome(&deleted(&lags(), LEAST, "etcd-1").await, Warning::Unhealthy(MemberProblem::Behind(9000)));
    let down = || unhealthy(|s| reply(s, "etcd-1", Reply::NoResponse(cause::TIMEOUT)));
    assert_outcome(&deleted(&down(), LEAST, "etcd-0").await, Expected::Unread(cause::UNCLEAR));
    let corrupt = || unhealthy(|s| s.etcd.alarms = vec![alarm(11, AlarmKind::Corrupt)]);
    assert_outcome(&deleted(&corrupt(), LEAST, "etcd-0").await, DenyReason::OtherUnhealthy);
    assert_outcome(&deleted(&corrupt(), LEAST, "etcd-1").await, Warning::Outage { voters: 2 });
    let doubted = unhealthy(|s| s.etcd.alarms = vec![alarm(0, AlarmKind::Corrupt)]);
    assert_outcome(&deleted(&doubted, LEAST, "etcd-1").await, DenyReason::Corrupt);
}

#[tokio::test(start_paused = true)]
async fn the_denial_of_a_hidden_leader_describes_a_manual_transfer() {
    // Its certificate expired; the others have new ones.
    let fake = Fake::of(3).with(|s| reply(s, "etcd-0", Reply::NoResponse(cause::TLS)));
    let ruling = deleted_by(&fake, LEAST, "etcd-0", CONTROLLER, |_| {}).await;
    let way = "it may be the leader; transfer leadership with etcdctl move-leader ID (with TLS, add --cacert, --cert, --key), then retry. IDs of the members: kubectl -n db exec etcd-0 -- etcdctl member list";
    assert_text(&ruling, "unknown", way);
    fake.content().etcd.leader = Some(11);
    assert_outcome(&deleted_by(&fake, LEAST, "etcd-0", CONTROLLER, |_| {}).await, Expected::Allow);
    // A follower gets no such hint.
    let follower = Fake::of(3).with(|s| {
        reply(s, "etcd-1", Reply::NoResponse(cause::TLS));
        s.etcd_member("etcd-2").behind = 9000;
    });
    let text = text_of(&deleted(&follower, LEAST, "etcd-1").await);
    assert!(!text.contains("may be the leader"), "{text}");
}
