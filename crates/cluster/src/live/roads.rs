//! By which API server a cluster is reached: the one that leads here, or one of its own, with its client and its places.
//!
//! A client is made when it is first needed, and anew when what it was made of changes: the list of the fleet, which every review
//! reads, says at which version each Secret is, and what each context of the kubeconfig consists of. Otherwise an old client would
//! ask the cluster that a name led to once, and its emptiness would speak for another one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use admission::{BoxFuture, Cause};
use futures_util::FutureExt as _;
use futures_util::future::Shared;
use hyper::StatusCode;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};

use super::access::{Access, Contexts};
use super::api::{Api, OBJECT_LIMIT, WHOLE};
use super::body::Room;
use super::failure::{brief, is_about};
use super::lanes::{LANES, Lanes};
use super::{CREDENTIALS_WITHIN, path, secret, transport};
use crate::fleet::Cluster;
use crate::{Address, Resource, cause};

/// To read a Secret, for a client that outlives the review that needed it first.
const SECRET_WITHIN: Duration = Duration::from_secs(10);

/// An API server that can be asked, and the places for questions to it.
pub(super) struct Road {
    pub(super) api: Api,
    pub(super) lanes: Lanes,
}

/// After a context's credentials could not be had they are not tried for again for so long, as long as the context is the same:
/// a plugin asks a cloud, and each review would let it do so again.
const TRIED_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// Credential plugins that may run at once. One that hangs cannot be ended from here and keeps its thread: without a bound they
/// would take every thread that blocking work has (tokio: 512).
const PLUGINS: usize = 64;

/// A road, or why there is none.
type Made = Result<Arc<Road>, Cause>;

/// All roads.
pub(super) struct Roads {
    pub(super) here: Arc<Road>,
    pub(super) access: Access,
    runtime: Handle,
    others: Mutex<Others>,
    plugins: Arc<Semaphore>,
}

#[derive(Default)]
struct Others {
    roads: HashMap<Cluster, Other>,
    /// Secrets and contexts, and their versions in the newest list of the fleet.
    versions: HashMap<Cluster, String>,
}

struct Other {
    version: String,
    made: Shared<BoxFuture<'static, Made>>,
    attempt: Arc<Attempt>,
}

/// What is known of the making of a road while it goes on, and after it failed.
#[derive(Debug, Default)]
struct Attempt {
    /// Held while a plugin runs, which may be for longer than anybody waits for it.
    runs: AtomicBool,
    failed: OnceLock<Instant>,
}

/// While it is there, a plugin runs.
struct Running(Arc<Attempt>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.runs.store(false, Ordering::Release);
    }
}

impl Attempt {
    /// Whether another one would do the same again, too soon.
    fn stands(&self, now: Instant) -> bool {
        self.runs.load(Ordering::Acquire)
            || self.failed.get().is_some_and(|&at| now.saturating_duration_since(at) < TRIED_AGAIN_AFTER)
    }
}

impl Roads {
    pub(super) fn new(api: Api, access: Access, runtime: Handle) -> Self {
        let here = Arc::new(Road { api, lanes: Lanes::new(LANES) });
        Self { here, access, runtime, others: Mutex::default(), plugins: Arc::new(Semaphore::new(PLUGINS)) }
    }

    /// The list of the fleet has these Secrets, at these versions. Roads to those that are not there any more end.
    pub(super) fn secrets_are(&self, versions: HashMap<Cluster, String>) {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let Others { roads, .. } = &mut *others;
        let gone = |of: &Cluster| matches!(of, Cluster::Secret(..)) && !versions.contains_key(of);
        roads.retain(|of, _| !gone(of));
        others.versions.retain(|of, _| !matches!(of, Cluster::Secret(..)));
        others.versions.extend(versions);
    }

    /// The kubeconfig has these contexts now.
    pub(super) fn contexts_are(&self, contexts: &Contexts) {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, version) in &contexts.versions {
            others.versions.insert(Cluster::Context(name.as_str().into()), version.to_string());
        }
    }

    /// The road to a cluster.
    pub(super) async fn to(&self, of: &Cluster) -> Made {
        match of {
            Cluster::Local | Cluster::Member(_) => Ok(Arc::clone(&self.here)),
            Cluster::Context(_) | Cluster::Secret(..) => self.other(of).await,
        }
    }

    fn other(&self, of: &Cluster) -> Shared<BoxFuture<'static, Made>> {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let Others { roads, versions } = &mut *others;
        let version = versions.get(of).cloned().unwrap_or_default();
        if let Some(road) = roads.get(of)
            && road.version == version
            && (!matches!(road.made.peek(), Some(Err(_))) || road.attempt.stands(Instant::now()))
        {
            return road.made.clone();
        }
        let attempt = Arc::<Attempt>::default();
        let making = match of {
            Cluster::Secret(namespace, name) => {
                let (namespace, name) = (Arc::clone(namespace), Arc::clone(name));
                by_secret(self.here.api.clone(), namespace, name).boxed()
            }
            Cluster::Context(name) => {
                let access = Access { context: Some(name.to_string()), ..self.access.clone() };
                let (room, plugins) = (self.here.api.room.clone(), Arc::clone(&self.plugins));
                by_context(access, room, plugins, Arc::clone(&attempt)).boxed()
            }
            Cluster::Local | Cluster::Member(_) => std::future::ready(Ok(Arc::clone(&self.here))).boxed(),
        };
        // A task of its own: a plugin that takes longer than one review has must be done for the next.
        let task = self.runtime.spawn(making);
        let made = async move {
            task.await.unwrap_or_else(|error| Err(Cause::new(cause::CREDENTIALS, error.to_string())))
        };
        let made = made.boxed().shared();
        roads.insert(of.clone(), Other { version, made: made.clone(), attempt });
        made
    }
}

