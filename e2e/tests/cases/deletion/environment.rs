//! The fleet of the run with the Durward that guards it.

use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use anyhow::{Context as _, Result};
use e2e::console::print;
use e2e::context::TestContext;
use e2e::durward::Durward;
use e2e::fixture::{ConfigurationGuard, ConfigurationLock, FixtureGuard, Lazy};
use e2e::fleet::Fleet;
use e2e::installation::Installation;
use e2e::wait::{Poll, eventually};
use rustix::process::Signal;

use super::objects::{dry_run, path_of};

/// The group of the CRDs of all cases, except those about other groups.
pub(super) const GROUP: &str = "shop.example.org";

/// A line of every configuration. Other groups would change Durward's role in the members, which Karmada updates slowly.
pub(super) const GROUPS: &str = "crds: {groups: [shop.example.org]}";

/// The configuration of most cases.
const DEFAULTS: &[&str] = &["fleet: {karmada: {}}", GROUPS];

/// A binding becomes an impersonation rule in every member, and a policy a role: two rounds of Karmada.
const GRANTED_WITHIN: Duration = Duration::from_secs(90);

/// Time for a server to stop.
const STOPPED_WITHIN: Duration = Duration::from_secs(30);

struct Environment {
    fleet: &'static Fleet,
    installation: Mutex<Installation<'static>>,
    /// `None` while a case has stopped it.
    durward: Mutex<Option<Durward>>,
    configuration: ConfigurationLock,
}

/// Access to the fleet while Durward guards it.
pub(super) struct GuardedFleet<G> {
    environment: &'static Environment,
    _configuration: ConfigurationGuard<'static>,
    _fleet: FixtureGuard<'static, Fleet, G>,
}

/// The fleet for several cases at the same time.
pub(super) type SharedFleet = GuardedFleet<RwLockReadGuard<'static, ()>>;

/// The fleet for one case.
pub(super) type ExclusiveFleet = GuardedFleet<RwLockWriteGuard<'static, ()>>;

impl<G> Deref for GuardedFleet<G> {
    type Target = Fleet;

    fn deref(&self) -> &Fleet {
        self.environment.fleet
    }
}

/// Shares the fleet with other cases.
pub(super) fn shared(context: &'static TestContext) -> Result<SharedFleet> {
    shared_with(context, DEFAULTS)
}

/// Shares the fleet with cases that need the same lines in the `deletion` section.
pub(super) fn shared_with(context: &'static TestContext, lines: &[&str]) -> Result<SharedFleet> {
    guarded(context, context.fleet()?, lines)
}

/// Waits until no other case uses the fleet.
pub(super) fn exclusive(context: &'static TestContext) -> Result<ExclusiveFleet> {
    exclusive_with(context, DEFAULTS)
}

/// Does the same with these lines in the `deletion` section.
pub(super) fn exclusive_with(context: &'static TestContext, lines: &[&str]) -> Result<ExclusiveFleet> {
    guarded(context, context.exclusive_fleet()?, lines)
}

fn guarded<G>(
    context: &'static TestContext,
    fleet: FixtureGuard<'static, Fleet, G>,
    lines: &[&str],
) -> Result<GuardedFleet<G>> {
    static ENVIRONMENT: Lazy<Environment> = Lazy::new();
    let environment = ENVIRONMENT
        .get(|| Environment::start(context, fleet.fixture()))
        .context("the Durward of the fleet does not start")?;
    let guards = section(lines);
    let configuration = environment.configuration.acquire(&guards, || environment.configure(&guards))?;
    Ok(GuardedFleet { environment, _configuration: configuration, _fleet: fleet })
}

/// Returns the `guards` section of a configuration file.
fn section(lines: &[&str]) -> String {
    lines.iter().fold("  deletion:".to_owned(), |section, line| section + "\n    " + line)
}

impl<G> GuardedFleet<G> {
    /// Returns the installation of Durward.
    pub(super) fn installation(&self) -> MutexGuard<'static, Installation<'static>> {
        self.environment.installation()
    }

    /// Calls a function with the running server.
    pub(super) fn durward<T>(&self, call: impl FnOnce(&Durward) -> Result<T>) -> Result<T> {
        call(self.environment.durward().as_ref().context("a case has stopped Durward")?)
    }

