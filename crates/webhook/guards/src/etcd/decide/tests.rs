//! A property over etcd clusters of every shape: an allowed deletion leaves a quorum of members that are known to be healthy.
//!
//! A description generates the members, and an oracle that is independent of the code predicts the verdict. The weights make each
//! verdict frequent.

mod page;

use std::cell::Cell;

use admission::Cause;
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};

use super::super::facts::Facts;
use super::super::facts::{Answers, PodFacts};
use super::super::fixture::{config, now};
use super::super::input::{Progress, Quorum};
use super::super::kube_reader::NodeState;
use super::super::pod::Pod;
use super::super::removal::Removal;
use super::super::removal::RemovalKind;
use super::super::reservations;
use super::super::size::DeclaredSizes;
use super::super::table::Table;
use super::*;
use cluster::cause;
use cluster::etcd::Id;
use cluster::etcd::{Alarm, AlarmKind, Member, MemberList, Read, Status};
use cluster::writer::Reservation;

/// The problem of one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MemberProblem {
    None,
    /// It does not answer, for this cause.
    NoResponse(&'static str),
    /// It knows no leader.
    Leaderless,
    /// It claims to lead, in an older term.
    OldTerm,
    /// It claims to lead, in the same term.
    Claims,
    /// Its reads fail.
    ReadFails,
    Behind,
    Corrupt,
    /// Its pod is being deleted.
    Deleting,
    /// Its node is deleted.
    WithoutNode,
    /// Its owner is deleted.
    WithoutOwner,
    /// It is in another etcd cluster.
    OtherCluster,
    /// Two pods have its id.
    Twice,
    /// It is not in the list.
    Unlisted,
    Learner,
}

const PROBLEMS: [MemberProblem; 13] = [
    MemberProblem::Leaderless,
    MemberProblem::OldTerm,
    MemberProblem::Claims,
    MemberProblem::ReadFails,
    MemberProblem::Behind,
    MemberProblem::Corrupt,
    MemberProblem::Deleting,
    MemberProblem::WithoutNode,
    MemberProblem::WithoutOwner,
    MemberProblem::OtherCluster,
    MemberProblem::Twice,
    MemberProblem::Unlisted,
    MemberProblem::Learner,
];

fn any_problem() -> impl Strategy<Value = MemberProblem> {
    prop_oneof![
        14 => Just(MemberProblem::None),
        2 => proptest::sample::select(&cause::ALL[..]).prop_map(MemberProblem::NoResponse),
        1 => Just(MemberProblem::NoResponse(cause::TIMEOUT)),
        2 => proptest::sample::select(&PROBLEMS[..]),
    ]
}

// Each flag is independent.
#[allow(clippy::struct_excessive_bools)]
#[derive(Debug, Clone)]
struct Any {
    members: Vec<MemberProblem>,
    target: usize,
    /// The index of the leader.
    leader: Option<usize>,
    /// Listed members without a pod.
    without_pod: u64,
    confirms_list: bool,
    has_reservation_error: bool,
    by_controller: bool,
    removes_member: bool,
    grace: Option<i64>,
    leader_rule: &'static str,
    /// Whether the target has a reservation.
    done: bool,
    /// Whether another pod has it instead.
    is_held: bool,
    sizes: DeclaredSizes,
    /// Whether the target does not come back.
    is_surplus: bool,
}

fn any_sizes() -> impl Strategy<Value = DeclaredSizes> {
    let unread = Some(Cause::new(cause::FORBIDDEN, "no"));
    prop_oneof![
        3 => (0..8_u64).prop_map(|size| DeclaredSizes { configured: Some(size), ..DeclaredSizes::default() }),
        3 => (0..8_u64).prop_map(|size| DeclaredSizes { owner: Some(size), ..DeclaredSizes::default() }),
        2 => (0..4_u64).prop_map(|least| DeclaredSizes { at_least: least, ..DeclaredSizes::default() }),
        1 => Just(DeclaredSizes { unread, ..DeclaredSizes::default() }),
    ]
}

