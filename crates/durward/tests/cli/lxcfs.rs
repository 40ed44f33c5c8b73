//! `doctor lxcfs`, over a recorded cluster and here; and what the parts on nodes are tested with.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{major, minor};
use serde_json::{Value, json};

use crate::harness::{Run, TestDir};

/// Every file as LXCFS has it.
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

/// A folder in which every file is as LXCFS has it, and which is LXCFS's by the table of mounts of the house's `proc`.
pub(crate) fn root(dir: &Path) -> PathBuf {
    let root = dir.join("lxcfs");
    for (path, text) in FILES {
        write(&root, path, text);
    }
    mount(dir, "fuse.lxcfs");
    root
}

/// Has the table of mounts say that this lies at the root.
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
    // At once: a reader must not see half of it.
    let beside = path.with_extension("new");
    fs::write(&beside, text).unwrap();
    fs::rename(beside, path).unwrap();
}

pub(crate) fn remove(root: &Path, path: &str) {
    fs::remove_file(format!("{}{path}", root.display())).unwrap();
}

// === through the API ===

fn served() -> Value {
    json!({
        "version": "5.0.3", "root": "/var/lib/lxcfs", "options": ["cfs"],
        "files": {
            "cpuinfo": "served", "meminfo": "served", "diskstats": "served", "stat": "served", "swaps": "served",
            "uptime": "served", "loadavg": "served", "slabinfo": "served", "online": "served",
        },
        "runtime": {"runc": "1.1.5", "refuses": []},
        // A minute before the cluster was recorded.
        "time": "2026-11-21T09:59:00Z",
    })
}

/// A node on which all is well.
fn well(name: &str) -> Value {
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

/// What doctor says of a cluster.
fn doctor(lxcfs: &str, nodes: &[Value], pods: &[Value], more: &[&str]) -> Run {
    let dir = TestDir::new();
    dir.configure(&format!("  lxcfs: {{{lxcfs}}}\n"));
    let list = |kind: &str, items: &[Value]| {
        let version = json!({"resourceVersion": "1"});
        json!({"apiVersion": "v1", "kind": kind, "metadata": version, "items": items}).to_string()
    };
    dir.write("cluster/world.yaml", &fs::read_to_string(dir.path().join("world/world.yaml")).unwrap());
    dir.write("cluster/here/core_v1_nodes.json", &list("NodeList", nodes));
    dir.write("cluster/here/core_v1_pods.json", &list("PodList", pods));
    dir.run(&[&["doctor", "lxcfs", "--config", "durward.yaml", "--world", "cluster"], more].concat())
}

#[test]
fn a_cluster_on_which_all_is_well_is_told_node_by_node_with_what_pods_see() {
    let run = doctor("nodeReadiness: require, backend: auto", &[well("n1")], &pods("n1"), &[]);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    assert_eq!(
        run.out,
        "1 of 1 nodes serve what pods are promised\n\n\
         n1  serves  LXCFS 5.0.3, containerd://1.6.20, runc 1.1.5, label, 1000 devices\n  \
         meminfo, swaps: the container's memory limit\n  \
         cpuinfo, stat: as many processors as the CPU limit, rounded up\n  \
         uptime: the container's age\n\
         nothing to mend\n"
    );
}

/// The codes of what is to be mended, each with its node.
fn codes(run: &Run) -> Vec<String> {
    let told = run.json();
    let findings = told["findings"].as_array().unwrap().clone();
    assert_eq!(run.code, i32::from(!findings.is_empty()), "{}", run.err);
    findings
        .iter()
        .map(|one| {
            for key in ["what", "why", "mend"] {
                assert!(!one[key].as_str().unwrap().is_empty(), "{one}");
            }
            let node = one["node"].as_str().map(|node| format!("{node} ")).unwrap_or_default();
            format!("{node}{}", one["code"].as_str().unwrap())
        })
        .collect()
}

/// A node with another report.
fn with(change: impl FnOnce(&mut Value)) -> Value {
    let mut report = served();
    change(&mut report);
    let mut node = well("n1");
    node["metadata"]["annotations"]["durward.dev/lxcfs-node"] = report.to_string().into();
    node
}

fn changed(change: impl FnOnce(&mut Value)) -> Value {
    let mut node = well("n1");
    change(&mut node);
    node
}

#[test]
fn each_thing_that_is_amiss_is_told_by_a_name_of_its_own() {
    let both = "nodeReadiness: require, backend: auto";
    for (lxcfs, node, pods, expected) in [
        (
            both,
            with(|report| report["files"]["stat"] = "dead".into()),
            pods("n1"),
            vec!["n1 files", "n1 label"],
        ),
        (both, with(|report| report["files"]["loadavg"] = "missing".into()), pods("n1"), vec![]),
        (
            "files: [loadavg]",
            with(|report| report["runtime"]["refuses"] = json!(["loadavg"])),
            pods("n1"),
            vec!["n1 runtime"],
        ),
        (both, with(|report| report["library"] = "it is cut off".into()), pods("n1"), vec!["n1 library"]),
        (both, with(|report| report["library"] = "loaded".into()), pods("n1"), vec![]),
        (both, with(|report| report["library"] = "loading".into()), pods("n1"), vec![]),
        ("root: /opt/lxcfs", well("n1"), pods("n1"), vec!["n1 root", "n1 label"]),
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
            vec!["n1 untold"],
        ),
        (both, changed(|node| node["metadata"]["annotations"] = json!({})), pods("n1"), vec!["n1 untold"]),
        (both, changed(|node| node["status"]["allocatable"] = json!({})), pods("n1"), vec!["n1 device"]),
        (
            both,
            changed(|node| node["status"]["allocatable"]["durward.dev/lxcfs"] = "0".into()),
            pods("n1"),
            vec!["n1 device"],
        ),
        ("backend: volumes", changed(|node| node["status"]["allocatable"] = json!({})), pods("n1"), vec![]),
        (both, well("n1"), pods("n2"), vec!["n1 stale"]),
        // No pod of ours anywhere: lxcfs-node may run on the node itself, for a quarter of an hour.
        (both, well("n1"), vec![], vec![]),
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
        (both, well("n1"), [pods("n1"), vec![pod("lxcfs-library", "n1", "False")]].concat(), vec!["n1 pod"]),
    ] {
        let run = doctor(lxcfs, &[node], &pods, &["-o", "json"]);
        assert_eq!(codes(&run), expected, "{lxcfs}: {}", run.out);
    }
}

