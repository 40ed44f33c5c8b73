//! Properties of every review of the LXCFS guard. The property tests and the fuzz target `injection` use them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use admission::{BoxFuture, Guard, Ruling, Verdict, decode};
use cluster::{self, Address, Clients, Metadata, Reader};
use guards::GUARD_KINDS;
use serde_json::Value;

/// A reader in which every namespace opts in. One namespace has a Pod Security level.
struct OptInReader;

/// A namespace in which Pod Security rejects hostPath volumes.
pub(crate) const RESTRICTED: &str = "strict";

impl Reader for OptInReader {
    fn get<'a>(&'a self, namespace: Address<'a>, _: Instant) -> BoxFuture<'a, cluster::MetadataResult> {
        let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let mut labels: BTreeMap<_, _> = [label("durward.dev/lxcfs", "enabled")].into();
        labels.extend(
            (namespace.name == RESTRICTED).then(|| label("pod-security.kubernetes.io/enforce", "restricted")),
        );
        Box::pin(std::future::ready(Ok(Some(Arc::new(Metadata { labels, ..Metadata::default() })))))
    }
}

/// Returns the guard with this section. Every namespace opts in.
pub(crate) fn guard(yaml: &str) -> Arc<dyn Guard> {
    let kind = GUARD_KINDS.iter().find(|kind| kind.name() == "lxcfs").unwrap();
    let root = config::parse("-", yaml).unwrap();
    let (configured, _, problems) =
        config::read("-", root.as_ref(), |section| kind.read(section, guards::NAMESPACE));
    assert_eq!(problems, []);
    configured.build(&Clients::reader_only(Arc::new(OptInReader))).remove(0)
}

/// Returns the ruling, or none if the body is not a review.
pub(crate) fn rule(guard: &dyn Guard, body: &[u8]) -> Option<Ruling> {
    let review = decode(body, guard.fields()).ok()?;
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    Some(runtime.block_on(guard.review(&review.request, Instant::now() + Duration::from_secs(5))))
}

/// Returns the operations of a ruling. The guard never denies, and the reader never fails.
pub(crate) fn operations(ruling: &Ruling) -> Vec<Value> {
    match &ruling.verdict {
        Verdict::Mutate(patch) => serde_json::from_slice(patch.as_json()).unwrap(),
        Verdict::Allow => Vec::new(),
        other => panic!("{other:?}"),
    }
}

/// The path of the status annotation.
pub(crate) const STATUS: &str = "/metadata/annotations/durward.dev~1lxcfs-status";

/// Checks one review as it was sent, and returns the object after the patch. Returns none if the body is not a review, or if
/// only our reader accepts it (numbers beyond a float, halves of surrogate pairs).
pub(crate) fn check(guard: &dyn Guard, body: &[u8]) -> Option<Value> {
    let ruling = rule(guard, body)?;
    let operations = operations(&ruling);
    let review: Value = serde_json::from_slice(body).ok()?;
    let object = &review["request"]["object"];
    for operation in &operations {
        let path = operation["path"].as_str().unwrap();
        assert!(is_allowed_path(path), "{path}");
    }
    let patched = apply(object, &operations);
    assert_eq!(&revert(patched.clone(), object, &operations), object);
    assert_safe_mounts(object, &patched);
    assert_valid_additions(object, &patched, &operations);

    // An unchanged pod needs no second review. Serializing it would also remove its duplicate keys.
    if !operations.is_empty() {
        let mut second = review.clone();
        second["request"]["object"] = patched.clone();
        let again = rule(guard, second.to_string().as_bytes()).unwrap();
        assert_eq!(again.verdict, Verdict::Allow, "a second pass adds something to {patched}");
    }
    Some(patched)
}

/// Applies the operations one after another.
fn apply(pod: &Value, operations: &[Value]) -> Value {
    let mut patched = pod.clone();
    for operation in operations {
        let (parent, _) = operation["path"].as_str().unwrap().rsplit_once('/').unwrap();
        let parent = patched.pointer(parent);
        assert!(
            parent.is_some_and(|parent| parent.is_object() || parent.is_array()),
            "{operation} has no parent in {pod}"
        );
        let patch: json_patch::Patch = serde_json::from_value(Value::from([operation.clone()])).unwrap();
        json_patch::patch(&mut patched, &patch).unwrap();
    }
    patched
}

/// Reverts the operations in `patched`, the last one first.
fn revert(mut patched: Value, original: &Value, operations: &[Value]) -> Value {
    for operation in operations.iter().rev() {
        let path = operation["path"].as_str().unwrap();
        assert_eq!(operation["op"], "add");
        if let Some(list) = path.strip_suffix("/-") {
            let last = patched.pointer_mut(list).unwrap().as_array_mut().unwrap().pop();
            assert_eq!(last.as_ref(), Some(&operation["value"]));
            continue;
        }
        let (parent, key) = path.rsplit_once('/').unwrap();
        let key = key.replace("~1", "/").replace("~0", "~");
        let parent = patched.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        match original.pointer(path) {
            Some(before) if path == STATUS || before.is_null() => drop(parent.insert(key, before.clone())),
            Some(before) => panic!("{path} replaces {before}"),
            None => drop(parent.remove(&key)),
        }
    }
    patched
}

