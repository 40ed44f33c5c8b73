//! The removed objects and what their deletion would remove, as data and as text.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use config::Place;
use console::exit::Exit;
use console::output::Style;
use guards::deletion::{DeletionKind, DeletionSubject, Impact, Survey, UsageState};
use serde::Serialize;

use crate::commands::impact::html::{Page, PageObject};
use crate::commands::impact::text::{Detail, format_impact};

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
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
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
#[derive(Debug, Serialize)]
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
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RemovedObject {
    #[serde(flatten)]
    pub(super) object: ObjectName,
    /// The place in the old manifests, unless it goes with another object.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(super) place: Option<Place>,
    /// The objects with which it goes.
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
    /// The rank: what is in use first, then in how many clusters.
    fn rank(&self) -> (u8, Reverse<usize>, &ObjectName) {
        let order = match self.verdict {
            "deny" => 0,
            "unknown" => 1,
            _ => 2,
        };
        (order, Reverse(self.clusters_in_use().count()), &self.object)
    }

    fn clusters_in_use(&self) -> impl Iterator<Item = &str> {
        let clusters = self.impact.iter().flat_map(|impact| &impact.clusters);
        clusters.filter(|one| one.state == UsageState::InUse).map(|one| one.cluster.as_str())
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
        let is = |verdict: &str| self.removed.iter().any(|one| one.verdict == verdict);
        self.exit_code = match (is("deny"), is("unknown")) {
            (true, _) => Exit::No,
            (false, true) => Exit::Unknown,
            (false, false) => Exit::Done,
        };
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
            (in_use, 0) => format!("{} {} in use", objects(in_use), if in_use == 1 { "is" } else { "are" }),
            (in_use, unknown) => {
                let is = if in_use == 1 { "is" } else { "are" };
                format!("{} {is} in use, {unknown} more could not be checked", objects(in_use))
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

    /// Returns the other removed objects: `3 Deployments, 1 ConfigMap`.
    pub(super) fn others_text(&self) -> String {
        let one = |(kind, count): (&String, &usize)| format!("{count} {kind}");
        self.others.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    /// Returns the report as a page.
    pub(super) fn page(&self) -> Page<'_> {
        let object = |one| {
            let RemovedObject { object, place, via, note, verdict, summary, impact }: &RemovedObject = one;
            let place = place.iter().map(|place| format!("removed at {}:{}", place.file, place.line));
            let via = Some(via).filter(|via| !via.is_empty());
            let via = via.map(|via| format!("goes with {}", via.join(", which goes with ")));
            PageObject {
                name: object.short(),
                verdict,
                summary: summary.clone(),
                notes: place.chain(via).chain(note.map(str::to_owned)).collect(),
                impact: impact.as_ref(),
            }
        };
        let others = Some(self.others_text()).filter(|text| !text.is_empty());
        let generated = Some(self.generated).filter(|number| *number > 0);
        let kept = self.kept.iter().map(|one| format!("{} stays: {}", one.object.short(), one.by));
        Page {
            headline: self.headline(),
            verdict: match self.exit_code {
                Exit::Done => "allow",
                Exit::Unknown => "unknown",
                Exit::No | Exit::Bad => "deny",
            },
            facts: self.facts().into_iter().collect(),
            objects: self.removed.iter().map(object).collect(),
            notes: kept
                .chain(others.map(|text| format!("also removed: {text}")))
                .chain(generated.map(|number| format!("not compared: {number} objects with generated names")))
                .collect(),
            here: self.here,
        }
    }

    pub(super) fn text(&self, detail: Detail, style: Style) -> String {
        let mut lines = Vec::new();
        let headline = self.headline();
        lines.push(match self.exit_code {
            Exit::Done => style.green(&headline),
            Exit::Unknown => style.yellow(&headline),
            Exit::No | Exit::Bad => style.red(&headline),
        });
        lines.extend(self.facts());
        for one in &self.removed {
            lines.push(String::new());
            if let Some(impact) = &one.impact {
                lines.push(format_impact(impact, detail, self.here, style).trim_end().to_owned());
            } else {
                let summary = match one.verdict {
                    "deny" => style.red(&one.summary),
                    "unknown" => style.yellow(&one.summary),
                    _ => style.green(&one.summary),
                };
                lines.push(format!("{}  {summary}", style.bold(&one.object.short())));
            }
            lines.extend(one.note.map(|note| format!("  {note}")));
            lines.extend(one.place.as_ref().map(|place| style.dim(&format!("  removed at {place}"))));
            if !one.via.is_empty() {
                lines.push(style.dim(&format!("  goes with {}", one.via.join(", which goes with "))));
            }
        }
        if !self.kept.is_empty() {
            lines.push(String::new());
        }
        let kept = |one: &KeptObject| format!("{}  stays: {}", one.object.short(), one.by);
        lines.extend(self.kept.iter().map(kept));
        if !self.others.is_empty() {
            lines.push(format!("\nalso removed: {}", self.others_text()));
        }
        if self.generated > 0 {
            lines.push(format!("not compared: {} objects with generated names", self.generated));
        }
        lines.into_iter().flat_map(|line| [line, "\n".to_owned()]).collect()
    }
}
