//! The Durward that guards the fleet of the run, and a case's stay in it.

use std::ops::Deref;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use anyhow::{Context as _, Error, Result};
use e2e::console::print;
use e2e::context::TestContext;
use e2e::durward::Durward;
use e2e::fleet::Fleet;
use e2e::fleet::FleetGuard;
use e2e::installation::Installation;
use e2e::wait::{Poll, eventually};
use rustix::process::Signal;

use super::attempt::try_delete;
use super::objects::path_of;

/// The group of every definition that cases make, but for those about other groups.
pub(super) const GROUP: &str = "shop.example.org";

/// What every configuration has, whatever else it says: a group more or less would change Durward's role in the
/// members, and the next case would meet the one before until Karmada has brought it.
pub(super) const GROUPS: &str = "crds: {groups: [shop.example.org]}";

/// What all cases share that say nothing else.
const DEFAULTS: &[&str] = &["fleet: {karmada: {}}", GROUPS];

/// A binding becomes an impersonation rule in every member, and a policy a role: two of Karmada's rounds.
const GRANTED_WITHIN: Duration = Duration::from_secs(90);

/// A file is read at once.
const READ_WITHIN: Duration = Duration::from_secs(30);

/// What stands in the fleet for the whole run.
struct House {
    fleet: &'static Fleet,
    installation: Mutex<Installation<'static>>,
    durward: Mutex<Option<Durward>>,
    rule: Mutex<Rule>,
    left: Condvar,
}

/// By which configuration Durward guards, and how many cases count on it.
struct Rule {
    guards: String,
    cases: usize,
}

/// A stay in the fleet with a Durward that guards it.
pub(super) struct Stay<G> {
    house: &'static House,
    _visit: FleetGuard<'static, G>,
}

impl<G> Drop for Stay<G> {
    fn drop(&mut self) {
        self.house.rule().cases -= 1;
        self.house.left.notify_all();
    }
}

/// Beside other cases.
pub(super) type Beside = Stay<RwLockReadGuard<'static, ()>>;

/// While no other case is in the fleet.
pub(super) type Alone = Stay<RwLockWriteGuard<'static, ()>>;

impl<G> Deref for Stay<G> {
    type Target = Fleet;

    fn deref(&self) -> &Fleet {
        self.house.fleet
    }
}

/// Comes in beside other cases.
pub(super) fn beside(context: &'static TestContext) -> Result<Beside> {
    beside_by(context, DEFAULTS)
}

/// Comes in beside other cases that want Durward to guard by this `deletion` section too, given as lines; when
/// those have left who want another. Its permissions are printed and granted with it.
pub(super) fn beside_by(context: &'static TestContext, lines: &[&str]) -> Result<Beside> {
    enter(context, context.fleet()?, lines)
}

/// Comes in when all others have left.
pub(super) fn alone(context: &'static TestContext) -> Result<Alone> {
    alone_by(context, DEFAULTS)
}

/// The same with a configuration.
pub(super) fn alone_by(context: &'static TestContext, lines: &[&str]) -> Result<Alone> {
    enter(context, context.exclusive_fleet()?, lines)
}

fn enter<G>(context: &'static TestContext, visit: FleetGuard<'static, G>, lines: &[&str]) -> Result<Stay<G>> {
    let house = house(context, visit.fixture())?;
    let guards = section(lines);
    let rule = house.rule();
    let mut rule = house
        .left
        .wait_while(rule, |rule| rule.cases > 0 && rule.guards != guards)
        .unwrap_or_else(PoisonError::into_inner);
    if rule.guards != guards {
        // Whatever comes of it, nobody may take it for the one before.
        rule.guards.clear();
        house.configure(&guards)?;
        rule.guards = guards;
    }
    rule.cases += 1;
    drop(rule);
    Ok(Stay { house, _visit: visit })
}

/// The `guards` section of a configuration file.
fn section(lines: &[&str]) -> String {
    lines.iter().fold("  deletion:".to_owned(), |section, line| section + "\n    " + line)
}

impl<G> Stay<G> {
    /// How Durward is installed.
    pub(super) fn installation(&self) -> MutexGuard<'static, Installation<'static>> {
        self.house.installation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the server that stands there.
    pub(super) fn durward<T>(&self, ask: impl FnOnce(&Durward) -> Result<T>) -> Result<T> {
        let durward = self.house.durward.lock().unwrap_or_else(PoisonError::into_inner);
        ask(durward.as_ref().context("Durward is down, for a case wanted it so")?)
    }

    /// How often Durward could not tell, for this cause.
    pub(super) fn unknown(&self, cause: &str) -> Result<f64> {
        let labels = [("guard", "deletion"), ("cause", cause)];
        self.durward(|durward| Ok(durward.metrics()?.sum("durward_unknown_total", &labels)))
    }
}

impl Alone {
    /// Ends the server in good order and starts another in its place.
    pub(super) fn replace_durward(&self, context: &'static TestContext) -> Result<()> {
        let old = self.house.durward.lock().unwrap_or_else(PoisonError::into_inner).take();
        let old = old.context("Durward is down, for a case wanted it so")?;
        old.signal(Signal::TERM)?;
        old.await_end(READ_WITHIN)?;
        self.house.start(context)
    }

