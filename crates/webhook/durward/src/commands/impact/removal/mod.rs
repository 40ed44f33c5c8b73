//! `impact --diff OLD NEW`: which objects do the new manifests no longer have, and what would their deletion remove in the clusters?
//!
//! Namespaces and CRDs are judged by the deletion guard. An Application of Argo CD takes its resources along, and an `ApplicationSet` its
//! Applications. Clusters are read only if one of these is removed.

pub(crate) mod argo_cd;
mod github;
mod markdown;
mod report;
mod trees;

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::time::{Instant, SystemTime};

use admission::Cause;
use cluster::Address;
use cluster::fleet::{Cluster, GetQuery, Part};
use config::{Place, time};
use console::exit::{Exit, Outcome, Stop};
use console::output::{self, ProgressLine, Style};

use super::text::{self, Detail};
use super::{Args, ImpactFormat, TIMEOUT, format_progress};
use crate::clients::fleet::{self, FleetContext};
use crate::clients::runtime;
use argo_cd::{APPLICATION, APPLICATION_SET, Application, ArgoCd};
use report::{KeptObject, ObjectName, RemovalReport, RemovedObject};
use trees::{By, Removals};

/// `impact --diff`
pub(super) fn run(args: &Args, old: &PathBuf, new: &PathBuf) -> Outcome {
    let Removals { removed, generated } = trees::compare(old, new)?;
    let mut report = RemovalReport {
        time: None,
        age: None,
        removed: Vec::new(),
        kept: Vec::new(),
        others: BTreeMap::new(),
        generated,
        exit_code: Exit::Done,
        here: "this cluster",
    };
    let mut roots = Vec::new();
    for one in removed {
        if let Some(by) = one.kept_by {
            report.kept.push(KeptObject { object: one.object, by });
        } else if takes_along(&one.object) || args.config.is_some() {
            // Rules of the configuration can protect any kind.
            roots.push(Going { object: one.object, place: Some(one.place), via: Vec::new(), note: one.note });
        } else {
            *report.others.entry(one.object.kind).or_default() += 1;
        }
    }
    if !roots.is_empty() {
        report = runtime()?.block_on(async { read(args, roots, report).await })?;
    }
    let report = report.ranked();
    show(args.output, &report)?;
    Ok(report.exit_code)
}

fn show(format: ImpactFormat, report: &RemovalReport) -> Result<(), Stop> {
    let style = Style::stdout();
    match format {
        ImpactFormat::Text => output::print(&report.text(Detail::Alone, style)),
        ImpactFormat::Wide => output::print(&report.text(Detail::Wide, style)),
        ImpactFormat::Name => {
            let stays = |one: &&RemovedObject| one.verdict != "allow";
            output::print(&output::lines(report.removed.iter().filter(stays).map(|one| one.object.short())))
        }
        ImpactFormat::Json => output::json(report),
        ImpactFormat::Yaml => output::data(&output::yaml(report)?),
        ImpactFormat::Html => output::data(&report.page().write()),
        ImpactFormat::Markdown => output::print(&markdown::write(report)),
        ImpactFormat::Github => output::data(&github::write(report)),
    }
}

/// Whether other objects can go with an object.
fn takes_along(object: &ObjectName) -> bool {
    let is_argo_cds = object.group == argo_cd::GROUP;
    object.deletion_kind().is_some()
        || (is_argo_cds && [APPLICATION, APPLICATION_SET].contains(&object.kind.as_str()))
        || is_flux(object)
}

/// Whether Flux deletes other objects with an object.
fn is_flux(object: &ObjectName) -> bool {
    let flux = [("kustomize.toolkit.fluxcd.io", "Kustomization"), ("helm.toolkit.fluxcd.io", "HelmRelease")];
    flux.contains(&(object.group.as_str(), object.kind.as_str()))
}

