//! Replaces the plan while the server runs.
//!
//! The file and the files of policies are read on SIGHUP and every ten seconds, and compared by content. The kubelet changes a
//! mounted `ConfigMap` by swapping a symlink, which a watch of the file does not notice. If the new file or a policy is wrong, the
//! old plan stays, and the log, the metrics and `/readyz?verbose` report each problem. It is read again until it is valid. Settings
//! that need a restart are reported as well.

use std::io;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use admission::lock;
use config::Problem;
use logging::Handle;
use manifests::Policies;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use server::{Check, Checks, Metrics, PlanCell, supervise};
#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

use crate::clients::control_planes::ControlPlanes;
use crate::file::{ClusterSection, File, Manage, Purpose, ServerSection, read_text};
use crate::registration::webhooks::WebhookManager;
use crate::run::events::EventQueue;
use crate::run::log;
use crate::run::plan::plan;
use crate::run::policies::PolicyReport;

/// Poll interval. Kubelet updates a mounted `ConfigMap` within about a minute, so ten seconds more do not matter.
pub(crate) const POLL: Duration = Duration::from_secs(10);

/// The signal SIGHUP, which Windows doesn't have.
pub(crate) struct Hangup(#[cfg(unix)] Signal);

impl Hangup {
    /// Replaces the default action of the signal. Must be called in a runtime.
    pub(crate) fn register() -> io::Result<Self> {
        #[cfg(unix)]
        return Ok(Self(signal(SignalKind::hangup())?));
        #[cfg(not(unix))]
        Ok(Self())
    }

    /// Returns when the process received the signal.
    async fn received(&mut self) {
        #[cfg(unix)]
        self.0.recv().await;
        #[cfg(not(unix))]
        std::future::pending::<()>().await;
    }
}

/// The active plan and the file that it was built from.
pub(crate) struct Reload {
    /// The active file.
    file: File,
    /// The problems of the new file, if it was rejected.
    rejected: Option<Vec<Problem>>,
    /// The `server` section and the cluster at the start, which stay in effect.
    started: (ServerSection, ClusterSection),
    purpose: Purpose,
    generation: u64,
    cell: PlanCell,
    control_planes: Arc<ControlPlanes>,
    webhooks: Option<WebhookManager>,
    events: Option<EventQueue>,
    log: Option<Handle>,
    metrics: Metrics,
    check: Check,
    numbers: ReloadMetrics,
    policies: PolicyReport,
}

#[derive(Debug, Clone, Default)]
struct ReloadMetrics {
    refused: Counter,
    stale: Gauge<i64, AtomicI64>,
}

impl ReloadMetrics {
    fn register(&self, metrics: &Metrics) {
        let help = "Invalid new configuration files, which were rejected";
        metrics.register("config_refused", &[], help, self.refused.clone());
        let help = "1 while the configuration file differs from the active configuration";
        metrics.register("config_stale", &[], help, self.stale.clone());
    }
}

#[cfg(test)]
pub(crate) fn register_metrics(metrics: &Metrics) {
    ReloadMetrics::default().register(metrics);
}

/// The result of reading the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReloadResult {
    /// The file has not changed.
    Unchanged,
    /// A new plan is active.
    Swapped,
    /// The file is wrong and the old plan stays.
    Refused,
}

impl Reload {
    /// Starts with the active file as generation 1.
    pub(crate) fn new(
        file: File,
        purpose: Purpose,
        cell: PlanCell,
        control_planes: Arc<ControlPlanes>,
        metrics: Metrics,
        checks: &Checks,
    ) -> Self {
        let numbers = ReloadMetrics::default();
        numbers.register(&metrics);
        let check = checks.add("configuration");
        check.pass();
        let policies = PolicyReport::new(checks, &metrics);
        policies.publish(&file);
        let started = (file.server.clone(), file.cluster.clone());
        let (generation, webhooks, events, log) = (1, None, None, None);
        Self {
            file,
            rejected: None,
            started,
            purpose,
            generation,
            cell,
            control_planes,
            webhooks,
            events,
            log,
            metrics,
            check,
            numbers,
            policies,
        }
    }

