//! `doctor lxcfs` with a recorded cluster and with local files, and the test files of the node agents.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{major, minor};
use serde_json::{Value, json};

use crate::harness::{Run, TestDir};

/// The files of LXCFS with plausible contents.
const FILES: [(&str, &str); 9] = [
    ("/proc/cpuinfo", "processor\t: 0\n"),
    ("/proc/meminfo", "MemTotal:  262144 kB\n"),
    ("/proc/diskstats", ""),
    ("/proc/stat", "cpu  1 2 3\n"),
    ("/proc/swaps", "Filename\tType\n"),
    ("/proc/uptime", "1.00 1.00\n"),
    ("/proc/loadavg", "0.00 0.00 0.00 1/1 1\n"),
    ("/proc/slabinfo", "slabinfo - version: 2.1\n"),
    ("/sys/devices/system/cpu/online", "0-1\n"),
];

/// Creates a directory with all files of LXCFS, which the mount table in the `proc` of `dir` lists as an LXCFS mount.
pub(crate) fn root(dir: &Path) -> PathBuf {
    let root = dir.join("lxcfs");
    for (path, text) in FILES {
        write(&root, path, text);
    }
    mount(dir, "fuse.lxcfs");
    root
}

/// Writes a mount table in which the LXCFS directory has the file system type `kind`.
pub(crate) fn mount(dir: &Path, kind: &str) {
    let root = dir.join("lxcfs");
    let number = fs::metadata(root.join("proc/stat")).unwrap().dev();
    let (major, minor) = (major(number), minor(number));
    let line = format!("97 90 {major}:{minor} / {} rw - {kind} lxcfs rw\n", root.display());
    write(dir, "/proc/self/mountinfo", &line);
}

pub(crate) fn write(root: &Path, path: &str, text: &str) {
    let path = PathBuf::from(format!("{}{path}", root.display()));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    // The file is replaced atomically, because a concurrent reader must not see half of it.
    let temporary = path.with_extension("new");
    fs::write(&temporary, text).unwrap();
    fs::rename(temporary, path).unwrap();
}

pub(crate) fn remove(root: &Path, path: &str) {
    fs::remove_file(format!("{}{path}", root.display())).unwrap();
}

fn served() -> Value {
    json!({
        "root": "/var/lib/lxcfs",
        "files": {
            "cpuinfo": "served", "meminfo": "served", "diskstats": "served", "stat": "served", "swaps": "served",
            "uptime": "served", "loadavg": "served", "slabinfo": "served", "online": "served",
        },
        // One minute before the time of the snapshot.
        "time": "2026-11-21T09:59:00Z",
    })
}

/// Returns a healthy node.
fn healthy_node(name: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "uid": name, "labels": {"durward.dev/lxcfs-ready": "true"},
            "annotations": {"durward.dev/lxcfs-node": served().to_string()},
        },
        "status": {
            "allocatable": {"durward.dev/lxcfs": "1k"},
            "nodeInfo": {"containerRuntimeVersion": "containerd://1.6.20", "operatingSystem": "linux"},
            "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True"}],
        },
    })
}

fn pod(component: &str, node: &str, ready: &str) -> Value {
    json!({
        "metadata": {
            "name": format!("{component}-{node}"), "namespace": "durward-system", "uid": format!("{component}-{node}"),
            "labels": {"app.kubernetes.io/name": "durward", "app.kubernetes.io/component": component},
        },
        "spec": {"nodeName": node},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready, "message": "unready"}]},
    })
}

fn pods(node: &str) -> Vec<Value> {
    ["lxcfs", "lxcfs-node", "lxcfs-device"].map(|component| pod(component, node, "True")).into()
}

/// Runs `doctor lxcfs` on a snapshot of these nodes and pods.
fn doctor(lxcfs: &str, nodes: &[Value], pods: &[Value], more: &[&str]) -> Run {
    doctor_with(lxcfs, nodes, pods, None, more)
}

