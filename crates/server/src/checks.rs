//! Readiness as named checks, each with its reason. Whoever owns a condition (the certificate, a guard's first look at the
//! world, the configuration) holds its [`Check`] and says how it stands; `/readyz` only reads.
//!
//! The text follows kube-apiserver's (`apiserver/pkg/server/healthz`), so that eyes used to that find their way:
//! `[+]name ok`, `[-]name failed: reason`. New is `[!]name: note`, for what an operator should know and no load balancer.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All checks of one server; clones are the same list.
#[derive(Debug, Clone, Default)]
pub struct Checks(Arc<Mutex<Vec<Check>>>);

/// One named condition; clones are the same condition. A new one fails until its owner has said otherwise.
#[derive(Debug, Clone)]
pub struct Check(Arc<Entry>);

#[derive(Debug)]
struct Entry {
    name: String,
    state: Mutex<State>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Passed,
    /// Passed, with something that an operator should know.
    Noted(String),
    Failed(String),
}

/// How the checks stood at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Readiness {
    /// Whether no check failed.
    pub ready: bool,
    /// One line for each check, and one for the whole.
    pub text: String,
}

impl Checks {
    /// No checks: ready.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check, or finds the one of that name. It fails with "not looked at yet" until told otherwise.
    pub fn add(&self, name: impl Into<String>) -> Check {
        let name = name.into();
        let mut all = self.lock();
        if let Some(found) = all.iter().find(|check| check.0.name == name) {
            return found.clone();
        }
        let state = Mutex::new(State::Failed("not looked at yet".to_owned()));
        let check = Check(Arc::new(Entry { name, state }));
        all.push(check.clone());
        check
    }

    /// How all of them stand now.
    pub fn readiness(&self) -> Readiness {
        let all = self.lock();
        let mut readiness = Readiness { ready: true, text: String::new() };
        for check in all.iter() {
            check.write(&mut readiness);
        }
        readiness.text.push_str(if readiness.ready {
            "readyz check passed\n"
        } else {
            "readyz check failed\n"
        });
        readiness
    }

    /// How the check of that name stands now, if there is one.
    pub fn readiness_of(&self, name: &str) -> Option<Readiness> {
        let all = self.lock();
        let check = all.iter().find(|check| check.0.name == name)?;
        let mut readiness = Readiness { ready: true, text: String::new() };
        check.write(&mut readiness);
        Some(readiness)
    }

    /// The names of all checks, in the order in which they were added.
    pub fn names(&self) -> Vec<String> {
        self.lock().iter().map(|check| check.0.name.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Check>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Check {
    /// The condition holds.
    pub fn pass(&self) {
        self.set(State::Passed);
    }

    /// The condition holds, and an operator should know something: shown, without making the server unready.
    pub fn note(&self, text: impl Into<String>) {
        self.set(State::Noted(text.into()));
    }

    /// The condition does not hold.
    pub fn fail(&self, why: impl Into<String>) {
        self.set(State::Failed(why.into()));
    }

    fn set(&self, state: State) {
        *self.0.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    fn write(&self, readiness: &mut Readiness) {
        let name = &self.0.name;
        let state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Writing to a String cannot fail.
        let _ = match &*state {
            State::Passed => writeln!(readiness.text, "[+]{name} ok"),
            State::Noted(text) => writeln!(readiness.text, "[!]{name}: {text}"),
            State::Failed(why) => {
                readiness.ready = false;
                writeln!(readiness.text, "[-]{name} failed: {why}")
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_fails_until_its_owner_says_otherwise() {
        let checks = Checks::new();
        assert!(checks.readiness().ready);
        let world = checks.add("world");
        assert_eq!(
            checks.readiness(),
            Readiness {
                ready: false,
                text: "[-]world failed: not looked at yet\nreadyz check failed\n".to_owned()
            }
        );
        world.pass();
        assert_eq!(checks.readiness().text, "[+]world ok\nreadyz check passed\n");
    }

    #[test]
    fn a_note_is_shown_and_does_not_make_unready() {
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
        assert!(checks.readiness_of("configuration").unwrap().ready);
        assert!(!checks.readiness_of("certificate").unwrap().ready);
        assert_eq!(checks.readiness_of("moon"), None);
    }

    #[test]
    fn the_same_name_is_the_same_check() {
        let checks = Checks::new();
        checks.add("a").pass();
        checks.add("a").fail("x");
        assert_eq!(checks.readiness().text.lines().count(), 2);
        assert!(!checks.readiness().ready);
    }
}
