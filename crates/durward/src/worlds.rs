//! The worlds of one process: the one that every guard looks at, and one for each control plane that a guard names for itself.
//!
//! Opened once for each way to an API server and kept over reloads; a file that names another one connects to it before its plan
//! is put in force, beside the reviews that go on meanwhile.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cluster::fleet::{Fleet, Health, ProbeTargets};
use cluster::live::{Access, Live};
use cluster::writer::{LiveWriter, Writer};
use cluster::{Reader, Readiness};
use config::Problem;
use tokio::runtime::Handle;

use crate::file::{File, Guarded};
use crate::input;

/// All worlds.
pub(crate) struct Worlds {
    /// The one that every guard looks at which names no other.
    common: Arc<dyn Reader>,
    /// The way to it; none where it stands for every other one too.
    way: Option<Way>,
    /// Hands in the common one, where it is live.
    hands: Option<Arc<dyn Writer>>,
    others: Mutex<Vec<Other>>,
    /// Those in which rounds are being made.
    walked: Mutex<Vec<Arc<dyn Reader>>>,
}

struct Way {
    access: Access,
    runtime: Handle,
}

/// A control plane of a guard's own. It is always live.
struct Other {
    access: Access,
    world: Arc<dyn Reader>,
    hands: Arc<dyn Writer>,
}

impl Worlds {
    /// One world for all: a recording holds every cluster that there is.
    pub(crate) fn only(world: Arc<dyn Reader>) -> Self {
        Self { common: world, way: None, hands: None, others: Mutex::default(), walked: Mutex::default() }
    }

    /// The world that `access` leads to; others are reached beside it. Must be called within the runtime that they then live in.
    pub(crate) fn beside(world: Arc<dyn Reader>, access: Access) -> Self {
        Self { way: Some(Way { access, runtime: Handle::current() }), ..Self::only(world) }
    }

    /// The same with hands in the common world.
    pub(crate) fn with_hands(self, hands: Arc<dyn Writer>) -> Self {
        Self { hands: Some(hands), ..self }
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
            let hands = Arc::new(LiveWriter::of(&live));
            self.lock().push(Other { access, world: Arc::new(live), hands });
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

    /// The world that a guard looks at.
    pub(crate) fn of(&self, guard: &Guarded) -> Result<Arc<dyn Reader>, Problem> {
        let Some(access) = self.own(guard) else { return Ok(Arc::clone(&self.common)) };
        let others = self.lock();
        let found = others.iter().find(|other| other.access == access).map(|other| Arc::clone(&other.world));
        found.ok_or_else(|| {
            Problem::new(format!("the guard {}", guard.kind.name())).why("its control plane is not connected")
        })
    }

    /// The hands of a guard in the world that it looks at; none where that is no live one.
    pub(crate) fn hands(&self, guard: &Guarded) -> Option<Arc<dyn Writer>> {
        let Some(access) = self.own(guard) else { return self.hands.clone() };
        self.lock().iter().find(|other| other.access == access).map(|other| Arc::clone(&other.hands))
    }

    /// The file is in force: rounds are made for its guards from now on, and for no others; worlds that no guard looks at any
    /// more end with the last review in them.
    pub(crate) fn in_force(&self, file: &File) {
        let used: Vec<Access> = file.guards.iter().filter_map(|guard| self.own(guard)).collect();
        self.lock().retain(|other| used.contains(&other.access));
        let mut walked: Vec<Arc<dyn Reader>> = Vec::new();
        // In a recording nothing changes, and nobody goes round.
        for guard in file.guards.iter().filter(|_| self.way.is_some()) {
            if let (Some(rounds), Ok(world)) = (guard.configured.requirements().probes, self.of(guard)) {
                world.start_probes(rounds);
                walked.push(world);
            }
        }
        let before = std::mem::replace(&mut *guarded(&self.walked), walked.clone());
        for world in before.iter().filter(|old| !walked.iter().any(|new| Arc::ptr_eq(old, new))) {
            world.start_probes(ProbeTargets { fleet: Fleet::Alone, resources: Vec::new() });
        }
    }

    /// How the last rounds went; none where no guard wants any.
    pub(crate) fn health(&self) -> Option<Vec<Health>> {
        let walked = guarded(&self.walked);
        (!walked.is_empty()).then(|| walked.iter().flat_map(|world| world.health()).collect())
    }

    /// What all of them have at hand.
    pub(crate) fn readiness(&self) -> Vec<Readiness> {
        let others: Vec<_> = self.lock().iter().flat_map(|other| other.world.readiness()).collect();
        self.common.readiness().into_iter().chain(others).collect()
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

    use cluster::Offline;

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
        worlds.of(file.guard(guard).unwrap()).ok().unwrap()
    }

    #[tokio::test]
    async fn a_guard_with_a_control_plane_of_its_own_has_a_world_of_its_own_which_reloads_keep() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("karmada.config"), KUBECONFIG).unwrap();
        let common: Arc<dyn Reader> = Arc::new(Offline);
        let worlds = Worlds::beside(Arc::clone(&common), Access::default());
        let first = file(folder.path(), "{kubeconfig: karmada.config}");
        assert!(worlds.of(first.guard("deletion").unwrap()).is_err(), "before it is connected");
        worlds.connect(&first).await.unwrap();
        worlds.in_force(&first);
        let karmada = world_of(&worlds, &first, "deletion");
        assert!(Arc::ptr_eq(&world_of(&worlds, &first, "lxcfs"), &common));
        assert!(!Arc::ptr_eq(&karmada, &common));
        assert!(worlds.health().is_some());
        assert!(worlds.hands(first.guard("deletion").unwrap()).is_some(), "its world is live");
        assert!(worlds.hands(first.guard("lxcfs").unwrap()).is_none(), "the common one is none");

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
        let worlds = Worlds::beside(Arc::new(Offline), Access::default());
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
        let worlds = Worlds::beside(Arc::new(Offline), common);
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
        let worlds = Worlds::only(Arc::clone(&common));
        let file = file(folder.path(), "{kubeconfig: gone}");
        worlds.connect_and_wait(&file).unwrap();
        assert!(Arc::ptr_eq(&world_of(&worlds, &file, "deletion"), &common));
        worlds.in_force(&file);
        assert!(worlds.health().is_none());
    }
}
