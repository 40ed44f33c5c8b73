//! One pass over a webhook configuration: read it, merge, write the difference, and report its state.
//!
//! The object is read before the CA, and written with the version that was read. The crate `ca` says why.

use std::time::Instant;

use config::Problem;
use guards::WebhookType;
use kube::api::Patch;
use serde_json::{Value, json};

use super::merge::{Replica, Unneeded, is_ours, merge, name};
use super::trust::{CaSource, TrustedCa};
use crate::file::{Manage, NAME};
use crate::registration::api::{ApiClient, Configuration, Fault};
use crate::registration::names::kind;
use crate::registration::targets::{Needs, Target};
use cluster::ApiError;

/// The Namespace that owns a webhook configuration. If the Namespace is deleted, the garbage collector deletes the
/// configuration, and the API server stops calling Durward.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Owner {
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
    /// that name with another uid.
    pub(crate) async fn find(
        home: &ApiClient,
        there: &ApiClient,
        namespace: &str,
    ) -> Result<Self, OwnerError> {
        let failed = |is_home| move |fault| OwnerError { fault, is_home };
        let uid = home.namespace_uid(namespace).await.map_err(failed(true))?;
        let found = there.namespace_uid(namespace).await.map_err(failed(false))?;
        let same = found.filter(|found| uid.as_ref() == Some(found));
        Ok(same.map_or(Self::Elsewhere, Self::Uid))
    }
}

/// Error: the Namespace can't be read.
#[derive(Debug)]
pub(crate) struct OwnerError {
    pub(super) fault: Fault,
    /// Whether the cluster where Durward runs has failed, and not the API server of the configuration.
    pub(super) is_home: bool,
}

/// The state of a webhook configuration after a pass.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum State {
    /// It does not exist and is not needed.
    NotNeeded,
    /// It could not be read.
    Unknown(Problem),
    /// It does not exist.
    Missing(Problem),
    /// It exists.
    Present {
        /// Whether it has all entries and rules of this replica.
        is_registered: bool,
        /// Whether every entry trusts the serving certificate. It is absent without a CA or without entries.
        is_trusted: Option<bool>,
        /// Whether selectors, conditions or other fields of an entry differ.
        is_narrowed: bool,
        /// The first problem.
        problem: Option<Problem>,
        /// The number of entries that Durward did not write.
        foreign: usize,
        /// The problem of these entries.
        foreign_problem: Option<Problem>,
    },
}

/// One webhook configuration.
pub(crate) struct Object<'a> {
    pub(crate) needs: &'a Needs,
    pub(crate) target: &'a Target,
    pub(crate) webhook_type: WebhookType,
    pub(crate) entries: &'a [Value],
    /// Those that can be added now.
    pub(crate) addable: &'a [Value],
    pub(crate) client: &'a ApiClient,
    pub(crate) ca: &'a CaSource,
    pub(crate) owner: &'a Owner,
    pub(crate) is_holder: bool,
}

/// The result of a pass.
pub(super) struct Passed {
    pub(super) state: State,
    /// Whether the self-managed CA could not be read, so that it is unknown whether the entries trust the certificate.
    pub(super) is_ca_unknown: bool,
    /// The number of policies that are not enforced, with their problem; absent if it is unknown.
    pub(super) unenforced: Option<(usize, Option<Problem>)>,
    /// Kinds of the requests that failed.
    pub(super) failures: Vec<ApiError>,
    /// Number of writes.
    pub(super) writes: u64,
}

