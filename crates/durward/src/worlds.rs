//! The worlds of one process: the one that every guard looks at, and one for each control plane that a guard names for itself.
//!
//! Opened once for each way to an API server and kept over reloads; a file that names another one connects to it before its plan
//! is put in force, beside the reviews that go on meanwhile.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cluster::fleet::{ClusterHealth, Fleet, ProbeTargets};
use cluster::live::{Access, Live};
use cluster::{Clients, Readiness};
use config::Problem;
use tokio::runtime::Handle;

use crate::file::{File, Guarded};
use crate::input;

/// The control planes that the guards of this process read.
pub(crate) struct Worlds {
    /// Clients of every guard that names no control plane of its own.
    common: Clients,
    /// The common control plane, if it is live.
    live: Option<Arc<Live>>,
    /// Readiness of the common clients if they are not live.
    readiness: Vec<Readiness>,
    /// How to connect to others. `None` if the common clients stand for every control plane.
    way: Option<Way>,
    others: Mutex<Vec<Other>>,
    /// Control planes whose clusters are probed.
    probed: Mutex<Vec<Arc<Live>>>,
}

struct Way {
    access: Access,
    runtime: Handle,
}

/// A control plane of one guard.
struct Other {
    access: Access,
    live: Arc<Live>,
}

impl Worlds {
    /// The same clients for all guards: a snapshot holds every cluster.
    pub(crate) fn only(common: Clients) -> Self {
        Self {
            common,
            live: None,
            readiness: Vec::new(),
            way: None,
            others: Mutex::default(),
            probed: Mutex::default(),
        }
    }

    /// These clients, which `access` leads to. Must be called within the runtime in which other control planes are connected.
    pub(crate) fn beside(common: Clients, access: Access) -> Self {
        Self { way: Some(Way { access, runtime: Handle::current() }), ..Self::only(common) }
    }

    /// The same for a live control plane.
    pub(crate) fn live(live: Arc<Live>, access: Access) -> Self {
        Self { live: Some(Arc::clone(&live)), ..Self::beside(Clients::live(&live), access) }
    }

    /// Sets the readiness of common clients that are not live.
    pub(crate) fn with_readiness(self, readiness: Vec<Readiness>) -> Self {
        Self { readiness, ..self }
    }

    /// Connects to what the guards of a file look at and is not connected yet.
    pub(crate) async fn connect(&self, file: &File) -> Result<(), Problem> {
        for (name, access) in self.missing(file) {
            let named = |problem: Problem| {
                let what = format!("what the guard {name} looks at: {}", problem.what);
                Problem { what, ..problem }
            };
            input::look_at_kubeconfig(access.kubeconfig.as_deref()).map_err(named)?;
            let live = Live::connect(&access).await.map_err(named)?;
            tracing::info!(guard = name, cluster = live.server(), "this guard looks at a cluster of its own");
            self.lock().push(Other { access, live: Arc::new(live) });
        }
        Ok(())
    }

    /// The same on a thread that may wait.
    pub(crate) fn connect_and_wait(&self, file: &File) -> Result<(), Problem> {
        match &self.way {
            Some(way) if !self.missing(file).is_empty() => way.runtime.block_on(self.connect(file)),
            _ => Ok(()),
        }
    }

    /// The clients of a guard.
    pub(crate) fn of(&self, guard: &Guarded) -> Result<Clients, Problem> {
        match self.own(guard) {
            None => Ok(self.common.clone()),
            Some(access) => self.other(&access).map(|live| Clients::live(&live)).ok_or_else(|| {
                let problem = Problem::new(format!("the guard {}", guard.kind.name()));
                problem.why("its control plane is not connected")
            }),
        }
    }

    /// Starts the watches of a guard, if its control plane is live.
    pub(crate) fn watch(&self, guard: &Guarded) {
        let Some(live) = self.live_of(guard) else { return };
        for resource in guard.configured.requirements().watches {
            live.watch(&resource);
        }
    }

    fn live_of(&self, guard: &Guarded) -> Option<Arc<Live>> {
        self.own(guard).map_or_else(|| self.live.clone(), |access| self.other(&access))
    }

    fn other(&self, access: &Access) -> Option<Arc<Live>> {
        self.lock().iter().find(|other| other.access == *access).map(|other| Arc::clone(&other.live))
    }

    /// Puts a file in force: probes the clusters of its guards and no others, and drops control planes that no guard uses.
    pub(crate) fn in_force(&self, file: &File) {
        let used: Vec<Access> = file.guards.iter().filter_map(|guard| self.own(guard)).collect();
        self.lock().retain(|other| used.contains(&other.access));
        let mut probed: Vec<Arc<Live>> = Vec::new();
        for guard in &file.guards {
            if let (Some(targets), Some(live)) = (guard.configured.requirements().probes, self.live_of(guard))
            {
                live.start_probes(targets);
                probed.push(live);
            }
        }
        let before = std::mem::replace(&mut *guarded(&self.probed), probed.clone());
        for live in before.iter().filter(|old| !probed.iter().any(|new| Arc::ptr_eq(old, new))) {
            live.start_probes(ProbeTargets { fleet: Fleet::None, resources: Vec::new() });
        }
    }

    /// The results of the last probes, or `None` if no guard asks for probes.
    pub(crate) fn health(&self) -> Option<Vec<ClusterHealth>> {
        let probed = guarded(&self.probed);
        (!probed.is_empty()).then(|| probed.iter().flat_map(|live| live.health()).collect())
    }

