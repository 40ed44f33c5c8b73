//! Assembles the server: clients, guards, certificates, webhook configurations and the tasks around them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ca::pem::Pem;
use ca::{Registrations, SelfManaged, Store};
use cluster::Readiness;
use cluster::fleet::ClusterHealth;
use config::Problem;
use console::exit::{Exit, Stop};
use console::input;
use logging::Handle;
use server::{
    Addresses, BindError, Bound, CertificateSource, Checks, IssuedCertificates, Metrics, PlanCell, Server,
    ServerOptions, Settings, Shutdown, Stopped, supervise,
};
use tokio::task::JoinSet;

use super::VERSION;
use super::events;
use super::expiry::ExpiryReport;
use super::member_health::MemberHealthReport;
use super::plan;
use super::reload::{self, Hangup, Reload};
use crate::args::{ClusterArgs, ServerArgs};
use crate::certificates::{is_for, server_name};
use crate::clients::control_planes::ControlPlanes;
use crate::clients::{connect, home};
use crate::file::{File, Manage, Purpose};
use crate::registration::self_managed::{self, NoRegistrations};
use crate::registration::webhooks::{CaSource, WebhookManager};

/// Interval at which the state of the clients is copied to `/readyz`.
const INTERVAL: Duration = Duration::from_secs(1);

/// Starts and runs the server. Signal handlers are installed first, because a credential plugin can block the start for long.
pub(crate) async fn start(
    (server, cluster): (&ServerArgs, &ClusterArgs),
    purpose: Purpose,
    file: File,
    log: Handle,
) -> Result<Exit, Stop> {
    let uncaught =
        |error: io::Error| Stop::fault(Problem::new("cannot handle signals").why(error.to_string()));
    let mut shutdown = Shutdown::on_signals().map_err(uncaught)?;
    // A SIGHUP during the start is handled after it by reading the file again.
    let hangup = Hangup::register().map_err(uncaught)?;
    // A credential plugin blocks its thread, so this runs in a task of its own.
    let flags = cluster.clone();
    let opening = tokio::spawn(async move { (connect::open(&flags, &file).await, file) });
    let (control_planes, file) = tokio::select! {
        biased;
        () = shutdown.requested() => {
            tracing::info!("stopped during startup");
            return Ok(Exit::Done);
        }
        opened = opening => opened
            .map_err(|error| Stop::fault(Problem::new("cannot connect to the cluster").why(error.to_string())))?,
    };
    let control_planes = Arc::new(control_planes?);
    let (metrics, checks) = (Metrics::new(VERSION), Checks::new());
    let (events, event_task) = events::queue(&metrics);
    let cell = PlanCell::new(plan::plan(&file, 1, &control_planes, &metrics, Some(&events))?);
    let (store, ca) = authority(&file, server, cluster).await?;
    let webhooks = manage_webhooks(&file, ca, &control_planes, &checks, &metrics);
    let self_managed = store.and_then(|store| self_managed(&file, store, webhooks.as_ref(), &metrics));
    let (task, issued) = self_managed.unzip();
    let options = plan::options(&file.server, server, issued)?;
    warn_of_names(&file, &options);
    let settings = Settings::new(options).map_err(|error| refused(&error))?;
    let bound = Server::bind(settings, cell.clone(), metrics.clone(), checks.clone())
        .map_err(|error| refused(&error))?;
    control_planes.activate(&file);
    let reload = Reload::new(file, purpose, cell, Arc::clone(&control_planes), metrics.clone(), &checks)
        .with_webhooks(webhooks.clone())
        .with_events(events)
        .with_log(log);
    // All tasks end when the set is dropped.
    let mut tasks = JoinSet::new();
    if let Some(webhooks) = webhooks {
        tasks.spawn(webhooks.run(metrics.clone()));
    }
    if let Some(task) = task.map(Arc::new) {
        tasks.spawn(supervise("ca", metrics.clone(), move || {
            let task = Arc::clone(&task);
            async move { task.run().await }
        }));
    }
    let (expiry, planes) = (Arc::new(ExpiryReport::new(&metrics)), Arc::clone(&control_planes));
    tasks.spawn(supervise("expiry", metrics.clone(), move || Arc::clone(&expiry).run(Arc::clone(&planes))));
    tasks.spawn(supervise("events", metrics.clone(), move || Arc::clone(&event_task).run()));
    tasks.spawn(reload.follow(hangup, reload::POLL, metrics.clone()));
    let read_state = move || (control_planes.readiness(), control_planes.health());
    tasks.spawn(follow_clients(read_state, checks, metrics));
    Ok(serve(bound, shutdown).await)
}

