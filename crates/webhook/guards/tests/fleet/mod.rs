//! A fleet in a file, for guards that read several clusters.
//!
//! ```yaml
//! members:                                  # the list of the fleet; membersUnknown: timeout where it could not be read
//!   m1: {annotations: {a: b}}
//! clusters:
//!   (local): {rest: empty}                  # what is not listed below: empty, or a cause
//!   m1:
//!     rest: timeout
//!     unknown: {jobs.batch: forbidden}      # or, for single ones
//!     lists:
//!       namespaces: [{name: shop}]
//!       pods: [{namespace: shop, name: web-0, phase: Running}]
//!       widgets.example.org/v1: [{name: a}] # only at this version; at every one without it
//! ```
//!
//! Field selectors match `phase` and `type`. The time is always 2026-11-21T10:00:00Z.

use std::collections::BTreeMap;
use std::future::ready;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use admission::{BoxFuture, Cause};
use cluster::fleet::{
    Cluster, Fleet, FleetMember, GetQuery, ListQuery, MembersResult, Object, ObjectResult, Page, PageResult,
    Part,
};
use cluster::{self, Address, Clients, Context, Metadata, Reader, Resource, cause};
use libtest_mimic::Failed;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::to_raw_value;

/// 2026-11-21T10:00:00Z.
const NOW: Duration = Duration::from_secs(1_795_255_200);

/// The clusters of a case.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct FleetFile {
    #[serde(default)]
    members: BTreeMap<String, Labelled>,
    members_unknown: Option<String>,
    clusters: BTreeMap<String, ClusterFile>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Labelled {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    deleting: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClusterFile {
    rest: String,
    #[serde(default)]
    unknown: BTreeMap<String, String>,
    #[serde(default)]
    lists: BTreeMap<String, Vec<Item>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Item {
    namespace: String,
    name: String,
    uid: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    deleting: bool,
    phase: String,
    r#type: String,
    whole: Option<Value>,
}

const EMPTY: &str = "empty";

impl FleetFile {
    /// Reads the file.
    pub(crate) fn read(text: &str, file: &Path) -> Result<Self, Failed> {
        let parsed: Self =
            serde_saphyr::from_str(text).map_err(|error| format!("{}: {error}", file.display()))?;
        let rests = parsed.clusters.values().map(|cluster| &cluster.rest).filter(|rest| *rest != EMPTY);
        let single = parsed.clusters.values().flat_map(|cluster| cluster.unknown.values());
        match rests
            .chain(single)
            .chain(&parsed.members_unknown)
            .find(|why| !cause::ALL.contains(&why.as_str()))
        {
            Some(why) => Err(format!("{}: {why:?} is no cause", file.display()).into()),
            None => Ok(parsed),
        }
    }

    fn items(&self, of: &Cluster, resource: &Resource) -> Result<&[Item], Cause> {
        let cluster = self.clusters.get(of.name()).ok_or_else(|| why("not-recorded", of.name()))?;
        let plain = resource.to_string();
        let versioned = format!("{plain}/{}", resource.version);
        if let Some(code) = cluster.unknown.get(&plain) {
            return Err(why(code, &format!("{plain} of {of}")));
        }
        let items = cluster.lists.get(&versioned).or_else(|| cluster.lists.get(&plain));
        match items {
            Some(items) => Ok(items),
            None if cluster.rest == EMPTY => Ok(&[]),
            None => Err(why(&cluster.rest, &format!("{plain} of {of}"))),
        }
    }
}

fn why(code: &str, what: &str) -> Cause {
    let code = cause::ALL.into_iter().find(|known| *known == code).unwrap_or(cause::GARBAGE);
    Cause::new(code, format!("{what}: {code}"))
}

impl Item {
    /// Whether a field selector matches. A selector that no case uses is an error.
    fn fits(&self, fields: &str) -> Result<bool, Cause> {
        match fields {
            "" => Ok(true),
            "status.phase!=Succeeded,status.phase!=Failed" => {
                Ok(!matches!(self.phase.as_str(), "Succeeded" | "Failed"))
            }
            "spec.type=LoadBalancer" => Ok(self.r#type == "LoadBalancer"),
            other => Err(why(cause::GARBAGE, other)),
        }
    }

    fn object(&self, part: Part) -> Object {
        let metadata = Metadata {
            labels: self.labels.clone(),
            annotations: self.annotations.clone(),
            deleting: self.deleting,
        };
        let whole =
            || to_raw_value(self.whole.as_ref().unwrap_or(&serde_json::json!({}))).unwrap_or_default();
        Object {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            metadata,
            raw: (part == Part::Whole).then(whole),
        }
    }
}

impl Reader for FleetFile {
    fn get<'a>(&'a self, address: Address<'a>, _deadline: Instant) -> BoxFuture<'a, cluster::MetadataResult> {
        let look = GetQuery { address, part: Part::Metadata };
        Box::pin(async move {
            let found = self.get_object(&Cluster::Local, look, Instant::now()).await?;
            Ok(found.map(|object| Arc::new(object.metadata)))
        })
    }

    fn members<'a>(&'a self, fleet: &'a Fleet, _deadline: Instant) -> BoxFuture<'a, MembersResult> {
        if let Some(code) = &self.members_unknown {
            return Box::pin(ready(Err(why(
                code,
                "the list of the fleet's clusters could not be read: the list",
            ))));
        }
        let cluster = |name: &str| match fleet {
            Fleet::Contexts(_) => Cluster::Context(name.into()),
            _ => Cluster::Member(name.into()),
        };
        let member = |(name, file): (&String, &Labelled)| FleetMember {
            cluster: cluster(name),
            metadata: Metadata {
                labels: file.labels.clone(),
                annotations: file.annotations.clone(),
                deleting: file.deleting,
            },
        };
        Box::pin(ready(Ok(self.members.iter().map(member).collect())))
    }

    fn get_object<'a>(
        &'a self,
        of: &'a Cluster,
        look: GetQuery<'a>,
        _deadline: Instant,
    ) -> BoxFuture<'a, ObjectResult> {
        let is_it = |item: &&Item| item.name == look.address.name && item.namespace == look.address.namespace;
        let found = self.items(of, look.address.resource);
        Box::pin(ready(found.map(|items| items.iter().find(is_it).map(|item| item.object(look.part)))))
    }

    fn list<'a>(
        &'a self,
        of: &'a Cluster,
        query: ListQuery<'a>,
        _deadline: Instant,
    ) -> BoxFuture<'a, PageResult> {
        let listed = self.items(of, query.resource).and_then(|items| {
            let mut page = Page::default();
            for item in items {
                let is_there = query.namespace.is_empty() || item.namespace == query.namespace;
                if is_there && item.fits(query.field_selector)? {
                    page.objects.push(item.object(query.part));
                }
            }
            Ok(page)
        });
        Box::pin(ready(listed))
    }
}

impl FleetFile {
    /// Clients of the case, at its time.
    pub(super) fn clients(self) -> Clients {
        let context = Context { fixed_time: Some(SystemTime::UNIX_EPOCH + NOW), ..Context::default() };
        Clients { context, ..Clients::reader_only(Arc::new(self)) }
    }
}
