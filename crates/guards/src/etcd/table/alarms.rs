//! Which alarms are raised, by what the members answer and by what their status complains of.
//!
//! From 3.4 on a status tells every alarm of any member. From 3.5.7 on CORRUPT is raised with the member id zero where etcd cannot
//! tell whose data it is that differs (`etcdserver/corrupt.go`): that is about every member. What is said of alarms and cannot be
//! understood is never taken for none.

use std::collections::BTreeSet;

use admission::Cause;

use super::super::facts::Answers;
use cluster::cause;
use cluster::etcd::{AlarmKind, Id};

/// Where etcd names no member.
const NOBODY: Id = 0;

/// What to do about data that is corrupt and nobody's by name.
const IN_DOUBT: &str = "the alarm CORRUPT names no member, so that none can be counted on: find out whose data differs (etcdctl endpoint hashkv), take that member out of the list (etcdctl member remove), and its pod may go";

/// The alarms that are raised, and of whom.
#[derive(Debug, Clone, Default)]
pub(super) struct Alarms {
    corrupt: BTreeSet<Id>,
    no_space: BTreeSet<Id>,
    others: BTreeSet<Id>,
    /// Whether anybody told which there are.
    pub(super) is_known: bool,
}

/// What an alarm warns of.
#[derive(Clone, Copy)]
enum Told {
    NoSpace,
    Corrupt,
    Other,
}

impl Alarms {
    pub(super) fn of<'f>(all: impl Iterator<Item = &'f Answers>) -> Self {
        let mut told = Self::default();
        for answers in all {
            let by_status = !is_before(&answers.status.version, 3, 4) && misread(answers).is_none();
            told.is_known |= answers.alarms.is_ok() || by_status;
            for alarm in answers.alarms.iter().flatten() {
                let kind = match &alarm.kind {
                    AlarmKind::NoSpace => Told::NoSpace,
                    AlarmKind::Corrupt => Told::Corrupt,
                    AlarmKind::Other(_) => Told::Other,
                };
                told.raise(alarm.member, kind);
            }
            for (member, kind) in answers.status.errors.iter().filter_map(|line| complaint(line)) {
                told.raise(member, kind);
            }
        }
        told
    }

    fn raise(&mut self, member: Id, kind: Told) {
        let raised = match kind {
            Told::NoSpace => &mut self.no_space,
            Told::Corrupt => &mut self.corrupt,
            Told::Other => &mut self.others,
        };
        raised.insert(member);
    }

    /// Whether a member's data is corrupt.
    pub(super) fn is_corrupt(&self, member: Id) -> bool {
        self.corrupt.contains(&member)
    }

    /// Why nobody's data can be relied on: somebody's is corrupt, and nobody knows whose.
    pub(super) fn doubt(&self) -> Option<&'static str> {
        self.is_corrupt(NOBODY).then_some(IN_DOUBT)
    }

    /// What people are told. Whose data is corrupt stands at the member.
    pub(super) fn notes(&self, name: impl Fn(Id) -> String) -> Vec<String> {
        let named = |ids: &BTreeSet<Id>| {
            let name = |id: &Id| if *id == NOBODY { "no member by name".to_owned() } else { name(*id) };
            ids.iter().map(name).collect::<Vec<_>>().join(", ")
        };
        let mut notes = Vec::new();
        if self.doubt().is_some() {
            notes.push("alarm CORRUPT of no member by name: whose data differs tells etcdctl endpoint hashkv, and none can be counted on until the alarm is disarmed".to_owned());
        }
        if !self.no_space.is_empty() {
            let of = named(&self.no_space);
            notes.push(format!("alarm NOSPACE of {of}: nobody can write until space is made"));
        }
        if !self.others.is_empty() {
            notes.push(format!("an alarm of {} that Durward does not know", named(&self.others)));
        }
        notes
    }
}

/// Why what a member says of alarms cannot be understood.
pub(super) fn misread(answers: &Answers) -> Option<&Cause> {
    let why = answers.alarms.as_ref().err();
    why.filter(|why| matches!(why.code, cause::GARBAGE | cause::NOT_ETCD))
}

/// A status tells alarms as `memberID:12593026477526642892 alarm:NOSPACE` (`etcdserverpb.AlarmMember`, printed). What is zero is
/// left out there too; and an id that is none names nobody.
fn complaint(line: &str) -> Option<(Id, Told)> {
    let word = |of: &str| line.split_whitespace().find_map(|word| word.strip_prefix(of));
    let kind = match word("alarm:")? {
        "NOSPACE" => Told::NoSpace,
        "CORRUPT" => Told::Corrupt,
        _ => Told::Other,
    };
    Some((word("memberID:").and_then(|id| id.parse().ok()).unwrap_or(NOBODY), kind))
}

/// Whether a version is older than this one. One that cannot be read is.
fn is_before(version: &str, major: u64, minor: u64) -> bool {
    let mut parts = version.split(['.', '-', '+']).map(str::parse::<u64>);
    match (parts.next(), parts.next()) {
        (Some(Ok(a)), Some(Ok(b))) => (a, b) < (major, minor),
        _ => true,
    }
}
