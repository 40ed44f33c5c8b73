//! Properties of the LXCFS guard for every pod: the patch changes nothing of the pod, it applies, and a second review adds
//! nothing. The pods are random, valid and invalid, with keys in random order. A library applies each patch.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by them")]

mod check;
mod json_writer;

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use admission::Guard;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use proptest::strategy::ValueTree as _;
use proptest::{collection::vec, option};
use serde_json::{Map, Value, json};

use check::{RESTRICTED, STATUS, guard, operations, rule};
use json_writer::{DuplicateKey, OTHER_VALUES, write};

/// Configurations with the same properties.
const CONFIGURATIONS: [&str; 9] = [
    "{}",
    "{includeInitContainers: true, files: [cpuinfo, meminfo, diskstats, stat, swaps, uptime, loadavg, slabinfo, online]}",
    "{onlyLimitedContainers: true, runtimeClasses: [runc, kata]}",
    "{lxcfsPath: /mnt, includeInitContainers: true, files: [meminfo, online]}",
    "{nodeAffinity: required}",
    "{nodeAffinity: preferred, includeInitContainers: true}",
    "{mountMethod: devicePlugin}",
    "{mountMethod: devicePlugin, includeInitContainers: true, onlyLimitedContainers: true, files: [meminfo, stat]}",
    "{mountMethod: auto, nodeAffinity: required}",
];
/// The guard of each configuration.
static GUARDS: LazyLock<Vec<Arc<dyn Guard>>> = LazyLock::new(|| CONFIGURATIONS.map(guard).into());

/// Indexes in the list of configurations.
const REQUIRED_AFFINITY: usize = 4;
const PREFERRED_AFFINITY: usize = 5;
const DEVICE: usize = 6;
const AUTO: usize = 8;

fn review(request: &Value) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
}

fn new_pod(pod: &Value) -> Value {
    new_pod_in("shop", pod)
}

fn new_pod_in(namespace: &str, pod: &Value) -> Value {
    review(&json!({"uid": "u", "operation": "CREATE", "namespace": namespace, "object": pod,
        "resource": {"group": "", "version": "v1", "resource": "pods"}}))
}

fn ephemeral_containers(pod: &Value, old: &Value) -> Value {
    review(&json!({"uid": "u", "operation": "UPDATE", "namespace": "shop", "object": pod, "oldObject": old,
        "resource": {"group": "", "version": "v1", "resource": "pods"}, "subResource": "ephemeralcontainers"}))
}

/// Checks a review whose order of keys depends on `order`.
fn check(guard: &dyn Guard, review: &Value, order: u64) -> Value {
    check::check(guard, write(review, order, None).as_bytes()).unwrap()
}

// === Random pods ===

fn words() -> impl Strategy<Value = &'static str> {
    select(vec![
        "enabled",
        "disabled",
        "",
        "true",
        "meminfo,online",
        "app,!log",
        "!app",
        "mesh",
        "pressure",
        "x",
        "app=meminfo",
    ])
}

fn annotations() -> impl Strategy<Value = Option<Value>> {
    let key = select(vec![
        "durward.dev/lxcfs",
        "sidecar-injector.lxcfs/inject",
        "durward.dev/lxcfs-files",
        "durward.dev/lxcfs-containers",
        "durward.dev/lxcfs-status",
        "a~b/c",
        "prometheus.io/scrape",
    ]);
    let some = vec((key, words()), 0..4).prop_map(|entries| {
        entries.into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect::<Map<_, _>>().into()
    });
    // Few pods opt out, so that most of them get files.
    let on = some.prop_map(|mut map: Value| {
        if map["durward.dev/lxcfs"] != "disabled" {
            map["durward.dev/lxcfs"] = "enabled".into();
        }
        map
    });
    prop_oneof![1 => Just(None), 1 => Just(Some(Value::Null)), 1 => Just(Some(json!({}))), 6 => on.prop_map(Some)]
}

fn volume() -> impl Strategy<Value = Value> {
    let name = select(vec!["data", "lxcfs-meminfo", "lxcfs-meminfo-2", "lxcfs-stat", "mem", "lxcfs-online"]);
    let path = select(vec![
        "/var/lib/lxcfs/proc/meminfo",
        "/var/lib/lxcfs/proc//stat/",
        "/mnt/proc/meminfo",
        "/mnt/sys/devices/system/cpu/online",
        "/proc",
    ]);
    let of_type = option::of(select(vec!["File", "", "Directory"]));
    prop_oneof![
        name.clone().prop_map(|name| json!({"name": name, "emptyDir": {}})),
        (name, path, of_type).prop_map(|(name, path, of_type)| {
            let mut host_path = json!({"path": path});
            if let Some(of_type) = of_type {
                host_path["type"] = of_type.into();
            }
            json!({"name": name, "hostPath": host_path})
        }),
    ]
}

