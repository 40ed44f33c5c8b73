//! Builds the programs that the selected cases start, before the first case.
//!
//! A build uses all processors for minutes, and a case that measures times or counts failed calls can't run next to it. Programs of
//! one Go module are built by one `go build`, which compiles shared packages once and links one program while it compiles another.
//! A program that no row of [`NEEDS`] names is built while cases run.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anyhow::Result;

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
}
