//! The guard as a whole, with an API server and an etcd cluster in memory.

mod concurrent;
mod expect;
mod expected_size;
mod fake;
mod hostile;
mod leadership_transfer;
mod outage;
mod owners;
mod reservations;
mod strangers;

use admission::{Code, Verdict};
use serde_json::json;

use super::decide::{Allowed, Concern, DenyReason, UnknownCause, Warning};
use super::fixture::{LEAST, evict};
use super::table::{MemberProblem, MemberState, MembershipChange, Note};
use cluster::cause;
use cluster::etcd::{AlarmKind, Member};
use cluster::writer::TransferResult;
use expect::{Expected, assert_outcome, assert_text, quorum, verdict_of};
use fake::{
    Fake, NAMESPACES, NODES, PODS, Reply, ReportedLeader, STATEFUL_SETS, alarm, deleted, deleted_by, evicted,
    review,
};

const CONTROLLER: &str = "system:serviceaccount:kube-system:statefulset-controller";
const REMOVED: &str = "clusters: [{namespace: db, selector: app=etcd, memberOnPodDelete: remove}]";

#[tokio::test(start_paused = true)]
async fn a_follower_of_three_is_reserved_and_allowed() {
    let fake = Fake::of(3);
    let ruling = deleted(&fake, LEAST, "etcd-1").await;
    assert_outcome(&ruling, Expected::Allow);
    assert!(ruling.warnings.is_empty(), "{:?}", ruling.warnings);
    assert_eq!(fake.content().actions, ["reserved etcd-1"]);
    let audit: Vec<(&str, &str)> = ruling.audit.iter().collect();
    assert!(audit.contains(&("etcd-cluster", "db/etcd")), "{audit:?}");
}

#[tokio::test(start_paused = true)]
async fn a_leader_transfers_to_the_member_with_the_least_lag() {
    let fake = Fake::of(3).with(|state| state.etcd_member("etcd-1").behind = 900);
    let ruling = deleted(&fake, LEAST, "etcd-0").await;
    assert_outcome(&ruling, Warning::Transferred { to: "etcd-2".into() });
    assert_eq!(fake.content().actions, ["reserved etcd-0", "etcd-0 to 12"]);
}

#[tokio::test(start_paused = true)]
async fn a_leader_does_not_transfer_to_a_member_that_leaves_soon() {
    let cordoned = Fake::of(3).with(|state| {
        state.insert(NODES, json!({"metadata": {"name": "n1"}, "spec": {"unschedulable": true}}));
    });
    assert_outcome(&deleted(&cordoned, LEAST, "etcd-0").await, Warning::Transferred { to: "etcd-2".into() });
    let updated = Fake::of(3).with(|state| {
        state.edit(PODS, "etcd-2", |pod| pod["metadata"]["labels"]["controller-revision-hash"] = "r2".into());
    });
    assert_outcome(&deleted(&updated, LEAST, "etcd-0").await, Warning::Transferred { to: "etcd-2".into() });
    let plain = Fake::of(3);
    assert_outcome(&deleted(&plain, LEAST, "etcd-0").await, Warning::Transferred { to: "etcd-1".into() });
}

#[tokio::test(start_paused = true)]
async fn leader_refuse_denies_users_and_transfers_for_controllers() {
    let yaml = format!("onLeaderDelete: deny\n{LEAST}");
    let fake = Fake::of(3);
    let ruling = deleted(&fake, &yaml, "etcd-0").await;
    assert_outcome(&ruling, DenyReason::LeaderForbidden);
    assert!(fake.content().actions.is_empty());
    assert_outcome(&deleted(&fake, &yaml, "etcd-1").await, Expected::Allow);
    let fake = Fake::of(3);
    assert_outcome(
        &deleted_by(&fake, &yaml, "etcd-0", CONTROLLER, |_| {}).await,
        Warning::Transferred { to: "etcd-1".into() },
    );
}

#[tokio::test(start_paused = true)]
async fn leader_allow_warns_about_the_leader() {
    let yaml = format!("onLeaderDelete: allow\n{LEAST}");
    assert_outcome(&deleted(&Fake::of(3), &yaml, "etcd-0").await, Warning::Election);
    let at_once = |r: &mut serde_json::Value| r["options"]["gracePeriodSeconds"] = 0.into();
    assert_outcome(
        &deleted_by(&Fake::of(3), &yaml, "etcd-0", "ann", at_once).await,
        Warning::Concern(Concern::KilledLeader),
    );
}

