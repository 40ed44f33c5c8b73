//! The native policies of an API server. Durward applies them beside its `ValidatingWebhookConfiguration`, which owns them, and deletes
//! those that it does not need any more. It creates no bindings: an administrator can delete a binding for good.
//!
//! Without the configuration nothing is applied, so that deleting it turns everything off and nothing returns by itself.

use std::collections::BTreeMap;

use config::Problem;
use guards::{MANAGED_BY, NativePolicy, PURPOSES, WebhookType};
use kube::api::{DynamicObject, Patch};
use serde_json::{Value, json};

use super::compare::differences;
use super::object::{Applied, code, problem_of};
use crate::file::{Manage, NAME};
use crate::registration::api::ApiClient;
use crate::registration::names::{BINDING, POLICY, kind};
use crate::registration::targets::{Needs, RegistrationTarget};
use cluster::ApiError;
use cluster::live::Fault;

/// The policies that this process has applied or can find, by purpose, with the last apply of each.
pub(super) type KnownPolicies = BTreeMap<&'static str, Option<Applied>>;

/// The native policies of an API server.
pub(crate) struct NativePolicies<'a> {
    pub(crate) needs: &'a Needs,
    pub(crate) target: &'a RegistrationTarget,
    pub(crate) client: &'a ApiClient,
}

/// The state of native policies: problems with the codes of `doctor install`, and the kinds of the requests that failed.
#[derive(Default)]
pub(super) struct NativeState {
    pub(super) problems: Vec<(&'static str, Problem)>,
    pub(super) failures: Vec<ApiError>,
}

impl NativePolicies<'_> {
    /// Applies and deletes policies. `owner` is the uid of the webhook configuration.
    pub(super) async fn pass(&self, owner: &str, is_writer: bool, known: &mut KnownPolicies) -> NativeState {
        let mut state = NativeState::default();
        for purpose in &self.target.purposes {
            known.entry(purpose).or_default();
        }
        let mut gone = Vec::new();
        for (purpose, last) in known.iter_mut() {
            let needed = self.target.native.iter().find(|policy| policy.purpose == *purpose);
            let done = match needed {
                Some(policy) if is_writer => self.apply(policy, owner, last).await,
                Some(policy) => self.read(policy).await,
                None if is_writer => self.remove(purpose).await.map_err(PolicyFailure::Request),
                // Without the permission, Durward can't look for a policy that it doesn't need.
                None => match self.has_no_leftover(purpose).await {
                    Err(PolicyFailure::Request(Fault { kind: ApiError::Forbidden, .. })) => Ok(()),
                    done => done,
                },
            };
            let failed = match (done, needed) {
                (Ok(()), Some(policy)) => self.binding(policy).await.err(),
                (Ok(()), None) => None,
                // The permission went with the guard.
                (Err(PolicyFailure::Request(Fault { kind: ApiError::Forbidden, .. })), None)
                    if !self.target.purposes.contains(purpose) =>
                {
                    gone.push(*purpose);
                    None
                }
                (Err(failure), _) => Some(failure),
            };
            match failed {
                Some(PolicyFailure::Request(fault)) => {
                    state.failures.push(fault.kind);
                    let problem = problem_of(&fault, self.target, &self.needs.manifests);
                    state.problems.push((code(&fault), problem));
                }
                Some(PolicyFailure::State(code, problem)) => state.problems.push((code, problem)),
                None => {}
            }
        }
        known.retain(|purpose, _| !gone.contains(purpose));
        state
    }

    /// Reads the needed policies and their bindings, and returns all problems. Durward's own account has the permission only if it applies
    /// them.
    pub(crate) async fn inspect(&self) -> Vec<(&'static str, Problem)> {
        // Also those of guards that are off.
        let mut known: KnownPolicies = PURPOSES.into_iter().map(|purpose| (purpose, None)).collect();
        let mut problems = self.pass("", false, &mut known).await.problems;
        problems.retain(|(code, _)| self.needs.manage == Manage::All || *code != "permission");
        problems
    }

