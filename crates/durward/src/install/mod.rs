//! Keeps Durward's webhook configurations and the Secret of its CA up to date in API servers, with the permissions for that.

pub(crate) mod permissions;
pub(crate) mod secret;
pub(crate) mod self_managed;
pub(crate) mod unregister;
pub(crate) mod webhooks;

use std::path::{Path, PathBuf};

use cluster::live::Access;
use config::Problem;
use console::exit::Stop;

use crate::annotate::quoted;
use crate::args::ClusterArgs;
use crate::connect;
use crate::control_planes::ControlPlanes;
use crate::file::File;
use webhooks::{NAME, Needs};

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

/// The file that the kubelet mounts into every pod with a service account.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// Returns how to reach the cluster where Durward runs: the cluster of the pod, or else the one that guards read.
pub(crate) fn home(common: &Access) -> Access {
    if is_pod() { Access::default() } else { common.clone() }
}

fn is_pod() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() && Path::new(TOKEN).exists()
}

/// Returns the command that prints the manifests of a file. The path of a file in a pod exists only there, so the command runs in
/// a pod of the Deployment.
pub(crate) fn manifests_command(file: &File) -> String {
    command_in(is_pod().then_some(file.namespace.as_str()), &file.path)
}

fn command_in(namespace: Option<&str>, config: &Path) -> String {
    let exec = namespace.map(|namespace| format!("kubectl -n {namespace} exec deploy/{NAME} -- "));
    format!(
        "{}durward manifests --config {}",
        exec.unwrap_or_default(),
        quoted(&config.display().to_string())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_from_a_pod_run_in_a_pod() {
        let config = Path::new("/etc/durward/durward.yaml");
        assert_eq!(
            command_in(Some("durward-system"), config),
            "kubectl -n durward-system exec deploy/durward -- durward manifests --config /etc/durward/durward.yaml"
        );
        assert_eq!(command_in(None, Path::new("d.yaml")), "durward manifests --config d.yaml");
        assert_eq!(command_in(None, Path::new("my d.yaml")), "durward manifests --config 'my d.yaml'");
    }
}
