//! Acknowledgements: member clusters that need not answer, each with a reason and an expiry.
//!
//! An acknowledgement replaces a missing answer and nothing else. Objects in use are still in use, and the control plane and the
//! list of the fleet must always answer. Karmada keeps the deletion and carries it out when the member returns, so the user gets
//! a warning.

use std::fmt;
use std::time::{Duration, SystemTime};

use admission::Cause;
use serde::Serialize;

use super::config::{ClusterMatch, Config};
use super::findings::ClusterFindings;
use crate::overrides::{Mistake, PLACEHOLDER, check_end, check_reason};
use ::config::{SelectorExt as _, time};
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

/// The place of an acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// `guards.deletion.unreachableClusters`.
    Configuration,
    /// The annotations of the Cluster.
    Cluster,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Configuration => "in the configuration",
            Self::Cluster => "on its Cluster",
        })
    }
}

/// An acknowledgement that is valid now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Acknowledgement {
    /// The end, RFC 3339.
    pub until: String,
    /// The reason.
    pub reason: String,
}

/// An acknowledgement, or the reason why it is not valid, with its place.
pub(super) type Judged = (Place, Result<Acknowledgement, String>);

/// Returns the first valid acknowledgement of a member. Without one, returns the first invalid one as an error.
pub(super) fn find(
    config: &Config,
    member: &FleetMember,
    now: SystemTime,
) -> Option<Result<Acknowledgement, String>> {
    let mut invalid = None;
    for (_, judged) in all(config, member, now) {
        match judged {
            Ok(acknowledgement) => return Some(Ok(acknowledgement)),
            Err(why) => invalid = invalid.or(Some(Err(why))),
        }
    }
    invalid
}

/// Returns all acknowledgements of a member, those of the configuration first.
pub(super) fn all(config: &Config, member: &FleetMember, now: SystemTime) -> impl Iterator<Item = Judged> {
    let name = member.cluster.name();
    let of_member = config.acknowledged.iter().filter(move |entry| match &entry.clusters {
        ClusterMatch::Name(named) => named == name,
        ClusterMatch::Selector(selector) => selector.matches(&member.metadata.labels),
    });
    let configured = of_member.map(move |entry| {
        let until = time::format(entry.until);
        (Place::Configuration, judge(name, Some(&entry.reason), Some(&until), now, Place::Configuration))
    });
    configured.chain(annotated(member, now).map(|judged| (Place::Cluster, judged)))
}

/// Returns the clusters that the configuration acknowledges by name.
pub(super) fn named(config: &Config) -> impl Iterator<Item = &str> {
    config.acknowledged.iter().filter_map(|entry| match &entry.clusters {
        ClusterMatch::Name(name) => Some(name.as_str()),
        ClusterMatch::Selector(_) => None,
    })
}

/// Returns why entries of the configuration have no effect at this time.
pub(super) fn invalid_entries(config: &Config, now: SystemTime) -> impl Iterator<Item = String> {
    config.acknowledged.iter().enumerate().filter_map(move |(at, entry)| {
        let until = time::format(entry.until);
        let clusters = match &entry.clusters {
            ClusterMatch::Name(name) => name.clone(),
            ClusterMatch::Selector(selector) => format!("clusters labeled {selector}"),
        };
        let why = check_end(Some(&until), now, MAX_DURATION).err()?;
        Some(format!("unreachableClusters[{at}] has no effect: until {why}; {clusters} can block deletions"))
    })
}

/// Whether an acknowledgement can replace what is unknown. An error names a part that it cannot replace.
///
/// It replaces missing answers, and garbage, which a broken proxy returns instead of an answer. It does not replace what Durward
/// itself had no capacity for, since another attempt may succeed. It does not replace the unread rest of a long answer: that
/// cluster is reachable.
pub(super) fn covers(findings: &ClusterFindings) -> Result<(), &'static str> {
    if findings.is_interrupted {
        return Err("a list that broke off");
    }
    let uncovered = |cause: &Cause| match cause.code {
        cause::STALE_FLEET | cause::OVERLOADED => Some("what Durward had no capacity to check"),
        cause::TOO_LONG => Some("an answer that Durward cannot read to the end"),
        _ => None,
    };
    findings.unknown.iter().find_map(uncovered).map_or(Ok(()), Err)
}

fn annotated(member: &FleetMember, now: SystemTime) -> Option<Result<Acknowledgement, String>> {
    let annotation = |key: &str| member.metadata.annotations.get(key).map(String::as_str);
    let (reason, until) = (annotation(ACKNOWLEDGE_REASON), annotation(ACKNOWLEDGE_UNTIL));
    let is_annotated = reason.is_some() || until.is_some();
    is_annotated.then(|| judge(member.cluster.name(), reason, until, now, Place::Cluster))
}

