//! One webhook configuration: reads it, applies the entries of this replica if they differ, and reports its state.
//!
//! The object is read before the CA, and written with the uid and the version that were read, so that a delayed write can't remove a
//! newer CA or create an object that was deleted. The crate `ca` says why.

use config::Problem;
use guards::WebhookType;
use kube::api::Patch;
use serde_json::{Value, json};

use super::compare::{is_applied, is_ours, name, set_ca_bundle};
use super::trust::{CaSource, TrustedCa};
use crate::file::{Manage, NAME};
use crate::registration::api::{ApiClient, Configuration};
use crate::registration::names::kind;
use crate::registration::targets::{Needs, RegistrationTarget};
use cluster::ApiError;
use cluster::live::Fault;

/// Tries of one pass, if other clients write at the same time.
const TRIES: usize = 3;

/// The Namespace that owns a webhook configuration. If the Namespace is deleted, the garbage collector deletes the
/// configuration, and the API server stops calling Durward.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Owner {
    /// Durward's namespace, in the API server of the configuration.
    Uid(String),
    /// Durward's namespace is in another cluster. An owner that does not exist would make the garbage collector delete the
    /// configuration.
    Elsewhere,
    /// The Namespace could not be read, so owner references stay as they are.
    Unknown,
}

impl Owner {
    /// Finds out whether Durward's namespace is in the API server of `there`. A Karmada control plane can have a namespace of
    /// that name with another uid. An error says whether the cluster where Durward runs has failed, and not the other one.
    pub(super) async fn find(
        home: &ApiClient,
        there: &ApiClient,
        namespace: &str,
    ) -> Result<Self, (Fault, bool)> {
        let uid = home.namespace_uid(namespace).await.map_err(|fault| (fault, true))?;
        let found = there.namespace_uid(namespace).await.map_err(|fault| (fault, false))?;
        let same = found.filter(|found| uid.as_ref() == Some(found));
        Ok(same.map_or(Self::Elsewhere, Self::Uid))
    }
}

/// One webhook configuration.
pub(crate) struct WebhookObject<'a> {
    pub(crate) needs: &'a Needs,
    pub(crate) target: &'a RegistrationTarget,
    pub(crate) webhook_type: WebhookType,
    pub(crate) entries: &'a [Value],
    pub(crate) client: &'a ApiClient,
    pub(crate) ca: &'a CaSource,
}

/// The last apply: what was applied, and the version of the result. Fields of other managers can differ from it for good, so an apply is
/// not repeated while the object has this version.
#[derive(Debug, PartialEq)]
pub(super) struct Applied {
    pub(super) version: String,
    pub(super) body: Value,
}

/// The state of a webhook configuration.
#[derive(Debug, Default)]
pub(crate) struct ConfigurationState {
    /// The uid of the object, if it exists.
    pub(super) uid: Option<String>,
    /// Whether the object could be read.
    pub(super) is_known: bool,
    /// Whether a guard needs it.
    pub(super) is_needed: bool,
    /// Whether every entry trusts the serving certificate. It is absent without a CA or without entries.
    pub(super) is_trusted: Option<bool>,
    /// The number of entries that Durward did not write.
    pub(super) foreign: usize,
    /// The number of policies of the guard `resources` that are not enforced.
    pub(super) unenforced: usize,
    /// Problems with the codes of `doctor install`, the most important first.
    pub(crate) problems: Vec<(&'static str, Problem)>,
    /// The kinds of the requests that failed.
    pub(super) failures: Vec<ApiError>,
    /// The number of writes that changed the object.
    pub(super) writes: u64,
}

impl WebhookObject<'_> {
    /// Makes a pass. Without an owner it only reads.
    pub(super) async fn pass(&self, owner: Option<&Owner>, last: &mut Option<Applied>) -> ConfigurationState {
        let (mut failures, mut writes) = (Vec::new(), 0);
        let mut tries = TRIES;
        let mut state = loop {
            let found = match self.target.configuration(self.client, self.webhook_type).await {
                Ok(Some(found)) => found,
                Ok(None) => break self.absent(),
                Err(fault) => {
                    failures.push(fault.kind);
                    break ConfigurationState {
                        problems: vec![self.problem(&fault)],
                        ..ConfigurationState::default()
                    };
                }
            };
            let (trusted, ca_problem) = match self.ca.read().await {
                Ok(trusted) => (trusted, None),
                Err(problem) => (None, Some(("ca", problem))),
            };
            let is_writable = found.is_labeled && self.needs.manage != Manage::None && ca_problem.is_none();
            let Some(owner) = owner.filter(|_| is_writable) else {
                break self.state(&found, trusted.as_ref(), ca_problem);
            };
            match self.write(&found, owner, trusted.as_ref(), last, &mut writes).await {
                Ok(written) => break self.state(written.as_ref().unwrap_or(&found), trusted.as_ref(), None),
                Err(fault) => {
                    failures.push(fault.kind);
                    tries -= 1;
                    if fault.kind != ApiError::Conflict || tries == 0 {
                        break self.state(&found, trusted.as_ref(), Some(self.problem(&fault)));
                    }
                }
            }
        };
        state.failures = failures;
        state.writes = writes;
        state
    }