    /// Returns the number of Unknown results with this cause.
    pub(super) fn unknown(&self, cause: &str) -> Result<f64> {
        let labels = [("guard", "deletion"), ("cause", cause)];
        self.durward(|durward| Ok(durward.metrics()?.sum("durward_unknown_total", &labels)))
    }
}

impl ExclusiveFleet {
    /// Stops the server gracefully and starts another one.
    pub(super) fn restart_durward(&self, context: &'static TestContext) -> Result<()> {
        let old = self.environment.durward().take().context("a case has stopped Durward")?;
        old.signal(Signal::TERM)?;
        old.await_end(STOPPED_WITHIN)?;
        self.environment.serve(context)
    }

    /// Replaces the server by one that reads the control plane at this URL, until the result is dropped.
    pub(super) fn reading_from(
        &self,
        context: &'static TestContext,
        url: &str,
    ) -> Result<OtherControlPlane<'_>> {
        self.installation().sees_the_cluster_at(url)?;
        let replaced = OtherControlPlane { fleet: self, context };
        self.restart_durward(context)?;
        Ok(replaced)
    }

    /// Stops the server until the result is dropped.
    pub(super) fn stop_durward(&self, context: &'static TestContext) -> StoppedDurward {
        drop(self.environment.durward().take());
        StoppedDurward { environment: self.environment, context }
    }
}

/// A server that reads the control plane at another URL. It is replaced on drop.
#[must_use = "the server is replaced when this is dropped"]
pub(super) struct OtherControlPlane<'a> {
    fleet: &'a ExclusiveFleet,
    context: &'static TestContext,
}

impl Drop for OtherControlPlane<'_> {
    fn drop(&mut self) {
        let restored = self.fleet.installation().sees_the_cluster_at(self.fleet.karmada().url());
        if let Err(error) = restored.and_then(|()| self.fleet.restart_durward(self.context)) {
            print(format_args!("the deletion guard is not restored to its control plane: {error:#}"));
        }
    }
}

/// A stopped server. It starts again on drop.
#[must_use = "the server starts when this is dropped"]
pub(super) struct StoppedDurward {
    environment: &'static Environment,
    context: &'static TestContext,
}

impl Drop for StoppedDurward {
    fn drop(&mut self) {
        if let Err(error) = self.environment.serve(self.context) {
            print(format_args!("the deletion guard does not start again: {error:#}"));
        }
    }
}

impl Environment {
    fn start(context: &'static TestContext, fleet: &'static Fleet) -> Result<Self> {
        let guards = section(DEFAULTS);
        let installation = Installation::on_karmada(context, fleet, &guards)?;
        let environment = Self {
            fleet,
            installation: Mutex::new(installation),
            durward: Mutex::default(),
            configuration: ConfigurationLock::new(&guards),
        };
        environment.serve(context)?;
        environment.installation().register()?;
        environment.await_access()?;
        Ok(environment)
    }

    fn installation(&self) -> MutexGuard<'_, Installation<'static>> {
        self.installation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn durward(&self) -> MutexGuard<'_, Option<Durward>> {
        self.durward.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, context: &'static TestContext) -> Result<()> {
        let serve = self.installation().serve().named("durward-karmada");
        let durward = serve.start_ready(context)?;
        *self.durward() = Some(durward);
        Ok(())
    }

    fn configure(&self, guards: &str) -> Result<()> {
        let installation = self.installation();
        let durward = self.durward();
        let durward = durward.as_ref().context("a case has stopped Durward")?;
        durward.reload_after(|| installation.configure(guards).and_then(|()| installation.grant()))?;
        self.await_access()
    }

    /// Waits until Durward can read every member, that is until it has read all of them for a dry run.
    fn await_access(&self) -> Result<()> {
        let probe = self.fleet.namespace("probe")?;
        let clusters = self.fleet.members().len() + 1;
        let expected = format!("is in use in {clusters} clusters");
        let path = path_of(&probe);
        eventually("Durward to read every member", GRANTED_WITHIN, || {
            let attempt = dry_run(self.fleet.karmada().api(), &path)?;
            let has_access = attempt.has_warning(&expected);
            Ok(if has_access { Poll::Ready(()) } else { Poll::Pending(attempt.describe()) })
        })
    }
}
