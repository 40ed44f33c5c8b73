//! The control planes that the guards of this process read: a common one, and one for each guard that names its own.
//!
//! Connections outlive reloads. If a reloaded file names another control plane, Durward connects to it before the new plan
//! takes effect, while reviews continue.

use std::sync::{Arc, Mutex, MutexGuard};

use admission::lock;
use cluster::etcd::Material;
use cluster::fleet::ClusterHealth;
use cluster::live::{Access, Expiry, Live};
use cluster::{Clients, Readiness};
use config::Problem;
use console::input;
use tokio::runtime::Handle;

use crate::file::{File, Guarded};

/// The control planes that the guards of this process read.
pub(crate) struct ControlPlanes {
    /// Clients of every guard that names no control plane of its own.
    common: Clients,
    /// The common control plane, if it is live.
    live: Option<Arc<Live>>,
    /// Readiness of the common clients if they are not live.
    readiness: Vec<Readiness>,
    /// How to connect to others. `None` if the common clients are used for every control plane.
    connector: Option<Connector>,
    others: Mutex<Vec<OtherControlPlane>>,
    /// Control planes whose clusters are probed.
    probed: Mutex<Vec<Arc<Live>>>,
    /// Those of the active file.
    credentials: Mutex<Vec<EtcdMaterial>>,
}

/// A live control plane, and the sources of certificates for its etcd members.
type EtcdMaterial = (Arc<Live>, Vec<Material>);

struct Connector {
    access: Access,
    runtime: Handle,
}

/// A control plane of one guard.
struct OtherControlPlane {
    access: Access,
    live: Arc<Live>,
}

impl ControlPlanes {
    /// Uses the same clients for all guards: a snapshot contains every cluster.
    pub(crate) fn snapshot(common: Clients) -> Self {
        Self {
            common,
            live: None,
            readiness: Vec::new(),
            connector: None,
            others: Mutex::default(),
            probed: Mutex::default(),
            credentials: Mutex::default(),
        }
    }

    /// Uses these clients, and connects to other control planes on demand. Must be called within the runtime of their tasks.
    pub(crate) fn with_access(common: Clients, access: Access) -> Self {
        Self { connector: Some(Connector { access, runtime: Handle::current() }), ..Self::snapshot(common) }
    }

    /// Uses a live control plane, and connects to others on demand.
    pub(crate) fn live(live: &Arc<Live>, access: Access) -> Self {
        Self { live: Some(Arc::clone(live)), ..Self::with_access(Clients::live(live), access) }
    }

    /// Sets the readiness of common clients that are not live.
    pub(crate) fn with_readiness(self, readiness: Vec<Readiness>) -> Self {
        Self { readiness, ..self }
    }

    /// Connects to the control planes of a file that are not connected yet.
    pub(crate) async fn connect(&self, file: &File) -> Result<(), Problem> {
        for (name, access) in self.missing(file) {
            let named = |problem: Problem| {
                let what = format!("control plane of the guard {name}: {}", problem.what);
                Problem { what, ..problem }
            };
            input::look_at_kubeconfig(access.kubeconfig.as_deref()).map_err(named)?;
            let live = Live::connect(&access).await.map_err(named)?;
            tracing::info!(
                guard = name,
                cluster = live.server(),
                "this guard has a control plane of its own"
            );
            self.lock().push(OtherControlPlane { access, live: Arc::new(live) });
        }
        Ok(())
    }

    /// Does the same from a thread that can block.
    pub(crate) fn connect_and_wait(&self, file: &File) -> Result<(), Problem> {
        match &self.connector {
            Some(connector) if !self.missing(file).is_empty() => {
                connector.runtime.block_on(self.connect(file))
            }
            _ => Ok(()),
        }
    }

    /// Returns the clients of a guard.
    pub(crate) fn of(&self, guard: &Guarded) -> Result<Clients, Problem> {
        match self.own(guard) {
            None => Ok(self.common.clone()),
            Some(access) => self.other(&access).map(|live| Clients::live(&live)).ok_or_else(|| {
                let problem = Problem::new(format!("the guard {}", guard.kind.name()));
                problem.why("its control plane is not connected")
            }),
        }
    }

    /// Returns how to reach the API server that calls a guard, or `None` with a snapshot.
    pub(crate) fn access_of(&self, guard: &Guarded) -> Option<Access> {
        let common = self.common_access()?;
        Some(self.own(guard).unwrap_or(common))
    }

    /// Returns how to reach the common control plane, or `None` with a snapshot.
    pub(crate) fn common_access(&self) -> Option<Access> {
        self.connector.as_ref().map(|connector| connector.access.clone())
    }

    /// Starts to watch namespaces if a guard needs them and its control plane is live.
    pub(crate) fn watch(&self, guard: &Guarded) {
        if let (true, Some(live)) = (guard.configured.requirements().watches_namespaces, self.live_of(guard))
        {
            live.watch_namespaces();
        }
    }

    fn live_of(&self, guard: &Guarded) -> Option<Arc<Live>> {
        self.own(guard).map_or_else(|| self.live.clone(), |access| self.other(&access))
    }

