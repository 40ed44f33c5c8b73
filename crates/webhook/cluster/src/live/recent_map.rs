//! A map with a limit, which drops the entry that has not been used for the longest time.
//!
//! Keys come from objects of the API server, and a tenant can create many of those. Dropping an entry is always correct: it is
//! created again when it is needed.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

/// The largest number of entries: as many etcd members as a large control plane has, with room.
pub(super) const MAX_ENTRIES: usize = 4_096;

/// A map with at most [`MAX_ENTRIES`] entries.
pub(super) struct RecentMap<K, V> {
    /// Each with its last use.
    entries: HashMap<K, (V, Instant)>,
    max_idle: Duration,
}

impl<K: Eq + Hash + Clone, V> RecentMap<K, V> {
    /// Creates a map that drops entries after this time without use.
    pub(super) fn new(max_idle: Duration) -> Self {
        Self { entries: HashMap::new(), max_idle }
    }

    /// Returns a value and marks it as used.
    pub(super) fn get<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let (value, used) = self.entries.get_mut(key)?;
        *used = Instant::now();
        Some(value)
    }

    /// Adds or replaces a value. Drops values that are unused for too long, and at the limit the one that is unused the
    /// longest.
    pub(super) fn insert(&mut self, key: K, value: V) {
        self.drop_idle();
        if self.entries.len() >= MAX_ENTRIES && !self.entries.contains_key(&key) {
            let oldest = self.entries.iter().min_by_key(|(_, (_, used))| *used);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.entries.remove(&oldest);
            }
        }
        self.entries.insert(key, (value, Instant::now()));
    }

    /// Keeps the entries for which `keeps` returns true.
    pub(super) fn retain(&mut self, mut keeps: impl FnMut(&K, &V) -> bool) {
        self.entries.retain(|key, (value, _)| keeps(key, value));
    }

    /// Drops values that are unused for too long.
    pub(super) fn drop_idle(&mut self) {
        let (now, max_idle) = (Instant::now(), self.max_idle);
        self.entries.retain(|_, (_, used)| now.saturating_duration_since(*used) < max_idle);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(300);

    #[tokio::test(start_paused = true)]
    async fn drops_the_longest_unused_entry_at_the_limit() {
        let mut map = RecentMap::new(IDLE);
        for key in 0..MAX_ENTRIES {
            map.insert(key, ());
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert!(map.get(&0).is_some());
        tokio::time::advance(Duration::from_millis(1)).await;
        // A key that is there already needs no room.
        map.insert(2, ());
        assert!(map.get(&1).is_some());
        tokio::time::advance(Duration::from_millis(1)).await;
        map.insert(MAX_ENTRIES, ());
        assert_eq!(map.len(), MAX_ENTRIES);
        assert!(map.get(&3).is_none(), "unused the longest");
        for key in [0, 1, 2, 4, MAX_ENTRIES] {
            assert!(map.get(&key).is_some(), "{key}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn drops_entries_that_are_not_used_for_a_time() {
        let mut map = RecentMap::new(IDLE);
        map.insert("a", 1);
        map.insert("b", 2);
        tokio::time::advance(IDLE / 2).await;
        assert_eq!(map.get("a"), Some(&1));
        tokio::time::advance(IDLE / 2).await;
        map.insert("c", 3);
        assert_eq!(map.len(), 2);
        assert_eq!(map.get("a"), Some(&1));
    }
}
