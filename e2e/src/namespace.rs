//! A namespace of a test's own, and what can be made in it.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Map, Value, json};

use crate::controlplane::Cluster;
use crate::pods::Pod;
use crate::service::Service;
use crate::wait::{Poll, eventually};

const ACCOUNT_WITHIN: Duration = Duration::from_secs(60);

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

    /// The namespace of this name, which somebody else made or will make.
    pub(crate) fn of(cluster: &'a Cluster, name: &str) -> Self {
        Self { cluster, name: name.to_owned() }
    }

    /// Its full name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The cluster that it is in.
    pub fn cluster(&self) -> &'a Cluster {
        self.cluster
    }

    /// Begins a sentence about a pod of this name.
    pub fn pod(&self, name: &str) -> Pod<'_> {
        Pod::new(self, name)
    }

    /// Makes a Service without a selector: where it leads is said by [`Service::leads_to`].
    pub fn service(&self, name: &str) -> Result<Service<'_>> {
        Service::create(self, name)
    }

    /// The path of a collection in it: `path("pods")`, `path("apps/v1/deployments")`.
    pub fn path(&self, resource: &str) -> String {
        match resource.rsplit_once('/') {
            Some((group, resource)) => format!("/apis/{group}/namespaces/{}/{resource}", self.name),
            None => format!("/api/v1/namespaces/{}/{resource}", self.name),
        }
    }

    /// Waits for the service account without which the API server admits no pod.
    pub(crate) fn await_account(&self) -> Result<()> {
        let path = format!("{}/default", self.path("serviceaccounts"));
        eventually(format_args!("the service account of {}", self.name), ACCOUNT_WITHIN, || {
            let answer = self.cluster.api().get(&path)?;
            Ok(if answer.is_success() { Poll::Ready(()) } else { Poll::Pending(answer.message().to_owned()) })
        })
    }
}
