//! Parts that a case removes or reconfigures, and their restoration on drop.

use e2e::prelude::*;

use super::environment::{DEVICE_PLUGIN, Environment, GUARDS, LABEL_AGENT, configuration};

impl Environment {
    /// Removes the pods of a `DaemonSet` and waits until they are gone.
    pub(super) fn remove(&self, name: &'static str) -> Result<Removed<'_>> {
        self.select(name, &json!("nowhere"))?;
        let remove = Removed { environment: self, name, held: true };
        until(format_args!("the pods of {name} to be gone"), || {
            let pods = self.pods(name)?;
            Ok((pods.is_empty(), format!("{}", json!(pods))))
        })?;
        Ok(remove)
    }

    /// Lets the pods of a `DaemonSet` return, without waiting.
    pub(super) fn restore(&self, name: &str) -> Result<()> {
        self.select(name, &Value::Null)
    }

    fn select(&self, name: &str, value: &Value) -> Result<()> {
        let change = json!({"spec": {"template": {"spec": {"nodeSelector": {"durward.test/is": value}}}}});
        let path = format!("{}/{name}", self.namespace.path("apps/v1/daemonsets"));
        self.node.cluster().api().merge(&path, &change)?.succeeded().map(drop)
    }

    /// Configures the webhook until the result is dropped. The agents on nodes keep their configuration.
    pub(super) fn configured(&self, guards: &str) -> Result<Undo<'_>> {
        let undo = Undo::new("the configuration is not restored", || self.configure(GUARDS));
        self.configure(guards)?;
        Ok(undo)
    }

    fn configure(&self, guards: &str) -> Result<()> {
        self.durward.reload_after(|| self.installation.configure(guards))
    }

    /// Configures the agents on nodes, as soon as their pods see the change.
    pub(super) fn configure_agents(&self, guards: &str) -> Result<()> {
        let api = self.node.cluster().api();
        let map = json!({"data": {"durward.yaml": configuration(guards)}});
        api.merge(&format!("{}/durward", self.namespace.path("configmaps")), &map)?.succeeded()?;
        // The kubelet syncs the files of a pod once a minute, and when the pod changes.
        let mark = json!({"metadata": {"annotations": {"durward.test/configuration": guards}}});
        for pod in [self.pods(LABEL_AGENT)?, self.pods(DEVICE_PLUGIN)?].concat() {
            let name = pod["metadata"]["name"].as_str().context("a pod without a name")?;
            api.merge(&format!("{}/{name}", self.namespace.path("pods")), &mark)?.succeeded()?;
        }
        Ok(())
    }
}

/// A `DaemonSet` without pods. They return on drop.
#[must_use = "the pods come back at once when this is dropped"]
pub(super) struct Removed<'a> {
    environment: &'a Environment,
    name: &'static str,
    held: bool,
}

impl Removed<'_> {
    /// Keeps the pods away; the case calls [`Environment::restore_daemon_set`] itself.
    pub(super) fn keep(mut self) {
        self.held = false;
    }

    /// Lets the pods return and waits until they are Ready.
    pub(super) fn restore(mut self) -> Result<()> {
        self.held = false;
        self.environment.restore(self.name)?;
        self.environment.node.await_workload(&self.environment.namespace, "daemonsets", self.name)
    }
}

impl Drop for Removed<'_> {
    fn drop(&mut self) {
        if self.held
            && let Err(error) = self.environment.restore(self.name)
        {
            print(format_args!("{} is not restored: {error:#}", self.name));
        }
    }
}