/// Returns the Secret of self-managed certificates, if the file has them, and the source of the caBundle.
async fn authority(
    file: &File,
    server: &ServerArgs,
    cluster: &ClusterArgs,
) -> Result<(Option<Arc<dyn Store>>, CaSource), Problem> {
    let Some(tls) = &file.server.tls.self_managed else {
        return Ok((None, CaSource::of(file, server.tls_cert.as_ref())));
    };
    let store = self_managed::store(file, tls, &connect::access(cluster, &file.cluster)).await?;
    let ca = CaSource::SelfManaged(SelfManaged::bundle(Arc::clone(&store)));
    Ok((Some(store), ca))
}

/// Creates the task that keeps self-managed certificates.
fn self_managed(
    file: &File,
    store: Arc<dyn Store>,
    webhooks: Option<&WebhookManager>,
    metrics: &Metrics,
) -> Option<(SelfManaged, IssuedCertificates)> {
    let tls = file.server.tls.self_managed.as_ref()?;
    let registrations: Arc<dyn Registrations> = match webhooks {
        Some(webhooks) => Arc::new(webhooks.clone()),
        None => Arc::new(NoRegistrations),
    };
    let names = self_managed::names(&file.server.webhook_address);
    Some(SelfManaged::new(names, tls.lifetimes, store, registrations, metrics))
}

/// Creates the manager of the webhook configurations. A snapshot has none.
fn manage_webhooks(
    file: &File,
    ca: CaSource,
    control_planes: &Arc<ControlPlanes>,
    checks: &Checks,
    metrics: &Metrics,
) -> Option<WebhookManager> {
    let manager = control_planes.common_access().and_then(|common| {
        let home = home::home(&common);
        WebhookManager::new(file, control_planes, home, ca, (checks.clone(), metrics))
    });
    if manager.is_none() && file.server.manage_webhooks != Manage::None {
        tracing::warn!("a snapshot has no API server, so webhook configurations are not managed");
    }
    manager
}

/// Warns if the certificate lacks the name that the API server calls.
fn warn_of_names(file: &File, options: &ServerOptions) {
    let CertificateSource::Files(files) = &options.tls.certificate else { return };
    let name = file.server.webhook_address.called();
    // Binding the server reports unreadable files.
    let Some(pem) = input::bytes(&files.cert, input::SMALL).ok().and_then(|text| Pem::read("", &text).ok())
    else {
        return;
    };
    let (Some(leaf), Some(called)) = (pem.certificates.first(), server_name(&name)) else { return };
    if !is_for(leaf, &called) {
        tracing::warn!(name, "the certificate is not valid for the name that the API server calls");
    }
}

/// Maps a failed start to an exit code: 2 for bad configuration, 1 for a fault of the system.
pub(crate) fn refused(error: &BindError) -> Stop {
    let problem = Problem::new(error.what()).why(error.why()).next(error.next());
    match error {
        BindError::Address { .. } => Stop::fault(problem),
        _ => problem.into(),
    }
}

async fn serve(bound: Bound, shutdown: Shutdown) -> Exit {
    let Addresses { webhook, metrics } = bound.addresses();
    // Scripts read these lines, because port 0 is replaced by a free port.
    tracing::info!(target: "durward::serve", listener = "webhook", address = %webhook, version = VERSION, "listening");
    tracing::info!(target: "durward::serve", listener = "metrics", address = %metrics, "listening");
    match bound.serve(shutdown).await {
        Stopped::Clean => {
            tracing::info!("stopped; all requests were answered");
            Exit::Done
        }
        Stopped::CutOff { connections } => {
            tracing::error!(
                connections,
                "stopped; busy connections were closed after server.shutdown.timeout"
            );
            Exit::No
        }
        Stopped::Aborted => {
            tracing::error!("stopped at once by a second signal");
            Exit::No
        }
    }
}

/// Updates `/readyz` and metrics from the state of the clients. The first update happens before this returns, so that no probe
/// finds a server ready too early.
fn follow_clients(
    read_state: impl Fn() -> (Vec<Readiness>, Vec<ClusterHealth>) + Send + Sync + 'static,
    checks: Checks,
    metrics: Metrics,
) -> impl Future<Output = ()> + Send {
    let read_state = Arc::new(read_state);
    let was_ready = Arc::new(AtomicBool::new(publish_readiness(&read_state().0, &checks, false)));
    let report = Arc::new(MemberHealthReport::new(checks.clone(), &metrics));
    supervise("clusters", metrics, move || {
        let (read_state, checks, was_ready) =
            (Arc::clone(&read_state), checks.clone(), Arc::clone(&was_ready));
        let report = Arc::clone(&report);
        async move {
            let mut ticks = tokio::time::interval(INTERVAL);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
            loop {
                ticks.tick().await;
                let (readiness, health) = read_state();
                let is_ready = publish_readiness(&readiness, &checks, was_ready.load(Ordering::Relaxed));
                was_ready.store(is_ready, Ordering::Relaxed);
                report.publish(&health);
            }
        }
    })
}