fn any_case() -> impl Strategy<Value = Any> {
    let weighted = proptest::bool::weighted;
    let members = proptest::collection::vec(any_problem(), 1..7);
    let without_pod = prop_oneof![8 => Just(0_u64), 1 => 1..3_u64];
    let rule = proptest::sample::select(vec!["transfer", "deny", "allow"]);
    let leader = proptest::option::weighted(0.92, 0..6_usize);
    let how = (
        weighted(0.9),
        weighted(0.15),
        any::<bool>(),
        weighted(0.15),
        proptest::option::of(0..2_i64),
        rule,
        any::<bool>(),
        (any_sizes(), weighted(0.2), weighted(0.1)),
    );
    (members, 0..6_usize, leader, without_pod, how).prop_map(|(members, target, leader, without_pod, how)| {
        let (
            confirms_list,
            has_reservation_error,
            by_controller,
            removes_member,
            grace,
            leader_rule,
            done,
            said,
        ) = how;
        let (sizes, is_surplus, is_held) = said;
        let many = members.len();
        Any {
            target: target % many,
            leader: leader.map(|leader| leader % many),
            members,
            without_pod,
            confirms_list,
            has_reservation_error,
            by_controller,
            removes_member,
            grace,
            leader_rule,
            done,
            is_held: is_held && many > 1,
            sizes,
            is_surplus,
        }
    })
}

const CLUSTER: Id = 77;

fn fails<T>() -> Result<T, Cause> {
    Err(Cause::new(cause::TIMEOUT, "no answer"))
}

impl Any {
    fn id(at: usize) -> Id {
        10 + at as Id
    }

    fn leader(&self) -> Option<Id> {
        self.leader.map(Self::id)
    }

    fn is_listed(problem: MemberProblem) -> bool {
        !matches!(problem, MemberProblem::OtherCluster | MemberProblem::Unlisted)
    }

    fn list(&self) -> MemberList {
        let member = |id: Id, is_learner| Member {
            id,
            name: format!("etcd-{id}"),
            client_urls: vec!["http://x".to_owned()],
            is_learner,
        };
        let own = self.members.iter().enumerate().filter(|(_, problem)| Self::is_listed(**problem));
        let own = own.map(|(at, problem)| member(Self::id(at), *problem == MemberProblem::Learner));
        let without_pod = (0..self.without_pod).map(|at| member(90 + at, false));
        MemberList { cluster: CLUSTER, members: own.chain(without_pod).collect() }
    }

    /// Returns the number of voters.
    fn voters(&self) -> usize {
        self.list().members.iter().filter(|member| !member.is_learner).count()
    }

    fn view(&self, at: usize, problem: MemberProblem) -> Result<Box<Answers>, Cause> {
        if let MemberProblem::NoResponse(code) = problem {
            return Err(Cause::new(code, code));
        }
        let id = Self::id(at);
        let cluster = if problem == MemberProblem::OtherCluster { 5 } else { CLUSTER };
        let status = Status {
            cluster,
            member: id,
            leader: match problem {
                MemberProblem::Leaderless => None,
                MemberProblem::OldTerm | MemberProblem::Claims => Some(id),
                _ => self.leader(),
            },
            term: if problem == MemberProblem::OldTerm { 3 } else { 4 },
            index: 50_000,
            applied: Some(if problem == MemberProblem::Behind { 1 } else { 50_000 }),
            is_learner: problem == MemberProblem::Learner,
            version: "3.5.16".to_owned(),
            ..Status::default()
        };
        let list = MemberList { cluster, ..self.list() };
        let corrupt =
            self.members.iter().enumerate().filter(|(_, problem)| **problem == MemberProblem::Corrupt);
        let alarms = corrupt.map(|(at, _)| Alarm { member: Self::id(at), kind: AlarmKind::Corrupt });
        let reads = problem != MemberProblem::ReadFails && self.leader.is_some();
        Ok(Box::new(Answers {
            status,
            read: if reads { Ok(Read::Served) } else { fails() },
            members: if problem == MemberProblem::Learner { fails() } else { Ok(list.clone()) },
            by_quorum: if reads && self.confirms_list && problem != MemberProblem::Learner {
                Ok(list)
            } else {
                fails()
            },
            alarms: if problem == MemberProblem::Learner { fails() } else { Ok(alarms.collect()) },
        }))
    }