    /// A line for each resource that is in a cache or in the snapshot.
    pub(crate) fn readiness(&self) -> Vec<Readiness> {
        let others = self.lock().iter().map(|other| Arc::clone(&other.live)).collect::<Vec<_>>();
        let live = self.live.iter().chain(&others).flat_map(|live| live.readiness());
        self.readiness.iter().cloned().chain(live).collect()
    }

    /// The way of a guard to a control plane that is not the common one. Without a kubeconfig it is another context of the
    /// common one's.
    fn own(&self, guard: &Guarded) -> Option<Access> {
        let (Some(way), Some(own)) = (&self.way, &guard.access) else { return None };
        let access = match &own.kubeconfig {
            Some(_) => own.clone(),
            None => Access { context: own.context.clone(), ..way.access.clone() },
        };
        (access != way.access).then_some(access)
    }

    fn missing<'f>(&self, file: &'f File) -> Vec<(&'f str, Access)> {
        let others = self.lock();
        let named = file.guards.iter().filter_map(|guard| Some((guard.kind.name(), self.own(guard)?)));
        named.filter(|(_, access)| !others.iter().any(|other| other.access == *access)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Other>> {
        guarded(&self.others)
    }
}

fn guarded<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use cluster::{Offline, Reader};

    use super::*;
    use crate::file::Purpose;

    const KUBECONFIG: &str = "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
        clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n\
        contexts: [{name: a, context: {cluster: c, user: ''}}, {name: b, context: {cluster: c, user: ''}}]\n";

    fn file(folder: &Path, karmada: &str) -> File {
        let text =
            format!("version: 1\nguards: {{lxcfs: {{}}, deletion: {{fleet: {{karmada: {karmada}}}}}}}\n");
        File::from_text(&folder.join("durward.yaml"), text, Purpose::Guards).ok().unwrap()
    }

    fn world_of(worlds: &Worlds, file: &File, guard: &str) -> Arc<dyn Reader> {
        worlds.of(file.guard(guard).unwrap()).ok().unwrap().reader
    }

    #[tokio::test]
    async fn a_guard_with_a_control_plane_of_its_own_has_a_world_of_its_own_which_reloads_keep() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("karmada.config"), KUBECONFIG).unwrap();
        let common: Arc<dyn Reader> = Arc::new(Offline);
        let worlds = Worlds::beside(Clients::reader_only(Arc::clone(&common)), Access::default());
        let first = file(folder.path(), "{kubeconfig: karmada.config}");
        assert!(worlds.of(first.guard("deletion").unwrap()).is_err(), "before it is connected");
        worlds.connect(&first).await.unwrap();
        worlds.in_force(&first);
        let karmada = world_of(&worlds, &first, "deletion");
        assert!(Arc::ptr_eq(&world_of(&worlds, &first, "lxcfs"), &common));
        assert!(!Arc::ptr_eq(&karmada, &common));
        assert!(worlds.health().is_some());
        let has_writer = |guard| worlds.of(first.guard(guard).unwrap()).ok().unwrap().writer.is_some();
        assert!(has_writer("deletion") && !has_writer("lxcfs"), "only a live control plane has a writer");

        let again = file(folder.path(), "{kubeconfig: ./karmada.config, context: b}");
        worlds.connect(&again).await.unwrap();
        assert!(!Arc::ptr_eq(&world_of(&worlds, &again, "deletion"), &karmada), "another context");
        worlds.connect(&first).await.unwrap();
        assert!(Arc::ptr_eq(&world_of(&worlds, &first, "deletion"), &karmada), "the same");

        let without = file(folder.path(), "{}");
        worlds.in_force(&without);
        assert!(Arc::ptr_eq(&world_of(&worlds, &without, "deletion"), &common));
        assert!(worlds.of(first.guard("deletion").unwrap()).is_err(), "what nobody looks at is not kept");
    }

    #[tokio::test]
    async fn a_control_plane_that_cannot_be_reached_at_all_is_a_problem_with_the_guards_name() {
        let folder = tempfile::tempdir().unwrap();
        let worlds = Worlds::beside(Clients::offline(), Access::default());
        let problem =
            worlds.connect(&file(folder.path(), "{kubeconfig: gone}")).await.unwrap_err().to_string();
        assert!(
            problem.contains("what the guard deletion looks at: kubeconfig") && problem.contains("gone"),
            "{problem}"
        );
    }

    #[tokio::test]
    async fn a_context_alone_is_one_of_the_common_kubeconfig() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("karmada.config");
        std::fs::write(&path, KUBECONFIG).unwrap();
        let common = Access { kubeconfig: Some(path), context: Some("a".to_owned()) };
        let worlds = Worlds::beside(Clients::offline(), common);
        worlds.connect(&file(folder.path(), "{context: b}")).await.unwrap();
        assert_eq!(worlds.lock().len(), 1);
        worlds.connect(&file(folder.path(), "{context: a}")).await.unwrap();
        assert_eq!(worlds.lock().len(), 1, "it is the common one");
        assert!(worlds.connect(&file(folder.path(), "{context: c}")).await.is_err());
    }

    #[test]
    fn a_recording_is_the_world_of_every_guard() {
        let folder = tempfile::tempdir().unwrap();
        let common: Arc<dyn Reader> = Arc::new(Offline);
        let worlds = Worlds::only(Clients::reader_only(Arc::clone(&common)));
        let file = file(folder.path(), "{kubeconfig: gone}");
        worlds.connect_and_wait(&file).unwrap();
        assert!(Arc::ptr_eq(&world_of(&worlds, &file, "deletion"), &common));
        worlds.in_force(&file);
        assert!(worlds.health().is_none());
    }
}
