//! Opens the cluster or the snapshot that guards read.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use admission::BoxFuture;
use cluster::live::{Access, Live};
use cluster::snapshot;
use cluster::{Address, Clients, Metadata, MetadataResult, Offline, Reader, Resource};
use config::Problem;
use console::exit::Stop;
use console::input;

use crate::args::ClusterArgs;
use crate::clients::control_planes::ControlPlanes;
use crate::file::{ClusterSection, File, Guarded, Manage};

/// Opens the clients that flags and file name. Without either, they use the kubeconfig or the pod's service account, like
/// kubectl. Without a cluster, guards that read nothing outside still work.
pub(crate) async fn open(flags: &ClusterArgs, file: &File) -> Result<ControlPlanes, Stop> {
    if let Some(dir) = &flags.snapshot {
        let world = snapshot::open(dir)?;
        let readiness = world.readiness();
        return Ok(ControlPlanes::snapshot(Clients::world(world)).with_readiness(readiness));
    }
    let access = access(flags, &file.cluster);
    input::look_at_kubeconfig(access.kubeconfig.as_deref())?;
    let looks = |guard: &Guarded| guard.access.is_none() && guard.configured.requirements().reads_cluster;
    let is_needed = file.guards.iter().any(looks)
        || access != Access::default()
        || file.server.manage_webhooks != Manage::None;
    let control_planes = match Live::connect(&access).await {
        Ok(live) => {
            tracing::info!(cluster = live.server(), "guards read this cluster");
            ControlPlanes::live(&Arc::new(live), access)
        }
        Err(problem) if is_needed => return Err(problem.into()),
        Err(problem) => {
            tracing::warn!(why = %problem, "no cluster is connected; the enabled guards do not need one");
            ControlPlanes::with_access(Clients::offline(), access)
        }
    };
    control_planes.connect(file).await?;
    Ok(control_planes)
}

/// Merges flags and file key by key: `--context` names a context of the file's kubeconfig. With `--kubeconfig`, the file's
/// context does not apply.
pub(crate) fn access(flags: &ClusterArgs, file: &ClusterSection) -> Access {
    match &flags.kubeconfig {
        Some(kubeconfig) => Access { kubeconfig: Some(kubeconfig.clone()), context: flags.context.clone() },
        None => Access {
            kubeconfig: file.kubeconfig.clone(),
            context: flags.context.clone().or_else(|| file.context.clone()),
        },
    }
}

/// Opens a snapshot.
pub(crate) fn snapshot(directory: &PathBuf) -> Result<Clients, Stop> {
    Ok(Clients::world(snapshot::open(directory)?))
}

/// Opens a snapshot, if there is one, for commands that work without a cluster.
pub(crate) fn offline(directory: Option<&PathBuf>) -> Result<Clients, Stop> {
    directory.map_or_else(|| Ok(Clients::offline()), snapshot)
}

/// A reader in which every namespace has the given labels, and everything else is unknown.
#[derive(Debug)]
pub(crate) struct StaticLabels(Arc<Metadata>);

impl StaticLabels {
    /// Creates a reader with these labels.
    pub(crate) fn new(labels: BTreeMap<String, String>) -> Self {
        Self(Arc::new(Metadata { labels, ..Metadata::default() }))
    }
}

impl Reader for StaticLabels {
    fn get<'a>(&'a self, address: Address<'a>, deadline: Instant) -> BoxFuture<'a, MetadataResult> {
        if *address.resource == Resource::NAMESPACES {
            return Box::pin(std::future::ready(Ok(Some(Arc::clone(&self.0)))));
        }
        Offline.get(address, deadline)
    }
}

/// Parses labels from a flag: `key=value,…`.
pub(crate) fn labels(flag: &str, text: &str) -> Result<BTreeMap<String, String>, Problem> {
    let mut labels = BTreeMap::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').ok_or_else(|| {
            let problem = Problem::new(format!("{flag} {text:?}")).why(format!("{part:?} is not key=value"));
            problem.next(format!("for example: {flag} team=shop,tier=web; \"\" for none"))
        })?;
        if labels.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(Problem::new(format!("{flag} {text:?}")).why(format!("{key} is given twice")));
        }
    }
    Ok(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_override_the_files_cluster_key_by_key() {
        let of = |flags: (Option<&str>, Option<&str>), file: (Option<&str>, Option<&str>)| {
            let text = |text: Option<&str>| text.map(str::to_owned);
            let flags = ClusterArgs {
                kubeconfig: flags.0.map(PathBuf::from),
                context: text(flags.1),
                snapshot: None,
            };
            let file = ClusterSection { kubeconfig: file.0.map(PathBuf::from), context: text(file.1) };
            let access = access(&flags, &file);
            (access.kubeconfig.map(|path| path.display().to_string()), access.context)
        };
        let expected = |a: Option<&str>, b: Option<&str>| (a.map(str::to_owned), b.map(str::to_owned));
        let file = (Some("file"), Some("there"));
        assert_eq!(of((None, None), file), expected(Some("file"), Some("there")));
        assert_eq!(of((None, Some("here")), file), expected(Some("file"), Some("here")));
        assert_eq!(of((Some("flag"), None), file), expected(Some("flag"), None));
        assert_eq!(of((Some("flag"), Some("here")), file), expected(Some("flag"), Some("here")));
        assert_eq!(of((None, Some("here")), (None, None)), expected(None, Some("here")));
        assert_eq!(of((None, None), (None, Some("there"))), expected(None, Some("there")));
    }

    #[test]
    fn labels_are_pairs() {
        let read = labels("--l", "a=b, c=,d.e/f=g=h").unwrap();
        let pairs: Vec<_> = read.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(pairs, [("a", "b"), ("c", ""), ("d.e/f", "g=h")]);
        assert!(labels("--l", "").unwrap().is_empty());
        assert!(labels("--l", "a").unwrap_err().to_string().contains("\"a\" is not key=value"));
        assert!(labels("--l", "a=1,a=2").unwrap_err().to_string().contains("is given twice"));
    }
}
