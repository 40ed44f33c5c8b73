//! Requests to one API server: webhook configurations, native policies, and the Namespace. Errors name the verb and the object.

use std::time::Duration;

use cluster::live::{self, Fault};
use cluster::{ApiError, Resource};
use guards::WebhookType;
use hyper::Request;
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Error};
use serde_json::Value;

use super::names::{LABEL, kind, plural};
use crate::file::NAME;

/// Timeout of one request. The next pass tries again.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// A client of one API server.
#[derive(Clone)]
pub(crate) struct ApiClient {
    client: Client,
}

/// A webhook configuration as it is in the API server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Configuration {
    /// `metadata.uid`
    pub(crate) uid: String,
    /// The version that a write requires.
    pub(crate) version: String,
    /// Whether it has the label of Durward.
    pub(crate) is_labeled: bool,
    /// `metadata.ownerReferences`
    pub(crate) owners: Vec<Value>,
    /// All entries.
    pub(crate) webhooks: Vec<Value>,
    /// `metadata.managedFields`
    pub(crate) managed_fields: Vec<ManagedFieldsEntry>,
}

impl ApiClient {
    /// Wraps a client.
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }

    /// Returns the objects of a kind of the group `admissionregistration.k8s.io`.
    fn objects(&self, kind: &str) -> Api<DynamicObject> {
        let resource = ApiResource {
            group: "admissionregistration.k8s.io".to_owned(),
            version: "v1".to_owned(),
            api_version: "admissionregistration.k8s.io/v1".to_owned(),
            kind: kind.to_owned(),
            plural: plural(kind),
        };
        Api::all_with(self.client.clone(), &resource)
    }

    /// Reads an object.
    pub(crate) async fn object(&self, kind: &str, name: &str) -> Result<Option<DynamicObject>, Fault> {
        request("get", &admission(plural(kind)), name, self.objects(kind).get_opt(name)).await
    }

    /// Reads a webhook configuration of Durward's name.
    pub(crate) async fn configuration(
        &self,
        webhook_type: WebhookType,
    ) -> Result<Option<Configuration>, Fault> {
        Ok(self.object(kind(webhook_type), NAME).await?.map(Configuration::of))
    }

    /// Changes an object, by server-side apply or by a merge patch, and returns the result. An apply takes over the fields of other
    /// field managers.
    pub(crate) async fn patch(
        &self,
        kind: &str,
        name: &str,
        patch: &Patch<Value>,
    ) -> Result<DynamicObject, Fault> {
        let parameters = match patch {
            Patch::Apply(_) => PatchParams::apply(NAME).force(),
            _ => PatchParams { field_manager: Some(NAME.to_owned()), ..PatchParams::default() },
        };
        request("patch", &admission(plural(kind)), name, self.objects(kind).patch(name, &parameters, patch))
            .await
    }

    /// Deletes an object. Returns whether it existed.
    pub(crate) async fn delete(&self, kind: &str, name: &str) -> Result<bool, Fault> {
        let parameters = DeleteParams::default();
        match request("delete", &admission(plural(kind)), name, self.objects(kind).delete(name, &parameters))
            .await
        {
            Ok(_) => Ok(true),
            Err(Fault { kind: ApiError::NotFound, .. }) => Ok(false),
            Err(fault) => Err(fault),
        }
    }

    /// Returns the names of the `ValidatingAdmissionPolicies` in the cluster.
    pub(crate) async fn native_policies(&self) -> Result<Vec<String>, Fault> {
        let api: Api<ValidatingAdmissionPolicy> = Api::all(self.client.clone());
        let parameters = ListParams::default();
        let found = request(
            "list",
            &admission("validatingadmissionpolicies".to_owned()),
            "",
            api.list_metadata(&parameters),
        )
        .await?;
        Ok(found.items.into_iter().filter_map(|found| found.metadata.name).collect())
    }

    /// Returns the pods in a namespace with these labels.
    pub(crate) async fn pods(&self, namespace: &str, labels: &str) -> Result<Vec<Pod>, Fault> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let parameters = ListParams::default().labels(labels);
        Ok(request("list", &core("pods"), namespace, api.list(&parameters)).await?.items)
    }

    /// Reads a page that is not an object, such as `/metrics`.
    pub(crate) async fn page(&self, path: &str) -> Result<String, Fault> {
        let page = async {
            let get = Request::get(path).body(Vec::new()).map_err(Error::HttpError)?;
            self.client.request_text(get).await
        };
        request("get", &core("the page"), path, page).await
    }

    /// Returns the uid of a Namespace, or `None` if it does not exist.
    pub(crate) async fn namespace_uid(&self, namespace: &str) -> Result<Option<String>, Fault> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let found = request("get", &Resource::NAMESPACES, namespace, api.get_metadata_opt(namespace)).await?;
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
        let resource = Resource { group: "authorization.k8s.io".into(), ..core("selfsubjectaccessreviews") };
        let review = request("create", &resource, "", sent).await?;
        Ok(review.status.is_some_and(|status| status.allowed))
    }
}

impl Configuration {
    /// Takes the fields of an object.
    pub(crate) fn of(object: DynamicObject) -> Self {
        let labels = object.metadata.labels.unwrap_or_default();
        let owners = object.metadata.owner_references.unwrap_or_default();
        Self {
            uid: object.metadata.uid.unwrap_or_default(),
            version: object.metadata.resource_version.unwrap_or_default(),
            is_labeled: labels.get(LABEL.0).is_some_and(|value| value == LABEL.1),
            owners: owners.iter().filter_map(|owner| serde_json::to_value(owner).ok()).collect(),
            webhooks: object.data["webhooks"].as_array().cloned().unwrap_or_default(),
            managed_fields: object.metadata.managed_fields.unwrap_or_default(),
        }
    }
}

/// Waits for an answer, at most [`REQUEST_TIMEOUT`].
async fn request<T>(
    verb: &str,
    resource: &Resource,
    name: &str,
    sent: impl Future<Output = Result<T, Error>>,
) -> Result<T, Fault> {
    live::request(verb, resource, name, REQUEST_TIMEOUT, sent).await
}

fn core(plural: &'static str) -> Resource {
    Resource { group: "".into(), version: "v1".into(), plural: plural.into() }
}

fn admission(plural: String) -> Resource {
    Resource { group: "admissionregistration.k8s.io".into(), version: "v1".into(), plural: plural.into() }
}