/// Runs it on a snapshot that also has a `MutatingWebhookConfiguration` of this name.
fn doctor_with(lxcfs: &str, nodes: &[Value], pods: &[Value], injector: Option<&str>, more: &[&str]) -> Run {
    let dir = TestDir::new();
    dir.configure(&format!("  lxcfs: {{{lxcfs}}}\n"));
    let list = |kind: &str, items: &[Value]| {
        let version = json!({"resourceVersion": "1"});
        json!({"apiVersion": "v1", "kind": kind, "metadata": version, "items": items}).to_string()
    };
    dir.write(
        "cluster/snapshot.yaml",
        &fs::read_to_string(dir.path().join("snapshot/snapshot.yaml")).unwrap(),
    );
    dir.write("cluster/here/nodes.v1.yaml", &list("NodeList", nodes));
    dir.write("cluster/here/pods.v1.yaml", &list("PodList", pods));
    if let Some(name) = injector {
        let configuration = json!({"metadata": {"name": name, "uid": name}});
        let file = "cluster/here/mutatingwebhookconfigurations.v1.admissionregistration.k8s.io.yaml";
        dir.write(
            file,
            &list("MutatingWebhookConfigurationList", &[configuration])
                .replace("\"v1\"", "\"admissionregistration.k8s.io/v1\""),
        );
    }
    dir.run(&[&["doctor", "lxcfs", "--config", "durward.yaml", "--snapshot", "cluster"], more].concat())
}

#[test]
fn reports_healthy_nodes_with_the_values_that_pods_read() {
    let run = doctor("nodeAffinity: required, mountMethod: auto", &[healthy_node("n1")], &pods("n1"), &[]);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    assert_eq!(
        run.out,
        "1 of 1 nodes serve all files\n\n\
         n1  serves  containerd://1.6.20, label, 1000 devices\n  \
         meminfo, swaps: the container's memory limit\n  \
         cpuinfo, stat: as many CPUs as the CPU limit, rounded up, if LXCFS runs with --enable-cfs, otherwise all CPUs of the node\n  \
         uptime: the container's age\n\
         no problems found\n"
    );
}

/// Returns the codes of all findings with their nodes.
fn codes(run: &Run) -> Vec<String> {
    let report = run.json();
    let findings = report["findings"].as_array().unwrap().clone();
    assert_eq!(run.code, i32::from(!findings.is_empty()), "{}", run.err);
    findings
        .iter()
        .map(|one| {
            for key in ["what", "effect", "fix"] {
                assert!(!one[key].as_str().unwrap().is_empty(), "{one}");
            }
            let node = one["node"].as_str().map(|node| format!("{node} ")).unwrap_or_default();
            format!("{node}{}", one["code"].as_str().unwrap())
        })
        .collect()
}

/// Returns a node with this annotation.
fn with(change: impl FnOnce(&mut Value)) -> Value {
    let mut report = served();
    change(&mut report);
    let mut node = healthy_node("n1");
    node["metadata"]["annotations"]["durward.dev/lxcfs-node"] = report.to_string().into();
    node
}

fn changed(change: impl FnOnce(&mut Value)) -> Value {
    let mut node = healthy_node("n1");
    change(&mut node);
    node
}

