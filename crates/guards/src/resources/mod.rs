//! Evaluates `ValidatingAdmissionPolicies` of files on requests, with the verdict that the API server has for them.
//!
//! The files are those of `durward check`, and the evaluator is the same. The guard adds what a policy in the cluster does not have: all
//! violations of a request in one denial, an audit mode with metrics, and one set of policies for many clusters. It changes nothing,
//! and it reads nothing but Namespaces. A policy that needs more is refused when the configuration is read.
//!
//! A policy's `failurePolicy` also decides about requests while Durward is down, so policies with `Fail` and those with `Ignore` have
//! webhook entries and paths of their own ([`Part`]). A fact that can't be read makes a policy with `Fail` Unknown. It leaves out a
//! policy with `Ignore`, and the caller gets a warning. There is no override: who can change the policies decides.
//!
//! Files, in the order of a review:
//!
//! | file | purpose |
//! |---|---|
//! | `review` | the order of a review |
//! | `request` | the request as policies see it |
//! | `messages` | texts |
//! | `config`, `rules` | configuration, webhook entries, remarks |

mod config;
mod messages;
mod request;
mod review;
mod rules;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use admission::{BoxFuture, Fields, Guard, OnUnknown, Request, Ruling, SettlePolicy};
use check::Policies;

use crate::common::{Defaults, FailurePolicy};
use crate::kind::{Configured, GuardKind, Permission, Permissions, Remark, Requirements};
use crate::webhook::WebhookEntry;
use ::config::Section;
use cluster::{Clients, Reader, Resource};
use policy::set::PolicySet;

use config::Config;

/// The path, the metric label and the configuration key.
const NAME: &str = "resources";

/// The evaluation takes less than a millisecond, and the Namespace is cached. The API server waits ten seconds by default.
const DEFAULTS: Defaults =
    Defaults { on_unknown: OnUnknown::Deny, failure_policy: FailurePolicy::Fail, timeout_seconds: 10 };

/// Policies with one `failurePolicy`. They have a webhook entry and a path of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Fail,
    Ignore,
}

impl Part {
    const ALL: [Self; 2] = [Self::Fail, Self::Ignore];

    /// Returns the last part of the path.
    fn path(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Ignore => "ignore",
        }
    }

    fn failure_policy(self) -> FailurePolicy {
        match self {
            Self::Fail => FailurePolicy::Fail,
            Self::Ignore => FailurePolicy::Ignore,
        }
    }
}

/// The guard before it is configured.
#[derive(Debug)]
pub(crate) struct Resources;

impl GuardKind for Resources {
    fn name(&self) -> &'static str {
        NAME
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
        let own = vec![Permission::on("", "namespaces", &["get", "list", "watch"])];
        Permissions {
            own: if self.depends_on_namespaces() { own } else { Vec::new() },
            ..Permissions::default()
        }
    }

    fn requirements(&self) -> Requirements {
        let reads_cluster = self.depends_on_namespaces();
        Requirements {
            reads_cluster,
            watches: if reads_cluster { vec![Resource::NAMESPACES] } else { Vec::new() },
            ..Requirements::default()
        }
    }

    fn exempts_all(&self) -> Option<&'static str> {
        self.common_config.exempt.exempts_all()
    }

    fn remarks(&self, _now: SystemTime) -> Vec<Remark> {
        rules::remarks(self)
    }

    fn has_changed(&self) -> bool {
        self.policies.as_ref().is_some_and(|policies| policies.has_changed())
    }

    fn build(&self, clients: &Clients) -> Arc<dyn Guard> {
        let guard = |part: Option<Part>| {
            let set = |policies: &Arc<Policies>| {
                part.map(|part| policies.set().with_failure_policy(part.failure_policy().as_str()))
            };
            ResourcesGuard {
                config: Arc::clone(self),
                reader: Arc::clone(&clients.reader),
                fields: Fields::none(),
                part: self.policies.as_ref().and_then(set),
                parts: Vec::new(),
            }
        };
        let parts = Part::ALL.map(|part| (part.path(), Arc::new(guard(Some(part))) as Arc<dyn Guard>));
        Arc::new(ResourcesGuard { parts: parts.to_vec(), ..guard(None) })
    }
}

/// The guard of all policies, or of those of a [`Part`].
struct ResourcesGuard {
    config: Arc<Config>,
    reader: Arc<dyn Reader>,
    fields: Fields,
    /// The policies of a part.
    part: Option<PolicySet>,
    parts: Vec<(&'static str, Arc<dyn Guard>)>,
}

impl Guard for ResourcesGuard {
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
        false
    }

    fn parts(&self) -> Vec<(&'static str, Arc<dyn Guard>)> {
        self.parts.clone()
    }

    fn review<'a>(&'a self, request: &'a Request<'a>, deadline: Instant) -> BoxFuture<'a, Ruling> {
        Box::pin(review::review(self, request, deadline))
    }
}
