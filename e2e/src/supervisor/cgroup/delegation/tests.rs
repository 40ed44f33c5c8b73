use super::*;

/// A directory that looks like the root of a unified hierarchy, with `before` recorded and `now` enabled.
struct Root(PathBuf);

impl Root {
    fn new(name: &str, before: &str, now: &str) -> Self {
        let root = std::env::temp_dir().join(format!("durward-delegation-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(&root).unwrap();
        std::fs::write(subtree_control(&root), now).unwrap();
        setxattr(&root, BEFORE, before.as_bytes(), XattrFlags::CREATE).unwrap();
        Self(root)
    }

    fn group(&self, name: &str, files: &[(&str, &str)]) {
        std::fs::create_dir_all(self.0.join(name)).unwrap();
        for (file, value) in files {
            std::fs::write(self.0.join(name).join(file), value).unwrap();
        }
    }

    /// Returns what restoring it writes, and the result. The kernel refuses `refuse`.
    fn restored(&self, refuse: &str) -> (Vec<String>, Result<()>) {
        let mut written = Vec::new();
        let done = restore_by(&self.0, |change| {
            assert!(
                recorded(&self.0).is_some(),
                "if it is killed here, the next run cannot restore the root"
            );
            written.push(change.to_owned());
            if change == refuse { Err(Errno::BUSY.into()) } else { Ok(()) }
        });
        (written, done)
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn disables_what_was_enabled_and_removes_the_record_last() {
    let root = Root::new("last", "memory", "memory pids\n");
    let (written, done) = root.restored("");
    done.unwrap();
    assert_eq!(written, ["-pids"]);
    assert_eq!(recorded(&root.0), None);
    let (written, done) = root.restored("");
    done.unwrap();
    assert!(written.is_empty(), "{written:?}");
}

#[test]
fn after_a_refusal_the_next_run_tries_again() {
    let root = Root::new("refused", "memory", "cpu io memory");
    let (written, done) = root.restored("-cpu");
    assert_eq!(written, ["-cpu", "-io"]);
    let said = done.unwrap_err().to_string();
    assert!(said.contains("keeps cpu (") && !said.contains("io ("), "{said}");
    let (_, done) = root.restored("");
    done.unwrap();
    assert_eq!(recorded(&root.0), None);
}

#[test]
fn keeps_a_controller_that_another_group_uses() {
    let root = Root::new("used", "", "cpu hugetlb io memory pids");
    root.group("system.slice", &[("cgroup.subtree_control", "io")]);
    root.group("user.slice", &[("cgroup.subtree_control", ""), ("pids.max", "100"), ("memory.peak", "4096")]);
    let (written, done) = root.restored("");
    done.unwrap();
    assert_eq!(written, ["-cpu", "-hugetlb", "-memory"]);
    assert_eq!(recorded(&root.0), None, "the other groups own it now");
}

#[test]
fn a_group_with_the_settings_of_a_new_group_uses_no_controller() {
    let root = Root::new("fresh", "", "cpu");
    root.group("system.slice", &[("cpu.weight", "100\n"), ("cpuset.cpus", "1")]);
    let fresh = |weight: &str| BTreeMap::from([("cpu.weight".to_owned(), weight.to_owned())]);
    assert_eq!(user_of(&root.0, "cpu", &fresh("100\n")), None);
    assert_eq!(user_of(&root.0, "cpu", &fresh("50\n")).as_deref(), Some("system.slice"));
}

#[test]
fn restores_the_root_only_after_the_last_run() {
    let root = Root::new("runs", "", "cpu");
    root.group(NEW, &[]);
    root.group("durward-1795281316-24599-0", &[]);
    let (written, done) = root.restored("");
    done.unwrap();
    assert!(written.is_empty() && recorded(&root.0).is_some(), "{written:?}");
    std::fs::remove_dir(root.0.join("durward-1795281316-24599-0")).unwrap();
    let (written, done) = root.restored("");
    done.unwrap();
    assert_eq!(written, ["-cpu"]);
    assert!(!root.0.join(NEW).exists());
}
