//! The health of LXCFS on this node: whether it serves the files that the configuration promises to pods.
//!
//! A timeout counts from the second probe on. On an overloaded node (thirty pods start, images are unpacked) a read can take
//! longer than [`READ_TIMEOUT`](super::probe::READ_TIMEOUT), and the files of running pods still work. But pods fail for good if
//! the label or the devices are missing for a moment. Other problems do not disappear by waiting, so they count at once.

use std::path::{Path, PathBuf};
use std::time::Duration;

use lxcfs::NodeSettings;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::probe::{FileState, ProbeResult, Prober};
use super::settings::NodeConfig;

/// Flags of probes that only tests set.
#[derive(Debug, clap::Args)]
pub(crate) struct ProbeFlags {
    /// Directory with the table of mounts, for tests
    #[arg(long, value_name = "DIR", default_value = "/proc", hide = true)]
    pub(crate) proc: PathBuf,
    /// Milliseconds between two probes, for tests
    // The longest delay for a pod that waits for a ready node.
    #[arg(long, value_name = "NUMBER", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..), hide = true)]
    probe_interval_ms: u64,
}

impl ProbeFlags {
    /// Returns the ticks of the probes; the first one is due at once.
    pub(crate) fn ticks(&self) -> Interval {
        let mut ticks = interval(Duration::from_millis(self.probe_interval_ms));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    }
}

/// The result of a probe, given the one before. The texts describe the problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Health {
    /// Every configured file is served.
    Healthy,
    /// Reads timed out for the first time: the node still counts as healthy.
    FirstTimeout(String),
    /// Reads timed out, and the probe before found a problem too.
    Timeout(String),
    /// There is another problem than a timeout.
    Broken(String),
}

impl Health {
    fn of(result: &ProbeResult, settings: &NodeSettings, was_healthy: bool) -> Self {
        let Some(problem) = result.problem(settings) else { return Self::Healthy };
        let is_timeout = |&file| matches!(result.state(file), FileState::Served | FileState::Silent);
        match (settings.files.iter().all(is_timeout), was_healthy) {
            (true, true) => Self::FirstTimeout(problem),
            (true, false) => Self::Timeout(problem),
            (false, _) => Self::Broken(problem),
        }
    }

    /// Returns whether timeouts are the only problem.
    pub(crate) fn is_timeout(&self) -> bool {
        matches!(self, Self::FirstTimeout(_) | Self::Timeout(_))
    }

    /// Returns the problem that counts; none while the node counts as healthy.
    pub(crate) fn problem(&self) -> Option<&str> {
        match self {
            Self::Healthy | Self::FirstTimeout(_) => None,
            Self::Timeout(problem) | Self::Broken(problem) => Some(problem),
        }
    }
}

/// Probes LXCFS by the current configuration.
#[derive(Debug)]
pub(crate) struct HealthMonitor {
    proc: PathBuf,
    config: NodeConfig,
    prober: Prober,
    was_healthy: bool,
}

impl HealthMonitor {
    /// `proc` is the directory with the table of mounts. Reads nothing yet.
    pub(crate) fn new(proc: &Path, config: NodeConfig) -> Self {
        let prober = Prober::new(proc, &config.settings.root);
        Self { proc: proc.to_owned(), config, prober, was_healthy: false }
    }

    /// The settings as of the last [`refresh`](Self::refresh).
    pub(crate) fn settings(&self) -> &NodeSettings {
        &self.config.settings
    }

    /// Reads the configuration if it has changed. Returns whether it has; then nothing is known about the health.
    pub(crate) fn refresh(&mut self) -> bool {
        let is_new = self.config.refresh();
        if is_new {
            self.prober = Prober::new(&self.proc, &self.config.settings.root);
            self.was_healthy = false;
        }
        is_new
    }

