//! What is kept of one watched resource, and how fresh it is.
//!
//! The rule of freshness, all of it:
//!
//! - An object is **fresh** while the watch's stream is open, has been for [`SETTLES_AFTER`], and the last word came within
//!   [`FRESH_FOR`]. Only what is fresh is answered without asking.
//! - It is **recent** while the last word came within [`FRESH_FOR`], whatever the stream does. What is recent stands in for a
//!   question that found nobody to answer (no connection, no time, too busy): it is no older than what a watch may be that has
//!   broken and does not know it yet. It never stands in for a refusal.
//! - What is older is not used at all.
//!
//! Absence is never read off the cache: an object may be younger than the last word.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use admission::Cause;
use tokio::time::Instant;

use super::events::Event;
use crate::metadata::Wire;
use crate::objects::Objects;
use crate::{Metadata, Readiness, Resource};

/// The API server sends a bookmark every minute at the latest (`cacher.go`: `defaultBookmarkFrequency`), give or take a second
/// of its timers (`wait.Jitter(time.Second, 0.25)`, buckets of a second); fifteen seconds for a busy one. It keeps its own
/// history for the same 75 s (`DefaultEventFreshDuration`).
pub(super) const FRESH_FOR: Duration = Duration::from_secs(75);

/// After a reconnection the API server sends what was missed right behind its headers. A second is far more than that takes.
pub(super) const SETTLES_AFTER: Duration = Duration::from_secs(1);

/// One watched resource. Written by its watch's task, read by reviews; the lock is held for a look-up at most.
#[derive(Debug)]
pub(super) struct Watch {
    resource: Resource,
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    objects: Objects,
    is_synced: bool,
    open_since: Option<Instant>,
    last_word: Option<Instant>,
    trouble: Option<Cause>,
}

/// What the cache holds of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Held {
    /// It looks like this.
    Fresh(Arc<Metadata>),
    /// It looked like this within [`FRESH_FOR`].
    Recent(Arc<Metadata>),
    /// Nothing that can be used.
    Nothing,
}

impl Watch {
    pub(super) fn new(resource: Resource) -> Self {
        Self { resource, state: RwLock::default() }
    }

    pub(super) fn resource(&self) -> &Resource {
        &self.resource
    }

    /// What is held of an object at `now`.
    pub(super) fn held(&self, namespace: &str, name: &str, now: Instant) -> Held {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        if !state.is_synced || !state.is_recent(now) {
            return Held::Nothing;
        }
        match state.objects.get(namespace, name) {
            None => Held::Nothing,
            Some(object) if state.is_open(now) => Held::Fresh(object),
            Some(object) => Held::Recent(object),
        }
    }

    /// A whole List was read, the first page of it asked for at `asked`.
    pub(super) fn listed(&self, objects: Objects, asked: Instant) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut state.objects, objects);
        state.is_synced = true;
        state.last_word = Some(asked);
        drop(state);
        // Freeing thousands of objects is not done while reviews wait.
        drop(old);
    }

    /// The API server has taken up the watch.
    pub(super) fn opened(&self, now: Instant) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.open_since = Some(now);
        state.last_word = Some(now);
        if state.trouble.take().is_some() {
            tracing::info!(resource = %self.resource, "watched again");
        }
    }

    /// The stream has ended; of itself, or for a cause.
    pub(super) fn closed(&self, cause: Option<Cause>) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.open_since = None;
        let Some(cause) = cause else { return };
        // Said once for each kind of trouble, not once for each attempt.
        if state.trouble.as_ref().is_none_or(|old| old.code != cause.code) {
            tracing::warn!(resource = %self.resource, cause = cause.code, "not watched: {}", cause.text);
        }
        state.trouble = Some(cause);
    }

    /// Something was heard. Gives the version to go on from.
    pub(super) fn heard(&self, event: Event, now: Instant) -> String {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.last_word = Some(now);
        match event {
            Event::Bookmark(version) => version,
            Event::Is(mut wire) => {
                let version = std::mem::take(&mut wire.resource_version);
                put(&mut state.objects, wire);
                version
            }
            Event::Gone(wire) => {
                state.objects.remove(&wire.namespace, &wire.name);
                wire.resource_version
            }
        }
    }

    /// For `/readyz`.
    pub(super) fn readiness(&self, now: Instant) -> Readiness {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let age = state.last_word.map_or(0, |word| now.saturating_duration_since(word).as_secs());
        let asked = format!("last word {age} s ago, each look-up asks the API server");
        let reason = match &state.trouble {
            None if !state.is_synced => "not read yet".to_owned(),
            Some(cause) if !state.is_synced => format!("not read yet: {}", cause.text),
            _ if state.is_open(now) && state.is_recent(now) => {
                format!("watched, {} of them, last word {age} s ago", state.objects.len())
            }
            None => format!("the watch is being opened, {asked}"),
            Some(cause) => format!("the watch is interrupted, {asked}: {}", cause.text),
        };
        Readiness { name: self.resource.to_string(), ok: state.is_synced, reason }
    }
}

impl State {
    fn is_recent(&self, now: Instant) -> bool {
        self.last_word.is_some_and(|word| now.saturating_duration_since(word) <= FRESH_FOR)
    }

    fn is_open(&self, now: Instant) -> bool {
        self.open_since.is_some_and(|since| now.saturating_duration_since(since) >= SETTLES_AFTER)
    }
}

/// Takes an object up as it came over the wire.
pub(super) fn put(objects: &mut Objects, wire: Wire) {
    let (namespace, name) = (wire.namespace.clone(), wire.name.clone());
    objects.insert(&namespace, &name, wire.kept());
}