#[test]
fn reports_each_problem_with_its_own_code() {
    let both = "nodeAffinity: required, mountMethod: auto";
    for (lxcfs, node, pods, expected) in [
        (
            both,
            with(|report| report["files"]["stat"] = "dead".into()),
            pods("n1"),
            vec!["n1 files", "n1 label"],
        ),
        (both, with(|report| report["files"]["loadavg"] = "missing".into()), pods("n1"), vec![]),
        ("lxcfsPath: /opt/lxcfs", healthy_node("n1"), pods("n1"), vec!["n1 path", "n1 label"]),
        (both, changed(|node| node["metadata"]["labels"] = json!({})), pods("n1"), vec!["n1 label"]),
        (
            both,
            changed(|node| node["metadata"]["labels"]["durward.dev/lxcfs-ready"] = "yes".into()),
            pods("n1"),
            vec!["n1 label"],
        ),
        (
            both,
            changed(|node| node["metadata"]["annotations"]["durward.dev/lxcfs-node"] = "{".into()),
            pods("n1"),
            vec!["n1 annotation"],
        ),
        (
            both,
            changed(|node| node["metadata"]["annotations"] = json!({})),
            pods("n1"),
            vec!["n1 annotation"],
        ),
        (both, changed(|node| node["status"]["allocatable"] = json!({})), pods("n1"), vec!["n1 device"]),
        (
            both,
            changed(|node| node["status"]["allocatable"]["durward.dev/lxcfs"] = "0".into()),
            pods("n1"),
            vec!["n1 device"],
        ),
        (
            "mountMethod: hostPath",
            changed(|node| node["status"]["allocatable"] = json!({})),
            pods("n1"),
            vec![],
        ),
        (both, healthy_node("n1"), pods("n2"), vec!["n1 stale"]),
        // Without our pods, the label agent can be a process of the node. Its annotation counts for 15 minutes.
        (both, healthy_node("n1"), vec![], vec![]),
        (both, with(|report| report["time"] = "2026-11-21T09:44:59Z".into()), vec![], vec!["n1 stale"]),
        (both, with(|report| report["time"] = "2026-11-21T09:45:00Z".into()), pods("n1"), vec![]),
        (both, with(|report| report["time"] = "2026-11-21T09:44:59Z".into()), pods("n1"), vec!["n1 stale"]),
        (both, with(|report| report["time"] = json!(null)), pods("n1"), vec!["n1 stale"]),
        ("", changed(|node| node["metadata"]["annotations"] = json!({})), vec![], vec!["n1 stale"]),
        (
            both,
            changed(|node| {
                node["status"]["conditions"] =
                    json!([{"type": "Ready", "status": "Unknown", "message": "Kubelet stopped"}]);
            }),
            pods("n1"),
            vec!["n1 node"],
        ),
        (
            both,
            healthy_node("n1"),
            [pods("n2"), pods("n1"), vec![pod("lxcfs-node", "n3", "False")]].concat(),
            vec!["n3 pod"],
        ),
    ] {
        let run = doctor(lxcfs, &[node], &pods, &["-o", "json"]);
        assert_eq!(codes(&run), expected, "{lxcfs}: {}", run.out);
    }
}

#[test]
fn reports_the_configuration_of_another_injector() {
    for (name, expected) in [("lxcfs-sidecar-injector-cfg", vec!["injector"]), ("durward", vec![])] {
        let run = doctor_with("", &[healthy_node("n1")], &pods("n1"), Some(name), &["-o", "json"]);
        assert_eq!(codes(&run), expected, "{name}: {}", run.out);
        let fix = run.json()["findings"][0]["fix"].as_str().unwrap_or_default().to_owned();
        assert!(
            expected.is_empty() || fix.ends_with(&format!("delete mutatingwebhookconfiguration {name}")),
            "{fix}"
        );
    }
}

/// Returns a running pod whose container `app` started at this time, with a mount or the device.
fn user(name: &str, started: &str, spec: &Value) -> Value {
    let state = json!({"running": {"startedAt": started}});
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "shop", "uid": name}, "spec": spec,
        "status": {"phase": "Running", "containerStatuses": [{"name": "app", "state": state}]},
    });
    pod["spec"]["nodeName"] = "n1".into();
    pod
}

#[test]
fn reports_containers_that_started_before_lxcfs() {
    let (before, after) = ("2026-11-21T09:00:00Z", "2026-11-21T09:30:00Z");
    let mut lxcfs = pod("lxcfs", "n1", "True");
    lxcfs["status"]["containerStatuses"] =
        json!([{"name": "lxcfs", "state": {"running": {"startedAt": "2026-11-21T09:15:00Z"}}}]);
    let mounts = |path: &str| {
        json!({
            "volumes": [{"name": "file", "hostPath": {"path": path}}],
            "containers": [{"name": "app", "volumeMounts": [{"name": "file", "mountPath": "/proc/stat"}]}],
        })
    };
    let device =
        json!({"containers": [{"name": "app", "resources": {"limits": {"durward.dev/lxcfs": "1"}}}]});
    let file = || mounts("/var/lib/lxcfs/proc/stat");
    let users = [
        user("old", before, &file()),
        user("by-device", before, &device),
        user("new", after, &file()),
        user("other-path", before, &mounts("/var/lib/lxcfs-other/stat")),
        user("without-files", before, &json!({"containers": [{"name": "app"}]})),
    ];
    let pods = [pods("n1"), users.to_vec()].concat();
    assert_eq!(
        codes(&doctor("", &[healthy_node("n1")], &pods, &["-o", "json"])),
        [""; 0],
        "its start is unknown"
    );
    let pods = [vec![lxcfs], users.to_vec()].concat();
    let run = doctor("", &[healthy_node("n1")], &pods, &["-o", "json"]);
    assert_eq!(codes(&run)[0], "n1 dead", "{}", run.out);
    let what = run.json()["findings"][0]["what"].as_str().unwrap().to_owned();
    assert!(what.ends_with("started before LXCFS: shop/by-device, shop/old"), "{what}");
}

