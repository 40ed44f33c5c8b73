//! Keeps etcd clusters in pods above their quorum: a member can be deleted or evicted only if the others are a quorum without it, and
//! a leader transfers leadership first.
//!
//! A PDB checks readiness instead of raft, and a plain delete does not check the PDB. This guard checks both kinds of request. It
//! does not protect members that are lost without a request: node failures, evictions by the kubelet, static pods. It never blocks
//! teardown and repair: deletions that a kubelet has begun, namespaces and owners that are deleted, members that are down.
//!
//! On SIGTERM, etcd transfers leadership by itself (`etcdserver/server.go`, `Stop`). The leader rule therefore matters for grace
//! period 0, entrypoints that ignore signals, and slow members. The quorum check is the main protection.
//!
//! An Unknown verdict is a denial by default, and the failurePolicy is Fail.
//!
//! Files, in the order of a review:
//!
//! | file | purpose |
//! |---|---|
//! | `removal` | reads which pod is deleted or evicted |
//! | `review` | runs the steps of a review and keeps its time |
//! | `member`, `group`, `pod`, `wire` | find the pod and its etcd cluster |
//! | `kube_reader`, `kube_state`, `owners` | read namespace, owner, node, pods and Lease |
//! | `facts` | asks the members |
//! | `table`, `size` | judge the members and the size of the etcd cluster. Pure |
//! | `input`, `decide` | one round of facts, the effects so far, and the decision. Pure |
//! | `reservations` | judge the reservation in the Lease. Pure |
//! | `effects`, `unchecked` | reserve deletions and move leadership |
//! | `reviewed`, `messages` | render the decision |
//! | `survey` | reads all etcd clusters for commands |
//! | `config`, `rules`, `policies` | configuration, webhook entries, permissions and native policies |

mod config;
mod decide;
mod effects;
mod facts;
#[cfg(test)]
mod fixture;
mod group;
mod input;
mod kube_reader;
mod kube_state;
mod member;
mod messages;
mod owners;
mod pod;
mod policies;
mod removal;
mod reservations;
mod review;
mod reviewed;
mod rules;
mod size;
mod survey;
mod table;
#[cfg(test)]
mod tests;
mod unchecked;
mod wire;

use std::any::Any;
use std::future::ready;
use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use admission::{BoxFuture, Fields, Guard, OnUnknown, Request, ReviewedObject, Ruling, SettlePolicy};

use crate::common::{Defaults, FailurePolicy, Remark};
use crate::kind::{Configured, GuardKind, Permissions, Requirements};
use crate::memory::charge_parsed;
use crate::native_policy::NativePolicy;
use crate::webhook::WebhookEntry;
use ::config::Section;
use cluster::Clients;

pub use survey::{
    ClusterReport, DeletionReport, EmptyEntry, EntryOverlap, MemberReport, ReportCause, Survey, SurveyReport,
    UnreadScope,
};

use config::{Config, EtcdClusterConfig, NamespaceMatch, OnPodDelete};
use removal::{Removal, RemovalKind};
use review::Review;

/// The path, the metric label and the configuration key.
const NAME: &str = "etcd";

/// Ten seconds, because a leadership transfer takes time and a drain can wait.
const DEFAULTS: Defaults = Defaults {
    on_unknown: OnUnknown::Deny,
    failure_policy: Some(FailurePolicy::Fail),
    timeout_seconds: 10,
    exempt_namespaces: &[],
};

/// The etcd guard before it is configured.
#[derive(Debug)]
pub struct Etcd;

impl GuardKind for Etcd {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "Denies deleting or evicting an etcd pod if its cluster would lose quorum. Transfers leadership first."
    }

    fn read(&self, section: &mut Section<'_>, namespace: &str) -> Box<dyn Configured> {
        Box::new(Arc::new(config::read(section, DEFAULTS, namespace)))
    }
}

impl Configured for Arc<Config> {
    fn webhooks(&self) -> Vec<WebhookEntry> {
        rules::entries(self)
    }

    fn policies(&self) -> Vec<NativePolicy> {
        policies::policies(self)
    }

    fn permissions(&self) -> Permissions {
        Permissions {
            own: rules::permissions(self),
            namespaced: rules::namespaced_permissions(self),
            ..Permissions::default()
        }
    }

