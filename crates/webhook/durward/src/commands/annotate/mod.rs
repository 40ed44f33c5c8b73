//! Commands `override` and `acknowledge`: compute the annotations that a denial names, and set, list or remove them through the API
//! server.
//!
//! The commands use the rules of the guards, so they refuse what a guard would refuse. They need no configuration of Durward.

mod list;
mod objects;

use std::time::SystemTime;

use clap::ValueEnum;
use cluster::live::{Access, client};
use config::Problem;
use console::exit::{Exit, Outcome, Stop};
use console::output::{self, Style, quoted};
use guards::deletion::{ACKNOWLEDGEMENT, acknowledgement};
use guards::overrides::{self, Mistake};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use crate::clients::fleet::kubectl;
use crate::clients::runtime;
use objects::{MemberArg, Overridable, Period, clusters, discovered};

/// `override`
#[derive(Debug, clap::Args)]
pub(crate) struct OverrideArgs {
    /// Object to delete: ns, crd, pod, sts, pvc or RESOURCE.GROUP, and name
    #[arg(value_name = "KIND/NAME", required_unless_present = "list", conflicts_with = "list")]
    pub(crate) object: Option<Overridable>,
    /// Namespace of the object [default: that of the kubeconfig]
    #[arg(long, short, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Time from now, at most 24h, for example 30m or 2h
    #[arg(long = "for", value_name = "DURATION", required_unless_present_any = ["list", "remove"])]
    pub(crate) duration: Option<Period>,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

/// `acknowledge`
#[derive(Debug, clap::Args)]
pub(crate) struct AcknowledgeArgs {
    /// Member clusters that can be unreachable
    #[arg(value_name = "CLUSTER", required_unless_present = "list", conflicts_with = "list")]
    pub(crate) clusters: Vec<MemberArg>,
    /// Time from now, at most 30d, for example 12h or 7d
    #[arg(long = "for", value_name = "DURATION", required_unless_present_any = ["list", "remove"])]
    pub(crate) duration: Option<Period>,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

/// The arguments of both commands.
#[derive(Debug, clap::Args)]
pub(crate) struct ChangeArgs {
    /// Reason, which the audit log records
    #[arg(long, value_name = "TEXT", required_unless_present_any = ["list", "remove"])]
    pub(crate) reason: Option<String>,
    /// List the objects that are annotated, and change nothing
    #[arg(long, conflicts_with_all = ["reason", "duration", "remove", "dry_run"])]
    pub(crate) list: bool,
    /// Remove the annotations
    #[arg(long, conflicts_with_all = ["reason", "duration"])]
    pub(crate) remove: bool,
    /// Change nothing. client: print the kubectl command; server: try it
    #[arg(long, value_enum, value_name = "WHERE", default_value = "none", default_missing_value = "client", num_args = 0..=1, require_equals = true)]
    pub(crate) dry_run: DryRunArg,
    /// Kubeconfig of the cluster [default: kubectl's]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<std::path::PathBuf>,
    /// Context of the kubeconfig [default: its current context]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

/// `--dry-run`, as in kubectl.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DryRunArg {
    /// Change the object
    None,
    /// Print the kubectl command
    Client,
    /// Send the change to the API server, which does not store it
    Server,
}

/// `override`
pub(crate) fn run_override(args: &OverrideArgs) -> Outcome {
    let Some(Overridable { word, kind, name }) = &args.object else {
        let found =
            runtime()?.block_on(list::overridden(&access(&args.change), args.namespace.as_deref()))?;
        return list::print(found, "override", Style::stdout());
    };
    if args.namespace.is_some() && kind.is_some_and(|kind| !kind.is_namespaced) {
        let what = format!("invalid value for --namespace: {word}/{name} has no namespace");
        return Err(Problem::new(what).next("remove --namespace").into());
    }
    let change = |annotations| AnnotationChange {
        resource: kind.map(|kind| (kind.resource(), kind.is_namespaced)),
        kind: word,
        name,
        annotations,
    };
    let Some((reason, Period(duration))) = args.change.reason.as_ref().zip(args.duration) else {
        let removed = |object: &str| format!("{object} annotations of overrides removed");
        return change(removal(&overrides::ALL)).run(&args.change, args.namespace.as_deref(), removed);
    };
    let annotations = overrides::annotations(name, reason, duration, SystemTime::now());
    let annotations = annotations.map_err(|why| refused("override", &why))?;
    let until = annotations.last().map(|(_, until)| until.clone()).unwrap_or_default();
    change(addition(&annotations)).run(&args.change, args.namespace.as_deref(), |object| {
        // Only a native policy protects it, and has no clock.
        if matches!(word.as_str(), "statefulset" | "pvc") {
            return format!(
                "{object} annotated; it can be changed and deleted until the annotation is removed"
            );
        }
        format!("{object} annotated; Durward allows its deletion until {until}")
    })
}

/// `acknowledge`
pub(crate) fn run_acknowledge(args: &AcknowledgeArgs) -> Outcome {
    if args.change.list {
        let found = runtime()?.block_on(list::acknowledged(&access(&args.change)))?;
        return list::print(found, "acknowledgement", Style::stdout());
    }
    let added = match args.change.reason.as_ref().zip(args.duration) {
        None => None,
        Some((reason, Period(duration))) => {
            let annotations = acknowledgement(reason, duration, SystemTime::now());
            Some(annotations.map_err(|why| refused("acknowledgement", &why))?)
        }
    };
    for MemberArg(name) in &args.clusters {
        let annotations = added.as_ref().map_or_else(|| removal(&ACKNOWLEDGEMENT), |added| addition(added));
        let change =
            AnnotationChange { resource: Some((clusters(), false)), kind: "cluster", name, annotations };
        change.run(&args.change, None, |object| match added.as_ref().and_then(|added| added.last()) {
            Some((_, until)) => {
                format!("{object} annotated; while it does not answer, it blocks no deletion until {until}")
            }
            None => format!("{object} acknowledgement removed"),
        })?;
    }
    Ok(Exit::Done)
}

fn access(args: &ChangeArgs) -> Access {
    Access { kubeconfig: args.kubeconfig.clone(), context: args.context.clone() }
}

fn refused(what: &str, why: &Mistake) -> Problem {
    let problem = Problem::new(format!("the guard would ignore this {what}")).why(why.to_string());
    let is_long = matches!(why, Mistake::TooLong { .. });
    problem.next(if is_long { "use a shorter --for" } else { "change --reason" })
}

/// Annotations by key; `None` removes one.
type Annotations = Vec<(&'static str, Option<String>)>;

fn addition(annotations: &[(&'static str, String)]) -> Annotations {
    annotations.iter().map(|(key, value)| (*key, Some(value.clone()))).collect()
}

fn removal(keys: &[&'static str]) -> Annotations {
    keys.iter().map(|key| (*key, None)).collect()
}

/// A change of the annotations of an object.
struct AnnotationChange<'c> {
    /// The resource, and whether its objects are in namespaces; `None` if only the API server knows.
    resource: Option<(ApiResource, bool)>,
    /// The kind as in kubectl.
    kind: &'c str,
    name: &'c str,
    annotations: Annotations,
}

impl AnnotationChange<'_> {
    /// Prints the command or changes the annotations. Without `namespace`, that of the kubeconfig's context applies.
    fn run(&self, args: &ChangeArgs, namespace: Option<&str>, done: impl FnOnce(&str) -> String) -> Outcome {
        if args.dry_run == DryRunArg::Client {
            output::data(&format!("{}\n", self.command(args, namespace)))?;
            return Ok(Exit::Done);
        }
        let is_dry_run = args.dry_run == DryRunArg::Server;
        runtime()?.block_on(async {
            let (client, server) = client(&access(args)).await?;
            let (resource, is_namespaced) = match self.resource.clone() {
                Some(known) => known,
                None => discovered(&client, self.kind).await.map_err(Stop::fault)?,
            };
            let api: Api<DynamicObject> = match namespace {
                _ if !is_namespaced => Api::all_with(client, &resource),
                Some(namespace) => Api::namespaced_with(client, namespace, &resource),
                None => Api::default_namespaced_with(client, &resource),
            };
            let annotations: serde_json::Map<_, _> = self
                .annotations
                .iter()
                .map(|(key, value)| {
                    ((*key).to_owned(), value.as_ref().map_or(Value::Null, |value| json!(value)))
                })
                .collect();
            let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
            let object = format!("{}/{}", self.kind, self.name);
            let params = PatchParams { dry_run: is_dry_run, ..PatchParams::default() };
            let patched = api.patch(self.name, &params, &patch).await;
            patched.map_err(|error| {
                let problem = Problem::new(format!("{object} could not be annotated in {server}"));
                Stop::fault(
                    problem.why(error.to_string()).next(format!("try: {}", self.command(args, namespace))),
                )
            })?;
            let suffix = if is_dry_run { " (server dry run)" } else { "" };
            output::data(&format!("{}{suffix}\n", done(&object)))?;
            Ok(Exit::Done)
        })
    }

    /// Returns the kubectl command that changes the annotations.
    fn command(&self, args: &ChangeArgs, namespace: Option<&str>) -> String {
        let namespace = namespace.map(|namespace| format!(" -n {namespace}")).unwrap_or_default();
        let annotations: Vec<_> = self
            .annotations
            .iter()
            .map(|(key, value)| {
                value.as_ref().map_or(format!("{key}-"), |value| format!("{key}={}", quoted(value)))
            })
            .collect();
        let (kind, name) = (self.kind, self.name);
        let kubectl = kubectl(&access(args));
        format!("{kubectl}{namespace} annotate --overwrite {kind} {name} {}", annotations.join(" "))
    }
}
