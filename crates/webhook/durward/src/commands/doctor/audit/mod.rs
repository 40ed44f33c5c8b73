//! The part `audit`: reports the requests that audit mode allowed and enforce mode would deny.
//!
//! The audit logs of the API servers name the callers ([`log`]). Without them, metrics have the numbers ([`metrics`]). A request
//! that could not be checked would be denied too. It is counted apart, because its cause must be fixed first.
//!
//! | code | problem |
//! |---|---|
//! | `unreadable` | lines of a log, or the metrics of a process, could not be read |
//! | `empty` | a log has no requests |

mod log;
mod metrics;
mod text;

use std::collections::BTreeMap;
use std::path::PathBuf;

use admission::{SettlePolicy, User};
use cluster::Clients;
use console::exit::{Exit, Stop};
use console::input;
use guards::{GUARD_KINDS, NativePolicy, purposes_of};
use serde::{Serialize, Serializer};

use super::finding::Finding;
use crate::file::{File, Guarded};

pub(super) use metrics::read as read_metrics;

/// Groups of requests. A log with more callers, resources and namespaces must not fill the memory.
const MAX_GROUPS: usize = 10_000;

/// The denials that audit mode allowed.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AuditReport {
    /// The logs, or the processes whose metrics were read.
    sources: Vec<Source>,
    /// Requests that would be denied.
    would_deny: Groups,
    /// Requests that could not be checked, and would be denied.
    unchecked: Groups,
    /// Sources that could not be read.
    pub(super) findings: Vec<Finding>,
}

/// A log, or a process with metrics.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Source {
    name: String,
    /// Requests in the log, without dry runs.
    requests: Option<u64>,
    /// The time of the first request, or the start of the process.
    from: String,
    /// The time of the last request.
    to: String,
}

/// Groups of requests, in the order of the report.
#[derive(Debug, Default)]
struct Groups(BTreeMap<CallGroup, Seen>);

/// The requests that are counted together. Metrics have no callers, and logs no causes.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
struct CallGroup {
    guard: &'static str,
    /// The native policy.
    policy: String,
    /// The reason code of the metric.
    cause: String,
    /// Whether the guard treats the caller as a controller.
    is_controller: bool,
    caller: String,
    verb: String,
    /// `pods/eviction`, `statefulsets.apps`
    resource: String,
    /// Empty for Namespaces and cluster-wide objects.
    namespace: String,
}

/// The number and times of a group's requests, and one of them.
#[derive(Debug, Clone, Default, Serialize)]
struct Seen {
    count: u64,
    first: String,
    last: String,
    object: String,
    message: String,
}

impl Groups {
    fn add(&mut self, mut group: CallGroup, seen: Seen) {
        if self.0.len() >= MAX_GROUPS && !self.0.contains_key(&group) {
            group = CallGroup { guard: group.guard, policy: group.policy, ..CallGroup::default() };
        }
        let Some(known) = self.0.get_mut(&group) else {
            self.0.insert(group, seen);
            return;
        };
        known.count += seen.count;
        known.first = std::mem::take(&mut known.first).min(seen.first);
        known.last = std::mem::take(&mut known.last).max(seen.last);
    }
}

impl Serialize for Groups {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Row<'g> {
            #[serde(flatten)]
            group: &'g CallGroup,
            #[serde(flatten)]
            seen: &'g Seen,
        }
        serializer.collect_seq(self.0.iter().map(|(group, seen)| Row { group, seen }))
    }
}

/// The guards of the configuration, with the controllers that each knows.
struct Guards(BTreeMap<&'static str, SettlePolicy>);

impl Guards {
    /// Returns the guards of a file. Without one, only the controllers of Kubernetes are known.
    fn of(file: Option<&File>) -> Self {
        let settle_policy = |guard: &Guarded| {
            let built = guard.configured.build(&Clients::offline());
            Some((guard.kind.name(), built.first()?.settle_policy().clone()))
        };
        Self(file.iter().flat_map(|file| &file.guards).filter_map(settle_policy).collect())
    }

    fn is_controller(&self, guard: &str, caller: &str) -> bool {
        let mut user = User::default();
        user.name = caller.into();
        self.0.get(guard).unwrap_or(&SettlePolicy::deny_unknown()).is_controller(&user)
    }

    /// Returns the guard of a native policy. If several guards have it, one that is on outranks the others.
    fn of_policy(&self, policy: &str) -> Option<&'static str> {
        let has =
            |guard: &&str| purposes_of(guard).iter().any(|purpose| NativePolicy::name_of(purpose) == policy);
        self.0.keys().copied().chain(names()).find(has)
    }
}

fn names() -> impl Iterator<Item = &'static str> {
    GUARD_KINDS.iter().map(|kind| kind.name())
}

/// Returns the guard of a path or a webhook entry: `resources` for `resources-ignore`.
fn guard_of(name: &str) -> Option<&'static str> {
    names()
        .find(|guard| name.strip_prefix(guard).is_some_and(|rest| rest.is_empty() || rest.starts_with('-')))
}

/// Reads audit logs.
pub(super) fn read_logs(paths: &[PathBuf], file: Option<&File>) -> Result<AuditReport, Stop> {
    let (mut report, guards) = (AuditReport::default(), Guards::of(file));
    // A wrong path ends the command before a long log is read.
    let logs: Vec<_> = paths.iter().map(|path| input::reader_or_stdin(path)).collect::<Result<_, _>>()?;
    for (path, log) in paths.iter().zip(logs) {
        log::read(&input::shown(path), log, &guards, &mut report);
    }
    Ok(report)
}

impl AuditReport {
    /// Returns 3 if a source could not be read, and 1 if a request would be denied.
    pub(super) fn exit(&self) -> Exit {
        if !self.findings.is_empty() {
            Exit::Unknown
        } else if self.would_deny.0.is_empty() && self.unchecked.0.is_empty() {
            Exit::Done
        } else {
            Exit::No
        }
    }
}

#[cfg(test)]
mod tests;
