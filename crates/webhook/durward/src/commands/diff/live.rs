//! `diff crd NEW --live`: writes every object of every cluster again under NEW, in memory.
//!
//! OLD is the CRD that a cluster serves. The objects of one page are in memory at a time, and only those that break are kept, for text the
//! first ones. An object, a page or a cluster that can't be read is not decided.

use std::borrow::Cow;
use std::time::Instant;

use admission::Cause;
use cluster::fleet::{Cluster, GetQuery, ListQuery, Object, Part};
use cluster::{Address, Pages, Reader, Resource};
use console::exit::{Exit, Outcome, Stop};
use console::output::{self, ProgressLine, Style, foreign};
use futures_util::StreamExt as _;
use futures_util::stream;
use guards::deletion::DeletionKind;
use manifests::objects::Manifest;
use policy::crd::compare::{Definition, compare};
use policy::crd::replay::Replay;
use policy::crd::{Crd, Version};
use policy::document::{self, Document};
use policy::field::Path;
use policy::value::Arena;
use serde::Serialize;

use super::report::{ObjectEffect, Replayed, called};
use super::{Args, DiffFormat, Run, judged, sarif, write};
use crate::clients::fleet::{self, ANSWER_WITHIN};
use crate::clients::runtime;

/// Clusters that are read at once.
const AT_ONCE: usize = 4;
/// Objects in text output.
const SHOWN: usize = 10;

/// The finding about a CRD that only the old files have.
pub(super) const REMOVED: &str = "not in NEW: deleting the CRD deletes all its objects";

/// The result of a run.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LiveReport {
    /// Minor version of the API server that judges the objects.
    pub(super) kube_version: String,
    /// The CRDs of the new files.
    pub(super) crds: Vec<LiveCrd>,
    /// The CRDs of the old files that the new ones do not have: a deletion deletes their objects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) removed: Vec<String>,
    /// Why clusters may be missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) incomplete: Option<String>,
    pub(super) exit_code: Exit,
}

/// A CRD in the clusters.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LiveCrd {
    pub(super) name: String,
    /// The place of the new CRD.
    #[serde(flatten)]
    pub(super) place: config::Place,
    pub(super) clusters: Vec<LiveCluster>,
    /// The objects that break or could not be decided. For text, only those that are shown.
    pub(super) objects: Vec<Replayed>,
}

/// The objects of one cluster, in numbers.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LiveCluster {
    pub(super) cluster: String,
    /// Objects that were judged.
    pub(super) objects: usize,
    /// Objects that can't be updated any more, or lose fields.
    pub(super) invalid: usize,
    /// Valid objects that could not be created again.
    pub(super) only_create: usize,
    /// Objects that could not be decided.
    pub(super) undecided: usize,
    /// Whether the cluster has the CRD.
    pub(super) has_crd: bool,
    /// Why objects are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unread: Option<String>,
    /// A difference to the file OLD.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) warning: Option<String>,
}

/// `diff crd --live`. A fault outside means that the objects could not be judged.
pub(super) fn run(args: &Args, old: &[Manifest], new: &[Manifest]) -> Outcome {
    judge(args, old, new).map_err(Stop::not_checked)
}

fn judge(args: &Args, old: &[Manifest], new: &[Manifest]) -> Outcome {
    let mut checker =
        Run { server: args.kube_version.0, objects: &[], used: Vec::new(), problems: Vec::new() };
    let arena = Arena::new();
    let read =
        new.iter().filter_map(|manifest| Some((manifest, checker.definition(manifest, false, &arena)?)));
    let definitions: Vec<_> = read.collect();
    if !checker.problems.is_empty() {
        return Err(checker.problems.into());
    }
    let has = |name: &str| new.iter().any(|manifest| manifest.given_name() == Some(name));
    let gone = old.iter().filter_map(Manifest::given_name).filter(|name| !has(name));
    let gone: Vec<String> = gone.map(str::to_owned).collect();
    let report = runtime()?.block_on(async {
        let context = fleet::open(args.config.as_deref(), &args.cluster).await?;
        let deadline = Instant::now() + ANSWER_WITHIN;
        let members = context.survey.members(&context.clients, deadline).await;
        let incomplete = members.as_ref().err().map(|why| why.text.clone());
        let members = members.iter().flat_map(|all| all.iter().map(|member| member.cluster.clone()));
        let clusters: Vec<Cluster> = std::iter::once(Cluster::Local).chain(members).collect();
        let mut report = LiveReport {
            kube_version: args.kube_version.to_string(),
            crds: Vec::new(),
            removed: gone.clone(),
            incomplete,
            exit_code: Exit::Done,
        };
        let line = ProgressLine::stderr();
        for (manifest, definition) in &definitions {
            let name = manifest.given_name().unwrap_or_default();
            let file = old.iter().find(|manifest| manifest.given_name() == Some(name));
            let judge = Judge {
                reader: context.clients.reader.as_ref(),
                name,
                new: definition,
                old: file,
                server: args.kube_version.0,
                most: if args.output == DiffFormat::Text { SHOWN } else { usize::MAX },
                line: &line,
            };
            let all = stream::iter(&clusters).map(|of| judge.cluster(of)).buffered(AT_ONCE);
            let found: Vec<_> = all.collect().await;
            let (numbers, objects): (Vec<_>, Vec<_>) = found.into_iter().unzip();
            report.crds.push(LiveCrd {
                name: name.to_owned(),
                place: manifest.place_of(&Path::new("metadata").child("name")),
                clusters: numbers,
                objects: objects.into_iter().flatten().collect(),
            });
        }
        Ok::<_, Stop>(report)
    })?;
    let report = LiveReport { exit_code: report.exit(), ..report };
    write(args.output, &report, LiveReport::text, sarif::of_live)?;
    Ok(report.exit_code)
}

