//! That a pod keeps every field that there is: the injector which Durward replaces lost those that it did not know.
//!
//! The API server says itself which fields it knows (`/openapi/v3`), and has those features on that are off by
//! default and bring some. The pods of `pods.json` have all of them but for those that [`REASONS`] names: a version of
//! Kubernetes that knows one more fails this case until it is in there. They are stored and never run: only
//! one can, of those who would want a disk of every vendor.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use e2e::controlplane::{Cluster, Options};
use e2e::installation::Installation;
use e2e::namespace::Namespace;
use e2e::stage::Stage;
use serde_json::{Value, json};

use crate::cases::files::{Looks as _, SIX, STATUS, check_mounts, without_additions};
use crate::cases::house::{DEFAULTS, ENABLED, await_files};
use crate::cases::whole::differences;

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

pub(crate) fn pods_of_every_field_are_their_uninjected_twins_and_our_additions(
    stage: &'static Stage,
) -> Result<()> {
    let gates = FEATURES.map(|feature| format!("{feature}=true"));
    let options = Options::named("every-field").flag(format!("--feature-gates={}", gates.join(",")));
    let cluster = stage.own_cluster(&options)?;
    let mut installation = Installation::by_url(stage, &cluster, DEFAULTS)?;
    let _durward = installation.serve().named("durward-every-field").start_ready(stage)?;
    installation.register()?;
    make_classes(&cluster)?;
    let (asking, silent) = (cluster.labelled_namespace("asking", &ENABLED)?, cluster.namespace("silent")?);
    await_files(&silent)?;

    let schemas = Schemas::of(&cluster)?;
    let mut found = BTreeSet::new();
    let pods: Vec<Value> = serde_json::from_str(PODS)?;
    for pod in &pods {
        let name = pod["metadata"]["name"].as_str().context("a pod without a name")?;
        create(&asking, pod, name)?;
        create(&silent, pod, name)?;
        if name == WHOLE {
            for namespace in [&asking, &silent] {
                debug(namespace, name)?;
            }
        }
        let (injected, twin) = (stored(&asking, name)?, stored(&silent, name)?);
        ensure!(twin["metadata"]["annotations"][STATUS].is_null(), "the twin of {name} has been judged too");
        let (left, right) = (without_additions(&injected), without_additions(&twin));
        ensure!(left == right, "pod {name} and its twin differ: {}", differences(&left, &right));
        for (field, kind) in ROOTS {
            schemas.find(kind, &injected[field], &mut found)?;
        }
    }
    let excused = excused();
    let missing: Vec<_> = schemas
        .reachable()?
        .into_iter()
        .filter(|field| !found.contains(field) && !excused.contains(field))
        .collect();
    ensure!(missing.is_empty(), "this API server knows fields that no pod here has: {missing:?}");
    let needless: Vec<_> = excused.intersection(&found).collect();
    ensure!(needless.is_empty(), "there is a reason why these are missing, and they are not: {needless:?}");
    Ok(())
}

/// Creates a pod that asks where its namespace does, and looks whether it is judged as it should be.
fn create(namespace: &Namespace<'_>, pod: &Value, name: &str) -> Result<()> {
    let asks = namespace.name().starts_with("asking");
    let sentence = namespace.pod(name).with(|object| {
        let of = object["metadata"]["namespace"].clone();
        object["metadata"] = pod["metadata"].clone();
        object["metadata"]["namespace"] = of;
        object["spec"] = pod["spec"].clone();
    });
    let admitted = sentence.is_admitted().with_context(|| format!("pod {name}"))?;
    if !asks {
        return admitted.untouched().map(drop);
    }
    if LEFT_ALONE.contains(&name) {
        return admitted.left_without_files_because("it ").map(drop);
    }
    admitted.with_files(&SIX).map(drop)
}

/// Adds an ephemeral container with every field that one may have.
fn debug(namespace: &Namespace<'_>, pod: &str) -> Result<()> {
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
    let files: &[&str] = if namespace.name().starts_with("asking") { &SIX } else { &[] };
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

/// A kind of object, by the last part of its name, and one of its fields.
type Field = (String, String);

fn excused() -> BTreeSet<Field> {
    let all = REASONS.iter().flat_map(|(kind, fields, _)| fields.iter().map(|field| (*kind, *field)));
    all.map(|(kind, field)| (kind.to_owned(), field.to_owned())).collect()
}

/// What an API server says of the objects that it knows.
struct Schemas(BTreeMap<String, Value>);

impl Schemas {
    fn of(cluster: &Cluster) -> Result<Self> {
        let told = cluster.api().get("/openapi/v3/api/v1")?.succeeded()?.body;
        let schemas = told["components"]["schemas"].as_object().context("an OpenAPI without schemas")?;
        let short = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
        // Of kinds that only other objects have there may be two of one short name.
        let core = |name: &str| name.contains(".core.v1.") || name.contains(".meta.v1.");
        Ok(Self(
            schemas
                .iter()
                .filter(|(name, _)| core(name))
                .map(|(name, schema)| (short(name), schema.clone()))
                .collect(),
        ))
    }

    /// The fields of a kind; none of what is no object, such as a quantity.
    fn fields(&self, kind: &str) -> impl Iterator<Item = (&String, &Value)> {
        self.0.get(kind).and_then(|schema| schema["properties"].as_object()).into_iter().flatten()
    }

    /// Every field that a pod can have, at whatever depth.
    fn reachable(&self) -> Result<BTreeSet<Field>> {
        let mut fields = BTreeSet::new();
        let mut kinds: Vec<String> = ROOTS.map(|(_, kind)| kind.to_owned()).into();
        let mut known = BTreeSet::new();
        while let Some(kind) = kinds.pop() {
            if !known.insert(kind.clone()) {
                continue;
            }
            for (field, schema) in self.fields(&kind) {
                fields.insert((kind.clone(), field.clone()));
                kinds.extend(kind_in(schema));
            }
        }
        ensure!(fields.len() > 500, "in the OpenAPI a pod has only {} fields", fields.len());
        Ok(fields)
    }

    /// The fields that an object of this kind has, with those of all that is in it.
    fn find(&self, kind: &str, value: &Value, found: &mut BTreeSet<Field>) -> Result<()> {
        match value {
            Value::Array(items) => {
                for item in items {
                    self.find(kind, item, found)?;
                }
            }
            Value::Object(object) => {
                for (field, schema) in self.fields(kind) {
                    let Some(value) = object.get(field) else { continue };
                    found.insert((kind.to_owned(), field.clone()));
                    if let Some(kind) = kind_in(schema) {
                        self.find(&kind, value, found)?;
                    }
                }
                let known: BTreeSet<&String> = self.fields(kind).map(|(field, _)| field).collect();
                let strange = object.keys().find(|key| !known.is_empty() && !known.contains(key));
                ensure!(strange.is_none(), "{kind} has {strange:?}, of which the OpenAPI says nothing");
            }
            _ => {}
        }
        Ok(())
    }
}

/// The kind that a field refers to, in a list or not; none if it is a plain value.
fn kind_in(schema: &Value) -> Option<String> {
    let direct = schema["$ref"].as_str().or_else(|| schema["allOf"][0]["$ref"].as_str());
    match direct {
        Some(reference) => reference.rsplit('.').next().map(ToOwned::to_owned),
        None => [&schema["items"], &schema["additionalProperties"]]
            .into_iter()
            .find(|inner| inner.is_object())
            .and_then(kind_in),
    }
}
