//! One review: decide by the request, read the facts, decide by the facts.

use std::sync::Arc;
use std::time::Instant;

use admission::budget::Budget;
use admission::{BoxFuture, Fields, Guard, Request, Ruling, SettlePolicy};

use super::config::Config;
use super::decide::{self, Next};
use super::facts::FactsReader;
use super::{owners, target};
use cluster::Clients;

/// The guard that reviews deletions.
pub(super) struct DeletionGuard {
    config: Config,
    clients: Clients,
    fields: Fields,
    /// The memory budget that all reviews share.
    budget: Arc<Budget>,
}

impl DeletionGuard {
    pub(super) fn new(config: Config, clients: Clients) -> Self {
        Self { config, clients, fields: Fields::new(&target::POINTERS), budget: owners::budget() }
    }
}

impl Guard for DeletionGuard {
    fn name(&self) -> &'static str {
        super::NAME
    }

    fn fields(&self) -> &Fields {
        &self.fields
    }

    fn settle_policy(&self) -> &SettlePolicy {
        &self.config.common_config.settle_policy
    }

    fn logs_every_ruling(&self) -> bool {
        true
    }

    fn review<'a>(&'a self, request: &'a Request<'a>, deadline: Instant) -> BoxFuture<'a, Ruling> {
        Box::pin(async move {
            let Self { config, clients, budget, .. } = self;
            let (target, list_only) = match decide::open(config, request, clients.context.now()) {
                Next::Rule(ruling) => return ruling,
                Next::ReadFacts { target, list_only } => (target, list_only),
            };
            let reader = FactsReader { clients, config, progress: &|_| {}, budget };
            let facts = reader.read(&target, deadline.into(), list_only).await;
            decide::close(config, &target, &facts)
        })
    }
}
