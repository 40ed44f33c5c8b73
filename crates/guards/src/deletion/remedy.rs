//! The way out that a refusal names: what helps against what stands in the way, and the deed that passes in spite of it.

use std::collections::BTreeSet;

use super::acknowledge::covers;
use super::config::Config;
use super::decide::Whole;
use super::target::Target;
use crate::overrides::{self, BreakGlass, REASON, UNTIL};
use cluster::cause;

/// Remedies that are told in one sentence; who has done these is told of the next.
const TOLD: usize = 2;

/// What helps, the surest first. To acknowledge is told only where a cluster is silent: of one that has answered it says no more
/// than that nobody minds what is in there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Remedy {
    /// A permission is missing.
    Permit,
    /// What a cluster is reached with no longer holds.
    Renew,
    /// What the control plane is reached with no longer holds: that is Durward's own.
    RenewOwn,
    /// The cluster answers with something that cannot be used.
    Mend,
    /// There is more than can be read.
    Lessen,
    /// The cluster is silent.
    Wait,
    /// The next try may go well.
    Again,
}

impl Remedy {
    fn of(code: &str, is_here: bool) -> Self {
        match code {
            cause::FORBIDDEN => Self::Permit,
            cause::CREDENTIALS if is_here => Self::RenewOwn,
            cause::CREDENTIALS | cause::NO_ENDPOINT => Self::Renew,
            cause::GARBAGE | cause::NOT_SERVED | cause::REFUSED => Self::Mend,
            cause::TOO_LONG => Self::Lessen,
            cause::UNREACHABLE | cause::TIMEOUT if !is_here => Self::Wait,
            _ => Self::Again,
        }
    }

    fn told(self, config: &Config, are_many: bool) -> &'static str {
        match (self, are_many) {
            (Self::Permit, _) => "apply what durward manifests prints",
            (Self::Renew, _) if config.is_karmada() => "put right address and token in Karmada",
            (Self::Renew, _) => "renew the credentials",
            (Self::RenewOwn, _) => "renew what Durward's kubeconfig or service account logs in with",
            (Self::Mend, _) => "put that right",
            (Self::Lessen, _) => "have less in there, or give it longer (memberDeadline)",
            (Self::Wait, false) => "try again when it answers, acknowledge it",
            (Self::Wait, true) => "try again when they answer, acknowledge them",
            (Self::Again, _) => "try again",
        }
    }
}

/// What helps where something could not be seen, as a sentence begins. Where nobody knows which clusters there are, no
/// acknowledgement would be of use.
pub(super) fn of_unknown(config: &Config, whole: &Whole<'_>) -> String {
    let (unknown, is_sure) = (&whole.unknown, whole.unsure.is_none());
    let mut remedies: BTreeSet<_> = whole.unlisted.iter().map(|code| Remedy::of(code, true)).collect();
    for seen in unknown {
        let is_acknowledgeable = is_sure && covers(&seen.sight.unseen).is_ok();
        let of = |code| match Remedy::of(code, seen.is_here()) {
            Remedy::Wait if !is_acknowledgeable => Remedy::Again,
            remedy => remedy,
        };
        remedies.extend(seen.sight.unseen.iter().map(|why| of(why.code)));
    }
    if remedies.is_empty() || !is_sure {
        remedies.insert(Remedy::Again);
    }
    let told = |remedy: &Remedy| remedy.told(config, unknown.len() > 1);
    // Who waits, tries again.
    let is_said = |remedy: &&Remedy| **remedy != Remedy::Again || !remedies.contains(&Remedy::Wait);
    sentence(&remedies.iter().filter(is_said).take(TOLD).map(told).collect::<Vec<_>>().join(", "))
}

/// What passes in spite of a refusal: one command for whoever has the verb, and what others add to it, where that counts. With
/// the next refusal they are told what is missing still.
pub(super) fn anyway(config: &Config, target: &Target) -> String {
    let Target { subject, name, .. } = target;
    let others = match config.break_glass {
        BreakGlass::Annotations => format!(" (without the verb break-glass also {REASON} and {UNTIL})"),
        BreakGlass::Verb => " (with the verb break-glass only)".to_owned(),
    };
    format!(
        "to delete in spite of all: kubectl annotate {}/{name} {}{others}",
        subject.short(),
        overrides::deed(name)
    )
}

