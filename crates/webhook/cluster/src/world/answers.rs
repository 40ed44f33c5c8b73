//! Answers requests from a world.

use std::sync::Arc;

use admission::Cause;

use super::{ClusterContent, ObjectList, Rest, World, all_in, key, not_recorded};
use crate::etcd::{Endpoint, EtcdRequest, EtcdResult};
use crate::fleet::{
    Cluster, FLEET, Fleet, FleetMember, GetQuery, LOCAL, ListQuery, MEMBER, MembersResult, ObjectResult,
    Page, PageResult, THIS_CLUSTER, no_secret,
};
use crate::snapshot;
use crate::{Address, Metadata, MetadataResult, Resource, cause, words};

impl World {
    pub(super) fn metadata(&self, address: Address<'_>) -> MetadataResult {
        let what = || format!("{address} could not be read");
        self.object_failure(LOCAL, address)?;
        let Some(list) = self.list(LOCAL, address.resource, what)? else { return Ok(None) };
        let found = list.metadata(address.namespace, address.name);
        found.map_err(|why| self.incomplete(LOCAL, address.resource, &what(), &why))
    }

    pub(super) fn object(&self, of: &Cluster, query: GetQuery<'_>) -> ObjectResult {
        let GetQuery { address, part } = query;
        let what = || format!("{address} in {of} could not be read");
        self.object_failure(of.name(), address)?;
        let Some(list) = self.list(of.name(), address.resource, what)? else { return Ok(None) };
        let found = list.object(address.namespace, address.name, part);
        found.map_err(|why| self.incomplete(of.name(), address.resource, &what(), &why))
    }

    fn object_failure(&self, cluster: &str, address: Address<'_>) -> Result<(), Cause> {
        let failure = self.clusters.get(cluster).and_then(|known| known.failures.get(&key(address)));
        failure.map_or(Ok(()), |why| Err(why.clone()))
    }

    /// The whole List is one page.
    pub(super) fn page(&self, of: &Cluster, query: &ListQuery<'_>) -> PageResult {
        let what = || format!("{} in {of} could not be listed", query.resource);
        let Some(list) = self.list(of.name(), query.resource, what)? else { return Ok(Page::default()) };
        match list.objects(query) {
            Ok(objects) => Ok(Page { objects, next: None }),
            Err(why) => Err(self.incomplete(of.name(), query.resource, &what(), &why)),
        }
    }

    pub(super) fn members_of(&self, fleet: &Fleet) -> MembersResult {
        let members = match fleet {
            Fleet::None => Ok(Vec::new()),
            Fleet::Karmada => self.clusters_of_karmada(),
            Fleet::Contexts(names) => names.iter().map(|name| self.context(name)).collect(),
            Fleet::Secrets { namespace } => self.secrets(namespace),
        };
        members.map(Arc::from).map_err(|why| words::unread(cause::STALE_FLEET, words::FLEET_LIST, why))
    }

    fn clusters_of_karmada(&self) -> Result<Vec<FleetMember>, String> {
        let cluster = |name: &str| Cluster::Member(name.into());
        let listed = self.listed_here(&Resource::CLUSTERS, "")?.into_iter();
        Ok(listed.map(|(name, metadata)| FleetMember { cluster: cluster(&name), metadata }).collect())
    }

    fn context(&self, name: &str) -> Result<FleetMember, String> {
        let cluster = Cluster::Context(name.into());
        if !self.clusters.contains_key(cluster.name()) {
            return Err(format!("{} has no other cluster {name:?}", snapshot::INDEX));
        }
        Ok(FleetMember { cluster, metadata: Metadata::default() })
    }

    /// Returns the recorded Secrets with the label of the fleet. Without recorded Secrets, returns every other cluster.
    fn secrets(&self, namespace: &str) -> Result<Vec<FleetMember>, String> {
        let member = |name: &str, metadata| FleetMember {
            cluster: Cluster::Secret(namespace.into(), name.into()),
            metadata,
        };
        let covers = |local: &ClusterContent| {
            local.lists.contains_key(&Resource::SECRETS) || local.rest != Rest::NotRecorded
        };
        if self.clusters.get(LOCAL).is_some_and(covers) {
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
            Err(format!("{} has no cluster besides {}", snapshot::INDEX, snapshot::RECORDED_LOCAL))
        } else {
            Ok(members)
        }
    }

    fn listed_here(&self, resource: &Resource, namespace: &str) -> Result<Vec<(String, Metadata)>, String> {
        let page = self.page(&Cluster::Local, &all_in(resource, namespace)).map_err(|cause| cause.text)?;
        Ok(page.objects.into_iter().map(|object| (object.name, object.metadata)).collect())
    }

    /// Returns the List of a resource, `None` if there are no objects, or why this is unknown.
    fn list(
        &self,
        cluster: &str,
        resource: &Resource,
        what: impl Fn() -> String,
    ) -> Result<Option<&ObjectList>, Cause> {
        let Some(known) = self.clusters.get(cluster) else {
            return Err(not_recorded(format!("{}: {} has no cluster {cluster:?}", what(), snapshot::INDEX)));
        };
        known.read(resource).map_err(|failure| match (failure, &self.path) {
            (Some(why), Some(_)) => {
                Cause::failed(why.code, &what(), "when the snapshot was taken", why.reason())
            }
            (Some(why), None) => {
                let of = if cluster == LOCAL { THIS_CLUSTER } else { cluster };
                Cause::new(why.code, format!("{resource} of {of}: {}", why.text))
            }
            (None, _) => {
                let file = self.file(cluster, resource);
                not_recorded(format!("{}: {resource} are not recorded (there is no {file})", what()))
            }
        })
    }

    fn incomplete(&self, cluster: &str, resource: &Resource, what: &str, why: &str) -> Cause {
        not_recorded(format!("{what}: not recorded in {}: {why}", self.file(cluster, resource)))
    }

    fn file(&self, cluster: &str, resource: &Resource) -> String {
        let path = self.path.clone().unwrap_or_default();
        path.join(snapshot::list_file(cluster, resource)).display().to_string()
    }

    pub(super) fn etcd_answer(&self, peer: &Endpoint, request: EtcdRequest) -> EtcdResult {
        let path = self.path.clone().unwrap_or_default();
        let file = path.join(snapshot::etcd_file(&peer.namespace, &peer.name));
        let missing =
            |why: String| Err(not_recorded(format!("{peer} could not be asked for {request}: {why}")));
        let Some(pod) = self.etcd.get(&(peer.namespace.clone(), peer.name.clone())) else {
            return missing(format!("it is not recorded (there is no {})", file.display()));
        };
        if pod.uid != peer.uid {
            return missing(format!(
                "{} is about another pod with this name and another uid",
                file.display()
            ));
        }
        match pod.answers.get(&request) {
            Some(answer) => answer.clone().map_err(|why| request.failed(&peer.name, &why)),
            None => missing(format!("{} has no {:?}", file.display(), request.word())),
        }
    }
}