/// Returns a node without label, annotation and devices.
fn node_without_information() -> Value {
    changed(|node| {
        node["metadata"] = json!({"name": "n1", "uid": "n1"});
        node["status"]["allocatable"] = json!({});
    })
}

#[test]
fn a_node_serves_only_if_every_file_was_checked_recently() {
    let unready = |node: &mut Value| node["status"]["conditions"][1]["status"] = "Unknown".into();
    let old = with(|report| report["time"] = "2026-11-21T09:00:00Z".into());
    let lxcfs = vec![pod("lxcfs", "n1", "True")];
    let without_devices = |mut node: Value| {
        node["status"]["allocatable"] = json!({});
        node
    };
    for (lxcfs, node, pods, expected, note) in [
        ("", healthy_node("n1"), pods("n1"), "yes", ""),
        ("", node_without_information(), lxcfs.clone(), "unknown", "no information about the other files"),
        ("files: [meminfo]", node_without_information(), lxcfs.clone(), "yes", ""),
        ("", node_without_information(), vec![pod("lxcfs", "n1", "False")], "no", ""),
        ("", node_without_information(), vec![], "unknown", "no information"),
        ("", changed(unready), pods("n1"), "unknown", "is not Ready"),
        ("", old.clone(), pods("n1"), "yes", ""),
        ("", without_devices(old.clone()), vec![], "unknown", "is 60 minutes old"),
        ("", without_devices(old), lxcfs, "unknown", "no information about the other files"),
    ] {
        let report = doctor(lxcfs, &[node], &pods, &["-o", "json"]).json();
        let node = &report["nodes"][0];
        assert_eq!(node["serves"], expected, "{report}");
        assert!(node["unknown"].as_str().unwrap_or_default().contains(note), "{report}");
        assert_eq!(node["sees"] == json!([]), expected != "yes", "{report}");
    }
    let run = doctor("", &[node_without_information()], &[pod("lxcfs", "n1", "True")], &[]);
    assert_eq!(run.code, 0, "nothing is known to be amiss: {}", run.out);
    assert!(
        run.out.contains("0 of 1 nodes serve") && run.out.contains("durward doctor lxcfs --local"),
        "{}",
        run.out
    );
}

#[test]
fn reports_an_unready_pod_as_superfluous_if_another_lxcfs_serves() {
    let (installed, look) = (
        "see https://github.com/durward/durward/blob/main/docs/src/lxcfs/nodes.md#lxcfs-installed-on-the-node",
        "kubectl",
    );
    for (node, expected, first) in [
        (healthy_node("n1"), "another LXCFS serves", installed),
        (node_without_information(), "have no files", look),
    ] {
        let run = doctor("", &[node], &[pod("lxcfs", "n1", "False")], &["-o", "json"]);
        let report = run.json();
        let findings = report["findings"].as_array().unwrap();
        let finding = findings.iter().find(|one| one["code"] == "pod").unwrap();
        assert!(finding["effect"].as_str().unwrap().contains(expected), "{finding}");
        assert!(finding["fix"].as_str().unwrap().starts_with(first), "{finding}");
    }
}

#[test]
fn groups_nodes_without_information_and_skips_nodes_without_proc() {
    let bare = |name: &str, system: &str| json!({"metadata": {"name": name, "uid": name}, "status": {"nodeInfo": {"operatingSystem": system}}});
    let nodes = [bare("a", "linux"), bare("b", "linux"), bare("w", "windows"), healthy_node("n1")];
    let run = doctor("", &nodes, &pods("n1"), &["-o", "json"]);
    assert_eq!(codes(&run), ["no-data"]);
    let report = run.json();
    assert_eq!(report["findings"][0]["what"], "no information about LXCFS on a, b");
    assert!(report["findings"][0]["fix"].as_str().unwrap().contains("get daemonsets"));
    let serves: Vec<_> =
        report["nodes"].as_array().unwrap().iter().map(|node| node["serves"].clone()).collect();
    assert_eq!(serves, ["unknown", "unknown", "yes", "windows"]);
    let run = doctor("nodeAffinity: required", &[bare("a", "linux")], &[], &[]);
    assert_eq!(run.code, 1);
    assert!(run.out.contains("kubectl apply -k deploy/lxcfs"), "{}", run.out);
    assert!(run.out.contains("durward doctor lxcfs --local"), "{}", run.out);
}

