//! LXCFS on this node, look after look: the configuration says what is promised, the files are read, and what is seen is judged
//! with the look before it in mind. Whom it is told, and when, is left to those who look.
//!
//! Silence for once is no fault. A node that is busy beyond measure (images are unpacked, thirty pods start) lets a read wait
//! longer than [`WITHIN`](super::probe::WITHIN), and nothing of what pods have mounted depends on that, while pods fail for good
//! where a label or the devices are away for a moment. What is not there, dead or not LXCFS's will not get better by waiting.

use std::path::{Path, PathBuf};

use guards::lxcfs::OnNode;

use super::probe::{Prober, Seen, Sight};
use super::settings::Settings;

/// What a look says of the promise, given the one before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Finding {
    /// Every promised file is served.
    Well,
    /// All was well at the last look, and now some files were not answered for in time: it is as it was until the next look.
    FirstSilence(String),
    /// Some files were not answered for in time, and at the last look all was not well either. Nothing else is wrong.
    Silence(String),
    /// Something else than time is wrong.
    Ill(String),
}

impl Finding {
    fn of(sight: &Sight, on_node: &OnNode, was_well: bool) -> Self {
        let Some(why) = sight.why_ill(on_node) else { return Self::Well };
        let is_late = |&file| matches!(sight.of(file), Seen::Served | Seen::Silent);
        match (on_node.files.iter().all(is_late), was_well) {
            (true, true) => Self::FirstSilence(why),
            (true, false) => Self::Silence(why),
            (false, _) => Self::Ill(why),
        }
    }

    /// Whether nothing is wrong but time.
    pub(super) fn is_silence(&self) -> bool {
        matches!(self, Self::FirstSilence(_) | Self::Silence(_))
    }

    /// What counts of it: nothing where all is well, or is still taken to be.
    pub(super) fn fault(&self) -> Option<&str> {
        match self {
            Self::Well | Self::FirstSilence(_) => None,
            Self::Silence(why) | Self::Ill(why) => Some(why),
        }
    }
}

/// Eyes on what the configuration promises.
#[derive(Debug)]
pub(super) struct Watcher {
    proc: PathBuf,
    settings: Settings,
    prober: Prober,
    was_well: bool,
}

impl Watcher {
    /// `proc` tells what is mounted. Nothing is read yet.
    pub(super) fn new(proc: &Path, settings: Settings) -> Self {
        let prober = Prober::new(proc, &settings.on_node.root);
        Self { proc: proc.to_owned(), settings, prober, was_well: false }
    }

    /// What is promised, as of the last [`Watcher::refresh`].
    pub(super) fn on_node(&self) -> &OnNode {
        &self.settings.on_node
    }

    /// Takes over what the configuration says now. Whether that is something else than before, of which then nothing is known.
    pub(super) fn refresh(&mut self) -> bool {
        let is_new = self.settings.refresh();
        if is_new {
            self.prober = Prober::new(&self.proc, &self.settings.on_node.root);
            self.was_well = false;
        }
        is_new
    }

    /// Looks once, which takes [`WITHIN`](super::probe::WITHIN) at most.
    pub(super) async fn look(&mut self) -> (Sight, Finding) {
        let sight = self.prober.look().await;
        let finding = Finding::of(&sight, self.on_node(), self.was_well);
        self.was_well = finding == Finding::Well;
        if let Finding::FirstSilence(why) = &finding {
            tracing::debug!(why, "LXCFS did not answer in time for once; the next look counts");
        }
        (sight, finding)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;
    use std::future::Future;
    use std::pin::pin;
    use std::sync::mpsc;

    use futures_util::poll;
    use guards::lxcfs::File;
    use tempfile::TempDir;

    use super::super::probe::WITHIN;
    use super::super::probe::tests::{patient, root};
    use super::*;

    /// On a folder as [`root`] makes it; a pipe there is a file that does not answer.
    pub(in crate::lxcfs) fn watcher(root: &TempDir) -> Watcher {
        let config = root.path().join("durward.yaml");
        let guard = format!("  lxcfs: {{root: {}, nodeReadiness: prefer}}\n", root.path().display());
        fs::write(&config, format!("version: 1\nguards:\n{guard}")).unwrap();
        let settings = Settings::load(&config).unwrap();
        Watcher { prober: patient(root), ..Watcher::new(root.path(), settings) }
    }

    /// For tests with a paused clock: it does not run ahead of the threads that read, until what is returned is dropped.
    pub(in crate::lxcfs) fn hold_the_clock() -> mpsc::Sender<()> {
        let (hold, ended) = mpsc::channel();
        drop(tokio::task::spawn_blocking(move || ended.recv()));
        hold
    }

    /// Lets the time of so many looks pass while something is under way.
    pub(in crate::lxcfs) async fn late<T>(looks: usize, deed: impl Future<Output = T>) -> T {
        let mut deed = pin!(deed);
        for _ in 0..looks {
            assert!(poll!(&mut deed).is_pending());
            tokio::time::advance(WITHIN).await;
        }
        deed.await
    }

    /// All files are served but these.
    fn sight(others: &[(File, Seen)]) -> Sight {
        let seen = |file| others.iter().find(|(one, _)| *one == file).map_or(Seen::Served, |(_, seen)| *seen);
        Sight { files: File::ALL.into_iter().map(|file| (file, seen(file))).collect(), mount: None }
    }

    #[test]
    fn silence_counts_from_the_second_look_on_and_every_other_fault_at_once() {
        let on_node = OnNode::default();
        let silent = sight(&[(File::Stat, Seen::Silent), (File::Cpuinfo, Seen::Silent)]);
        let first = Finding::of(&silent, &on_node, true);
        assert!(matches!(first, Finding::FirstSilence(_)) && first.is_silence(), "{first:?}");
        assert_eq!(first.fault(), None);
        let second = Finding::of(&silent, &on_node, false);
        assert!(matches!(second, Finding::Silence(_)) && second.is_silence(), "{second:?}");
        assert!(second.fault().unwrap().contains("does not answer, and 1 more"), "{second:?}");
        for seen in
            [Seen::Missing, Seen::NotAFile, Seen::NotLxcfs, Seen::Dead, Seen::Garbage, Seen::Unreadable]
        {
            // Beside a file that is silent too, whichever of the two comes first.
            for (ill, silent) in [(File::Cpuinfo, File::Stat), (File::Stat, File::Cpuinfo)] {
                let found = Finding::of(&sight(&[(ill, seen), (silent, Seen::Silent)]), &on_node, true);
                assert!(matches!(found, Finding::Ill(_)) && !found.is_silence(), "{found:?}");
                assert!(found.fault().is_some());
            }
        }
    }

    #[test]
    fn files_that_are_not_promised_are_nobody_s_fault() {
        let on_node = OnNode { files: vec![File::Meminfo], ..OnNode::default() };
        let others = [(File::Stat, Seen::Dead), (File::Swaps, Seen::Silent)];
        assert_eq!(Finding::of(&sight(&others), &on_node, false), Finding::Well);
    }

    #[tokio::test]
    async fn a_configuration_that_has_changed_is_looked_at_as_if_nothing_were_known() {
        let root = root();
        let mut watcher = watcher(&root);
        assert_eq!(watcher.look().await.1, Finding::Well);
        assert!(watcher.was_well && !watcher.refresh());
        fs::write(root.path().join("durward.yaml"), "version: 1\nguards:\n  lxcfs: {root: /opt/lxcfs}\n")
            .unwrap();
        assert!(watcher.refresh() && !watcher.was_well);
        assert_eq!(watcher.on_node().root, "/opt/lxcfs");
    }
}
