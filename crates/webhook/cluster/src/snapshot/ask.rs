//! Answers requests from a snapshot.

use std::sync::Arc;

use admission::Cause;

use super::recorded::Recorded;
use super::{INDEX, RECORDED_LOCAL, Snapshot, index, recorded_name};
use crate::fleet::{
    Cluster, FLEET, Fleet, FleetMember, GetQuery, ListQuery, MEMBER, MembersResult, ObjectResult, Page,
    PageResult, Part, no_secret,
};
use crate::{Address, Metadata, MetadataResult, Resource, cause};

impl Snapshot {
    pub(super) fn look_up(&self, address: Address<'_>) -> MetadataResult {
        let what = || format!("{address} could not be read");
        let list = self.recorded(RECORDED_LOCAL, address.resource, what)?;
        let found = list.metadata(address.namespace, address.name);
        found.map_err(|why| self.incomplete(RECORDED_LOCAL, address.resource, &what(), &why))
    }

    pub(super) fn found(&self, of: &Cluster, look: GetQuery<'_>) -> ObjectResult {
        let GetQuery { address, part } = look;
        let what = || format!("{address} in {of} could not be read");
        let cluster = recorded_name(of);
        let list = self.recorded(cluster, address.resource, what)?;
        let found = list.object(address.namespace, address.name, part);
        found.map_err(|why| self.incomplete(cluster, address.resource, &what(), &why))
    }

    /// The whole List is one page.
    pub(super) fn listed(&self, of: &Cluster, query: &ListQuery<'_>) -> PageResult {
        let what = || format!("{} in {of} could not be listed", query.resource);
        let cluster = recorded_name(of);
        let list = self.recorded(cluster, query.resource, what)?;
        match list.objects(query) {
            Ok(objects) => Ok(Page { objects, next: None }),
            Err(why) => Err(self.incomplete(cluster, query.resource, &what(), &why)),
        }
    }

    pub(super) fn members_of(&self, fleet: &Fleet) -> MembersResult {
        let members = match fleet {
            Fleet::None => Ok(Vec::new()),
            Fleet::Karmada => self.clusters_of_karmada(),
            Fleet::Contexts(names) => names.iter().map(|name| self.context(name)).collect(),
            Fleet::Secrets { namespace } => self.secrets(namespace),
        };
        members.map(Arc::from).map_err(|why| {
            let text = format!("the list of the fleet's clusters could not be read: {why}");
            Cause::new(cause::STALE_FLEET, text)
        })
    }

    fn clusters_of_karmada(&self) -> Result<Vec<FleetMember>, String> {
        let cluster = |name: &str| Cluster::Member(name.into());
        Ok(self
            .listed_here(&Resource::CLUSTERS, "")?
            .into_iter()
            .map(|(name, metadata)| FleetMember { cluster: cluster(&name), metadata })
            .collect())
    }

    fn context(&self, name: &str) -> Result<FleetMember, String> {
        let cluster = Cluster::Context(name.into());
        if !self.clusters.contains_key(recorded_name(&cluster)) {
            return Err(format!("{INDEX} has no other cluster {name:?}"));
        }
        Ok(FleetMember { cluster, metadata: Metadata::default() })
    }

    /// Returns the recorded Secrets with the label of the fleet. Without recorded Secrets, returns every other cluster.
    fn secrets(&self, namespace: &str) -> Result<Vec<FleetMember>, String> {
        let member = |name: &str, metadata| FleetMember {
            cluster: Cluster::Secret(namespace.into(), name.into()),
            metadata,
        };
        let here = self.clusters.get(RECORDED_LOCAL);
        if here.is_some_and(|here| here.covers(&Resource::SECRETS)) {
            let secrets = self.listed_here(&Resource::SECRETS, namespace)?;
            let is_member =
                |metadata: &Metadata| metadata.labels.get(FLEET).is_some_and(|value| value == MEMBER);
            let members: Vec<FleetMember> = secrets
                .into_iter()
                .filter(|(_, metadata)| is_member(metadata))
                .map(|(name, metadata)| member(&name, metadata))
                .collect();
            return if members.is_empty() { Err(no_secret(namespace)) } else { Ok(members) };
        }
        let members: Vec<FleetMember> = self.others().map(|name| member(name, Metadata::default())).collect();
        if members.is_empty() {
            Err(format!("{INDEX} has no cluster besides {RECORDED_LOCAL}"))
        } else {
            Ok(members)
        }
    }

    fn listed_here(&self, resource: &Resource, namespace: &str) -> Result<Vec<(String, Metadata)>, String> {
        let query = ListQuery {
            resource,
            namespace,
            field_selector: "",
            part: Part::Metadata,
            limit: 0,
            continue_token: None,
        };
        let page = self.listed(&Cluster::Local, &query).map_err(|cause| cause.text)?;
        Ok(page.objects.into_iter().map(|object| (object.name, object.metadata)).collect())
    }

    /// Returns the List of a resource, or why it is missing.
    fn recorded(
        &self,
        cluster: &str,
        resource: &Resource,
        what: impl Fn() -> String,
    ) -> Result<&Recorded, Cause> {
        let Some(known) = self.clusters.get(cluster) else {
            let text = format!("{}: {INDEX} has no cluster {cluster:?}", what());
            return Err(Cause::new(cause::NOT_RECORDED, text));
        };
        if let Some(list) = known.lists.get(resource) {
            return Ok(list);
        }
        if let Some(unread) = known.unread_of(resource) {
            return Err(Cause::failed(unread.cause, &what(), "when the snapshot was taken", &unread.text));
        }
        let file = self.file(cluster, resource);
        let text = format!("{}: {resource} are not recorded (there is no {file})", what());
        Err(Cause::new(cause::NOT_RECORDED, text))
    }

    fn incomplete(&self, cluster: &str, resource: &Resource, what: &str, why: &str) -> Cause {
        let file = self.file(cluster, resource);
        Cause::new(cause::NOT_RECORDED, format!("{what}: not recorded in {file}: {why}"))
    }

    fn file(&self, cluster: &str, resource: &Resource) -> String {
        let file = self.path.join(index::directory(cluster)).join(resource.stem());
        format!("{}.json", file.display())
    }
}
