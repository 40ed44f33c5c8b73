//! Injection keeps every field of a pod. The injector that Durward replaces dropped fields that it did not
//! know.
//!
//! The API server lists its fields (`/openapi/v3`), and alpha features are on. The pods of `pods.json` have
//! all of them except those in [`REASONS`]: a Kubernetes version with a new field fails this case until the
//! field is added. The pods never run, because they use disks of every vendor.

use std::collections::BTreeSet;

use e2e::prelude::*;

use crate::cases::environment::{DEFAULTS, OPTED_IN, await_injection};
use crate::cases::files::{
    DEFAULT_FILES, LxcfsChecks as _, STATUS, check_mounts, check_volumes, without_additions,
};
use crate::cases::unchanged_fields::differences;

mod schemas;

use schemas::{Field, Schemas};

/// Features that are off by default and without which the API server drops or rejects a field.
///
/// Others are left out: they need a vote of several API servers, or APIs that are off too.
const FEATURES: [&str; 7] = [
    "ClusterTrustBundle",
    "ClusterTrustBundleProjection",
    "ContainerStopSignals",
    "CrossNamespaceVolumeDataSource",
    "GenericWorkload",
    "PodCertificateRequest",
    "SELinuxMount",
];

/// Pods that together have every field.
const PODS: &str = include_str!("fields/pods.json");

/// The pod that also gets an ephemeral container.
const WITH_EPHEMERAL: &str = "whole";

/// Pods that the guard skips.
const SKIPPED: [&str; 2] = ["left-alone", "windows"];

/// Fields that only the skipped pods have, because they cause the skip.
const ONLY_SKIPPED: [(&str, &[&str]); 2] =
    [("PodSecurityContext", &["windowsOptions"]), ("PodSpec", &["hostPID"])];

/// Configurations: each adds to other places of a pod.
const CONFIGURATIONS: [(&str, &str); 4] = [
    ("volumes", DEFAULTS),
    ("require", "  lxcfs: {nodeAffinity: required}"),
    ("prefer", "  lxcfs: {nodeAffinity: preferred}"),
    ("device", "  lxcfs: {mountMethod: devicePlugin}"),
];

/// The additions of the last three.
const READY: &str = "durward.dev/lxcfs-ready";
const DEVICE: &str = "durward.dev/lxcfs";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

const ROOTS: [(&str, &str); 2] = [("spec", "PodSpec"), ("metadata", "ObjectMeta")];

/// Fields that no pod here has, and the reason.
const REASONS: [(&str, &[&str], &str); 2] = [
    (
        "ObjectMeta",
        &["deletionGracePeriodSeconds", "deletionTimestamp", "selfLink"],
        "set while an object is deleted, or never any more",
    ),
    (
        "EphemeralContainer",
        &[
            "lifecycle",
            "livenessProbe",
            "ports",
            "readinessProbe",
            "resizePolicy",
            "restartPolicy",
            "restartPolicyRules",
            "startupProbe",
        ],
        "refused by the API server",
    ),
];

#[e2e::case(Slow)]
fn pods_with_every_field_equal_their_twins_except_our_additions(context: &'static TestContext) -> Result<()> {
    let gates = FEATURES.map(|feature| format!("{feature}=true"));
    let options = Options::named("every-field").flag(format!("--feature-gates={}", gates.join(",")));
    let cluster = context.own_cluster(&options)?;
    let (installation, durward) = Installation::start(context, &cluster, DEFAULTS, "durward-every-field")?;
    make_classes(&cluster)?;
    let plain = cluster.namespace("silent")?;
    await_injection(&plain)?;
    let pods: Vec<Value> = serde_json::from_str(PODS)?;
    let twins = pods.iter().map(|pod| created(&plain, None, pod)).collect::<Result<Vec<_>>>()?;
    for twin in &twins {
        has_no_additions(twin)?;
    }
    has_every_field(&Schemas::read(&cluster)?, &twins)?;
    for (configuration, guards) in CONFIGURATIONS {
        if guards != DEFAULTS {
            durward.reload_after(|| installation.configure(guards))?;
        }
        let opted_in_namespace = cluster.labelled_namespace(&format!("asking-{configuration}"), &OPTED_IN)?;
        for (pod, twin) in pods.iter().zip(&twins) {
            let injected = created(&opted_in_namespace, Some(configuration), pod)?;
            equals_twin_with_additions(configuration, injected, twin)?;
        }
    }
    Ok(())
}

