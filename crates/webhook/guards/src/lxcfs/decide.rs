//! The decision about a pod, in two steps, so that the namespace is read only if its labels matter. Pure.
//!
//! [`decide`] decides by the request, or returns a [`PendingPod`]. [`decide_with_namespace`] decides by the labels of the namespace.

use std::collections::BTreeMap;

use admission::{Mode, Operation, Request, Ruling, Verdict};

use super::config::Config;
use super::inject;
use super::injection::Injection;
use super::messages;
use super::opt_in::{Enabled, PodOptIn, SWITCH};
use super::pod::{Pod, Unreadable};
use super::skip_reason::{self, SkipReason};
#[cfg(debug_assertions)]
use super::verify_patch;
use super::volumes::Volumes;
use crate::common::SYSTEM_NAMESPACE;
use crate::exempt;
use ::lxcfs::MountMethod;

/// The prefix of every warning, which names the guard.
const WARNING_PREFIX: &str = "lxcfs: ";

/// The result of the first step.
#[derive(Debug)]
pub(super) enum FirstStep<'a> {
    /// The ruling.
    Decided(Ruling),
    /// The labels of the namespace decide.
    NeedsNamespace(PendingPod<'a>),
}

/// A pod whose decision depends on its namespace.
#[derive(Debug)]
pub(super) struct PendingPod<'a> {
    request: &'a Request<'a>,
    kind: RequestKind,
    pod: Pod<'a>,
    opt_in: PodOptIn<'a>,
    enabled: Enabled,
    skips: Vec<SkipReason>,
}

/// The requests that the guard decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestKind {
    /// The creation of a pod.
    NewPod,
    /// New ephemeral containers in a running pod.
    EphemeralContainers,
}

/// Decides by the request alone if that is possible.
pub(super) fn decide<'a>(config: &Config, request: &'a Request<'a>) -> FirstStep<'a> {
    let Some(kind) = request_kind(request) else { return FirstStep::Decided(Ruling::allow()) };
    let namespace = request.namespace.as_ref();
    if namespace == SYSTEM_NAMESPACE || namespace == config.common_config.namespace {
        return FirstStep::Decided(Ruling::allow());
    }
    if let Some(key) = config.common_config.exempt.of(request) {
        return FirstStep::Decided(exempt::ruling(key));
    }
    let read = Pod::read(request.object.as_ref()).and_then(|pod| Ok((pod, PodOptIn::read(pod)?)));
    let (pod, opt_in) = match read {
        Ok(read) => read,
        Err(unreadable) => return FirstStep::Decided(unchanged(&unreadable)),
    };
    let enabled = opt_in.enabled();
    if enabled == Enabled::No {
        let warning = opt_in.old_value_warning();
        return FirstStep::Decided(warning.map_or_else(Ruling::allow, |warning| {
            Ruling::allow().warn(format!("{WARNING_PREFIX}{warning}"))
        }));
    }
    let mut skips = skip_reason::of_pod(config, pod, &opt_in);
    if kind == RequestKind::EphemeralContainers {
        // The other reasons apply, because the pod's volumes can be its author's. The kubelet ignores ephemeral containers of a
        // static pod, so that reason needs no warning.
        skips.retain(|skip| *skip != SkipReason::Mirror);
    }
    let pending = PendingPod { request, kind, pod, opt_in, enabled, skips };
    let by_namespace = enabled == Enabled::ByNamespace;
    // Pod Security cannot reject the extended resource of the device plugin.
    let by_pod_security = config.mount_method != MountMethod::DevicePlugin
        && kind == RequestKind::NewPod
        && pending.skips.is_empty();
    if by_namespace || by_pod_security {
        FirstStep::NeedsNamespace(pending)
    } else {
        FirstStep::Decided(finish(config, &pending, None))
    }
}

impl PendingPod<'_> {
    /// Returns whether these labels are older than the request. The API server sends a pod without its own setting only if the
    /// namespace opts in ([`rules`](super::rules)), so labels without the opt-in are stale.
    pub(super) fn is_newer_than(&self, labels: &BTreeMap<String, String>) -> bool {
        self.enabled == Enabled::ByNamespace && labels.get(SWITCH).is_none_or(|value| value != "enabled")
    }
}

