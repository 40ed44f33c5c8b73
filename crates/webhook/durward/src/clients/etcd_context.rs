//! The context of commands that read etcd clusters: the etcd guard and its clients. The configuration alone names the etcd
//! clusters.

use std::sync::Arc;

use cluster::Clients;
use cluster::live::Access;
use cluster::live::LiveWriter;
use config::Problem;
use console::exit::Stop;
use guards::GuardedObjects;
use guards::etcd::{self, Survey};

use crate::args::ClusterArgs;
use crate::clients::connect::{access, snapshot};
use crate::clients::fleet;
use crate::clients::home::manifests_command;
use crate::file::File;

/// The guard and the clients that it reads with.
pub(crate) struct EtcdContext {
    /// Runs the checks of the guard.
    pub(crate) survey: Survey,
    /// The objects that the guard protects.
    pub(crate) guarded: Vec<GuardedObjects>,
    /// Clients of the cluster or the snapshot.
    pub(crate) clients: Clients,
    /// The writer of a live control plane, for dry-run requests only.
    pub(crate) writer: Option<LiveWriter>,
    /// The path of the configuration file, for printed commands.
    pub(crate) config: String,
    /// The command that prints the manifests, for messages.
    pub(crate) manifests: String,
    /// The kubeconfig of the cluster, for printed commands.
    pub(crate) access: Access,
}

/// Returns the survey of the etcd guard, if the file turns it on.
pub(crate) fn survey(file: &File) -> Option<Survey> {
    file.guards.iter().find_map(|guard| etcd::survey(guard.configured.as_ref()))
}

/// Opens the clients that flags and file name. Live clients need the runtime in which their tasks run.
pub(crate) async fn open(file: &File, flags: &ClusterArgs) -> Result<EtcdContext, Stop> {
    let path = file.path.display();
    let survey = survey(file).ok_or_else(|| {
        let problem = Problem::new(format!("{path}: no etcd clusters are configured"));
        problem.next("under guards: add etcd: {clusters: [{namespace: db, selector: app=etcd}]}")
    })?;
    let guarded = file.guards.iter().filter(|guard| etcd::survey(guard.configured.as_ref()).is_some());
    let guarded = guarded.flat_map(|guard| guard.configured.requirements().guarded).collect();
    let access = access(flags, &file.cluster);
    let (clients, writer) = if let Some(dir) = &flags.snapshot {
        (snapshot(dir)?, None)
    } else {
        let live = Arc::new(fleet::connect(&access).await?);
        (Clients::live(&live), Some(LiveWriter::new(&live)))
    };
    let (config, manifests) = (path.to_string(), manifests_command(file));
    Ok(EtcdContext { survey, guarded, clients, writer, config, manifests, access })
}
