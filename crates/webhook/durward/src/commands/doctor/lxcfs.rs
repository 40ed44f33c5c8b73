//! The part `lxcfs`: reports for each node whether LXCFS serves the configured files, and what a pod would read. It uses the API
//! server, or with `--local` the files of this machine.
//!
//! The codes of findings are a closed set:
//!
//! | code | problem |
//! |---|---|
//! | `nodes`, `pods` | a list could not be read |
//! | `no-data` | no information about LXCFS on these nodes |
//! | `annotation` | the annotation is not valid, or it is missing and pods depend on the readiness label |
//! | `files` | a configured file is not served |
//! | `path` | the agent uses another LXCFS path |
//! | `label` | the label contradicts the files |
//! | `stale` | the label and the annotation are no longer updated |
//! | `node` | the node is not Ready |
//! | `device` | the extended resource is missing |
//! | `pod` | a pod of LXCFS or its agents is not ready |
//! | `dead` | containers with files started before the present LXCFS |
//! | `injector` | the webhook configuration of another injector adds the same files |
//! | `mount` | LXCFS is not mounted |

mod checks;
mod facts;
mod local;
mod values;

use std::path::Path;
use std::sync::Arc;

use cluster::Clients;
use config::Problem;
use console::exit::{Outcome, Stop};
use console::output::Format;
use console::output::Style;
use lxcfs::NodeSettings;
use node::read_settings;
use serde::Serialize;

use super::finding::{self, Finding};
use crate::args::ClusterArgs;
use crate::clients::connect::{access, snapshot};
use crate::clients::fleet;
use crate::file::{ClusterSection, File};
use checks::{Expectation, NodeReport};

/// The nodes.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LxcfsReport {
    /// All nodes of the cluster.
    nodes: Vec<NodeReport>,
    /// Problems and fixes.
    pub(super) findings: Vec<Finding>,
}

/// Checks the files of this machine.
pub(super) async fn run_local(proc: &Path, format: Format, file: Option<&File>) -> Outcome {
    local::run(proc, format, &settings(file)?.unwrap_or_default()).await
}

fn settings(file: Option<&File>) -> Result<Option<NodeSettings>, Vec<Problem>> {
    file.map(|file| read_settings(&file.path, &file.text)).transpose()
}

/// Examines the nodes of a cluster. Without a file, the defaults of the guard are expected.
pub(super) async fn examine(file: Option<&File>, flags: &ClusterArgs) -> Result<LxcfsReport, Stop> {
    let on_node = settings(file)?;
    let access = access(flags, file.map_or(&ClusterSection::default(), |file| &file.cluster));
    let clients = match &flags.snapshot {
        Some(dir) => snapshot(dir)?,
        None => Clients::live(&Arc::new(fleet::connect(&access).await?)),
    };
    let reader = clients.reader.as_ref();
    let expected = Expectation {
        is_configured: on_node.is_some(),
        on_node: on_node.unwrap_or_default(),
        kubectl: fleet::kubectl(&access),
        now: clients.context.now(),
    };
    let mut findings = Vec::new();
    let injector = facts::has_other_injector(reader).await;
    if injector.is_ok() || !clients.context.is_snapshot {
        let answer = injector.as_ref().copied().map_err(|why| why.text.as_str());
        findings.extend(expected.other_injector(answer));
    }
    let nodes = match facts::nodes(reader).await {
        Ok(nodes) => nodes,
        Err(why) => {
            findings.push(expected.unlisted("nodes", &why.text));
            return Ok(LxcfsReport { nodes: Vec::new(), findings });
        }
    };
    let pods = match facts::pods(reader, &expected.on_node.root).await {
        Ok(pods) => Some(pods),
        Err(why) => {
            findings.push(expected.unlisted("pods", &why.text));
            None
        }
    };
    let (nodes, found) = checks::all(&expected, nodes, pods.as_ref());
    findings.extend(found);
    Ok(LxcfsReport { nodes, findings })
}

impl LxcfsReport {
    pub(super) fn text(&self, style: Style) -> String {
        let well = self.nodes.iter().filter(|node| node.serves == checks::Serves::Yes).count();
        let all = self.nodes.iter().filter(|node| node.serves != checks::Serves::Windows).count();
        let mut out = format!("{well} of {all} nodes serve all files\n");
        for node in &self.nodes {
            out.push_str(&node.text(style));
        }
        out.push_str(&finding::text(&self.findings, style));
        out
    }
}