    fn facts(&self) -> Facts {
        let pods = |at: usize, uid: String, problem: MemberProblem| PodFacts {
            pod: Pod { is_deleting: problem == MemberProblem::Deleting && at != self.target, ..pod(&uid) },
            view: self.view(at, problem),
            node: (problem == MemberProblem::WithoutNode && at != self.target).then_some(NodeState::Deleted),
            is_without_owner: problem == MemberProblem::WithoutOwner && at != self.target,
            is_updated: false,
        };
        let own =
            self.members.iter().enumerate().map(|(at, problem)| pods(at, format!("uid-{at}"), *problem));
        let twice = self.members.iter().enumerate().filter(|(_, problem)| **problem == MemberProblem::Twice);
        let twice = twice.map(|(at, problem)| pods(at, format!("twin-of-{at}"), *problem));
        Facts {
            now: now(),
            cluster: "db/etcd".to_owned(),
            pods: own.chain(twice).collect(),
            sizes: self.sizes.clone(),
            surplus: self.is_surplus.then(|| format!("uid-{}", self.target)).into_iter().collect(),
            without_owner: std::collections::BTreeSet::new(),
            scaled_away: std::collections::BTreeSet::new(),
            began: now(),
            reservation: self.holder().filter(|_| !self.has_reservation_error).map(reservation),
            reservation_error: self.has_reservation_error.then(|| Cause::new(cause::FORBIDDEN, "no")),
        }
    }

    /// Returns the index of the pod with the reservation.
    fn holder(&self) -> Option<usize> {
        if self.is_held {
            return Some((self.target + 1) % self.members.len());
        }
        self.done.then_some(self.target)
    }

    /// Whether the target answers for another etcd cluster than most pods.
    fn is_elsewhere(&self) -> bool {
        let is_other = |problem: &MemberProblem| *problem == MemberProblem::OtherCluster;
        let answers = |problem: &&MemberProblem| !matches!(problem, MemberProblem::NoResponse(_));
        let target = self.members[self.target];
        let twins = self.members.iter().filter(|problem| **problem == MemberProblem::Twice).count();
        let foreign = self.members.iter().filter(answers).filter(|problem| is_other(problem)).count();
        let own = self.members.iter().filter(answers).count() + twins - foreign;
        let all = self.members.len() + twins;
        if is_other(&target) { own * 2 > all } else { answers(&&target) && foreign * 2 > all }
    }

    /// Whether this member is known to be healthy.
    fn is_healthy(&self, at: usize) -> bool {
        let leads = self.leader == Some(at);
        let excused = at == self.target
            && matches!(
                self.members[at],
                MemberProblem::Deleting | MemberProblem::WithoutNode | MemberProblem::WithoutOwner
            );
        self.is_led()
            && (self.members[at] == MemberProblem::None
                || excused
                || (leads && self.members[at] == MemberProblem::Claims))
    }

    /// Whether most pods are in one etcd cluster with one listed leader.
    fn is_led(&self) -> bool {
        let twins = self.members.iter().filter(|problem| **problem == MemberProblem::Twice).count();
        let unanswered = self
            .members
            .iter()
            .filter(|problem| matches!(problem, MemberProblem::NoResponse(_) | MemberProblem::OtherCluster))
            .count();
        let answering = self.members.len() + twins - unanswered;
        let has_one = self.leader.is_some_and(|leader| {
            Self::is_listed(self.members[leader]) && self.members[leader] != MemberProblem::Learner
        });
        let others = self
            .members
            .iter()
            .enumerate()
            .any(|(at, problem)| *problem == MemberProblem::Claims && Some(at) != self.leader);
        answering * 2 > self.members.len() + twins && has_one && !others
    }

    /// Returns the number of voters after the deletion: one less if it removes the member, which needs a healthy member and a grace
    /// period.
    fn remaining_voters(&self) -> usize {
        let removes_member = self.removes_member && self.grace != Some(0) && self.is_healthy(self.target);
        if removes_member { self.voters().saturating_sub(1) } else { self.voters() }
    }

    /// Whether a size of at most two is declared, and neither the list nor voters nor pods exceed it.
    fn is_small(&self) -> bool {
        let pods = self.members.len()
            + self.members.iter().filter(|problem| **problem == MemberProblem::Twice).count();
        let declared = self.sizes.configured.or(self.sizes.owner);
        let there = self.voters().max(pods) as u64;
        matches!(declared, Some(size) if size <= 2 && there <= size) && self.list().members.len() <= 2
    }

