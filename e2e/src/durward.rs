//! The product's binary as a process, and its commands.
//!
//! A case writes the configuration. [`crate::installation::Installation::register`] registers Durward with the output
//! of `durward manifests --only webhooks` and nothing else.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use crate::context::TestContext;
use crate::controlplane::Cluster;
use crate::metrics::Metrics;
use crate::supervisor::{Exit, Output, Process, Tool};
use crate::wait::{Poll, eventually};
use crate::{plain_http, ports};

/// A debug build on a loaded machine, with its first reads of a cluster.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Time to read a configuration after a signal, on a loaded machine.
const RELOADED_WITHIN: Duration = Duration::from_secs(60);

/// The time of a page. Beside an attack on a loaded machine, it can take more than the usual seconds.
const PAGE_WITHIN: Duration = Duration::from_secs(30);

/// The time of a command other than `serve`.
const COMMAND_WITHIN: Duration = Duration::from_secs(60);

/// The options of `durward serve`.
#[derive(Debug, Clone)]
#[must_use = "nothing is started before `start`"]
pub struct Serve {
    name: String,
    config: PathBuf,
    host: IpAddr,
    port: Option<u16>,
    arguments: Vec<String>,
}

impl Serve {
    /// Uses this configuration file and 127.0.0.1 with free ports.
    pub fn with(config: &Path) -> Self {
        let host = [127, 0, 0, 1].into();
        Self {
            name: "durward".to_owned(),
            config: config.to_owned(),
            host,
            port: None,
            arguments: Vec::new(),
        }
    }

    /// Sets the name of its log.
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Listens for reviews on another address of this host, which a Service needs.
    pub fn listening_on(mut self, host: impl Into<IpAddr>) -> Self {
        self.host = host.into();
        self
    }

    /// Listens for reviews at this address and port.
    pub fn listening_at(mut self, listener: SocketAddr) -> Self {
        self.host = listener.ip();
        self.port = Some(listener.port());
        self
    }

    /// Adds a flag.
    pub fn flag(mut self, flag: impl Into<String>) -> Self {
        self.arguments.push(flag.into());
        self
    }

    /// Starts it and waits for nothing.
    pub fn start(self, context: &TestContext) -> Result<Durward> {
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let reviews = SocketAddr::new(self.host, self.port.map_or_else(ports::free, Ok)?);
        let admin = SocketAddr::new(loopback, ports::free()?);
        let tool = Tool::new(self.name, context.durward_program()?)
            .arguments(["serve", "--config"])
            .argument(self.config.display().to_string())
            .arguments(["--bind-address".to_owned(), reviews.to_string()])
            .arguments(["--metrics-bind-address".to_owned(), admin.to_string()])
            .arguments(self.arguments);
        let part = context.supervisor()?.start_process(tool)?;
        Ok(Durward { part, reviews, admin })
    }

    /// Starts it and waits until it is ready.
    pub fn start_ready(self, context: &TestContext) -> Result<Durward> {
        let durward = self.start(context)?;
        durward.await_ready()?;
        Ok(durward)
    }
}

/// A running `durward serve`. It ends when it is dropped.
#[derive(Debug)]
pub struct Durward {
    part: Process,
    reviews: SocketAddr,
    admin: SocketAddr,
}

impl Durward {
    /// Returns the address of the HTTPS listener for reviews.
    pub fn reviews(&self) -> SocketAddr {
        self.reviews
    }

    /// Returns the address of the admin port, HTTP.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Returns its process id.
    pub fn pid(&self) -> i32 {
        self.part.pid()
    }

    /// Returns its log so far.
    pub fn log(&self) -> Result<String> {
        std::fs::read_to_string(self.part.log())
            .with_context(|| format!("cannot read {}", self.part.log().display()))
    }

    /// Reads a page of its admin port.
    pub fn page(&self, path: &str) -> Result<plain_http::Response> {
        plain_http::exchange_within((PAGE_WITHIN, PAGE_WITHIN), self.admin, "GET", path, "")
    }

