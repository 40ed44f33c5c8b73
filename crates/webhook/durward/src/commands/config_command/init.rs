//! `config init`: prints a minimal configuration file for some guards.

use std::fmt::Write as _;
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

    /// Returns the section. The pods of the chart run in the host cluster, so they need a kubeconfig for Karmada's API server.
    fn section(&self, is_chart: bool) -> String {
        let groups = serde_json::Value::from(self.groups.clone());
        let fleet = if is_chart && self.is_karmada() {
            "{karmada: {kubeconfig: karmada/kubeconfig}}"
        } else {
            &self.fleet
        };
        format!(
            "    fleet: {fleet} # none: one cluster; karmada: the members of this Karmada control plane
    # API groups of your CRDs. Durward can list these objects. A CRD of another group can't be deleted.
    crds: {{apiGroups: {groups}}}
"
        )
    }

    fn is_karmada(&self) -> bool {
        self.fleet == "karmada"
    }
}

/// The section of the guard of policies. The directory is in the same `ConfigMap` or directory as this file.
const POLICIES: &str = "    policies: [policies] # files and directories with ValidatingAdmissionPolicies, bindings and params, relative to this file\n";

const EXEMPT: &str = "    exempt: {namespaces: [kube-system]}\n";

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
    let text = if args.chart { values(args, &proposal)? } else { file(args, &proposal, |_| true)? };
    output::data(&text)?;
    Ok(Exit::Done)
}

/// Returns the guards to turn on, in the order of all guards.
fn guards(args: &Args) -> Result<Vec<&'static str>, Stop> {
    let is_on = |name: &&str| args.guard.iter().any(|guard| guard == name);
    let guards: Vec<_> = GUARD_KINDS.iter().map(|kind| kind.name()).filter(is_on).collect();
    if !guards.contains(&"etcd") && (args.namespace.is_some() || args.selector.is_some()) {
        let problem = Problem::new("--namespace and --selector select the pods of an etcd cluster");
        return Err(problem.next("add --guard etcd").into());
    }
    Ok(guards)
}

fn file(args: &Args, proposal: &Proposal, is_written: impl Fn(&str) -> bool) -> Result<String, Stop> {
    let mut text = HEAD.to_owned();
    for guard in guards(args)?.into_iter().filter(|guard| is_written(guard)) {
        let section = match guard {
            "deletion" => proposal.section(false),
            "etcd" => clusters(args)?,
            "resources" => format!("{POLICIES}{EXEMPT}"),
            _ => String::new(),
        };
        let end = if section.is_empty() { " {}" } else { "" };
        // Writing to a `String` can't fail.
        let _ = write!(text, "  {guard}:{end}\n{section}");
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

/// The files of the guard `resources`, which the chart mounts and names in the configuration.
const POLICIES_OF_CHART: &str = "\
policies:
  configMap: durward-policies # a ConfigMap with the files, in Durward's namespace
";

/// The first mode of guards that deny. Requests pass while Durward is down.
const AUDIT: &str = "\
    # Then: mode: enforce, and failurePolicy: Fail.
    mode: audit
    webhook: {failurePolicy: Ignore}
";

const AUDIT_ONLY: &str = "    mode: audit # then: enforce\n";

/// Returns values of the chart, which has its own settings of the server.
fn values(args: &Args, proposal: &Proposal) -> Result<String, Stop> {
    let (mut text, mut last) = (VALUES.to_owned(), String::new());
    for guard in guards(args)? {
        let section = match guard {
            "deletion" => format!("{AUDIT}{}", proposal.section(true)),
            "etcd" => format!("{AUDIT}{}", clusters(args)?),
            "resources" => format!("{AUDIT_ONLY}{EXEMPT}"),
            _ => AUDIT_ONLY.to_owned(),
        };
        let _ = writeln!(text, "    {guard}:");
        text.extend(section.lines().map(|line| format!("  {line}\n")));
        last.push_str(match guard {
            "deletion" if proposal.is_karmada() => KARMADA_VOLUME,
            "resources" => POLICIES_OF_CHART,
            _ => "",
        });
    }
    Ok(text + &last)
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
        "    clusters:\n      - namespace: {}\n        selector: {}\n",
        quoted(namespace),
        quoted(selector)
    ))
}
