//! The namespaces of the local cluster, kept up to date by a watch.
//!
//! API servers match the selectors of webhooks against such a cache, too. It never proves absence: a namespace that it does not have
//! can be younger than the last event, and is requested. After a longer interruption of the watch, every namespace is requested.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use admission::Cause;
use futures_util::{StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::{self, watcher};
use kube::runtime::{WatchStreamExt as _, watcher::Event};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::api_server::ApiServer;
use super::failure::{Failure, Status, of_error, refused};
use crate::metadata::is_own_annotation;
use crate::{Metadata, Readiness, Resource, cause};

type Watched = PartialObjectMeta<Namespace>;

/// A failure counts as the present state for this time. The watch is tried again after at most 60 s, and does not report a success
/// without events.
const FAILURE_AGE: Duration = Duration::from_secs(90);

/// An interrupted watch does not stop the cache for this time. With the 20 s until a dead connection is noticed, labels are at most 75 s
/// old.
const MAX_INTERRUPTION: Duration = Duration::from_secs(55);

/// The API server ends a watch after so many seconds. A connection without any data is noticed five seconds later.
const WATCH_SECONDS: u32 = 50;

/// The namespaces. Dropping it stops the watch.
pub(super) struct Namespaces {
    state: Arc<RwLock<State>>,
    task: AbortHandle,
}

/// Both are absent at first.
#[derive(Default)]
struct State {
    store: Option<Store<Watched>>,
    interruption: Option<Interruption>,
}

struct Interruption {
    since: Instant,
    last_failure: Instant,
    cause: Cause,
}

impl State {
    fn interruption(&self) -> Option<&Interruption> {
        self.interruption.as_ref().filter(|interruption| interruption.last_failure.elapsed() < FAILURE_AGE)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Namespaces {
    /// Starts the watch.
    pub(super) fn watch(server: ApiServer, runtime: &Handle) -> Self {
        let state = Arc::default();
        let task = runtime.spawn(run(server, Arc::clone(&state)));
        Self { state, task: task.abort_handle() }
    }

    /// Returns a namespace, if the cache has it and the watch is not interrupted for long.
    pub(super) fn get(&self, name: &str) -> Option<Arc<Metadata>> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        if state.interruption().is_some_and(|interruption| interruption.since.elapsed() > MAX_INTERRUPTION) {
            return None;
        }
        let found = state.store.as_ref()?.get(&ObjectRef::new(name))?;
        Some(Arc::new(Metadata {
            labels: found.metadata.labels.clone().unwrap_or_default(),
            annotations: found.metadata.annotations.clone().unwrap_or_default(),
            deleting: found.metadata.deletion_timestamp.is_some(),
        }))
    }

    /// Returns the line for `/readyz`.
    pub(super) fn readiness(&self) -> Readiness {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let reason = match (&state.store, state.interruption()) {
            (None, None) => "not read yet".to_owned(),
            (None, Some(interruption)) => format!("not read yet: {}", interruption.cause.text),
            (Some(store), None) => format!("watched, {} objects", store.len()),
            (Some(store), Some(interruption)) => {
                format!("the watch is interrupted, {} objects: {}", store.len(), interruption.cause.text)
            }
        };
        Readiness { name: Resource::NAMESPACES.to_string(), ok: state.store.is_some(), reason }
    }
}

/// Keeps the watch open. It is started again when the connections are replaced, or when it fails for long after its List.
async fn run(server: ApiServer, state: Arc<RwLock<State>>) {
    let mut replaced = server.replaced();
    loop {
        replaced.mark_unchanged();
        tokio::select! {
            () = watch(&server, &state) => {}
            // Fails if the connections are never replaced.
            Ok(()) = replaced.changed() => {}
        }
    }
}

async fn watch(server: &ApiServer, state: &RwLock<State>) {
    let (store, writer) = reflector::store();
    let api: Api<Watched> = Api::all(server.client());
    let events = watcher(api, watcher::Config::default().timeout(WATCH_SECONDS)).default_backoff().modify(
        |namespace| {
            let metadata = &mut namespace.metadata;
            metadata.managed_fields = None;
            metadata.annotations.get_or_insert_default().retain(|key, _| is_own_annotation(key));
        },
    );
    let events = reflector::reflector(writer, events);
    pin_mut!(events);
    while let Some(event) = events.next().await {
        let mut state = state.write().unwrap_or_else(PoisonError::into_inner);
        match event {
            Ok(Event::Init | Event::InitApply(_)) => {}
            Ok(Event::InitDone | Event::Apply(_) | Event::Delete(_)) => {
                state.store = Some(store.clone());
                if state.interruption.take().is_some() {
                    tracing::info!("namespaces are watched again");
                }
            }
            Err(error) => {
                let is_listed = !matches!(error, watcher::Error::InitialListFailed(_));
                let Failure { cause, .. } = failure(&error, &server.name());
                // Logged once for each cause, not for each attempt.
                if state.interruption().is_none_or(|old| old.cause.code != cause.code) {
                    tracing::warn!(cause = cause.code, "namespaces are not watched: {}", cause.text);
                }
                let last_failure = Instant::now();
                let since = state.interruption().map_or(last_failure, |old| old.since);
                state.interruption = Some(Interruption { since, last_failure, cause });
                // An API server that was restored from a backup never knows this resourceVersion.
                if is_listed && since.elapsed() > MAX_INTERRUPTION {
                    return;
                }
            }
        }
    }
}

fn failure(error: &watcher::Error, who: &str) -> Failure {
    use watcher::Error::{InitialListFailed, NoResourceVersion, WatchError, WatchFailed, WatchStartFailed};
    match error {
        InitialListFailed(error) => of_error(error, who, "list", &Resource::NAMESPACES),
        WatchStartFailed(error) | WatchFailed(error) => of_error(error, who, "watch", &Resource::NAMESPACES),
        WatchError(status) => refused(&Status::from(&**status), "watch", &Resource::NAMESPACES),
        NoResourceVersion => Failure::new(cause::GARBAGE, "the answer has no resourceVersion"),
    }
}