    /// Waits until `/readyz` succeeds.
    pub fn await_ready(&self) -> Result<()> {
        self.await_readiness(true)
    }

    /// Waits until `/readyz` fails, which is the first step of a shutdown.
    pub fn await_unready(&self) -> Result<()> {
        self.await_readiness(false)
    }

    fn await_readiness(&self, ready: bool) -> Result<()> {
        let what = if ready { "Durward to be ready" } else { "Durward to report that it is not ready" };
        eventually(what, READY_WITHIN, || {
            if let Some(exit) = self.part.exit()? {
                return Err(self.part.failure(format_args!("ended with {exit}")));
            }
            Ok(match self.page("/readyz") {
                Ok(page) if (page.status == 200) == ready => Poll::Ready(()),
                Ok(page) => Poll::Pending(format!("{} {}", page.status, page.body)),
                Err(error) => Poll::Pending(format!("{error:#}")),
            })
        })
        .map_err(|error| self.part.failure(format_args!("{error:#}")))
    }

    /// Returns its current metrics.
    pub fn metrics(&self) -> Result<Metrics> {
        Metrics::parse(&self.page("/metrics")?.body)
    }

    /// Sends a signal: TERM ends it, HUP reloads its configuration.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.part.signal(signal)
    }

    /// Changes the configuration, and waits until the server uses it.
    pub fn reload_after(&self, change: impl FnOnce() -> Result<()>) -> Result<()> {
        let generation = || self.metrics()?.value("durward_config_generation", &[]);
        let before = generation()?;
        change()?;
        self.signal(Signal::HUP)?;
        eventually("a new configuration to be used", RELOADED_WITHIN, || {
            let now = generation()?;
            Ok(if now > before + 0.5 { Poll::Ready(()) } else { Poll::Pending(format!("generation {now}")) })
        })
    }

    /// Waits for its end after a signal.
    pub fn await_end(&self, within: Duration) -> Result<Exit> {
        let exit = self.part.wait(within)?;
        exit.with_context(|| self.part.failure(format_args!("still runs after {within:?}")).to_string())
    }

    /// Registers Durward with a cluster: applies the output of `durward manifests --config FILE --only webhooks`.
    ///
    /// Returns what was applied. The API server sees it with a delay, so the case waits for its effect.
    pub fn register(context: &TestContext, cluster: &Cluster, config: &Path) -> Result<String> {
        let printed = Self::webhooks(context, config)?;
        cluster.kubectl().apply(&printed)?.succeeded().context("what durward manifests printed")?;
        Ok(printed)
    }

    /// Returns the webhook configurations of a configuration file.
    pub fn webhooks(context: &TestContext, config: &Path) -> Result<String> {
        let config = config.display().to_string();
        let printed = Self::command(context, &["manifests", "--config", &config, "--only", "webhooks"])?
            .succeeded()
            .context("durward manifests")?
            .stdout;
        ensure!(!printed.trim().is_empty(), "durward manifests --only webhooks printed nothing");
        Ok(printed)
    }

    /// Deletes what [`Durward::register`] applied, and the native policies of other configurations.
    pub fn unregister(cluster: &Cluster, printed: &str) -> Result<()> {
        cluster.kubectl().run_with(&["delete", "--ignore-not-found", "-f", "-"], printed)?.succeeded()?;
        let policies = "validatingadmissionpolicies,validatingadmissionpolicybindings";
        let label = "app.kubernetes.io/managed-by=durward";
        cluster.kubectl().run(&["delete", policies, "-l", label])?.succeeded()?;
        Ok(())
    }

    /// Runs another command of the product to its end.
    pub fn command(context: &TestContext, arguments: &[&str]) -> Result<Output> {
        let tool = Tool::new("durward", context.durward_program()?).arguments(arguments.iter().copied());
        context.supervisor()?.run(tool, COMMAND_WITHIN)
    }
}

impl Drop for Durward {
    fn drop(&mut self) {
        // It can have ended already.
        let _ = self.part.end();
    }
}