/// Expects the pods to have every field of this API server by themselves, not by the guard.
fn has_every_field(schemas: &Schemas, twins: &[Value]) -> Result<()> {
    let (mut found, mut skipped) = (BTreeSet::new(), BTreeSet::new());
    for twin in twins {
        let into = if is_skipped(twin) { &mut skipped } else { &mut found };
        for (field, kind) in ROOTS {
            schemas.find(kind, &twin[field], into)?;
        }
    }
    // A skipped pod keeps its fields without injection, so it proves nothing.
    let only_there: BTreeSet<_> = skipped.difference(&found).cloned().collect();
    let may = fields(ONLY_SKIPPED.into_iter());
    ensure!(only_there == may, "only skipped pods have {only_there:?} instead of {may:?}");
    let excused = fields(REASONS.into_iter().map(|(kind, fields, _)| (kind, fields)));
    let missing: Vec<_> = schemas
        .reachable()?
        .into_iter()
        .filter(|field| !found.contains(field) && !may.contains(field) && !excused.contains(field))
        .collect();
    ensure!(missing.is_empty(), "no pod has these fields of the API server: {missing:?}");
    let needless: Vec<_> = excused.intersection(&found).collect();
    ensure!(needless.is_empty(), "these fields have a reason to be missing, but are present: {needless:?}");
    Ok(())
}

/// Expects a twin without additions, so that an addition is not a field of its own.
fn has_no_additions(twin: &Value) -> Result<()> {
    let name = &twin["metadata"]["name"];
    ensure!(twin["metadata"]["annotations"][STATUS].is_null(), "the twin of {name} has been judged too");
    for configuration in CONFIGURATIONS {
        let mut same = twin.clone();
        ensure!(
            remove_additions(configuration.0, &mut same) == 0,
            "the twin of {name} has what {} adds",
            configuration.0
        );
    }
    check_volumes(twin, &[])?;
    let lists = ["containers", "initContainers", "ephemeralContainers"];
    let mut containers = lists.iter().flat_map(|list| twin["spec"][list].as_array().into_iter().flatten());
    containers.try_for_each(|container| check_mounts(container, &[]))
}

/// Expects the additions of this configuration, and otherwise an equal twin.
fn equals_twin_with_additions(configuration: &str, mut injected: Value, twin: &Value) -> Result<()> {
    let name = twin["metadata"]["name"].clone();
    let added = remove_additions(configuration, &mut injected);
    let containers = twin["spec"]["containers"].as_array().map_or(0, Vec::len);
    let is_bound = !twin["spec"]["nodeName"].is_null();
    let expected = match configuration {
        _ if is_skipped(twin) => 0,
        // A bound pod is not scheduled any more.
        "require" | "prefer" if is_bound => 0,
        "require" | "prefer" => 1,
        "device" => 2 * containers,
        _ => 0,
    };
    ensure!(
        added == expected,
        "{configuration} added {added} and not {expected} entries to pod {name}: {injected}"
    );
    let (left, right) = (without_additions(&injected), without_additions(twin));
    let differences = differences(&left, &right);
    ensure!(differences.is_empty(), "by {configuration}, pod {name} and its twin differ: {differences}");
    Ok(())
}

fn is_skipped(pod: &Value) -> bool {
    SKIPPED.iter().any(|name| pod["metadata"]["name"] == *name)
}

/// Removes the additions except volumes and mounts and returns their number. Empty objects are removed as the
/// API server does, except `resources`.
fn remove_additions(configuration: &str, pod: &mut Value) -> usize {
    match configuration {
        "require" => remove(pod, "/spec", "nodeSelector", |key, _| key == READY),
        "prefer" => {
            let at = "/spec/affinity/nodeAffinity";
            let terms = pod.pointer_mut(at).and_then(|affinity| affinity.get_mut(PREFERRED));
            let Some(terms) = terms.and_then(Value::as_array_mut) else { return 0 };
            let before = terms.len();
            terms.retain(|term| {
                *term
                    != json!({"weight": 100, "preference": {"matchExpressions": [
                        {"key": READY, "operator": "In", "values": ["true"]},
                    ]}})
            });
            let taken = before - terms.len();
            if taken > 0 {
                let empty = |_: &str, value: &Value| [json!([]), json!({})].contains(value);
                remove(pod, "/spec/affinity", "nodeAffinity", empty);
                remove(pod, "/spec", "affinity", empty);
            }
            taken
        }
        "device" => {
            let mut taken = 0;
            for list in ["containers", "initContainers", "ephemeralContainers"] {
                for number in 0..pod["spec"][list].as_array().map_or(0, Vec::len) {
                    let at = format!("/spec/{list}/{number}/resources");
                    for amounts in ["limits", "requests"] {
                        taken += remove(pod, &at, amounts, |key, value| key == DEVICE && value == "1");
                    }
                }
            }
            taken
        }
        _ => 0,
    }
}

