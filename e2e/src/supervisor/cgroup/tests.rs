use super::*;

const HYBRID: &str = "\
24 1 0:20 / /sys rw,relatime shared:7 - sysfs sysfs rw
30 24 0:25 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
31 30 0:26 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
32 30 0:27 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
33 30 0:28 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
34 30 0:29 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
35 1 0:27 / /elsewhere rw,relatime - cgroup cgroup rw,memory
36 1 0:30 /lxc /partly rw,relatime - cgroup cgroup rw,pids";

#[test]
fn finds_the_first_full_mount_of_each_hierarchy() {
    let found = parse(HYBRID);
    let roots: Vec<_> = found.iter().filter_map(|hierarchy| hierarchy.root.to_str()).collect();
    assert_eq!(
        roots,
        [
            "/sys/fs/cgroup/cpu,cpuacct",
            "/sys/fs/cgroup/memory",
            "/sys/fs/cgroup/unified",
            "/sys/fs/cgroup/systemd"
        ]
    );
    assert_eq!(found.iter().filter(|hierarchy| hierarchy.unified).count(), 1);
}

#[test]
fn names_the_missing_controllers_and_the_remedy() {
    let lack = lack_of(&parse(HYBRID)).unwrap();
    assert!(lack.contains("the controllers cpuset, pids:"), "{lack}");
    assert!(lack.contains("cgroup_disable=") && lack.contains("--cgroupns=host"), "{lack}");
}

#[test]
fn accepts_only_the_names_of_runs() {
    for name in ["", "durward-", "..", "durward-/..", "durward-..", "kubepods", "durward-1/2"] {
        assert!(!is_ours(name), "{name:?}");
    }
    assert!(is_ours(&name("1795281316-24599", 0)));
}

#[test]
fn lists_a_tree_parents_first() {
    let root = std::env::temp_dir().join(format!("durward-tree-{}", std::process::id()));
    std::fs::create_dir_all(root.join("a/b")).unwrap();
    std::fs::create_dir_all(root.join("c")).unwrap();
    std::fs::write(root.join("file"), "").unwrap();
    let found = tree(&root);
    assert!(remove_dir(&root));
    assert_eq!(found.len(), 4, "{found:?}");
    assert_eq!(found.first(), Some(&root));
    let place = |end: &str| found.iter().position(|folder| folder.ends_with(end));
    assert!(place("a") < place("a/b"), "{found:?}");
}

fn remove_dir(root: &Path) -> bool {
    std::fs::remove_dir_all(root).is_ok()
}
