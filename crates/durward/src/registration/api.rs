//! Requests to one API server: the two webhook configurations, the Namespace, and the Lease. Errors name the verb and the object.

use std::time::Duration;

use admission::text::excerpt;
use cluster::ApiError;
use guards::WebhookType;
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Error};
use serde_json::Value;

use super::names::{LABEL, kind, plural};
use crate::file::NAME;

/// Timeout of one request. The next pass tries again.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Error: a request that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The kind.
    pub(crate) kind: ApiError,
    /// The object, the verb and the reason.
    pub(crate) text: String,
}

/// A client of one API server.
#[derive(Clone)]
pub(crate) struct ApiClient {
    client: Client,
}

/// A webhook configuration as it is in the API server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Configuration {
    /// The version that a write requires.
    pub(crate) version: String,
    /// Whether it has the label of Durward.
    pub(crate) is_labeled: bool,
    /// `metadata.ownerReferences`
    pub(crate) owners: Vec<Value>,
    /// All entries.
    pub(crate) webhooks: Vec<Value>,
}

fn resource(webhook_type: WebhookType) -> ApiResource {
    ApiResource {
        group: "admissionregistration.k8s.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "admissionregistration.k8s.io/v1".to_owned(),
        kind: kind(webhook_type).to_owned(),
        plural: plural(webhook_type),
    }
}

impl ApiClient {
    /// Wraps a client.
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }

    fn configurations(&self, webhook_type: WebhookType) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &resource(webhook_type))
    }

    /// Reads a webhook configuration of Durward's name.
    pub(crate) async fn configuration(
        &self,
        webhook_type: WebhookType,
    ) -> Result<Option<Configuration>, Fault> {
        let api = self.configurations(webhook_type);
        let found = request("get", &plural(webhook_type), NAME, api.get_opt(NAME)).await?;
        Ok(found.map(Configuration::of))
    }

    /// Changes a webhook configuration, by server-side apply or by a merge patch, and returns the result.
    pub(crate) async fn patch(
        &self,
        webhook_type: WebhookType,
        patch: &Patch<Value>,
    ) -> Result<Configuration, Fault> {
        let api = self.configurations(webhook_type);
        let parameters = match patch {
            Patch::Apply(_) => PatchParams::apply(NAME).force(),
            _ => PatchParams { field_manager: Some(NAME.to_owned()), ..PatchParams::default() },
        };
        let patched = api.patch(NAME, &parameters, patch);
        Ok(Configuration::of(request("patch", &plural(webhook_type), NAME, patched).await?))
    }

    /// Deletes a webhook configuration. Returns whether it existed.
    pub(crate) async fn delete(&self, webhook_type: WebhookType, version: &str) -> Result<bool, Fault> {
        let api = self.configurations(webhook_type);
        let preconditions =
            kube::api::Preconditions { resource_version: Some(version.to_owned()), uid: None };
        let parameters = kube::api::DeleteParams {
            preconditions: Some(preconditions),
            ..kube::api::DeleteParams::default()
        };
        match request("delete", &plural(webhook_type), NAME, api.delete(NAME, &parameters)).await {
            Ok(_) => Ok(true),
            Err(Fault { kind: ApiError::NotFound, .. }) => Ok(false),
            Err(fault) => Err(fault),
        }
    }

    /// Returns the names of the `ValidatingAdmissionPolicies` in the cluster.
    pub(crate) async fn native_policies(&self) -> Result<Vec<String>, Fault> {
        let api: Api<ValidatingAdmissionPolicy> = Api::all(self.client.clone());
        let parameters = ListParams::default();
        let found =
            request("list", "validatingadmissionpolicies", "", api.list_metadata(&parameters)).await?;
        Ok(found.items.into_iter().filter_map(|found| found.metadata.name).collect())
    }

    /// Returns the uid of a Namespace, or `None` if it does not exist.
    pub(crate) async fn namespace_uid(&self, namespace: &str) -> Result<Option<String>, Fault> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let found = request("get", "namespaces", namespace, api.get_metadata_opt(namespace)).await?;
        Ok(found.and_then(|found| found.metadata.uid))
    }

    /// Asks whether the account of this client has a permission.
    pub(crate) async fn is_allowed(&self, attributes: ResourceAttributes) -> Result<bool, Fault> {
        let api: Api<SelfSubjectAccessReview> = Api::all(self.client.clone());
        let spec = SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            ..SelfSubjectAccessReviewSpec::default()
        };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let parameters = PostParams::default();
        let sent = api.create(&parameters, &review);
        let review = request("create", "selfsubjectaccessreviews", "", sent).await?;
        Ok(review.status.is_some_and(|status| status.allowed))
    }

    /// Reads a Lease.
    pub(crate) async fn lease(&self, namespace: &str, name: &str) -> Result<Option<Lease>, Fault> {
        let api: Api<Lease> = Api::namespaced(self.client.clone(), namespace);
        request("get", "leases", name, api.get_opt(name)).await
    }

    /// Creates a Lease, or replaces the version that it names.
    pub(crate) async fn write_lease(&self, namespace: &str, lease: &Lease) -> Result<Lease, Fault> {
        let api: Api<Lease> = Api::namespaced(self.client.clone(), namespace);
        let name = lease.metadata.name.as_deref().unwrap_or_default();
        let parameters = PostParams { field_manager: Some(NAME.to_owned()), ..PostParams::default() };
        if lease.metadata.resource_version.is_some() {
            request("update", "leases", name, api.replace(name, &parameters, lease)).await
        } else {
            request("create", "leases", name, api.create(&parameters, lease)).await
        }
    }
}

impl Configuration {
    fn of(object: DynamicObject) -> Self {
        let labels = object.metadata.labels.unwrap_or_default();
        let owners = object.metadata.owner_references.unwrap_or_default();
        Self {
            version: object.metadata.resource_version.unwrap_or_default(),
            is_labeled: labels.get(LABEL.0).is_some_and(|value| value == LABEL.1),
            owners: owners.iter().filter_map(|owner| serde_json::to_value(owner).ok()).collect(),
            webhooks: object.data["webhooks"].as_array().cloned().unwrap_or_default(),
        }
    }
}

/// Sends a request, at most [`REQUEST_TIMEOUT`].
async fn request<T>(
    verb: &str,
    plural: &str,
    name: &str,
    sent: impl Future<Output = Result<T, Error>>,
) -> Result<T, Fault> {
    let fault = |kind, why: String| Fault {
        kind,
        text: format!("cannot {verb} {plural} {name}: {}", excerpt(&why, 300)),
    };
    match tokio::time::timeout(REQUEST_TIMEOUT, sent).await {
        Ok(Ok(answer)) => Ok(answer),
        Err(_) => {
            let why = format!("the API server did not answer in {} s", REQUEST_TIMEOUT.as_secs());
            Err(fault(ApiError::Unavailable, why))
        }
        Ok(Err(Error::Api(status))) => {
            let kind = ApiError::of(status.code, &status.reason);
            let why = match kind {
                ApiError::Forbidden => {
                    format!("Durward isn't allowed to (RBAC: verb {verb}): {}", status.message)
                }
                ApiError::NotFound | ApiError::Conflict => status.message.clone(),
                _ => format!("the API server answers {}: {}", status.code, status.message),
            };
            Err(fault(kind, why))
        }
        Ok(Err(error)) => {
            let mut innermost: &dyn std::error::Error = &error;
            while let Some(source) = innermost.source() {
                innermost = source;
            }
            Err(fault(ApiError::Unavailable, format!("no connection to the API server: {innermost}")))
        }
    }
}
