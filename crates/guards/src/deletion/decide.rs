//! The decision, pure: what the request alone decides, and what the facts decide.
//!
//! Two steps, so that clusters are asked only when the answer depends on them: [`open`] rules by itself or names what is to be
//! looked at, [`close`] rules with what was seen. Nothing is allowed by silence: every cluster of the list has to be among those
//! that were looked at, and whatever was not seen is Unknown unless somebody acknowledged it.

use std::collections::HashSet;
use std::time::SystemTime;

use admission::{Cause, Request, Ruling, Verdict};

use super::acknowledge::{self, Acknowledgement};
use super::config::Config;
use super::facts::{Facts, Seen};
use super::own::{Own, Standing};
use super::select::is_guarded;
use super::sight::Finding;
use super::target::{Subject, Target};
use super::tell;
use crate::exempt::Exemption;
use crate::overrides::Override;
use cluster::cause;
use cluster::fleet::Fleet;

/// What comes after the first look.
#[derive(Debug)]
pub(super) enum Step {
    /// It is decided.
    Rule(Ruling),
    /// The clusters decide.
    Look {
        /// What about.
        target: Target,
        /// Whether only the list of clusters decides: is this a part of Karmada that the fleet needs?
        only_own: bool,
    },
}

/// Looks at the request alone.
pub(super) fn open(config: &Config, request: &Request<'_>, now: SystemTime) -> Step {
    let Some(subject) = Subject::of(request) else { return Step::Rule(Ruling::allow()) };
    let target = match Target::read(subject, request) {
        Ok(target) => target,
        Err(cause) => return Step::Rule(Ruling::unknown(cause)),
    };
    if target.deleting {
        return Step::Rule(Ruling::allow().audit("allowed", "it is being deleted already"));
    }
    if let Some(part) = exempt(config, request, &target) {
        return Step::Rule(Ruling::allow().audit("exempt", part));
    }
    if let Override::Broken { reason, until } = target.glass(config.break_glass, now) {
        return Step::Rule(tell::glass_broken(&target, &reason, &until));
    }
    let is_own = Own::of(config, &target).is_some();
    let is_guarded = is_guarded(config, &target);
    if !is_own {
        if !is_guarded {
            return Step::Rule(Ruling::allow().audit("allowed", "it is not labelled to be guarded"));
        }
        if let Some(uncovered) = uncovered(config, &target, now) {
            return Step::Rule(uncovered);
        }
    }
    let only_own = is_own && (!is_guarded || uncovered(config, &target, now).is_some());
    Step::Look { target, only_own }
}