    /// Passes each new file to the manager of webhook configurations.
    pub(crate) fn with_webhooks(self, webhooks: Option<WebhookManager>) -> Self {
        Self { webhooks, ..self }
    }

    /// Passes the denials of each new plan to the queue.
    pub(crate) fn with_events(self, events: EventQueue) -> Self {
        Self { events: Some(events), ..self }
    }

    /// Changes the log filter when the file's `log` changes.
    pub(crate) fn with_log(self, handle: Handle) -> Self {
        Self { log: Some(handle), ..self }
    }

    /// Reads the file on `hangup` and every `poll`, until the process ends.
    pub(crate) fn follow(
        self,
        hangup: Hangup,
        poll: Duration,
        metrics: Metrics,
    ) -> impl Future<Output = ()> + Send {
        let (reload, hangup) = (Arc::new(Mutex::new(self)), Arc::new(tokio::sync::Mutex::new(hangup)));
        supervise("configuration", metrics, move || {
            let (reload, hangup) = (Arc::clone(&reload), Arc::clone(&hangup));
            async move {
                let mut hangup = hangup.lock().await;
                let mut ticks = interval(poll);
                ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
                loop {
                    let asked = tokio::select! {
                        () = hangup.received() => true,
                        _ = ticks.tick() => false,
                    };
                    read_blocking(Arc::clone(&reload), asked).await;
                }
            }
        })
    }

    /// Reads the file once. The same problems are reported again only if `asked`.
    pub(crate) fn read(&mut self, asked: bool) -> ReloadResult {
        let text = read_text(&self.file.path);
        let have_policies_changed = self.file.policies().is_some_and(Policies::has_changed);
        if text.as_ref().is_ok_and(|text| *text == self.file.text) && !have_policies_changed {
            if self.rejected.is_none() {
                return ReloadResult::Unchanged;
            }
            // The active file is back after a rejected one, so there is nothing to build.
            return self.loaded();
        }
        let loaded = match &text {
            Ok(text) => File::from_text(&self.file.path, text.clone(), self.purpose),
            Err(problem) => Err(vec![problem.clone()]),
        };
        let next = self.generation + 1;
        // This thread can block: reviews use the old plan while another control plane is connected.
        let built = loaded.and_then(|file| {
            let connected = self.control_planes.connect_and_wait(&file);
            let built = connected
                .and_then(|()| plan(&file, next, &self.control_planes, &self.metrics, self.events.as_ref()));
            built.map(|plan| (file, plan)).map_err(|problem| vec![problem])
        });
        match built {
            Ok((file, plan)) => {
                self.replace_allowed_names(&file);
                self.log_restart_needed(&file);
                self.cell.swap(plan);
                self.control_planes.activate(&file);
                if let Some(webhooks) = &self.webhooks {
                    webhooks.configure(&file);
                }
                if let Some(handle) = self.log.as_ref().filter(|_| self.file.log != file.log) {
                    log::change(handle, &file.log);
                }
                self.generation = next;
                self.file = file;
                self.policies.publish(&self.file);
                self.loaded()
            }
            Err(problems) => self.refuse(problems, asked),
        }
    }

    fn loaded(&mut self) -> ReloadResult {
        self.rejected = None;
        self.check.pass();
        self.numbers.stale.set(0);
        let guards: Vec<_> = self.file.guards.iter().map(|guard| guard.kind.name()).collect();
        tracing::info!(generation = self.generation, guards = guards.join(","), "configuration loaded");
        ReloadResult::Swapped
    }