/// The same text with a capital letter.
pub(super) fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use admission::Cause;

    use super::super::facts::Seen;
    use super::super::fixture::{config, definition, member};
    use super::super::sight::Sight;
    use super::*;
    use cluster::Metadata;
    use cluster::fleet::{Cluster, FleetMember};

    fn blind(member: FleetMember, codes: &[&'static str]) -> Seen {
        let unseen = codes.iter().map(|&code| Cause::new(code, code)).collect();
        Seen { member, sight: Sight { unseen, ..Sight::default() } }
    }

    fn told(yaml: &str, clusters: &[&[&'static str]], unlisted: Option<&'static str>) -> String {
        let seen: Vec<Seen> = clusters.iter().map(|codes| blind(member("m", &[], &[]), codes)).collect();
        let unsure = unlisted.map(|code| Cause::new(cause::STALE_FLEET, code));
        let unknown = seen.iter().collect();
        of_unknown(&config(yaml), &Whole { unknown, unsure, unlisted, ..Whole::default() })
    }

    const KARMADA: &str = "fleet: {karmada: {}}";

    #[test]
    fn each_cause_has_its_way_out() {
        for (code, way_out) in [
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
            (cause::CROWDED, "Try again"),
        ] {
            assert_eq!(told(KARMADA, &[&[code]], None), way_out, "{code}");
        }
        let contexts = "fleet: {contexts: [m]}";
        assert_eq!(told(contexts, &[&[cause::CREDENTIALS]], None), "Renew the credentials");
    }

    #[test]
    fn several_are_told_once_each_and_the_surest_first() {
        let (silent, refused) = (&[cause::TIMEOUT][..], &[cause::CREDENTIALS][..]);
        assert_eq!(told(KARMADA, &[silent, silent], None), "Try again when they answer, acknowledge them");
        assert_eq!(
            told(KARMADA, &[silent, refused, silent, &[cause::CROWDED]], None),
            "Put right address and token in Karmada, try again when they answer, acknowledge them"
        );
        assert_eq!(
            told(KARMADA, &[&[cause::GARBAGE, cause::FORBIDDEN], &[cause::CROWDED]], None),
            "Apply what durward manifests prints, put that right"
        );
    }

    #[test]
    fn nobody_is_sent_to_acknowledge_what_that_does_not_help() {
        let stale = Some(cause::STALE_FLEET);
        assert_eq!(told(KARMADA, &[&[cause::TIMEOUT]], stale), "Try again");
        assert_eq!(told(KARMADA, &[], stale), "Try again");
        assert_eq!(told_here(cause::TIMEOUT), "Try again");
        let both = &[cause::TIMEOUT, cause::TOO_LONG][..];
        assert_eq!(
            told(KARMADA, &[both], None),
            "Have less in there, or give it longer (memberDeadline), try again"
        );
    }

    #[test]
    fn what_is_durwards_own_fault_is_not_looked_for_in_karmada() {
        let own = "Renew what Durward's kubeconfig or service account logs in with";
        assert_eq!(told_here(cause::CREDENTIALS), own);
        assert_eq!(told(KARMADA, &[], Some(cause::CREDENTIALS)), format!("{own}, try again"));
        let permit = "Apply what durward manifests prints, try again";
        assert_eq!(told(KARMADA, &[], Some(cause::FORBIDDEN)), permit);
        assert_eq!(told("fleet: {contexts: [m]}", &[], Some(cause::REFUSED)), "Put that right, try again");
    }

    fn told_here(code: &'static str) -> String {
        let here = blind(FleetMember { cluster: Cluster::Local, metadata: Metadata::default() }, &[code]);
        of_unknown(&config(KARMADA), &Whole { unknown: vec![&here], ..Whole::default() })
    }

    #[test]
    fn the_deed_can_be_typed_as_it_is_told() {
        let deed = "to delete in spite of all: kubectl annotate crd/widgets.example.org durward.dev/delete-anyway=widgets.example.org";
        for (yaml, others) in [
            (
                "{}",
                "(without the verb break-glass also durward.dev/delete-reason and durward.dev/delete-until)",
            ),
            ("breakGlass: verb", "(with the verb break-glass only)"),
        ] {
            let told = anyway(&config(yaml), &definition("widgets.example.org"));
            assert_eq!(told, format!("{deed} {others}"));
        }
    }
}
