//! Durward itself: the product's binary, started like any other part, and talked to as its operator would.
//!
//! A case writes the configuration and says what it expects. How Durward is registered is not the case's to
//! say: [`crate::installation::Installation::register`] applies what `durward manifests --only registration`
//! prints and nothing else.

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

/// A debug build on a loaded machine, with a first look at a cluster.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Time to read a configuration after a signal, on a loaded machine.
const RELOADED_WITHIN: Duration = Duration::from_secs(60);

/// For everything but `serve`.
const COMMAND_WITHIN: Duration = Duration::from_secs(60);

/// How `durward serve` is to be started.
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
    /// With this configuration file, listening on 127.0.0.1; the ports are chosen here and given as flags.
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

    /// The name of its log.
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Listening for reviews on another address of this host, as it must behind a Service.
    pub fn listening_on(mut self, host: impl Into<IpAddr>) -> Self {
        self.host = host.into();
        self
    }

    /// Listening for reviews exactly here.
    pub fn listening_at(mut self, listener: SocketAddr) -> Self {
        self.host = listener.ip();
        self.port = Some(listener.port());
        self
    }

    /// One more flag.
    pub fn flag(mut self, flag: impl Into<String>) -> Self {
        self.arguments.push(flag.into());
        self
    }

    /// Starts it without waiting for anything.
    pub fn start(self, context: &TestContext) -> Result<Durward> {
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let reviews = SocketAddr::new(self.host, self.port.map_or_else(ports::free, Ok)?);
        let admin = SocketAddr::new(loopback, ports::free()?);
        let local = SocketAddr::new(loopback, ports::free()?);
        let tool = Tool::new(self.name, context.durward_program()?)
            .arguments(["serve", "--config"])
            .argument(self.config.display().to_string())
            .arguments(["--listen".to_owned(), reviews.to_string()])
            .arguments(["--admin".to_owned(), admin.to_string()])
            .arguments(["--local".to_owned(), local.to_string()])
            .arguments(self.arguments);
        let part = context.supervisor()?.start_process(tool)?;
        Ok(Durward { part, reviews, admin, local })
    }

    /// Starts it and returns when it says that it is ready.
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
    local: SocketAddr,
}

impl Durward {
    /// Where it takes reviews, over HTTPS.
    pub fn reviews(&self) -> SocketAddr {
        self.reviews
    }

    /// Where it tells of itself, over HTTP.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Where it takes orders of its operator, over HTTP.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.part.pid()
    }

    /// All that it has logged so far.
    pub fn log(&self) -> Result<String> {
        std::fs::read_to_string(self.part.log())
            .with_context(|| format!("cannot read {}", self.part.log().display()))
    }

    /// A page of its admin port.
    pub fn page(&self, path: &str) -> Result<plain_http::Response> {
        plain_http::get(self.admin, path)
    }

    /// Waits until `/readyz` says yes.
    pub fn await_ready(&self) -> Result<()> {
        self.await_readiness(true)
    }

    /// Waits until `/readyz` says no, as it does first of all when it is asked to end.
    pub fn await_unready(&self) -> Result<()> {
        self.await_readiness(false)
    }

    fn await_readiness(&self, ready: bool) -> Result<()> {
        let what = if ready { "Durward to be ready" } else { "Durward to say that it is not ready" };
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

    /// Its metrics, now.
    pub fn metrics(&self) -> Result<Metrics> {
        Metrics::parse(&self.page("/metrics")?.body)
    }

    /// Sends it a signal: TERM to end, HUP to read its configuration again.
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

    /// Waits for its end, which somebody must have asked for.
    pub fn await_end(&self, within: Duration) -> Result<Exit> {
        let exit = self.part.wait(within)?;
        exit.with_context(|| self.part.failure(format_args!("still runs after {within:?}")).to_string())
    }

    /// Registers Durward with a cluster: what `durward manifests --config FILE --only registration` prints,
    /// by `kubectl apply`.
    ///
    /// Returns what was applied. The API server takes a moment to follow: wait for what the case expects, not
    /// for a time.
    pub fn register(context: &TestContext, cluster: &Cluster, config: &Path) -> Result<String> {
        let config = config.display().to_string();
        let printed = Self::command(context, &["manifests", "--config", &config, "--only", "registration"])?
            .succeeded()
            .context("durward manifests")?
            .stdout;
        ensure!(!printed.trim().is_empty(), "durward manifests --only registration printed nothing");
        cluster.kubectl().apply(&printed)?.succeeded().context("what durward manifests printed")?;
        Ok(printed)
    }

    /// Takes back what [`Durward::register`] applied, so that the next case on the same cluster meets no
    /// webhook.
    pub fn unregister(cluster: &Cluster, printed: &str) -> Result<()> {
        cluster.kubectl().run_with(&["delete", "--ignore-not-found", "-f", "-"], printed)?.succeeded()?;
        Ok(())
    }

    /// Any other command of the product, run to its end.
    pub fn command(context: &TestContext, arguments: &[&str]) -> Result<Output> {
        let tool = Tool::new("durward", context.durward_program()?).arguments(arguments.iter().copied());
        context.supervisor()?.run(tool, COMMAND_WITHIN)
    }
}

impl Drop for Durward {
    fn drop(&mut self) {
        // Already ended, or the run is over and the supervisor ends it: both leave nothing to do.
        let _ = self.part.end();
    }
}
