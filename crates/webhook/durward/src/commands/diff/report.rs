//! The result of `diff crd`, as data and as text.

use cluster::fleet::{LOCAL, THIS_CLUSTER};
use config::Place;
use console::exit::Exit;
use console::output::{self, Style, foreign};
use policy::crd::compare::{Class, CrdChange};
use policy::crd::replay::ReplayResult;
use policy::field::FieldError;
use serde::Serialize;

/// The result of a run.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DiffReport {
    /// Minor version of the API server that judges the objects.
    pub(super) kube_version: String,
    /// The CRDs that are in the old files.
    pub(super) crds: Vec<ComparedCrd>,
    /// Exit code of the command.
    pub(super) exit_code: Exit,
}

/// A CRD and its objects.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ComparedCrd {
    /// Name of the old CRD.
    pub(super) name: String,
    pub(super) changes: Vec<PlacedChange>,
    pub(super) objects: Vec<Replayed>,
}

/// A change, and its place in the new CRD.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PlacedChange {
    class: &'static str,
    /// Whether the class says that an existing object can break. Otherwise it could not be compared.
    breaks: bool,
    /// The version that the change is about, or empty for all versions.
    version: String,
    /// The version in which objects are stored, if it is another one.
    stored_as: Option<String>,
    /// The field of objects, such as `spec.ports[*].name`, or empty.
    field: String,
    /// The path in the new CRD.
    path: String,
    message: String,
    #[serde(flatten)]
    position: Place,
}

/// The effect of the change on an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum ObjectEffect {
    /// The object can be written again, and keeps its fields.
    Unaffected,
    /// The object is refused, or loses fields.
    Breaks,
    /// It could not be decided.
    Unknown,
}

/// An object that was written again.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Replayed {
    /// The place in a file, for an object of `--objects`.
    #[serde(flatten)]
    pub(super) position: Option<Place>,
    /// The cluster that has the object, with `--live`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cluster: Option<String>,
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) verdict: ObjectEffect,
    /// Whether its version is served by the new CRD.
    pub(super) served: bool,
    /// Fields that the API server removes.
    pub(super) lost: Vec<String>,
    /// Errors of an update that changes nothing.
    pub(super) update: Vec<String>,
    /// Errors of a create.
    pub(super) create: Vec<String>,
    /// Why it could not be decided.
    pub(super) unknown: Vec<String>,
}

impl PlacedChange {
    pub(super) fn class(&self) -> &str {
        self.class
    }

    pub(super) fn message(&self) -> &str {
        &self.message
    }

    pub(super) fn place(&self) -> &Place {
        &self.position
    }

    pub(super) fn new(change: &CrdChange, place: Place) -> Self {
        Self {
            class: change.class.name(),
            breaks: change.class != Class::NotCompared,
            version: change.version.clone(),
            stored_as: change.stored_as.clone(),
            field: change.field.clone(),
            path: change.path.to_string(),
            message: change.detail.clone(),
            position: place,
        }
    }
}

impl Replayed {
    /// Creates an object that stays valid.
    pub(super) fn unaffected(api_version: String, kind: &str, namespace: &str, name: &str) -> Self {
        Self {
            position: None,
            cluster: None,
            api_version,
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            verdict: ObjectEffect::Unaffected,
            served: true,
            lost: Vec::new(),
            update: Vec::new(),
            create: Vec::new(),
            unknown: Vec::new(),
        }
    }

    /// Returns whether the object can't be updated any more, or loses fields. The other errors are those of a create.
    pub(super) fn is_invalid(&self) -> bool {
        !(self.served && self.lost.is_empty() && self.update.is_empty())
    }

    /// Sets the fields that say what happens to the object.
    pub(super) fn set(&mut self, effect: &ReplayResult) {
        let texts = |errors: &[FieldError]| errors.iter().map(ToString::to_string).collect();
        self.verdict = if effect.is_broken() {
            ObjectEffect::Breaks
        } else if effect.undecided.is_empty() {
            ObjectEffect::Unaffected
        } else {
            ObjectEffect::Unknown
        };
        self.served = !effect.is_unserved;
        self.lost = effect.lost.iter().map(ToString::to_string).collect();
        self.update = texts(&effect.update);
        self.create = texts(&effect.create);
        let text = |error: &FieldError| {
            if error.path.is_empty() { error.body.clone() } else { error.to_string() }
        };
        self.unknown = effect.undecided.iter().map(text).collect();
    }
}

impl DiffReport {
    /// Returns the exit code of the results.
    pub(super) fn exit(&self) -> Exit {
        let mut exit = Exit::Done;
        for crd in &self.crds {
            let has = |verdict: ObjectEffect| crd.objects.iter().any(|object| object.verdict == verdict);
            if crd.changes.iter().any(|change| change.breaks) || has(ObjectEffect::Breaks) {
                return Exit::No;
            }
            if !crd.changes.is_empty() || has(ObjectEffect::Unknown) {
                exit = Exit::Unknown;
            }
        }
        exit
    }

