//! The decision, pure: what is asked, what the pod wants, and once the namespace's labels are known, what is done.
//!
//! Two steps, so that the world is asked about the namespace only when the answer depends on it: [`open`] rules by itself, or
//! names what [`close`] needs the labels for.

use std::collections::BTreeMap;

use admission::{Mode, Operation, Request, Ruling, Verdict};

use super::config::{Backend, Config};
use super::device;
use super::inject::{self, Injection};
use super::messages;
use super::opt_in::{Enabled, PodOptIn, SWITCH};
use super::pod::{Pod, Unreadable};
use super::skip_reason::{self, SkipReason};
#[cfg(debug_assertions)]
use super::verify_patch;
use super::volumes::Volumes;
use crate::exempt::Exemption;

/// What every warning begins with, so that a person knows who speaks.
const VOICE: &str = "lxcfs: ";

/// Namespaces that are left alone by name, beside the one of the installation: what runs the cluster must start while Durward
/// or LXCFS is broken.
pub(super) const LEFT_ALONE: &str = "kube-system";

/// What comes after the first look.
#[derive(Debug)]
pub(super) enum Step<'a> {
    /// It is decided.
    Rule(Ruling),
    /// The namespace's labels decide.
    Ask(Opened<'a>),
}

/// A pod that was looked at once.
#[derive(Debug)]
pub(super) struct Opened<'a> {
    request: &'a Request<'a>,
    asked: Asked,
    pod: Pod<'a>,
    opt_in: PodOptIn<'a>,
    wanted: Enabled,
    skips: Vec<SkipReason>,
}

/// The two things that this guard is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// A pod is made.
    New,
    /// A running pod gets ephemeral containers.
    Running,
}

/// Looks at the request alone.
pub(super) fn open<'a>(config: &Config, request: &'a Request<'a>) -> Step<'a> {
    let Some(asked) = asked(request) else { return Step::Rule(Ruling::allow()) };
    let namespace = request.namespace.as_ref();
    if namespace == LEFT_ALONE || namespace == config.common_config.install_namespace {
        return Step::Rule(Ruling::allow());
    }
    let exemption = config.common_config.exempt.of(request);
    if let Exemption::By(part) = exemption {
        return Step::Rule(Ruling::allow().audit("exempt", part));
    }
    let seen = Pod::see(request.object.as_ref()).and_then(|pod| Ok((pod, PodOptIn::read(pod)?)));
    let (pod, opt_in) = match seen {
        Ok(seen) => seen,
        Err(unreadable) => return Step::Rule(as_it_is(&unreadable)),
    };
    let wanted = opt_in.enabled(config.opt_in);
    if wanted == Enabled::No {
        let warning = opt_in.old_value_warning();
        return Step::Rule(
            warning.map_or_else(Ruling::allow, |warning| Ruling::allow().warn(format!("{VOICE}{warning}"))),
        );
    }
    let mut skips = skip_reason::of_pod(config, pod, &opt_in);
    if asked == Asked::Running {
        // The volumes that it has may be its author's own, so what speaks against showing them still does. That the kubelet
        // takes nothing of a static pod from here is no harm: it takes no ephemeral container either.
        skips.retain(|skip| *skip != SkipReason::Mirror);
    }
    let opened = Opened { request, asked, pod, opt_in, wanted, skips };
    let by_namespace = wanted == Enabled::ByNamespace || exemption == Exemption::DependsOnNamespace;
    // The device has nothing that Pod Security could refuse.
    let by_pod_security = config.backend != Backend::Device && asked == Asked::New && opened.skips.is_empty();
    if by_namespace || by_pod_security {
        Step::Ask(opened)
    } else {
        Step::Rule(finish(config, &opened, None))
    }
}

impl Opened<'_> {
    /// Whether these labels are older than the question. A pod without a word of its own is asked about only because the API
    /// server has seen its namespace opt in ([`registration`](super::rules)), so labels that do not cannot be those
    /// that it went by.
    pub(super) fn contradicts(&self, labels: &BTreeMap<String, String>) -> bool {
        self.wanted == Enabled::ByNamespace && !opts_in(labels)
    }
}

fn opts_in(labels: &BTreeMap<String, String>) -> bool {
    labels.get(SWITCH).is_some_and(|value| value == "enabled")
}

