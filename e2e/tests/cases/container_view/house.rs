//! The Durward that is asked about the node's pods, and a case's stay with it.
//!
//! It stands as long as somebody is there: a cluster has one Durward at a time, and other rooms install theirs on
//! the node too.

use std::ops::Deref;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use anyhow::Result;
use e2e::context::TestContext;
use e2e::durward::Durward;
use e2e::installation::Installation;
use e2e::node::{Node, NodeGuard};
use e2e::wait::{Poll, eventually};
use rustix::process::Signal;

use crate::cases::house::{DEFAULTS, await_files};

/// A file is read at once.
const READ_WITHIN: Duration = Duration::from_secs(30);

/// The one house of the run.
static HOUSE: House = House { inside: Mutex::new(Inside::empty()), left: Condvar::new() };

struct House {
    inside: Mutex<Inside>,
    left: Condvar,
}

/// What stands, by which `guards` section, and how many cases count on it.
struct Inside {
    standing: Option<Standing>,
    guards: String,
    cases: usize,
}

impl Inside {
    const fn empty() -> Self {
        Self { standing: None, guards: String::new(), cases: 0 }
    }
}

/// A stay on the node with a Durward that is asked about its pods.
pub(super) struct Stay<G> {
    visit: NodeGuard<'static, G>,
}

/// Beside other cases.
pub(super) type Beside = Stay<RwLockReadGuard<'static, ()>>;

/// While no other case is on the node.
pub(super) type Alone = Stay<RwLockWriteGuard<'static, ()>>;

impl<G> Deref for Stay<G> {
    type Target = Node;

    fn deref(&self) -> &Node {
        self.visit.fixture()
    }
}

impl<G> Drop for Stay<G> {
    fn drop(&mut self) {
        let mut inside = HOUSE.inside();
        inside.cases -= 1;
        if inside.cases == 0 {
            // Before the next case may come to the node: it may want to install another.
            *inside = Inside::empty();
        }
        drop(inside);
        HOUSE.left.notify_all();
    }
}

/// Comes in beside other cases.
pub(super) fn beside(context: &'static TestContext) -> Result<Beside> {
    beside_by(context, DEFAULTS)
}

/// Comes in beside other cases that want this `guards` section too, when those have left who want another.
pub(super) fn beside_by(context: &'static TestContext, guards: &str) -> Result<Beside> {
    enter(context, context.node()?, guards)
}

/// Comes in when all others have left.
pub(super) fn alone(context: &'static TestContext) -> Result<Alone> {
    enter(context, context.exclusive_node()?, DEFAULTS)
}

fn enter<G>(context: &'static TestContext, visit: NodeGuard<'static, G>, guards: &str) -> Result<Stay<G>> {
    let others = |inside: &mut Inside| inside.cases > 0 && inside.guards != guards;
    let mut inside = HOUSE.left.wait_while(HOUSE.inside(), others).unwrap_or_else(PoisonError::into_inner);
    // Through the guard once, for both fields.
    let Inside { standing, guards: now, .. } = &mut *inside;
    let standing = match standing {
        Some(standing) => standing,
        none => {
            DEFAULTS.clone_into(now);
            none.insert(Standing::build(context, visit.fixture())?)
        }
    };
    if now != guards {
        // Whatever comes of it, nobody may take it for the one before.
        now.clear();
        standing.configure(guards)?;
        guards.clone_into(now);
    }
    inside.cases += 1;
    drop(inside);
    Ok(Stay { visit })
}

impl House {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A server and its registration; the server outlives the registration.
struct Standing {
    installation: Installation<'static>,
    durward: Durward,
}

impl Standing {
    /// With the guard's defaults.
    fn build(context: &'static TestContext, node: &'static Node) -> Result<Self> {
        let mut installation = Installation::by_url(context, node.cluster(), DEFAULTS)?;
        let durward = installation.serve().named("durward-node").start_ready(context)?;
        installation.register()?;
        await_files(&*node.namespace("probe")?)?;
        Ok(Self { installation, durward })
    }

    fn configure(&self, guards: &str) -> Result<()> {
        let generation = || self.durward.metrics()?.value("durward_config_generation", &[]);
        let before = generation()?;
        self.installation.configure(guards)?;
        self.installation.grant()?;
        self.durward.signal(Signal::HUP)?;
        eventually("a new configuration to bind", READ_WITHIN, || {
            let now = generation()?;
            Ok(if now > before + 0.5 { Poll::Ready(()) } else { Poll::Pending(format!("generation {now}")) })
        })
    }
}
