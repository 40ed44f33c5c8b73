//! `doctor lxcfs`: reports for each node whether LXCFS serves the configured files, and what a pod would read. It uses the API
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

use std::path::PathBuf;
use std::sync::Arc;

use cluster::Clients;
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
use crate::clients::runtime;
use crate::file::{Cluster, File, Purpose};
use checks::{Expectation, NodeReport};

/// `doctor lxcfs`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Configuration file
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Check the files of this machine instead of a cluster
    #[arg(long, conflicts_with_all = ["kubeconfig", "context", "snapshot"])]
    pub(crate) local: bool,
    /// Directory of procfs (for tests)
    #[arg(long, value_name = "DIR", default_value = "/proc", hide = true)]
    pub(crate) proc: PathBuf,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// Output format
    #[arg(long, short, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: Format,
}

/// The JSON of `doctor lxcfs`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct LxcfsReport {
    /// All nodes of the cluster.
    nodes: Vec<NodeReport>,
    /// Problems and fixes.
    findings: Vec<Finding>,
}

/// `doctor lxcfs`
pub(super) fn run(args: &Args) -> Outcome {
    let file = args.config.as_deref().map(|path| File::load(path, Purpose::Guards)).transpose()?;
    let on_node = file.as_ref().map(|file| read_settings(&file.path, &file.text)).transpose()?;
    if args.local {
        return runtime()?.block_on(local::run(&args.proc, args.output, &on_node.unwrap_or_default()));
    }
    let runtime = runtime()?;
    runtime.block_on(async {
        let report = examine(args, file.as_ref(), on_node).await?;
        finding::print(args.output, &report, &report.findings, text)
    })
}

async fn examine(
    args: &Args,
    file: Option<&File>,
    on_node: Option<NodeSettings>,
) -> Result<LxcfsReport, Stop> {
    let access = access(&args.cluster, file.map_or(&Cluster::default(), |file| &file.cluster));
    let clients = match &args.cluster.snapshot {
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

fn text(report: &LxcfsReport, style: Style) -> String {
    let well = report.nodes.iter().filter(|node| node.serves == checks::Serves::Yes).count();
    let all = report.nodes.iter().filter(|node| node.serves != checks::Serves::Windows).count();
    let mut out = format!("{well} of {all} nodes serve all files\n");
    for node in &report.nodes {
        out.push_str(&node.text(style));
    }
    out.push_str(&finding::text(&report.findings, style));
    if report.findings.is_empty() {
        out.push_str(&style.green("no problems found\n"));
    }
    out
}