const POD_PATHS: [&str; 10] = [
    "/metadata/annotations",
    STATUS,
    "/spec/volumes",
    "/spec/volumes/-",
    "/spec/nodeSelector",
    "/spec/nodeSelector/durward.dev~1lxcfs-ready",
    "/spec/affinity",
    "/spec/affinity/nodeAffinity",
    "/spec/affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution",
    "/spec/affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution/-",
];
const CONTAINER_PATHS: [&str; 7] = [
    "volumeMounts",
    "volumeMounts/-",
    "resources",
    "resources/limits",
    "resources/limits/durward.dev~1lxcfs",
    "resources/requests",
    "resources/requests/durward.dev~1lxcfs",
];

fn is_allowed_path(path: &str) -> bool {
    let in_container = |list: &str, permitted: &[&str]| {
        path.strip_prefix(list)
            .and_then(|rest| rest.split_once('/'))
            .is_some_and(|(index, rest)| index.parse::<usize>().is_ok() && permitted.contains(&rest))
    };
    POD_PATHS.contains(&path)
        || in_container("/spec/containers/", &CONTAINER_PATHS)
        || in_container("/spec/initContainers/", &CONTAINER_PATHS)
        || in_container("/spec/ephemeralContainers/", &CONTAINER_PATHS[..2])
}

const RESOURCE: &str = "durward.dev/lxcfs";
const READY: &str = "durward.dev/lxcfs-ready";

/// Checks that the API server accepts the additions, and that a pod gets either volumes or resources.
///
/// Extended resources are whole numbers, and the request equals the limit (`validateResourceRequirements`). A preferred term has a
/// weight from 1 to 100 (`ValidatePreferredSchedulingTerms`).
fn assert_valid_additions(pod: &Value, patched: &Value, operations: &[Value]) {
    let added = |what: &str| operations.iter().any(|op| op["path"].as_str().unwrap().contains(what));
    assert!(!(added("/resources") && (added("/spec/volumes") || added("volumeMounts"))), "{operations:?}");
    assert!(!(added("/resources") && (added("nodeSelector") || added("affinity"))), "{operations:?}");
    assert!(!(added("nodeSelector") && added("affinity")), "{operations:?}");
    for operation in operations {
        let path = operation["path"].as_str().unwrap();
        let Some((container, _)) = path.split_once("/resources") else { continue };
        let amount = |map: &str| &patched.pointer(container).unwrap()["resources"][map][RESOURCE];
        assert_eq!((amount("limits"), amount("requests")), (&Value::from("1"), &Value::from("1")), "{path}");
    }
    if added("nodeSelector") {
        assert_eq!(patched["spec"]["nodeSelector"][READY], "true");
    }
    if added("affinity") {
        let preferred = |of: &Value| {
            of["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
                .as_array()
                .cloned()
                .unwrap_or_default()
        };
        let terms = preferred(patched);
        assert_eq!(terms.len(), preferred(pod).len() + 1);
        let ours = serde_json::json!({"weight": 100, "preference": {"matchExpressions":
            [{"key": READY, "operator": "In", "values": ["true"]}]}});
        assert_eq!(terms.last(), Some(&ours));
    }
    let has_node = pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty())
        || pod["metadata"]["ownerReferences"].as_array().is_some_and(|owners| {
            owners.iter().any(|owner| {
                let version = owner["apiVersion"].as_str().unwrap_or_default();
                owner["kind"] == "DaemonSet" && version.starts_with("apps/") && owner["controller"] == true
            })
        });
    assert!(!(has_node && (added("nodeSelector") || added("affinity"))), "{pod}");
    let has_files = |container: &Value| {
        container["volumeMounts"].as_array().is_some_and(|mounts| {
            mounts.iter().any(|mount| {
                mount["mountPath"].as_str().is_some_and(|path| path.contains("proc") || path.contains("/sys"))
            })
        })
    };
    if added("nodeSelector") || added("affinity") {
        let lists = ["containers", "initContainers"].map(|list| patched["spec"][list].as_array().cloned());
        assert!(lists.into_iter().flatten().flatten().any(|container| has_files(&container)), "{patched}");
    }
}

/// Checks that mounts are read-only, volumes have type File, and no path or volume name is duplicate.
fn assert_safe_mounts(pod: &Value, patched: &Value) {
    let list =
        |of: &Value, path: &str| of.pointer(path).and_then(Value::as_array).cloned().unwrap_or_default();
    let before = list(pod, "/spec/volumes").len();
    let volumes = list(patched, "/spec/volumes");
    for (index, volume) in volumes.iter().enumerate().skip(before) {
        assert_eq!(volume["hostPath"]["type"], "File");
        assert!(volumes.iter().take(index).all(|earlier| earlier["name"] != volume["name"]), "{volumes:?}");
    }
    let is_there = |name: &Value| volumes.iter().any(|volume| volume["name"] == *name);
    for key in ["containers", "initContainers", "ephemeralContainers"] {
        let path = format!("/spec/{key}");
        for name in list(pod, &path).iter().flat_map(|container| list(container, "/volumeMounts")) {
            // A mount of a missing volume must not refer to a new volume.
            let name = &name["name"];
            let was_there = volumes.iter().take(before).any(|volume| volume["name"] == *name);
            assert!(was_there || !name.is_string() || !is_there(name), "{name} is there now");
        }
        for (old, new) in list(pod, &path).iter().zip(list(patched, &path)) {
            let before = list(old, "/volumeMounts").len();
            let mounts = list(&new, "/volumeMounts");
            for (index, mount) in mounts.iter().enumerate().skip(before) {
                assert_eq!(mount["readOnly"], true);
                assert!(is_there(&mount["name"]));
                assert!(mounts.iter().take(index).all(|earlier| earlier["mountPath"] != mount["mountPath"]));
            }
        }
    }
}
