//! `config init`: prints a minimal configuration file for some guards.

use std::path::Path;

use clap::builder::PossibleValuesParser;
use cluster::fleet::Fleet;
use config::Problem;
use console::exit::{Exit, Outcome, Stop};
use console::output;
use guards::GUARD_KINDS;

use crate::args::ClusterArgs;
use crate::clients::fleet::{self, FleetContext};
use crate::clients::runtime;
use crate::file::{File, Purpose};

/// `config init`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Guard to turn on; repeat it for several guards
    #[arg(long, value_name = "NAME", required = true, value_parser = PossibleValuesParser::new(GUARD_KINDS.iter().map(|kind| kind.name())))]
    pub(crate) guard: Vec<String>,
    /// Namespace of the etcd cluster (for --guard etcd)
    #[arg(long, short, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// Label selector of the etcd pods, for example app=etcd
    #[arg(long, short = 'l', value_name = "SELECTOR")]
    pub(crate) selector: Option<String>,
    /// Write values.yaml for the chart, in audit mode
    #[arg(long)]
    pub(crate) chart: bool,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

const HEAD: &str = "\
# All keys: durward config defaults
apiVersion: durward.dev/v1alpha1
kind: Configuration
namespace: durward-system
server:
  tls:
    # Created by: durward certs new --service durward.durward-system --out tls
    files: {cert: tls/tls.crt, key: tls/tls.key, ca: tls/ca.crt}
guards:
";

/// The values for the deletion guard that a cluster gives.
struct Proposal {
    fleet: String,
    groups: Vec<String>,
}

impl Default for Proposal {
    fn default() -> Self {
        Self { fleet: "none".to_owned(), groups: Vec::new() }
    }
}

impl Proposal {
    /// Asks the cluster or the snapshot of these flags.
    async fn of(flags: &ClusterArgs) -> Result<Self, Stop> {
        let FleetContext { survey, clients, .. } = fleet::open(None, flags).await?;
        let groups = fleet::crd_groups(&*clients.reader, &survey).await;
        let groups = groups.map_err(|why| Stop::fault(Problem::new("could not list CRDs").why(why.text)))?;
        let fleet = match survey.fleet() {
            Fleet::Karmada => "karmada".to_owned(),
            Fleet::Contexts(names) => format!("{{contexts: {}}}", serde_json::Value::from(names.clone())),
            Fleet::None | Fleet::Secrets { .. } => "none".to_owned(),
        };
        Ok(Self { fleet, groups })
    }

    fn section(&self) -> String {
        let groups = serde_json::Value::from(self.groups.clone());
        format!(
            "  deletion:
    fleet: {} # none: one cluster; karmada: the members of this Karmada control plane
    # API groups of your CRDs. Durward can list these objects. A CRD of another group can't be deleted.
    crds: {{apiGroups: {groups}}}
",
            self.fleet
        )
    }
}

/// The section of the guard of policies. The directory is in the same `ConfigMap` or directory as this file.
const RESOURCES: &str = "  resources:
    policies: [policies] # files and directories with ValidatingAdmissionPolicies, bindings and params, relative to this file
    exempt: {namespaces: [kube-system]}
";

/// `config init`
pub(super) fn run(args: &Args) -> Outcome {
    // Reports an invalid namespace or selector. The policies don't exist yet.
    let is_checked = |name: &str| name != "resources";
    let is_asked = args.cluster.kubeconfig.is_some()
        || args.cluster.context.is_some()
        || args.cluster.snapshot.is_some();
    let proposal = if is_asked && args.guard.iter().any(|guard| guard == "deletion") {
        runtime()?.block_on(Proposal::of(&args.cluster))?
    } else {
        Proposal::default()
    };
    if args.guard.iter().any(|name| is_checked(name)) {
        File::from_text(Path::new("the new file"), file(args, &proposal, is_checked)?, Purpose::Guards)?;
    }
    let file = file(args, &proposal, |_| true)?;
    output::data(&if args.chart { values(&file, &proposal) } else { file })?;
    Ok(Exit::Done)
}

fn file(args: &Args, proposal: &Proposal, is_written: impl Fn(&str) -> bool) -> Result<String, Stop> {
    let is_etcd = args.guard.iter().any(|guard| guard == "etcd");
    let mut text = HEAD.to_owned();
    let is_on = |name: &str| is_written(name) && args.guard.iter().any(|guard| guard == name);
    for kind in GUARD_KINDS.iter().filter(|kind| is_on(kind.name())) {
        let section = match kind.name() {
            "deletion" => proposal.section(),
            "etcd" => clusters(args)?,
            "resources" => RESOURCES.to_owned(),
            name => format!("  {name}: {{}}\n"),
        };
        text.push_str(&section);
    }
    if !is_etcd && (args.namespace.is_some() || args.selector.is_some()) {
        let problem = Problem::new("--namespace and --selector select the pods of an etcd cluster");
        return Err(problem.next("add --guard etcd").into());
    }
    Ok(text)
}

const VALUES: &str = "\
# All values: helm show values charts/durward
image: {repository: registry.example.com/durward} # where you pushed the image
config:
  guards:
";

/// The kubeconfig of Karmada's API server, from a Secret that the quick start creates.
const KARMADA_VOLUME: &str = "\
extraVolumes:
- name: karmada
  secret: {secretName: durward-karmada, defaultMode: 0440}
extraVolumeMounts:
- {name: karmada, mountPath: /etc/durward/karmada, readOnly: true}
";

/// Where the guard `resources` gets its files.
const POLICIES: &str = "policies:
  configMap: durward-policies # a ConfigMap with the files, in Durward's namespace
";

/// Turns a file into values of the chart, which has its own settings of the server. Guards that deny begin in audit mode, and
/// requests pass while Durward is down.
fn values(file: &str, proposal: &Proposal) -> String {
    let is_karmada = proposal.fleet == "karmada";
    let (_, guards) = file.split_once("guards:\n").unwrap_or_default();
    let mut text = VALUES.to_owned();
    for line in guards.lines() {
        let is_guard = line.starts_with("  ") && !line.starts_with("   ");
        // The chart mounts the files and names their directory.
        if line.starts_with("    policies:") {
            continue;
        }
        text.push_str("  ");
        text.push_str(line.trim_end_matches(" {}"));
        text.push('\n');
        let has_failure_policy = line.starts_with("  deletion:") || line.starts_with("  etcd:");
        if is_guard && has_failure_policy {
            text.push_str("      # Then: mode: enforce, and failurePolicy: Fail.\n");
            text.push_str("      mode: audit\n      webhook: {failurePolicy: Ignore}\n");
        } else if is_guard {
            text.push_str("      mode: audit # then: enforce\n");
        }
    }
    if file.contains("\n  resources:\n") {
        text.push_str(POLICIES);
    }
    if is_karmada {
        // The pods run in the host cluster.
        text = text.replace("fleet: karmada #", "fleet: {karmada: {kubeconfig: karmada/kubeconfig}} #");
        text.push_str(KARMADA_VOLUME);
    }
    text
}

fn clusters(args: &Args) -> Result<String, Stop> {
    let (Some(namespace), Some(selector)) = (&args.namespace, &args.selector) else {
        let problem = Problem::new("--guard etcd: the pods of the etcd cluster are not named");
        return Err(problem
            .next("add --namespace and --selector, for example: --namespace db --selector app=etcd")
            .into());
    };
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    Ok(format!(
        "  etcd:\n    clusters:\n      - namespace: {}\n        selector: {}\n",
        quoted(namespace),
        quoted(selector)
    ))
}
