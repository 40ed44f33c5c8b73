//! cert-manager for a cluster: its CRDs, its controllers and its cainjector.
//!
//! Both are processes of this host, with the permissions of an administrator. cert-manager's own webhook is not there, so only the
//! schemas of the CRDs check the objects.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::api::Api;
use crate::binaries::Binary;
use crate::context::TestContext;
use crate::controlplane::Cluster;
use crate::supervisor::{Process, Supervisor, Tool};
use crate::wait::until;

/// The API group of its objects.
const API: &str = "/apis/cert-manager.io/v1";

/// Running controllers and cainjector. They end when this is dropped, and the CRDs stay.
#[derive(Debug)]
pub struct CertManager {
    api: Api,
    parts: [Process; 2],
}

impl CertManager {
    /// The field manager of the cainjector.
    pub const INJECTOR: &str = "cert-manager-cainjector";

    /// Applies the CRDs and waits until they are served.
    pub fn define(supervisor: &Arc<Supervisor>, cluster: &Cluster) -> Result<()> {
        let definitions = Binary::CertManager.sources(supervisor)?.join("deploy/crds").display().to_string();
        cluster.kubectl().run(&["apply", "--server-side", "-f", &definitions])?.succeeded()?;
        for resource in ["certificates", "certificaterequests", "issuers", "clusterissuers"] {
            until(format_args!("{resource} to be served"), || {
                let answer = cluster.api().get(&format!("{API}/{resource}"))?;
                Ok((answer.is_success(), answer.message().to_owned()))
            })?;
        }
        Ok(())
    }

    /// Applies the CRDs and starts both processes.
    pub fn start(context: &TestContext, cluster: &Cluster) -> Result<Self> {
        let supervisor = context.supervisor()?;
        let program = Binary::CertManager.path(&supervisor)?;
        Self::define(&supervisor, cluster)?;
        let user = cluster.certified("cert-manager", Some("system:masters"))?;
        let kubeconfig = user.kubectl.kubeconfig().to_owned();
        let start = |part: &str| start(&supervisor, (&program, part), &kubeconfig);
        Ok(Self { api: cluster.api().clone(), parts: [start("controller")?, start("cainjector")?] })
    }

    /// Waits until a Certificate is issued, and returns its Secret.
    pub fn issued(&self, namespace: &str, name: &str) -> Result<Value> {
        let path = certificate(namespace, name);
        let waited = until(format_args!("Certificate {namespace}/{name} to be issued"), || {
            let object = self.api.get(&path)?.body;
            let is_issued = condition(&object, "Ready") == "True" && condition(&object, "Issuing") != "True";
            Ok((is_issued, object["status"].to_string()))
        });
        waited.map_err(|error| self.parts[0].failure(format_args!("{error:#}")))?;
        let object = self.api.get(&path)?.succeeded()?.body;
        let secret = object["spec"]["secretName"].as_str().context("a Certificate without secretName")?;
        Ok(self.api.get(&format!("/api/v1/namespaces/{namespace}/secrets/{secret}"))?.succeeded()?.body)
    }

    /// Renews a Certificate before it expires, as `cmctl renew` does, and returns its new Secret.
    pub fn renew(&self, namespace: &str, name: &str) -> Result<Value> {
        let path = certificate(namespace, name);
        let mut object = self.api.get(&path)?.succeeded()?.body;
        let before = object["status"]["revision"].clone();
        let issuing = json!({
            "type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "renewed by the test",
            "lastTransitionTime": object["metadata"]["creationTimestamp"],
        });
        object["status"]["conditions"].as_array_mut().context("no conditions")?.push(issuing);
        self.api.replace(&format!("{path}/status"), &object)?.succeeded()?;
        until(format_args!("a new revision of Certificate {namespace}/{name}"), || {
            let revision = self.api.get(&path)?.body["status"]["revision"].clone();
            Ok((revision != before, revision.to_string()))
        })?;
        self.issued(namespace, name)
    }
}

impl Drop for CertManager {
    fn drop(&mut self) {
        for part in &self.parts {
            let _ = part.end();
        }
    }
}

fn start(supervisor: &Supervisor, (program, part): (&Path, &str), kubeconfig: &Path) -> Result<Process> {
    let tool = Tool::new(format!("cert-manager-{part}"), program)
        .argument(part)
        .argument(kubeconfig.display().to_string());
    supervisor.start_process(tool)
}

fn certificate(namespace: &str, name: &str) -> String {
    format!("{API}/namespaces/{namespace}/certificates/{name}")
}

/// Returns the status of a condition.
fn condition<'a>(object: &'a Value, kind: &str) -> &'a str {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let found = conditions.into_iter().find(|condition| condition["type"] == kind);
    found.and_then(|condition| condition["status"].as_str()).unwrap_or_default()
}
