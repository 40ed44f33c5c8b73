//! The fleet of the run with the Durward that guards it.

use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLockReadGuard, RwLockWriteGuard};

use e2e::fixture::{ConfigurationGuard, ConfigurationLock, FixtureGuard};
use e2e::prelude::*;
use rustix::process::Signal;

use super::objects::{delete, dry_run, path_of};
use crate::cases::attempt::{Attempt, retry_until};

/// The group of the CRDs of all cases, except those about other groups.
pub(super) const GROUP: &str = "shop.example.org";

/// A line of every configuration. Other groups would change Durward's role in the members, which Karmada updates slowly.
pub(super) const GROUPS: &str = "crds: {apiGroups: [shop.example.org]}";

/// The configuration of most cases.
const DEFAULTS: &[&str] = &["fleet: karmada", GROUPS];

const RETRIES_OF_A_BUSY_MACHINE: u32 = 4;

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

pub(super) type SharedFleet = GuardedFleet<RwLockReadGuard<'static, ()>>;

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

fn section(lines: &[&str]) -> String {
    lines.iter().fold("  deletion:".to_owned(), |section, line| section + "\n    " + line)
}

impl<G> GuardedFleet<G> {
    pub(super) fn installation(&self) -> MutexGuard<'static, Installation<'static>> {
        self.environment.installation()
    }

    /// Creates a namespace with a unique name. Returns it with its path.
    pub(super) fn new_namespace(&self, name: &str) -> Result<(Namespace<'_>, String)> {
        let namespace = self.namespace(name)?;
        let path = path_of(&namespace);
        Ok((namespace, path))
    }

    /// Creates a running pod in a propagated namespace of a member.
    pub(super) fn run_pod(&self, member: &str, namespace: &Namespace<'_>, name: &str) -> Result<()> {
        let member = self.member(member)?;
        member.make_running_pod(&member.existing_namespace(namespace.name()), name)
    }

    /// Calls a function with the running server.
    pub(super) fn durward<T>(&self, call: impl FnOnce(&Durward) -> Result<T>) -> Result<T> {
        call(self.environment.durward().as_ref().context("a case has stopped Durward")?)
    }

    /// Repeats a dry run until `is_expected` accepts the response.
    pub(super) fn await_dry_run(
        &self,
        what: &str,
        path: &str,
        is_expected: impl Fn(&Attempt) -> bool,
    ) -> Result<()> {
        retry_until(what, || dry_run(self.karmada().api(), path), is_expected)
    }

    /// Returns the number of Unknown results with this cause.
    pub(super) fn unknown(&self, cause: &str) -> Result<f64> {
        let labels = [("guard", "deletion"), ("cause", cause)];
        self.durward(|durward| Ok(durward.metrics()?.sum("durward_unknown_total", &labels)))
    }
}

impl SharedFleet {
    pub(super) fn delete(&self, path: &str) -> Result<Attempt> {
        answered_by_all(|| delete(self.karmada().api(), path))
    }

    pub(super) fn dry_run(&self, path: &str) -> Result<Attempt> {
        answered_by_all(|| dry_run(self.karmada().api(), path))
    }
}

/// Repeats a request whose denial says that a cluster did not answer in time. Only exclusive cases stop clusters: here the machine is busy.
fn answered_by_all(send: impl Fn() -> Result<Attempt>) -> Result<Attempt> {
    for _ in 0..RETRIES_OF_A_BUSY_MACHINE {
        let attempt = send()?;
        if attempt.is_allowed() || !attempt.contains("did not answer in ") {
            return Ok(attempt);
        }
    }
    send()
}

impl ExclusiveFleet {
    pub(super) fn delete(&self, path: &str) -> Result<Attempt> {
        delete(self.karmada().api(), path)
    }

    pub(super) fn dry_run(&self, path: &str) -> Result<Attempt> {
        dry_run(self.karmada().api(), path)
    }

    /// Stops the server gracefully and starts another one.
    pub(super) fn restart_durward(&self, context: &'static TestContext) -> Result<()> {
        let old = self.environment.durward().take().context("a case has stopped Durward")?;
        old.signal(Signal::TERM)?;
        old.await_end(STOPPED_WITHIN)?;
        self.environment.serve(context)
    }

    /// Replaces the server by one that reads the control plane at this URL, until the result is dropped.
    pub(super) fn reading_from(&self, context: &'static TestContext, url: &str) -> Result<Undo<'_>> {
        self.installation().use_cluster_url(url)?;
        let undo = Undo::new("the deletion guard does not return to its control plane", move || {
            self.installation().use_cluster_url(self.karmada().url())?;
            self.restart_durward(context)
        });
        self.restart_durward(context)?;
        Ok(undo)
    }

    /// Stops the server until the result is dropped.
    pub(super) fn stop_durward(&self, context: &'static TestContext) -> Undo<'_> {
        drop(self.environment.durward().take());
        Undo::new("the deletion guard does not start again", move || self.environment.serve(context))
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
        let members = self.fleet.members().len();
        let expected = format!("is not in use in the control plane and {members} member clusters");
        let path = path_of(&probe);
        let send = || dry_run(self.fleet.karmada().api(), &path);
        retry_until("Durward to read every member", send, |attempt| attempt.has_warning(&expected))
    }
}
