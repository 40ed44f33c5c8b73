//! What a case takes away or changes, and what puts it back.

use anyhow::{Context as _, Result};
use e2e::console::print;
use e2e::wait::{Poll, eventually};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::house::{DEVICE, GUARDS, House, KEEPER, SEEN_WITHIN};

impl House {
    /// Takes the pods of a `DaemonSet` away, and returns when they are gone.
    pub(super) fn without(&self, name: &'static str) -> Result<Without<'_>> {
        self.select(name, &json!("nowhere"))?;
        let without = Without { house: self, name, held: true };
        eventually(format_args!("the pods of {name} to be gone"), SEEN_WITHIN, || {
            let pods = self.pods(name)?;
            Ok(if pods.is_empty() { Poll::Ready(()) } else { Poll::Pending(format!("{}", json!(pods))) })
        })?;
        Ok(without)
    }

    /// Lets the pods of a `DaemonSet` come back, and waits for nothing.
    pub(super) fn comes_back(&self, name: &str) -> Result<()> {
        self.select(name, &Value::Null)
    }

    fn select(&self, name: &str, value: &Value) -> Result<()> {
        let change = json!({"spec": {"template": {"spec": {"nodeSelector": {"durward.test/is": value}}}}});
        let path = format!("{}/{name}", self.home.path("apps/v1/daemonsets"));
        self.node.cluster().api().merge(&path, &change)?.succeeded().map(drop)
    }

    /// What the webhook is configured to, until what is returned is dropped. What runs on nodes keeps its own.
    pub(super) fn configured(&self, guards: &str) -> Result<Configured<'_>> {
        let configured = Configured(self);
        self.configure(guards)?;
        Ok(configured)
    }

    fn configure(&self, guards: &str) -> Result<()> {
        let generation = || self.durward.metrics()?.value("durward_config_generation", &[]);
        let before = generation()?;
        self.installation.configure(guards)?;
        self.durward.signal(Signal::HUP)?;
        eventually("a new configuration to bind", SEEN_WITHIN, || {
            let now = generation()?;
            Ok(if now > before + 0.5 { Poll::Ready(()) } else { Poll::Pending(format!("generation {now}")) })
        })
    }

    /// What the parts on nodes are configured to, from when their pods see it.
    pub(super) fn tell_nodes(&self, guards: &str) -> Result<()> {
        let api = self.node.cluster().api();
        let map = json!({"data": {"durward.yaml": format!("version: 1\nguards:\n{guards}\n")}});
        api.merge(&format!("{}/durward", self.home.path("configmaps")), &map)?.succeeded()?;
        // A kubelet looks at a pod's files once a minute, and when the pod has changed.
        let mark = json!({"metadata": {"annotations": {"durward.test/told": guards}}});
        for pod in [self.pods(KEEPER)?, self.pods(DEVICE)?].concat() {
            let name = pod["metadata"]["name"].as_str().context("a pod without a name")?;
            api.merge(&format!("{}/{name}", self.home.path("pods")), &mark)?.succeeded()?;
        }
        Ok(())
    }
}

/// The webhook is configured otherwise until this is dropped.
#[must_use = "the room's configuration binds again at once when this is dropped"]
pub(super) struct Configured<'a>(&'a House);

impl Drop for Configured<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.configure(GUARDS) {
            print(format_args!("the room's configuration does not bind again: {error:#}"));
        }
    }
}

/// A `DaemonSet` that has no pods until this is dropped.
#[must_use = "the pods come back at once when this is dropped"]
pub(super) struct Without<'a> {
    house: &'a House,
    name: &'static str,
    held: bool,
}

impl Without<'_> {
    /// Leaves it so: [`House::comes_back`] is the case's to say.
    pub(super) fn stays(mut self) {
        self.held = false;
    }

    /// Lets its pods come back, and returns when they are Ready.
    pub(super) fn back(mut self) -> Result<()> {
        self.held = false;
        self.house.comes_back(self.name)?;
        self.house.node.stands(&self.house.home, "daemonsets", self.name)
    }
}

impl Drop for Without<'_> {
    fn drop(&mut self) {
        if self.held
            && let Err(error) = self.house.comes_back(self.name)
        {
            print(format_args!("{} does not come back: {error:#}", self.name));
        }
    }
}
