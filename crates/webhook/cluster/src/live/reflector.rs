//! The watch cache of one resource: a list, then a watch from its version. The list is read again when the API server requires
//! it.
//!
//! kube's own watcher does not report bookmarks, and freshness depends on them. The rule of freshness:
//!
//! - An object is **fresh** if the watch is open, has been for [`SETTLE_TIME`], and the last event came within [`FRESH_FOR`]. Only
//!   fresh objects are returned without a request.
//! - It is **recent** if the last event came within [`FRESH_FOR`]. A recent object replaces the answer of a request that failed
//!   for lack of a connection, time or capacity. It never replaces a refusal.
//! - Older objects are not used.
//!
//! The cache never proves absence: an object may be younger than the last event.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use admission::Cause;
use http_body_util::BodyExt as _;
use hyper::StatusCode;
use kube::core::WatchEvent;
use tokio::time::{Instant, sleep, timeout};

use super::answer::One;
use super::api_server::{ApiServer, OBJECT_LIMIT};
use super::failure::{Failure, SERVER, brief, not_sent, not_understood, refusal};
use super::pool::ResponseBody;
use crate::fleet::{ListQuery, Part};
use crate::metadata::Wire;
use crate::objects::Objects;
use crate::pages::Cursor;
use crate::{ApiError, Metadata, Readiness, Resource, cause};

/// The API server sends a bookmark at least every minute (`cacher.go`: `defaultBookmarkFrequency`), with a jitter of about a
/// second (`wait.Jitter(time.Second, 0.25)`); 15 s are for a busy one. It keeps its own history for the same 75 s
/// (`DefaultEventFreshDuration`).
pub(super) const FRESH_FOR: Duration = Duration::from_secs(75);

/// After a reconnection the API server sends missed events right behind its headers. That takes far less than a second.
pub(super) const SETTLE_TIME: Duration = Duration::from_secs(1);

/// For a page, and for the headers of a watch: the API server itself gives up after 60 s (`--request-timeout`).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The backoff doubles from half a second to half a minute. A watch that lived for [`SUCCESS_AFTER`] resets it.
const MIN_BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(30);
const SUCCESS_AFTER: Duration = Duration::from_secs(10);

/// After this many failed watches in a row the resource is listed again. An API server that was restored from a backup answers
/// 504 "too large resource version" until its version is large enough.
const MAX_WATCH_FAILURES: u32 = 3;

/// The watch cache of one resource. One task writes it and reviews read it; the lock is held for a lookup at most.
#[derive(Debug)]
pub(super) struct Reflector {
    resource: Resource,
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    objects: Objects,
    is_synced: bool,
    open_since: Option<Instant>,
    last_event: Option<Instant>,
    failure: Option<Cause>,
}

/// The cached state of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cached {
    /// Its present state.
    Fresh(Arc<Metadata>),
    /// A state within [`FRESH_FOR`].
    Recent(Arc<Metadata>),
    /// Nothing usable.
    Nothing,
}

