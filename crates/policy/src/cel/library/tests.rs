use std::collections::BTreeSet;

use super::*;
use crate::cel::cost::Cost;
use crate::release::{NEWEST, OLDEST};

/// Overloads that cost 1, and those that the planner replaces.
const COST_ONE: &str = "
";

#[test]
fn each_overload_has_a_cost_or_costs_one_on_purpose() {
    let known: BTreeSet<&str> = COST_ONE.split_whitespace().collect();
    let mut seen = BTreeSet::new();
    let mut wrong = BTreeSet::new();
    for server in OLDEST..=NEWEST {
        let release = Release::for_stored(server);
        for function in Library::new(release).functions.values() {
            for overload in &function.overloads {
                let id = overload.id;
                let expected = known.contains(id) || (id == "matches" && server < 37);
                if (Cost::new(function.name, id, release) == Cost::Fixed(1)) != expected {
                    wrong.insert(id);
                }
                seen.insert(id);
            }
        }
    }
    assert!(wrong.is_empty(), "a cost of 1 is named above, any other in cost.rs: {wrong:?}");
    let unknown: Vec<_> = known.difference(&seen).collect();
    assert!(unknown.is_empty(), "not an overload of any release: {unknown:?}");
}
