//! The removed objects and what their deletion would remove, as data and as text.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use config::Place;
use console::exit::Exit;
use console::output::{self, Style};
use guards::deletion::{DeletionKind, DeletionSubject, Impact, Survey, UsageState};
use serde::{Deserialize, Serialize};

use super::argo_cd;
use crate::commands::impact::html::{Page, PageObject};
use crate::commands::impact::text::{Detail, format_impact, paint};
use crate::commands::impact::{exit, rank};

/// Returns an age in its largest unit: `3 h`, `1 day`.
pub(super) fn age_text(age: Duration) -> String {
    let minutes = age.as_secs() / 60;
    match minutes {
        0..60 => format!("{minutes} min"),
        60..1440 => format!("{} h", minutes / 60),
        1440..2880 => "1 day".to_owned(),
        _ => format!("{} days", minutes / 1440),
    }
}

/// The name of an object, without its version.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct ObjectName {
    pub(super) group: String,
    pub(super) kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) namespace: String,
    pub(super) name: String,
}

impl ObjectName {
    pub(super) fn is_crd(&self) -> bool {
        self.group == "apiextensions.k8s.io" && self.kind == "CustomResourceDefinition"
    }

    /// Returns the kind if the guard protects it.
    pub(super) fn deletion_kind(&self) -> Option<DeletionKind> {
        let is_namespace = self.group.is_empty() && self.kind == "Namespace";
        is_namespace.then_some(DeletionKind::Namespace).or(self.is_crd().then_some(DeletionKind::Crd))
    }

    /// Whether other objects can go with this one.
    pub(super) fn takes_along(&self) -> bool {
        let is_argo_cds = self.group == argo_cd::GROUP
            && [argo_cd::APPLICATION, argo_cd::APPLICATION_SET].contains(&self.kind.as_str());
        is_argo_cds || self.deletion_kind().is_some() || self.is_flux()
    }

    /// Whether Flux deletes other objects with this one.
    pub(super) fn is_flux(&self) -> bool {
        let flux =
            [("kustomize.toolkit.fluxcd.io", "Kustomization"), ("helm.toolkit.fluxcd.io", "HelmRelease")];
        flux.contains(&(self.group.as_str(), self.kind.as_str()))
    }

    /// Returns the object for the guard, if it reviews the deletion.
    pub(super) fn subject(&self, survey: &Survey) -> Option<DeletionSubject> {
        let kind = survey.kind_of(&self.group, &self.kind)?;
        Some(DeletionSubject { kind, namespace: self.namespace.clone(), name: self.name.clone() })
    }

    /// Returns the name as users write it: `ns/shop`, `application/argocd/shop`.
    pub(super) fn short(&self) -> String {
        let kind = match self.deletion_kind() {
            Some(DeletionKind::Namespace) => "ns".to_owned(),
            Some(DeletionKind::Crd) => "crd".to_owned(),
            Some(DeletionKind::InUse(_)) | None => self.kind.to_lowercase(),
        };
        let namespace =
            if self.namespace.is_empty() { String::new() } else { format!("{}/", self.namespace) };
        format!("{kind}/{namespace}{}", self.name)
    }
}

/// The result of `impact --diff`.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RemovalReport {
    /// The time of the facts, RFC 3339; absent if no cluster had to be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) time: Option<String>,
    /// The age of the facts if they are from a snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) age: Option<String>,
    /// The objects that go, the worst first.
    pub(super) removed: Vec<RemovedObject>,
    /// Removed objects that an annotation keeps.
    pub(super) kept: Vec<KeptObject>,
    /// The numbers of other removed objects, by kind.
    pub(super) others: BTreeMap<String, usize>,
    /// Objects with a generated name, which were not compared.
    pub(super) generated: usize,
    /// The exit code of the command.
    pub(super) exit_code: Exit,
    /// The name of the local cluster.
    #[serde(skip)]
    pub(super) here: &'static str,
}

/// An object that goes.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RemovedObject {
    #[serde(flatten)]
    pub(super) object: ObjectName,
    /// The place in the old manifests, unless it goes with another object.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(super) place: Option<Place>,
    /// The objects with which it goes, the nearest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) via: Vec<String>,
    /// A difference between tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) note: Option<&'static str>,
    /// `allow`, `deny` or `unknown`.
    pub(super) verdict: &'static str,
    /// One line about it.
    pub(super) summary: String,
    /// The objects in use, by cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) impact: Option<Impact>,
}

/// An object that stays in the cluster although its manifest is gone.
#[derive(Debug, Serialize)]
pub(super) struct KeptObject {
    #[serde(flatten)]
    pub(super) object: ObjectName,
    /// The annotation.
    pub(super) by: String,
}