/// A node of which nobody tells anything but that it is there.
fn silent() -> Value {
    changed(|node| {
        node["metadata"] = json!({"name": "n1", "uid": "n1"});
        node["status"]["allocatable"] = json!({});
    })
}

#[test]
fn that_a_node_serves_is_said_only_where_somebody_looked_at_every_file_lately() {
    let unready = |node: &mut Value| node["status"]["conditions"][1]["status"] = "Unknown".into();
    let old = with(|report| report["time"] = "2026-11-21T09:00:00Z".into());
    let lxcfs = vec![pod("lxcfs", "n1", "True")];
    let without_devices = |mut node: Value| {
        node["status"]["allocatable"] = json!({});
        node
    };
    for (lxcfs, node, pods, expected, note) in [
        ("", well("n1"), pods("n1"), "yes", ""),
        ("", silent(), lxcfs.clone(), "unknown", "of the other files nothing is told"),
        ("files: [meminfo]", silent(), lxcfs.clone(), "yes", ""),
        ("", silent(), vec![pod("lxcfs", "n1", "False")], "no", ""),
        ("", silent(), vec![], "unknown", "nothing is told"),
        ("", changed(unready), pods("n1"), "unknown", "is not Ready"),
        ("", old.clone(), pods("n1"), "yes", ""),
        ("", without_devices(old.clone()), vec![], "unknown", "is 60 minutes old"),
        ("", without_devices(old), lxcfs, "unknown", "of the other files nothing is told"),
    ] {
        let told = doctor(lxcfs, &[node], &pods, &["-o", "json"]).json();
        let node = &told["nodes"][0];
        assert_eq!(node["serves"], expected, "{told}");
        assert!(node["unknown"].as_str().unwrap_or_default().contains(note), "{told}");
        assert_eq!(node["sees"] == json!([]), expected != "yes", "{told}");
    }
    let run = doctor("", &[silent()], &[pod("lxcfs", "n1", "True")], &[]);
    assert_eq!(run.code, 0, "nothing is known to be amiss: {}", run.out);
    assert!(
        run.out.contains("0 of 1 nodes serve") && run.out.contains("durward doctor lxcfs --here"),
        "{}",
        run.out
    );
}

