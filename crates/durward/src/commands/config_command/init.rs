//! `config init`: prints a minimal configuration file for some guards.

use std::path::Path;

use clap::builder::PossibleValuesParser;
use config::Problem;
use console::exit::{Exit, Outcome, Stop};
use console::output;
use guards::GUARD_KINDS;

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

/// The section of the deletion guard. It names all API groups, because a CRD can't be deleted if Durward can't list its group.
const DELETION: &str = "  deletion:
    fleet: none # one cluster; for Karmada: karmada
    # API groups that Durward can list. \"*\" grants all groups, with Secrets. Safer: name the groups of your CRDs, as [example.org]
    crds: {apiGroups: [\"*\"]}
";

/// The section of the guard of policies. The directory is in the same `ConfigMap` or directory as this file.
const RESOURCES: &str = "  resources:
    policies: [policies] # files and directories with ValidatingAdmissionPolicies, bindings and params, relative to this file
    exempt: {namespaces: [kube-system]}
";

/// `config init`
pub(super) fn run(args: &Args) -> Outcome {
    // Reports an invalid namespace or selector. The policies don't exist yet.
    let is_checked = |name: &str| name != "resources";
    if args.guard.iter().any(|name| is_checked(name)) {
        File::from_text(Path::new("the new file"), file(args, is_checked)?, Purpose::Guards)?;
    }
    output::data(&file(args, |_| true)?)?;
    Ok(Exit::Done)
}

fn file(args: &Args, is_written: impl Fn(&str) -> bool) -> Result<String, Stop> {
    let is_etcd = args.guard.iter().any(|guard| guard == "etcd");
    let mut text = HEAD.to_owned();
    let is_on = |name: &str| is_written(name) && args.guard.iter().any(|guard| guard == name);
    for kind in GUARD_KINDS.iter().filter(|kind| is_on(kind.name())) {
        let section = match kind.name() {
            "deletion" => DELETION.to_owned(),
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
