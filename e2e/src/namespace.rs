//! A namespace of a test.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Map, Value, json};

use crate::controlplane::Cluster;
use crate::pods::Pod;
use crate::service::Service;
use crate::wait::{Poll, eventually};

const ACCOUNT_WITHIN: Duration = Duration::from_secs(180);

/// A namespace of a cluster. It ends with the cluster.
#[derive(Debug)]
pub struct Namespace<'a> {
    cluster: &'a Cluster,
    name: String,
}

impl<'a> Namespace<'a> {
    pub(crate) fn create(cluster: &'a Cluster, name: String, labels: &[(&str, &str)]) -> Result<Self> {
        let labels: Map<String, Value> =
            labels.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        let object = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels},
        });
        cluster.api().create("/api/v1/namespaces", &object)?.succeeded()?;
        Ok(Self { cluster, name })
    }

    /// Returns the namespace of this name, which need not exist.
    pub(crate) fn of(cluster: &'a Cluster, name: &str) -> Self {
        Self { cluster, name: name.to_owned() }
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its cluster.
    pub fn cluster(&self) -> &'a Cluster {
        self.cluster
    }

    /// Returns a pod of this name, to be created.
    pub fn pod(&self, name: &str) -> Pod<'_> {
        Pod::new(self, name)
    }

    /// Makes a Service without a selector. [`Service::set_endpoint`] sets its endpoints.
    pub fn service(&self, name: &str) -> Result<Service<'_>> {
        Service::create(self, name)
    }

    /// Returns the path of a collection: `path("pods")`, `path("apps/v1/deployments")`.
    pub fn path(&self, resource: &str) -> String {
        match resource.rsplit_once('/') {
            Some((group, resource)) => format!("/apis/{group}/namespaces/{}/{resource}", self.name),
            None => format!("/api/v1/namespaces/{}/{resource}", self.name),
        }
    }

    /// Waits for the service account, without which the API server admits no pod.
    pub(crate) fn await_account(&self) -> Result<()> {
        let path = format!("{}/default", self.path("serviceaccounts"));
        eventually(format_args!("the service account of {}", self.name), ACCOUNT_WITHIN, || {
            let answer = self.cluster.api().get(&path)?;
            Ok(if answer.is_success() { Poll::Ready(()) } else { Poll::Pending(answer.message().to_owned()) })
        })
    }
}
