//! Scenarios of the demo: one file for each guard, made of the examples of the documentation.

use super::scenarios;

/// All scenarios, one for each guard. A new guard adds its file and its line here.
pub(super) static SCENARIOS: &[&Scenario] =
    &[&scenarios::deletion::SCENARIO, &scenarios::lxcfs::SCENARIO, &scenarios::etcd::SCENARIO];

/// The scenario of one guard.
pub(super) struct Scenario {
    /// The name of the guard.
    pub(super) guard: &'static str,
    /// The configuration section of the guard, as YAML in one line.
    pub(super) section: &'static str,
    /// Scenes in order.
    pub(super) scenes: &'static [Scene],
}

/// Reviews against one state of the clusters.
pub(super) struct Scene {
    /// The state of the clusters, as a heading.
    pub(super) title: &'static str,
    /// The cluster snapshot: path and text of each file.
    pub(super) snapshot: &'static [(&'static str, &'static str)],
    /// Reviews in order.
    pub(super) steps: &'static [Step],
}

/// One review and its expected verdict.
pub(super) struct Step {
    /// The heading of the review.
    pub(super) title: &'static str,
    /// The `AdmissionReview`.
    pub(super) review: &'static str,
    /// The expected verdict.
    pub(super) expected: Verdict,
    /// A part of the expected warning; `None` if no warning is expected.
    pub(super) warning: Option<&'static str>,
}

/// The verdict of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Allowed without changes.
    Allow,
    /// Allowed with changes.
    Mutate,
    /// Denied.
    Deny,
    /// Not decidable; `onUnknown` of the guard applies.
    Unknown,
}

#[cfg(test)]
mod tests {
    use guards::GUARD_KINDS;

    use super::*;

    #[test]
    fn every_guard_has_a_scenario_with_an_allowed_and_an_unknown_review() {
        for kind in GUARD_KINDS {
            let scenario = SCENARIOS.iter().find(|scenario| scenario.guard == kind.name());
            let scenario = scenario.unwrap_or_else(|| panic!("{} has no scenario", kind.name()));
            let expected: Vec<_> =
                scenario.scenes.iter().flat_map(|scene| scene.steps).map(|step| step.expected).collect();
            assert!(expected.contains(&Verdict::Allow) && expected.contains(&Verdict::Unknown));
        }
        assert_eq!(SCENARIOS.len(), GUARD_KINDS.len());
    }
}
