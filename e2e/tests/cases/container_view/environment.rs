//! The node of the run with a Durward that reviews its pods.

use std::ops::Deref;
use std::sync::{RwLockReadGuard, RwLockWriteGuard};

use e2e::fixture::{ConfigurationGuard, ConfigurationLock, FixtureGuard};
use e2e::prelude::*;

use crate::cases::environment::{DEFAULTS, await_injection};

struct Environment {
    installation: Installation<'static>,
    durward: Durward,
    configuration: ConfigurationLock,
}

/// Access to the node while Durward reviews its pods.
pub(super) struct ReviewedNode<G> {
    _configuration: ConfigurationGuard<'static>,
    node: FixtureGuard<'static, Node, G>,
}

pub(super) type SharedNode = ReviewedNode<RwLockReadGuard<'static, ()>>;

pub(super) type ExclusiveNode = ReviewedNode<RwLockWriteGuard<'static, ()>>;

impl<G> Deref for ReviewedNode<G> {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.node
    }
}

/// Shares the node with other cases.
pub(super) fn shared(context: &'static TestContext) -> Result<SharedNode> {
    shared_with(context, DEFAULTS)
}

/// Shares the node with cases that need the same `guards` section.
pub(super) fn shared_with(context: &'static TestContext, guards: &str) -> Result<SharedNode> {
    reviewed(context, context.node()?, guards)
}

/// Waits until no other case uses the node.
pub(super) fn exclusive(context: &'static TestContext) -> Result<ExclusiveNode> {
    reviewed(context, context.exclusive_node()?, DEFAULTS)
}

fn reviewed<G>(
    context: &'static TestContext,
    node: FixtureGuard<'static, Node, G>,
    guards: &str,
) -> Result<ReviewedNode<G>> {
    static ENVIRONMENT: Lazy<Environment> = Lazy::new();
    let environment = ENVIRONMENT
        .get(|| Environment::start(context, node.fixture()))
        .context("the Durward of the node does not start")?;
    let configuration = environment.configuration.acquire(guards, || environment.configure(guards))?;
    Ok(ReviewedNode { _configuration: configuration, node })
}

impl Environment {
    fn start(context: &'static TestContext, node: &'static Node) -> Result<Self> {
        let (installation, durward) = Installation::start(context, node.cluster(), DEFAULTS, "durward-node")?;
        await_injection(&*node.namespace("probe")?)?;
        Ok(Self { installation, durward, configuration: ConfigurationLock::new(DEFAULTS) })
    }

    fn configure(&self, guards: &str) -> Result<()> {
        self.durward
            .reload_after(|| self.installation.configure(guards).and_then(|()| self.installation.grant()))
    }
}
