//! The pinned kubectl, in one user's name.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use crate::supervisor::{Output, Supervisor, Tool};

/// Far more than any single command takes on a loaded machine; what hangs longer, hangs.
const WITHIN: Duration = Duration::from_secs(120);

/// kubectl with a kubeconfig.
#[derive(Debug, Clone)]
pub struct Kubectl {
    supervisor: Arc<Supervisor>,
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Kubectl {
    pub(crate) fn new(supervisor: &Arc<Supervisor>, program: PathBuf, kubeconfig: PathBuf) -> Self {
        Self { supervisor: Arc::clone(supervisor), program, kubeconfig }
    }

    /// The kubeconfig it works with: a file for Durward too, or for a program of the test's own.
    pub fn kubeconfig(&self) -> &std::path::Path {
        &self.kubeconfig
    }

    /// Runs it with these arguments and returns what it said, whatever its exit code. Warnings stand on
    /// standard error.
    pub fn run(&self, arguments: &[&str]) -> Result<Output> {
        self.supervisor.run(self.tool(arguments), WITHIN)
    }

    /// The same with something to read, for `-f -`.
    pub fn run_with(&self, arguments: &[&str], input: &str) -> Result<Output> {
        self.supervisor.run(self.tool(arguments).input(input), WITHIN)
    }

    /// `kubectl apply -f -` of YAML, or of JSON, which is YAML.
    pub fn apply(&self, manifests: &str) -> Result<Output> {
        self.run_with(&["apply", "-f", "-"], manifests)
    }

    /// `kubectl get … -o json`, which must succeed.
    pub fn get(&self, arguments: &[&str]) -> Result<Value> {
        let mut all = vec!["get", "-o", "json"];
        all.extend(arguments);
        let output = self.run(&all)?.succeeded()?;
        Ok(serde_json::from_str(&output.stdout)?)
    }

    fn tool(&self, arguments: &[&str]) -> Tool {
        Tool::new("kubectl", &self.program)
            // What it remembers of an API server must not outlive the run, for another will have the same
            // address.
            .environment("KUBECACHEDIR", self.supervisor.work().join("kubectl-cache").display().to_string())
            .flag("kubeconfig", self.kubeconfig.display())
            .arguments(arguments.iter().copied())
    }
}
