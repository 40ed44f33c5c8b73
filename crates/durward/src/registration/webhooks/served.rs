//! The guards that all replicas serve, as far as this replica knows.
//!
//! Replicas read a new configuration one after the other: a kubelet updates mounted files within two minutes, and a rollout replaces
//! pods one by one. A replica without a guard answers 404 to its path, and with `failurePolicy: Fail` the API server denies the
//! request. So the entries of a new guard wait for a delay. Guards that have entries already, or had them in the life of this
//! process, are served. If no guard has an entry, Durward is being installed, and nothing waits.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::merge::is_ours;

/// The guards that an API server can call. A guard is a path.
#[derive(Default)]
pub(super) struct Served {
    /// Whether the webhook configurations were read.
    pub(super) is_known: bool,
    paths: BTreeSet<String>,
    /// The guards that wait, and since when.
    waiting: BTreeMap<String, Instant>,
}

impl Served {
    /// Records the entries of all webhook configurations before the first write.
    pub(super) fn start(&mut self, found: &[Value], needed: &[Value]) {
        self.is_known = true;
        self.paths = paths(found);
        if self.paths.is_empty() {
            self.paths = paths(needed);
        }
    }

    /// Returns the entries that can be added now. The others wait.
    pub(super) fn addable(&mut self, needed: &[Value], delay: Duration, now: Instant) -> Vec<Value> {
        needed
            .iter()
            .filter(|entry| {
                let path = path(entry);
                if !self.paths.contains(path) {
                    let since = *self.waiting.entry(path.to_owned()).or_insert(now);
                    if now.saturating_duration_since(since) < delay {
                        return false;
                    }
                    self.waiting.remove(path);
                    self.paths.insert(path.to_owned());
                }
                true
            })
            .cloned()
            .collect()
    }
}

fn paths(entries: &[Value]) -> BTreeSet<String> {
    entries.iter().filter(|entry| is_ours(entry)).map(|entry| path(entry).to_owned()).collect()
}

/// Returns the last segment of the path or of the URL of an entry: the name of the guard.
fn path(entry: &Value) -> &str {
    let client = &entry["clientConfig"];
    let full = client["url"].as_str().or_else(|| client["service"]["path"].as_str()).unwrap_or_default();
    full.rsplit_once('/').map_or(full, |(_, guard)| guard)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const DELAY: Duration = Duration::from_secs(120);

    fn entry(name: &str, guard: &str) -> Value {
        json!({"name": format!("{name}.durward.dev"), "clientConfig": {"service": {"path": format!("/{guard}")}}})
    }

    fn by_url(guard: &str) -> Value {
        json!({"name": "x.durward.dev", "clientConfig": {"url": format!("https://10.0.0.7:8443/{guard}")}})
    }

    #[test]
    fn nothing_waits_in_a_new_installation() {
        let (mut served, needed) = (Served::default(), [entry("etcd-pods", "etcd"), by_url("deletion")]);
        let foreign = json!({"name": "x.example.org", "clientConfig": {"service": {"path": "/x"}}});
        served.start(&[foreign], &needed);
        assert!(served.is_known);
        assert_eq!(served.addable(&needed, DELAY, Instant::now()), needed);
    }

    #[test]
    fn a_new_guard_waits_and_a_new_entry_of_a_known_guard_does_not() {
        let (mut served, begin) = (Served::default(), Instant::now());
        let found = [entry("etcd-pods", "etcd")];
        let needed = [entry("etcd-pods", "etcd"), entry("etcd-updates", "etcd"), by_url("deletion")];
        served.start(&found, &needed);
        assert_eq!(served.addable(&needed, DELAY, begin), needed[..2]);
        assert_eq!(served.addable(&needed, DELAY, begin + DELAY / 2), needed[..2]);
        assert_eq!(served.addable(&needed, DELAY, begin + DELAY), needed);
        // It was there, so it is restored at once.
        assert_eq!(served.addable(&needed, DELAY, begin + DELAY), needed);
    }

    #[test]
    fn guards_wait_if_it_is_unknown_what_is_served() {
        let (mut served, needed) = (Served::default(), [entry("etcd-pods", "etcd")]);
        assert_eq!(served.addable(&needed, DELAY, Instant::now()), [] as [Value; 0]);
        assert_eq!(served.addable(&needed, Duration::ZERO, Instant::now()), needed);
    }
}
