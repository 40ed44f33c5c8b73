//! Readiness as named checks. The owner of a condition (the certificate, a cache, the configuration) holds its [`Check`] and sets
//! its state; `/readyz` only reads.
//!
//! The text follows kube-apiserver's (`apiserver/pkg/server/healthz`): `[+]name ok`, `[-]name failed: reason`. In addition,
//! `[!]name: note` informs operators without making the server unready. Reasons and notes name clusters, objects and files, so
//! a second text for strangers has `reason withheld` in their place, as kube-apiserver has.

use std::sync::{Arc, Mutex, MutexGuard};

use admission::lock;

/// The text in place of a reason. Operators read it too, so it says where the reason is.
const WITHHELD: &str = "reason withheld; read the log, or ask on loopback (kubectl port-forward)";

/// All checks of one server. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Checks(Arc<Mutex<Vec<Check>>>);

/// A named condition. Clones share it. A new one fails until its owner sets its state.
#[derive(Debug, Clone)]
pub struct Check(Arc<CheckEntry>);

#[derive(Debug)]
struct CheckEntry {
    name: String,
    state: Mutex<CheckState>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum CheckState {
    Passed,
    /// Passed, with a note for operators.
    Noted(String),
    Failed(String),
}

/// The state of checks at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChecksReport {
    /// Whether every check passed.
    pub ready: bool,
    /// One line for each check, and a summary.
    pub text: String,
    /// The same without reasons and notes.
    pub public_text: String,
}

impl ChecksReport {
    fn new() -> Self {
        Self { ready: true, text: String::new(), public_text: String::new() }
    }

    fn push(&mut self, line: &str) {
        self.text.push_str(line);
        self.public_text.push_str(line);
    }
}

impl Checks {
    /// Creates an empty list, which is ready.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check, or returns the one with that name. It fails until its state is set.
    pub fn add(&self, name: impl Into<String>) -> Check {
        let name = name.into();
        let mut all = self.lock();
        if let Some(found) = all.iter().find(|check| check.0.name == name) {
            return found.clone();
        }
        let state = Mutex::new(CheckState::Failed("not checked yet".to_owned()));
        let check = Check(Arc::new(CheckEntry { name, state }));
        all.push(check.clone());
        check
    }

    /// Returns the state of all checks.
    pub fn readiness(&self) -> ChecksReport {
        let all = self.lock();
        let mut readiness = ChecksReport::new();
        for check in all.iter() {
            check.write(&mut readiness);
        }
        readiness.push(if readiness.ready { "readyz check passed\n" } else { "readyz check failed\n" });
        readiness
    }

    /// Returns whether every check passes, without regard to the one with this name.
    pub fn is_ready_without(&self, name: &str) -> bool {
        let is_failed = |check: &&Check| matches!(*lock(&check.0.state), CheckState::Failed(_));
        !self.lock().iter().filter(|check| check.0.name != name).any(|check| is_failed(&check))
    }

    /// Returns the state of the check with that name.
    pub fn readiness_of(&self, name: &str) -> Option<ChecksReport> {
        let all = self.lock();
        let check = all.iter().find(|check| check.0.name == name)?;
        let mut readiness = ChecksReport::new();
        check.write(&mut readiness);
        Some(readiness)
    }

    /// Returns the names of all checks, in the order in which they were added.
    pub fn names(&self) -> Vec<String> {
        self.lock().iter().map(|check| check.0.name.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Check>> {
        lock(&self.0)
    }
}

impl Check {
    /// Sets the check to passed.
    pub fn pass(&self) {
        self.set(CheckState::Passed);
    }

    /// Sets the check to passed with a note for operators.
    pub fn note(&self, text: impl Into<String>) {
        self.set(CheckState::Noted(text.into()));
    }

    /// Sets the check to failed.
    pub fn fail(&self, reason: impl Into<String>) {
        self.set(CheckState::Failed(reason.into()));
    }

    fn set(&self, state: CheckState) {
        *lock(&self.0.state) = state;
    }

    fn write(&self, readiness: &mut ChecksReport) {
        let name = &self.0.name;
        let state = lock(&self.0.state);
        let (begin, reason) = match &*state {
            CheckState::Passed => return readiness.push(&format!("[+]{name} ok\n")),
            CheckState::Noted(note) => (format!("[!]{name}: "), note),
            CheckState::Failed(reason) => (format!("[-]{name} failed: "), reason),
        };
        readiness.ready &= !matches!(&*state, CheckState::Failed(_));
        readiness.push(&begin);
        for (text, end) in [(&mut readiness.text, reason.as_str()), (&mut readiness.public_text, WITHHELD)] {
            text.push_str(end);
            text.push('\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_fails_until_its_state_is_set() {
        let checks = Checks::new();
        assert!(checks.readiness().ready);
        let cache = checks.add("cache");
        assert_eq!(
            checks.readiness(),
            ChecksReport {
                ready: false,
                text: "[-]cache failed: not checked yet\nreadyz check failed\n".to_owned(),
                public_text: format!("[-]cache failed: {WITHHELD}\nreadyz check failed\n"),
            }
        );
        cache.pass();
        assert_eq!(checks.readiness().text, "[+]cache ok\nreadyz check passed\n");
    }

    #[test]
    fn a_note_does_not_make_the_server_unready() {
        let checks = Checks::new();
        checks.add("configuration").note("new file refused: line 3");
        checks.add("certificate").fail("ended yesterday");
        let readiness = checks.readiness();
        assert!(!readiness.ready);
        assert!(
            readiness
                .text
                .starts_with("[!]configuration: new file refused: line 3\n[-]certificate failed: ended")
        );
        let strangers = "[!]configuration: reason withheld; ";
        assert!(readiness.public_text.starts_with(strangers), "{}", readiness.public_text);
        for secret in ["line 3", "yesterday"] {
            assert!(!readiness.public_text.contains(secret), "{}", readiness.public_text);
        }
        assert!(checks.readiness_of("configuration").unwrap().ready);
        assert!(!checks.readiness_of("certificate").unwrap().ready);
        assert!(checks.is_ready_without("certificate"));
        assert!(!checks.is_ready_without("configuration"));
        assert_eq!(checks.readiness_of("unknown"), None);
    }

    #[test]
    fn checks_with_the_same_name_are_shared() {
        let checks = Checks::new();
        checks.add("a").pass();
        checks.add("a").fail("x");
        assert_eq!(checks.readiness().text.lines().count(), 2);
        assert!(!checks.readiness().ready);
    }
}
