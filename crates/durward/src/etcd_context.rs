//! What the commands that look at etcd ensembles begin with: which ensembles there are says the configuration alone.

use std::path::Path;
use std::sync::Arc;

use cluster::Clients;
use cluster::live::Access;
use cluster::writer::LiveWriter;
use config::Problem;
use guards::etcd::{self, Survey};

use crate::args::ClusterArgs;
use crate::exit::Stop;
use crate::file::{File, Purpose};
use crate::fleet;
use crate::world::{access, recorded};

/// The guard, and what it reads.
pub(crate) struct EtcdContext {
    /// What the guard would find.
    pub(crate) survey: Survey,
    /// The control plane or the snapshot.
    pub(crate) clients: Clients,
    /// The writer of a live control plane, for dry-run requests only.
    pub(crate) writer: Option<LiveWriter>,
    /// The file, for commands that are told.
    pub(crate) config: String,
    /// By which kubeconfig the cluster is asked, for the same.
    pub(crate) access: Access,
}

/// The guard of a file that knows ensembles; none where there is none.
pub(crate) fn survey(file: &File) -> Option<Survey> {
    file.guards.iter().find_map(|guard| etcd::survey(guard.configured.as_ref()))
}

/// Opens what flags and file name. A live control plane must be opened within the runtime that its tasks run in.
pub(crate) async fn open(path: &Path, flags: &ClusterArgs) -> Result<EtcdContext, Stop> {
    let file = File::load(path, Purpose::Guards)?;
    let survey = survey(&file).ok_or_else(|| {
        let problem = Problem::new(format!("{}: no etcd ensembles are configured", path.display()));
        problem.next("under guards: add etcd: {ensembles: [{namespace: db, selector: app=etcd}]}")
    })?;
    let access = access(flags, &file.cluster);
    let (clients, writer) = if let Some(folder) = &flags.world {
        (recorded(folder)?, None)
    } else {
        let live = Arc::new(fleet::connect(&access).await?);
        (Clients::live(&live), Some(LiveWriter::new(&live)))
    };
    Ok(EtcdContext { survey, clients, writer, config: path.display().to_string(), access })
}
