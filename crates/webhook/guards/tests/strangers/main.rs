//! Reviews that no API server sent: random ones, as the fuzz target `reviews` sends them.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by them")]

mod check;

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::any;
use proptest::test_runner::{Config, TestCaseError, TestRng, TestRunner};

use check::{Bench, Effect, Outcome};

/// Reviews of one test.
const REVIEWS: u32 = 1_500;

/// Checks random reviews. Returns the outcomes. The reviews are the same in each run.
fn checked(guard: &'static str) -> Vec<Outcome> {
    let bench = Bench::new(Some(guard));
    let outcomes = std::cell::RefCell::new(Vec::new());
    let config = Config { cases: REVIEWS, failure_persistence: None, ..Config::default() };
    let seeded = TestRng::deterministic_rng(config.rng_algorithm);
    let mut runner = TestRunner::new_with_rng(config, seeded);
    let reviews = (vec(any::<u8>(), 0..40), any::<u8>());
    runner
        .run(&reviews, |(bytes, unreadable)| {
            let checked = bench.check(&check::body(&bytes), unreadable);
            outcomes.borrow_mut().extend(checked.map_err(TestCaseError::fail)?);
            Ok(())
        })
        .unwrap();
    outcomes.into_inner()
}

/// Returns how many reviews had an object and how many had not, and the kinds of effects. A test without one of them proves nothing.
fn summary(outcomes: &[Outcome]) -> (usize, usize, BTreeSet<Effect>) {
    let identified = outcomes.iter().filter(|outcome| outcome.is_identified).count();
    let effects = outcomes.iter().flat_map(|outcome| outcome.effects.iter().copied()).collect();
    (identified, outcomes.len() - identified, effects)
}

#[test]
fn the_etcd_guard_acts_only_for_pods_that_the_api_server_has() {
    let (identified, others, effects) = summary(&checked("etcd"));
    assert!(identified > 200 && others > 1_000, "{identified} {others}");
    assert_eq!(effects, [Effect::Write, Effect::MemberCall].into());
}

#[test]
fn the_deletion_guard_calls_member_clusters_only_for_objects_that_the_api_server_has() {
    let outcomes = checked("deletion");
    let (identified, others, effects) = summary(&outcomes);
    assert!(identified > 50 && others > 1_000, "{identified} {others}");
    assert_eq!(effects, [Effect::ClusterCall].into());
}

#[test]
fn the_lxcfs_guard_has_no_effect() {
    let (_, others, effects) = summary(&checked("lxcfs"));
    assert!(others > 1_000, "{others}");
    assert_eq!(effects, [].into());
}

#[test]
fn the_guard_of_policies_has_no_effect() {
    let (_, others, effects) = summary(&checked("resources"));
    assert!(others > 1_000, "{others}");
    assert_eq!(effects, [].into());
}