    /// Keeps the old plan, and reports problems that are new or that the operator asked for.
    fn refuse(&mut self, problems: Vec<Problem>, asked: bool) -> ReloadResult {
        let is_known = self.rejected.as_ref() == Some(&problems);
        let problems = &*self.rejected.insert(problems);
        if is_known && !asked {
            return ReloadResult::Unchanged;
        }
        for problem in problems {
            tracing::error!(generation = self.generation, %problem, "the new configuration is invalid; the old one stays active");
        }
        self.numbers.refused.inc();
        self.numbers.stale.set(1);
        let more = match problems.len() {
            0 | 1 => String::new(),
            many => format!(" (and {} more, see the log)", many - 1),
        };
        let first = problems.first().map(ToString::to_string).unwrap_or_default();
        let first = first.lines().next().unwrap_or_default();
        self.check.note(format!(
            "generation {} stays active; the new file is invalid: {first}{more}",
            self.generation
        ));
        ReloadResult::Refused
    }

    /// Replaces the names of client certificates, the only part of `server.tls` that needs no restart.
    fn replace_allowed_names(&self, file: &File) {
        let (used, new) = (&self.started.0.tls.client_auth, &file.server.tls.client_auth);
        if let (Some(used), Some(new)) = (used.allowed_names(), new.allowed_names())
            && used != new
        {
            used.replace(new.current());
            tracing::info!(names = new.current().join(","), "server.tls.clientAuth.allowedNames changed");
        }
    }

    /// Reports changed settings that need a restart.
    fn log_restart_needed(&self, file: &File) {
        let ((was, cluster), is) = (&self.started, &file.server);
        for (key, same) in [
            ("server.bindAddress", was.bind_address == is.bind_address),
            ("server.metricsBindAddress", was.metrics_bind_address == is.metrics_bind_address),
            ("server.tls", was.tls == is.tls),
            ("server.limits", was.limits == is.limits),
            ("server.shutdown", was.shutdown == is.shutdown),
            ("kubeconfig, context", *cluster == file.cluster),
        ] {
            if !same {
                tracing::warn!(key, "changed; restart Durward to apply it");
            }
        }
        let asked = |file: &File| {
            let all = file.guards.iter();
            all.map(|guard| (guard.kind.name(), guard.configured.webhooks(), guard.configured.policies()))
                .collect::<Vec<_>>()
        };
        if asked(&self.file) != asked(file) || self.file.server.webhook_address != is.webhook_address {
            match is.manage_webhooks {
                Manage::All => tracing::info!("the webhook rules or policies changed; Durward writes them"),
                Manage::None | Manage::CaBundle => {
                    tracing::warn!(
                        "the webhook rules or policies changed; apply the output of `durward manifests` again"
                    );
                }
            }
        }
    }
}

