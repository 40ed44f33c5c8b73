//! What the demo plays: for each guard a scenario in a file of its own, made of the same examples that the documentation uses.

use super::scenarios;

/// Every scenario; one for each guard. A new guard adds its file and its line here.
pub(super) static SCENARIOS: &[&Scenario] =
    &[&scenarios::deletion::SCENARIO, &scenarios::lxcfs::SCENARIO, &scenarios::etcd::SCENARIO];

/// The scenario of one guard.
pub(super) struct Scenario {
    /// The guard, as in `KINDS`.
    pub(super) guard: &'static str,
    /// Its section of the configuration, YAML in one line.
    pub(super) section: &'static str,
    /// In the order in which they are played.
    pub(super) scenes: &'static [Scene],
}

/// Reviews under one state of the world.
pub(super) struct Scene {
    /// What the world is like.
    pub(super) title: &'static str,
    /// The world as files: path and text.
    pub(super) world: &'static [(&'static str, &'static str)],
    /// What is asked.
    pub(super) steps: &'static [Step],
}

/// One review and what must come of it.
pub(super) struct Step {
    /// What happens, for a newcomer.
    pub(super) title: &'static str,
    /// The `AdmissionReview`.
    pub(super) review: &'static str,
    /// The verdict that the guard must find.
    pub(super) expected: Verdict,
    /// A part of the warning that the person must get; none where there must be no warning.
    pub(super) warning: Option<&'static str>,
}

/// What an answer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Allowed as it is.
    Allow,
    /// Allowed, changed.
    Mutate,
    /// Refused.
    Deny,
    /// Not decidable; the guard's stance made something of it.
    Unknown,
}

#[cfg(test)]
mod tests {
    use guards::GUARD_KINDS;

    use super::*;

    #[test]
    fn every_guard_has_its_scenario_with_an_allow_and_an_unknown() {
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
