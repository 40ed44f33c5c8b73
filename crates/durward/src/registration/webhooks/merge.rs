//! Merges the entries of a webhook configuration with the entries that this replica needs. Pure: no clock and no client.
//!
//! Replicas can have different configurations during an upgrade, so no replica removes what another one needs:
//!
//! - Every replica adds entries, rules and CA certificates that are missing.
//! - Only the holder of the Lease changes other fields, and removes what its own configuration does not need.
//!   [`Unneeded`] delays each removal.
//! - Existing order is kept. Two replicas with different configurations then agree after one write each.
//!
//! The API server adds defaults to an entry. [`essential`] and [`rule_key`] make defaults equal to absent fields.
//! Otherwise Durward would write every object again every few seconds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::trust::{self, TrustedCa};

/// Suffix of the names of Durward's entries. Entries of others in the same object stay as they are.
const SUFFIX: &str = ".durward.dev";

/// A part of a configuration that can be removed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// An entry, by name.
    Entry(String),
    /// A rule of an entry, by [`rule_key`].
    Rule(String, String),
    /// A certificate in the caBundle of an entry, in DER.
    Certificate(String, Vec<u8>),
}

/// The needs and the rights of this replica.
pub(super) struct Replica<'a> {
    /// The entries of the guards that are on, without caBundle.
    pub(super) entries: &'a [Value],
    /// The CA of every entry; `None` if another program writes the caBundle.
    pub(super) ca: Option<&'a TrustedCa>,
    /// Whether only the caBundle can change.
    pub(super) only_ca: bool,
    /// Whether it holds the Lease.
    pub(super) is_holder: bool,
    /// Returns whether a part that is not needed can be removed now.
    pub(super) is_due: &'a (dyn Fn(&Part) -> bool + Sync),
}

/// The result of a merge.
pub(super) struct Merged {
    /// All entries, with those of others.
    pub(super) webhooks: Vec<Value>,
    /// The changes, in words for the log. Empty if nothing must be written.
    pub(super) changes: Vec<String>,
    /// The parts that this replica does not need.
    pub(super) unneeded: BTreeSet<Part>,
}

/// Returns the name of an entry.
pub(super) fn name(entry: &Value) -> &str {
    entry["name"].as_str().unwrap_or_default()
}

/// Returns whether an entry is Durward's.
pub(crate) fn is_ours(entry: &Value) -> bool {
    name(entry).ends_with(SUFFIX)
}

/// Returns whether an entry of Durward has this first part of its name.
pub(super) fn is_named(entry: &Value, name: &str) -> bool {
    self::name(entry).strip_suffix(SUFFIX) == Some(name)
}

/// Returns the names of the entries that Durward did not write: entries with another suffix, and entries whose suffix is Durward's but
/// that no guard here needs and that call another server. An entry of a replica with another configuration calls the same server.
pub(super) fn foreign<'e>(existing: &'e [Value], needed: &[Value]) -> Vec<&'e str> {
    let is_known = |entry: &Value| {
        let is_same = |other: &Value| name(other) == name(entry) || server(other) == server(entry);
        is_ours(entry) && needed.iter().any(is_same)
    };
    existing.iter().filter(|entry| !is_known(entry)).map(name).collect()
}

/// Returns the server that an entry calls: the Service, or the URL without the name of the guard.
fn server(entry: &Value) -> Value {
    let client = &entry["clientConfig"];
    if let Some(url) = client["url"].as_str() {
        return url.rsplit_once('/').map_or(url, |(server, _)| server).into();
    }
    let service = &client["service"];
    json!([service["namespace"], service["name"], service["port"].as_i64().unwrap_or(443)])
}

/// Returns the decoded caBundle of an entry, empty if there is none.
pub(super) fn ca_bundle(entry: &Value) -> Vec<u8> {
    let text = entry["clientConfig"]["caBundle"].as_str().unwrap_or_default();
    STANDARD.decode(text).unwrap_or_default()
}