/// Decides with the namespace's labels.
pub(super) fn close(config: &Config, opened: &Opened<'_>, labels: &BTreeMap<String, String>) -> Ruling {
    if config.common_config.exempt.selects(labels) {
        return Ruling::allow().audit("exempt", "exempt.namespaceSelector");
    }
    if opened.contradicts(labels) {
        return Ruling::allow();
    }
    finish(config, opened, Some(labels))
}

fn asked(request: &Request<'_>) -> Option<Asked> {
    let resource = &request.resource;
    if !resource.group.is_empty() || resource.resource != "pods" {
        return None;
    }
    match (request.operation, request.subresource.as_ref()) {
        (Operation::Create, "") => Some(Asked::New),
        (Operation::Update, "ephemeralcontainers") => Some(Asked::Running),
        _ => None,
    }
}

fn finish(config: &Config, opened: &Opened<'_>, labels: Option<&BTreeMap<String, String>>) -> Ruling {
    match injection(config, opened, labels) {
        Ok(injection) => {
            #[cfg(debug_assertions)]
            debug_assert!(verify_patch::applies(opened.pod.raw(), &injection.patch), "{:?}", injection.patch);
            ruling(config, injection)
        }
        Err(unreadable) => as_it_is(&unreadable),
    }
}

fn injection(
    config: &Config,
    opened: &Opened<'_>,
    labels: Option<&BTreeMap<String, String>>,
) -> Result<Injection, Unreadable> {
    let Opened { request, asked, pod, opt_in, .. } = opened;
    let mut skips = opened.skips.clone();
    let mut volumes = Volumes::read(*pod, &config.root)?;
    let mut by_device = config.backend == Backend::Device;
    if *asked == Asked::New {
        skips.extend(skip_reason::of_volumes(config, *pod, &mut volumes)?);
        let refused = labels.and_then(|labels| skip_reason::of_namespace(config, &request.namespace, labels));
        match config.backend {
            Backend::Volumes => skips.extend(refused),
            Backend::Auto => by_device = refused.is_some(),
            Backend::Device => {}
        }
        if !by_device {
            skips.extend(skip_reason::of_selector(config, *pod)?);
        }
    }
    if skips.is_empty() {
        return match asked {
            Asked::New if by_device => device::into_new(config, *pod, opt_in, volumes),
            Asked::New => inject::into_new(config, *pod, opt_in, volumes),
            Asked::Running => {
                let old = Pod::see(request.old_object.as_ref())?;
                inject::into_running(config, *pod, old, opt_in, volumes)
            }
        };
    }
    let who = match asked {
        Asked::New => "this pod gets",
        Asked::Running => "ephemeral containers of this pod get",
    };
    let mut injection = Injection {
        warnings: vec![format!("{who} no files: {}", messages::reasons(&skips))],
        summary: messages::skipped(&skips),
        ..Injection::default()
    };
    // The kubelet compares the mirror with its own file, and a running pod's annotations are not to be changed this way.
    if *asked == Asked::New && !skips.contains(&SkipReason::Mirror) {
        injection.status(*pod, opt_in)?;
    }
    Ok(injection)
}

fn ruling(config: &Config, injection: Injection) -> Ruling {
    let Injection { patch, mut summary, whereto, warnings, .. } = injection;
    summary.push_str(whereto);
    let is_audit = config.common_config.settle_policy.mode == Mode::Audit;
    let would_change = is_audit && !patch.is_empty();
    let mut ruling =
        if is_audit || patch.is_empty() { Ruling::allow() } else { Ruling::new(Verdict::Mutate(patch)) };
    for warning in warnings {
        ruling.warnings.push(format!("{VOICE}{warning}"));
    }
    if would_change {
        ruling.warnings.push(format!(
            "{VOICE}mode is audit, so the pod is left as it is; enforced it would become: {summary}"
        ));
        ruling.audit.set("would-inject", summary);
    }
    ruling
}