    /// Writes the difference, and returns the result if there was one.
    async fn write(
        &self,
        found: &Configuration,
        owner: &Owner,
        trusted: Option<&TrustedCa>,
        last: &mut Option<Applied>,
        writes: &mut u64,
    ) -> Result<Option<Configuration>, Fault> {
        let patch = match trusted {
            _ if self.needs.manage == Manage::All => self.without_leftovers(found, owner),
            Some(trusted) => self.with_ca_bundle(found, trusted),
            None => None,
        };
        let mut written = match patch {
            Some(patch) => Some(self.patch(&patch).await?),
            None => None,
        };
        if self.needs.manage == Manage::All {
            let current = written.as_ref().unwrap_or(found);
            if let Some(applied) = self.apply(current, owner, trusted, last).await? {
                written = Some(applied);
            }
        }
        if written.as_ref().is_some_and(|written| written.version != found.version) {
            *writes += 1;
            let (target, kind) = (self.target.label(), kind(self.webhook_type));
            tracing::info!(target_cluster = target, kind, "webhook configuration written");
        }
        Ok(written)
    }

    /// Applies the entries and the owner, if they differ.
    async fn apply(
        &self,
        found: &Configuration,
        owner: &Owner,
        trusted: Option<&TrustedCa>,
        last: &mut Option<Applied>,
    ) -> Result<Option<Configuration>, Fault> {
        let mut entries = self.entries.to_vec();
        if let Some(trusted) = trusted {
            for entry in &mut entries {
                set_ca_bundle(entry, &trusted.certificates);
            }
        }
        let owners = self.owners(found, owner);
        let is_there = |applied: &Value| {
            let entry = found.webhooks.iter().find(|entry| name(entry) == name(applied));
            entry.is_some_and(|entry| is_applied(entry, applied))
        };
        let is_same =
            entries.iter().all(is_there) && owners.iter().all(|owner| is_among(owner, &found.owners));
        let body = json!([entries, owners]);
        let is_last = |last: &Applied| last.version == found.version && last.body == body;
        if is_same || last.as_ref().is_some_and(is_last) {
            return Ok(None);
        }
        let (uid, version) = (&found.uid, &found.version);
        let patch = Patch::Apply(json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind(self.webhook_type),
            "metadata": {"name": NAME, "uid": uid, "resourceVersion": version, "ownerReferences": owners},
            "webhooks": entries,
        }));
        let written = self.patch(&patch).await?;
        *last = Some(Applied { version: written.version.clone(), body });
        Ok(Some(written))
    }

    async fn patch(&self, patch: &Patch<Value>) -> Result<Configuration, Fault> {
        let kind = kind(self.webhook_type);
        Ok(Configuration::of(self.client.patch(kind, NAME, patch).await?))
    }

    /// Returns a patch that removes what an apply can't remove because another field manager owns a part of it: entries that no guard needs
    /// (cainjector owns the caBundle of each, and the rest of an entry is invalid), and Namespaces of another cluster as owners.
    fn without_leftovers(&self, found: &Configuration, owner: &Owner) -> Option<Patch<Value>> {
        let is_kept = |entry: &&Value| {
            let is_needed = self.entries.iter().any(|needed| name(needed) == name(entry));
            is_needed || !self.is_ours(entry)
        };
        let owners = self.owners(found, owner);
        let is_owner = |owner: &&Value| !self.is_own_namespace(owner) || is_among(owner, &owners);
        let kept: Vec<_> = found.webhooks.iter().filter(is_kept).cloned().collect();
        let kept_owners: Vec<_> = found.owners.iter().filter(is_owner).cloned().collect();
        let has_leftovers = kept.len() < found.webhooks.len() || kept_owners.len() < found.owners.len();
        has_leftovers.then(|| {
            let metadata = json!({"resourceVersion": found.version, "ownerReferences": kept_owners});
            Patch::Merge(json!({"metadata": metadata, "webhooks": kept}))
        })
    }

    /// Returns a patch that writes only the caBundle of existing entries, if one of them differs.
    fn with_ca_bundle(&self, found: &Configuration, trusted: &TrustedCa) -> Option<Patch<Value>> {
        let mut webhooks = found.webhooks.clone();
        for entry in webhooks.iter_mut().filter(|entry| self.is_ours(entry)) {
            set_ca_bundle(entry, &trusted.certificates);
        }
        let metadata = json!({"resourceVersion": found.version});
        (webhooks != found.webhooks)
            .then(|| Patch::Merge(json!({"metadata": metadata, "webhooks": webhooks})))
    }

    /// Returns whether an entry is Durward's. An unneeded entry can belong to the other kind's guard, so all entries of the API
    /// server show Durward's address.
    pub(super) fn is_ours(&self, entry: &Value) -> bool {
        is_ours(entry, &self.target.entries.concat())
    }

    fn is_own_namespace(&self, owner: &Value) -> bool {
        owner["apiVersion"] == "v1" && owner["kind"] == "Namespace" && owner["name"] == *self.needs.namespace
    }

    /// Returns the owner references that are applied.
    fn owners(&self, found: &Configuration, owner: &Owner) -> Vec<Value> {
        let namespace = &self.needs.namespace;
        match owner {
            Owner::Uid(uid) => {
                vec![json!({"apiVersion": "v1", "kind": "Namespace", "name": namespace, "uid": uid})]
            }
            Owner::Elsewhere => Vec::new(),
            Owner::Unknown => {
                found.owners.iter().filter(|owner| self.is_own_namespace(owner)).cloned().collect()
            }
        }
    }

    /// Returns the problem of a failed request with its code.
    fn problem(&self, fault: &Fault) -> (&'static str, Problem) {
        (code(fault), problem_of(fault, self.target, &self.needs.manifests))
    }
}

/// Returns whether there is an owner reference with the same uid.
fn is_among(owner: &Value, owners: &[Value]) -> bool {
    owners.iter().any(|other| other["uid"] == owner["uid"])
}

/// Returns the code of a failed request.
pub(crate) fn code(fault: &Fault) -> &'static str {
    if fault.kind == ApiError::Forbidden { "permission" } else { "unreachable" }
}

/// Returns the problem of a request to an API server.
pub(crate) fn problem_of(fault: &Fault, target: &RegistrationTarget, manifests: &str) -> Problem {
    let problem = Problem::new(fault.text.clone());
    match fault.kind {
        ApiError::Forbidden => problem.next(format!("apply the permissions: {}", target.apply("rbac", manifests))),
        ApiError::Unavailable | ApiError::Credentials => problem.next(format!(
            "Durward tries again; check the API server, the network and the credentials: {} get --raw /readyz",
            target.kubectl()
        )),
        ApiError::NotFound | ApiError::Conflict => problem.next("Durward tries again"),
        ApiError::Rejected | ApiError::Expired => problem.next(format!(
            "look at the object: {} get validatingwebhookconfiguration,mutatingwebhookconfiguration {NAME} --ignore-not-found -o yaml",
            target.kubectl()
        )),
    }
}
