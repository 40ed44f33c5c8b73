//! Kyverno's admission controller outside of the cluster: its objects, and its process.

use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::ports;
use e2e::prelude::*;
use e2e::supervisor::{Process, Tool};

const OBJECTS: &str = include_str!("../../data/in-use.yaml");
const NAMESPACE: &str = "kyverno";

/// Kyverno in a cluster. It makes its certificates and webhook configurations itself.
pub(super) struct Kyverno<'a> {
    context: &'a TestContext,
    cluster: &'a Cluster,
    program: &'a Path,
    kubeconfig: PathBuf,
}

impl<'a> Kyverno<'a> {
    /// Creates its CRDs, its objects and the policy. `module` is the Go module that pins it.
    pub(super) fn install(
        context: &'a TestContext,
        cluster: &'a Cluster,
        program: &'a Path,
        module: &Path,
    ) -> Result<Self> {
        let output = Command::new("go")
            .current_dir(module)
            .args(["list", "-m", "-f", "{{.Dir}}/config/crds", "github.com/kyverno/kyverno"])
            .output()
            .context("Go did not start")?;
        ensure!(output.status.success(), "go list: {}", String::from_utf8_lossy(&output.stderr));
        let crds = String::from_utf8(output.stdout)?;
        let kubectl = cluster.kubectl();
        kubectl.run(&["create", "-R", "-f", crds.trim()])?.succeeded()?;
        until("the CRDs to be served", || {
            let applied = kubectl.apply(OBJECTS)?;
            Ok((applied.is_success(), applied.stderr))
        })?;
        let account = cluster.service_account(NAMESPACE, "kyverno")?;
        Ok(Self { context, cluster, program, kubeconfig: account.kubectl.kubeconfig().to_owned() })
    }

    /// Starts it.
    pub(super) fn start(&self) -> Result<Running<'a>> {
        let port = ports::free()?;
        let mut tool = Tool::new("kyverno", self.program)
            // The default of Go, which the harness changes.
            .environment("GOGC", "100")
            .flag("kubeconfig", self.kubeconfig.display())
            .flag("serverIP", format_args!("127.0.0.1:{port}"))
            .flag("webhookServerHost", "127.0.0.1")
            .flag("webhookServerPort", port)
            .flag("caSecretName", "kyverno-ca")
            .flag("tlsSecretName", "kyverno-tls")
            .flag("controllerRuntimeMetricsAddress", 0)
            .flag("disableMetrics", true);
        for (variable, value) in [
            ("KYVERNO_NAMESPACE", NAMESPACE),
            ("KYVERNO_SERVICEACCOUNT_NAME", "kyverno"),
            ("KYVERNO_DEPLOYMENT", "kyverno"),
            ("KYVERNO_POD_NAME", "kyverno"),
            ("INIT_CONFIG", "kyverno"),
            ("METRICS_CONFIG", "kyverno-metrics"),
        ] {
            tool = tool.environment(variable, value);
        }
        let process = self.context.supervisor()?.start_process(tool)?;
        Ok(Running { process, cluster: self.cluster })
    }
}

/// A running controller.
pub(super) struct Running<'a> {
    pub(super) process: Process,
    cluster: &'a Cluster,
}

impl Running<'_> {
    /// Ends it and deletes its webhook configurations. Without its Leases, the next one does not wait for their end.
    pub(super) fn end(self) -> Result<()> {
        self.process.end()?;
        let kubectl = self.cluster.kubectl();
        let webhooks = "validatingwebhookconfigurations,mutatingwebhookconfigurations";
        kubectl.run(&["delete", webhooks, "-l", "webhook.kyverno.io/managed-by=kyverno"])?.succeeded()?;
        kubectl.run(&["delete", "leases", "--all", "-n", NAMESPACE])?.succeeded()?;
        Ok(())
    }
}