/// Decides with the labels of the namespace.
pub(super) fn decide_with_namespace(
    config: &Config,
    pending: &PendingPod<'_>,
    labels: &BTreeMap<String, String>,
) -> Ruling {
    if pending.is_newer_than(labels) {
        return Ruling::allow();
    }
    finish(config, pending, Some(labels))
}

fn request_kind(request: &Request<'_>) -> Option<RequestKind> {
    let resource = &request.resource;
    if !resource.group.is_empty() || resource.resource != "pods" {
        return None;
    }
    match (request.operation, request.subresource.as_ref()) {
        (Operation::Create, "") => Some(RequestKind::NewPod),
        (Operation::Update, "ephemeralcontainers") => Some(RequestKind::EphemeralContainers),
        _ => None,
    }
}

fn finish(config: &Config, pending: &PendingPod<'_>, labels: Option<&BTreeMap<String, String>>) -> Ruling {
    match injection(config, pending, labels) {
        Ok(injection) => {
            #[cfg(debug_assertions)]
            debug_assert!(
                verify_patch::applies(pending.pod.raw(), &injection.patch),
                "{:?}",
                injection.patch
            );
            ruling(config, injection)
        }
        Err(unreadable) => unchanged(&unreadable),
    }
}

fn injection(
    config: &Config,
    pending: &PendingPod<'_>,
    labels: Option<&BTreeMap<String, String>>,
) -> Result<Injection, Unreadable> {
    let PendingPod { request, kind, pod, opt_in, .. } = pending;
    let is_new = *kind == RequestKind::NewPod;
    let mut skips = pending.skips.clone();
    let mut volumes = Volumes::read(*pod, &config.lxcfs_path)?;
    let mut by_device = config.mount_method == MountMethod::DevicePlugin;
    if is_new {
        skips.extend(skip_reason::of_volumes(config, *pod, &mut volumes)?);
        let rejection =
            labels.and_then(|labels| skip_reason::of_namespace(config, &request.namespace, labels));
        match config.mount_method {
            MountMethod::HostPath => skips.extend(rejection),
            MountMethod::Auto => by_device = rejection.is_some(),
            MountMethod::DevicePlugin => {}
        }
        if !by_device {
            skips.extend(skip_reason::of_selector(config, *pod)?);
        }
    }
    if skips.is_empty() {
        if is_new {
            return inject::into_new_pod(config, *pod, opt_in, volumes, by_device);
        }
        let old = Pod::read(request.old_object.as_ref())?;
        return inject::into_running_pod(config, *pod, old, opt_in, volumes);
    }
    let place = if is_new { "" } else { " to ephemeral containers" };
    let mut injection = Injection {
        warnings: vec![format!("no files added{place}: {}", messages::reasons(&skips))],
        status: messages::skipped_status(&skips),
        ..Injection::default()
    };
    // The kubelet compares a mirror pod with its own file. An update of ephemeral containers cannot change annotations.
    if is_new && !skips.contains(&SkipReason::Mirror) {
        injection.add_status(*pod, opt_in)?;
    }
    Ok(injection)
}

fn ruling(config: &Config, injection: Injection) -> Ruling {
    let Injection { patch, status, node_note, warnings } = injection;
    let is_audit = config.common_config.settle_policy.mode == Mode::Audit;
    let would_change = is_audit && !patch.is_empty();
    let mut ruling =
        if is_audit || patch.is_empty() { Ruling::allow() } else { Ruling::new(Verdict::Mutate(patch)) };
    for warning in warnings {
        ruling.warnings.push(format!("{WARNING_PREFIX}{warning}"));
    }
    if would_change {
        let status = status + node_note;
        ruling.warnings.push(format!("{WARNING_PREFIX}audit: would be changed: {status}"));
        ruling.audit.set("would-inject", status);
    }
    ruling
}