/// Returns the needed entries that are missing or lack a rule.
pub(super) fn missing<'a>(existing: &[Value], needed: &'a [Value]) -> Vec<&'a str> {
    let is_there = |entry: &Value| {
        let found = existing.iter().find(|other| name(other) == name(entry));
        found.is_some_and(|found| {
            let keys: BTreeSet<_> = rules(found).map(rule_key).collect();
            rules(entry).all(|rule| keys.contains(&rule_key(rule)))
        })
    };
    needed.iter().filter(|entry| !is_there(entry)).map(name).collect()
}

/// Merges the existing entries with those of this replica.
pub(super) fn merge(existing: &[Value], replica: &Replica<'_>) -> Merged {
    let mut merged = Merged { webhooks: Vec::new(), changes: Vec::new(), unneeded: BTreeSet::new() };
    for entry in existing {
        if !is_ours(entry) {
            merged.webhooks.push(entry.clone());
            continue;
        }
        let name = name(entry).to_owned();
        let needed = replica.entries.iter().find(|needed| self::name(needed) == name);
        let mut next = entry.clone();
        match needed {
            _ if replica.only_ca => {}
            Some(needed) => merge_entry(&mut next, entry, needed, replica, &mut merged),
            None => {
                let part = Part::Entry(name.clone());
                let is_removed = replica.is_holder && (replica.is_due)(&part);
                merged.unneeded.insert(part);
                if is_removed {
                    merged.changes.push(format!("{name} removed"));
                    continue;
                }
            }
        }
        set_ca(&mut next, &name, replica, &mut merged);
        merged.webhooks.push(next);
    }
    if !replica.only_ca {
        let is_new = |needed: &&Value| !existing.iter().any(|entry| name(entry) == name(needed));
        for needed in replica.entries.iter().filter(is_new) {
            let mut next = needed.clone();
            if let Some(ca) = replica.ca {
                next["clientConfig"]["caBundle"] = STANDARD.encode(ca::pem::bundle(&ca.certificates)).into();
            }
            merged.changes.push(format!("{} added", name(needed)));
            merged.webhooks.push(next);
        }
    }
    merged
}

fn merge_entry(next: &mut Value, entry: &Value, needed: &Value, replica: &Replica<'_>, merged: &mut Merged) {
    let name = name(entry);
    if replica.is_holder {
        let fields: Vec<&str> = differing_fields(entry, needed);
        for field in &fields {
            next[*field] = needed[*field].clone();
        }
        if fields.contains(&"clientConfig")
            && let Some(bundle) = entry["clientConfig"].get("caBundle")
        {
            next["clientConfig"]["caBundle"] = bundle.clone();
        }
        if !fields.is_empty() {
            merged.changes.push(format!("{name}: {} restored", fields.join(", ")));
        }
    }
    let needed_keys: BTreeSet<_> = rules(needed).map(rule_key).collect();
    let mut all: Vec<Value> = Vec::new();
    let mut removed = 0_usize;
    for rule in rules(entry) {
        let key = rule_key(rule);
        if !needed_keys.contains(&key) {
            let part = Part::Rule(name.to_owned(), key);
            let is_removed = replica.is_holder && (replica.is_due)(&part);
            merged.unneeded.insert(part);
            if is_removed {
                removed += 1;
                continue;
            }
        }
        all.push(rule.clone());
    }
    let existing_keys: BTreeSet<_> = rules(entry).map(rule_key).collect();
    let new = rules(needed).filter(|rule| !existing_keys.contains(&rule_key(rule)));
    let kept = all.len();
    all.extend(new.cloned());
    let added = all.len() - kept;
    for (count, what) in [(added, "added"), (removed, "removed")] {
        if count > 0 {
            merged.changes.push(format!("{name}: {count} rules {what}"));
        }
    }
    if added + removed > 0 {
        next["rules"] = all.into();
    }
}