impl Reflector {
    pub(super) fn new(resource: Resource) -> Self {
        Self { resource, state: RwLock::default() }
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the cached state of an object at `now`.
    pub(super) fn get(&self, namespace: &str, name: &str, now: Instant) -> Cached {
        let state = self.read();
        if !state.is_synced || !state.is_recent(now) {
            return Cached::Nothing;
        }
        match state.objects.get(namespace, name) {
            None => Cached::Nothing,
            Some(object) if state.is_open(now) => Cached::Fresh(object),
            Some(object) => Cached::Recent(object),
        }
    }

    /// Returns the line for `/readyz`.
    pub(super) fn readiness(&self, now: Instant) -> Readiness {
        let state = self.read();
        let age = state.last_event.map_or(0, |event| now.saturating_duration_since(event).as_secs());
        let fallback = format!("last event {age} s ago, each get is sent to the API server");
        let reason = match &state.failure {
            None if !state.is_synced => "not read yet".to_owned(),
            Some(cause) if !state.is_synced => format!("not read yet: {}", cause.text),
            _ if state.is_open(now) && state.is_recent(now) => {
                format!("watched, {} objects, last event {age} s ago", state.objects.len())
            }
            None => format!("the watch is reconnecting, {fallback}"),
            Some(cause) => format!("the watch is interrupted, {fallback}: {}", cause.text),
        };
        Readiness { name: self.resource.to_string(), ok: state.is_synced, reason }
    }

    /// Keeps the cache up to date while it is polled.
    pub(super) async fn run(self: Arc<Self>, server: ApiServer) {
        let mut backoff = Backoff::default();
        loop {
            match self.list(&server).await {
                Ok(version) => self.watch(&server, version, &mut backoff).await,
                Err(failure) => {
                    self.closed(Some(failure.cause));
                    backoff.wait().await;
                }
            }
        }
    }

    /// Reads the whole List and returns its version. The old objects stay until the new ones are complete.
    async fn list(&self, server: &ApiServer) -> Result<String, Failure> {
        let began = Instant::now();
        let query = ListQuery::new(&self.resource);
        let mut cursor = Cursor::new(query.limit);
        let (mut objects, mut version) = (Objects::default(), String::new());
        while !cursor.is_done() {
            let page = timeout(REQUEST_TIMEOUT, server.list(cursor.query(query), None, |wire| wire)).await;
            let page = match page.map_err(|_| no_answer("the List was not returned"))? {
                Ok(page) => page,
                Err(failure) if cursor.shrink(&failure.cause) => continue,
                Err(failure) => return Err(failure),
            };
            cursor.advance(page.next.as_deref()).map_err(|why| Failure::new(why.code, why.text))?;
            let state = self.read();
            for wire in page.items {
                objects.apply(wire, Some(&state.objects));
            }
            version = page.version;
        }
        let mut state = self.write();
        let old = std::mem::replace(&mut state.objects, objects);
        state.is_synced = true;
        state.last_event = Some(began);
        drop(state);
        // Thousands of objects are freed without the lock.
        drop(old);
        Ok(version)
    }

    /// Watches from `version`, one watch after another, until the resource must be listed again.
    async fn watch(&self, server: &ApiServer, mut version: String, backoff: &mut Backoff) {
        let mut failures = 0;
        while failures < MAX_WATCH_FAILURES {
            let began = Instant::now();
            let ended = self.watch_once(server, &mut version).await;
            let is_success = began.elapsed() >= SUCCESS_AFTER;
            if is_success {
                backoff.reset();
                failures = 0;
            }
            match ended {
                Ok(()) => {
                    self.closed(None);
                    if !is_success {
                        // For an API server that ends every watch at once.
                        backoff.wait().await;
                    }
                }
                Err(failure) if failure.kind == Some(ApiError::Expired) => {
                    self.closed(None);
                    if !is_success {
                        backoff.wait().await;
                    }
                    return;
                }
                Err(failure) => {
                    failures += 1;
                    self.closed(Some(failure.cause));
                    backoff.wait().await;
                }
            }
        }
    }

    async fn watch_once(&self, server: &ApiServer, version: &mut String) -> Result<(), Failure> {
        let opening = timeout(REQUEST_TIMEOUT, server.watch(&self.resource, version)).await;
        let response = opening.map_err(|_| no_answer("the watch was not taken up"))??;
        let mut events = Lines { body: response.into_body(), buffer: Vec::new(), read: 0 };
        self.opened(Instant::now());
        loop {
            // A watch without events for this time is broken, or its API server sends no bookmarks. A new watch counts as an event.
            match timeout(FRESH_FOR, events.next()).await {
                Err(_) | Ok(None) => return Ok(()),
                Ok(Some(line)) => *version = self.apply(event(&line?, &self.resource)?, Instant::now())?,
            }
        }
    }

    fn opened(&self, now: Instant) {
        let mut state = self.write();
        state.open_since = Some(now);
        state.last_event = Some(now);
        if state.failure.take().is_some() {
            tracing::info!(resource = %self.resource, "watched again");
        }
    }

    fn closed(&self, cause: Option<Cause>) {
        let mut state = self.write();
        state.open_since = None;
        let Some(cause) = cause else { return };
        // Logged once for each cause, not for each attempt.
        if state.failure.as_ref().is_none_or(|old| old.code != cause.code) {
            tracing::warn!(resource = %self.resource, cause = cause.code, "not watched: {}", cause.text);
        }
        state.failure = Some(cause);
    }

    /// Applies an event, and returns the version from which the next watch starts.
    fn apply(&self, event: WatchEvent<One<'_>>, now: Instant) -> Result<String, Failure> {
        let mut state = self.write();
        state.last_event = Some(now);
        Ok(match event {
            WatchEvent::Bookmark(bookmark) => bookmark.metadata.resource_version,
            WatchEvent::Added(One { mut metadata, .. }) | WatchEvent::Modified(One { mut metadata, .. }) => {
                let version = std::mem::take(&mut metadata.resource_version);
                state.objects.apply(metadata, None);
                version
            }
            WatchEvent::Deleted(One { metadata, .. }) => {
                state.objects.remove(&metadata.namespace, &metadata.name);
                metadata.resource_version
            }
            WatchEvent::Error(_) => return Err(Failure::new(cause::GARBAGE, "the watch reports an error")),
        })
    }
}

impl State {
    fn is_recent(&self, now: Instant) -> bool {
        self.last_event.is_some_and(|event| now.saturating_duration_since(event) <= FRESH_FOR)
    }

