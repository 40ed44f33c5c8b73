//! Demo of the lxcfs guard.

use crate::demo::scenario::{Scenario, Scene, Step, Verdict};

/// The scenario of the lxcfs guard.
pub(in crate::demo) const SCENARIO: Scenario = Scenario {
    guard: "lxcfs",
    section: "lxcfs: {}",
    scenes: &[
        Scene {
            title: "The cluster can be seen",
            snapshot: &[
                ("world.yaml", include_str!("../../../../../examples/world/world.yaml")),
                (
                    "here/core_v1_namespaces.json",
                    include_str!("../../../../../examples/world/here/core_v1_namespaces.json"),
                ),
            ],
            steps: &[
                Step {
                    title: "a plain pod that asks for nothing",
                    review: include_str!("../../../../../examples/reviews/lxcfs-allow.json"),
                    expected: Verdict::Allow,
                    warning: None,
                },
                Step {
                    title: "a pod annotated durward.dev/lxcfs: enabled, limited to 256Mi",
                    review: include_str!("../../../../../examples/reviews/lxcfs-mutate.json"),
                    expected: Verdict::Mutate,
                    warning: None,
                },
                Step {
                    title: "the same in a namespace that would refuse the mounts",
                    review: include_str!("../../../../../examples/reviews/lxcfs-warn.json"),
                    expected: Verdict::Mutate,
                    warning: Some("enforces Pod Security restricted"),
                },
            ],
        },
        Scene {
            title: "The cluster does not answer",
            snapshot: &[("world.yaml", include_str!("../../../../../examples/blind/world.yaml"))],
            steps: &[Step {
                title: "the annotated pod again: what cannot be seen is unknown, never guessed",
                review: include_str!("../../../../../examples/reviews/lxcfs-unknown.json"),
                expected: Verdict::Unknown,
                warning: Some("allowed unchecked"),
            }],
        },
    ],
};