/// Removes matching entries of the object `key` at `at`, and the object if it is empty. Returns the number of
/// entries.
fn remove(pod: &mut Value, at: &str, key: &str, which: impl Fn(&str, &Value) -> bool) -> usize {
    let Some(parent) = pod.pointer_mut(at).and_then(Value::as_object_mut) else { return 0 };
    let Some(object) = parent.get_mut(key).and_then(Value::as_object_mut) else { return 0 };
    let before = object.len();
    object.retain(|key, value| !which(key, value));
    let (after, taken) = (object.len(), before - object.len());
    if after == 0 {
        parent.remove(key);
    }
    taken
}

/// Returns the stored pod after all changes to it.
fn created(namespace: &Namespace<'_>, configuration: Option<&str>, pod: &Value) -> Result<Value> {
    let name = pod["metadata"]["name"].as_str().context("a pod without a name")?;
    create(namespace, configuration, pod, name)?;
    if name == WITH_EPHEMERAL {
        debug(namespace, configuration, name)?;
    }
    stored(namespace, name)
}

/// Creates a pod, whose namespace opts in if there is a configuration, and checks the result.
fn create(namespace: &Namespace<'_>, configuration: Option<&str>, pod: &Value, name: &str) -> Result<()> {
    let sentence = namespace.pod(name).with(|object| {
        let of = object["metadata"]["namespace"].clone();
        object["metadata"] = pod["metadata"].clone();
        object["metadata"]["namespace"] = of;
        object["spec"] = pod["spec"].clone();
    });
    let admitted = sentence.is_admitted().with_context(|| format!("pod {name}"))?;
    let Some(configuration) = configuration else { return admitted.untouched().map(drop) };
    if SKIPPED.contains(&name) {
        let reason = if name == "windows" { "it runs on Windows" } else { "hostPID is true" };
        return admitted.skipped_because(reason).map(drop);
    }
    if configuration == "device" { admitted.without_files() } else { admitted.with_files(&DEFAULT_FILES) }
        .map(drop)
}

/// Adds an ephemeral container with every possible field.
fn debug(namespace: &Namespace<'_>, configuration: Option<&str>, pod: &str) -> Result<()> {
    let container = json!({
        "name": "debug", "image": "images.example/debug:1", "imagePullPolicy": "Always", "targetContainerName": "full",
        "command": ["sh"], "args": ["-c", "look"], "workingDir": "/srv", "stdin": true, "stdinOnce": true, "tty": true,
        "env": [{"name": "NAME", "value": "debug"}], "envFrom": [{"configMapRef": {"name": "map"}}],
        "securityContext": {"capabilities": {"add": ["SYS_PTRACE"]}},
        "terminationMessagePath": "/srv/last-words", "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeDevices": [{"name": "claim", "devicePath": "/dev/xvda"}],
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
    });
    let path = format!("{}/{pod}/ephemeralcontainers", namespace.path("pods"));
    let change = json!({"spec": {"ephemeralContainers": [container]}});
    let answer = namespace.cluster().api().merge(&path, &change)?.succeeded()?;
    // A later container can have no device.
    let files: &[&str] = if configuration.is_some_and(|configuration| configuration != "device") {
        &DEFAULT_FILES
    } else {
        &[]
    };
    check_mounts(&answer.body["spec"]["ephemeralContainers"][0], files)
}

fn stored(namespace: &Namespace<'_>, name: &str) -> Result<Value> {
    let path = format!("{}/{name}", namespace.path("pods"));
    Ok(namespace.cluster().api().get(&path)?.succeeded()?.body)
}

/// Creates the objects that admission plugins require: the runtime class with the pod's overhead, and its
/// priority.
fn make_classes(cluster: &Cluster) -> Result<()> {
    let runtime = json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "runc"}, "handler": "runc",
        "overhead": {"podFixed": {"cpu": "50m", "memory": "16Mi"}},
    });
    cluster.api().create("/apis/node.k8s.io/v1/runtimeclasses", &runtime)?.succeeded()?;
    let priority = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "patient"},
        "value": 1000, "preemptionPolicy": "Never",
    });
    cluster.api().create("/apis/scheduling.k8s.io/v1/priorityclasses", &priority)?.succeeded().map(drop)
}

fn fields<'a>(of_kinds: impl Iterator<Item = (&'a str, &'a [&'a str])>) -> BTreeSet<Field> {
    let all = of_kinds.flat_map(|(kind, fields)| fields.iter().map(move |field| (kind, *field)));
    all.map(|(kind, field)| (kind.to_owned(), field.to_owned())).collect()
}