#[test]
fn a_pod_that_is_not_ready_where_another_lxcfs_serves_is_told_as_one_too_many() {
    let (installed, look) = ("see \"LXCFS that is installed", "kubectl");
    for (node, expected, first) in
        [(well("n1"), "by another LXCFS", installed), (silent(), "have no files", look)]
    {
        let run = doctor("", &[node], &[pod("lxcfs", "n1", "False")], &["-o", "json"]);
        let told = run.json();
        let findings = told["findings"].as_array().unwrap();
        let finding = findings.iter().find(|one| one["code"] == "pod").unwrap();
        assert!(finding["why"].as_str().unwrap().contains(expected), "{finding}");
        assert!(finding["mend"].as_str().unwrap().starts_with(first), "{finding}");
    }
}

#[test]
fn nodes_of_which_nothing_tells_are_told_together_and_those_without_proc_are_left_alone() {
    let bare = |name: &str, system: &str| json!({"metadata": {"name": name, "uid": name}, "status": {"nodeInfo": {"operatingSystem": system}}});
    let nodes = [bare("a", "linux"), bare("b", "linux"), bare("w", "windows"), well("n1")];
    let run = doctor("", &nodes, &pods("n1"), &["-o", "json"]);
    assert_eq!(codes(&run), ["unseen"]);
    let told = run.json();
    assert_eq!(told["findings"][0]["what"], "nothing tells of LXCFS on a, b");
    assert!(told["findings"][0]["mend"].as_str().unwrap().contains("get daemonsets"));
    let serves: Vec<_> =
        told["nodes"].as_array().unwrap().iter().map(|node| node["serves"].clone()).collect();
    assert_eq!(serves, ["unknown", "unknown", "yes", "windows"]);
    let run = doctor("nodeReadiness: require", &[bare("a", "linux")], &[], &[]);
    assert_eq!(run.code, 1);
    assert!(run.out.contains("kubectl apply -k deploy/lxcfs"), "{}", run.out);
    assert!(run.out.contains("durward doctor lxcfs --here"), "{}", run.out);
}

#[test]
fn a_cluster_that_cannot_be_read_is_no_cluster_on_which_all_is_well() {
    let dir = TestDir::new();
    let run = dir.run(&["doctor", "lxcfs", "--world", "world", "-o", "json"]);
    assert_eq!(codes(&run), ["nodes"]);
}

// === here ===

fn here(dir: &TestDir, root: &Path, lxcfs: &str, more: &[&str]) -> Run {
    dir.configure(&format!("  lxcfs: {{root: {}{lxcfs}}}\n", root.display()));
    dir.run(&[&["doctor", "lxcfs", "--here", "--config", "durward.yaml", "--proc", "proc"], more].concat())
}

#[test]
fn here_the_files_themselves_are_read() {
    let dir = TestDir::new();
    let root = root(dir.path());
    let run = here(&dir, &root, "", &[]);
    assert_eq!((run.code, run.err.as_str()), (0, ""), "{}", run.out);
    assert!(run.out.contains("  meminfo    served\n"), "{}", run.out);
    assert!(run.out.contains("  loadavg    served  (pods do not get it)\n"), "{}", run.out);
    assert!(run.out.ends_with("nothing to mend\n"), "{}", run.out);
}

