//! Remedies for a denial: fix what could not be read, or override.

use std::collections::BTreeSet;

use super::super::acknowledge::covers;
use super::super::config::Config;
use super::super::summary::FleetSummary;
use super::super::target::Target;
use crate::overrides::{self, BreakGlass, DELETE_REASON, DELETE_UNTIL};
use cluster::cause;

/// The remedies that one message names.
const MAX_REMEDIES: usize = 2;

/// A remedy, the most certain first. To acknowledge is offered only for a cluster that does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Remedy {
    /// A permission is missing.
    Permit,
    /// The credentials or the address of a member are wrong.
    Renew,
    /// Durward's own credentials for the control plane are wrong.
    RenewOwn,
    /// The cluster sends an answer that cannot be used.
    FixCluster,
    /// The cluster has more objects than can be read.
    Reduce,
    /// The cluster does not answer.
    Wait,
    /// Another attempt may succeed.
    Retry,
}

impl Remedy {
    fn of(code: &str, is_local: bool) -> Self {
        match code {
            cause::FORBIDDEN => Self::Permit,
            cause::CREDENTIALS if is_local => Self::RenewOwn,
            cause::CREDENTIALS | cause::NO_ENDPOINT => Self::Renew,
            cause::GARBAGE | cause::NOT_SERVED | cause::REFUSED => Self::FixCluster,
            cause::TOO_LONG => Self::Reduce,
            cause::UNREACHABLE | cause::TIMEOUT if !is_local => Self::Wait,
            _ => Self::Retry,
        }
    }

    fn text(self, config: &Config, are_many: bool) -> &'static str {
        match (self, are_many) {
            (Self::Permit, _) => "apply what durward manifests prints",
            (Self::Renew, _) if config.is_karmada() => "put right address and token in Karmada",
            (Self::Renew, _) => "renew the credentials",
            (Self::RenewOwn, _) => "renew what Durward's kubeconfig or service account logs in with",
            (Self::FixCluster, _) => "put that right",
            (Self::Reduce, _) => "have less in there, or give it longer (memberDeadline)",
            (Self::Wait, false) => "try again when it answers, acknowledge it",
            (Self::Wait, true) => "try again when they answer, acknowledge them",
            (Self::Retry, _) => "try again",
        }
    }
}

/// Returns a sentence with the remedies for what could not be read. If the list of the fleet is not known, acknowledgements do
/// not help and are not offered.
pub(super) fn for_unknown(config: &Config, summary: &FleetSummary<'_>) -> String {
    let is_complete = summary.incomplete.is_none();
    let mut remedies: BTreeSet<_> = summary.list_failure.iter().map(|code| Remedy::of(code, true)).collect();
    for cluster in &summary.unknown {
        let can_acknowledge = is_complete && covers(&cluster.findings.unknown).is_ok();
        remedies.extend(cluster.findings.unknown.iter().map(|why| {
            match Remedy::of(why.code, cluster.is_local()) {
                Remedy::Wait if !can_acknowledge => Remedy::Retry,
                remedy => remedy,
            }
        }));
    }
    if remedies.is_empty() || !is_complete {
        remedies.insert(Remedy::Retry);
    }
    // To wait for an answer includes to try again.
    if remedies.contains(&Remedy::Wait) {
        remedies.remove(&Remedy::Retry);
    }
    let text = |remedy: &Remedy| remedy.text(config, summary.unknown.len() > 1);
    sentence(&remedies.iter().take(MAX_REMEDIES).map(text).collect::<Vec<_>>().join(", "))
}

/// Returns the command that overrides a denial. It sets the one annotation that callers with the verb `break-glass` need; for
/// others the next denial names what is missing.
pub(super) fn override_command(config: &Config, target: &Target) -> String {
    let others = match config.break_glass {
        BreakGlass::Annotation => {
            format!(" (without the verb break-glass also {DELETE_REASON} and {DELETE_UNTIL})")
        }
        BreakGlass::Permission => " (with the verb break-glass only)".to_owned(),
    };
    let (kind, name) = (target.kind.short_name(), &target.name);
    let annotation = format!("{}={name}", overrides::DELETE_ANYWAY);
    format!("to delete in spite of all: kubectl annotate {kind}/{name} {annotation}{others}")
}