    fn is_open(&self, now: Instant) -> bool {
        self.open_since.is_some_and(|since| now.saturating_duration_since(since) >= SETTLE_TIME)
    }
}

impl Objects {
    /// Adds an object. If `old` has the same one, both share it: two Lists of thousands of objects would need twice the memory.
    fn apply(&mut self, wire: Wire, old: Option<&Self>) {
        let (namespace, name) = (wire.namespace.clone(), wire.name.clone());
        let kept = wire.kept();
        let shared = old.and_then(|old| old.get(&namespace, &name)).filter(|shared| **shared == kept);
        self.insert(&namespace, &name, shared.unwrap_or_else(|| Arc::new(kept)));
    }
}

fn no_answer(what: &str) -> Failure {
    Failure::new(cause::TIMEOUT, format!("{what} within {} s", REQUEST_TIMEOUT.as_secs()))
}

/// The lines of a response: an event each.
struct Lines {
    body: ResponseBody,
    buffer: Vec<u8>,
    /// Bytes of the buffer that were returned.
    read: usize,
}

impl Lines {
    /// Returns the next line, or `None` when the API server ends the watch. Must not be called again after it was dropped.
    async fn next(&mut self) -> Option<Result<Vec<u8>, Failure>> {
        let mut searched = self.read;
        loop {
            let unsearched = self.buffer.get(searched..).unwrap_or_default();
            if let Some(at) = unsearched.iter().position(|&byte| byte == b'\n') {
                let end = searched + at;
                let line = self.buffer.get(self.read..end).unwrap_or_default().to_vec();
                self.read = end + 1;
                return Some(Ok(line));
            }
            self.buffer.drain(..self.read);
            self.read = 0;
            searched = self.buffer.len();
            if searched > OBJECT_LIMIT {
                let text = "the watch sent an event of more than 4 MiB";
                return Some(Err(Failure::new(cause::GARBAGE, text)));
            }
            match self.body.frame().await? {
                Ok(frame) => self.buffer.extend_from_slice(frame.data_ref().map_or(&[], |data| data)),
                Err(error) => return Some(Err(not_sent(&*error, SERVER))),
            }
        }
    }
}

/// Parses an event and checks that it is about the resource.
fn event<'b>(line: &'b [u8], resource: &Resource) -> Result<WatchEvent<One<'b>>, Failure> {
    let event: WatchEvent<One<'_>> =
        serde_json::from_slice(line).map_err(|error| not_understood(&error, line))?;
    match &event {
        WatchEvent::Error(status) => {
            let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let body = serde_json::to_vec(status).unwrap_or_default();
            Err(refusal(code, &body, "watch", resource))
        }
        WatchEvent::Added(one) | WatchEvent::Modified(one) | WatchEvent::Deleted(one)
            if one.metadata.name.is_empty()
                || one.metadata.resource_version.is_empty()
                || !one.is_of(resource, Part::Metadata) =>
        {
            let text = format!("the watch sent another kind ({})", brief(&one.kind));
            Err(Failure::new(cause::GARBAGE, text))
        }
        WatchEvent::Bookmark(bookmark) if bookmark.metadata.resource_version.is_empty() => {
            Err(Failure::new(cause::GARBAGE, "the watch sent a bookmark without a version"))
        }
        _ => Ok(event),
    }
}

/// Waits that grow, each between half and all of its length, so that replicas do not retry at the same time.
#[derive(Debug, Default)]
struct Backoff {
    attempts: u32,
}

impl Backoff {
    async fn wait(&mut self) {
        sleep(self.next(RandomState::new().build_hasher().finish())).await;
    }

    fn next(&mut self, random: u64) -> Duration {
        let whole = MIN_BACKOFF.saturating_mul(1 << self.attempts.min(16)).min(MAX_BACKOFF);
        self.attempts = self.attempts.saturating_add(1);
        let share = u32::try_from(random % 1000).unwrap_or_default();
        whole / 2 + whole / 2 * share / 1000
    }

    fn reset(&mut self) {
        self.attempts = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backoff_grows_to_half_a_minute_and_is_reset_by_a_success() {
        let mut backoff = Backoff::default();
        let longest: Vec<_> = (0..8).map(|_| backoff.next(999).as_millis()).collect();
        assert_eq!(longest, [499, 999, 1999, 3998, 7996, 15992, 29985, 29985]);
        backoff.reset();
        assert_eq!(backoff.next(0), Duration::from_millis(250));
    }
}
