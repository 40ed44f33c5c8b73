//! The raised alarms, from the members' alarm lists and the errors in their status.
//!
//! Since 3.4, a status contains every alarm of any member. Since 3.5.7, etcd raises CORRUPT with the member id zero if it cannot
//! identify the corrupt member (`etcdserver/corrupt.go`). That alarm is about every member. An alarm that cannot be parsed is never
//! ignored.

use std::collections::BTreeSet;

use admission::Cause;

use super::super::facts::Answers;
use super::Note;
use cluster::cause;
use cluster::etcd::{Alarm, AlarmKind, Id};

/// The member id of an alarm that names no member.
const NO_MEMBER: Id = 0;

/// The raised alarms, by member.
#[derive(Debug, Clone, Default)]
pub(super) struct Alarms {
    corrupt: BTreeSet<Id>,
    no_space: BTreeSet<Id>,
    others: BTreeSet<Id>,
    /// Whether any member reported its alarms.
    pub(super) is_known: bool,
}

impl Alarms {
    pub(super) fn of<'f>(all: impl Iterator<Item = &'f Answers>) -> Self {
        let mut alarms = Self::default();
        for answers in all {
            let by_status = !is_before(&answers.status.version, 3, 4) && parse_error(answers).is_none();
            alarms.is_known |= answers.alarms.is_ok() || by_status;
            let in_status = answers.status.errors.iter().filter_map(|line| alarm(line));
            for Alarm { member, kind } in answers.alarms.iter().flatten().cloned().chain(in_status) {
                let raised = match kind {
                    AlarmKind::NoSpace => &mut alarms.no_space,
                    AlarmKind::Corrupt => &mut alarms.corrupt,
                    AlarmKind::Other(_) => &mut alarms.others,
                };
                raised.insert(member);
            }
        }
        alarms
    }

    /// Whether a member's data is corrupt.
    pub(super) fn is_corrupt(&self, member: Id) -> bool {
        self.corrupt.contains(&member)
    }

    /// Whether a CORRUPT alarm names no member, so no member's data can be relied on.
    pub(super) fn has_unnamed_corruption(&self) -> bool {
        self.is_corrupt(NO_MEMBER)
    }

    /// Returns the problems of the etcd cluster. The table shows which member is corrupt.
    pub(super) fn notes(&self, name: impl Fn(Id) -> String) -> Vec<Note> {
        let named = |ids: &BTreeSet<Id>| ids.iter().map(|id| (*id != NO_MEMBER).then(|| name(*id))).collect();
        let mut notes = Vec::new();
        if self.has_unnamed_corruption() {
            notes.push(Note::Corruption);
        }
        if !self.no_space.is_empty() {
            notes.push(Note::NoSpace(named(&self.no_space)));
        }
        if !self.others.is_empty() {
            notes.push(Note::OtherAlarm(named(&self.others)));
        }
        notes
    }
}

/// Returns why a member's alarms cannot be parsed.
pub(super) fn parse_error(answers: &Answers) -> Option<&Cause> {
    let why = answers.alarms.as_ref().err();
    why.filter(|why| matches!(why.code, cause::GARBAGE | cause::NOT_ETCD))
}

/// Reads an alarm from a status: `memberID:12593026477526642892 alarm:NOSPACE` (`etcdserverpb.AlarmMember`, printed). A missing or
/// malformed id names no member.
fn alarm(line: &str) -> Option<Alarm> {
    let word = |of: &str| line.split_whitespace().find_map(|word| word.strip_prefix(of));
    let kind = match word("alarm:")? {
        "NOSPACE" => AlarmKind::NoSpace,
        "CORRUPT" => AlarmKind::Corrupt,
        other => AlarmKind::Other(other.to_owned()),
    };
    Some(Alarm { member: word("memberID:").and_then(|id| id.parse().ok()).unwrap_or(NO_MEMBER), kind })
}

/// Whether a version is older than this one. A version that cannot be parsed is.
fn is_before(version: &str, major: u64, minor: u64) -> bool {
    let mut parts = version.split(['.', '-', '+']).map(str::parse::<u64>);
    match (parts.next(), parts.next()) {
        (Some(Ok(a)), Some(Ok(b))) => (a, b) < (major, minor),
        _ => true,
    }
}