    /// Returns how many other voters answer and know no leader.
    fn leaderless(&self) -> usize {
        let knows_none = |problem: MemberProblem| match problem {
            MemberProblem::NoResponse(_)
            | MemberProblem::OtherCluster
            | MemberProblem::Unlisted
            | MemberProblem::Learner
            | MemberProblem::OldTerm
            | MemberProblem::Claims => false,
            MemberProblem::Leaderless => true,
            _ => self.leader.is_none(),
        };
        (0..self.members.len()).filter(|at| *at != self.target && knows_none(self.members[*at])).count()
    }

    /// Returns how many other voters neither refuse connections nor know no leader.
    fn uncertain(&self) -> usize {
        let refuse = |at: &usize| {
            self.members[*at] == MemberProblem::NoResponse(cause::NOT_LISTENING) && *at != self.target
        };
        let refuse = (0..self.members.len()).filter(refuse).count();
        self.voters().saturating_sub(1 + refuse + self.leaderless())
    }

    /// Whether a read succeeded.
    fn has_working_quorum(&self) -> bool {
        let reads = |problem: &MemberProblem| {
            !matches!(
                problem,
                MemberProblem::NoResponse(_) | MemberProblem::ReadFails | MemberProblem::OtherCluster
            )
        };
        self.leader.is_some() && self.members.iter().any(reads)
    }

    /// Whether this member answers as a voter that may be needed.
    fn votes(&self, at: usize) -> bool {
        !matches!(
            self.members[at],
            MemberProblem::NoResponse(_)
                | MemberProblem::OtherCluster
                | MemberProblem::Unlisted
                | MemberProblem::Learner
                | MemberProblem::Corrupt
        )
    }

    fn decision(&self) -> Step {
        self.decide(&self.facts(), &Progress::default(), |_, decision| decision)
    }

