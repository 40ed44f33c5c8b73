//! The pinned kubectl for one user.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use crate::supervisor::{Output, Supervisor, Tool};

/// Far more than a command takes on a loaded machine.
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

    /// Returns the kubeconfig.
    pub fn kubeconfig(&self) -> &std::path::Path {
        &self.kubeconfig
    }

    /// Runs it and returns its output, whatever its exit code. Warnings are on standard error.
    pub fn run(&self, arguments: &[&str]) -> Result<Output> {
        self.supervisor.run(self.tool(arguments), WITHIN)
    }

    /// Does the same with standard input, for `-f -`.
    pub fn run_with(&self, arguments: &[&str], input: &str) -> Result<Output> {
        self.supervisor.run(self.tool(arguments).input(input), WITHIN)
    }

    /// Runs `kubectl apply -f -` with YAML or JSON.
    pub fn apply(&self, manifests: &str) -> Result<Output> {
        self.run_with(&["apply", "-f", "-"], manifests)
    }

    /// Runs a command line of a message in bash, with this kubectl as `kubectl`.
    pub fn shell(&self, command: &str) -> Result<Output> {
        let (program, kubeconfig) = (self.program.display(), self.kubeconfig.display());
        let script = format!("kubectl() {{ '{program}' --kubeconfig '{kubeconfig}' \"$@\"; }}; {command}");
        let cache = self.supervisor.work().join("kubectl-cache").display().to_string();
        let bash = Tool::new("bash", "/bin/bash").environment("KUBECACHEDIR", cache);
        self.supervisor.run(bash.arguments(["-c", &script]), WITHIN)
    }

    /// Runs `kubectl get … -o json` and expects success.
    pub fn get(&self, arguments: &[&str]) -> Result<Value> {
        let mut all = vec!["get", "-o", "json"];
        all.extend(arguments);
        let output = self.run(&all)?.succeeded()?;
        Ok(serde_json::from_str(&output.stdout)?)
    }

    fn tool(&self, arguments: &[&str]) -> Tool {
        Tool::new("kubectl", &self.program)
            // Its discovery cache must not outlive the run, because another API server gets the same address.
            .environment("KUBECACHEDIR", self.supervisor.work().join("kubectl-cache").display().to_string())
            .flag("kubeconfig", self.kubeconfig.display())
            .arguments(arguments.iter().copied())
    }
}