fn listed<T: Strategy<Value = Value>>(element: T, most: usize) -> impl Strategy<Value = Option<Value>> {
    prop_oneof![
        2 => Just(None),
        1 => Just(Some(Value::Null)),
        5 => vec(element, 0..=most).prop_map(|list| Some(Value::from(list))),
    ]
}

fn mount() -> impl Strategy<Value = Value> {
    let path = select(vec![
        "/data",
        "/proc/meminfo",
        "/proc/stat/",
        "proc//swaps",
        "/proc",
        "/",
        "/sys/devices",
        "/proc/cpuinfo/deep",
        "/process",
    ]);
    let name = select(vec!["data", "mem", "lxcfs-meminfo", "lxcfs-stat"]);
    (path, name, any::<bool>()).prop_map(|(path, name, read_only)| {
        let mut mount = json!({"name": name, "mountPath": path, "new": [1.5, {"x": null}]});
        if read_only {
            mount["readOnly"] = true.into();
        }
        mount
    })
}

fn container(name: &'static str) -> impl Strategy<Value = Value> {
    (listed(mount(), 3), resources(), any::<bool>()).prop_map(move |(mounts, resources, unknown)| {
        let mut container = json!({"name": name});
        if let Some(resources) = resources {
            container["resources"] = resources;
        }
        if let Some(mounts) = mounts {
            container["volumeMounts"] = mounts;
        }
        if unknown {
            container["notYet"] = json!({"ü": [1, 2.50, null]});
        }
        container
    })
}

fn resources() -> impl Strategy<Value = Option<Value>> {
    let limits = select(vec![
        None,
        Some(json!({})),
        Some(json!({"memory": "1Gi"})),
        Some(json!({"cpu": 1})),
        Some(json!({"cpu": "0"})),
        Some(json!(null)),
        Some(json!({"memory": "1Gi", "durward.dev/lxcfs": "1"})),
        Some(json!({"durward.dev/lxcfs": 0})),
    ]);
    let requests = select(vec![
        None,
        Some(json!(null)),
        Some(json!({"cpu": "100m"})),
        Some(json!({"durward.dev/lxcfs": "1"})),
    ]);
    let both = (limits, requests).prop_map(|(limits, requests)| {
        let mut resources = json!({});
        for (key, value) in [("limits", limits), ("requests", requests)] {
            if let Some(value) = value {
                resources[key] = value;
            }
        }
        Some(resources)
    });
    prop_oneof![1 => Just(None), 1 => Just(Some(Value::Null)), 8 => both]
}

/// Keys of the spec that the scheduler reads.
fn scheduling() -> impl Strategy<Value = Vec<(&'static str, Value)>> {
    let selector = select(vec![
        None,
        Some(json!(null)),
        Some(json!({})),
        Some(json!({"disk": "ssd"})),
        Some(json!({"durward.dev/lxcfs-ready": "true"})),
        Some(json!({"durward.dev/lxcfs-ready": "no"})),
    ]);
    let ours = json!({"weight": 1, "preference": {"matchExpressions":
        [{"key": "durward.dev/lxcfs-ready", "operator": "Exists"}]}});
    let other = json!({"weight": 7, "preference": {"matchExpressions": [
        {"key": "disk", "operator": "In", "values": ["ssd"]},
        {"key": "durward.dev/lxcfs-ready", "operator": "Exists"}], "new": 1.50}});
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    let affinity = select(vec![
        None,
        None,
        Some(json!(null)),
        Some(json!({})),
        Some(json!({"podAffinity": {}, "nodeAffinity": null})),
        Some(json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}})),
        Some(json!({"nodeAffinity": {preferred: null}})),
        Some(json!({"nodeAffinity": {preferred: []}})),
        Some(json!({"nodeAffinity": {preferred: [other]}})),
        Some(json!({"nodeAffinity": {preferred: [other, ours]}})),
    ]);
    let node = select(vec![None, None, None, None, None, Some(json!("")), Some(json!("n1"))]);
    (selector, affinity, node).prop_map(|(selector, affinity, node)| {
        [("nodeSelector", selector), ("affinity", affinity), ("nodeName", node)]
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?)))
            .collect()
    })
}