    /// Probes the files once, within [`READ_TIMEOUT`](super::probe::READ_TIMEOUT).
    pub(crate) async fn probe(&mut self) -> (ProbeResult, Health) {
        let result = self.prober.probe().await;
        let health = Health::of(&result, self.settings(), self.was_healthy);
        self.was_healthy = health == Health::Healthy;
        if let Health::FirstTimeout(why) = &health {
            tracing::debug!(why, "LXCFS did not answer in time, retrying");
        }
        (result, health)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;
    use std::pin::pin;
    use std::sync::mpsc;

    use futures_util::poll;
    use lxcfs::LxcfsFile;
    use tempfile::TempDir;

    use super::super::probe::READ_TIMEOUT;
    use super::super::probe::tests::{blocking_prober, root};
    use super::*;

    /// Creates a monitor that blocks on files that do not answer.
    pub(crate) fn monitor(root: &TempDir) -> HealthMonitor {
        let config = root.path().join("durward.yaml");
        let guard = format!("  lxcfs: {{lxcfsPath: {}, nodeAffinity: preferred}}\n", root.path().display());
        fs::write(
            &config,
            format!("apiVersion: durward.dev/v1alpha1\nkind: Configuration\nguards:\n{guard}"),
        )
        .unwrap();
        let config = NodeConfig::load(&config).unwrap();
        HealthMonitor { prober: blocking_prober(root), ..HealthMonitor::new(root.path(), config) }
    }

    /// Keeps a paused clock from running ahead of the reader threads, until the returned sender is dropped.
    pub(crate) fn hold_clock() -> mpsc::Sender<()> {
        let (hold, ended) = mpsc::channel();
        drop(tokio::task::spawn_blocking(move || ended.recv()));
        hold
    }

    /// Awaits a future during which this number of probes times out.
    pub(crate) async fn after_timeouts<T>(timeouts: usize, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        for _ in 0..timeouts {
            assert!(poll!(&mut future).is_pending());
            tokio::time::advance(READ_TIMEOUT).await;
        }
        future.await
    }

    /// Creates a result in which all files are served except these.
    fn result(others: &[(LxcfsFile, FileState)]) -> ProbeResult {
        let state =
            |file| others.iter().find(|(one, _)| *one == file).map_or(FileState::Served, |(_, state)| *state);
        let files = LxcfsFile::ALL.into_iter().map(|file| (file, state(file))).collect();
        ProbeResult { files, mount: None }
    }

    #[test]
    fn a_timeout_counts_from_the_second_probe_and_other_problems_at_once() {
        let settings = NodeSettings::default();
        let silent = result(&[(LxcfsFile::Stat, FileState::Silent), (LxcfsFile::Cpuinfo, FileState::Silent)]);
        let first = Health::of(&silent, &settings, true);
        assert!(matches!(first, Health::FirstTimeout(_)) && first.is_timeout(), "{first:?}");
        assert_eq!(first.problem(), None);
        let second = Health::of(&silent, &settings, false);
        assert!(matches!(second, Health::Timeout(_)) && second.is_timeout(), "{second:?}");
        assert!(second.problem().unwrap().contains("does not answer, and 1 more"), "{second:?}");
        for state in [
            FileState::Missing,
            FileState::NotAFile,
            FileState::NotLxcfs,
            FileState::Dead,
            FileState::Garbage,
            FileState::Unreadable,
        ] {
            // Together with a timeout of an earlier or a later file.
            for (broken, silent) in
                [(LxcfsFile::Cpuinfo, LxcfsFile::Stat), (LxcfsFile::Stat, LxcfsFile::Cpuinfo)]
            {
                let result = result(&[(broken, state), (silent, FileState::Silent)]);
                let health = Health::of(&result, &settings, true);
                assert!(matches!(health, Health::Broken(_)) && !health.is_timeout(), "{health:?}");
                assert!(health.problem().is_some());
            }
        }
    }

    #[test]
    fn ignores_files_that_are_not_configured() {
        let settings = NodeSettings { files: vec![LxcfsFile::Meminfo], ..NodeSettings::default() };
        let others = [(LxcfsFile::Stat, FileState::Dead), (LxcfsFile::Swaps, FileState::Silent)];
        assert_eq!(Health::of(&result(&others), &settings, false), Health::Healthy);
    }

    #[tokio::test]
    async fn forgets_the_health_when_the_configuration_changes() {
        let root = root();
        let mut monitor = monitor(&root);
        assert_eq!(monitor.probe().await.1, Health::Healthy);
        assert!(monitor.was_healthy && !monitor.refresh());
        fs::write(
            root.path().join("durward.yaml"),
            "apiVersion: durward.dev/v1alpha1\nkind: Configuration\nguards:\n  lxcfs: {lxcfsPath: /opt/lxcfs}\n",
        )
        .unwrap();
        assert!(monitor.refresh() && !monitor.was_healthy);
        assert_eq!(monitor.settings().root, "/opt/lxcfs");
    }
}