/// A pod that cannot be read is let through as it is; the API server will tell what is wrong with it.
fn as_it_is(unreadable: &Unreadable) -> Ruling {
    Ruling::skipped(unreadable.to_string()).warn(format!("{VOICE}the pod is left as it is: {unreadable}"))
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

    /// Whether the namespace is asked about, and the ruling's verdict if not.
    fn asks(
        yaml: &str,
        annotations: &Value,
        spec: &Value,
        change: impl FnOnce(&mut Value),
    ) -> Option<&'static str> {
        with_request(&pod(annotations, spec), change, |request| match open(&config(yaml), request) {
            Step::Ask(_) => None,
            Step::Rule(ruling) => Some(match ruling.verdict {
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
    fn the_namespace_is_asked_about_only_if_the_answer_depends_on_it() {
        let on = json!({SWITCH: "enabled"});
        let none = json!({});
        let plain = json!({});
        let by_labels = "exempt: {namespaceSelector: {matchLabels: {a: b}}}";
        for (told, yaml, annotations, spec, expected) in [
            ("its Pod Security level decides", "{}", &on, &plain, None),
            ("its label may opt in", "{}", &none, &plain, None),
            ("its label cannot opt in", "optIn: {namespaceLabel: false}", &none, &plain, Some("allow")),
            ("the pod opts out", "{}", &json!({SWITCH: "disabled"}), &plain, Some("allow")),
            ("the pod is skipped anyway", "{}", &on, &json!({"hostPID": true}), Some("mutate")),
            ("its labels may exempt", by_labels, &on, &json!({"hostPID": true}), None),
        ] {
            assert_eq!(asks(yaml, annotations, spec, |_| {}), expected, "{told}");
        }
        let device = "backend: device";
        assert_eq!(asks(device, &on, &plain, |_| {}), Some("mutate"), "nothing for Pod Security to refuse");
        assert_eq!(asks(device, &none, &plain, |_| {}), None, "its label may opt in");
        assert_eq!(asks("backend: auto", &on, &plain, |_| {}), None, "its level chooses the way");
        assert_eq!(asks("{}", &on, &plain, running), Some("allow"), "a running pod is past Pod Security");
        assert_eq!(asks("{}", &none, &plain, running), None, "its label may opt in a running pod");
    }

    #[test]
    fn only_new_pods_and_ephemeral_containers_are_looked_at() {
        let on = json!({SWITCH: "enabled"});
        let plain = json!({});
        let other = |key: &'static str, value: &'static str| {
            asks("{}", &on, &plain, move |request| request[key] = value.into())
        };
        assert_eq!(other("operation", "UPDATE"), Some("allow"));
        assert_eq!(other("operation", "DELETE"), Some("allow"));
        assert_eq!(other("subResource", "eviction"), Some("allow"));
        assert_eq!(other("namespace", LEFT_ALONE), Some("allow"));
        assert_eq!(other("namespace", "durward-system"), Some("allow"));
        assert_eq!(
            asks("{}", &on, &plain, |request| request["resource"]["group"] = "example.org".into()),
            Some("allow")
        );
    }

    fn decided(pod: &Value, yaml: &str) -> Ruling {
        with_request(
            pod,
            |_| {},
            |request| {
                let config = config(yaml);
                match open(&config, request) {
                    Step::Ask(opened) => close(&config, &opened, &BTreeMap::new()),
                    Step::Rule(ruling) => ruling,
                }
            },
        )
    }

    fn operations(ruling: &Ruling) -> Vec<Value> {
        match &ruling.verdict {
            Verdict::Mutate(patch) => serde_json::from_slice(&patch.to_json()).unwrap(),
            _ => Vec::new(),
        }
    }

    #[test]
    fn a_pod_with_a_thousand_containers_is_served_and_one_with_more_is_left_as_it_is() {
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
            ruling.warnings.iter().next().unwrap().contains("spec.containers[1000] is the 1001st container")
        );
    }

    #[test]
    fn a_hundred_conflicts_are_told_in_a_few_warnings() {
        let mounts = json!([{"name": "x", "mountPath": "/proc"}]);
        let containers: Vec<Value> =
            (0..100).map(|n| json!({"name": format!("c{n}"), "volumeMounts": mounts})).collect();
        let pod =
            json!({"metadata": {"annotations": {SWITCH: "enabled"}}, "spec": {"containers": containers}});
        let ruling = decided(&pod, "{}");
        assert_eq!(ruling.warnings.iter().count(), 9);
        assert!(ruling.warnings.iter().last().unwrap().contains("92 more containers keep mounts"));
    }

    #[test]
    fn texts_longer_than_the_api_server_or_the_kernel_takes_leave_the_pod_as_it_is() {
        let with = |annotation: usize, name: usize, mount: usize, host: usize| {
            let text = |length: usize| "x".repeat(length);
            json!({
                "metadata": {"annotations": {SWITCH: "enabled", "durward.dev/lxcfs-files": format!("meminfo,{}", text(annotation - 8))}},
                "spec": {
                    "volumes": [{"name": text(name), "hostPath": {"path": format!("/{}", text(host - 1))}}],
                    "containers": [{"name": "app", "volumeMounts": [{"name": text(name), "mountPath": format!("/{}", text(mount - 1))}]}],
                },
            })
        };
        assert_eq!(operations(&decided(&with(1000, 253, 4096, 4096), "{}")).len(), 3);
        for (pod, told) in [
            (
                with(262_145, 9, 9, 9),
                "annotation durward.dev/lxcfs-files is longer than all annotations may be",
            ),
            (with(9, 254, 9, 9), "spec.volumes[0] has a name longer than any name may be"),
            (with(9, 9, 4097, 9), "spec.containers[0] has a mount whose path is longer than any path can be"),
            (with(9, 9, 9, 4097), "spec.volumes[0] has a path longer than any path can be"),
            (
                with(9, 9, 3 << 20, 9),
                "spec.containers[0] has a mount whose path is longer than any path can be",
            ),
        ] {
            let ruling = decided(&pod, "{}");
            assert_eq!(ruling.verdict, Verdict::Allow, "{told}");
            assert_eq!(
                ruling.warnings.iter().collect::<Vec<_>>(),
                [format!("lxcfs: the pod is left as it is: {told}")]
            );
        }
    }

    #[test]
    fn of_a_long_path_name_or_class_so_much_is_told_as_one_can_read() {
        let below = format!("/proc/meminfo/{}", "x".repeat(4000));
        let name = "n".repeat(200);
        let mount = json!({"name": "x", "mountPath": below});
        let mut pod = json!({
            "metadata": {"annotations": {SWITCH: "enabled"}},
            "spec": {"containers": [{"name": name, "volumeMounts": [mount]}], "nodeName": "m".repeat(4000)},
        });
        for yaml in ["{}", "backend: device"] {
            let ruling = decided(&pod, yaml);
            let told: Vec<&str> = ruling.warnings.iter().collect();
            assert!(told[0].contains("keeps the pod's own mount at /proc/meminfo/xxxx"), "{told:?}");
            assert!(told.iter().all(|warning| warning.chars().count() < 400), "{told:?}");
        }
        pod["spec"]["containers"][0]["volumeMounts"] = json!([]);
        let told: Vec<String> = decided(&pod, "backend: device").warnings.iter().map(str::to_owned).collect();
        assert!(told[0].contains("passes the scheduler by") && told[0].chars().count() < 400, "{told:?}");
        pod["spec"]["runtimeClassName"] = "c".repeat(4000).into();
        let told: Vec<String> = decided(&pod, "{}").warnings.iter().map(str::to_owned).collect();
        assert!(told[0].contains("runtimeClassName \"cccc") && told[0].chars().count() < 400, "{told:?}");
    }

    #[test]
    fn a_pod_whose_annotations_are_full_gets_its_files_without_a_status() {
        let big = "x".repeat(256 * 1024);
        let pod = json!({"metadata": {"annotations": {SWITCH: "enabled", "big": big}}, "spec": {"containers": [{"name": "app"}]}});
        let ruling = decided(&pod, "files: [meminfo]");
        assert_eq!(operations(&ruling).len(), 2);
        assert!(ruling.warnings.iter().any(|warning| warning.contains("no room left")));
    }

    #[test]
    fn more_volumes_of_our_name_than_anyone_needs_leave_the_pod_as_it_is() {
        let volumes: Vec<Value> = (0..101).map(|n| json!({"name": format!("lxcfs-{n}")})).collect();
        let pod = json!({"metadata": {"annotations": {SWITCH: "enabled"}}, "spec": {"containers": [{"name": "app"}], "volumes": volumes}});
        assert!(
            decided(&pod, "{}").warnings.iter().next().unwrap().contains("more than 100 volumes of LXCFS")
        );
    }
}