fn judge(
    name: &str,
    reason: Option<&str>,
    until: Option<&str>,
    now: SystemTime,
    place: Place,
) -> Result<Acknowledgement, String> {
    let reason = check_reason(reason).map_err(|why| format!("{name} ({place}): the reason {why}"))?;
    let until =
        check_end(until, now, MAX_DURATION).map_err(|why| format!("{name} ({place}): the expiry {why}"))?;
    Ok(Acknowledgement { until, reason })
}

/// Returns the arguments of `kubectl annotate` that acknowledge a member cluster.
pub(super) fn arguments(member: &FleetMember, now: SystemTime) -> String {
    let annotated = [ACKNOWLEDGE_REASON, ACKNOWLEDGE_UNTIL];
    let is_annotated = annotated.iter().any(|key| member.metadata.annotations.contains_key(*key));
    let overwrite = if is_annotated { "--overwrite " } else { "" };
    let until = time::format(now + SUGGESTED_DURATION);
    let day = until.get(.."2026-12-01".len()).unwrap_or(&until);
    let name = member.cluster.name();
    format!("{overwrite}cluster {name} {ACKNOWLEDGE_REASON}='{PLACEHOLDER}' {ACKNOWLEDGE_UNTIL}={day}")
}

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

    fn found(
        yaml: &str,
        annotations: &[(&str, &str)],
        labels: &[(&str, &str)],
    ) -> Option<Result<Acknowledgement, String>> {
        find(&config(yaml), &member("m5", annotations, labels), now())
    }

    const KARMADA: &str = "fleet: karmada\n";

    #[test]
    fn finds_acknowledgements_by_name_by_label_and_on_the_cluster() {
        let until = "2026-12-01T00:00:00Z";
        let place = |yaml: &str, annotations: &[(&str, &str)], labels: &[(&str, &str)]| {
            let (config, m5) = (config(&format!("{KARMADA}{yaml}")), member("m5", annotations, labels));
            all(&config, &m5, now()).next().map(|(place, judged)| judged.map(|_| place).unwrap())
        };
        let named = format!("unreachableClusters: [{{cluster: m5, until: {until}, reason: cut}}]");
        assert_eq!(place(&named, &[], &[]), Some(Place::Configuration));
        let other = format!("unreachableClusters: [{{cluster: m6, until: {until}, reason: cut}}]");
        assert_eq!(place(&other, &[], &[]), None);
        let labelled = format!(
            "unreachableClusters: [{{clusterSelector: {{matchLabels: {{edge: x}}}}, until: {until}, reason: cut}}]"
        );
        assert_eq!(place(&labelled, &[], &[("edge", "x")]), Some(Place::Configuration));
        assert_eq!(place(&labelled, &[], &[("edge", "y")]), None);
        assert_eq!(
            place("", &[(ACKNOWLEDGE_REASON, "cut"), (ACKNOWLEDGE_UNTIL, until)], &[]),
            Some(Place::Cluster)
        );
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
            let text = found(KARMADA, &pairs, &[]).unwrap().unwrap_err();
            assert!(text.contains("m5") && text.contains(why), "{text}");
        }
        let far = "unreachableClusters: [{cluster: m5, until: 2099-01-01T00:00:00Z, reason: cut}]";
        assert!(found(&format!("{KARMADA}{far}"), &[], &[]).unwrap().is_err());
    }

    #[test]
    fn one_valid_acknowledgement_is_enough() {
        let expired = "unreachableClusters: [{cluster: m5, until: 2026-01-01T00:00:00Z, reason: cut}]";
        let pairs = [(ACKNOWLEDGE_REASON, "cut again"), (ACKNOWLEDGE_UNTIL, "2026-12-01T00:00:00Z")];
        let judged = found(&format!("{KARMADA}{expired}"), &pairs, &[]).unwrap().unwrap();
        assert_eq!(judged.reason, "cut again");
    }

    #[test]
    fn does_not_cover_missing_capacity_and_unread_rests() {
        let covered = |code| covers(&ClusterFindings::unknown(Cause::new(code, ""))).is_ok();
        assert!(covered(cause::UNREACHABLE) && covered(cause::TIMEOUT) && covered(cause::NO_ENDPOINT));
        assert!(covered(cause::GARBAGE) && covered(cause::REFUSED), "a broken proxy answers like this");
        assert!(!covered(cause::OVERLOADED) && !covered(cause::STALE_FLEET) && !covered(cause::TOO_LONG));
        for mixed in [[cause::TIMEOUT, cause::OVERLOADED], [cause::TOO_LONG, cause::TIMEOUT]] {
            let [first, second] = mixed.map(|code| Cause::new(code, ""));
            let findings = ClusterFindings::unknown(first).and_unknown(second);
            assert!(covers(&findings).is_err(), "{mixed:?}: each cause must be covered");
        }
    }
}
