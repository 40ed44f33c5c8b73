//! Demo of the etcd guard.

use crate::demo::scenario::{Scenario, Scene, Step, Verdict};

/// The files of a snapshot in `examples/`.
macro_rules! snapshot {
    ($dir:literal) => {
        snapshot!($dir:
            "world.yaml"
            "here/apps_v1_statefulsets.json"
            "here/coordination.k8s.io_v1_leases.json"
            "here/core_v1_namespaces.json"
            "here/core_v1_nodes.json"
            "here/core_v1_pods.json"
            "here/etcd/db_etcd-0.json"
            "here/etcd/db_etcd-1.json"
            "here/etcd/db_etcd-2.json"
        )
    };
    ($dir:literal: $($file:literal)*) => {
        &[$(($file, include_str!(concat!("../../../../../examples/etcd/", $dir, "/", $file)))),*]
    };
}

macro_rules! review {
    ($file:literal) => {
        include_str!(concat!("../../../../../examples/etcd/reviews/", $file))
    };
}

/// The scenario of the etcd guard.
pub(in crate::demo) const SCENARIO: Scenario = Scenario {
    guard: "etcd",
    section: "etcd: {ensembles: [{namespace: db, selector: app=etcd}]}",
    scenes: &[
        Scene {
            title: "Three members, all healthy; etcd-0 leads",
            snapshot: snapshot!("world"),
            steps: &[
                Step {
                    title: "kubectl delete pod etcd-1: the other two are a quorum",
                    review: review!("etcd-allow.json"),
                    expected: Verdict::Allow,
                    warning: None,
                },
                Step {
                    title: "kubectl delete pod etcd-0: before a live ensemble it hands over, and then goes",
                    review: review!("etcd-leader.json"),
                    expected: Verdict::Allow,
                    warning: Some("it leads, and would hand over to etcd-1 first"),
                },
            ],
        },
        Scene {
            title: "etcd-2 is down",
            snapshot: snapshot!("down"),
            steps: &[
                Step {
                    title: "kubectl delete pod etcd-1: one would be left, of three",
                    review: review!("etcd-deny.json"),
                    expected: Verdict::Deny,
                    warning: None,
                },
                Step {
                    title: "kubectl drain node-0: the eviction of etcd-0 is refused with 429, so that drain waits",
                    review: review!("etcd-drain.json"),
                    expected: Verdict::Deny,
                    warning: None,
                },
                Step {
                    title: "kubectl delete pod etcd-2: it is down anyway, and has to come back",
                    review: review!("etcd-dead.json"),
                    expected: Verdict::Allow,
                    warning: None,
                },
            ],
        },
        Scene {
            title: "Durward reaches etcd-1 alone",
            snapshot: snapshot!("cut"),
            steps: &[Step {
                title: "etcd-1 again: who does not answer is neither healthy nor gone",
                review: review!("etcd-unknown.json"),
                expected: Verdict::Unknown,
                warning: None,
            }],
        },
    ],
};