#[test]
fn here_a_file_that_is_not_as_it_should_be_is_told_with_what_to_do() {
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
    let run = here(&dir, &root, "", &["-o", "json"]);
    assert_eq!(codes(&run), ["mount", "mount", "files"], "nothing is mounted");
    mount(dir.path(), "fuse.lxcfs");
    let run = here(&dir, &root, "", &["-o", "json"]);
    assert_eq!(codes(&run), ["files", "files", "files"]);
    let told = run.json();
    assert_eq!(
        told["files"],
        json!({
            "cpuinfo": "garbage", "meminfo": "missing", "diskstats": "served", "stat": "not-a-file", "swaps": "missing",
            "uptime": "not-a-file", "loadavg": "served", "slabinfo": "served", "online": "served",
        })
    );
    let what = told["findings"][1]["what"].as_str().unwrap();
    assert!(what.ends_with("/proc/meminfo is not there (so: meminfo, swaps)"), "{what}");
    let run = here(&dir, &root, ", files: [diskstats]", &[]);
    assert_eq!(run.code, 0, "what pods do not get is not missed: {}", run.out);
}

#[test]
fn here_copies_of_the_files_are_not_taken_for_lxcfs() {
    let dir = TestDir::new();
    let root = root(dir.path());
    for kind in ["ext4", "fuse.sshfs"] {
        mount(dir.path(), kind);
        let run = here(&dir, &root, "", &["-o", "json"]);
        assert_eq!(codes(&run), ["mount"]);
        let told = run.json();
        assert_eq!((&told["files"]["meminfo"], &told["sees"]), (&json!("not-lxcfs"), &json!([])));
    }
    // LXCFS is there, and something lies over its files.
    write(
        dir.path(),
        "/proc/self/mountinfo",
        &format!("97 90 0:1 / {} rw - fuse.lxcfs lxcfs rw\n", root.display()),
    );
    let run = here(&dir, &root, "", &["-o", "json"]);
    assert_eq!(codes(&run), ["files"]);
    assert!(run.json()["findings"][0]["mend"].as_str().unwrap().contains("findmnt -R"), "{}", run.out);
}

/// A process in the house's `proc`.
fn process(dir: &Path, pid: i32, rights: &str, users: &str) {
    for (name, text) in [
        ("comm", "lxcfs\n".to_owned()),
        ("cmdline", format!("lxcfs\0--enable-cfs\0{}\0", dir.join("lxcfs").display())),
        ("stat", format!("{pid} (lxcfs) {}", ["1"; 50].join(" "))),
        ("status", format!("Name:\tlxcfs\nCapEff:\t{rights}\n")),
        ("uid_map", users.to_owned()),
        ("mountinfo", fs::read_to_string(dir.join("proc/self/mountinfo")).unwrap()),
    ] {
        write(dir, &format!("/proc/{pid}/{name}"), &text);
    }
}

#[test]
fn here_a_process_that_only_calls_itself_lxcfs_is_passed_over_and_none_is_run() {
    let dir = TestDir::new();
    let root = root(dir.path());
    let ran = dir.path().join("ran");
    let script = format!("#!/bin/sh\ntouch {}\necho 5.0.3\n", ran.display());
    let first = "0 0 4294967295\n";
    for (pid, rights, users) in [
        (2, "0000000000000000", first),
        (3, "00000000a80425fb", first),
        (4, "000001ffffffffff", "0 100000 65536\n"),
        (7, "000001ffffffffff", first),
    ] {
        process(dir.path(), pid, rights, users);
        let program = dir.path().join(format!("proc/{pid}/exe"));
        fs::write(&program, &script).unwrap();
        fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        std::os::unix::fs::symlink("/", dir.path().join(format!("proc/{pid}/root"))).unwrap();
        let run = here(&dir, &root, "", &["-o", "json"]);
        let told = run.json();
        assert_eq!(told["pid"], if pid == 7 { json!(7) } else { Value::Null }, "{pid}");
        assert_eq!(told["version"], Value::Null);
        assert!(!ran.exists(), "the program of {pid} was run");
    }
}

#[test]
fn here_and_a_cluster_cannot_both_be_meant() {
    let run = TestDir::new().run(&["doctor", "lxcfs", "--here", "--world", "world"]);
    assert_eq!(run.code, 2);
    assert!(run.err.contains("--here"), "{}", run.err);
}