    async fn apply(
        &self,
        policy: &NativePolicy,
        owner: &str,
        last: &mut Option<Applied>,
    ) -> Result<(), PolicyFailure> {
        let name = policy.name();
        let found = self.client.object(POLICY, &name).await?;
        if found.as_ref().is_some_and(|found| !is_managed(found)) {
            return Err(self.foreign(&name));
        }
        let mut body = policy.policy();
        body["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind(WebhookType::Validating), "name": NAME, "uid": owner,
        }]);
        let version = found.map(|found| version(&found));
        let is_applied = |last: &Applied| version.as_ref() == Some(&last.version) && last.body == body;
        if !last.as_ref().is_some_and(is_applied) {
            let written = self.client.patch(POLICY, &name, &Patch::Apply::<Value>(body.clone())).await?;
            *last = Some(Applied { version: self::version(&written), body });
        }
        Ok(())
    }

    async fn read(&self, policy: &NativePolicy) -> Result<(), PolicyFailure> {
        let name = policy.name();
        match self.client.object(POLICY, &name).await? {
            Some(found) if !is_managed(&found) => Err(self.foreign(&name)),
            Some(found) if !differences(&found.data["spec"], &policy.policy()["spec"]).is_empty() => {
                Err(self.differs(POLICY, &name, "the API server enforces another rule"))
            }
            Some(_) => Ok(()),
            None => {
                let problem = Problem::new(format!("{POLICY} {name} doesn't exist"))
                    .why("the API server does not enforce this rule")
                    .next(if self.needs.manage == Manage::All {
                        "Durward creates it within a minute".to_owned()
                    } else {
                        format!("apply it: {}", self.target.apply("webhooks", &self.needs.manifests))
                    });
                Err(PolicyFailure::State("policy-missing", problem))
            }
        }
    }

    async fn binding(&self, policy: &NativePolicy) -> Result<(), PolicyFailure> {
        let name = policy.name();
        if let Some(found) = self.client.object(BINDING, &name).await? {
            if differences(&found.data["spec"], &policy.binding()["spec"]).is_empty() {
                return Ok(());
            }
            return Err(self.differs(BINDING, &name, "the rule is not enforced as guards.*.mode says"));
        }
        let problem = Problem::new(format!("{BINDING} {name} doesn't exist"))
            .why("a policy without a binding denies nothing")
            .next(format!(
                "if nobody deleted it on purpose: {}",
                self.target.apply("webhooks", &self.needs.manifests)
            ));
        Err(PolicyFailure::State("binding-missing", problem))
    }

    async fn remove(&self, purpose: &str) -> Result<(), Fault> {
        let name = NativePolicy::name_of(purpose);
        let found = self.client.object(POLICY, &name).await?;
        if found.is_some_and(|found| is_managed(&found)) {
            self.client.delete(POLICY, &name).await?;
            tracing::info!(target_cluster = self.target.label(), policy = name, "native policy deleted");
        }
        Ok(())
    }

    /// Reports a policy that the configuration does not need and that has a binding, so that it denies.
    async fn has_no_leftover(&self, purpose: &str) -> Result<(), PolicyFailure> {
        let name = NativePolicy::name_of(purpose);
        let is_managed = self.client.object(POLICY, &name).await?.is_some_and(|found| is_managed(&found));
        if !is_managed || self.client.object(BINDING, &name).await?.is_none() {
            return Ok(());
        }
        let problem = Problem::new(format!("{POLICY} {name} is there, but no guard needs it"))
            .why("the API server still enforces its rule")
            .next(format!("{} delete {BINDING},{POLICY} {name}", self.target.kubectl()));
        Err(PolicyFailure::State("policy-leftover", problem))
    }

    fn differs(&self, kind: &str, name: &str, why: &str) -> PolicyFailure {
        let problem = Problem::new(format!("{kind} {name} differs from the configuration"));
        let next = format!("apply it: {}", self.target.apply("webhooks", &self.needs.manifests));
        PolicyFailure::State("policy-differs", problem.why(why).next(next))
    }

    fn foreign(&self, name: &str) -> PolicyFailure {
        let (key, value) = MANAGED_BY;
        let problem = Problem::new(format!("{POLICY} {name} lacks the label {key}={value}"))
            .why("Durward doesn't write it")
            .next(format!(
                "if it is not somebody else's: {} label {} {name} {key}={value}",
                self.target.kubectl(),
                POLICY.to_lowercase()
            ));
        PolicyFailure::State("policy-missing", problem)
    }
}

/// The failure of one policy.
enum PolicyFailure {
    Request(Fault),
    /// The code and the problem.
    State(&'static str, Problem),
}

impl From<Fault> for PolicyFailure {
    fn from(fault: Fault) -> Self {
        Self::Request(fault)
    }
}

fn is_managed(object: &DynamicObject) -> bool {
    let labels = object.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(MANAGED_BY.0)).is_some_and(|value| value == MANAGED_BY.1)
}

fn version(object: &DynamicObject) -> String {
    object.metadata.resource_version.clone().unwrap_or_default()
}
