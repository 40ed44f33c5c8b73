//! Builds the programs that the selected cases start, before the first case.
//!
//! A build uses all processors for minutes, and a case that measures times or counts failed calls can't run next to it. Programs of
//! one Go module are built by one `go build`, which compiles shared packages once and links one program while it compiles another.
//! A program that no row of [`NEEDS`] names would be built while cases run. Such a run fails, also if the program is in the cache.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::binaries::{Binary, build};
use crate::console::print;
use crate::etcd_cluster::Release;
use crate::supervisor::Supervisor;

/// Interval of the messages about a build that still runs.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// The programs that cases need besides [`CLUSTER`], by the start of the case's name. An empty name means all cases.
const NEEDS: [(&str, &[Binary]); 17] = [
    ("", CLUSTER),
    ("fleet::", KARMADA),
    ("deletion::", KARMADA),
    ("kinds::", &[Binary::KarmadaAggregated]),
    ("binary::", NODE),
    ("binary::", &[Binary::Helm]),
    ("check_formats::", &[Binary::Jv]),
    ("node::", NODE),
    ("container_view::", NODE),
    ("deploy::", NODE),
    ("supervisor::", NODE),
    ("etcd_node::", NODE),
    ("etcd_node::", &[Binary::Helm]),
    ("etcd_node::upstream_manifest", &[Binary::Etcd35, Binary::Etcdctl35]),
    ("chart::", NODE),
    ("chart::", &[Binary::Helm]),
    ("chart::karmada", KARMADA),
];

/// Programs of cases that run only in `make soak` and `make parity`.
const SOAK_NEEDS: [(&str, &[Binary]); 3] = [
    ("chart::", &[Binary::CertManager]),
    ("versions::", &[Binary::ApiServer131, Binary::ApiServer133, Binary::ApiServer137, Binary::Helm]),
    ("versions::", NODE),
];

/// A control plane without a node.
const CLUSTER: &[Binary] = &[Binary::Etcd, Binary::ApiServer, Binary::ControllerManager, Binary::Kubectl];

/// A node, and the images of etcd on it.
const NODE: &[Binary] = &[Binary::Scheduler, Binary::Kubelet, Binary::CoreDns, Binary::Etcdctl];

const KARMADA: &[Binary] = &[
    Binary::KarmadaAggregated,
    Binary::KarmadaControllers,
    Binary::KarmadaWebhook,
    Binary::KarmadaScheduler,
    Binary::KarmadaAgent,
    Binary::Karmadactl,
];

/// The programs that were built or found before the first case.
static PREPARED: Mutex<BTreeSet<Binary>> = Mutex::new(BTreeSet::new());

/// The programs that cases used although they were not prepared.
static UNPREPARED: Mutex<BTreeSet<Binary>> = Mutex::new(BTreeSet::new());

/// Returns the programs that a case needs.
pub fn needed_by(case: &str, is_soak: bool) -> Result<Vec<Binary>> {
    let soak: &[(&str, &[Binary])] = if is_soak { &SOAK_NEEDS } else { &[] };
    let rows = NEEDS.iter().chain(soak).filter(move |(start, _)| case.starts_with(start));
    let mut needed: Vec<Binary> = rows.flat_map(|(_, binaries)| binaries.iter().copied()).collect();
    if case.starts_with("etcd::") {
        needed.extend(Release::tested()?.into_iter().filter_map(Release::binary));
    }
    Ok(needed)
}

/// Builds the programs that are not in the cache yet.
pub fn prepare(supervisor: &Arc<Supervisor>, needed: &BTreeSet<Binary>) -> Result<()> {
    let mut missing: Vec<Vec<Binary>> = Vec::new();
    for &binary in needed {
        if binary.cached()?.is_some() {
            continue;
        }
        match missing.iter_mut().find(|group| group[0].module() == binary.module()) {
            Some(group) => group.push(binary),
            None => missing.push(vec![binary]),
        }
    }
    let began = Instant::now();
    for (at, group) in missing.iter().enumerate() {
        let next = missing.get(at + 1).map_or_else(String::new, |next| format!("; next: {}", names(next)));
        let place = format!("part {} of {}", at + 1, missing.len());
        print(format_args!("{place}: building {} ({} since the start{next})", names(group), minutes(began)));
        report_while(&place, began, || build(group, supervisor))?;
    }
    if !missing.is_empty() {
        print(format_args!(
            "all {} parts are built after {}; the cases start",
            missing.len(),
            minutes(began)
        ));
    }
    PREPARED.lock().unwrap_or_else(PoisonError::into_inner).clone_from(needed);
    Ok(())
}

/// Records that a case uses a program.
pub(crate) fn record_use(binary: Binary) {
    let prepared = PREPARED.lock().unwrap_or_else(PoisonError::into_inner);
    // Other programs of the tests, such as `make cluster`, prepare nothing.
    if !prepared.is_empty() && !prepared.contains(&binary) {
        UNPREPARED.lock().unwrap_or_else(PoisonError::into_inner).insert(binary);
    }
}

/// Fails if a case used a program that was not prepared.
pub fn check_uses() -> Result<()> {
    let unprepared = UNPREPARED.lock().unwrap_or_else(PoisonError::into_inner);
    ensure!(
        unprepared.is_empty(),
        "cases used {unprepared:?}, which can be built while other cases measure times: add them to NEEDS in e2e/src/parts.rs"
    );
    Ok(())
}

/// Runs `action`, and prints a line each minute.
fn report_while<T: Send>(place: &str, began: Instant, action: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let (done, ended) = mpsc::channel::<()>();
        scope.spawn(move || {
            while ended.recv_timeout(REPORT_INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
                print(format_args!("{place}: still building, {} since the start", minutes(began)));
            }
        });
        let result = action();
        drop(done);
        result
    })
}

fn names(group: &[Binary]) -> String {
    let mut text = group.iter().map(|binary| binary.name()).collect::<Vec<_>>().join(", ");
    if let Some(version) = group.first().and_then(|binary| binary.version().ok()) {
        let _ = write!(text, " {version}");
    }
    text
}

/// Returns the time since then as `3:07`.
fn minutes(began: Instant) -> String {
    let seconds = began.elapsed().as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_needs_the_programs_of_each_row_that_its_name_starts_with() {
        let of = |name: &str, is_soak| -> BTreeSet<Binary> {
            needed_by(name, is_soak).unwrap().into_iter().collect()
        };
        let cluster: BTreeSet<_> = CLUSTER.iter().copied().collect();
        assert_eq!(of("opt_in::a_pod", false), cluster);
        let chart = of("chart::karmada::a_pod", true);
        assert!([KARMADA, NODE, CLUSTER].concat().iter().all(|binary| chart.contains(binary)));
        assert!(
            chart.contains(&Binary::CertManager)
                && !of("chart::rollouts::three", false).contains(&Binary::CertManager)
        );
    }

    #[test]
    fn a_program_that_was_not_prepared_fails_the_run() {
        record_use(Binary::Etcd37);
        assert!(check_uses().is_ok(), "nothing is prepared yet");
        PREPARED.lock().unwrap().insert(Binary::Etcd);
        record_use(Binary::Etcd);
        assert!(check_uses().is_ok());
        record_use(Binary::Etcd37);
        assert!(check_uses().unwrap_err().to_string().contains("Etcd37"));
    }
}
