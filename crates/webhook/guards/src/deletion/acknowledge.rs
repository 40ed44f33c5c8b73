//! Acknowledgements: member clusters that need not answer, each with a reason and an expiry. On Karmada they are annotations of the
//! Cluster, and in other fleets entries of `unreachableClusters`.
//!
//! An acknowledgement replaces a missing answer and nothing else. Objects in use are still in use, and the control plane and the
//! list of the fleet must always answer. Karmada keeps the deletion and carries it out when the member returns, so the user gets
//! a warning.

use std::time::{Duration, SystemTime};

use admission::Cause;
use serde::Serialize;

use super::cluster_facts::ClusterFacts;
use super::config::Config;
use crate::overrides::{Mistake, PLACEHOLDER, check_end, check_reason};
use ::config::time;
use cluster::cause;
use cluster::fleet::FleetMember;

/// The annotation of a Cluster with the reason.
const ACKNOWLEDGE_REASON: &str = "durward.dev/acknowledge-unreachable";
/// The annotation of a Cluster with the expiry: RFC 3339 or a date.
const ACKNOWLEDGE_UNTIL: &str = "durward.dev/acknowledge-until";

/// The longest time from now to the expiry.
const MAX_DURATION: Duration = Duration::from_secs(30 * 24 * 3600);

/// The days to the expiry in the command that a denial prints.
const SUGGESTED_DURATION: Duration = Duration::from_secs(7 * 24 * 3600);

/// An acknowledgement that is valid now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Acknowledgement {
    /// The end, RFC 3339.
    pub until: String,
    /// The reason.
    pub reason: String,
}

/// Returns the first valid acknowledgement of a member. Without one, returns the first invalid one as an error.
pub(super) fn find(
    config: &Config,
    member: &FleetMember,
    now: SystemTime,
) -> Option<Result<Acknowledgement, String>> {
    let mut found = all(config, member, now);
    let valid = found.iter().position(Result::is_ok).unwrap_or(0);
    (valid < found.len()).then(|| found.swap_remove(valid))
}

/// Returns all acknowledgements of a member. An error is the reason why one is not valid.
pub(super) fn all(
    config: &Config,
    member: &FleetMember,
    now: SystemTime,
) -> Vec<Result<Acknowledgement, String>> {
    let name = member.cluster.name();
    if config.is_karmada() {
        let annotation = |key: &str| member.metadata.annotations.get(key).map(String::as_str);
        let (reason, until) = (annotation(ACKNOWLEDGE_REASON), annotation(ACKNOWLEDGE_UNTIL));
        let is_annotated = reason.is_some() || until.is_some();
        return is_annotated.then(|| judge(name, reason, until, now)).into_iter().collect();
    }
    let of_member = config.acknowledged.iter().filter(|entry| entry.cluster == name);
    of_member.map(|entry| judge(name, Some(&entry.reason), Some(&time::format(entry.until)), now)).collect()
}

/// Returns why entries of the configuration have no effect at this time.
pub(super) fn invalid_entries(config: &Config, now: SystemTime) -> impl Iterator<Item = String> {
    config.acknowledged.iter().enumerate().filter_map(move |(at, entry)| {
        let until = time::format(entry.until);
        let why = check_end(Some(&until), now, MAX_DURATION).err()?;
        Some(format!(
            "unreachableClusters[{at}] has no effect: until {why}; {} can block deletions",
            entry.cluster
        ))
    })
}

/// Whether an acknowledgement can replace what is unknown. An error names a part that it cannot replace.
///
/// It replaces missing answers, and garbage, which a broken proxy returns instead of an answer. It does not replace what Durward
/// itself had no capacity for, since another attempt may succeed. It does not replace the unread rest of a long answer: that
/// cluster is reachable.
pub(super) fn covers(facts: &ClusterFacts) -> Result<(), &'static str> {
    if facts.is_interrupted {
        return Err("a list that broke off");
    }
    let uncovered = |cause: &Cause| match cause.code {
        cause::STALE_FLEET | cause::OVERLOADED => Some("what Durward had no capacity to check"),
        cause::TOO_LONG => Some("an answer that Durward cannot read to the end"),
        cause::POLICY_LIMIT => Some("an in-use rule without a result"),
        _ => None,
    };
    facts.unknown.iter().find_map(uncovered).map_or(Ok(()), Err)
}

fn judge(
    name: &str,
    reason: Option<&str>,
    until: Option<&str>,
    now: SystemTime,
) -> Result<Acknowledgement, String> {
    let reason = check_reason(reason).map_err(|why| format!("{name}: the reason {why}"))?;
    let until = check_end(until, now, MAX_DURATION).map_err(|why| format!("{name}: the expiry {why}"))?;
    Ok(Acknowledgement { until, reason })
}

/// Clusters in a command at most. With more, the reader chooses.
const MAX_NAMED: usize = 12;

/// Returns the arguments of `kubectl annotate` that acknowledge member clusters.
pub(super) fn arguments(members: &[&FleetMember], now: SystemTime) -> String {
    let has = |member: &FleetMember| {
        ACKNOWLEDGEMENT.iter().any(|key| member.metadata.annotations.contains_key(*key))
    };
    let is_annotated = members.iter().any(|member| has(member));
    let overwrite = if is_annotated { "--overwrite " } else { "" };
    let until = time::format(now + SUGGESTED_DURATION);
    let day = until.get(.."2026-12-01".len()).unwrap_or(&until);
    let names: Vec<_> = members.iter().map(|member| member.cluster.name()).collect();
    let names = if names.len() > MAX_NAMED { "CLUSTER...".to_owned() } else { names.join(" ") };
    format!("{overwrite}cluster {names} {ACKNOWLEDGE_REASON}='{PLACEHOLDER}' {ACKNOWLEDGE_UNTIL}={day}")
}