/// Reads once on a blocking thread, because a mounted file system can hang.
async fn read_blocking(reload: Arc<Mutex<Reload>>, asked: bool) {
    let result = tokio::task::spawn_blocking(move || {
        let mut reload = lock(&reload);
        if reload.read(asked) == ReloadResult::Unchanged && asked {
            tracing::info!(generation = reload.generation, "configuration unchanged");
        }
    });
    if let Err(error) = result.await {
        tracing::error!(reason = %error, "reading the configuration failed; the old one stays active");
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use cluster::Clients;
    use cluster::live::Access;

    use super::*;

    const GOOD: &str = "apiVersion: durward.dev/v1alpha1\nkind: Configuration\nguards: {lxcfs: {}}\n";
    const OTHER: &str = "apiVersion: durward.dev/v1alpha1\nkind: Configuration\nguards: {lxcfs: {includeInitContainers: true}}\n";

    fn reload(path: &Path) -> (Reload, PlanCell, Checks) {
        let file = File::load(path, Purpose::Guards).unwrap();
        let control_planes = Arc::new(ControlPlanes::snapshot(Clients::offline()));
        let (metrics, checks) = (Metrics::new("0"), Checks::new());
        let cell = PlanCell::new(plan(&file, 1, &control_planes, &metrics, None).unwrap());
        (Reload::new(file, Purpose::Guards, cell.clone(), control_planes, metrics, &checks), cell, checks)
    }

    #[test]
    fn follows_the_swap_of_a_mounted_config_map() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for (version, text) in [("..1", GOOD), ("..2", OTHER)] {
            fs::create_dir(at(version)).unwrap();
            fs::write(at(version).join("durward.yaml"), text).unwrap();
        }
        symlink("..1", at("..data")).unwrap();
        symlink("..data/durward.yaml", at("durward.yaml")).unwrap();
        let (mut reload, cell, _) = reload(&at("durward.yaml"));
        assert_eq!(reload.read(false), ReloadResult::Unchanged);
        // Swaps a symlink, as kubelet does.
        symlink("..2", at("..data_tmp")).unwrap();
        fs::rename(at("..data_tmp"), at("..data")).unwrap();
        assert_eq!(reload.read(false), ReloadResult::Swapped);
        assert_eq!(cell.current().generation(), 2);
        assert_eq!(reload.read(false), ReloadResult::Unchanged);
    }

    #[tokio::test]
    async fn reloads_a_changed_file_without_a_signal() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("durward.yaml");
        fs::write(&path, GOOD).unwrap();
        let (reload, cell, _) = reload(&path);
        let hangup = Hangup::register().unwrap();
        let following = reload.follow(hangup, Duration::from_millis(10), Metrics::new("t"));
        let found = async {
            fs::write(&path, OTHER).unwrap();
            while cell.current().generation() != 2 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            () = following => {}
            found = tokio::time::timeout(Duration::from_secs(20), found) => found.unwrap(),
        }
        assert_eq!(cell.current().generation(), 2);
    }

    #[tokio::test]
    async fn connects_to_a_new_control_plane_before_a_reload_takes_effect() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("durward.yaml");
        fs::write(&path, GOOD).unwrap();
        let file = File::load(&path, Purpose::Guards).unwrap();
        let control_planes = Arc::new(ControlPlanes::with_access(Clients::offline(), Access::default()));
        let (metrics, checks) = (Metrics::new("0"), Checks::new());
        let cell = PlanCell::new(plan(&file, 1, &control_planes, &metrics, None).unwrap());
        let reload =
            Reload::new(file, Purpose::Guards, cell.clone(), Arc::clone(&control_planes), metrics, &checks);
        let reload = Arc::new(Mutex::new(reload));
        let karmada = "apiVersion: durward.dev/v1alpha1\nkind: Configuration\nguards: {lxcfs: {}, deletion: {fleet: {karmada: {kubeconfig: k}}}}\n";
        fs::write(&path, karmada).unwrap();
        read_blocking(Arc::clone(&reload), false).await;
        assert_eq!(cell.current().generation(), 1);
        let text = checks.readiness().text;
        assert!(
            text.contains("generation 1 stays active")
                && text.contains("control plane of the guard deletion"),
            "{text}"
        );

        let kubeconfig = "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
            clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n\
            contexts: [{name: a, context: {cluster: c, user: ''}}]\n";
        fs::write(dir.path().join("k"), kubeconfig).unwrap();
        read_blocking(Arc::clone(&reload), true).await;
        assert_eq!(cell.current().generation(), 2, "{}", checks.readiness().text);
    }

    /// A policy of this name with its binding.
    fn policy(name: &str) -> String {
        let object = |kind: &str, spec: &str| {
            format!(
                "---\napiVersion: admissionregistration.k8s.io/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n"
            )
        };
        object(
            "ValidatingAdmissionPolicy",
            "matchConstraints: {resourceRules: [{apiGroups: [a], apiVersions: [v1], operations: [CREATE], resources: [b]}]}, validations: [{expression: 'true'}]",
        ) + &object(
            "ValidatingAdmissionPolicyBinding",
            &format!("policyName: {name}, validationActions: [Deny]"),
        )
    }

    #[test]
    fn a_reload_takes_a_whole_set_of_policies_or_keeps_the_old_one() {
        let dir = tempfile::tempdir().unwrap();
        let (path, policies) = (dir.path().join("durward.yaml"), dir.path().join("policies"));
        fs::create_dir(&policies).unwrap();
        fs::write(policies.join("p.yaml"), policy("p")).unwrap();
        let section = "apiVersion: durward.dev/v1alpha1\nkind: Configuration\nguards: {resources: {policies: [policies]}}\n";
        fs::write(&path, section).unwrap();
        let (mut reload, cell, checks) = reload(&path);
        let line = || checks.readiness_of("policies").unwrap().text;
        let series = |reload: &Reload| {
            let text = reload.metrics.encode();
            text.lines()
                .filter(|line| line.starts_with("durward_policies{"))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let (first, count) = (line(), series(&reload));
        assert!(first.starts_with("[!]policies: set ") && first.ends_with(": 1 policy\n"), "{first}");
        assert!(count.len() == 1 && count[0].ends_with(" 1"), "{count:?}");
        assert_eq!(reload.read(false), ReloadResult::Unchanged);

        // One file of the new set is invalid, so none of it is used.
        fs::write(policies.join("q.yaml"), policy("q")).unwrap();
        fs::write(policies.join("r.yaml"), policy("r").replace("'true'", "'tru'")).unwrap();
        assert_eq!(reload.read(false), ReloadResult::Refused);
        assert_eq!(reload.read(false), ReloadResult::Unchanged, "the same problem is reported once");
        assert_eq!((line(), series(&reload), cell.current().generation()), (first.clone(), count.clone(), 1));
        let text = checks.readiness().text;
        assert!(text.contains("generation 1 stays active") && text.contains("r.yaml:"), "{text}");
        assert_eq!((reload.numbers.refused.get(), reload.numbers.stale.get()), (1, 1));

        // The set is valid now, although the configuration file is the same.
        fs::write(policies.join("r.yaml"), policy("r")).unwrap();
        assert_eq!(reload.read(false), ReloadResult::Swapped);
        assert_eq!((cell.current().generation(), reload.numbers.stale.get()), (2, 0));
        assert!(line().ends_with(": 3 policies\n") && line() != first, "{}", line());
        assert_eq!(series(&reload).len(), 1);

        // A directory that vanishes keeps the set in force, and the old files are no change.
        fs::rename(&policies, dir.path().join("other")).unwrap();
        assert_eq!(reload.read(false), ReloadResult::Refused);
        assert!(checks.readiness().text.contains("cannot be read"));
        fs::rename(dir.path().join("other"), &policies).unwrap();
        assert_eq!(reload.read(false), ReloadResult::Swapped);
        assert_eq!((cell.current().generation(), reload.numbers.stale.get()), (2, 0));
    }

    #[test]
    fn checks_the_file_within_ten_seconds() {
        assert!(POLL <= Duration::from_secs(10));
    }

    #[test]
    fn reports_a_rejected_file_once_and_again_on_request() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("durward.yaml");
        fs::write(&path, GOOD).unwrap();
        let (mut reload, cell, checks) = reload(&path);
        fs::write(&path, "apiVersion: durward.dev/v1alpha1\nkind: Configuration\nguards: {lxcf: {}}\n")
            .unwrap();
        assert_eq!(reload.read(false), ReloadResult::Refused);
        assert_eq!(reload.read(false), ReloadResult::Unchanged);
        assert_eq!(reload.read(true), ReloadResult::Refused);
        assert_eq!((reload.numbers.refused.get(), reload.numbers.stale.get()), (2, 1));
        assert!(checks.readiness().ready);
        assert!(checks.readiness().text.contains("generation 1 stays active"));

        fs::remove_file(&path).unwrap();
        assert_eq!(reload.read(false), ReloadResult::Refused);
        assert!(checks.readiness().text.contains("cannot be read"));
        assert_eq!(reload.read(false), ReloadResult::Unchanged);

        fs::write(&path, GOOD).unwrap();
        assert_eq!(reload.read(false), ReloadResult::Swapped);
        assert_eq!((reload.numbers.stale.get(), cell.current().generation()), (0, 1));
    }
}
