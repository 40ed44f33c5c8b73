//! Flags of the commands that connect to the API servers of an installation.

use std::path::PathBuf;

use config::Problem;
use console::exit::Stop;

use super::targets::Needs;
use crate::args::ClusterArgs;
use crate::clients::connect;
use crate::clients::control_planes::ControlPlanes;
use crate::file::File;

/// The configuration of an installation, and its cluster.
#[derive(Debug, clap::Args)]
pub(crate) struct InstallArgs {
    /// Configuration file
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// Kubeconfig file of the cluster
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current context]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl InstallArgs {
    /// Connects to the API servers that call the guards.
    pub(crate) async fn open(&self, file: &File) -> Result<(ControlPlanes, Needs), Stop> {
        let flags = ClusterArgs {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            snapshot: None,
        };
        let control_planes = connect::open(&flags, file).await?;
        let needs = Needs::of(file, &control_planes)
            .ok_or_else(|| Stop::fault(Problem::new("no API server is configured")))?;
        Ok((control_planes, needs))
    }
}
