//! A Service with an `EndpointSlice` of the test, for a webhook on this host that can be replaced under load.
//!
//! The cluster needs [`crate::controlplane::Options::with_aggregator_routing`], so that the API server connects to the
//! slice's address. It refuses loopback addresses, so [`crate::context::TestContext::address`] leases one.

use std::net::SocketAddr;

use anyhow::Result;
use serde_json::json;

use crate::namespace::Namespace;

/// The Service's port, the default of a webhook's `clientConfig.service`.
const PORT: u16 = 443;

/// A Service without a selector.
#[derive(Debug)]
pub struct Service<'a> {
    namespace: &'a Namespace<'a>,
    name: String,
}

impl<'a> Service<'a> {
    pub(crate) fn create(namespace: &'a Namespace<'a>, name: &str) -> Result<Self> {
        let object = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"ports": [{"name": "https", "port": PORT, "protocol": "TCP"}]},
        });
        namespace.cluster().api().create(&namespace.path("services"), &object)?.succeeded()?;
        Ok(Self { namespace, name: name.to_owned() })
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name of its namespace.
    pub fn namespace(&self) -> &str {
        self.namespace.name()
    }

    /// Returns the name that a certificate needs.
    pub fn host(&self) -> String {
        format!("{}.{}.svc", self.name, self.namespace.name())
    }

    /// Makes this listener its only endpoint. The API server follows within a moment and keeps open connections.
    pub fn set_endpoint(&self, listener: SocketAddr) -> Result<()> {
        self.slice("by-hand", listener)
    }

    /// Makes two listeners its endpoints.
    pub fn set_endpoints(&self, one: SocketAddr, other: SocketAddr) -> Result<()> {
        self.slice("by-hand", one)?;
        // A slice has one set of ports.
        self.slice("by-hand-too", other)
    }

    fn slice(&self, suffix: &str, listener: SocketAddr) -> Result<()> {
        let name = format!("{}-{suffix}", self.name);
        let object = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": self.name}},
            "addressType": if listener.is_ipv4() { "IPv4" } else { "IPv6" },
            "endpoints": [{"addresses": [listener.ip().to_string()], "conditions": {"ready": true}}],
            "ports": [{"name": "https", "port": listener.port(), "protocol": "TCP"}],
        });
        let path = format!("{}/{name}", self.namespace.path("discovery.k8s.io/v1/endpointslices"));
        self.namespace.cluster().api().apply(&path, "e2e", &object)?.succeeded()?;
        Ok(())
    }
}
