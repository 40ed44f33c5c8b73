use super::*;

/// A folder that looks like the root of a unified hierarchy: it handed down `before`, and now hands down `now`.
struct Root(PathBuf);

impl Root {
    fn new(name: &str, before: &str, now: &str) -> Self {
        let root = std::env::temp_dir().join(format!("durward-delegation-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(&root).unwrap();
        std::fs::write(handed_down(&root), now).unwrap();
        setxattr(&root, BEFORE, before.as_bytes(), XattrFlags::CREATE).unwrap();
        Self(root)
    }

    fn group(&self, name: &str, files: &[(&str, &str)]) {
        std::fs::create_dir_all(self.0.join(name)).unwrap();
        for (file, value) in files {
            std::fs::write(self.0.join(name).join(file), value).unwrap();
        }
    }

    /// What is written when it is given back, and whether that comes to a good end.
    fn given_back(&self, refuse: &str) -> (Vec<String>, Result<()>) {
        let mut written = Vec::new();
        let done = give_back_by(&self.0, |change| {
            assert!(noted(&self.0).is_some(), "killed here, nobody knows what to take back");
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
fn takes_back_what_was_added_and_forgets_it_last() {
    let root = Root::new("last", "memory", "memory pids\n");
    let (written, done) = root.given_back("");
    done.unwrap();
    assert_eq!(written, ["-pids"]);
    assert_eq!(noted(&root.0), None);
    let (written, done) = root.given_back("");
    done.unwrap();
    assert!(written.is_empty(), "{written:?}");
}

#[test]
fn a_refusal_stops_nothing_and_is_not_forgotten() {
    let root = Root::new("refused", "memory", "cpu io memory");
    let (written, done) = root.given_back("-cpu");
    assert_eq!(written, ["-cpu", "-io"]);
    let said = done.unwrap_err().to_string();
    assert!(said.contains("handing down cpu (") && !said.contains("io ("), "{said}");
    let (_, done) = root.given_back("");
    done.unwrap();
    assert_eq!(noted(&root.0), None);
}

#[test]
fn what_others_have_begun_to_use_stays() {
    let root = Root::new("used", "", "cpu hugetlb io memory pids");
    root.group("system.slice", &[("cgroup.subtree_control", "io")]);
    root.group("user.slice", &[("cgroup.subtree_control", ""), ("pids.max", "100"), ("memory.peak", "4096")]);
    let (written, done) = root.given_back("");
    done.unwrap();
    assert_eq!(written, ["-cpu", "-hugetlb", "-memory"]);
    assert_eq!(noted(&root.0), None, "it is theirs now");
}

#[test]
fn what_is_as_in_a_fresh_group_is_used_by_nobody() {
    let root = Root::new("fresh", "", "cpu");
    root.group("system.slice", &[("cpu.weight", "100\n"), ("cpuset.cpus", "1")]);
    let fresh = |weight: &str| BTreeMap::from([("cpu.weight".to_owned(), weight.to_owned())]);
    assert_eq!(user_of(&root.0, "cpu", &fresh("100\n")), None);
    assert_eq!(user_of(&root.0, "cpu", &fresh("50\n")).as_deref(), Some("system.slice"));
}

#[test]
fn nothing_is_taken_from_a_run_that_is_left_and_a_fresh_group_is_none() {
    let root = Root::new("runs", "", "cpu");
    root.group(FRESH, &[]);
    root.group("durward-1795281316-24599-0", &[]);
    let (written, done) = root.given_back("");
    done.unwrap();
    assert!(written.is_empty() && noted(&root.0).is_some(), "{written:?}");
    std::fs::remove_dir(root.0.join("durward-1795281316-24599-0")).unwrap();
    let (written, done) = root.given_back("");
    done.unwrap();
    assert_eq!(written, ["-cpu"]);
    assert!(!root.0.join(FRESH).exists());
}