#[test]
fn does_not_report_an_unreadable_cluster_as_healthy() {
    let dir = TestDir::new();
    let run = dir.run(&["doctor", "lxcfs", "--snapshot", "snapshot", "-o", "json"]);
    assert_eq!(codes(&run), ["nodes"]);
}

fn local(dir: &TestDir, root: &Path, lxcfs: &str, more: &[&str]) -> Run {
    dir.configure(&format!("  lxcfs: {{lxcfsPath: {}{lxcfs}}}\n", root.display()));
    dir.run(&[&["doctor", "lxcfs", "--local", "--config", "durward.yaml", "--proc", "proc"], more].concat())
}

#[test]
fn local_reads_the_files() {
    let dir = TestDir::new();
    let root = root(dir.path());
    let run = local(&dir, &root, "", &[]);
    assert_eq!((run.code, run.err.as_str()), (0, ""), "{}", run.out);
    assert!(run.out.contains("  meminfo    served\n"), "{}", run.out);
    assert!(run.out.contains("  loadavg    served  (not in guards.lxcfs.files)\n"), "{}", run.out);
    assert!(run.out.ends_with("no problems found\n"), "{}", run.out);
}

#[test]
fn local_reports_a_broken_file_with_its_fix() {
    let dir = TestDir::new();
    let root = root(dir.path());
    remove(&root, "/proc/meminfo");
    remove(&root, "/proc/swaps");
    remove(&root, "/proc/stat");
    fs::create_dir(root.join("proc/stat")).unwrap();
    remove(&root, "/proc/uptime");
    assert!(Command::new("mkfifo").arg(root.join("proc/uptime")).status().unwrap().success());
    write(&root, "/proc/cpuinfo", "");
    write(dir.path(), "/proc/self/mountinfo", "");
    let run = local(&dir, &root, "", &["-o", "json"]);
    assert_eq!(codes(&run), ["mount", "mount", "files"], "nothing is mounted");
    mount(dir.path(), "fuse.lxcfs");
    let run = local(&dir, &root, "", &["-o", "json"]);
    assert_eq!(codes(&run), ["files", "files", "files"]);
    let report = run.json();
    assert_eq!(
        report["files"],
        json!({
            "cpuinfo": "garbage", "meminfo": "missing", "diskstats": "served", "stat": "not-a-file", "swaps": "missing",
            "uptime": "not-a-file", "loadavg": "served", "slabinfo": "served", "online": "served",
        })
    );
    let what = report["findings"][1]["what"].as_str().unwrap();
    assert!(what.ends_with("/proc/meminfo does not exist (files: meminfo, swaps)"), "{what}");
    let run = local(&dir, &root, ", files: [diskstats]", &[]);
    assert_eq!(run.code, 0, "other files are not expected: {}", run.out);
}

#[test]
fn local_does_not_take_copies_of_the_files_for_lxcfs() {
    let dir = TestDir::new();
    let root = root(dir.path());
    for kind in ["ext4", "fuse.sshfs"] {
        mount(dir.path(), kind);
        let run = local(&dir, &root, "", &["-o", "json"]);
        assert_eq!(codes(&run), ["mount"]);
        let report = run.json();
        assert_eq!((&report["files"]["meminfo"], &report["sees"]), (&json!("not-lxcfs"), &json!([])));
    }
    // LXCFS runs, and another mount hides its files.
    write(
        dir.path(),
        "/proc/self/mountinfo",
        &format!("97 90 0:1 / {} rw - fuse.lxcfs lxcfs rw\n", root.display()),
    );
    let run = local(&dir, &root, "", &["-o", "json"]);
    assert_eq!(codes(&run), ["files"]);
    assert!(run.json()["findings"][0]["fix"].as_str().unwrap().contains("findmnt -R"), "{}", run.out);
}

#[test]
fn rejects_local_together_with_a_cluster() {
    let run = TestDir::new().run(&["doctor", "lxcfs", "--local", "--snapshot", "snapshot"]);
    assert_eq!(run.code, 2);
    assert!(run.err.contains("--local"), "{}", run.err);
}