    /// Returns the report as text: a line for each finding, and one for each CRD.
    pub(super) fn text(&self, style: Style) -> String {
        let mut lines = Vec::new();
        for crd in &self.crds {
            lines.extend(crd.changes.iter().map(|change| change.line(style)));
            for object in &crd.objects {
                object.lines(style, &mut lines);
            }
            lines.push(crd.summary(style));
        }
        output::without_commands(&output::lines(lines)).into_owned()
    }
}

/// Returns the name of a cluster in texts.
pub(super) fn called(cluster: &str) -> &str {
    if cluster == LOCAL { THIS_CLUSTER } else { cluster }
}

fn place_text(place: &Place, style: Style) -> String {
    style.bold(&foreign(&place.to_string()))
}

impl PlacedChange {
    fn line(&self, style: Style) -> String {
        let subject = match (self.version.as_str(), self.field.as_str()) {
            ("", _) => self.path.clone(),
            (version, "") => version.to_owned(),
            (version, field) => format!("{version} {field}"),
        };
        let stored =
            self.stored_as.as_ref().map(|stored| format!(" (stored as {stored})")).unwrap_or_default();
        let class = if self.breaks { style.red(self.class) } else { style.yellow("could not compare") };
        let subject = foreign(&format!("{subject}{stored}"));
        format!("{}: {subject}: {class}: {}", place_text(&self.position, style), foreign(&self.message))
    }
}

impl Replayed {
    /// Returns namespace and name.
    pub(super) fn full_name(&self) -> String {
        match self.namespace.as_str() {
            "" => self.name.clone(),
            namespace => format!("{namespace}/{}", self.name),
        }
    }

    /// Adds a line for each finding.
    pub(super) fn lines(&self, style: Style, lines: &mut Vec<String>) {
        let place = match (&self.position, &self.cluster) {
            (Some(place), _) => place_text(place, style),
            (None, cluster) => style.bold(&foreign(called(cluster.as_deref().unwrap_or_default()))),
        };
        let start = format!("{place}: {}", foreign(&format!("{} {}", self.kind, self.full_name())));
        let mut line =
            |verdict: String, text: &str| lines.push(format!("{start}: {verdict}{}", foreign(text)));
        if !self.served {
            line(
                style.red("not served"),
                &format!(": {} is no version of the new CRD that is served", self.api_version),
            );
        }
        if !self.lost.is_empty() {
            line(style.red("loses fields"), &format!(": {}", self.lost.join(", ")));
        }
        for error in &self.update {
            let requests = if self.create.contains(error) { "update and create" } else { "update" };
            line(style.red(&format!("{requests} refused")), &format!(": {error}"));
        }
        for error in self.create.iter().filter(|error| !self.update.contains(error)) {
            line(style.red("create refused"), &format!(": {error}"));
        }
        for reason in &self.unknown {
            line(style.yellow("could not decide"), &format!(": {reason}"));
        }
    }
}

impl ComparedCrd {
    fn summary(&self, style: Style) -> String {
        let count = |number: usize, one: &str, many: &str| {
            format!("{number} {}", if number == 1 { one } else { many })
        };
        let breaking = self.changes.iter().filter(|change| change.breaks).count();
        let unknown = self.changes.len() - breaking;
        let mut parts = Vec::new();
        if breaking > 0 {
            parts.push(
                style.red(&format!("{} can break existing objects", count(breaking, "change", "changes"))),
            );
        }
        if unknown > 0 {
            parts.push(
                style.yellow(&format!("{} could not be compared", count(unknown, "change", "changes"))),
            );
        }
        if parts.is_empty() {
            parts.push(style.green("no change can break existing objects"));
        }
        if !self.objects.is_empty() {
            let with = |verdict: ObjectEffect| {
                self.objects.iter().filter(|object| object.verdict == verdict).count()
            };
            let mut verdicts = Vec::new();
            match with(ObjectEffect::Breaks) {
                0 => {}
                1 => verdicts.push(style.red("1 breaks")),
                broken => verdicts.push(style.red(&format!("{broken} break"))),
            }
            match with(ObjectEffect::Unknown) {
                0 => {}
                unknown => verdicts.push(style.yellow(&format!("{unknown} not decided"))),
            }
            if verdicts.is_empty() {
                verdicts.push(style.green("none breaks"));
            }
            parts.push(format!(
                "of {} {}",
                count(self.objects.len(), "object", "objects"),
                verdicts.join(", ")
            ));
        }
        format!("{}: {}", foreign(&self.name), parts.join("; "))
    }
}
