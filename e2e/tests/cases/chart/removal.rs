//! The ways to remove Durward, and the states in which it blocks deletions.

use e2e::prelude::*;

use super::configurations::HOME;
use super::environment::{Environment, exclusive, home_path, installed, values};
use crate::cases::objects::{await_gone, contains_all};

/// The webhook configurations, which exist once in a cluster.
pub(super) const WEBHOOKS: [&str; 2] = [
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/durward",
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/durward",
];

/// All resources of the chart, for `kubectl get`.
const RESOURCES: &str = "deployments,replicasets,pods,jobs,services,endpointslices,configmaps,secrets,serviceaccounts,\
    poddisruptionbudgets,networkpolicies,roles,rolebindings,clusterroles,clusterrolebindings,\
    validatingwebhookconfigurations,mutatingwebhookconfigurations,\
    validatingadmissionpolicies,validatingadmissionpolicybindings";

#[e2e::case]
fn helm_uninstall_leaves_nothing(context: &'static TestContext) -> Result<()> {
    let environment = installed(context)?;
    let used = environment.used_namespace()?;
    environment.audit.has_no_forbidden_requests()?;
    let output = environment.helm.uninstall(HOME, &[])?.succeeded()?;
    contains_all(&output.stdout, &["release \"durward\" uninstalled"])?;
    environment.has_no_objects()?;
    environment.delete_as_dry_run(&used)?.succeeded()?;
    environment.audit.clear()
}

/// The owner reference that Durward writes makes the garbage collector remove the webhook configurations.
#[e2e::case]
fn a_namespace_deleted_by_hand_frees_the_cluster(context: &'static TestContext) -> Result<()> {
    let environment = installed(context)?;
    let used = environment.used_namespace()?;
    // Durward denies this deletion without an override.
    let home = format!("/api/v1/namespaces/{HOME}");
    let denied = environment.api().delete(&home)?;
    ensure!(denied.status == 403 && denied.message().contains("contains Durward"), "{}", denied.message());
    let passing = json!({"metadata": {"annotations": {"durward.dev/break-glass": HOME}}});
    environment.api().merge(&home, &passing)?.succeeded()?;
    environment.delete_home()?;
    for path in WEBHOOKS {
        await_gone(environment.node.cluster(), path)?;
    }
    environment.delete_as_dry_run(&used)?.succeeded()?;
    drop(used);
    // Roles remain. Helm takes them over, because release and namespace have the same names.
    environment.install(&values())?;
    environment.audit.clear()
}

/// No replica runs and none can start. The command of the runbook frees the cluster, and an upgrade restores the guards.
#[e2e::case(Soak)]
fn deleting_the_webhook_configurations_frees_a_cluster_without_replicas(
    context: &'static TestContext,
) -> Result<()> {
    let environment = installed(context)?;
    let used = environment.used_namespace()?;
    let empty = environment.empty_namespace()?;
    let mut missing = values();
    missing["image"]["tag"] = json!("missing");
    let arguments = ["--wait", "--timeout", "1s"];
    environment.helm.with_values(&["upgrade"], HOME, &missing, &arguments)?.exited_with(1)?;
    for pod in environment.replicas()? {
        environment
            .api()
            .delete(&format!("{}/{pod}?gracePeriodSeconds=0", home_path("pods")))?
            .succeeded()?;
    }
    // The old ReplicaSet would make pods of the image that exists.
    let kubectl = environment.node.cluster().kubectl();
    kubectl.run(&["scale", "-n", HOME, "deployment/durward", "--replicas=0"])?.succeeded()?;
    until("calls to fail", || {
        let answer = environment.delete_as_dry_run(&empty)?;
        let message = answer.message().to_owned();
        Ok((message.contains("failed calling webhook"), message))
    })?;
    let freed = ["delete", "validatingwebhookconfiguration,mutatingwebhookconfiguration", "durward"];
    kubectl.run(&freed)?.succeeded()?;
    until("a namespace in use to be deletable", || {
        let answer = environment.delete_as_dry_run(&used)?;
        Ok((answer.is_success(), answer.message().to_owned()))
    })?;
    environment.install(&values()).map(drop)
}

/// The Job can't start. `--no-hooks` leaves webhook configurations to Helm, which removes them last.
#[e2e::case(Soak)]
fn uninstall_without_hooks_removes_an_installation_that_cannot_start(
    context: &'static TestContext,
) -> Result<()> {
    let environment = exclusive(context)?;
    environment.install(&values())?;
    let used = environment.used_namespace()?;
    environment.helm.uninstall(HOME, &["--no-hooks"])?.succeeded()?;
    environment.has_no_objects()?;
    environment.delete_as_dry_run(&used)?.succeeded()?;
    environment.audit.clear()
}

impl Environment {
    /// Expects that no object of the chart or of Durward is left in the cluster, and that the namespace can be deleted.
    fn has_no_objects(&self) -> Result<()> {
        let kubectl = self.node.cluster().kubectl();
        until("all objects to be gone", || {
            let arguments = ["get", RESOURCES, "-A", "-o", "name", "-l", "app.kubernetes.io/name=durward"];
            let left = kubectl.run(&arguments)?.succeeded()?.stdout;
            Ok((left.is_empty(), left))
        })?;
        for path in WEBHOOKS {
            await_gone(self.node.cluster(), path)?;
        }
        for resource in ["secrets", "coordination.k8s.io/v1/leases"] {
            let left = self.home(resource)?;
            ensure!(left.is_empty(), "{resource} are left: {left:?}");
        }
        self.delete_home()
    }

    /// Deletes the namespace and waits until it is gone.
    pub(super) fn delete_home(&self) -> Result<()> {
        let path = format!("/api/v1/namespaces/{HOME}");
        self.api().delete(&path)?.succeeded()?;
        await_gone(self.node.cluster(), &path)
    }
}
