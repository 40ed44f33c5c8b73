//! One rule over all others, over ensembles of every shape: whoever goes leaves a quorum of members that are known to be well.
//!
//! The members are made from a description, and what should come of it is said again in other words than the code's. The cases are
//! weighted so that each verdict comes up often.

use std::cell::Cell;

use admission::Verdict;
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};

use super::super::facts::{Answers, Seen, View};
use super::super::fixture::{self, config, now};
use super::super::ground::Leaving;
use super::super::makers::Size;
use super::super::notes::Note;
use super::super::target::Deed;
use super::*;
use cluster::etcd::{Alarm, AlarmKind, Member, MemberList, Read, Status};

/// What is wrong with one member, if anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ill {
    /// Nothing.
    No,
    /// It does not answer, for this reason.
    Silent(&'static str),
    /// It knows no leader.
    Leaderless,
    /// It takes itself for the leader, in an older term.
    OldTerm,
    /// It takes itself for the leader, in the same term.
    Claims,
    /// Its reads come to nothing.
    ReadFails,
    Behind,
    Corrupt,
    /// Its pod is being deleted.
    Going,
    /// Its pod was let go.
    Reserved,
    /// Its node is gone.
    Stranded,
    /// What makes its pod goes.
    Unmade,
    /// It is of another ensemble.
    Elsewhere,
    /// Two pods say that they are it.
    Twice,
    /// It is in no list.
    Unlisted,
    Learner,
}

const ILLS: [Ill; 14] = [
    Ill::Leaderless,
    Ill::OldTerm,
    Ill::Claims,
    Ill::ReadFails,
    Ill::Behind,
    Ill::Corrupt,
    Ill::Going,
    Ill::Reserved,
    Ill::Stranded,
    Ill::Unmade,
    Ill::Elsewhere,
    Ill::Twice,
    Ill::Unlisted,
    Ill::Learner,
];

fn any_ill() -> impl Strategy<Value = Ill> {
    prop_oneof![
        14 => Just(Ill::No),
        2 => proptest::sample::select(&cause::ALL[..]).prop_map(Ill::Silent),
        1 => Just(Ill::Silent(cause::TIMEOUT)),
        2 => proptest::sample::select(&ILLS[..]),
    ]
}

// Each is one thing that may or may not be so.
#[allow(clippy::struct_excessive_bools)]
#[derive(Debug, Clone)]
struct Any {
    members: Vec<Ill>,
    target: usize,
    /// The place of the leader, where there is one.
    leader: Option<usize>,
    /// Members in the list that have no pod.
    absent: u64,
    knows_by_quorum: bool,
    is_book_unread: bool,
    by_controller: bool,
    leaves: bool,
    grace: Option<i64>,
    leader_rule: &'static str,
    done: bool,
    /// How many it is to have, as far as anybody says.
    size: Size,
    /// Whether the one that is to go does not come back.
    is_surplus: bool,
}

fn any_size() -> impl Strategy<Value = Size> {
    prop_oneof![
        6 => (0..8_u64).prop_map(Size::Told),
        2 => (0..4_u64).prop_map(Size::AtLeast),
        1 => Just(Size::Unread(Cause::new(cause::FORBIDDEN, "no"))),
    ]
}

fn any_case() -> impl Strategy<Value = Any> {
    let weighted = proptest::bool::weighted;
    let members = proptest::collection::vec(any_ill(), 1..7);
    let absent = prop_oneof![8 => Just(0_u64), 1 => 1..3_u64];
    let rule = proptest::sample::select(vec!["transfer", "refuse", "allow"]);
    let leader = proptest::option::weighted(0.92, 0..6_usize);
    let how = (
        weighted(0.9),
        weighted(0.05),
        any::<bool>(),
        weighted(0.15),
        proptest::option::of(0..2_i64),
        rule,
        any::<bool>(),
        (any_size(), weighted(0.2)),
    );
    (members, 0..6_usize, leader, absent, how).prop_map(|(members, target, leader, absent, how)| {
        let (knows_by_quorum, is_book_unread, by_controller, leaves, grace, leader_rule, done, said) = how;
        let (size, is_surplus) = said;
        let many = members.len();
        Any {
            target: target % many,
            leader: leader.map(|leader| leader % many),
            members,
            absent,
            knows_by_quorum,
            is_book_unread,
            by_controller,
            leaves,
            grace,
            leader_rule,
            done,
            size,
            is_surplus,
        }
    })
}