    /// Replaces the server by one that asks the control plane at another URL, until what is returned is dropped.
    pub(super) fn asking_at(&self, context: &'static TestContext, url: &str) -> Result<Elsewhere<'_>> {
        self.installation().sees_the_cluster_at(url)?;
        let elsewhere = Elsewhere { stay: self, context };
        self.replace_durward(context)?;
        Ok(elsewhere)
    }

    /// Ends the server, so that nobody answers the API server, until what is returned is dropped.
    pub(super) fn without_durward(&self, context: &'static TestContext) -> Down {
        drop(self.house.durward.lock().unwrap_or_else(PoisonError::into_inner).take());
        Down { house: self.house, context }
    }
}

/// A server that asks the control plane at another URL.
#[must_use = "it is replaced at once when this is dropped"]
pub(super) struct Elsewhere<'a> {
    stay: &'a Alone,
    context: &'static TestContext,
}

impl Drop for Elsewhere<'_> {
    fn drop(&mut self) {
        let back = self.stay.installation().sees_the_cluster_at(self.stay.karmada().url());
        if let Err(error) = back.and_then(|()| self.stay.replace_durward(self.context)) {
            print(format_args!("the deletion guard does not come back to its control plane: {error:#}"));
        }
    }
}

/// No server.
#[must_use = "it is started again at once when this is dropped"]
pub(super) struct Down {
    house: &'static House,
    context: &'static TestContext,
}

impl Drop for Down {
    fn drop(&mut self) {
        if let Err(error) = self.house.start(self.context) {
            print(format_args!("the deletion guard does not start again: {error:#}"));
        }
    }
}

fn house(context: &'static TestContext, fleet: &'static Fleet) -> Result<&'static House> {
    static HOUSE: OnceLock<Result<House, String>> = OnceLock::new();
    let built = HOUSE.get_or_init(|| build(context, fleet).map_err(|error| format!("{error:#}")));
    built.as_ref().map_err(|why| Error::msg(format!("the Durward of the fleet does not stand: {why}")))
}

fn build(context: &'static TestContext, fleet: &'static Fleet) -> Result<House> {
    let guards = section(DEFAULTS);
    let installation = Installation::on_karmada(context, fleet, &guards)?;
    let house = House {
        fleet,
        installation: Mutex::new(installation),
        durward: Mutex::default(),
        rule: Mutex::new(Rule { guards, cases: 0 }),
        left: Condvar::new(),
    };
    house.start(context)?;
    house.installation.lock().unwrap_or_else(PoisonError::into_inner).register()?;
    house.await_sight()?;
    Ok(house)
}

impl House {
    fn rule(&self) -> MutexGuard<'_, Rule> {
        self.rule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self, context: &'static TestContext) -> Result<()> {
        let serve =
            self.installation.lock().unwrap_or_else(PoisonError::into_inner).serve().named("durward-karmada");
        let durward = serve.start_ready(context)?;
        *self.durward.lock().unwrap_or_else(PoisonError::into_inner) = Some(durward);
        Ok(())
    }

    fn configure(&self, guards: &str) -> Result<()> {
        let installation = self.installation.lock().unwrap_or_else(PoisonError::into_inner);
        let durward = self.durward.lock().unwrap_or_else(PoisonError::into_inner);
        let durward = durward.as_ref().context("Durward is down, for a case wanted it so")?;
        let generation = || durward.metrics()?.value("durward_config_generation", &[]);
        let before = generation()?;
        installation.configure(guards)?;
        installation.grant()?;
        durward.signal(Signal::HUP)?;
        eventually("a new configuration to bind", READ_WITHIN, || {
            let now = generation()?;
            Ok(if now > before + 0.5 { Poll::Ready(()) } else { Poll::Pending(format!("generation {now}")) })
        })?;
        self.await_sight()
    }

    /// Waits until Durward is called and permitted to see into every member: until an empty namespace may be
    /// deleted, and the preview says that all of them were looked at.
    fn await_sight(&self) -> Result<()> {
        let probe = self.fleet.namespace("probe")?;
        let clusters = self.fleet.members().len() + 1;
        let expected = format!("is in use in {clusters} clusters");
        let path = path_of(&probe);
        eventually("Durward to see into every member", GRANTED_WITHIN, || {
            let attempt = try_delete(self.fleet.karmada().api(), &path)?;
            Ok(if attempt.has_warning(&expected) { Poll::Ready(()) } else { Poll::Pending(attempt.told()) })
        })
    }
}
