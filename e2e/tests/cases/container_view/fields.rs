//! That a pod keeps every field that there is: the injector which Durward replaces lost those that it did not know.
//!
//! The API server says itself which fields it knows (`/openapi/v3`), and has those features on that are off by
//! default and bring some. The pods of `pods.json` have all of them but for those that [`REASONS`] names: a version of
//! Kubernetes that knows one more fails this case until it is in there. They are stored and never run: only
//! one can, of those who would want a disk of every vendor.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::context::TestContext;
use e2e::controlplane::{Cluster, Options};
use e2e::durward::Durward;
use e2e::installation::Installation;
use e2e::namespace::Namespace;
use e2e::wait::{Poll, eventually};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::cases::files::{Looks as _, SIX, STATUS, check_mounts, check_volumes, without_additions};
use crate::cases::house::{DEFAULTS, ENABLED, await_files};
use crate::cases::unchanged_fields::differences;

mod schemas;

use schemas::{Field, Schemas};

/// Features that are off by default and without which the API server drops or refuses a field that it knows. (Not
/// all there are: some want to be agreed upon with other API servers, or APIs that are off too.)
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

/// The pod that gets an ephemeral container too.
const WHOLE: &str = "whole";

/// The guard has something against these, and leaves all of them as it is.
const LEFT_ALONE: [&str; 2] = ["left-alone", "windows"];

/// What only they have: the fields because of which they are left alone.
const ONLY_LEFT_ALONE: [(&str, &[&str]); 2] =
    [("PodSecurityContext", &["windowsOptions"]), ("PodSpec", &["hostPID"])];

/// Ways to be configured: each adds to other places of a pod.
const WAYS: [(&str, &str); 4] = [
    ("volumes", DEFAULTS),
    ("require", "  lxcfs: {nodeReadiness: require}"),
    ("prefer", "  lxcfs: {nodeReadiness: prefer}"),
    ("device", "  lxcfs: {backend: device}"),
];

/// What the last three add.
const READY: &str = "durward.dev/lxcfs-ready";
const DEVICE: &str = "durward.dev/lxcfs";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// A signal is heard at once, and a file read within milliseconds.
const READ_WITHIN: Duration = Duration::from_secs(60);

/// Where a look begins.
const ROOTS: [(&str, &str); 2] = [("spec", "PodSpec"), ("metadata", "ObjectMeta")];

/// Fields that no pod here has, and why.
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
    let mut installation = Installation::by_url(context, &cluster, DEFAULTS)?;
    let durward = installation.serve().named("durward-every-field").start_ready(context)?;
    installation.register()?;
    make_classes(&cluster)?;
    let silent = cluster.namespace("silent")?;
    await_files(&silent)?;
    let pods: Vec<Value> = serde_json::from_str(PODS)?;
    let twins = pods.iter().map(|pod| created(&silent, None, pod)).collect::<Result<Vec<_>>>()?;
    for twin in &twins {
        has_nothing_of_ours(twin)?;
    }
    has_every_field(&Schemas::of(&cluster)?, &twins)?;
    for (way, guards) in WAYS {
        if guards != DEFAULTS {
            configure(&installation, &durward, guards)?;
        }
        let asking = cluster.labelled_namespace(&format!("asking-{way}"), &ENABLED)?;
        for (pod, twin) in pods.iter().zip(&twins) {
            let injected = created(&asking, Some(way), pod)?;
            is_twin_and_additions(way, injected, twin)?;
        }
    }
    Ok(())
}

/// That pods have every field that this API server knows, of themselves: what the guard adds is none of theirs.
fn has_every_field(schemas: &Schemas, twins: &[Value]) -> Result<()> {
    let (mut found, mut left_alone) = (BTreeSet::new(), BTreeSet::new());
    for twin in twins {
        let into = if is_left_alone(twin) { &mut left_alone } else { &mut found };
        for (field, kind) in ROOTS {
            schemas.find(kind, &twin[field], into)?;
        }
    }
    // A pod that is left alone keeps all by nobody's doing.
    let only_there: BTreeSet<_> = left_alone.difference(&found).cloned().collect();
    let may = fields(ONLY_LEFT_ALONE.into_iter());
    ensure!(
        only_there == may,
        "only pods that are left alone have {only_there:?}, and what may stand only there is {may:?}"
    );
    let excused = fields(REASONS.into_iter().map(|(kind, fields, _)| (kind, fields)));
    let missing: Vec<_> = schemas
        .reachable()?
        .into_iter()
        .filter(|field| !found.contains(field) && !may.contains(field) && !excused.contains(field))
        .collect();
    ensure!(missing.is_empty(), "this API server knows fields that no pod here has: {missing:?}");
    let needless: Vec<_> = excused.intersection(&found).collect();
    ensure!(needless.is_empty(), "there is a reason why these are missing, and they are not: {needless:?}");
    Ok(())
}