/// Writes the state of watches to `/readyz`, and returns whether all of them have been read once. Before that the server is
/// unready. Afterwards it stays ready, because every replica reads the same API server. A watch that a reload adds does not
/// make the server unready either.
fn publish_readiness(all: &[Readiness], checks: &Checks, was_ready: bool) -> bool {
    for one in all {
        let check = checks.add(format!("cache-{}", one.name));
        match (one.ok, was_ready) {
            (true, _) => check.note(&one.reason),
            (false, true) => check.note(format!("{} (added while serving)", one.reason)),
            (false, false) => check.fail(&one.reason),
        }
    }
    let is_ready = was_ready || all.iter().all(|one| one.ok);
    // Guards without watches send a request for each review, so there is no cache to log.
    if is_ready && !was_ready && !all.is_empty() {
        tracing::info!("all watch caches are filled");
    }
    is_ready
}

/// Describes every metric of a server, for the reference page.
#[cfg(test)]
pub(crate) fn metrics_reference() -> Vec<server::MetricInfo> {
    let metrics = Metrics::new(VERSION);
    reload::register_metrics(&metrics);
    drop(events::queue(&metrics));
    super::policies::PolicyReport::new(&Checks::new(), &metrics);
    ExpiryReport::new(&metrics);
    crate::registration::webhooks::register_metrics(&metrics);
    MemberHealthReport::new(Checks::new(), &metrics);
    SelfManaged::register_metrics(&metrics);
    metrics.reference()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    fn namespaces(ok: bool) -> Vec<Readiness> {
        vec![Readiness { name: "namespaces".to_owned(), ok, reason: "as reported".to_owned() }]
    }

    #[test]
    fn every_metric_is_described_once() {
        let reference = metrics_reference();
        let names: std::collections::BTreeSet<_> = reference.iter().map(|info| &info.name).collect();
        assert_eq!(names.len(), reference.len());
        for name in
            ["durward_reviews_total", "durward_config_stale", "durward_clusters", "durward_build_info"]
        {
            assert!(reference.iter().any(|info| info.name == name), "{name}");
        }
    }

    #[test]
    fn alert_rules_and_dashboard_name_metrics_that_exist() {
        let reference = metrics_reference();
        let rules = include_str!("../../../../../charts/durward/alerts/durward.yaml");
        let dashboard = include_str!("../../../../../charts/durward/dashboards/durward.json");
        for (text, least) in [(rules, 11), (dashboard, 12)] {
            let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
            let words = words.map(|word| word.trim_end_matches("_bucket"));
            let names: std::collections::BTreeSet<_> =
                words.filter(|word| word.starts_with("durward_")).collect();
            assert!(names.len() >= least, "{names:?}");
            for name in names {
                assert!(reference.iter().any(|info| info.name == name), "{name}");
            }
        }
    }

    #[test]
    fn is_unready_until_the_watches_were_read() {
        let checks = Checks::new();
        let never_polled =
            follow_clients(|| (namespaces(false), Vec::new()), checks.clone(), Metrics::new("t"));
        assert!(!checks.readiness().ready, "{}", checks.readiness().text);
        drop(never_polled);
    }

    #[tokio::test]
    async fn continues_after_a_panic() {
        let (checks, metrics) = (Checks::new(), Metrics::new("t"));
        let reads = AtomicUsize::new(0);
        let panics_once = move || {
            let read_state = reads.fetch_add(1, Ordering::Relaxed);
            assert_ne!(read_state, 1, "this read fails");
            (namespaces(read_state > 1), Vec::new())
        };
        let following = follow_clients(panics_once, checks.clone(), metrics.clone());
        let ready = async {
            while !checks.readiness().ready {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            () = following => {}
            result = tokio::time::timeout(Duration::from_secs(20), ready) => result.unwrap(),
        }
        assert!(metrics.encode().contains("durward_tasks_restarted_total{task=\"clusters\"} 1"));
    }

    #[test]
    fn stays_ready_if_a_reload_adds_watches() {
        let checks = Checks::new();
        assert!(!publish_readiness(&namespaces(false), &checks, false));
        assert!(publish_readiness(&namespaces(true), &checks, false));
        assert!(checks.readiness().ready);
        assert!(publish_readiness(&namespaces(false), &checks, true));
        assert!(checks.readiness().ready);
        assert!(
            checks.readiness().text.contains("as reported (added while serving)"),
            "{}",
            checks.readiness().text
        );
    }
}