/// Returns the text with a capital letter.
pub(super) fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use admission::Cause;

    use super::super::super::facts::ClusterFacts;
    use super::super::super::findings::ClusterFindings;
    use super::super::super::fixture::{config, crd, member};
    use super::*;
    use cluster::Metadata;
    use cluster::fleet::{Cluster, FleetMember};

    fn unknown(member: FleetMember, codes: &[&'static str]) -> ClusterFacts {
        let unknown = codes.iter().map(|&code| Cause::new(code, code)).collect();
        ClusterFacts { member, findings: ClusterFindings { unknown, ..ClusterFindings::default() } }
    }

    fn remedies(yaml: &str, clusters: &[&[&'static str]], list_failure: Option<&'static str>) -> String {
        let clusters: Vec<_> = clusters.iter().map(|codes| unknown(member("m", &[], &[]), codes)).collect();
        let incomplete = list_failure.map(|code| Cause::new(cause::STALE_FLEET, code));
        let unknown = clusters.iter().collect();
        let summary = FleetSummary { unknown, incomplete, list_failure, ..FleetSummary::default() };
        for_unknown(&config(yaml), &summary)
    }

    const KARMADA: &str = "fleet: {karmada: {}}";

    #[test]
    fn every_cause_has_a_remedy() {
        for (code, remedy) in [
            (cause::UNREACHABLE, "Try again when it answers, acknowledge it"),
            (cause::TIMEOUT, "Try again when it answers, acknowledge it"),
            (cause::CREDENTIALS, "Put right address and token in Karmada"),
            (cause::NO_ENDPOINT, "Put right address and token in Karmada"),
            (cause::FORBIDDEN, "Apply what durward manifests prints"),
            (cause::GARBAGE, "Put that right"),
            (cause::REFUSED, "Put that right"),
            (cause::NOT_SERVED, "Put that right"),
            (cause::TOO_LONG, "Have less in there, or give it longer (memberDeadline)"),
            (cause::BUSY, "Try again"),
            (cause::VANISHED, "Try again"),
            (cause::STALE_FLEET, "Try again"),
            (cause::OVERLOADED, "Try again"),
        ] {
            assert_eq!(remedies(KARMADA, &[&[code]], None), remedy, "{code}");
        }
        let contexts = "fleet: {contexts: [m]}";
        assert_eq!(remedies(contexts, &[&[cause::CREDENTIALS]], None), "Renew the credentials");
    }

    #[test]
    fn names_each_remedy_once_and_the_most_certain_first() {
        let (timeout, refused) = (&[cause::TIMEOUT][..], &[cause::CREDENTIALS][..]);
        assert_eq!(
            remedies(KARMADA, &[timeout, timeout], None),
            "Try again when they answer, acknowledge them"
        );
        assert_eq!(
            remedies(KARMADA, &[timeout, refused, timeout, &[cause::OVERLOADED]], None),
            "Put right address and token in Karmada, try again when they answer, acknowledge them"
        );
        assert_eq!(
            remedies(KARMADA, &[&[cause::GARBAGE, cause::FORBIDDEN], &[cause::OVERLOADED]], None),
            "Apply what durward manifests prints, put that right"
        );
    }

    #[test]
    fn does_not_offer_acknowledgements_that_do_not_help() {
        let stale = Some(cause::STALE_FLEET);
        assert_eq!(remedies(KARMADA, &[&[cause::TIMEOUT]], stale), "Try again");
        assert_eq!(remedies(KARMADA, &[], stale), "Try again");
        assert_eq!(local_remedy(cause::TIMEOUT), "Try again");
        let both = &[cause::TIMEOUT, cause::TOO_LONG][..];
        assert_eq!(
            remedies(KARMADA, &[both], None),
            "Have less in there, or give it longer (memberDeadline), try again"
        );
    }

    #[test]
    fn blames_durwards_own_credentials_for_failures_on_the_control_plane() {
        let own = "Renew what Durward's kubeconfig or service account logs in with";
        assert_eq!(local_remedy(cause::CREDENTIALS), own);
        assert_eq!(remedies(KARMADA, &[], Some(cause::CREDENTIALS)), format!("{own}, try again"));
        let permit = "Apply what durward manifests prints, try again";
        assert_eq!(remedies(KARMADA, &[], Some(cause::FORBIDDEN)), permit);
        assert_eq!(
            remedies("fleet: {contexts: [m]}", &[], Some(cause::REFUSED)),
            "Put that right, try again"
        );
    }

    fn local_remedy(code: &'static str) -> String {
        let local = unknown(FleetMember { cluster: Cluster::Local, metadata: Metadata::default() }, &[code]);
        for_unknown(&config(KARMADA), &FleetSummary { unknown: vec![&local], ..FleetSummary::default() })
    }

    #[test]
    fn the_override_command_can_be_pasted() {
        let command = "to delete in spite of all: kubectl annotate crd/widgets.example.org durward.dev/delete-anyway=widgets.example.org";
        for (yaml, others) in [
            (
                "{}",
                "(without the verb break-glass also durward.dev/delete-reason and durward.dev/delete-until)",
            ),
            ("breakGlass: permission", "(with the verb break-glass only)"),
        ] {
            let text = override_command(&config(yaml), &crd("widgets.example.org"));
            assert_eq!(text, format!("{command} {others}"));
        }
    }
}