/// Allows an unreadable pod unchanged. The API server reports its error.
fn unchanged(unreadable: &Unreadable) -> Ruling {
    Ruling::skipped(unreadable.to_string()).warn(format!("{WARNING_PREFIX}pod not changed: {unreadable}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::fixture::{config, with_request};
    use super::*;

    fn pod(annotations: &Value, spec: &Value) -> Value {
        let mut spec = spec.clone();
        spec["containers"] = json!([{"name": "app"}]);
        json!({"metadata": {"annotations": annotations}, "spec": spec})
    }

    /// Returns the verdict, or none if the decision needs the namespace.
    fn verdict_without_namespace(
        yaml: &str,
        annotations: &Value,
        spec: &Value,
        change: impl FnOnce(&mut Value),
    ) -> Option<&'static str> {
        with_request(&pod(annotations, spec), change, |request| match decide(&config(yaml), request) {
            FirstStep::NeedsNamespace(_) => None,
            FirstStep::Decided(ruling) => Some(match ruling.verdict {
                Verdict::Allow => "allow",
                Verdict::Mutate(_) => "mutate",
                Verdict::Deny(_) | Verdict::Unknown(_) => "something else",
            }),
        })
    }

    fn running(request: &mut Value) {
        request["operation"] = "UPDATE".into();
        request["subResource"] = "ephemeralcontainers".into();
        request["oldObject"] = request["object"].clone();
    }

    #[test]
    fn reads_the_namespace_only_if_the_decision_depends_on_it() {
        let on = json!({SWITCH: "enabled"});
        let none = json!({});
        let plain = json!({});
        for (reason, yaml, annotations, spec, expected) in [
            ("its Pod Security level decides", "{}", &on, &plain, None),
            ("its label may opt in", "{}", &none, &plain, None),
            ("the pod opts out", "{}", &json!({SWITCH: "disabled"}), &plain, Some("allow")),
            ("the pod is skipped anyway", "{}", &on, &json!({"hostPID": true}), Some("mutate")),
        ] {
            assert_eq!(verdict_without_namespace(yaml, annotations, spec, |_| {}), expected, "{reason}");
        }
        let device = "mountMethod: devicePlugin";
        assert_eq!(
            verdict_without_namespace(device, &on, &plain, |_| {}),
            Some("mutate"),
            "Pod Security has nothing to reject"
        );
        assert_eq!(verdict_without_namespace(device, &none, &plain, |_| {}), None, "its label may opt in");
        assert_eq!(
            verdict_without_namespace("mountMethod: auto", &on, &plain, |_| {}),
            None,
            "its level selects the mount method"
        );
        assert_eq!(
            verdict_without_namespace("{}", &on, &plain, running),
            Some("allow"),
            "Pod Security does not check a running pod again"
        );
        assert_eq!(
            verdict_without_namespace("{}", &none, &plain, running),
            None,
            "its label may opt in a running pod"
        );
    }

    #[test]
    fn decides_only_new_pods_and_ephemeral_containers() {
        let on = json!({SWITCH: "enabled"});
        let plain = json!({});
        let other = |key: &'static str, value: &'static str| {
            verdict_without_namespace("{}", &on, &plain, move |request| request[key] = value.into())
        };
        assert_eq!(other("operation", "UPDATE"), Some("allow"));
        assert_eq!(other("operation", "DELETE"), Some("allow"));
        assert_eq!(other("subResource", "eviction"), Some("allow"));
        assert_eq!(other("namespace", SYSTEM_NAMESPACE), Some("allow"));
        assert_eq!(other("namespace", "durward-system"), Some("allow"));
        assert_eq!(
            verdict_without_namespace("{}", &on, &plain, |request| request["resource"]["group"] =
                "example.org".into()),
            Some("allow")
        );
    }

    fn decided(pod: &Value, yaml: &str) -> Ruling {
        with_request(
            pod,
            |_| {},
            |request| {
                let config = config(yaml);
                match decide(&config, request) {
                    FirstStep::NeedsNamespace(pending) => {
                        decide_with_namespace(&config, &pending, &BTreeMap::new())
                    }
                    FirstStep::Decided(ruling) => ruling,
                }
            },
        )
    }

    fn operations(ruling: &Ruling) -> Vec<Value> {
        match &ruling.verdict {
            Verdict::Mutate(patch) => serde_json::from_slice(patch.as_json()).unwrap(),
            _ => Vec::new(),
        }
    }

    #[test]
    fn changes_pods_with_at_most_1000_containers() {
        let with = |count: usize| {
            let containers: Vec<Value> = (0..count).map(|n| json!({"name": format!("c{n}")})).collect();
            json!({"metadata": {"annotations": {SWITCH: "enabled"}}, "spec": {"containers": containers}})
        };
        let ruling = decided(&with(1000), "{}");
        assert_eq!(operations(&ruling).len(), 1 + 1000 + 1);
        let status = operations(&ruling).last().cloned().unwrap();
        let status = status["value"].as_str().unwrap();
        assert!(status.len() < 5000 && status.ends_with("more containers"), "{status}");

        let ruling = decided(&with(1001), "{}");
        assert_eq!(ruling.verdict, Verdict::Allow);
        assert!(
            ruling
                .warnings
                .iter()
                .next()
                .unwrap()
                .contains("spec.containers[1000] exceeds the limit of 1000 containers")
        );
    }

    #[test]
    fn reports_a_hundred_conflicts_in_nine_warnings() {
        let mounts = json!([{"name": "x", "mountPath": "/proc"}]);
        let containers: Vec<Value> =
            (0..100).map(|n| json!({"name": format!("c{n}"), "volumeMounts": mounts})).collect();
        let pod =
            json!({"metadata": {"annotations": {SWITCH: "enabled"}}, "spec": {"containers": containers}});
        let ruling = decided(&pod, "{}");
        assert_eq!(ruling.warnings.iter().count(), 9);
        assert!(
            ruling.warnings.iter().last().unwrap().contains("92 more containers have conflicting mounts")
        );
    }

    #[test]
    fn does_not_mount_a_volume_with_an_overlong_name() {
        let volume = |name: String| json!({"name": name, "hostPath": {"path": "/var/lib/lxcfs/proc/meminfo", "type": "File"}});
        let pod = |length: usize| {
            json!({
                "metadata": {"annotations": {SWITCH: "enabled"}},
                "spec": {"volumes": [volume("x".repeat(length))], "containers": [{"name": "app"}]},
            })
        };
        let mounted = |length| json!(operations(&decided(&pod(length), "files: [meminfo]"))).to_string();
        assert!(mounted(63).contains("xxxx") && !mounted(64).contains("xxxx"));
    }

    #[test]
    fn shortens_long_names_and_paths_in_warnings() {
        let below = format!("/proc/meminfo/{}", "x".repeat(4000));
        let name = "n".repeat(200);
        let mount = json!({"name": "x", "mountPath": below});
        let mut pod = json!({
            "metadata": {"annotations": {SWITCH: "enabled"}},
            "spec": {"containers": [{"name": name, "volumeMounts": [mount]}], "nodeName": "m".repeat(4000)},
        });
        for yaml in ["{}", "mountMethod: devicePlugin"] {
            let ruling = decided(&pod, yaml);
            let warnings: Vec<&str> = ruling.warnings.iter().collect();
            assert!(warnings[0].contains("already mounts /proc/meminfo/xxxx"), "{warnings:?}");
            assert!(warnings.iter().all(|warning| warning.chars().count() < 400), "{warnings:?}");
        }
        pod["spec"]["containers"][0]["volumeMounts"] = json!([]);
        let warnings: Vec<String> =
            decided(&pod, "mountMethod: devicePlugin").warnings.iter().map(str::to_owned).collect();
        assert!(
            warnings[0].contains("bypasses the scheduler") && warnings[0].chars().count() < 400,
            "{warnings:?}"
        );
        pod["spec"]["runtimeClassName"] = "c".repeat(4000).into();
        let warnings: Vec<String> = decided(&pod, "{}").warnings.iter().map(str::to_owned).collect();
        assert!(
            warnings[0].contains("runtimeClassName \"cccc") && warnings[0].chars().count() < 400,
            "{warnings:?}"
        );
    }

    #[test]
    fn omits_the_status_if_the_annotations_are_full() {
        let big = "x".repeat(256 * 1024);
        let pod = json!({"metadata": {"annotations": {SWITCH: "enabled", "big": big}}, "spec": {"containers": [{"name": "app"}]}});
        let ruling = decided(&pod, "files: [meminfo]");
        assert_eq!(operations(&ruling).len(), 2);
        assert!(ruling.warnings.iter().any(|warning| warning.contains("would exceed 256 KiB")));
    }
}
