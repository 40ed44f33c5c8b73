//! Evaluates `ValidatingAdmissionPolicies` of files on requests, with the verdict that the API server has for them.
//!
//! The files are those of `durward check`, and the evaluator is the same. The guard adds what a policy in the cluster does not have: all
//! violations of a request in one denial, an audit mode with metrics, and one set of policies for many clusters. It changes nothing,
//! and it reads nothing but Namespaces. A policy that needs more is refused when the configuration is read.
//!
//! A policy's `failurePolicy` also decides about requests while Durward is down, so policies with `Fail` and those with `Ignore` have
//! webhook entries and guards of their own. A fact that can't be read makes a policy with `Fail` Unknown, and `onUnknown` decides. A
//! request is allowed with a warning if the policy has `Ignore`. There is no override: the authors of the policies decide.
//!
//! Files, in the order of a review:
//!
//! | file | purpose |
//! |---|---|
//! | `review` | the order of a review |
//! | `request` | the request as policies see it |
//! | `messages` | texts |
//! | `config`, `rules` | configuration, webhook entries, remarks |
//! | `enforcement` | whether webhook entries cover the policies |

mod config;
mod enforcement;
mod messages;
mod request;
mod review;
mod rules;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use admission::{BoxFuture, Fields, Guard, OnUnknown, Request, Ruling, SettlePolicy};
use manifests::Policies;

use crate::common::{Defaults, FailurePolicy, Remark, SYSTEM_NAMESPACE};
use crate::kind::{Configured, GuardKind, Permission, Permissions, Requirements};
use crate::webhook::WebhookEntry;
use ::config::Section;
use cluster::{Clients, Reader};
use policy::set::PolicySet;

use config::Config;

pub use enforcement::PolicyRules;

/// The path, the metric label and the configuration key.
const NAME: &str = "resources";

/// The guard of the policies with `failurePolicy: Ignore`: its path and its metric label.
const IGNORE_NAME: &str = "resources-ignore";

/// The evaluation takes less than a millisecond, and the Namespace is cached.
const DEFAULTS: Defaults = Defaults {
    on_unknown: OnUnknown::Deny,
    failure_policy: None,
    timeout_seconds: 5,
    exempt_namespaces: &[SYSTEM_NAMESPACE],
};

/// Fields that can't be there twice. Selectors read the labels.
const METADATA: [&str; 2] = ["/metadata/annotations", "/metadata/labels"];

/// All groups, versions, resources or operations.
const ANY: &str = "*";

/// The policies of a guard: each `failurePolicy` with the name of its guard and of its webhook entry.
const PARTS: [(FailurePolicy, &str, &str); 2] =
    [(FailurePolicy::Fail, NAME, "resources-fail"), (FailurePolicy::Ignore, IGNORE_NAME, "resources-ignore")];

/// The guard before it is configured.
#[derive(Debug)]
pub(crate) struct Resources;

impl GuardKind for Resources {
    fn name(&self) -> &'static str {
        NAME
    }

    fn other_paths(&self) -> &'static [&'static str] {
        &[IGNORE_NAME]
    }

    fn summary(&self) -> &'static str {
        "Evaluates ValidatingAdmissionPolicies of files, as the API server evaluates those in the cluster."
    }

    fn read(&self, section: &mut Section<'_>, namespace: &str) -> Box<dyn Configured> {
        Box::new(Arc::new(config::read(section, DEFAULTS, namespace)))
    }
}

impl Configured for Arc<Config> {
    fn webhooks(&self) -> Vec<WebhookEntry> {
        rules::entries(self)
    }

    fn permissions(&self) -> Permissions {
        // A reload can add a policy that needs Namespaces.
        let own = vec![Permission::on("", "namespaces", &["get", "list", "watch"])];
        Permissions { own, ..Permissions::default() }
    }

    fn requirements(&self) -> Requirements {
        let reads_cluster = self.depends_on_namespaces();
        Requirements { reads_cluster, watches_namespaces: reads_cluster, ..Requirements::default() }
    }

    fn exempts_all(&self) -> Option<&'static str> {
        self.common_config.exempt.exempts_all()
    }

    fn remarks(&self, _now: SystemTime) -> Vec<Remark> {
        rules::remarks(self)
    }

    fn build(&self, clients: &Clients) -> Vec<Arc<dyn Guard>> {
        let guard = |(failure_policy, name, _): (FailurePolicy, &'static str, _)| {
            let policies = self.policies.as_ref();
            let mut settle_policy = self.common_config.settle_policy.clone();
            if failure_policy == FailurePolicy::Ignore {
                (settle_policy.users, settle_policy.controllers) = (OnUnknown::Allow, OnUnknown::Allow);
            }
            let guard: Arc<dyn Guard> = Arc::new(ResourcesGuard {
                name,
                config: Arc::clone(self),
                set: policies.map(|policies| policies.set().with_failure_policy(failure_policy.as_str())),
                settle_policy,
                reader: Arc::clone(&clients.reader),
                fields: Fields::new(&METADATA),
            });
            guard
        };
        PARTS.into_iter().map(guard).collect()
    }
}

/// Returns the policies, if this is the guard of policies and its section is valid.
pub fn policies(configured: &dyn Configured) -> Option<&Policies> {
    let configured: &dyn Any = configured;
    let config: &Arc<Config> = configured.downcast_ref()?;
    config.policies.as_deref()
}

/// Returns each policy that has a binding, with the rules that its webhook entry must have.
pub fn needed_rules(configured: &dyn Configured) -> Vec<PolicyRules> {
    policies(configured).map(rules::needed).unwrap_or_default()
}

/// The guard of the policies with one `failurePolicy`.
struct ResourcesGuard {
    name: &'static str,
    config: Arc<Config>,
    set: Option<PolicySet>,
    settle_policy: SettlePolicy,
    reader: Arc<dyn Reader>,
    fields: Fields,
}

impl ResourcesGuard {
    /// Returns all policies, and those of the guard.
    fn policies(&self) -> Option<(&Policies, &PolicySet)> {
        self.config.policies.as_deref().zip(self.set.as_ref())
    }
}

impl Guard for ResourcesGuard {
    fn name(&self) -> &'static str {
        self.name
    }

    fn fields(&self) -> &Fields {
        &self.fields
    }

    fn settle_policy(&self) -> &SettlePolicy {
        &self.settle_policy
    }

    fn review<'a>(&'a self, request: &'a Request<'a>, deadline: Instant) -> BoxFuture<'a, Ruling> {
        Box::pin(review::review(self, request, deadline))
    }
}