    fn other(&self, access: &Access) -> Option<Arc<Live>> {
        self.lock().iter().find(|other| other.access == *access).map(|other| Arc::clone(&other.live))
    }

    /// Activates a file: probes the clusters of its guards and no others, and drops control planes that no guard uses.
    pub(crate) fn activate(&self, file: &File) {
        let used: Vec<Access> = file.guards.iter().filter_map(|guard| self.own(guard)).collect();
        self.lock().retain(|other| used.contains(&other.access));
        let mut probed: Vec<Arc<Live>> = Vec::new();
        for guard in &file.guards {
            if let (Some(fleet), Some(live)) = (guard.configured.requirements().probes, self.live_of(guard)) {
                live.probe(Some(fleet));
                probed.push(live);
            }
        }
        *lock(&self.credentials) = self.credentials_of(file);
        let before = std::mem::replace(&mut *lock(&self.probed), probed.clone());
        for live in before.iter().filter(|old| !probed.iter().any(|new| Arc::ptr_eq(old, new))) {
            live.probe(None);
        }
    }

    /// Returns the results of the last health probes. There are none before the first, and if no guard asks for probes.
    pub(crate) fn health(&self) -> Vec<ClusterHealth> {
        lock(&self.probed).iter().flat_map(|live| live.health()).collect()
    }

    /// Returns the expiries of the client certificates that the active guards use.
    pub(crate) async fn expiries(&self) -> Vec<Expiry> {
        let credentials = lock(&self.credentials).clone();
        expiries(&credentials).await
    }

    /// Returns the same for the guards of a file that is not active.
    pub(crate) async fn expiries_of(&self, file: &File) -> Vec<Expiry> {
        expiries(&self.credentials_of(file)).await
    }

