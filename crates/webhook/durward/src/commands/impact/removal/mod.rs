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
use config::time;
use console::exit::{Outcome, Stop};
use console::output::{self, ProgressLine, Style};
use guards::deletion::{DeletionSubject, ReadProgress};

use super::text::{self, Detail};
use super::{Args, ImpactFormat, TIMEOUT, format_progress};
use crate::clients::fleet::{self, FleetContext};
use crate::clients::runtime;
use argo_cd::{APPLICATION_SET, Application, ArgoCd};
use report::{KeptObject, ObjectName, RemovalReport, RemovedObject};
use trees::By;

/// `impact --diff`
pub(super) fn run(args: &Args, old: &PathBuf, new: &PathBuf) -> Outcome {
    // Rules of a configuration can protect any kind.
    let mut report = trees::compare(old, new, args.config.is_some())?;
    if !report.removed.is_empty() {
        report = runtime()?.block_on(async { read(args, report).await })?;
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

/// Follows what goes with the removed objects, and reads what is in use.
async fn read(args: &Args, mut report: RemovalReport) -> Result<RemovalReport, Stop> {
    let context = fleet::open(args.config.as_deref(), &args.cluster).await?;
    let is_judged = |object: &ObjectName| object.takes_along() || object.subject(&context.survey).is_some();
    let (mut open, others): (Vec<_>, Vec<_>) =
        std::mem::take(&mut report.removed).into_iter().partition(|going| is_judged(&going.object));
    for going in open.iter_mut().filter(|going| going.object.namespace.is_empty()) {
        let kind = context.survey.kind_of(&going.object.group, &going.object.kind);
        let namespace = args.namespace.as_deref();
        if let Some(kind) = kind
            && fleet::is_namespaced(&context, &kind, namespace).await
        {
            namespace.unwrap_or("default").clone_into(&mut going.object.namespace);
        }
    }
    for going in others {
        *report.others.entry(going.object.kind).or_default() += 1;
    }
    report.here = context.local_name();
    let now = context.clients.context.now();
    report.time = Some(time::format(now));
    let age =
        args.cluster.snapshot.as_ref().map(|_| SystemTime::now().duration_since(now).unwrap_or_default());
    report.age = age.map(report::age_text);
    let applications = if open.iter().any(|going| going.object.group == argo_cd::GROUP) {
        ArgoCd::read(context.clients.reader.as_ref()).await
    } else {
        Ok(ArgoCd::default())
    };
    // Objects that the manifests name are not repeated below an Application.
    let seen = open.iter().map(|going| going.object.clone()).collect();
    let mut walk = Walk { context: &context, applications: &applications, seen, report };
    let mut subjects = Vec::new();
    open.reverse();
    while let Some(going) = open.pop() {
        match going.object.subject(&context.survey) {
            Some(subject) => subjects.push((going, subject)),
            None => open.extend(walk.step(going)),
        }
    }
    let of = subjects.len();
    for (number, (going, subject)) in subjects.into_iter().enumerate() {
        walk.judge(going, subject, (number, of)).await;
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
    fn step(&mut self, mut going: RemovedObject) -> Vec<RemovedObject> {
        let ObjectName { kind, namespace, name, .. } = &going.object;
        let mut further = Vec::new();
        (going.verdict, going.summary) = match self.applications {
            _ if going.object.is_flux() => {
                ("unknown", "Flux deletes what it has applied, which is not followed".to_owned())
            }
            Err(why) => ("unknown", format!("its resources are not known: {}", why.text)),
            Ok(argo_cd) if kind == APPLICATION_SET => {
                further = argo_cd.of_set(namespace, name);
                match (further.len(), &self.report.age) {
                    (0, Some(_)) => ("unknown", "has no Applications in the snapshot".to_owned()),
                    (0, None) => ("allow", "has no Applications".to_owned()),
                    (1, _) => ("allow", "its Application goes with it".to_owned()),
                    (number, _) => ("allow", format!("its {number} Applications go with it")),
                }
            }
            Ok(argo_cd) => match argo_cd.application(namespace, name) {
                Some((object, application)) => {
                    going.object = object;
                    // The objects of another cluster can't be looked up here. The Application itself counts as in use.
                    if application.cascades && application.destination.is_none() {
                        further.clone_from(&application.resources);
                        let survey = &self.context.survey;
                        further.retain(|object| object.takes_along() || object.subject(survey).is_some());
                    }
                    of_application(application)
                }
                None => self.absent(),
            },
        };
        further.retain(|object| self.seen.insert(object.clone()));
        let further = further.into_iter().map(|object| going.with(object)).collect();
        self.report.removed.push(going);
        further
    }

    /// Returns the verdict on an object that does not exist. It can be newer than a snapshot.
    fn absent(&self) -> (&'static str, String) {
        match self.report.age {
            Some(_) => ("unknown", "is not in the snapshot".to_owned()),
            None => ("allow", "does not exist".to_owned()),
        }
    }

    /// Lets the guard judge an object.
    async fn judge(&mut self, going: RemovedObject, subject: DeletionSubject, (number, of): (usize, usize)) {
        let (clients, here) = (&self.context.clients, self.context.local_name());
        if !going.via.is_empty() && !subject.kind.is_secret() {
            let resource = subject.kind.resource();
            let address = Address { resource: &resource, namespace: &subject.namespace, name: &subject.name };
            let query = GetQuery { address, part: Part::Metadata };
            let found = clients.reader.get_object(&Cluster::Local, query, Instant::now() + TIMEOUT).await;
            let annotations =
                found.ok().flatten().map(|object| object.metadata.annotations).unwrap_or_default();
            if let Some(by) = trees::kept_by(|key| annotations.get(key).cloned(), By::Application) {
                self.report.kept.push(KeptObject { object: going.object, by });
                return;
            }
        }
        let line = ProgressLine::stderr();
        let progress = |at: ReadProgress<'_>| {
            line.show(&format_progress(&subject, (number, of), at, here));
        };
        let deadline = Instant::now() + TIMEOUT;
        let impact = self.context.survey.impact(clients, subject.clone(), deadline, &progress).await;
        let (verdict, summary) = match super::verdict(&impact) {
            "allow" if impact.exists == Some(false) => self.absent(),
            verdict => (verdict, text::summary(&impact, here)),
        };
        self.report.removed.push(RemovedObject { verdict, summary, impact: Some(impact), ..going });
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