impl Object<'_> {
    /// Makes a pass. If another replica writes at the same time, the pass is made once again.
    pub(super) async fn pass(&self, unneeded: &mut Unneeded, now: Instant) -> Passed {
        let mut passed = Passed {
            state: State::NotNeeded,
            is_ca_unknown: false,
            unenforced: Some((0, None)),
            failures: Vec::new(),
            writes: 0,
        };
        // Durward has no permission to read a kind that no guard needs. It reads one that was needed until its entries are removed.
        unneeded.has_entries |= !self.entries.is_empty();
        if !unneeded.has_entries {
            return passed;
        }
        for is_last in [false, true] {
            let found = match self.target.configuration(self.client, self.webhook_type).await {
                Ok(found) => found,
                Err(fault) => {
                    passed.failures.push(fault.kind);
                    passed.unenforced = None;
                    passed.state = State::Unknown(self.problem(&fault));
                    return passed;
                }
            };
            let Some(found) = found else {
                unneeded.has_entries = false;
                passed.unenforced = Some(self.count_unenforced(None));
                if !self.entries.is_empty() {
                    passed.state = State::Missing(self.missing());
                }
                return passed;
            };
            let (trusted, ca_problem) = match self.ca.read().await {
                Ok(trusted) => (trusted, None),
                Err(problem) => (None, Some(problem)),
            };
            passed.unenforced = Some(self.count_unenforced(Some(&found)));
            // Without its CA, a replica with a self-managed certificate has no certificate either, and is not ready. With files it is.
            let is_self_managed = matches!(self.ca, CaSource::SelfManaged(_));
            passed.is_ca_unknown = is_self_managed && ca_problem.is_some();
            let is_writable = found.is_labeled && self.needs.manage != Manage::None && ca_problem.is_none();
            if !is_writable {
                passed.state = self.state(&found, trusted.as_ref(), ca_problem);
                return passed;
            }
            match self.write(&found, trusted.as_ref(), unneeded, now, &mut passed.writes).await {
                Ok(written) => {
                    let current = written.as_ref().unwrap_or(&found);
                    unneeded.has_entries = current.webhooks.iter().any(is_ours);
                    passed.state = self.state(current, trusted.as_ref(), None);
                    passed.unenforced = Some(self.count_unenforced(Some(current)));
                    return passed;
                }
                Err(fault) => {
                    passed.failures.push(fault.kind);
                    if fault.kind != ApiError::Conflict || is_last {
                        passed.state = self.state(&found, trusted.as_ref(), Some(self.problem(&fault)));
                        return passed;
                    }
                }
            }
        }
        passed
    }

    fn count_unenforced(&self, found: Option<&Configuration>) -> (usize, Option<Problem>) {
        let policies = self.unenforced(found);
        (policies.len(), self.unenforced_problem(&policies, found.is_some()))
    }

    /// Writes the difference, and returns the result if there was one.
    async fn write(
        &self,
        found: &Configuration,
        trusted: Option<&TrustedCa>,
        unneeded: &mut Unneeded,
        now: Instant,
        writes: &mut u64,
    ) -> Result<Option<Configuration>, Fault> {
        let only_ca = self.needs.manage == Manage::CaBundle;
        let is_due = |part: &_| unneeded.is_due(part, now);
        let replica = Replica {
            entries: self.addable,
            ca: trusted,
            only_ca,
            is_holder: self.is_holder,
            is_due: &is_due,
        };
        let merged = merge(&found.webhooks, &replica);
        let owners = (!only_ca).then(|| self.owners(&found.owners)).flatten();
        let mut changes = merged.changes.clone();
        changes.extend(owners.is_some().then(|| "owner reference changed".to_owned()));
        if changes.is_empty() {
            unneeded.observe(merged.unneeded, now);
            return Ok(None);
        }
        // Server-side apply can't remove an entry of which another field manager owns a part: the rest of it would be invalid.
        // cainjector owns each caBundle that it writes.
        let is_kept = |entry: &Value| merged.webhooks.iter().any(|kept| name(kept) == name(entry));
        let patch = if only_ca || !found.webhooks.iter().all(is_kept) {
            replacement(&found.version, owners, &merged.webhooks)
        } else {
            Patch::Apply(self.applied(found, &merged.webhooks, trusted.is_some()))
        };
        let mut written = self.client.patch(self.webhook_type, &patch).await?;
        *writes += 1;
        tracing::info!(
            target_cluster = self.target.label(),
            kind = kind(self.webhook_type),
            changes = changes.join("; "),
            "webhook configuration written"
        );
        // Server-side apply keeps fields that another client added, for example a match condition that turns a guard off.
        let again = merge(&written.webhooks, &replica);
        let owners = (!only_ca).then(|| self.owners(&written.owners)).flatten();
        if !again.changes.is_empty() || owners.is_some() {
            let patch = replacement(&written.version, owners, &again.webhooks);
            written = self.client.patch(self.webhook_type, &patch).await?;
            *writes += 1;
        }
        unneeded.observe(again.unneeded, now);
        Ok(Some(written))
    }

    /// Returns the object of a server-side apply: all entries of Durward, because it removes those that it does not contain.
    fn applied(&self, found: &Configuration, webhooks: &[Value], has_ca: bool) -> Value {
        let mut ours: Vec<Value> = webhooks.iter().filter(|entry| is_ours(entry)).cloned().collect();
        if !has_ca {
            for config in ours.iter_mut().filter_map(|entry| entry["clientConfig"].as_object_mut()) {
                config.remove("caBundle");
            }
        }
        let owners = self.owners(&found.owners).unwrap_or_else(|| found.owners.clone());
        let owners: Vec<_> = owners.into_iter().filter(|owner| self.is_own_namespace(owner)).collect();
        let mut metadata = json!({"name": NAME, "resourceVersion": found.version});
        if !owners.is_empty() {
            metadata["ownerReferences"] = owners.into();
        }
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind(self.webhook_type),
            "metadata": metadata,
            "webhooks": ours,
        })
    }

    pub(super) fn is_own_namespace(&self, owner: &Value) -> bool {
        owner["apiVersion"] == "v1" && owner["kind"] == "Namespace" && owner["name"] == *self.needs.namespace
    }

    /// Returns all owner references if they must change.
    fn owners(&self, existing: &[Value]) -> Option<Vec<Value>> {
        let wanted = match self.owner {
            Owner::Unknown => return None,
            Owner::Elsewhere => None,
            Owner::Uid(uid) => Some(uid.as_str()),
        };
        let own: Vec<_> = existing.iter().filter(|owner| self.is_own_namespace(owner)).collect();
        let uids: Vec<_> = own.iter().map(|owner| owner["uid"].as_str().unwrap_or_default()).collect();
        if uids.as_slice() == wanted.as_slice() {
            return None;
        }
        let others = existing.iter().filter(|owner| !self.is_own_namespace(owner)).cloned();
        let namespace = &self.needs.namespace;
        let new =
            wanted.map(|uid| json!({"apiVersion": "v1", "kind": "Namespace", "name": namespace, "uid": uid}));
        Some(others.chain(new).collect())
    }

    /// Returns the problem of a failed request.
    fn problem(&self, fault: &Fault) -> Problem {
        problem_of(fault, self.target, &self.needs.manifests)
    }
}

/// Returns a patch that replaces all entries, and the owner references if there are any, of this version of the object.
fn replacement(version: &str, owners: Option<Vec<Value>>, webhooks: &[Value]) -> Patch<Value> {
    let mut metadata = json!({"resourceVersion": version});
    if let Some(owners) = owners {
        metadata["ownerReferences"] = owners.into();
    }
    Patch::Merge(json!({"metadata": metadata, "webhooks": webhooks}))
}

/// Returns the problem of a request to an API server.
pub(crate) fn problem_of(fault: &Fault, target: &Target, manifests: &str) -> Problem {
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
