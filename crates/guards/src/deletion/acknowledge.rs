//! Clusters of which somebody said, with a reason and an end, that they need not answer.
//!
//! An acknowledgement stands in for an answer that does not come, and for nothing else: what is in use stays in use, the
//! control plane always has to answer, and so does the list of the clusters. Karmada keeps the deletion and carries it out when
//! the member returns, which is why whoever is let through this way is told so.

use std::time::{Duration, SystemTime};

use admission::Cause;

use super::config::{Config, Whom};
use ::config::{SelectorExt as _, time};
use cluster::cause;
use cluster::fleet::FleetMember;

/// On a Cluster: why it need not answer.
const REASON: &str = "durward.dev/acknowledge-unreachable";
/// On a Cluster: until when.
const UNTIL: &str = "durward.dev/acknowledge-until";

/// The longest time for which a cluster can be given up beforehand.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

/// An acknowledgement that holds now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Acknowledgement {
    /// Why.
    pub(super) reason: String,
    /// Until when, RFC 3339.
    pub(super) until: String,
    /// Where it was found.
    pub(super) by: &'static str,
}

/// Whether a member's silence is acknowledged. An error is what is wrong with an acknowledgement that was meant for it and does
/// not count; nothing where there is none.
pub(super) fn of(
    config: &Config,
    member: &FleetMember,
    now: SystemTime,
) -> Option<Result<Acknowledgement, String>> {
    let mut wrong = None;
    for Judged { judged, .. } in all(config, member, now) {
        match judged {
            Ok(acknowledgement) => return Some(Ok(acknowledgement)),
            Err(why) => wrong = wrong.or(Some(Err(why))),
        }
    }
    wrong
}

/// An acknowledgement that is meant for a cluster, and what is to be held of it.
pub(super) struct Judged {
    /// Where it stands.
    pub(super) by: &'static str,
    /// What it comes to, or what is wrong with it.
    pub(super) judged: Result<Acknowledgement, String>,
}

/// All that are meant for a member, those of the configuration first.
pub(super) fn all(config: &Config, member: &FleetMember, now: SystemTime) -> impl Iterator<Item = Judged> {
    let name = member.cluster.name();
    let ours = config.acknowledged.iter().filter(move |entry| match &entry.whom {
        Whom::Named(named) => named == name,
        Whom::Labelled(selector) => selector.matches(&member.metadata.labels),
    });
    let configured = ours.map(move |entry| {
        let judged = judged(name, &entry.reason, entry.until, now, CONFIGURED);
        Judged { by: CONFIGURED, judged }
    });
    configured.chain(annotated(member, now).map(|judged| Judged { by: ANNOTATED, judged }))
}

/// The clusters that the configuration acknowledges by name.
pub(super) fn named(config: &Config) -> impl Iterator<Item = &str> {
    config.acknowledged.iter().filter_map(|entry| match &entry.whom {
        Whom::Named(name) => Some(name.as_str()),
        Whom::Labelled(_) => None,
    })
}

/// Where acknowledgements stand.
const CONFIGURED: &str = "in the configuration";
const ANNOTATED: &str = "on its Cluster";

/// Whether what was not seen can be acknowledged; an error is what cannot. Silence can, whoever is silent on the way, and so can
/// nonsense, which stands in for an answer where a proxy is broken. What Durward itself had no room to ask is no property of the
/// cluster: the next try may well see it. And where a cluster answers with more than Durward reads, it is there, and so is what
/// was not read.
pub(super) fn covers(unseen: &[Cause]) -> Result<(), &'static str> {
    let not = |why: &Cause| match why.code {
        cause::STALE_FLEET | cause::CROWDED => Some("what Durward had no room to ask"),
        cause::TOO_LONG => Some("what it answers and Durward cannot read to the end"),
        _ => None,
    };
    unseen.iter().find_map(not).map_or(Ok(()), Err)
}

fn annotated(member: &FleetMember, now: SystemTime) -> Option<Result<Acknowledgement, String>> {
    let annotation = |key: &str| member.metadata.annotations.get(key).map(String::as_str);
    let (reason, until) = (annotation(REASON), annotation(UNTIL));
    if reason.is_none() && until.is_none() {
        return None;
    }
    let name = member.cluster.name();
    let read = until.and_then(time::read);
    Some(match (read, until) {
        (Some(end), _) => judged(name, reason.unwrap_or_default(), end.into(), now, ANNOTATED),
        (None, None) => {
            Err(format!("the acknowledgement of {name} {ANNOTATED} has no end: {UNTIL} is missing"))
        }
        (None, Some(text)) => Err(format!(
            "the acknowledgement of {name} {ANNOTATED} has no end: {UNTIL} is {text:?}, which is no time in RFC 3339"
        )),
    })
}

