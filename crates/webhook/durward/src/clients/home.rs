//! The cluster where Durward runs, and commands that work there.

use std::path::Path;

use cluster::live::Access;
use console::output::quoted;

use crate::file::{File, NAME};

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