    fn requirements(&self) -> Requirements {
        let files = self.clusters.iter().enumerate().flat_map(|(at, entry)| {
            let with_key =
                move |(key, path): (&str, &Path)| (format!("clusters[{at}].client.{key}"), path.to_owned());
            entry.client.files().into_iter().map(with_key)
        });
        let certificates = self.clusters.iter().filter_map(|entry| match &entry.namespaces {
            NamespaceMatch::Named(namespace) => entry.client.material(Some(namespace)),
            NamespaceMatch::Labeled(_) => entry.client.material(None),
        });
        Requirements {
            reads_cluster: !self.clusters.is_empty(),
            files: files.collect(),
            etcd_certificates: certificates.collect(),
            guarded: rules::guarded(self),
            ..Requirements::default()
        }
    }

    fn exempts_all(&self) -> Option<&'static str> {
        self.common_config.exempt.exempts_all()
    }

    fn remarks(&self, _now: SystemTime) -> Vec<Remark> {
        let entries = self.clusters.iter().enumerate();
        let of_entry = |(at, entry): (usize, &EtcdClusterConfig)| {
            let home = match &entry.namespaces {
                NamespaceMatch::Named(_) => None,
                NamespaceMatch::Labeled(selector) => {
                    self.common_config.home_note(&format!("clusters[{at}].namespaceSelector"), selector)
                }
            };
            let rule = match entry.member_on_pod_delete {
                OnPodDelete::Keep => {
                    "keep: a deleted pod's member stays in the list. Use remove only if the operator's documentation says that it removes the member"
                }
                OnPodDelete::Remove => {
                    "remove: a deleted pod's member leaves the list. Use keep unless the operator's documentation says that it removes the member"
                }
            };
            let rule = Remark::Note(format!("clusters[{at}].memberOnPodDelete: {rule}"));
            std::iter::once(rule).chain(home)
        };
        let of_sets = self.protect_stateful_sets.then(|| {
            let text = "protectStatefulSets finds PVCs and scale requests by the labels of selector; they have only the labels in spec.selector.matchLabels of the StatefulSet";
            Remark::Note(text.to_owned())
        });
        entries.flat_map(of_entry).chain(of_sets).chain(self.common_config.webhook_note()).collect()
    }

    fn build(&self, clients: &Clients) -> Vec<Arc<dyn Guard>> {
        vec![Arc::new(EtcdGuard::new(self, clients.clone()))]
    }
}

/// Returns the survey of the etcd clusters, if this is the etcd guard and its configuration names some.
pub fn survey(configured: &dyn Configured) -> Option<Survey> {
    let configured: &dyn Any = configured;
    let config: &Arc<Config> = configured.downcast_ref()?;
    (!config.clusters.is_empty()).then(|| Survey::new(Arc::clone(config)))
}

/// The etcd guard.
struct EtcdGuard {
    config: Arc<Config>,
    /// Without a writer, each review is a dry run.
    clients: Clients,
    fields: Fields,
}

impl EtcdGuard {
    fn new(config: &Arc<Config>, clients: Clients) -> Self {
        Self { config: Arc::clone(config), clients, fields: Fields::new(&removal::ReviewedField::POINTERS) }
    }
}

impl Guard for EtcdGuard {
    fn name(&self) -> &'static str {
        NAME
    }

    fn fields(&self) -> &Fields {
        &self.fields
    }

    fn settle_policy(&self) -> &SettlePolicy {
        &self.config.common_config.settle_policy
    }

    fn logs_every_ruling(&self) -> bool {
        true
    }

    fn review<'a>(&'a self, request: &'a Request<'a>, deadline: Instant) -> BoxFuture<'a, Ruling> {
        let objects = [&request.object, &request.old_object].into_iter().flatten();
        if let Err(cause) = charge_parsed(request, objects.map(ReviewedObject::raw)) {
            return Box::pin(ready(Ruling::unknown(cause)));
        }
        let Some(kind) = RemovalKind::of(request) else { return Box::pin(ready(Ruling::allow())) };
        Box::pin(async move {
            let removal = match Removal::read(&self.config, kind, request) {
                Ok(removal) => removal,
                Err(why) => return Ruling::unknown(why),
            };
            let review = Review::new(&self.config, &self.clients, &removal, deadline.into());
            messages::ruling(&review.run(request).await)
        })
    }
}
