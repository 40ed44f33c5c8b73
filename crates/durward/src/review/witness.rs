//! A world that remembers what was asked of it, so that `-v` can tell which facts a verdict stands on.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use admission::BoxFuture;
use guards::world::{Address, Answer, Readiness, Resource, World};

/// Another world, and what it was asked.
pub(crate) struct Witness {
    world: Arc<dyn World>,
    facts: Mutex<Vec<String>>,
}

impl Witness {
    /// Over this world.
    pub(crate) fn over(world: Arc<dyn World>) -> Self {
        Self { world, facts: Mutex::default() }
    }

    /// What was asked since the last call, and what the answer was.
    pub(crate) fn facts(&self) -> Vec<String> {
        std::mem::take(&mut *self.facts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn note(&self, address: Address<'_>, answer: &Answer) {
        let told = match answer {
            Ok(None) => "is not there".to_owned(),
            Ok(Some(found)) if found.labels.is_empty() => "has no labels".to_owned(),
            Ok(Some(found)) => {
                let labels: Vec<_> =
                    found.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
                format!("has labels {}", labels.join(", "))
            }
            Err(cause) => format!("unknown ({}): {}", cause.code, cause.text),
        };
        let mut facts = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        let fact = format!("{address} {told}");
        // Asked again and told the same: one fact.
        if facts.last() != Some(&fact) {
            facts.push(fact);
        }
    }
}

impl World for Witness {
    fn get<'a>(&'a self, address: Address<'a>, deadline: Instant) -> BoxFuture<'a, Answer> {
        Box::pin(async move {
            let answer = self.world.get(address, deadline).await;
            self.note(address, &answer);
            answer
        })
    }

    fn ask<'a>(&'a self, address: Address<'a>, deadline: Instant) -> BoxFuture<'a, Answer> {
        Box::pin(async move {
            let answer = self.world.ask(address, deadline).await;
            self.note(address, &answer);
            answer
        })
    }

    fn watch(&self, resource: &Resource) {
        self.world.watch(resource);
    }

    fn readiness(&self) -> Vec<Readiness> {
        self.world.readiness()
    }
}