fn owners() -> impl Strategy<Value = Option<Value>> {
    let owner = |kind: &str, controls: bool| json!({"apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": "u", "controller": controls});
    select(vec![
        None,
        None,
        None,
        Some(json!(null)),
        Some(json!([])),
        Some(json!([owner("ReplicaSet", true)])),
        Some(json!([owner("DaemonSet", false)])),
        Some(json!([owner("ReplicaSet", false), owner("DaemonSet", true)])),
    ])
}

fn containers(names: Vec<&'static str>) -> impl Strategy<Value = Value> {
    let most = names.len();
    subsequence(names, 0..=most)
        .prop_flat_map(|names| names.into_iter().map(container).collect::<Vec<_>>())
        .prop_map(Value::from)
}

fn valid_pod() -> impl Strategy<Value = Value> {
    let special_field = select(vec![
        None,
        None,
        None,
        None,
        Some(("hostPID", json!(true))),
        Some(("shareProcessNamespace", json!(true))),
        Some(("hostUsers", json!(false))),
        Some(("runtimeClassName", json!("kata"))),
        Some(("os", json!({"name": "windows"}))),
        Some(("nodeSelector", json!({"kubernetes.io/os": "linux"}))),
        Some(("resources", json!({"limits": {"memory": "2Gi"}, "requests": {"cpu": "1"}}))),
    ]);
    let labels = option::of(Just(json!({"app": "web"})));
    let lists = (containers(vec!["app", "log"]), option::of(containers(vec!["prepare", "mesh"])));
    (annotations(), labels, listed(volume(), 4), lists, special_field, scheduling(), owners()).prop_map(
        |(annotations, labels, volumes, (containers, init), special_field, scheduling, owners)| {
            let mut pod = json!({"kind": "Pod", "metadata": {"generateName": "web-"}, "spec": {"containers": containers}});
            let mut set = |parent: &str, key: &str, value: Option<Value>| {
                if let Some(value) = value {
                    pod[parent][key] = value;
                }
            };
            set("metadata", "annotations", annotations);
            set("metadata", "labels", labels);
            set("spec", "volumes", volumes);
            set("metadata", "ownerReferences", owners);
            set("spec", "initContainers", init);
            for (key, value) in scheduling {
                set("spec", key, Some(value));
            }
            if let Some((key, value)) = special_field {
                set("spec", key, Some(value));
            }
            pod
        },
    )
}

fn any_json() -> impl Strategy<Value = Value> {
    let key = select(vec![
        "metadata",
        "spec",
        "annotations",
        "labels",
        "volumes",
        "containers",
        "name",
        "volumeMounts",
        "mountPath",
        "hostPath",
        "path",
        "durward.dev/lxcfs",
        "os",
        "hostPID",
        "initContainers",
        "resources",
        "limits",
        "requests",
        "nodeSelector",
        "nodeName",
        "affinity",
        "nodeAffinity",
        "preferredDuringSchedulingIgnoredDuringExecution",
        "preference",
        "matchExpressions",
        "key",
        "ownerReferences",
        "durward.dev/lxcfs-ready",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        select(vec!["enabled", "/proc", "/proc/stat", "app", ""]).prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((key.clone(), inner), 0..6).prop_map(|entries| {
                entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<Map<_, _>>().into()
            }),
        ]
    })
}

/// A valid pod with one replaced value.
fn invalid_pod() -> impl Strategy<Value = Value> {
    let place = select(vec![
        "/metadata",
        "/metadata/annotations",
        "/metadata/labels",
        "/spec",
        "/spec/volumes",
        "/spec/volumes/0",
        "/spec/volumes/0/hostPath",
        "/spec/volumes/0/name",
        "/spec/containers",
        "/spec/containers/0",
        "/spec/containers/0/name",
        "/spec/containers/0/volumeMounts",
        "/spec/containers/0/volumeMounts/0",
        "/spec/containers/0/resources",
        "/spec/containers/0/resources/limits",
        "/spec/containers/0/resources/requests",
        "/spec/nodeSelector",
        "/spec/affinity",
        "/spec/affinity/nodeAffinity",
        "/spec/affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution",
        "/spec/affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution/0",
        "/metadata/ownerReferences",
        "/metadata/ownerReferences/0",
        "/spec/nodeName",
        "/spec/initContainers",
    ]);
    (valid_pod(), place, any_json()).prop_map(|(mut pod, place, value)| {
        if let Some(there) = pod.pointer_mut(place) {
            *there = value;
        }
        pod
    })
}