/// An object that goes, and why.
struct Going {
    object: ObjectName,
    place: Option<Place>,
    /// The objects with which it goes, the nearest first.
    via: Vec<String>,
    note: Option<&'static str>,
}

impl Going {
    /// Returns an object that goes with this one.
    fn with(&self, object: ObjectName) -> Self {
        let via = [vec![self.object.short()], self.via.clone()].concat();
        Self { object, place: None, via, note: None }
    }

    /// Returns the result for an object that the guard does not judge.
    fn judged(&self, verdict: &'static str, summary: impl Into<String>) -> RemovedObject {
        RemovedObject {
            object: self.object.clone(),
            place: self.place.clone(),
            via: self.via.clone(),
            note: self.note,
            verdict,
            summary: summary.into(),
            impact: None,
        }
    }
}

/// Follows what goes with the removed objects, and reads what is in use.
async fn read(args: &Args, roots: Vec<Going>, mut report: RemovalReport) -> Result<RemovalReport, Stop> {
    let context = fleet::open(args.config.as_deref(), &args.cluster).await?;
    report.here = context.local_name();
    let now = context.clients.context.now();
    report.time = Some(time::format(now));
    let age =
        args.cluster.snapshot.as_ref().map(|_| SystemTime::now().duration_since(now).unwrap_or_default());
    report.age = age.map(report::age_text);
    let (roots, others): (Vec<_>, Vec<_>) = roots
        .into_iter()
        .partition(|going| takes_along(&going.object) || going.object.subject(&context.survey).is_some());
    for going in others {
        *report.others.entry(going.object.kind).or_default() += 1;
    }
    let is_argo_cds = |going: &Going| going.object.group == argo_cd::GROUP;
    let applications = if roots.iter().any(is_argo_cds) {
        ArgoCd::read(context.clients.reader.as_ref()).await
    } else {
        Ok(ArgoCd::default())
    };
    let mut walk = Walk { context: &context, applications: &applications, seen: HashSet::new(), report };
    // Objects that the manifests name are not repeated below an Application.
    walk.seen.extend(roots.iter().map(|going| going.object.clone()));
    let mut subjects = Vec::new();
    let mut open = roots;
    open.reverse();
    while let Some(going) = open.pop() {
        if going.object.subject(&context.survey).is_some() {
            subjects.push(going);
        } else {
            open.extend(walk.step(&going));
        }
    }
    for (number, going) in subjects.iter().enumerate() {
        walk.judge(going, (number, subjects.len())).await;
    }
    Ok(walk.report)
}

struct Walk<'a> {
    context: &'a FleetContext,
    applications: &'a Result<ArgoCd, Cause>,
    seen: HashSet<ObjectName>,
    report: RemovalReport,
}