/// Judges the objects of one CRD.
struct Judge<'a> {
    reader: &'a dyn Reader,
    name: &'a str,
    new: &'a Definition<'a>,
    /// The file OLD.
    old: Option<&'a Manifest>,
    server: u8,
    /// The number of objects that are kept of one cluster, of invalid and of other ones.
    most: usize,
    line: &'a ProgressLine,
}

impl Judge<'_> {
    async fn cluster(&self, of: &Cluster) -> (LiveCluster, Vec<Replayed>) {
        let mut numbers = LiveCluster { cluster: of.name().to_owned(), ..LiveCluster::default() };
        let mut objects = Vec::new();
        if let Err(why) = self.judge(of, &mut numbers, &mut objects).await {
            numbers.unread = Some(why);
        }
        (numbers, objects)
    }

    /// Reads the CRD and its objects. An error tells why not all objects were judged.
    async fn judge(
        &self,
        of: &Cluster,
        numbers: &mut LiveCluster,
        objects: &mut Vec<Replayed>,
    ) -> Result<(), String> {
        let text = |why: Cause| why.text;
        let resource = DeletionKind::Crd.resource();
        let address = Address { resource: &resource, namespace: "", name: self.name };
        let query = GetQuery { address, part: Part::Whole };
        let found = self.reader.get_object(of, query, Instant::now() + ANSWER_WITHIN).await.map_err(text)?;
        let Some(found) = found else { return Ok(()) };
        numbers.has_crd = true;
        let served = self.served(&found, numbers)?;
        let version = listed(&served).ok_or("the CRD serves no version")?;
        let resource = Resource {
            group: Cow::Owned(served.group.clone()),
            version: Cow::Owned(version.name.clone()),
            plural: Cow::Owned(served.plural.clone()),
        };
        let query = ListQuery { part: Part::Whole, ..ListQuery::new(&resource) };
        let mut pages = Pages::with_page_timeout(self.reader, of, query, ANSWER_WITHIN);
        let replay = Replay { old: &served, new: &self.new.crd, server: self.server };
        while let Some(page) = pages.next().await.map_err(text)? {
            for object in page.objects {
                let replayed = Self::object(&replay, version, &object, numbers);
                let is_kept = |one: &Replayed| {
                    let alike = objects.iter().filter(|other| other.is_invalid() == one.is_invalid());
                    self.most == usize::MAX || alike.count() < self.most
                };
                let kept = replayed.filter(is_kept);
                objects.extend(kept);
            }
            self.line.show(&format!("{}: {} objects of {} judged", self.name, numbers.objects, of));
        }
        Ok(())
    }

    /// Returns the CRD that the cluster serves. Adds a warning if it is not the one in the file.
    fn served(&self, found: &Object, numbers: &mut LiveCluster) -> Result<Crd, String> {
        let arena = Arena::new();
        let unusable = |why: String| format!("its CRD can't be used: {why}");
        let document = whole(found).map_err(unusable)?;
        let definition = Definition::read(document.value(&arena));
        let definition = definition
            .map_err(|errors| unusable(errors.first().map(ToString::to_string).unwrap_or_default()))?;
        if let Some(file) = self.old {
            let file = Definition::read(file.value(&arena));
            let is_same = file.is_ok_and(|file| {
                compare(&file, &definition).is_empty() && compare(&definition, &file).is_empty()
            });
            if !is_same {
                numbers.warning = Some("serves another CRD than OLD".to_owned());
            }
        }
        Ok(definition.crd)
    }

    /// Judges one object. Returns it unless it stays valid.
    fn object(
        replay: &Replay<'_>,
        version: &Version,
        object: &Object,
        numbers: &mut LiveCluster,
    ) -> Option<Replayed> {
        numbers.objects += 1;
        let api_version = format!("{}/{}", replay.old.group, version.name);
        let unaffected = Replayed::unaffected(api_version, &replay.old.kind, &object.namespace, &object.name);
        let replayed = Replayed { cluster: Some(numbers.cluster.clone()), ..unaffected };
        let undecided =
            |why: String| Replayed { verdict: ObjectEffect::Unknown, unknown: vec![why], ..replayed.clone() };
        let replayed = match whole(object) {
            Ok(document) => judged(replay, version, &document, replayed.clone()).unwrap_or_else(|errors| {
                undecided(errors.first().map(ToString::to_string).unwrap_or_default())
            }),
            Err(why) => undecided(why),
        };
        match replayed.verdict {
            ObjectEffect::Unaffected => return None,
            ObjectEffect::Unknown => numbers.undecided += 1,
            ObjectEffect::Breaks if replayed.is_invalid() => numbers.invalid += 1,
            ObjectEffect::Breaks if !replayed.unknown.is_empty() => numbers.undecided += 1,
            ObjectEffect::Breaks => numbers.only_create += 1,
        }
        Some(replayed)
    }
}

