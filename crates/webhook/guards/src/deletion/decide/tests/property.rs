//! Property: a deletion is never allowed while an object is in use or a cluster is unknown. The oracle decides in other words.
//!
//! The weights make each verdict frequent. If every cluster were in use half of the time, nearly all cases would be denials.

use std::cell::Cell;

use proptest::test_runner::{Config as Cases, TestRunner};

use super::*;

/// One cluster: whether something is in use, the unknown causes, and the acknowledgement.
type ClusterCase = (bool, Vec<&'static str>, u8);

/// Generates clusters.
fn any_cluster() -> impl Strategy<Value = ClusterCase> {
    let weighted = proptest::bool::weighted;
    let no_answer = prop_oneof![
        6 => Just(vec![]),
        2 => proptest::sample::select(&cause::ALL[..]).prop_map(|code| vec![code]),
        // A cause that can be acknowledged and one that cannot, in both orders.
        1 => Just(vec![cause::TIMEOUT, cause::OVERLOADED]),
        1 => Just(vec![cause::OVERLOADED, cause::TIMEOUT]),
        1 => proptest::collection::vec(proptest::sample::select(&cause::ALL[..]), 2..4),
    ];
    let acknowledgement = prop_oneof![3 => Just(1_u8), 1 => Just(0), 1 => Just(2), 1 => Just(3)];
    (weighted(0.06), no_answer, acknowledgement)
}

fn acknowledgement(kind: u8) -> Vec<(&'static str, &'static str)> {
    let (reason, until) = ("durward.dev/acknowledge-unreachable", "durward.dev/acknowledge-until");
    match kind {
        0 => vec![],
        1 => vec![(reason, "cut"), (until, "2026-11-30T00:00:00Z")],
        2 => vec![(reason, "cut"), (until, "2026-11-20T00:00:00Z")],
        _ => vec![(until, "2026-11-30T00:00:00Z")],
    }
}

fn findings((used, codes, _): &ClusterCase) -> ClusterFacts {
    ClusterFacts {
        in_use: if *used { vec![count("pod", &["a"])] } else { vec![] },
        unknown: codes.iter().map(|&code| Cause::new(code, code)).collect(),
        ..ClusterFacts::default()
    }
}

/// The object to delete.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Deleted {
    Namespace,
    Crd,
    /// A CRD of a group that Durward cannot read.
    UnreadableCrd,
}

/// A deletion, its facts, and the configuration.
#[derive(Debug, Clone)]
struct Case {
    local: ClusterCase,
    members: Vec<ClusterCase>,
    is_stale: bool,
    missing: Option<usize>,
    deleted: Deleted,
    dry_run: bool,
    show_names: bool,
}

fn any_case() -> impl Strategy<Value = Case> {
    let weighted = proptest::bool::weighted;
    let members = proptest::collection::vec(any_cluster(), 0..5);
    let wrong = (weighted(0.05), proptest::option::weighted(0.1, 0..5_usize));
    let deleted = prop_oneof![6 => Just(Deleted::Namespace), 4 => Just(Deleted::Crd), 1 => Just(Deleted::UnreadableCrd)];
    let how = (deleted, any::<bool>(), any::<bool>());
    // The local cluster mostly answers: without its answer nothing else matters.
    let local = prop_oneof![4 => Just((false, vec![], 1)), 1 => any_cluster()];
    (local, members, wrong, how).prop_map(|(local, members, (is_stale, missing), how)| {
        let (deleted, dry_run, show_names) = how;
        Case { local, members, is_stale, missing, deleted, dry_run, show_names }
    })
}

impl Case {
    fn ruling(&self) -> Ruling {
        let members = self.members.iter().enumerate();
        let members = members
            .map(|(at, is)| (member(&format!("m{at}"), &acknowledgement(is.2)), findings(is)))
            .collect();
        let mut facts = facts(members);
        facts.clusters[0] = findings(&self.local);
        if let Some(at) = self.missing.filter(|at| *at < facts.clusters.len()) {
            facts.clusters.remove(at);
        }
        if self.is_stale {
            facts.members = Err(Cause::new(cause::STALE_FLEET, "no answer"));
        }
        let group = if self.deleted == Deleted::UnreadableCrd { "example.com" } else { "example.org" };
        let show_names = self.show_names;
        let yaml = format!("{KARMADA}showObjectNames: {show_names}\ncrds: {{apiGroups: [{group}]}}");
        let mut target = match self.deleted {
            Deleted::Namespace => namespace("shop"),
            Deleted::Crd | Deleted::UnreadableCrd => crd("widgets.example.org"),
        };
        target.dry_run = self.dry_run;
        close(&config(&yaml), &target, &facts)
    }

    /// Returns the expected verdict.
    fn expected(&self) -> &'static str {
        if self.deleted == Deleted::UnreadableCrd {
            return "unknown";
        }
        let clusters = std::iter::once(&self.local).chain(&self.members).enumerate();
        let read: Vec<_> = clusters.filter(|(at, _)| self.missing != Some(*at)).collect();
        let uncovered = ["overloaded", "policy-limit", "stale-fleet", "too-long"];
        let is_unknown = read.iter().any(|(at, (_, codes, acknowledged))| {
            let is_covered =
                *at > 0 && *acknowledged == 1 && !codes.iter().any(|code| uncovered.contains(code));
            !codes.is_empty() && !is_covered
        });
        if read.iter().any(|(_, is)| is.0) {
            "deny"
        } else if self.is_stale || read.len() <= self.members.len() || is_unknown {
            "unknown"
        } else {
            "allow"
        }
    }

    /// Whether an acknowledgement covers one cause of a cluster and not another.
    fn is_partly_covered(&self) -> bool {
        self.members.iter().any(|(_, codes, acknowledged)| {
            *acknowledged == 1 && codes.contains(&cause::TIMEOUT) && codes.contains(&cause::OVERLOADED)
        })
    }
}

fn found(ruling: &Ruling) -> &'static str {
    match &ruling.verdict {
        Verdict::Allow => "allow",
        Verdict::Deny(_) => "deny",
        Verdict::Unknown(causes) if causes.is_empty() || ruling.refusal.is_none() => "unknown without causes",
        Verdict::Unknown(_) => "unknown",
        Verdict::Mutate(_) => "mutate",
    }
}

#[test]
fn never_allows_unknown_or_used_objects() {
    let [allowed, denied, unknown, half] = [const { Cell::new(0_u32) }; 4];
    let one_more = |of: &Cell<u32>| of.set(of.get() + 1);
    let cases = 2_000;
    let mut runner = TestRunner::new(Cases { failure_persistence: None, ..Cases::with_cases(cases) });
    let run = runner.run(&any_case(), |case| {
        let (ruling, expected) = (case.ruling(), case.expected());
        prop_assert_eq!(found(&ruling), expected, "{:?}", ruling);
        let settled = settled(ruling, &SettlePolicy::new(OnUnknown::Deny));
        prop_assert_eq!(matches!(settled.answer, admission::Answer::Allow), expected == "allow");
        one_more(match expected {
            "allow" => &allowed,
            "deny" => &denied,
            _ => &unknown,
        });
        if case.is_partly_covered() {
            one_more(&half);
        }
        Ok(())
    });
    if let Err(found) = run {
        panic!("{found}\n{runner}");
    }
    // Cases with one verdict only would prove nothing.
    let counts = [allowed.get(), denied.get(), unknown.get(), half.get()];
    assert!(counts.iter().all(|count| *count > cases / 20), "{counts:?} of {cases}");
}
