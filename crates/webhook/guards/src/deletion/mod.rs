//! Denies the deletion of namespaces and CRDs while something in them is in use in any cluster that the deletion reaches, and of
//! other objects while an in-use rule finds one that uses them.
//!
//! The guard protects objects in member clusters, which the deleted object does not show. On a Karmada control plane, deleting a
//! namespace deletes it in every member at once (`pkg/controllers/namespace/namespace_sync_controller.go`), with objects that
//! Karmada did not deploy. The API server removes the objects of a CRD directly from storage, where no webhook sees them
//! (`apiextensions-apiserver/pkg/controller/finalizer/crd_finalizer.go`), so only the DELETE of the CRD itself can be denied.
//!
//! The guard changes nothing. It does not see `kubectl delete cluster`, which uses the aggregated API without admission, and
//! objects that are created between the review and the deletion.
//!
//! A cluster that could not be checked makes the ruling Unknown, which the defaults deny; failurePolicy is Fail.
//!
//! Files, in the order of a review:
//!
//! | file | purpose |
//! |---|---|
//! | `review` | runs the steps of a review |
//! | `target`, `case` | read which namespace or CRD is deleted, and judge its name, labels and override |
//! | `decide`, `karmada` | decide, and protect what Karmada needs. Pure |
//! | `facts`, `reader` | read the fleet, and one cluster |
//! | `queries` | the Lists of a namespace, and the rule by which an object counts |
//! | `in_use` | the kinds, Lists and expressions of in-use rules |
//! | `cluster_facts`, `summary`, `acknowledge` | the facts of one cluster and of all, and missing answers that are accepted. Pure |
//! | `messages` | texts |
//! | `impact`, `survey` | the same reads and decisions for commands |
//! | `config`, `rules`, `policies` | configuration, webhook entry, permissions and native policies |

mod acknowledge;
mod case;
mod cluster_facts;
mod config;
mod decide;
mod facts;
#[cfg(test)]
mod fixture;
mod impact;
mod in_use;
mod karmada;
mod messages;
mod policies;
mod queries;
mod reader;
mod review;
mod rules;
mod summary;
mod survey;
mod target;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::sync::Arc;
use std::time::SystemTime;

use admission::{Guard, OnUnknown};

use crate::common::{Defaults, FailurePolicy, Remark};
use crate::kind::{Configured, GuardKind, Permissions, Requirements};
use crate::native_policy::NativePolicy;
use crate::webhook::WebhookEntry;
use ::config::Section;
use cluster::Clients;

use config::Config;
use review::DeletionGuard;

pub use acknowledge::{ACKNOWLEDGEMENT, Acknowledgement, acknowledgement};
pub use cluster_facts::{ObjectCount, UsageState};
pub use facts::ReadProgress;
pub use impact::{ClusterImpact, Impact, UnknownReason};
pub use in_use::InUseKind;
pub use survey::{AcknowledgementReport, Survey, Validity};
pub use target::{DeletionKind, DeletionSubject};

/// The path, the metric label and the configuration key.
const NAME: &str = "deletion";

/// Ten seconds: reading a fleet takes time, and a deletion can wait.
const DEFAULTS: Defaults = Defaults {
    on_unknown: OnUnknown::Deny,
    failure_policy: Some(FailurePolicy::Fail),
    timeout_seconds: 10,
    exempt_namespaces: &[],
};

/// The kind of this guard.
#[derive(Debug)]
pub struct Deletion;

impl GuardKind for Deletion {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "Denies deleting a namespace, a CRD or another object in use in any cluster of the fleet."
    }

    fn read(&self, section: &mut Section<'_>, namespace: &str) -> Box<dyn Configured> {
        Box::new(config::read(section, DEFAULTS, namespace))
    }
}

impl Configured for Config {
    fn webhooks(&self) -> Vec<WebhookEntry> {
        rules::webhooks(self)
    }

    fn policies(&self) -> Vec<NativePolicy> {
        policies::policies(self)
    }

    fn permissions(&self) -> Permissions {
        rules::permissions(self)
    }

    fn requirements(&self) -> Requirements {
        // No watches: cached data can't prove that a deletion is safe.
        Requirements {
            reads_cluster: true,
            probes: Some(self.fleet.clone()),
            listed: rules::listed(self),
            control_plane: self.access.clone(),
            user: self.is_karmada().then(|| self.user.clone()),
            guarded: rules::guarded(self),
            files: self.in_use.files.iter().map(|file| ("inUse.rules".to_owned(), file.clone())).collect(),
            ..Requirements::default()
        }
    }

    fn exempts_all(&self) -> Option<&'static str> {
        self.common_config.exempt.exempts_all()
    }

    fn remarks(&self, now: SystemTime) -> Vec<Remark> {
        // On Karmada, Durward's namespace is in another cluster.
        let home = if self.is_karmada() { None } else { self.common_config.webhook_note() };
        let invalid = acknowledge::invalid_entries(self, now).map(Remark::Warning);
        let unreadable = self.api_groups.0.is_empty().then(|| {
            Remark::Note(
                "crds.apiGroups is empty: Durward can't read custom objects, so it denies the deletion of each CRD that it protects".to_owned(),
            )
        });
        home.into_iter().chain(invalid).chain(unreadable).chain(rules::remarks(self)).collect()
    }

    fn build(&self, clients: &Clients) -> Vec<Arc<dyn Guard>> {
        vec![Arc::new(DeletionGuard::new(self.clone(), clients.clone()))]
    }
}

/// Returns the survey for `impact` and `doctor fleet`, if `configured` is the deletion guard.
pub fn survey(configured: &dyn Configured) -> Option<Survey> {
    let configured: &dyn Any = configured;
    configured.downcast_ref().cloned().map(Survey::new)
}