    fn credentials_of(&self, file: &File) -> Vec<EtcdMaterial> {
        let mut all: Vec<EtcdMaterial> = Vec::new();
        for guard in &file.guards {
            let Some(live) = self.live_of(guard) else { continue };
            let certificates = guard.configured.requirements().etcd_certificates;
            match all.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &live)) {
                Some((_, of_others)) => of_others.extend(certificates),
                None => all.push((live, certificates)),
            }
        }
        all
    }

    /// Returns the state of each watched resource.
    pub(crate) fn readiness(&self) -> Vec<Readiness> {
        let others = self.lock().iter().map(|other| Arc::clone(&other.live)).collect::<Vec<_>>();
        let live = self.live.iter().chain(&others).filter_map(|live| live.readiness());
        self.readiness.iter().cloned().chain(live).collect()
    }

    /// Returns the access of a guard to a control plane of its own. A context without a kubeconfig belongs to the common
    /// kubeconfig.
    fn own(&self, guard: &Guarded) -> Option<Access> {
        let (Some(connector), Some(own)) = (&self.connector, &guard.access) else { return None };
        let access = match &own.kubeconfig {
            Some(_) => own.clone(),
            None => Access { context: own.context.clone(), ..connector.access.clone() },
        };
        (access != connector.access).then_some(access)
    }

    fn missing<'f>(&self, file: &'f File) -> Vec<(&'f str, Access)> {
        let others = self.lock();
        let named = file.guards.iter().filter_map(|guard| Some((guard.kind.name(), self.own(guard)?)));
        named.filter(|(_, access)| !others.iter().any(|other| other.access == *access)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<OtherControlPlane>> {
        lock(&self.others)
    }
}

async fn expiries(all: &[EtcdMaterial]) -> Vec<Expiry> {
    let mut expiries = Vec::new();
    for (live, certificates) in all {
        expiries.extend(live.expiries(certificates).await);
    }
    expiries
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

    fn file(dir: &Path, karmada: &str) -> File {
        let text = format!(
            "apiVersion: durward.dev/v1alpha1\nkind: Configuration\nguards: {{lxcfs: {{}}, deletion: {{fleet: {{karmada: {karmada}}}}}}}\n"
        );
        File::from_text(&dir.join("durward.yaml"), text, Purpose::Guards).ok().unwrap()
    }

    fn reader_of(control_planes: &ControlPlanes, file: &File, guard: &str) -> Arc<dyn Reader> {
        control_planes.of(file.guard(guard).unwrap()).ok().unwrap().reader
    }

    #[tokio::test]
    async fn keeps_the_control_plane_of_a_guard_over_reloads() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("karmada.config"), KUBECONFIG).unwrap();
        let common: Arc<dyn Reader> = Arc::new(Offline);
        let control_planes =
            ControlPlanes::with_access(Clients::reader_only(Arc::clone(&common)), Access::default());
        let first = file(dir.path(), "{kubeconfig: karmada.config}");
        assert!(control_planes.of(first.guard("deletion").unwrap()).is_err(), "before it is connected");
        control_planes.connect(&first).await.unwrap();
        control_planes.activate(&first);
        let karmada = reader_of(&control_planes, &first, "deletion");
        assert!(Arc::ptr_eq(&reader_of(&control_planes, &first, "lxcfs"), &common));
        assert!(!Arc::ptr_eq(&karmada, &common));
        assert_eq!(lock(&control_planes.probed).len(), 1);
        let has_writer =
            |guard| control_planes.of(first.guard(guard).unwrap()).ok().unwrap().writer.is_some();
        assert!(has_writer("deletion") && !has_writer("lxcfs"), "only a live control plane has a writer");

        let again = file(dir.path(), "{kubeconfig: ./karmada.config, context: b}");
        control_planes.connect(&again).await.unwrap();
        assert!(!Arc::ptr_eq(&reader_of(&control_planes, &again, "deletion"), &karmada), "another context");
        control_planes.connect(&first).await.unwrap();
        assert!(Arc::ptr_eq(&reader_of(&control_planes, &first, "deletion"), &karmada), "the same");

        let without = file(dir.path(), "{}");
        control_planes.activate(&without);
        assert!(Arc::ptr_eq(&reader_of(&control_planes, &without, "deletion"), &common));
        assert!(
            control_planes.of(first.guard("deletion").unwrap()).is_err(),
            "an unused control plane is not kept"
        );
    }

    #[tokio::test]
    async fn names_the_guard_whose_control_plane_is_unreachable() {
        let dir = tempfile::tempdir().unwrap();
        let control_planes = ControlPlanes::with_access(Clients::offline(), Access::default());
        let problem =
            control_planes.connect(&file(dir.path(), "{kubeconfig: gone}")).await.unwrap_err().to_string();
        assert!(
            problem.contains("control plane of the guard deletion: kubeconfig") && problem.contains("gone"),
            "{problem}"
        );
    }

    #[tokio::test]
    async fn takes_a_context_from_the_common_kubeconfig() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("karmada.config");
        std::fs::write(&path, KUBECONFIG).unwrap();
        let common = Access { kubeconfig: Some(path), context: Some("a".to_owned()) };
        let control_planes = ControlPlanes::with_access(Clients::offline(), common);
        control_planes.connect(&file(dir.path(), "{context: b}")).await.unwrap();
        assert_eq!(control_planes.lock().len(), 1);
        control_planes.connect(&file(dir.path(), "{context: a}")).await.unwrap();
        assert_eq!(control_planes.lock().len(), 1, "it is the common one");
        assert!(control_planes.connect(&file(dir.path(), "{context: c}")).await.is_err());
    }

    #[tokio::test]
    async fn reads_the_expiries_of_the_active_file() {
        let dir = tempfile::tempdir().unwrap();
        let day = std::time::Duration::from_secs(86_400);
        let certificate = ca::Authority::new(ca::Validity::from_now(day), &[]).unwrap();
        for (name, text) in [("tls.crt", certificate.cert()), ("tls.key", &certificate.key())] {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let user = "users: [{name: u, user: {client-certificate: tls.crt, client-key: tls.key}}]\n";
        let with_user = KUBECONFIG.replace("user: ''", "user: u") + user;
        std::fs::write(dir.path().join("karmada.config"), with_user).unwrap();
        let text = "apiVersion: durward.dev/v1alpha1\nkind: Configuration\nguards:\n  deletion: {fleet: {karmada: {kubeconfig: karmada.config}}}\n  \
            etcd: {clusters: [{namespace: db, selector: a=b, client: {tls: {files: {ca: tls.crt, cert: tls.crt, key: tls.key}}}}]}\n";
        let file =
            File::from_text(&dir.path().join("d.yaml"), text.to_owned(), Purpose::Guards).ok().unwrap();
        let common =
            Access { kubeconfig: Some(dir.path().join("karmada.config")), context: Some("b".to_owned()) };
        let live = Arc::new(Live::connect(&common).await.ok().unwrap());
        let control_planes = ControlPlanes::live(&live, common);
        control_planes.connect(&file).await.unwrap();
        assert_eq!(control_planes.expiries().await, [], "no file is active");
        let kinds = |expiries: Vec<Expiry>| {
            let mut kinds: Vec<_> = expiries.iter().map(|expiry| expiry.kind.as_str()).collect();
            kinds.sort_unstable();
            kinds
        };
        let all = ["api_server_client", "api_server_client", "etcd_client"];
        assert_eq!(kinds(control_planes.expiries_of(&file).await), all);
        control_planes.activate(&file);
        assert_eq!(kinds(control_planes.expiries().await), all);
    }

    #[test]
    fn uses_a_snapshot_for_all_guards() {
        let dir = tempfile::tempdir().unwrap();
        let common: Arc<dyn Reader> = Arc::new(Offline);
        let control_planes = ControlPlanes::snapshot(Clients::reader_only(Arc::clone(&common)));
        let file = file(dir.path(), "{kubeconfig: gone}");
        control_planes.connect_and_wait(&file).unwrap();
        assert!(Arc::ptr_eq(&reader_of(&control_planes, &file, "deletion"), &common));
        control_planes.activate(&file);
        assert!(lock(&control_planes.probed).is_empty());
    }
}