const ENSEMBLE: Id = 77;

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

    fn is_listed(ill: Ill) -> bool {
        !matches!(ill, Ill::Elsewhere | Ill::Unlisted)
    }

    fn list(&self) -> MemberList {
        let member = |id: Id, is_learner| Member {
            id,
            name: format!("etcd-{id}"),
            client_urls: vec!["http://x".to_owned()],
            is_learner,
            ..Member::default()
        };
        let own = self.members.iter().enumerate().filter(|(_, ill)| Self::is_listed(**ill));
        let own = own.map(|(at, ill)| member(Self::id(at), *ill == Ill::Learner));
        let absent = (0..self.absent).map(|at| member(90 + at, false));
        MemberList { cluster: ENSEMBLE, members: own.chain(absent).collect() }
    }

    /// How many vote.
    fn voters(&self) -> usize {
        self.list().members.iter().filter(|member| !member.is_learner).count()
    }

    fn view(&self, at: usize, ill: Ill) -> View {
        if let Ill::Silent(code) = ill {
            return View::Silent(Cause::new(code, code));
        }
        let id = Self::id(at);
        let cluster = if ill == Ill::Elsewhere { 5 } else { ENSEMBLE };
        let status = Status {
            cluster,
            member: id,
            leader: match ill {
                Ill::Leaderless => None,
                Ill::OldTerm | Ill::Claims => Some(id),
                _ => self.leader(),
            },
            term: if ill == Ill::OldTerm { 3 } else { 4 },
            index: 50_000,
            applied: Some(if ill == Ill::Behind { 1 } else { 50_000 }),
            is_learner: ill == Ill::Learner,
            version: "3.5.16".to_owned(),
            ..Status::default()
        };
        let list = MemberList { cluster, ..self.list() };
        let corrupt = self.members.iter().enumerate().filter(|(_, ill)| **ill == Ill::Corrupt);
        let alarms = corrupt.map(|(at, _)| Alarm { member: Self::id(at), kind: AlarmKind::Corrupt });
        let reads = ill != Ill::ReadFails && self.leader.is_some();
        View::Full(Box::new(Answers {
            status,
            read: if reads { Ok(Read::Served) } else { fails() },
            members: if ill == Ill::Learner { fails() } else { Ok(list.clone()) },
            by_quorum: if reads && self.knows_by_quorum && ill != Ill::Learner { Ok(list) } else { fails() },
            alarms: if ill == Ill::Learner { fails() } else { Ok(alarms.collect()) },
        }))
    }

    fn facts(&self) -> Facts {
        let seen = |at: usize, uid: String, ill: Ill| Seen {
            pod: Pod { is_going: ill == Ill::Going && at != self.target, ..pod(&uid) },
            view: self.view(at, ill),
            is_reserved: ill == Ill::Reserved && at != self.target,
            node: (ill == Ill::Stranded && at != self.target).then_some(Leaving::Gone),
            is_unmade: ill == Ill::Unmade && at != self.target,
            is_updated: false,
        };
        let own = self.members.iter().enumerate().map(|(at, ill)| seen(at, format!("uid-{at}"), *ill));
        let twice = self.members.iter().enumerate().filter(|(_, ill)| **ill == Ill::Twice);
        let twice = twice.map(|(at, ill)| seen(at, format!("twin-of-{at}"), *ill));
        Facts {
            now: now(),
            ensemble: "db/etcd".to_owned(),
            seen: own.chain(twice).collect(),
            is_verified: false,
            replicas: None,
            size: self.size.clone(),
            surplus: self.is_surplus.then(|| format!("uid-{}", self.target)).into_iter().collect(),
            unmade: std::collections::BTreeSet::new(),
            scaled_away: std::collections::BTreeSet::new(),
            book_unread: self.is_book_unread.then(|| Cause::new(cause::FORBIDDEN, "no")),
            ends: now(),
            note: Note::default(),
            giver: None,
        }
    }

    /// Whether this one is known to be well.
    fn is_well(&self, at: usize) -> bool {
        let leads = self.leader == Some(at);
        let excused = at == self.target
            && matches!(self.members[at], Ill::Going | Ill::Reserved | Ill::Stranded | Ill::Unmade);
        self.is_led()
            && (self.members[at] == Ill::No || excused || (leads && self.members[at] == Ill::Claims))
    }

    /// Whether most pods are of one ensemble, and it has one leader that is in its list.
    fn is_led(&self) -> bool {
        let twins = self.members.iter().filter(|ill| **ill == Ill::Twice).count();
        let silent = self.members.iter().filter(|ill| matches!(ill, Ill::Silent(_) | Ill::Elsewhere)).count();
        let told = self.members.len() + twins - silent;
        let has_one = self.leader.is_some_and(|leader| {
            Self::is_listed(self.members[leader]) && self.members[leader] != Ill::Learner
        });
        let others =
            self.members.iter().enumerate().any(|(at, ill)| *ill == Ill::Claims && Some(at) != self.leader);
        told * 2 > self.members.len() + twins && has_one && !others
    }

    /// How many vote once it is gone: one less where its hook takes it out of the list, which it does only if it is well and is
    /// given time.
    fn of(&self) -> usize {
        let leaves = self.leaves && self.grace != Some(0) && self.is_well(self.target);
        if leaves { self.voters().saturating_sub(1) } else { self.voters() }
    }

    /// Whether somebody says that it is to have two members at most, its list has no more, with those that do not vote yet, and
    /// neither voters nor pods are more than that.
    fn is_small(&self) -> bool {
        let pods = self.members.len() + self.members.iter().filter(|ill| **ill == Ill::Twice).count();
        let there = self.voters().max(pods) as u64;
        matches!(self.size, Size::Told(size) if size <= 2 && there <= size) && self.list().members.len() <= 2
    }

    /// How many of the others are voters that answer and know of no leader.
    fn leaderless(&self) -> usize {
        let knows_none = |ill: Ill| match ill {
            Ill::Silent(_) | Ill::Elsewhere | Ill::Unlisted | Ill::Learner | Ill::OldTerm | Ill::Claims => {
                false
            }
            Ill::Leaderless => true,
            _ => self.leader.is_none(),
        };
        (0..self.members.len()).filter(|at| *at != self.target && knows_none(self.members[*at])).count()
    }

    /// How many of the other voters neither refuse connections nor miss a leader.
    fn unheard(&self) -> usize {
        let refuse =
            |at: &usize| self.members[*at] == Ill::Silent(cause::NOT_LISTENING) && *at != self.target;
        let refuse = (0..self.members.len()).filter(refuse).count();
        self.voters().saturating_sub(1 + refuse + self.leaderless())
    }

    /// Whether anybody says that a quorum answers it.
    fn works(&self) -> bool {
        let reads = |ill: &Ill| !matches!(ill, Ill::Silent(_) | Ill::ReadFails | Ill::Elsewhere);
        self.leader.is_some() && self.members.iter().any(reads)
    }

    /// Whether this one answers as a voter whose vote may be needed.
    fn votes(&self, at: usize) -> bool {
        !matches!(
            self.members[at],
            Ill::Silent(_) | Ill::Elsewhere | Ill::Unlisted | Ill::Learner | Ill::Corrupt
        )
    }

    fn step(&self) -> Step {
        let config = config(&format!("leader: {}\n{}", self.leader_rule, fixture::LEAST));
        let pod = Pod { leaves: self.leaves, ..pod(&format!("uid-{}", self.target)) };
        let target = Target {
            deed: Deed::Delete,
            namespace: "db".to_owned(),
            name: pod.name.clone(),
            grace: self.grace,
            dry_run: false,
            by_controller: self.by_controller,
            by_kubelet: false,
            only: None,
            pod: None,
        };
        let done = Done { is_reserved: self.done, ..Done::default() };
        close(Case {
            config: &config,
            ensemble: &config.ensembles[0],
            target: &target,
            pod: &pod,
            facts: &self.facts(),
            done: &done,
        })
    }
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
fn whoever_goes_leaves_a_quorum_of_members_that_are_known_to_be_well() {
    let counts = [const { Cell::new(0_u32) }; 4];
    let runs = 8_000;
    let mut runner = TestRunner::new(Cases { failure_persistence: None, ..Cases::with_cases(runs) });
    let run = runner.run(&any_case(), |case| {
        let step = case.step();
        let others = (0..case.members.len()).filter(|at| *at != case.target && case.is_well(*at)).count();
        let of = case.of();
        let holds = others > of / 2;
        let small = case.is_small();
        let (at, goes) = match &step {
            // What is done before is done only for one that may go.
            Step::Act(effect) => {
                if matches!(effect, Effect::Move { .. }) {
                    prop_assert!(case.done && case.leader == Some(case.target));
                }
                (3, true)
            }
            Step::Rule(ruling) => match &ruling.verdict {
                Verdict::Allow => (0, true),
                Verdict::Deny(_) => (1, false),
                Verdict::Unknown(causes) => {
                    prop_assert!(!causes.is_empty() && ruling.refusal.is_some());
                    (2, false)
                }
                Verdict::Mutate(_) => return Err(TestCaseError::fail("it changes something")),
            },
        };
        counts[at].set(counts[at].get() + 1);
        if goes && case.votes(case.target) {
            // Of two one is left that stays, also where it is not clear which of the two leads; the only one has nobody beside it.
            let stays = |at: usize| matches!(case.members[at], Ill::No | Ill::OldTerm | Ill::Claims);
            let one_is_left =
                case.voters() < 2 || (0..case.members.len()).any(|at| at != case.target && stays(at));
            // Where most pods are of another ensemble, the only member of this one is a stranger there.
            let elsewhere = case.members.iter().filter(|ill| **ill == Ill::Elsewhere).count();
            let is_alone = case.voters() < 2 && elsewhere > 1;
            let is_outage = small && one_is_left && !case.is_surplus;
            prop_assert!(holds || is_outage || is_alone, "{others} of {of} are left: {step:?}");
        }
        // One that merely does not answer may be well: it is not let go for want of a quorum.
        if let Ill::Silent(code) = case.members[case.target]
            && goes
        {
            let rest = case.voters().saturating_sub(case.leaderless());
            let is_lost = !case.works() && rest < case.voters() / 2 + 1;
            // A connection that is refused tells that it is gone only where so many others are seen at work as are a quorum, be
            // they as far behind or as corrupt as they like.
            let at_work = |at: usize| match case.members[at] {
                Ill::No | Ill::Behind | Ill::Corrupt => case.leader.is_some(),
                Ill::Claims => case.leader == Some(at),
                _ => false,
            };
            let at_work = (0..case.members.len()).filter(|at| *at != case.target && at_work(*at)).count();
            // Or where nobody is left with whom it could be one: all others refuse too, or miss a leader.
            let is_refused = code == cause::NOT_LISTENING
                && if case.works() { at_work > of / 2 } else { case.unheard() == 0 };
            prop_assert!(holds || is_lost || is_refused, "{rest} of {of} are left: {step:?}");
            // And whatever it is silent for, it does not go where reads are served under it.
            prop_assert!(!(case.works() && case.is_led() && case.leader == Some(case.target)), "{step:?}");
        }
        // One of another ensemble that has more members is one of those.
        if case.members[case.target] == Ill::Elsewhere {
            prop_assert!(!goes, "{step:?}");
        }
        // Healthy members go only once it is noted, or can be.
        if matches!(&step, Step::Rule(ruling) if ruling.verdict == Verdict::Allow)
            && case.is_well(case.target)
            && case.votes(case.target)
        {
            prop_assert!(case.done && !case.is_book_unread, "{step:?}");
        }
        // And what can go may go: nothing is held up where all is well.
        let all_well = (0..case.members.len()).all(|at| case.is_well(at));
        // Neither is one of two that are all there are to be.
        let may = holds || (small && !case.is_surplus);
        if all_well && case.absent == 0 && !case.is_book_unread && case.leader != Some(case.target) && may {
            prop_assert!(goes, "{step:?}");
        }
        Ok(())
    });
    if let Err(found) = run {
        panic!("{found}\n{runner}");
    }
    // Cases that all come out the same would prove nothing.
    let counts = counts.map(|count| count.get());
    assert!(counts.iter().all(|count| *count > runs / 30), "{counts:?} of {runs}");
}

#[test]
fn the_arithmetic_is_of_all_or_of_those_that_stay() {
    for (voters, leaves, needed, small) in [
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
        let quorum = Quorum::of(voters, leaves);
        assert_eq!((quorum.needed, quorum.is_small()), (needed, small), "{voters} {leaves}");
    }
}