fn judged(
    name: &str,
    reason: &str,
    until: SystemTime,
    now: SystemTime,
    by: &'static str,
) -> Result<Acknowledgement, String> {
    let what = format!("the acknowledgement of {name} {by}");
    let told = time::format(until);
    if reason.trim().is_empty() {
        return Err(format!("{what} gives no reason"));
    }
    match until.duration_since(now) {
        Ok(left) if left > LONGEST => Err(format!("{what} ends at {told}, which is more than 30 days ahead")),
        Ok(left) if !left.is_zero() => {
            Ok(Acknowledgement { reason: reason.trim().to_owned(), until: told, by })
        }
        _ => Err(format!("{what} ended at {told}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{NOW, config, member, now};
    use super::*;

    fn judge(
        yaml: &str,
        annotations: &[(&str, &str)],
        labels: &[(&str, &str)],
    ) -> Option<Result<Acknowledgement, String>> {
        of(&config(yaml), &member("m5", annotations, labels), now())
    }

    const KARMADA: &str = "fleet: {karmada: {}}\n";

    #[test]
    fn a_cluster_is_acknowledged_by_name_by_label_or_on_itself() {
        let until = "2026-12-01T00:00:00Z";
        let by = |yaml: &str, annotations: &[(&str, &str)], labels: &[(&str, &str)]| {
            judge(&format!("{KARMADA}{yaml}"), annotations, labels).map(|judged| judged.unwrap().by)
        };
        let named = format!("acknowledge: [{{cluster: m5, until: {until}, reason: cut}}]");
        assert_eq!(by(&named, &[], &[]), Some(CONFIGURED));
        let other = format!("acknowledge: [{{cluster: m6, until: {until}, reason: cut}}]");
        assert_eq!(by(&other, &[], &[]), None);
        let labelled = format!(
            "acknowledge: [{{clusterSelector: {{matchLabels: {{edge: x}}}}, until: {until}, reason: cut}}]"
        );
        assert_eq!(by(&labelled, &[], &[("edge", "x")]), Some(CONFIGURED));
        assert_eq!(by(&labelled, &[], &[("edge", "y")]), None);
        assert_eq!(by("", &[(REASON, "cut"), (UNTIL, until)], &[]), Some(ANNOTATED));
    }

    #[test]
    fn what_is_wrong_with_an_acknowledgement_is_said_and_it_does_not_count() {
        for (reason, until, why) in [
            (Some("cut"), Some("2026-11-20T00:00:00Z"), "ended at 2026-11-20T00:00:00Z"),
            (Some("cut"), Some(NOW), "ended at"),
            (Some("cut"), Some("2027-01-01T00:00:00Z"), "more than 30 days ahead"),
            (Some("cut"), Some("next week"), "is \"next week\", which is no time in RFC 3339"),
            (Some("cut"), None, "durward.dev/acknowledge-until is missing"),
            (Some("  "), Some("2026-12-01T00:00:00Z"), "gives no reason"),
            (None, Some("2026-12-01T00:00:00Z"), "gives no reason"),
        ] {
            let pairs: Vec<(&str, &str)> =
                [(REASON, reason), (UNTIL, until)].into_iter().filter_map(|(k, v)| Some((k, v?))).collect();
            let told = judge(KARMADA, &pairs, &[]).unwrap().unwrap_err();
            assert!(told.contains("m5") && told.contains(why), "{told}");
        }
        let far = "acknowledge: [{cluster: m5, until: 2099-01-01T00:00:00Z, reason: cut}]";
        assert!(judge(&format!("{KARMADA}{far}"), &[], &[]).unwrap().is_err());
    }

    #[test]
    fn one_that_holds_is_enough() {
        let expired = "acknowledge: [{cluster: m5, until: 2026-01-01T00:00:00Z, reason: cut}]";
        let pairs = [(REASON, "cut again"), (UNTIL, "2026-12-01T00:00:00Z")];
        let judged = judge(&format!("{KARMADA}{expired}"), &pairs, &[]).unwrap().unwrap();
        assert_eq!(judged.reason, "cut again");
    }

    #[test]
    fn silence_that_is_durwards_own_fault_is_not_covered() {
        let covered = |code| covers(&[Cause::new(code, "")]).is_ok();
        assert!(covered(cause::UNREACHABLE) && covered(cause::TIMEOUT) && covered(cause::NO_ENDPOINT));
        assert!(covered(cause::GARBAGE) && covered(cause::REFUSED), "a proxy on the way may be broken");
        assert!(!covered(cause::CROWDED) && !covered(cause::STALE_FLEET) && !covered(cause::TOO_LONG));
        for mixed in [[cause::TIMEOUT, cause::CROWDED], [cause::TOO_LONG, cause::TIMEOUT]] {
            assert!(
                covers(&mixed.map(|code| Cause::new(code, ""))).is_err(),
                "{mixed:?}: each of them has to be covered"
            );
        }
    }
}