/// The annotations of an acknowledgement: reason and expiry.
pub const ACKNOWLEDGEMENT: [&str; 2] = [ACKNOWLEDGE_REASON, ACKNOWLEDGE_UNTIL];

/// Returns the annotations that acknowledge a member cluster for a time.
pub fn acknowledgement(
    reason: &str,
    duration: Duration,
    now: SystemTime,
) -> Result<[(&'static str, String); 2], Mistake> {
    let reason = check_reason(Some(reason)).map_err(Mistake::Reason)?;
    let until = now.checked_add(duration).map(time::format).unwrap_or_default();
    let until = check_end(Some(&until), now, MAX_DURATION)?;
    Ok([(ACKNOWLEDGE_REASON, reason), (ACKNOWLEDGE_UNTIL, until)])
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{NOW, config, member, now};
    use super::*;

    fn found(yaml: &str, annotations: &[(&str, &str)]) -> Option<Result<Acknowledgement, String>> {
        find(&config(yaml), &member("m5", annotations), now())
    }

    const KARMADA: &str = "fleet: karmada";
    const CONTEXTS: &str = "fleet: {contexts: [m5]}\n";

    #[test]
    fn each_fleet_has_one_place_for_acknowledgements() {
        let until = "2026-12-01T00:00:00Z";
        let annotations = [(ACKNOWLEDGE_REASON, "cut"), (ACKNOWLEDGE_UNTIL, until)];
        assert!(matches!(found(KARMADA, &annotations), Some(Ok(_))));
        assert_eq!(found(KARMADA, &[]), None);
        let named = |name: &str| {
            format!("{CONTEXTS}unreachableClusters: [{{cluster: {name}, until: {until}, reason: cut}}]")
        };
        assert!(matches!(found(&named("m5"), &[]), Some(Ok(_))));
        assert_eq!(found(&named("m6"), &[]), None);
        for yaml in [CONTEXTS, "fleet: {secrets: {}}"] {
            assert_eq!(found(yaml, &annotations), None, "{yaml}");
        }
    }

    #[test]
    fn rejects_invalid_acknowledgements_with_the_reason() {
        for (reason, until, why) in [
            (Some("cut"), Some("2026-11-20T00:00:00Z"), "the expiry 2026-11-20T00:00:00Z is in the past"),
            (Some("cut"), Some(NOW), "is in the past"),
            (Some("cut"), Some("2027-01-01T00:00:00Z"), "more than 30 days ahead"),
            (Some("cut"), Some("next week"), "the expiry \"next week\" is not a time"),
            (Some("cut"), None, "the expiry is missing"),
            (Some("  "), Some("2026-12-01T00:00:00Z"), "the reason is empty"),
            (Some("<reason>"), Some("2026-12-01"), "placeholder"),
            (None, Some("2026-12-01"), "the reason is missing"),
        ] {
            let pairs: Vec<(&str, &str)> = [(ACKNOWLEDGE_REASON, reason), (ACKNOWLEDGE_UNTIL, until)]
                .into_iter()
                .filter_map(|(k, v)| Some((k, v?)))
                .collect();
            let text = found(KARMADA, &pairs).unwrap().unwrap_err();
            assert!(text.contains("m5") && text.contains(why), "{text}");
        }
        let far = "unreachableClusters: [{cluster: m5, until: 2099-01-01T00:00:00Z, reason: cut}]";
        assert!(found(&format!("{CONTEXTS}{far}"), &[]).unwrap().is_err());
    }

    #[test]
    fn one_valid_acknowledgement_is_enough() {
        let yaml = "unreachableClusters: [{cluster: m5, until: 2026-01-01T00:00:00Z, reason: cut}, \
                    {cluster: m5, until: 2026-12-01T00:00:00Z, reason: cut again}]";
        let judged = found(&format!("{CONTEXTS}{yaml}"), &[]).unwrap().unwrap();
        assert_eq!(judged.reason, "cut again");
    }

    #[test]
    fn does_not_cover_missing_capacity_and_unread_rests() {
        let covered = |code| covers(&ClusterFacts::unknown(Cause::new(code, ""))).is_ok();
        assert!(covered(cause::UNREACHABLE) && covered(cause::TIMEOUT) && covered(cause::NO_ENDPOINT));
        assert!(covered(cause::GARBAGE) && covered(cause::REFUSED), "a broken proxy answers like this");
        assert!(!covered(cause::OVERLOADED) && !covered(cause::STALE_FLEET) && !covered(cause::TOO_LONG));
        for mixed in [[cause::TIMEOUT, cause::OVERLOADED], [cause::TOO_LONG, cause::TIMEOUT]] {
            let [first, second] = mixed.map(|code| Cause::new(code, ""));
            let facts = ClusterFacts::unknown(first).and_unknown(second);
            assert!(covers(&facts).is_err(), "{mixed:?}: each cause must be covered");
        }
    }
}
