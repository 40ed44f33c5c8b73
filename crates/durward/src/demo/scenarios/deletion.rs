//! Demo of the deletion guard.

use crate::demo::scenario::{Scenario, Scene, Step, Verdict};

/// The files of a snapshot in `examples/`.
macro_rules! snapshot {
    ($dir:literal: $($file:literal)*) => {
        &[$(($file, include_str!(concat!("../../../../../examples/fleet/", $dir, "/", $file)))),*]
    };
}

macro_rules! review {
    ($file:literal) => {
        include_str!(concat!("../../../../../examples/fleet/reviews/", $file))
    };
}

/// The scenario of the deletion guard.
pub(in crate::demo) const SCENARIO: Scenario = Scenario {
    guard: "deletion",
    section: "deletion: {fleet: {karmada: {}}, crds: {groups: [example.org]}}",
    scenes: &[
        Scene {
            title: "A Karmada fleet of three members, all of which answer",
            snapshot: FLEET,
            steps: &[
                Step {
                    title: "kubectl delete namespace docs: only finished pods anywhere",
                    review: review!("deletion-allow.json"),
                    expected: Verdict::Allow,
                    warning: None,
                },
                Step {
                    title: "kubectl delete namespace shop: the control plane has nothing of it, m2 has",
                    review: review!("deletion-deny.json"),
                    expected: Verdict::Deny,
                    warning: Some("m2 has 2 pods, 1 claim: "),
                },
                Step {
                    title: "kubectl delete crd widgets.example.org: an object of it lives in m2",
                    review: review!("deletion-definition.json"),
                    expected: Verdict::Deny,
                    warning: Some("m2 has 1 object: "),
                },
            ],
        },
        Scene {
            title: "The link to m3 is cut",
            snapshot: CUT,
            steps: &[Step {
                title: "docs again: what cannot be seen is unknown, never empty",
                review: review!("deletion-unknown.json"),
                expected: Verdict::Unknown,
                warning: Some("m3 could not be asked"),
            }],
        },
    ],
};

const FLEET: &[(&str, &str)] = snapshot!("world":
    "here/apiextensions.k8s.io_v1_customresourcedefinitions.json"
    "here/apps_v1_daemonsets.json"
    "here/apps_v1_deployments.json"
    "here/apps_v1_statefulsets.json"
    "here/batch_v1_cronjobs.json"
    "here/batch_v1_jobs.json"
    "here/cluster.karmada.io_v1alpha1_clusters.json"
    "here/core_v1_namespaces.json"
    "here/core_v1_persistentvolumeclaims.json"
    "here/core_v1_pods.json"
    "here/core_v1_services.json"
    "here/example.org_v1_widgets.json"
    "m1/apiextensions.k8s.io_v1_customresourcedefinitions.json"
    "m1/apps_v1_daemonsets.json"
    "m1/apps_v1_deployments.json"
    "m1/apps_v1_statefulsets.json"
    "m1/batch_v1_cronjobs.json"
    "m1/batch_v1_jobs.json"
    "m1/core_v1_namespaces.json"
    "m1/core_v1_persistentvolumeclaims.json"
    "m1/core_v1_pods.json"
    "m1/core_v1_services.json"
    "m1/example.org_v1_widgets.json"
    "m2/apiextensions.k8s.io_v1_customresourcedefinitions.json"
    "m2/apps_v1_daemonsets.json"
    "m2/apps_v1_deployments.json"
    "m2/apps_v1_statefulsets.json"
    "m2/batch_v1_cronjobs.json"
    "m2/batch_v1_jobs.json"
    "m2/core_v1_namespaces.json"
    "m2/core_v1_persistentvolumeclaims.json"
    "m2/core_v1_pods.json"
    "m2/core_v1_services.json"
    "m2/example.org_v1_widgets.json"
    "m3/apiextensions.k8s.io_v1_customresourcedefinitions.json"
    "m3/apps_v1_daemonsets.json"
    "m3/apps_v1_deployments.json"
    "m3/apps_v1_statefulsets.json"
    "m3/batch_v1_cronjobs.json"
    "m3/batch_v1_jobs.json"
    "m3/core_v1_namespaces.json"
    "m3/core_v1_persistentvolumeclaims.json"
    "m3/core_v1_pods.json"
    "m3/core_v1_services.json"
    "world.yaml"
);

const CUT: &[(&str, &str)] = snapshot!("cut":
    "here/apiextensions.k8s.io_v1_customresourcedefinitions.json"
    "here/apps_v1_daemonsets.json"
    "here/apps_v1_deployments.json"
    "here/apps_v1_statefulsets.json"
    "here/batch_v1_cronjobs.json"
    "here/batch_v1_jobs.json"
    "here/cluster.karmada.io_v1alpha1_clusters.json"
    "here/core_v1_namespaces.json"
    "here/core_v1_persistentvolumeclaims.json"
    "here/core_v1_pods.json"
    "here/core_v1_services.json"
    "here/example.org_v1_widgets.json"
    "m1/apiextensions.k8s.io_v1_customresourcedefinitions.json"
    "m1/apps_v1_daemonsets.json"
    "m1/apps_v1_deployments.json"
    "m1/apps_v1_statefulsets.json"
    "m1/batch_v1_cronjobs.json"
    "m1/batch_v1_jobs.json"
    "m1/core_v1_namespaces.json"
    "m1/core_v1_persistentvolumeclaims.json"
    "m1/core_v1_pods.json"
    "m1/core_v1_services.json"
    "m1/example.org_v1_widgets.json"
    "m2/apiextensions.k8s.io_v1_customresourcedefinitions.json"
    "m2/apps_v1_daemonsets.json"
    "m2/apps_v1_deployments.json"
    "m2/apps_v1_statefulsets.json"
    "m2/batch_v1_cronjobs.json"
    "m2/batch_v1_jobs.json"
    "m2/core_v1_namespaces.json"
    "m2/core_v1_persistentvolumeclaims.json"
    "m2/core_v1_pods.json"
    "m2/core_v1_services.json"
    "m2/example.org_v1_widgets.json"
    "world.yaml"
);