proptest! {
    // PROPTEST_CASES=100000 tests more pods.
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases * 4,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_patch_can_be_reverted_and_a_second_review_adds_nothing(
        pod in valid_pod(), configuration_index in 0..CONFIGURATIONS.len(), order: u64, is_strict: bool,
    ) {
        let namespace = if is_strict { RESTRICTED } else { "shop" };
        check(&*GUARDS[configuration_index], &new_pod_in(namespace, &pod), order);
    }

    #[test]
    fn handles_invalid_pods(
        pod in prop_oneof![invalid_pod(), any_json()], configuration_index in 0..CONFIGURATIONS.len(), order: u64,
    ) {
        // A pod with an invalid name, such as `/proc`, makes the review malformed.
        let body = write(&new_pod(&pod), order, None);
        let is_refused = pod["metadata"]["name"].as_str().is_some_and(|name| name.contains('/'));
        let checked = check::check(&*GUARDS[configuration_index], body.as_bytes());
        prop_assert!(is_refused || checked.is_some());
    }

    #[test]
    fn handles_a_container_added_after_the_first_review(
        pod in valid_pod(), configuration_index in 0..CONFIGURATIONS.len(), later in container("late"), order: u64,
    ) {
        let guard = &*GUARDS[configuration_index];
        let mut first = check(guard, &new_pod(&pod), order);
        first["spec"]["containers"].as_array_mut().unwrap().push(later);
        check(guard, &new_pod(&first), order);
    }

    #[test]
    fn handles_ephemeral_containers(
        pod in valid_pod(), configuration_index in 0..CONFIGURATIONS.len(), new in containers(vec!["debug", "shell"]), order: u64,
    ) {
        let guard = &*GUARDS[configuration_index];
        let old = check(guard, &new_pod(&pod), order);
        let mut pod = old.clone();
        pod["spec"]["ephemeralContainers"] = new;
        check(guard, &ephemeral_containers(&pod, &old), order);
    }

    #[test]
    fn handles_a_duplicate_key(
        pod in valid_pod(), configuration_index in 0..CONFIGURATIONS.len(), order: u64, duplicate_key in duplicate_key(),
    ) {
        let body = write(&new_pod(&pod), order, Some(duplicate_key));
        // Only a duplicate key of the envelope makes the review invalid.
        check::check(&*GUARDS[configuration_index], body.as_bytes());
    }

    #[test]
    fn handles_corrupt_bytes(
        pod in valid_pod(), order: u64, corruptions in corruptions(),
    ) {
        check::check(&*GUARDS[0], &corrupt(write(&new_pod(&pod), order, None), &corruptions));
    }
}

type Corruptions = Vec<(prop::sample::Index, u8)>;

fn corruptions() -> impl Strategy<Value = Corruptions> {
    vec((any::<prop::sample::Index>(), select(b"{}[]\",:0n\\ \x00\xff".to_vec())), 1..4)
}

fn corrupt(body: String, corruptions: &Corruptions) -> Vec<u8> {
    let mut body = body.into_bytes();
    for (at, byte) in corruptions {
        let at = at.index(body.len());
        body[at] = *byte;
    }
    body
}

/// The review of a valid pod has about 20 to 120 keys.
fn duplicate_key() -> impl Strategy<Value = DuplicateKey> {
    (0..120_usize, 0..OTHER_VALUES.len(), any::<bool>()).prop_map(|(key, other, first)| DuplicateKey {
        key,
        other,
        first,
    })
}

/// Returns how many of 200 random reviews change the spec, and the paths of the additions.
fn additions(configuration: &str, review: impl Fn(&Value, &dyn Guard) -> Value) -> (usize, BTreeSet<String>) {
    let guard = guard(configuration);
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let strategy = valid_pod();
    let (mut paths, mut changed) = (BTreeSet::new(), 0);
    for _ in 0..200 {
        let pod = strategy.new_tree(&mut runner).unwrap().current();
        let body = write(&review(&pod, &*guard), 7, None);
        let operations = operations(&rule(&*guard, body.as_bytes()).unwrap());
        let added = operations.iter().map(|operation| operation["path"].as_str().unwrap().to_owned());
        let added: BTreeSet<String> = added.collect();
        changed += usize::from(added.iter().any(|path| path.starts_with("/spec/")));
        paths.extend(added);
    }
    (changed, paths)
}

// The following tests check that the generators above produce pods that get additions.