    fn decide<T>(&self, facts: &Facts, progress: &Progress, with: impl FnOnce(Input<'_>, Step) -> T) -> T {
        let effect = if self.removes_member { "remove" } else { "keep" };
        let config = config(&format!(
            "onLeaderDelete: {}\nclusters: [{{namespace: db, selector: app=etcd, memberOnPodDelete: {effect}}}]",
            self.leader_rule
        ));
        let pod = pod(&format!("uid-{}", self.target));
        let removal = Removal {
            kind: RemovalKind::Delete,
            namespace: "db".to_owned(),
            name: pod.name.clone(),
            grace: self.grace,
            dry_run: false,
            by_controller: self.by_controller,
            by_kubelet: false,
            only_uid: None,
            pod: None,
        };
        let entry = &config.clusters[0];
        let table = &Table::of(facts);
        let input = Input { config: &config, entry, removal: &removal, pod: &pod, facts, table, progress };
        with(input, decide(input))
    }
}

/// Returns a new reservation of the pod at this index.
fn reservation(at: usize) -> Reservation {
    reservations::next(None, &pod(&format!("uid-{at}")), None, now()).unwrap()
}

fn pod(uid: &str) -> Pod {
    Pod {
        namespace: "db".to_owned(),
        name: format!("pod-of-{uid}"),
        uid: uid.to_owned(),
        address: "10.0.0.1".to_owned(),
        keeps_data: true,
        grace: 30,
        ..Pod::default()
    }
}

#[test]
fn an_allowed_deletion_leaves_a_healthy_quorum() {
    let counts = [const { Cell::new(0_u32) }; 4];
    let runs = 8_000;
    let mut runner = TestRunner::new(Cases { failure_persistence: None, ..Cases::with_cases(runs) });
    let run = runner.run(&any_case(), |case| {
        let decision = case.decision();
        let others = (0..case.members.len()).filter(|at| *at != case.target && case.is_healthy(*at)).count();
        let of = case.remaining_voters();
        let holds = others > of / 2;
        let small = case.is_small();
        let (at, is_allowed) = match &decision {
            // An effect is decided only for a member that can be deleted.
            Err(effect) => {
                if matches!(effect, Effect::MoveLeader { .. }) {
                    prop_assert!(case.done && case.leader == Some(case.target));
                }
                (3, true)
            }
            Ok(decision) => match &decision.conclusion {
                Conclusion::Allow(_) => (0, true),
                Conclusion::Deny(_) => (1, false),
                Conclusion::Unknown(causes) => {
                    prop_assert!(!causes.is_empty());
                    (2, false)
                }
            },
        };
        counts[at].set(counts[at].get() + 1);
        if is_allowed && case.votes(case.target) {
            // One of two stays, even if the leader is unclear.
            let stays = |at: usize| {
                matches!(
                    case.members[at],
                    MemberProblem::None | MemberProblem::OldTerm | MemberProblem::Claims
                )
            };
            let one_is_left =
                case.voters() < 2 || (0..case.members.len()).any(|at| at != case.target && stays(at));
            let is_outage = small && one_is_left && !case.is_surplus;
            prop_assert!(holds || is_outage, "{others} of {of} are left: {decision:?}");
        }
        // A member that does not answer may be healthy, so it needs a quorum of the others or a lost quorum.
        if let MemberProblem::NoResponse(code) = case.members[case.target]
            && is_allowed
        {
            let rest = case.voters().saturating_sub(case.leaderless());
            let is_lost = !case.has_working_quorum() && rest < case.voters() / 2 + 1;
            // A refused connection proves that the member is gone only if the others that certainly work are a quorum, even if
            // they are behind or corrupt.
            let at_work = |at: usize| match case.members[at] {
                MemberProblem::None | MemberProblem::Behind | MemberProblem::Corrupt => case.leader.is_some(),
                MemberProblem::Claims => case.leader == Some(at),
                _ => false,
            };
            let at_work = (0..case.members.len()).filter(|at| *at != case.target && at_work(*at)).count();
            // Or no quorum is possible: all others refuse connections too, or know no leader.
            let is_refused = code == cause::NOT_LISTENING
                && if case.has_working_quorum() { at_work > of / 2 } else { case.uncertain() == 0 };
            prop_assert!(holds || is_lost || is_refused, "{rest} of {of} are left: {decision:?}");
            // It is never allowed while reads succeed under its leadership.
            prop_assert!(
                !(case.has_working_quorum() && case.is_led() && case.leader == Some(case.target)),
                "{decision:?}"
            );
        }
        // A pod of another etcd cluster may be needed there, and other pods wait for a reservation.
        if case.is_elsewhere() || case.is_held && !case.has_reservation_error {
            prop_assert!(!is_allowed, "{decision:?}");
        }
        // A healthy member is allowed only with a reservation.
        if decision.as_ref().is_ok_and(Decision::is_allowed)
            && case.is_healthy(case.target)
            && case.votes(case.target)
        {
            prop_assert!(case.done && !case.has_reservation_error, "{decision:?}");
        }
        // If all members are healthy, the deletion is allowed.
        let all_well = (0..case.members.len()).all(|at| case.is_healthy(at));
        // So is the deletion of one of two declared members.
        let may = holds || (small && !case.is_surplus);
        if all_well
            && case.without_pod == 0
            && !case.has_reservation_error
            && !case.is_held
            && case.leader != Some(case.target)
            && may
        {
            prop_assert!(is_allowed, "{decision:?}");
        }
        Ok(())
    });
    if let Err(found) = run {
        panic!("{found}\n{runner}");
    }
    // Each verdict must be frequent.
    let counts = counts.map(|count| count.get());
    assert!(counts.iter().all(|count| *count > runs / 30), "{counts:?} of {runs}");
}

#[test]
fn the_quorum_is_of_all_voters_or_of_the_remaining_ones() {
    for (voters, removes_member, needed, small) in [
        (1, false, 1, true),
        (2, false, 2, true),
        (3, false, 2, false),
        (4, false, 3, false),
        (5, false, 3, false),
        (1, true, 1, true),
        (2, true, 1, false),
        (3, true, 2, false),
        (4, true, 2, false),
        (5, true, 3, false),
    ] {
        let quorum = Quorum::of(voters, removes_member);
        assert_eq!((quorum.needed, quorum.is_impossible()), (needed, small), "{voters} {removes_member}");
    }
}