impl RemovedObject {
    /// Returns an object that goes with this one.
    pub(super) fn with(&self, object: ObjectName) -> Self {
        let via = [vec![self.object.short()], self.via.clone()].concat();
        Self { object, via, ..Self::default() }
    }

    /// The rank: what is in use first, then in how many clusters.
    fn rank(&self) -> (u8, Reverse<usize>, &ObjectName) {
        let clusters = self.impact.iter().flat_map(|impact| &impact.clusters);
        let in_use = clusters.filter(|one| one.state == UsageState::InUse).count();
        (rank(self.verdict), Reverse(in_use), &self.object)
    }

    /// Returns where it was removed, and with what it goes.
    fn notes(&self) -> Vec<String> {
        let place = self.place.iter().map(|place| format!("removed at {place}"));
        let via = Some(self.via.join(", which goes with ")).filter(|via| !via.is_empty());
        let via = via.map(|via| format!("goes with {via}"));
        self.note.map(str::to_owned).into_iter().chain(place).chain(via).collect()
    }

    /// Returns what the verdict says of an object.
    pub(super) fn word(&self) -> &'static str {
        match self.verdict {
            "deny" => "in use",
            "unknown" => "not checked",
            _ => "nothing in use",
        }
    }
}

impl RemovalReport {
    /// Orders the objects, and sets the exit code.
    pub(super) fn ranked(mut self) -> Self {
        self.removed.sort_by(|one, other| one.rank().cmp(&other.rank()));
        self.exit_code = exit(self.removed.iter().map(|one| one.verdict));
        self
    }

    /// Returns the sentence that says the most important thing.
    pub(super) fn headline(&self) -> String {
        let count = |verdict: &str| self.removed.iter().filter(|one| one.verdict == verdict).count();
        let objects =
            |number: usize| format!("{number} removed object{}", if number == 1 { "" } else { "s" });
        match (count("deny"), count("unknown")) {
            (0, 0) => "no removed namespace, CRD or Application is in use".to_owned(),
            (0, unknown) => format!("{} could not be checked", objects(unknown)),
            (in_use, unknown) => {
                let is = if in_use == 1 { "is" } else { "are" };
                let more = format!(", {unknown} more could not be checked");
                format!("{} {is} in use{}", objects(in_use), if unknown > 0 { &more } else { "" })
            }
        }
    }

    /// Returns the time of the facts as a sentence, if clusters were read.
    pub(super) fn facts(&self) -> Option<String> {
        let time = self.time.as_ref()?;
        Some(match &self.age {
            Some(age) => format!("facts of a snapshot of {time}, {age} old"),
            None => format!("facts of {time}"),
        })
    }

    /// Returns what is not among the removed objects, as sentences.
    pub(super) fn others(&self) -> Vec<String> {
        let kept = self.kept.iter().map(|one| format!("{} stays: {}", one.object.short(), one.by));
        let mut lines: Vec<String> = kept.collect();
        if !self.others.is_empty() {
            let others: Vec<_> = self.others.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
            lines.push(format!("also removed: {}", others.join(", ")));
        }
        if self.generated > 0 {
            lines.push(format!("not compared, because their names are generated: {}", self.generated));
        }
        lines
    }

    /// Returns the report as a page.
    pub(super) fn page<'r>(&'r self) -> Page<'r> {
        let object = |one: &'r RemovedObject| PageObject {
            name: one.object.short(),
            verdict: one.verdict,
            summary: one.summary.clone(),
            notes: one.notes(),
            impact: one.impact.as_ref(),
        };
        Page {
            headline: self.headline(),
            facts: self.facts(),
            objects: self.removed.iter().map(object).collect(),
            notes: self.others(),
            here: self.here,
        }
    }

    pub(super) fn text(&self, detail: Detail, style: Style) -> String {
        let worst = self.removed.first().map_or("allow", |one| one.verdict);
        let mut lines = vec![paint(worst, style, &self.headline())];
        lines.extend(self.facts());
        for one in &self.removed {
            lines.push(String::new());
            if let Some(impact) = &one.impact {
                lines.push(format_impact(impact, detail, self.here, style).trim_end().to_owned());
            } else {
                let summary = paint(one.verdict, style, &one.summary);
                lines.push(format!("{}  {summary}", style.bold(&one.object.short())));
            }
            lines.extend(one.notes().iter().map(|note| style.dim(&format!("  {note}"))));
        }
        let others = self.others();
        lines.extend(others.first().map(|_| String::new()));
        lines.extend(others);
        output::lines(lines)
    }
}