#[test]
fn most_random_pods_get_files() {
    let (changed, paths) = additions("{}", |pod, _| new_pod(pod));
    assert!(changed > 40, "{changed}");
    for path in [
        "/spec/volumes",
        "/spec/volumes/-",
        "/spec/containers/0/volumeMounts",
        "/spec/containers/0/volumeMounts/-",
        STATUS,
        "/metadata/annotations",
    ] {
        assert!(paths.contains(path), "{path}");
    }
    let (_, paths) = additions(CONFIGURATIONS[1], |pod, _| new_pod(pod));
    for path in ["/spec/initContainers/0/volumeMounts", "/spec/initContainers/0/volumeMounts/-"] {
        assert!(paths.contains(path), "{path}");
    }
}

#[test]
fn many_random_pods_select_nodes_and_request_devices() {
    const PREFERRED: &str = "/spec/affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution";
    let (_, paths) = additions(CONFIGURATIONS[REQUIRED_AFFINITY], |pod, _| new_pod(pod));
    for path in ["/spec/nodeSelector", "/spec/nodeSelector/durward.dev~1lxcfs-ready"] {
        assert!(paths.contains(path), "{path}");
    }
    let (_, paths) = additions(CONFIGURATIONS[PREFERRED_AFFINITY], |pod, _| new_pod(pod));
    let to_the_list = format!("{PREFERRED}/-");
    for path in ["/spec/affinity", "/spec/affinity/nodeAffinity", PREFERRED, &to_the_list] {
        assert!(paths.contains(path), "{path}");
    }
    for (configuration_index, namespace) in [(DEVICE, "shop"), (AUTO, RESTRICTED)] {
        let (changed, paths) =
            additions(CONFIGURATIONS[configuration_index], |pod, _| new_pod_in(namespace, pod));
        assert!(changed > 20, "{changed}");
        for path in ["", "/limits", "/limits/durward.dev~1lxcfs", "/requests", "/requests/durward.dev~1lxcfs"]
        {
            let path = format!("/spec/containers/0/resources{path}");
            assert!(paths.contains(&path), "{path}");
        }
        assert!(
            !paths.iter().any(|path| path.contains("olume") || path.contains("nodeSelector")),
            "{paths:?}"
        );
    }
    let (_, paths) = additions(CONFIGURATIONS[AUTO], |pod, _| new_pod(pod));
    assert!(!paths.iter().any(|path| path.contains("resources")), "{paths:?}");
    assert!(paths.contains("/spec/volumes") && paths.contains("/spec/nodeSelector"), "{paths:?}");
}

#[test]
fn many_ephemeral_and_later_containers_get_files() {
    let (changed, paths) = additions("{}", |pod, guard| {
        let old = check(guard, &new_pod(pod), 1);
        let mut pod = old.clone();
        pod["spec"]["ephemeralContainers"] =
            json!([{"name": "debug"}, {"name": "shell", "volumeMounts": []}]);
        ephemeral_containers(&pod, &old)
    });
    assert!(changed > 40, "{changed}");
    for path in ["/spec/ephemeralContainers/0/volumeMounts", "/spec/ephemeralContainers/1/volumeMounts/-"] {
        assert!(paths.contains(path), "{path}");
    }
    let (changed, _) = additions("{}", |pod, guard| {
        let mut first = check(guard, &new_pod(pod), 1);
        first["spec"]["containers"].as_array_mut().unwrap().push(json!({"name": "late"}));
        new_pod(&first)
    });
    assert!(changed > 40, "{changed}");
}

#[test]
fn duplicate_keys_and_corrupt_bytes_have_all_outcomes() {
    let guard = guard("{}");
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let strategy = (valid_pod(), any::<u64>(), duplicate_key(), corruptions());
    // Counts of invalid, allowed and patched reviews: with a duplicate key, and with corrupt bytes.
    let mut seen = [[0; 3]; 2];
    for _ in 0..400 {
        let (pod, order, duplicate_key, corruptions) = strategy.new_tree(&mut runner).unwrap().current();
        let review = new_pod(&pod);
        let duplicate_key = write(&review, order, Some(duplicate_key)).into_bytes();
        let corrupt = corrupt(write(&review, order, None), &corruptions);
        for (row, body) in seen.iter_mut().zip([duplicate_key, corrupt]) {
            match rule(&*guard, &body) {
                None => row[0] += 1,
                Some(ruling) if operations(&ruling).is_empty() => row[1] += 1,
                Some(_) => row[2] += 1,
            }
        }
    }
    assert!(seen.iter().flatten().all(|count| *count >= 10), "{seen:?}");
}