/// That nothing of a twin is taken for an addition, and its loss so for none.
fn has_nothing_of_ours(twin: &Value) -> Result<()> {
    let name = &twin["metadata"]["name"];
    ensure!(twin["metadata"]["annotations"][STATUS].is_null(), "the twin of {name} has been judged too");
    for way in WAYS {
        let mut same = twin.clone();
        ensure!(take_away(way.0, &mut same) == 0, "the twin of {name} has what {} adds", way.0);
    }
    check_volumes(twin, &[])?;
    let lists = ["containers", "initContainers", "ephemeralContainers"];
    let mut containers = lists.iter().flat_map(|list| twin["spec"][list].as_array().into_iter().flatten());
    containers.try_for_each(|container| check_mounts(container, &[]))
}

/// That a pod has what this way adds, and else is its twin.
fn is_twin_and_additions(way: &str, mut injected: Value, twin: &Value) -> Result<()> {
    let name = twin["metadata"]["name"].clone();
    let added = take_away(way, &mut injected);
    let containers = twin["spec"]["containers"].as_array().map_or(0, Vec::len);
    let is_bound = !twin["spec"]["nodeName"].is_null();
    let expected = match way {
        _ if is_left_alone(twin) => 0,
        // Nobody schedules it any more.
        "require" | "prefer" if is_bound => 0,
        "require" | "prefer" => 1,
        "device" => 2 * containers,
        _ => 0,
    };
    ensure!(added == expected, "{way} added {added} and not {expected} entries to pod {name}: {injected}");
    let (left, right) = (without_additions(&injected), without_additions(twin));
    ensure!(left == right, "by {way}, pod {name} and its twin differ: {}", differences(&left, &right));
    Ok(())
}

fn is_left_alone(pod: &Value) -> bool {
    LEFT_ALONE.iter().any(|name| pod["metadata"]["name"] == *name)
}

/// Takes what a way adds beside volumes and mounts from a pod, and says how much that was. What is empty then the
/// API server leaves out; but `resources` it never does.
fn take_away(way: &str, pod: &mut Value) -> usize {
    match way {
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

/// Removes entries of the object `key` in what stands at `at`, and the object too if nothing is left of it; says how many.
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

fn configure(installation: &Installation<'_>, durward: &Durward, guards: &str) -> Result<()> {
    let generation = || durward.metrics()?.value("durward_config_generation", &[]);
    let before = generation()?;
    installation.configure(guards)?;
    durward.signal(Signal::HUP)?;
    eventually("a new configuration to bind", READ_WITHIN, || {
        let now = generation()?;
        Ok(if now > before + 0.5 { Poll::Ready(()) } else { Poll::Pending(format!("generation {now}")) })
    })
}

/// The pod as it is stored, with all that is done to it.
fn created(namespace: &Namespace<'_>, way: Option<&str>, pod: &Value) -> Result<Value> {
    let name = pod["metadata"]["name"].as_str().context("a pod without a name")?;
    create(namespace, way, pod, name)?;
    if name == WHOLE {
        debug(namespace, way, name)?;
    }
    stored(namespace, name)
}

/// Creates a pod that asks where its namespace does, which is in some way, and looks whether it is judged as it
/// should be.
fn create(namespace: &Namespace<'_>, way: Option<&str>, pod: &Value, name: &str) -> Result<()> {
    let sentence = namespace.pod(name).with(|object| {
        let of = object["metadata"]["namespace"].clone();
        object["metadata"] = pod["metadata"].clone();
        object["metadata"]["namespace"] = of;
        object["spec"] = pod["spec"].clone();
    });
    let admitted = sentence.is_admitted().with_context(|| format!("pod {name}"))?;
    let Some(way) = way else { return admitted.untouched().map(drop) };
    if LEFT_ALONE.contains(&name) {
        return admitted.left_without_files_because("it ").map(drop);
    }
    if way == "device" { admitted.without_files() } else { admitted.with_files(&SIX) }.map(drop)
}

/// Adds an ephemeral container with every field that one may have.
fn debug(namespace: &Namespace<'_>, way: Option<&str>, pod: &str) -> Result<()> {
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
    // One that comes later can have no device.
    let files: &[&str] = if way.is_some_and(|way| way != "device") { &SIX } else { &[] };
    check_mounts(&answer.body["spec"]["ephemeralContainers"][0], files)
}

fn stored(namespace: &Namespace<'_>, name: &str) -> Result<Value> {
    let path = format!("{}/{name}", namespace.path("pods"));
    Ok(namespace.cluster().api().get(&path)?.succeeded()?.body)
}

/// What admission plugins want to be there: the runtime class whose overhead the pod has, and its priority.
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
    cluster.api().create("/apis/scheduling.k8s.io/v1/priorityclasses", &priority)?.succeeded()?;
    Ok(())
}

fn fields<'a>(of_kinds: impl Iterator<Item = (&'a str, &'a [&'a str])>) -> BTreeSet<Field> {
    let all = of_kinds.flat_map(|(kind, fields)| fields.iter().map(move |field| (kind, *field)));
    all.map(|(kind, field)| (kind.to_owned(), field.to_owned())).collect()
}
