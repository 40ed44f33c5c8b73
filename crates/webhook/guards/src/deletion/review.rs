//! One review: decide by the request, read the stored object, decide by its metadata, read the facts, decide by the facts.

use std::future::ready;
use std::time::Instant;

use admission::{BoxFuture, Fields, Guard, Request, Ruling, SettlePolicy};

use super::case::Case;
use super::config::Config;
use super::decide;
use super::facts::FactsReader;
use super::messages;
use super::target::{Target, TargetField};

use cluster::Clients;

/// The guard that reviews deletions.
pub(super) struct DeletionGuard {
    config: Config,
    clients: Clients,
    fields: Fields,
}

impl DeletionGuard {
    pub(super) fn new(config: Config, clients: Clients) -> Self {
        Self { config, clients, fields: Fields::new(&TargetField::POINTERS) }
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
        match decide::open(&self.config, request) {
            Ok(target) => Box::pin(self.review_target(target, deadline)),
            // The future above is large, and not needed here.
            Err(ruling) => Box::pin(ready(*ruling)),
        }
    }
}

impl DeletionGuard {
    async fn review_target(&self, mut target: Target, deadline: Instant) -> Ruling {
        let Self { config, clients, .. } = self;
        let reader = FactsReader { clients, config, progress: &|_| {} };
        let now = || clients.context.now();
        let unread = if target.subject.kind.is_secret() {
            None
        } else {
            let stored = reader.stored(&target, deadline.into()).await;
            if let Ok(None) = stored {
                let why = messages::another_cluster(&target);
                return decide::unidentified(&Case::new(config, &target, now()), why);
            }
            // An override counts also if the API server does not answer Durward. It is in the object that the review contains.
            stored.map(|stored| target.set_metadata(stored)).err()
        };
        let case = Case::new(config, &target, now());
        match (decide::by_metadata(&case), unread) {
            (Some(ruling), _) => ruling,
            (None, Some(why)) => decide::unidentified(&case, why),
            (None, None) => {
                let facts = reader.read(&case, deadline.into(), case.reads_clusters()).await;
                decide::close(&case, &facts)
            }
        }
    }
}