impl Walk<'_> {
    /// Reports an Application or an `ApplicationSet`, and returns the objects that go with it.
    fn step(&mut self, going: &Going) -> Vec<Going> {
        let ObjectName { kind, namespace, name, .. } = &going.object;
        if is_flux(&going.object) {
            let summary = "Flux deletes what it has applied, which is not followed";
            self.report.removed.push(going.judged("unknown", summary));
            return Vec::new();
        }
        let argo_cd = match self.applications {
            Ok(argo_cd) => argo_cd,
            Err(why) => {
                let summary = format!("its resources are not known: {}", why.text);
                self.report.removed.push(going.judged("unknown", summary));
                return Vec::new();
            }
        };
        if kind == APPLICATION_SET {
            let all = argo_cd.of_set(namespace, name);
            if all.is_empty() {
                let (verdict, summary) = match self.report.age {
                    Some(_) => ("unknown", "has no Applications in the snapshot"),
                    None => ("allow", "has no Applications"),
                };
                self.report.removed.push(going.judged(verdict, summary));
                return Vec::new();
            }
            let summary = match all.len() {
                1 => "its Application goes with it".to_owned(),
                number => format!("its {number} Applications go with it"),
            };
            self.report.removed.push(going.judged("allow", summary));
            return self.unseen(going, all.into_keys());
        }
        let Some((object, application)) = argo_cd.application(namespace, name) else {
            let (verdict, summary) = self.absent();
            self.report.removed.push(going.judged(verdict, summary));
            return Vec::new();
        };
        let (verdict, summary) = of_application(application);
        self.report.removed.push(RemovedObject { object, ..going.judged(verdict, summary) });
        if !application.cascades {
            return Vec::new();
        }
        // The objects of another cluster can't be looked up here. The Application itself counts as in use.
        let is_here = application.destination.is_none();
        let further = application.resources.iter().filter(|resource| {
            is_here && (takes_along(resource) || resource.subject(&self.context.survey).is_some())
        });
        self.unseen(going, further.cloned())
    }

    /// Returns the objects that were not found before, as going with this one.
    fn unseen(&mut self, going: &Going, objects: impl Iterator<Item = ObjectName>) -> Vec<Going> {
        objects.filter(|object| self.seen.insert(object.clone())).map(|object| going.with(object)).collect()
    }

    /// Returns the verdict on an object that does not exist. It can be newer than a snapshot.
    fn absent(&self) -> (&'static str, &'static str) {
        match self.report.age {
            Some(_) => ("unknown", "is not in the snapshot"),
            None => ("allow", "does not exist"),
        }
    }

    /// Lets the guard judge a namespace or a CRD.
    async fn judge(&mut self, going: &Going, (number, of): (usize, usize)) {
        let Some(subject) = going.object.subject(&self.context.survey) else { return };
        let (clients, here) = (&self.context.clients, self.context.local_name());
        if !going.via.is_empty() && !subject.kind.is_secret() {
            let resource = subject.kind.resource();
            let address = Address { resource: &resource, namespace: &subject.namespace, name: &subject.name };
            let query = GetQuery { address, part: Part::Metadata };
            let found = clients.reader.get_object(&Cluster::Local, query, Instant::now() + TIMEOUT).await;
            let annotations =
                found.ok().flatten().map(|object| object.metadata.annotations).unwrap_or_default();
            if let Some(by) = trees::kept_by(|key| annotations.get(key).cloned(), By::Application) {
                self.report.kept.push(KeptObject { object: going.object.clone(), by });
                return;
            }
        }
        let line = ProgressLine::stderr();
        let progress = |at: guards::deletion::ReadProgress<'_>| {
            line.show(&format_progress(&subject, (number, of), at, here));
        };
        let deadline = Instant::now() + TIMEOUT;
        let impact = self.context.survey.impact(clients, subject.clone(), deadline, &progress).await;
        let verdict = match super::verdict(&impact) {
            "allow" if impact.exists == Some(false) => self.absent().0,
            other => other,
        };
        let judged = going.judged(verdict, text::summary(&impact));
        self.report.removed.push(RemovedObject { impact: Some(impact), ..judged });
    }
}

/// Returns the verdict on an Application, and what goes with it.
fn of_application(application: &Application) -> (&'static str, String) {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for resource in &application.resources {
        *kinds.entry(resource.kind.as_str()).or_default() += 1;
    }
    let number = application.resources.len();
    let objects = if number == 1 { "1 object".to_owned() } else { format!("{number} objects") };
    if number == 0 && application.cascades {
        // Argo CD empties the list if it can't reach the cluster.
        return ("unknown", "Argo CD deletes its objects, and its status names none".to_owned());
    }
    if !application.cascades {
        let stay = if number == 1 { "stays" } else { "stay" };
        return ("allow", format!("its {objects} {stay}, because it has no resources finalizer"));
    }
    let kinds: Vec<String> = kinds.into_iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    let place = application.destination.as_ref().map(|at| format!(" in {at}")).unwrap_or_default();
    ("deny", format!("Argo CD deletes its {objects}{place}: {}", kinds.join(", ")))
}