#[tokio::test(start_paused = true)]
async fn without_transfers_users_are_denied_and_controllers_with_a_grace_period_allowed() {
    let fake = || Fake::of(3).with(|state| state.etcd.transfer_result = Some(TransferResult::Unsupported));
    let person = fake();
    assert_outcome(&deleted(&person, LEAST, "etcd-0").await, DenyReason::NoTransfer);
    assert_eq!(person.content().actions, ["reserved etcd-0", "etcd-0 to 11"]);
    assert_outcome(
        &deleted_by(&fake(), LEAST, "etcd-0", CONTROLLER, |_| {}).await,
        Warning::TransferOnStop { seconds: 30 },
    );
    let at_once = |r: &mut serde_json::Value| r["options"]["gracePeriodSeconds"] = 0.into();
    assert_outcome(&deleted_by(&fake(), LEAST, "etcd-0", CONTROLLER, at_once).await, DenyReason::NoTransfer);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_does_not_transfer_stays() {
    let bad = Fake::of(3).with(|state| state.etcd.transfer_result = Some(TransferResult::BadTarget));
    assert_outcome(&deleted(&bad, LEAST, "etcd-0").await, DenyReason::NoSuccessor);
    assert_eq!(bad.content().actions, ["reserved etcd-0", "etcd-0 to 11", "etcd-0 to 12"]);
    let why = admission::Cause::new(cause::TIMEOUT, "leader transfer took too long");
    let slow = Fake::of(3).with(|state| state.etcd.transfer_result = Some(TransferResult::Unknown(why)));
    assert_outcome(&deleted(&slow, LEAST, "etcd-0").await, Expected::Unread(cause::TIMEOUT));
    assert_eq!(slow.content().actions.iter().filter(|action| action.contains(" to ")).count(), 2);
    let lies = Fake::of(3).with(|state| state.etcd.transfer_result = Some(TransferResult::Transferred));
    let ruling = evicted(&lies, LEAST, "etcd-0").await;
    assert_outcome(&ruling, DenyReason::LeadershipMoved { to: "etcd-1".into() });
    let Verdict::Deny(denial) = ruling.ruling.verdict else { panic!() };
    assert_eq!(denial.code, Code::TooManyRequests);
}

#[tokio::test(start_paused = true)]
async fn with_one_of_three_down_only_that_one_is_allowed() {
    let ruling = deleted(&Fake::of(3).down(&["etcd-2"]), LEAST, "etcd-1").await;
    assert_outcome(&ruling, quorum(1, 3));
    for code in [cause::NOT_LISTENING, cause::UNREACHABLE, cause::TIMEOUT, cause::TLS] {
        let fake = Fake::of(3).with(|state| state.etcd_member("etcd-2").reply = Reply::NoResponse(code));
        assert_outcome(&deleted(&fake, LEAST, "etcd-2").await, Expected::Allow);
        assert_eq!(fake.content().actions, ["reserved etcd-2"], "it can become healthy before its deletion");
    }
}

#[tokio::test(start_paused = true)]
async fn one_of_five_can_be_down_but_not_two() {
    assert_outcome(&deleted(&Fake::of(5).down(&["etcd-4"]), LEAST, "etcd-1").await, Expected::Allow);
    assert_outcome(&deleted(&Fake::of(5).down(&["etcd-4", "etcd-3"]), LEAST, "etcd-1").await, quorum(2, 5));
    assert_outcome(
        &deleted(&Fake::of(5).down(&["etcd-4", "etcd-3"]), LEAST, "etcd-3").await,
        Expected::Allow,
    );
}

#[tokio::test(start_paused = true)]
async fn a_learner_is_allowed_and_a_follower_warns() {
    let fake = || {
        Fake::of(4).with(|state| {
            let learner = state.etcd_member("etcd-3");
            learner.is_learner = true;
            learner.reply = Reply::ReadHangs;
        })
    };
    assert_outcome(&deleted(&fake(), LEAST, "etcd-3").await, Warning::Learner);
    assert_outcome(
        &deleted(&fake(), LEAST, "etcd-1").await,
        Warning::Concern(Concern::MembershipChange(vec![MembershipChange::Learners(1)])),
    );
    let started = Fake::of(3).with(|state| state.etcd.listed = vec![Member { id: 99, ..Member::default() }]);
    assert_outcome(&deleted(&started, LEAST, "etcd-1").await, quorum(2, 4));
}

#[tokio::test(start_paused = true)]
async fn after_quorum_loss_dead_members_are_allowed_and_the_others_stay() {
    let fake = || Fake::of(3).down(&["etcd-1", "etcd-2"]).leaderless();
    assert_outcome(&deleted(&fake(), LEAST, "etcd-2").await, Warning::QuorumUncertain);
    assert_outcome(&deleted(&fake(), LEAST, "etcd-0").await, DenyReason::QuorumLost);
    // If two know no leader, a third without a response has no quorum.
    let unreachable = |down: &[&str]| {
        let fake = Fake::of(3).leaderless();
        for name in down {
            fake.content().etcd_member(name).reply = Reply::NoResponse(cause::TIMEOUT);
        }
        fake
    };
    assert_outcome(&deleted(&unreachable(&["etcd-2"]), LEAST, "etcd-2").await, Warning::QuorumLost);
    // Two members without a response may be a quorum by themselves.
    assert_outcome(
        &deleted(&unreachable(&["etcd-1", "etcd-2"]), LEAST, "etcd-2").await,
        Expected::NoResponse("etcd-2", cause::TIMEOUT),
    );
}

#[tokio::test(start_paused = true)]
async fn clusters_of_one_and_two_warn_about_the_outage() {
    assert_outcome(&deleted(&Fake::of(1), LEAST, "etcd-0").await, Warning::Outage { voters: 1 });
    assert_outcome(&deleted(&Fake::of(2), LEAST, "etcd-1").await, Warning::Outage { voters: 2 });
    assert_outcome(
        &deleted(&Fake::of(2).down(&["etcd-1"]).leaderless(), LEAST, "etcd-0").await,
        DenyReason::QuorumLost,
    );
}

#[tokio::test(start_paused = true)]
async fn the_leader_of_the_higher_term_counts() {
    let fake = || {
        Fake::of(3).with(|state| {
            state.etcd.leader = Some(11);
            for one in state.etcd.members.values_mut() {
                one.term = 5;
            }
            let old = state.etcd_member("etcd-0");
            (old.term, old.leader, old.reply) = (4, ReportedLeader::Member(10), Reply::ReadHangs);
        })
    };
    assert_outcome(&deleted(&fake(), LEAST, "etcd-2").await, MemberProblem::OtherTerm { own: 4, others: 5 });
    assert_outcome(
        &deleted(&fake(), LEAST, "etcd-0").await,
        Warning::Unhealthy(MemberProblem::OtherTerm { own: 4, others: 5 }),
    );
}

#[tokio::test(start_paused = true)]
async fn a_full_database_is_reported_and_a_corrupt_member_does_not_count() {
    let full = Fake::of(3).with(|state| state.etcd.alarms = vec![alarm(11, AlarmKind::NoSpace)]);
    assert_outcome(
        &deleted(&full, LEAST, "etcd-2").await,
        Warning::Note(Note::NoSpace(vec![Some("etcd-1".into())])),
    );
    let corrupt = || Fake::of(3).with(|state| state.etcd.alarms = vec![alarm(11, AlarmKind::Corrupt)]);
    assert_outcome(&deleted(&corrupt(), LEAST, "etcd-2").await, MemberState::Corrupt);
    assert_text(
        &deleted(&corrupt(), LEAST, "etcd-2").await,
        "deny",
        "\nNext: replace etcd-1 first, its data is corrupt, then retry",
    );
    assert_outcome(&deleted(&corrupt(), LEAST, "etcd-1").await, Warning::CorruptData);
    assert_outcome(&deleted(&corrupt().down(&["etcd-2"]), LEAST, "etcd-1").await, quorum(1, 3));
}

#[tokio::test(start_paused = true)]
async fn a_member_that_hangs_does_not_count_and_costs_only_its_deadline() {
    for reply in [Reply::Hangs, Reply::ReadHangs] {
        let fake = Fake::of(3).with(|state| state.etcd_member("etcd-2").reply = reply);
        let begun = tokio::time::Instant::now();
        assert_outcome(&deleted(&fake, LEAST, "etcd-1").await, quorum(1, 3));
        assert!(begun.elapsed() < std::time::Duration::from_millis(1100), "{:?}", begun.elapsed());
    }
    let behind = Fake::of(3).with(|state| state.etcd_member("etcd-2").behind = 5001);
    assert_outcome(&deleted(&behind, LEAST, "etcd-1").await, MemberProblem::Behind(5001));
    let enough = Fake::of(3).with(|state| state.etcd_member("etcd-2").behind = 5000);
    assert_outcome(&deleted(&enough, LEAST, "etcd-1").await, Expected::Allow);
}

#[tokio::test(start_paused = true)]
async fn a_denied_read_confirms_the_quorum() {
    let fake = Fake::of(3).with(|state| {
        for one in state.etcd.members.values_mut() {
            one.reply = Reply::ReadDenied;
        }
    });
    assert_outcome(&deleted(&fake, LEAST, "etcd-1").await, Expected::Allow);
}

#[tokio::test(start_paused = true)]
async fn an_isolated_member_with_an_old_list_never_makes_a_deletion_allowed() {
    // etcd-2 was isolated when three members existed, and two have been added. Three of the other four are a quorum.
    for leader in [ReportedLeader::None, ReportedLeader::Consensus, ReportedLeader::Member(12)] {
        for down in 0..16_u8 {
            let others = ["etcd-0", "etcd-1", "etcd-3", "etcd-4"];
            let is_down = |at: usize| down & (1 << at) != 0;
            let stopped: Vec<&str> =
                others.iter().enumerate().filter(|(at, _)| is_down(*at)).map(|(_, name)| *name).collect();
            if stopped.len() != 1 && stopped.len() != 2 {
                continue;
            }
            for target in others.iter().filter(|name| !stopped.contains(*name)) {
                let fake = Fake::of(5).down(&stopped).with(|state| {
                    let isolated = state.etcd_member("etcd-2");
                    isolated.old_list = Some(vec![10, 11, 12]);
                    (isolated.reply, isolated.leader) = (Reply::ReadHangs, leader);
                });
                let reviewed = deleted(&fake, LEAST, target).await;
                assert_ne!(
                    verdict_of(&reviewed),
                    "allow",
                    "{target} with {stopped:?} down: {:?}",
                    reviewed.outcome
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_that_the_operator_removes_reduces_the_quorum() {
    let fake = || {
        Fake::of(3).down(&["etcd-2"]).with(|state| {
            state.etcd.listed.clear();
            state.etcd.members.remove("etcd-2");
        })
    };
    // One of two remaining members is not a quorum, one of one is.
    let ruling = deleted(&fake(), REMOVED, "etcd-1").await;
    assert_outcome(&ruling, Expected::Allow);
    assert!(ruling.warnings.is_empty(), "{:?}", ruling.warnings);
    assert_outcome(
        &deleted(&fake(), LEAST, "etcd-1").await,
        DenyReason::TooFewVoters { voters: 2, expected: 3 },
    );
}

#[tokio::test(start_paused = true)]
async fn names_of_containers_prove_no_member_to_be_down() {
    // The container etcd only looks like it, and the member runs in the other one.
    let misnamed = |fake: Fake| {
        fake.with(|state| {
            state.edit(PODS, "etcd-1", |pod| {
                pod["spec"]["containers"] = json!([{"name": "etcd", "image": "etcd:3.5.16"}, {"name": "store", "image": "store"}]);
                pod["status"]["containerStatuses"] = json!([{"name": "etcd", "state": {"waiting": {}}}, {"name": "store", "state": {"running": {}}}]);
            });
        })
    };
    let ruling = deleted(&misnamed(Fake::of(3).down(&["etcd-2"])), LEAST, "etcd-1").await;
    assert_outcome(&ruling, quorum(1, 3));
    // The port refuses connections. A firewall or a wrong port looks the same, and the quorum of the others needs this member.
    let refused = misnamed(Fake::of(3).down(&["etcd-1", "etcd-2"]));
    assert_outcome(
        &deleted(&refused, LEAST, "etcd-1").await,
        Expected::NoResponse("etcd-1", cause::NOT_LISTENING),
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_absent_in_another_cluster_allows_nothing() {
    for absent in [NAMESPACES, STATEFUL_SETS, NODES] {
        let fake = Fake::of(3).with(|state| {
            state.remove(PODS, "etcd-1");
            state.retain(absent, |_| false);
        });
        let ruling = review(&fake.guard(LEAST), &super::fixture::delete("etcd-1", |_| {})).await;
        assert_outcome(&ruling, UnknownCause::OtherApiServer);
    }
}

/// A hook can remove the member always, under a condition or never, and the pod doesn't show which.
#[tokio::test(start_paused = true)]
async fn a_hook_does_not_change_the_quorum() {
    let shell = |script: &str| json!(["/bin/sh", "-ec", script]);
    let hooks = [
        json!([]),
        json!(["etcdctl", "member", "remove", "11"]),
        shell("etcdctl member remove $(id)"),
        shell("if [ \"$(replicas)\" -lt 4 ]; then etcdctl member remove $(id); fi"),
        shell("# etcdctl member remove is for an administrator\nsleep 5"),
        json!(["/bin/sh", "/scripts/pre-stop.sh"]),
    ];
    for hook in hooks {
        let fake = |down: &[&str]| {
            Fake::of(4).down(down).with(|state| {
                let hook = json!({"preStop": {"exec": {"command": hook}}});
                state.edit(PODS, "etcd-1", |pod| pod["spec"]["containers"][0]["lifecycle"] = hook);
            })
        };
        // Two of four are no quorum, and two of the three others are.
        let one_down = fake(&["etcd-3"]);
        let ruling = deleted(&one_down, LEAST, "etcd-1").await;
        assert_outcome(&ruling, quorum(2, 4));
        assert_outcome(&deleted(&one_down, REMOVED, "etcd-1").await, Expected::Allow);
        assert_outcome(&deleted(&fake(&[]), LEAST, "etcd-1").await, Expected::Allow);
    }
}

#[tokio::test(start_paused = true)]
async fn data_loss_is_warned_about_and_that_of_the_last_copy_denied() {
    let fake = |members| {
        let volumes = json!([{"name": "data", "emptyDir": {}}]);
        Fake::of(members).with(|state| {
            state.edit_all(PODS, |pod| pod["spec"]["volumes"] = volumes.clone());
        })
    };
    for members in [2, 3] {
        assert_outcome(&deleted(&fake(members), LEAST, "etcd-1").await, Warning::Concern(Concern::DataLoss));
    }
    for yaml in [LEAST, REMOVED] {
        let alone = fake(1);
        assert_outcome(&deleted(&alone, yaml, "etcd-0").await, DenyReason::LastCopy);
        assert!(alone.content().actions.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn teardown_and_repair_are_allowed_without_asking_members() {
    type Change = fn(&mut fake::FakeContent);
    let changes: [(&str, Change); 7] = [
        ("namespace", |s| {
            s.edit(NAMESPACES, "db", |it| it["metadata"]["deletionTimestamp"] = "x".into());
        }),
        ("namespace", |s| s.remove(NAMESPACES, "db")),
        ("StatefulSet", |s| s.remove(STATEFUL_SETS, "etcd")),
        ("StatefulSet", |s| {
            s.edit(STATEFUL_SETS, "etcd", |it| it["metadata"]["uid"] = "other".into());
        }),
        ("StatefulSet", |s| {
            s.edit(STATEFUL_SETS, "etcd", |it| it["metadata"]["deletionTimestamp"] = "x".into());
        }),
        ("node", |s| s.remove(NODES, "n1")),
        ("already being deleted", |s| {
            s.edit(PODS, "etcd-1", |pod| pod["metadata"]["deletionTimestamp"] = "x".into());
        }),
    ];
    for (why, change) in changes {
        // The name of the controller does not matter.
        for user in ["ann", CONTROLLER, "system:kube-controller-manager"] {
            let fake = Fake::of(3).down(&["etcd-2"]).with(change);
            let ruling = deleted_by(&fake, LEAST, "etcd-1", user, |_| {}).await;
            assert_outcome(&ruling, Expected::Allow);
            assert!(ruling.audit.iter().any(|(_, value)| value.contains(why)), "{why}: {:?}", ruling.audit);
            assert_eq!(fake.activity(), (0, 0), "{why}");
        }
    }
    let mirror = Fake::of(3).with(|s| {
        s.edit(PODS, "etcd-1", |pod| {
            pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        });
    });
    assert_outcome(&deleted(&mirror, LEAST, "etcd-1").await, Allowed::MirrorPod);
    assert_eq!(mirror.activity().0, 0);
}

/// A kubelet that is cut off reports old states, and everyone with `pods/status` can write them.
#[tokio::test(start_paused = true)]
async fn a_container_counts_as_down_only_if_its_member_does_not_answer() {
    let waiting = |s: &mut fake::FakeContent| {
        s.edit(PODS, "etcd-1", |pod| pod["status"]["containerStatuses"][0]["state"] = json!({"waiting": {}}));
    };
    let answers = Fake::of(3).down(&["etcd-2"]).with(waiting);
    assert_outcome(&deleted(&answers, LEAST, "etcd-1").await, quorum(1, 3));
    let silent = |s: &mut fake::FakeContent| {
        waiting(s);
        s.etcd_member("etcd-1").reply = Reply::NoResponse(cause::TIMEOUT);
    };
    // A quorum works, so this member or the third one is part of it.
    let needed = Fake::of(3).down(&["etcd-2"]).with(silent);
    assert_outcome(&deleted(&needed, LEAST, "etcd-1").await, Expected::Unknown);
    let lost = Fake::of(3).down(&["etcd-2"]).with(silent).leaderless();
    assert_outcome(&deleted(&lost, LEAST, "etcd-1").await, Expected::Allow);
    // Something listens. Durward's own settings may be wrong.
    let listens = Fake::of(3).down(&["etcd-2"]).with(waiting).with(|s| {
        for member in s.etcd.members.values_mut() {
            member.reply = Reply::NoResponse(cause::TLS);
        }
    });
    assert_outcome(&deleted(&listens, LEAST, "etcd-1").await, Expected::Unknown);
    let down = Fake::of(3).down(&["etcd-1", "etcd-2"]).with(waiting);
    let ruling = deleted(&down, LEAST, "etcd-1").await;
    assert_outcome(&ruling, Expected::Allow);
    assert!(ruling.audit.iter().any(|(_, value)| value == "etcd does not run in the pod"));
    // Its container may be restarted before the deletion.
    assert_eq!(down.activity().1, 1);
    // The member of another pod counts if it answers.
    let other = Fake::of(3).with(|s| {
        s.edit(PODS, "etcd-2", |pod| pod["status"]["containerStatuses"][0]["state"] = json!({"waiting": {}}));
    });
    assert_outcome(&deleted(&other, LEAST, "etcd-1").await, Expected::Allow);
}

#[tokio::test(start_paused = true)]
async fn an_orphaning_statefulset_is_not_a_teardown() {
    let fake = Fake::of(3).down(&["etcd-2"]).with(|s| {
        s.edit(STATEFUL_SETS, "etcd", |set| {
            set["metadata"]["deletionTimestamp"] = "x".into();
            set["metadata"]["finalizers"] = json!(["orphan"]);
        });
    });
    assert_outcome(&deleted(&fake, LEAST, "etcd-1").await, quorum(1, 3));
}

#[tokio::test(start_paused = true)]
async fn a_shortened_grace_period_of_a_leader_is_allowed_with_a_warning() {
    let fake = Fake::of(3);
    fake.mark_deleted("etcd-0");
    fake.mark_deleted("etcd-1");
    let at_once = |r: &mut serde_json::Value| r["options"]["gracePeriodSeconds"] = 0.into();
    assert_outcome(&deleted_by(&fake, LEAST, "etcd-0", "ann", at_once).await, Warning::StillLeads);
    assert!(deleted_by(&fake, LEAST, "etcd-1", "ann", at_once).await.warnings.is_empty());
    let kubelet = |r: &mut serde_json::Value| {
        at_once(r);
        r["userInfo"]["groups"] = json!(["system:nodes"]);
    };
    let before = fake.activity().0;
    assert!(deleted_by(&fake, LEAST, "etcd-0", "system:node:n0", kubelet).await.warnings.is_empty());
    assert_eq!(fake.activity().0, before);
    let blind = Fake::of(3).with_error("pods");
    blind.set("etcd-0", Reply::Hangs);
    blind.mark_deleted("etcd-0");
    assert_outcome(&deleted_by(&blind, LEAST, "etcd-0", "ann", at_once).await, Expected::Allow);
}

#[tokio::test(start_paused = true)]
async fn a_denied_eviction_makes_a_drain_wait() {
    let fake = Fake::of(3).down(&["etcd-2"]);
    let ruling = evicted(&fake, LEAST, "etcd-1").await;
    assert_outcome(&ruling, quorum(1, 3));
    let Verdict::Deny(denial) = ruling.ruling.verdict else { panic!() };
    assert_eq!((denial.code, denial.causes[0].reason.as_str()), (Code::TooManyRequests, "DisruptionBudget"));
    assert_outcome(&evicted(&Fake::of(3), LEAST, "etcd-1").await, Expected::Allow);
    let without_pod = Fake::of(3).with(|s| s.remove(PODS, "etcd-1"));
    let ruling = evicted(&without_pod, LEAST, "etcd-1").await;
    assert_outcome(&ruling, DenyReason::NoPod);
    let Verdict::Deny(denial) = ruling.ruling.verdict else { panic!() };
    assert_eq!(denial.code, Code::NotFound, "kubectl drain goes on");
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_rules_the_same_and_changes_nothing() {
    let yaml = LEAST;
    let moved = Expected::Warning(Warning::WouldTransfer { to: "etcd-1".into() });
    for (name, expected) in [("etcd-0", moved), ("etcd-1", Expected::Allow)] {
        let fake = Fake::of(3);
        let dry = |r: &mut serde_json::Value| r["dryRun"] = true.into();
        assert_outcome(&deleted_by(&fake, yaml, name, "ann", dry).await, expected.clone());
        let drain = evict(name, |r| r["object"]["deleteOptions"] = json!({"dryRun": ["All"]}));
        assert_outcome(&review(&fake.guard(yaml), &drain).await, expected.clone());
        assert!(fake.content().actions.is_empty(), "{:?}", fake.content().actions);
        // Clients of a snapshot have no writer.
        assert_outcome(&review(&fake.without_writer(yaml), &evict(name, |_| {})).await, expected);
    }
    let fake = Fake::of(3).down(&["etcd-2"]);
    let dry = |r: &mut serde_json::Value| r["dryRun"] = true.into();
    assert_outcome(&deleted_by(&fake, yaml, "etcd-1", "ann", dry).await, quorum(1, 3));
}

#[tokio::test(start_paused = true)]
async fn other_pods_are_ignored() {
    let fake =
        Fake::of(3).with(|s| s.edit(PODS, "etcd-1", |pod| pod["metadata"]["labels"] = json!({"app": "web"})));
    let ruling = deleted(&fake, LEAST, "etcd-1").await;
    assert_outcome(&ruling, Expected::Allow);
    assert!(ruling.is_unguarded);
    let other = "clusters: [{namespaceSelector: {matchLabels: {t: u}}, selector: app=etcd}]";
    let fake = Fake::of(3).down(&["etcd-2"]);
    assert_outcome(&deleted(&fake, other, "etcd-1").await, Expected::Allow);
    assert_eq!(fake.activity().0, 0);
    fake.content().edit(NAMESPACES, "db", |it| it["metadata"]["labels"] = json!({"t": "u"}));
    assert_outcome(&deleted(&fake, other, "etcd-1").await, quorum(1, 3));
    let exempt = format!("exempt: {{users: [ann]}}\n{LEAST}");
    let ruling = deleted(&fake, &exempt, "etcd-1").await;
    assert_outcome(&ruling, Expected::Allow);
    assert!(!ruling.is_unguarded);
}

#[tokio::test(start_paused = true)]
async fn an_override_on_the_pod_or_its_namespace_allows() {
    let override_annotations = |name: &str| json!({"durward.dev/delete-anyway": name, "durward.dev/delete-reason": "disk", "durward.dev/delete-until": "2026-11-21T18:00:00Z"});
    let fake = Fake::of(3).down(&["etcd-2"]).with(|s| {
        s.edit(PODS, "etcd-1", |pod| pod["metadata"]["annotations"] = override_annotations("etcd-1"));
    });
    assert_outcome(&deleted(&fake, LEAST, "etcd-1").await, Expected::Overridden);
    assert_outcome(&evicted(&fake, LEAST, "etcd-1").await, Expected::Overridden);
    let fake = Fake::of(3).down(&["etcd-2"]).with(|s| {
        s.edit(NAMESPACES, "db", |it| it["metadata"]["annotations"] = override_annotations("db"));
    });
    assert_outcome(&evicted(&fake, LEAST, "etcd-1").await, Expected::Overridden);
    let wrong = Fake::of(3).down(&["etcd-2"]).with(|s| {
        s.edit(PODS, "etcd-1", |pod| pod["metadata"]["annotations"] = override_annotations("etcd-2"));
    });
    assert_outcome(&deleted(&wrong, LEAST, "etcd-1").await, quorum(1, 3));
}
