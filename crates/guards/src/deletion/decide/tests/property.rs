//! One rule over all others: what is in use, or cannot be seen, is not allowed to go.
//!
//! The cases are weighted so that each verdict comes up often: were every cluster in use half of the time, nearly all cases
//! would be refused before anything else could go wrong.

use std::cell::Cell;

use proptest::test_runner::{Config as Cases, TestRunner};

use super::*;

/// One cluster: is something in use, would something stay, what could not be seen and why, and the acknowledgement.
type Is = (bool, bool, Vec<&'static str>, u8);

/// Every way in which one cluster can be.
fn any_seen() -> impl Strategy<Value = Is> {
    let weighted = proptest::bool::weighted;
    let silent = prop_oneof![
        6 => Just(vec![]),
        2 => proptest::sample::select(&cause::ALL[..]).prop_map(|code| vec![code]),
        // What may be acknowledged beside what may not, in both orders.
        1 => Just(vec![cause::TIMEOUT, cause::CROWDED]),
        1 => Just(vec![cause::CROWDED, cause::TIMEOUT]),
        1 => proptest::collection::vec(proptest::sample::select(&cause::ALL[..]), 2..4),
    ];
    let acknowledgement = prop_oneof![3 => Just(1_u8), 1 => Just(0), 1 => Just(2), 1 => Just(3)];
    (weighted(0.06), weighted(0.2), silent, acknowledgement)
}

fn acknowledgement(way: u8) -> Vec<(&'static str, &'static str)> {
    let (reason, until) = ("durward.dev/acknowledge-unreachable", "durward.dev/acknowledge-until");
    match way {
        0 => vec![],
        1 => vec![(reason, "cut"), (until, "2026-11-30T00:00:00Z")],
        2 => vec![(reason, "cut"), (until, "2026-11-20T00:00:00Z")],
        _ => vec![(until, "2026-11-30T00:00:00Z")],
    }
}

fn sight((used, stays, codes, _): &Is) -> Sight {
    let some = |is: bool| if is { vec![count("pod", &["a"])] } else { vec![] };
    Sight {
        in_use: some(*used),
        stays: some(*stays),
        unseen: codes.iter().map(|&code| Cause::new(code, code)).collect(),
    }
}

/// What is deleted.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Deed {
    Namespace,
    Definition,
    /// A definition whose objects Durward may not read.
    Uncovered,
}

/// What is deleted, of what kind of fleet, and what went wrong on the way.
#[derive(Debug, Clone)]
struct Case {
    here: Is,
    members: Vec<Is>,
    is_stale: bool,
    forgets: Option<usize>,
    deed: Deed,
    dry_run: bool,
    unmanaged: &'static str,
    names: &'static str,
}

fn any_case() -> impl Strategy<Value = Case> {
    let weighted = proptest::bool::weighted;
    let members = proptest::collection::vec(any_seen(), 0..5);
    let wrong = (weighted(0.05), proptest::option::weighted(0.1, 0..5_usize));
    let deed =
        prop_oneof![6 => Just(Deed::Namespace), 4 => Just(Deed::Definition), 1 => Just(Deed::Uncovered)];
    let either = |one: &'static str, other: &'static str| proptest::sample::select(vec![one, other]);
    let how = (deed, any::<bool>(), either("deny", "ignore"), either("show", "count"));
    // The one that asks is mostly whole: without its answer nothing else matters.
    let here = prop_oneof![4 => any::<bool>().prop_map(|stays| (false, stays, vec![], 1)), 1 => any_seen()];
    (here, members, wrong, how).prop_map(|(here, members, (is_stale, forgets), how)| {
        let (deed, dry_run, unmanaged, names) = how;
        Case { here, members, is_stale, forgets, deed, dry_run, unmanaged, names }
    })
}

impl Case {
    fn ruling(&self) -> Ruling {
        let members = self.members.iter().enumerate();
        let members = members
            .map(|(at, is)| (member(&format!("m{at}"), &acknowledgement(is.3), &[]), sight(is)))
            .collect();
        let mut facts = facts(members);
        facts.seen[0].sight = sight(&self.here);
        if let Some(at) = self.forgets.filter(|at| *at < facts.seen.len()) {
            facts.seen.remove(at);
        }
        if self.is_stale {
            facts.members = Err(Cause::new(cause::STALE_FLEET, "no answer"));
        }
        let group = if self.deed == Deed::Uncovered { "example.com" } else { "example.org" };
        let Self { unmanaged, names, .. } = self;
        let yaml = format!("{KARMADA}unmanaged: {unmanaged}\nnames: {names}\ncrds: {{groups: [{group}]}}");
        let mut target = match self.deed {
            Deed::Namespace => namespace("shop"),
            Deed::Definition | Deed::Uncovered => definition("widgets.example.org"),
        };
        target.dry_run = self.dry_run;
        close(&config(&yaml), &target, &facts)
    }

    /// What should come out, said again in other words than the code's.
    fn expected(&self) -> &'static str {
        if self.deed == Deed::Uncovered {
            return "unknown";
        }
        let clusters = std::iter::once(&self.here).chain(&self.members).enumerate();
        let asked: Vec<_> = clusters.filter(|(at, _)| self.forgets != Some(*at)).collect();
        let nobodys = ["crowded", "stale-fleet", "too-long"];
        let is_blind = asked.iter().any(|(at, (_, _, codes, acknowledged))| {
            let is_excused =
                *at > 0 && *acknowledged == 1 && !codes.iter().any(|code| nobodys.contains(code));
            !codes.is_empty() && !is_excused
        });
        if asked.iter().any(|(_, is)| is.0) {
            "deny"
        } else if self.is_stale || asked.len() <= self.members.len() || is_blind {
            "unknown"
        } else {
            "allow"
        }
    }

    /// Whether somebody's silence is acknowledged for one of its causes and not for another.
    fn is_half_excused(&self) -> bool {
        self.members.iter().any(|(_, _, codes, acknowledged)| {
            *acknowledged == 1 && codes.contains(&cause::TIMEOUT) && codes.contains(&cause::CROWDED)
        })
    }
}

fn found(ruling: &Ruling) -> &'static str {
    match &ruling.verdict {
        Verdict::Allow => "allow",
        Verdict::Deny(_) => "deny",
        Verdict::Unknown(causes) if causes.is_empty() || ruling.refusal.is_none() => "unknown without a word",
        Verdict::Unknown(_) => "unknown",
        Verdict::Mutate(_) => "mutate",
    }
}

#[test]
fn nothing_unseen_and_nothing_in_use_is_ever_allowed() {
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
        if case.is_half_excused() {
            one_more(&half);
        }
        Ok(())
    });
    if let Err(found) = run {
        panic!("{found}\n{runner}");
    }
    // Cases that all come out the same would prove nothing.
    let counts = [allowed.get(), denied.get(), unknown.get(), half.get()];
    assert!(counts.iter().all(|count| *count > cases / 20), "{counts:?} of {cases}");
}
