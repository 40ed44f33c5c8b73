//! Reads what would be denied from metrics: those of Durward's pods, and for native policies those of the API servers.
//!
//! Facts: an API server counts each failed rule of a policy by the action of the binding (`plugin/policy/validating/metrics`). A
//! binding in audit mode has the actions `Warn` and `Audit`, so only `audit` is counted here.

use cluster::ApiError;
use cluster::live::Fault;
use config::Problem;
use console::exit::Stop;
use k8s_openapi::api::core::v1::Pod;

use super::super::finding::Finding;
use super::super::install::client;
use super::{AuditReport, CallGroup, Groups, Guards, Seen, Source, guard_of};
use crate::args::ClusterArgs;
use crate::certificates::rfc3339;
use crate::clients::home::home;
use crate::file::File;
use crate::registration::api::ApiClient;
use crate::registration::targets::Needs;

/// The labels of Durward's pods, as the chart sets them.
const PODS: &str = "app.kubernetes.io/name=durward,app.kubernetes.io/component=server";

/// Reads the metrics of all processes.
pub(in super::super) async fn read(file: &File, flags: &ClusterArgs) -> Result<AuditReport, Stop> {
    if flags.snapshot.is_some() {
        return Err(Problem::new("a snapshot has no metrics").next("leave out --snapshot").into());
    }
    let (control_planes, needs) = Needs::connect(file, flags).await?;
    let home = home(&control_planes.common_access().unwrap_or_default());
    let (mut report, guards) = (AuditReport::default(), Guards::of(Some(file)));
    if let Err(fault) = read_pods(file, &client(&home).await?, &mut report).await {
        let fix = format!(
            "use the kubeconfig of an administrator of the cluster in which Durward runs; or on Durward's machine: curl http://{}/metrics",
            file.server.metrics_bind_address
        );
        report.findings.push(unreadable(fault.text, &fix));
    }
    for target in needs.targets.iter().filter(|target| !target.native.is_empty()) {
        match client(&target.access).await?.page("/metrics").await {
            Ok(page) => count_policies(&page, target.label(), &guards, &mut report),
            Err(fault) => {
                let fix = format!("use another kubeconfig: {} auth can-i get /metrics", target.kubectl());
                report.findings.push(unreadable(fault.text, &fix));
            }
        }
    }
    Ok(report)
}

async fn read_pods(file: &File, client: &ApiClient, report: &mut AuditReport) -> Result<(), Fault> {
    let (namespace, port) = (&file.namespace, file.server.metrics_bind_address.port());
    let mut running = 0;
    for pod in client.pods(namespace, PODS).await? {
        let Some((name, from)) = pod.metadata.name.clone().zip(started(&pod)) else { continue };
        let page =
            client.page(&format!("/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy/metrics")).await?;
        count(&page, report);
        report.sources.push(Source { name: format!("pod {name}"), from, ..Source::default() });
        running += 1;
    }
    if running == 0 {
        let text = format!("no pod of Durward runs in the namespace {namespace}");
        return Err(Fault { kind: ApiError::NotFound, text });
    }
    Ok(())
}

/// Counts the denials in the metrics of a pod. A guard that would deny nothing enforces already, or found nothing.
pub(super) fn count(page: &str, report: &mut AuditReport) {
    let mut in_audit_mode = Vec::new();
    for (labels, count) in series(page, "durward_would_deny_total") {
        add(&mut report.would_deny, guard_of(label(labels, "guard")), CallGroup::default(), count);
        in_audit_mode.extend((count > 0).then(|| label(labels, "guard")));
    }
    let unknown = series(page, "durward_unknown_total");
    for (labels, count) in unknown.filter(|(labels, _)| in_audit_mode.contains(&label(labels, "guard"))) {
        let group = CallGroup { cause: label(labels, "cause").to_owned(), ..CallGroup::default() };
        add(&mut report.unchecked, guard_of(label(labels, "guard")), group, count);
    }
}

/// Counts the denials of native policies in the metrics of an API server.
pub(super) fn count_policies(page: &str, target: &str, guards: &Guards, report: &mut AuditReport) {
    let all = series(page, "apiserver_validating_admission_policy_check_total");
    for (labels, count) in all.filter(|(labels, _)| label(labels, "enforcement_action") == "audit") {
        let policy = label(labels, "policy").to_owned();
        let guard = guards.of_policy(&policy);
        add(&mut report.would_deny, guard, CallGroup { policy, ..CallGroup::default() }, count);
    }
    let start = series(page, "process_start_time_seconds").next();
    let from = start.and_then(|(_, seconds)| i64::try_from(seconds).ok()).map(rfc3339).unwrap_or_default();
    report.sources.push(Source { name: format!("API server ({target})"), from, ..Source::default() });
}

fn add(groups: &mut Groups, guard: Option<&'static str>, group: CallGroup, count: u64) {
    if let Some(guard) = guard.filter(|_| count > 0) {
        groups.add(CallGroup { guard, ..group }, Seen { count, ..Seen::default() });
    }
}

fn unreadable(what: String, fix: &str) -> Finding {
    Finding::new(None, "unreadable", what, "denials are missing below", fix)
}

/// Returns the start of a pod's container, if it runs.
fn started(pod: &Pod) -> Option<String> {
    let states = pod.status.as_ref()?.container_statuses.as_ref()?;
    let running = states.first()?.state.as_ref()?.running.as_ref()?;
    Some(running.started_at.as_ref()?.0.to_string())
}

/// Returns the labels and the value of each series with this name.
fn series<'p>(page: &'p str, name: &'p str) -> impl Iterator<Item = (&'p str, u64)> {
    page.lines().filter_map(move |line| {
        let (labels, value) = line.strip_prefix(name)?.rsplit_once(' ')?;
        let is_same = labels.is_empty() || labels.starts_with('{');
        // A value is a float, also that of a counter.
        let value: f64 = value.parse().ok().filter(|_| is_same)?;
        Some((labels, format!("{value:.0}").parse().ok()?))
    })
}

/// Returns the value of a label. The labels here have no escapes.
fn label<'p>(labels: &'p str, key: &str) -> &'p str {
    let mut pairs = labels.trim_matches(['{', '}']).split(',').filter_map(|pair| pair.split_once('='));
    pairs.find(|(name, _)| *name == key).map_or("", |(_, value)| value.trim_matches('"'))
}