async fn by_context(access: Access, room: Room, plugins: Arc<Semaphore>, attempt: Arc<Attempt>) -> Made {
    let name = access.context.clone().unwrap_or_default();
    let problem = |why: String| {
        // What a plugin wrote is not for whoever asked at kubectl.
        tracing::warn!(cluster = name, "no credentials: {why}");
        let text = format!("credentials of {name} cannot be had from its context in Durward's kubeconfig");
        Cause::new(cause::CREDENTIALS, text)
    };
    let made = match access.config().await {
        Ok(config) => road(config, room, Some((plugins, Arc::clone(&attempt)))).await,
        Err(error) => Err(error.to_string()),
    };
    if made.is_err() {
        // Only this attempt sets it, and only here.
        let _ = attempt.failed.set(Instant::now());
    }
    made.map_err(problem)
}

async fn by_secret(api: Api, namespace: Arc<str>, name: Arc<str>) -> Made {
    let because = |code, why: &str| {
        let text = format!("credentials of {name} cannot be had from Secret {namespace}/{name}: {why}");
        Cause::new(code, text)
    };
    let address = Address { resource: &Resource::SECRETS, namespace: &namespace, name: &name };
    let Some(path) = path::object(address) else {
        return Err(because(cause::REFUSED, "there can be no object of that name"));
    };
    let asked = timeout(SECRET_WITHIN, api.fetch(&path, WHOLE, None, OBJECT_LIMIT)).await;
    let asked = asked.map_err(|_| because(cause::TIMEOUT, "the API server did not answer"))?;
    let (status, body) = asked.map_err(|failure| because(failure.cause.code, &failure.cause.text))?;
    if status == StatusCode::NOT_FOUND && is_about(&body, address) {
        return Err(Cause::new(cause::VANISHED, format!("{name} is not a cluster of the fleet any more")));
    }
    if status != StatusCode::OK {
        let failure = super::failure::refusal(status, &body, "get", &Resource::SECRETS);
        return Err(because(failure.cause.code, &failure.cause.text));
    }
    let config = secret::config(&body).await.map_err(|why| because(cause::CREDENTIALS, &why))?;
    road(config, api.room.clone(), None).await.map_err(|why| because(cause::CREDENTIALS, &brief(&why)))
}

/// A road of one lane: behind it is one cluster. A context may have a credential plugin, of which only so many run at once; a
/// Secret has none.
async fn road(
    config: kube::Config,
    room: Room,
    plugin: Option<(Arc<Semaphore>, Arc<Attempt>)>,
) -> Result<Arc<Road>, String> {
    let late = |_| format!("the credential plugin was not done after {} s", CREDENTIALS_WITHIN.as_secs());
    let end = Instant::now() + CREDENTIALS_WITHIN;
    let turn = match plugin {
        None => None,
        Some((plugins, attempt)) => {
            let turn = timeout_at(end, plugins.acquire_owned()).await;
            let turn =
                turn.map_err(|_| format!("{PLUGINS} credential plugins run already, and do not end"))?;
            attempt.runs.store(true, Ordering::Release);
            Some((turn, Running(attempt)))
        }
    };
    // A credential plugin is a program that is run and waited for: here until the deadline, by its thread until it ends.
    let url = config.cluster_url.to_string();
    let making = tokio::task::spawn_blocking(move || {
        let client = transport::client(&config, 1);
        drop(turn);
        client
    });
    match timeout_at(end, making).await.map_err(late)? {
        Ok(Ok(client)) => Ok(Arc::new(Road { api: Api::new(client, &url, room), lanes: Lanes::new(1) })),
        Ok(Err(problem)) => Err(problem.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_stands_while_its_plugin_runs_and_for_a_while_after_it_failed() {
        let attempt = Arc::<Attempt>::default();
        let now = Instant::now();
        assert!(!attempt.stands(now));
        attempt.runs.store(true, Ordering::Release);
        let running = Running(Arc::clone(&attempt));
        attempt.failed.set(now).unwrap();
        assert!(attempt.stands(now + 2 * TRIED_AGAIN_AFTER));
        drop(running);
        assert!(!attempt.stands(now + TRIED_AGAIN_AFTER));
        assert!(attempt.stands(now + TRIED_AGAIN_AFTER / 2));
    }
}