/// Returns the fields of an entry that differ, except the rules and the caBundle.
pub(super) fn differing_fields<'a>(entry: &Value, needed: &'a Value) -> Vec<&'a str> {
    let differs = |field: &str, value: &Value| {
        let mut existing = entry[field].clone();
        match field {
            "rules" => return false,
            "clientConfig" => {
                existing.as_object_mut().map(|fields| fields.remove("caBundle"));
            }
            _ => {}
        }
        // The API server stores no empty list of match conditions.
        let essential = |value: &Value| essential(&json!({ field: value }));
        essential(&existing) != essential(value)
    };
    let fields = needed.as_object().into_iter().flatten();
    fields.filter(|(field, value)| differs(field, value)).map(|(field, _)| field.as_str()).collect()
}

fn set_ca(next: &mut Value, name: &str, replica: &Replica<'_>, merged: &mut Merged) {
    let Some(trusted) = replica.ca else { return };
    let existing = trust::certificates(&ca_bundle(next));
    let certificates = if trusted.is_exact {
        trusted.certificates.clone()
    } else {
        let mut all = Vec::new();
        for certificate in &existing {
            if !trusted.certificates.contains(certificate) {
                let part = Part::Certificate(name.to_owned(), certificate.clone());
                let is_removed = replica.is_holder && (replica.is_due)(&part);
                merged.unneeded.insert(part);
                if is_removed {
                    continue;
                }
            }
            all.push(certificate.clone());
        }
        let new: Vec<_> = trusted.certificates.iter().filter(|new| !all.contains(new)).cloned().collect();
        all.extend(new);
        all
    };
    let set = |all: &[Vec<u8>]| all.iter().cloned().collect::<BTreeSet<_>>();
    if set(&existing) != set(&certificates) {
        next["clientConfig"]["caBundle"] = STANDARD.encode(ca::pem::bundle(&certificates)).into();
        merged.changes.push(format!("{name}: caBundle replaced"));
    }
}

fn rules(entry: &Value) -> impl Iterator<Item = &Value> {
    entry["rules"].as_array().into_iter().flatten()
}

/// Returns a text that is equal for rules that match the same requests.
fn rule_key(rule: &Value) -> String {
    let list = |field: &str| {
        let values = rule[field].as_array().into_iter().flatten();
        let mut values: Vec<&str> = values.filter_map(Value::as_str).collect();
        values.sort_unstable();
        format!("{values:?}")
    };
    let scope = rule["scope"].as_str().unwrap_or("*");
    format!(
        "{} {} {} {} {scope}",
        list("operations"),
        list("apiGroups"),
        list("apiVersions"),
        list("resources")
    )
}

/// Returns a value without empty fields, which the API server drops or adds.
fn essential(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| (key.clone(), essential(value)));
            let is_empty = |value: &Value| match value {
                Value::Null => true,
                Value::Array(values) => values.is_empty(),
                Value::Object(fields) => fields.is_empty(),
                // An empty text is the value of a label in `matchLabels`.
                Value::String(_) | Value::Bool(_) | Value::Number(_) => false,
            };
            Value::Object(fields.filter(|(_, value)| !is_empty(value)).collect())
        }
        Value::Array(values) => values.iter().map(essential).collect(),
        other => other.clone(),
    }
}

/// The parts that this replica's configuration does not need, and since when.
pub(super) struct Unneeded {
    since: BTreeMap<Part, Instant>,
    retention: Duration,
    /// Whether the object can contain entries that this process needed before.
    pub(super) has_entries: bool,
}

impl Unneeded {
    /// Creates an empty one. A part can be removed after `retention`.
    pub(super) fn new(retention: Duration) -> Self {
        Self { since: BTreeMap::new(), retention, has_entries: false }
    }

    /// Returns whether a part was not needed for long enough.
    pub(super) fn is_due(&self, part: &Part, now: Instant) -> bool {
        self.since.get(part).is_some_and(|since| now.saturating_duration_since(*since) >= self.retention)
    }

    /// Replaces the parts. Those that are known keep their time.
    pub(super) fn observe(&mut self, parts: BTreeSet<Part>, now: Instant) {
        let mut known = std::mem::take(&mut self.since);
        self.since = parts
            .into_iter()
            .map(|part| {
                let since = known.remove(&part).unwrap_or(now);
                (part, since)
            })
            .collect();
    }
}

#[cfg(test)]
mod tests;
