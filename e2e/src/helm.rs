//! The pinned Helm and the chart of this checkout.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::binaries::Binary;
use crate::certificates;
use crate::context::TestContext;
use crate::controlplane::Cluster;
use crate::supervisor::{Output, Supervisor, Tool};

/// `--wait` has a limit of its own; this is for a command that ignores it.
const WITHIN: Duration = Duration::from_secs(600);

/// Helm, for one cluster or for none.
#[derive(Debug, Clone)]
pub struct Helm {
    supervisor: Arc<Supervisor>,
    program: PathBuf,
    kubeconfig: Option<PathBuf>,
    /// The directory of values files and of Helm's own files.
    directory: PathBuf,
}

impl Helm {
    /// The release of the cases.
    pub const RELEASE: &'static str = "durward";

    /// Returns Helm without a cluster, for `helm template`.
    pub fn new(context: &TestContext) -> Result<Self> {
        let supervisor = context.supervisor()?;
        let program = Binary::Helm.path(&supervisor)?;
        Ok(Self { program, kubeconfig: None, directory: context.directory("helm")?, supervisor })
    }

    /// Returns Helm as an administrator of a cluster.
    pub fn of(context: &TestContext, cluster: &Cluster) -> Result<Self> {
        let kubeconfig = Some(cluster.kubectl().kubeconfig().to_owned());
        Ok(Self { kubeconfig, ..Self::new(context)? })
    }

    /// Returns the directory of the chart.
    pub fn chart() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/durward")
    }

    /// Runs it and returns its output, whatever its exit code.
    pub fn run(&self, arguments: &[&str]) -> Result<Output> {
        let directory = |name: &str| self.directory.join(name).display().to_string();
        let mut tool = Tool::new("helm", &self.program)
            .environment("HELM_CACHE_HOME", directory("cache"))
            .environment("HELM_CONFIG_HOME", directory("config"))
            .environment("HELM_DATA_HOME", directory("data"))
            .arguments(arguments.iter().copied());
        if let Some(kubeconfig) = &self.kubeconfig {
            tool = tool.flag("kubeconfig", kubeconfig.display());
        }
        self.supervisor.run(tool, WITHIN)
    }

    /// Runs a command with the release, the chart and these values.
    pub fn with_values(
        &self,
        command: &[&str],
        namespace: &str,
        values: &Value,
        more: &[&str],
    ) -> Result<Output> {
        self.with_chart(&Self::chart(), command, namespace, values, more)
    }

    /// Runs a command with the release, another chart and these values.
    pub fn with_chart(
        &self,
        chart: &Path,
        command: &[&str],
        namespace: &str,
        values: &Value,
        more: &[&str],
    ) -> Result<Output> {
        // Values of earlier calls can be compared after a failure, so each call has its own file.
        let number = std::fs::read_dir(&self.directory).context("the directory of Helm")?.count();
        let file =
            certificates::write(&self.directory, &format!("values-{number}.json"), &values.to_string())?;
        let (chart, file) = (chart.display().to_string(), file.display().to_string());
        let arguments =
            [command, &[Self::RELEASE, &chart, "--namespace", namespace, "--values", &file], more];
        self.run(&arguments.concat())
    }

    /// Renders the chart for a namespace and returns the YAML.
    pub fn template(&self, namespace: &str, values: &Value) -> Result<Output> {
        self.with_values(&["template"], namespace, values, &[])
    }

    /// Installs or upgrades the release and waits until its pods are ready.
    pub fn install(&self, namespace: &str, values: &Value) -> Result<Output> {
        self.with_values(&["upgrade", "--install"], namespace, values, &["--wait", "--timeout", "5m"])
    }

    /// Removes the release and waits until its objects are gone.
    pub fn uninstall(&self, namespace: &str, more: &[&str]) -> Result<Output> {
        let arguments = ["uninstall", Self::RELEASE, "--namespace", namespace, "--wait", "--timeout", "5m"];
        self.run(&[&arguments[..], more].concat())
    }
}