/// Returns an object as a tree.
fn whole(object: &Object) -> Result<Document, String> {
    let raw = object.raw.as_ref().ok_or("it is recorded without its fields")?;
    let documents = document::read(raw.get()).map_err(|error| error.message)?;
    documents.into_iter().next().ok_or_else(|| "it is empty".to_owned())
}

/// Returns the version to list: the stored one if it is served.
fn listed(crd: &Crd) -> Option<&Version> {
    let stored = crd.stored().filter(|stored| stored.served);
    let stored = stored.or_else(|| crd.versions.iter().find(|version| version.served));
    stored.map(AsRef::as_ref)
}

impl LiveReport {
    fn exit(&self) -> Exit {
        let clusters = || self.crds.iter().flat_map(|crd| &crd.clusters);
        if !self.removed.is_empty() || clusters().any(|one| one.invalid > 0) {
            Exit::No
        } else if self.incomplete.is_some() || clusters().any(|one| one.undecided > 0 || one.unread.is_some())
        {
            Exit::Unknown
        } else {
            Exit::Done
        }
    }

    fn text(&self, style: Style) -> String {
        let mut lines = Vec::new();
        for crd in &self.crds {
            let mut objects: Vec<&Replayed> = crd.objects.iter().collect();
            objects.sort_by_key(|object| !object.is_invalid());
            for object in objects.iter().take(SHOWN) {
                object.lines(style, &mut lines);
            }
            let all = crd.sum(|one| one.invalid + one.only_create + one.undecided);
            let hidden = all.saturating_sub(SHOWN);
            if hidden > 0 {
                lines.push(style.dim(&format!("and {hidden} more objects: -o json has all of them")));
            }
            for one in &crd.clusters {
                let notes =
                    one.unread.iter().map(|why| format!("{}: {why}", style.yellow("could not decide")));
                let notes =
                    notes.chain(one.warning.iter().map(|why| format!("{}: {why}", style.yellow("warning"))));
                lines.extend(notes.map(|note| {
                    format!("{}: {}", style.bold(&foreign(called(&one.cluster))), foreign(&note))
                }));
            }
            lines.push(crd.summary(style));
        }
        let removed = self.removed.iter();
        lines.extend(removed.map(|name| format!("{}: {}", foreign(name), style.red(REMOVED))));
        let incomplete = self.incomplete.iter();
        lines.extend(incomplete.map(|why| format!("{}: {}", style.yellow("could not decide"), foreign(why))));
        output::without_commands(&output::lines(lines)).into_owned()
    }
}

impl LiveCrd {
    fn sum(&self, number: fn(&LiveCluster) -> usize) -> usize {
        self.clusters.iter().map(number).sum()
    }

    /// Returns the numbers: `12 of 3400 objects in 2 clusters become invalid`.
    fn summary(&self, style: Style) -> String {
        let (all, invalid) = (self.sum(|one| one.objects), self.sum(|one| one.invalid));
        let count =
            |number: usize, noun: &str| format!("{number} {noun}{}", if number == 1 { "" } else { "s" });
        let clusters = self.clusters.iter().filter(|one| one.has_crd).count();
        if clusters == 0 && self.clusters.iter().all(|one| one.unread.is_none()) {
            return format!("{}: new, no cluster has it", foreign(&self.name));
        }
        let scope = format!("{} in {}", count(all, "object"), count(clusters, "cluster"));
        let mut parts = vec![match invalid {
            0 => style.green(&format!("none of {scope} becomes invalid")),
            1 => style.red(&format!("1 of {scope} becomes invalid")),
            more => style.red(&format!("{more} of {scope} become invalid")),
        }];
        let only_create = self.sum(|one| one.only_create);
        if only_create > 0 {
            parts.push(format!("{} can be updated, but not created again", count(only_create, "object")));
        }
        let undecided = self.sum(|one| one.undecided);
        if undecided > 0 {
            parts.push(style.yellow(&format!("{} could not be decided", count(undecided, "object"))));
        }
        format!("{}: {}", foreign(&self.name), parts.join("; "))
    }
}