/// The part of the configuration that lets it alone.
fn exempt(config: &Config, request: &Request<'_>, target: &Target) -> Option<&'static str> {
    let is_namespace = target.subject == Subject::Namespace;
    match config.common_config.exempt.of(request) {
        // A definition is in no namespace, whatever a review says.
        Exemption::By(part) if is_namespace || part != "exempt.namespaces" => return Some(part),
        Exemption::DependsOnNamespace
            if is_namespace && config.common_config.exempt.selects(&target.labels) =>
        {
            return Some("exempt.namespaceSelector");
        }
        _ => {}
    }
    let is_install = is_namespace && target.name == config.common_config.install_namespace;
    (is_install && !config.is_karmada()).then_some("installNamespace")
}

/// Rules with what was seen.
pub(super) fn close(config: &Config, target: &Target, facts: &Facts) -> Ruling {
    if let Some(ruling) = of_own(config, target, facts) {
        return ruling;
    }
    if !is_guarded(config, target) {
        // Only for a part of Karmada anyone has looked: that the fleet does not need it is certain where it stands, and only there.
        let stands = |seen: &Seen| seen.is_here() && seen.sight.unseen.is_empty();
        if !facts.seen.iter().any(stands) {
            return of_clusters(config, target, facts);
        }
        return Ruling::allow().audit("allowed", "it is not labelled to be guarded");
    }
    of_what_is_seen(config, target, facts)
}

/// Rules as if the target were guarded, whether it is or not: what a person is told who only asks.
pub(super) fn close_any(config: &Config, target: &Target, facts: &Facts) -> Ruling {
    of_own(config, target, facts).unwrap_or_else(|| of_what_is_seen(config, target, facts))
}

/// What stands in the way if it is a part of Karmada itself.
fn of_own(config: &Config, target: &Target, facts: &Facts) -> Option<Ruling> {
    let own = Own::of(config, target)?;
    match &facts.members {
        Ok(members) => match own.standing(members) {
            Standing::Needed => Some(tell::karmadas_own(config, target, own, members, facts.now)),
            Standing::Ordinary | Standing::Local => None,
        },
        Err(_) => Some(of_clusters(config, target, facts)),
    }
}

fn of_what_is_seen(config: &Config, target: &Target, facts: &Facts) -> Ruling {
    uncovered(config, target, facts.now).unwrap_or_else(|| of_clusters(config, target, facts))
}

/// What is said of a definition whose objects Durward may not read.
fn uncovered(config: &Config, target: &Target, now: SystemTime) -> Option<Ruling> {
    let is_uncovered = target.subject == Subject::Definition && !config.groups.cover(target.group());
    is_uncovered.then(|| tell::uncovered(config, target, now))
}

/// Every cluster in its class.
#[derive(Debug, Default)]
pub(super) struct Whole<'f> {
    /// How many clusters there are, the one that asks among them.
    pub(super) clusters: usize,
    /// Where something is in use.
    pub(super) in_use: Vec<&'f Seen>,
    /// What could not be seen, and is not acknowledged.
    pub(super) unknown: Vec<&'f Seen>,
    /// What could not be seen, and somebody said that it need not be.
    pub(super) acknowledged: Vec<(&'f Seen, Acknowledgement)>,
    /// Where something is that would stay.
    pub(super) stays: Vec<&'f Seen>,
    /// Why nobody knows whether these are all clusters.
    pub(super) unsure: Option<Cause>,
    /// The code of what the list of the fleet failed by: it says what helps.
    pub(super) unlisted: Option<&'static str>,
    /// Whether there is a fleet, and no cluster in it.
    pub(super) is_bare: bool,
    /// Acknowledgements that do not count, and why.
    pub(super) notes: Vec<String>,
    /// What is wrong with the annotations that were to break the glass.
    pub(super) glass: Option<String>,
}

impl<'f> Whole<'f> {
    /// Sorts what was seen.
    pub(super) fn of(config: &Config, target: &Target, facts: &'f Facts) -> Self {
        let mut whole = Self {
            clusters: facts.seen.len(),
            unsure: unsure(facts),
            unlisted: facts.members.as_ref().err().map(|why| why.code),
            ..Self::default()
        };
        for seen in &facts.seen {
            match seen.sight.finding() {
                Finding::Empty => {}
                Finding::InUse => whole.in_use.push(seen),
                Finding::WouldStay => whole.stays.push(seen),
                Finding::Unknown => whole.not_seen(config, seen, facts.now),
            }
        }
        // The space of one cluster is looked at without the others.
        let is_space = matches!(Own::of(config, target), Some(Own::Space(_)));
        whole.is_bare = config.fleet != Fleet::None
            && !is_space
            && matches!(&facts.members, Ok(members) if members.is_empty());
        if let Override::Refused(why) = target.glass(config.break_glass, facts.now) {
            whole.glass = Some(why);
        }
        whole
    }

    fn not_seen(&mut self, config: &Config, seen: &'f Seen, now: SystemTime) {
        let covers = acknowledge::covers(&seen.sight.unseen);
        match acknowledge::of(config, &seen.member, now).filter(|_| !seen.is_here()) {
            Some(Ok(acknowledgement)) => match covers {
                Ok(()) => return self.acknowledged.push((seen, acknowledgement)),
                Err(what) => {
                    let name = seen.member.cluster.name();
                    self.notes.push(format!("the acknowledgement of {name} does not count for {what}"));
                }
            },
            Some(Err(why)) if covers.is_ok() => self.notes.push(why),
            Some(Err(_)) | None => {}
        }
        self.unknown.push(seen);
    }

    /// What it comes to.
    pub(super) fn finding(&self) -> Finding {
        if !self.in_use.is_empty() {
            Finding::InUse
        } else if !self.unknown.is_empty() || self.unsure.is_some() {
            Finding::Unknown
        } else if !self.stays.is_empty() {
            Finding::WouldStay
        } else {
            Finding::Empty
        }
    }
}

/// Why it is not certain that every cluster was looked at.
fn unsure(facts: &Facts) -> Option<Cause> {
    let members = match &facts.members {
        Ok(members) => members,
        // Whatever it failed by: nobody knows whom to ask.
        Err(why) => return Some(Cause::new(cause::STALE_FLEET, why.text.clone())),
    };
    let seen: HashSet<_> = facts.seen.iter().map(|seen| &seen.member.cluster).collect();
    let here = cluster::fleet::Cluster::Local;
    let missing = std::iter::once(&here).chain(members.iter().map(|member| &member.cluster));
    let missing = missing.filter(|cluster| !seen.contains(cluster)).count();
    let text = match missing {
        0 => return None,
        1 => "one cluster was not asked".to_owned(),
        more => format!("{more} clusters were not asked"),
    };
    Some(Cause::new(cause::CROWDED, text))
}

fn of_clusters(config: &Config, target: &Target, facts: &Facts) -> Ruling {
    let whole = Whole::of(config, target, facts);
    let ruling = match whole.finding() {
        Finding::InUse => Ruling::deny(tell::in_use(config, target, &whole)),
        Finding::Unknown => Ruling::new(Verdict::Unknown(tell::causes(config, &whole)))
            .refuse_with(tell::unknown(config, target, &whole)),
        Finding::WouldStay | Finding::Empty => Ruling::allow(),
    };
    tell::beside(config, target, &whole, ruling)
}

#[cfg(test)]
mod tests;
