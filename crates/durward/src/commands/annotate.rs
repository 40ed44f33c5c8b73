//! Commands `override` and `acknowledge`: compute the annotations that a denial names, and set them through the API server.
//!
//! The commands use the rules of the guards, so they refuse what a guard would refuse. They need no configuration of Durward.

use std::str::FromStr;
use std::time::{Duration, SystemTime};

use cluster::live::{Access, client};
use config::Problem;
use config::names::is_dns_subdomain;
use console::exit::{Exit, Outcome, Stop};
use console::output::{self, quoted};
use guards::deletion::acknowledgement;
use guards::overrides::{self, Mistake};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use serde_json::json;

use crate::clients::runtime;

/// `override`
#[derive(Debug, clap::Args)]
pub(crate) struct OverrideArgs {
    /// Object to delete: ns, crd, pod, statefulset or pvc, and its name
    #[arg(value_name = "KIND/NAME")]
    pub(crate) object: Overridable,
    /// Namespace of the object [default: that of the kubeconfig]
    #[arg(long, short, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Time from now, at most 24h, for example 30m or 2h
    #[arg(long = "for", value_name = "DURATION")]
    pub(crate) duration: Period,
    #[command(flatten)]
    pub(crate) period: PeriodArgs,
}

/// `acknowledge`
#[derive(Debug, clap::Args)]
pub(crate) struct AcknowledgeArgs {
    /// Member clusters that can be unreachable
    #[arg(value_name = "CLUSTER", required = true)]
    pub(crate) clusters: Vec<MemberArg>,
    /// Time from now, at most 30d, for example 12h or 7d
    #[arg(long = "for", value_name = "DURATION")]
    pub(crate) duration: Period,
    #[command(flatten)]
    pub(crate) period: PeriodArgs,
}

/// The arguments of both commands.
#[derive(Debug, clap::Args)]
pub(crate) struct PeriodArgs {
    /// Reason, which the audit log records
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
    /// Print the kubectl command and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Kubeconfig of the cluster [default: kubectl's]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<std::path::PathBuf>,
    /// Context of the kubeconfig [default: its current context]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

/// A kind of objects whose deletion a guard can deny.
#[derive(Debug, PartialEq, Eq)]
struct OverridableKind {
    /// Its names in kubectl. Messages use the first one.
    words: &'static [&'static str],
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    is_namespaced: bool,
}

/// The kinds of both guards that deny deletions.
const OVERRIDABLE: [OverridableKind; 5] = [
    OverridableKind {
        words: &["ns", "namespace", "namespaces"],
        group: "",
        kind: "Namespace",
        plural: "namespaces",
        is_namespaced: false,
    },
    OverridableKind {
        words: &["crd", "crds", "customresourcedefinition", "customresourcedefinitions"],
        group: "apiextensions.k8s.io",
        kind: "CustomResourceDefinition",
        plural: "customresourcedefinitions",
        is_namespaced: false,
    },
    OverridableKind {
        words: &["pod", "po", "pods"],
        group: "",
        kind: "Pod",
        plural: "pods",
        is_namespaced: true,
    },
    OverridableKind {
        words: &["statefulset", "sts", "statefulsets"],
        group: "apps",
        kind: "StatefulSet",
        plural: "statefulsets",
        is_namespaced: true,
    },
    OverridableKind {
        words: &["pvc", "persistentvolumeclaim", "persistentvolumeclaims"],
        group: "",
        kind: "PersistentVolumeClaim",
        plural: "persistentvolumeclaims",
        is_namespaced: true,
    },
];

impl OverridableKind {
    fn word(&self) -> &'static str {
        self.words.first().copied().unwrap_or_default()
    }
}

/// An object whose deletion a guard can deny.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Overridable {
    kind: &'static OverridableKind,
    name: String,
}

impl FromStr for Overridable {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (word, name) = text.split_once('/').unwrap_or((text, ""));
        let Some(kind) = OVERRIDABLE.iter().find(|kind| kind.words.contains(&word)) else {
            let words: Vec<_> = OVERRIDABLE.iter().map(|kind| format!("{}/NAME", kind.word())).collect();
            let meant = match text {
                _ if text.contains('/') || !is_dns_subdomain(text) => String::new(),
                _ if text.contains('.') => format!("; did you mean crd/{text}?"),
                _ => format!("; did you mean ns/{text} or pod/{text}?"),
            };
            return Err(format!("must be one of {}{meant}", words.join(", ")));
        };
        if name.is_empty() {
            return Err(format!("the name is missing: {}/NAME", kind.word()));
        }
        Ok(Self { kind, name: checked(name)? })
    }
}

/// A member cluster: its name, with or without the kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemberArg(String);

impl FromStr for MemberArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let kinds = ["cluster", "clusters"];
        if kinds.contains(&text) {
            return Err("is a kind: write only the names of clusters".to_owned());
        }
        let name =
            text.split_once('/').filter(|(kind, _)| kinds.contains(kind)).map_or(text, |(_, name)| name);
        checked(name).map(Self)
    }
}

fn checked(name: &str) -> Result<String, String> {
    if is_dns_subdomain(name) { Ok(name.to_owned()) } else { Err(format!("{name:?} is not a valid name")) }
}

/// A duration such as `30m`, `2h` or `7d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Period(Duration);

impl FromStr for Period {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || "must be a duration, for example 30m, 2h or 7d".to_owned();
        let seconds = match text.chars().last().ok_or_else(invalid)? {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 24 * 3600,
            _ => return Err(invalid()),
        };
        let number: u32 = text.get(..text.len() - 1).unwrap_or_default().parse().map_err(|_| invalid())?;
        Ok(Self(Duration::from_secs(u64::from(number) * seconds)))
    }
}

/// `override`
pub(crate) fn run_override(args: &OverrideArgs) -> Outcome {
    let Overridable { kind, name } = &args.object;
    let (Period(duration), word) = (args.duration, kind.word());
    let annotations = overrides::annotations(name, &args.period.reason, duration, SystemTime::now());
    let annotations = annotations.map_err(|why| refused("override", &why))?;
    let until = annotations.last().map(|(_, until)| until.clone()).unwrap_or_default();
    if args.namespace.is_some() && !kind.is_namespaced {
        let what = format!("invalid value for --namespace: {word}/{name} has no namespace");
        return Err(Problem::new(what).next("remove --namespace").into());
    }
    let change = Change {
        resource: resource(kind.group, "v1", kind.kind, kind.plural),
        kind: word,
        name,
        is_namespaced: kind.is_namespaced,
        annotations: &annotations,
    };
    change.run(&args.period, args.namespace.as_deref(), |object| {
        // Only a native policy protects it, and has no clock.
        if matches!(kind.kind, "StatefulSet" | "PersistentVolumeClaim") {
            return format!(
                "{object} annotated; it can be changed and deleted until the annotation is removed"
            );
        }
        format!("{object} annotated; Durward allows its deletion until {until}")
    })
}

/// `acknowledge`
pub(crate) fn run_acknowledge(args: &AcknowledgeArgs) -> Outcome {
    let annotations = acknowledgement(&args.period.reason, args.duration.0, SystemTime::now());
    let annotations = annotations.map_err(|why| refused("acknowledgement", &why))?;
    let until = annotations.last().map(|(_, until)| until.clone()).unwrap_or_default();
    for MemberArg(name) in &args.clusters {
        let resource = resource("cluster.karmada.io", "v1alpha1", "Cluster", "clusters");
        let change =
            Change { resource, kind: "cluster", name, is_namespaced: false, annotations: &annotations };
        change.run(&args.period, None, |object| {
            format!("{object} annotated; while it does not answer, it blocks no deletion until {until}")
        })?;
    }
    Ok(Exit::Done)
}

fn refused(what: &str, why: &Mistake) -> Problem {
    let problem = Problem::new(format!("the guard would ignore this {what}")).why(why.to_string());
    let is_long = matches!(why, Mistake::TooLong { .. });
    problem.next(if is_long { "use a shorter --for" } else { "change --reason" })
}

fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version,
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

/// Annotations to set on an object.
struct Change<'c> {
    resource: ApiResource,
    /// The kind as in kubectl.
    kind: &'c str,
    name: &'c str,
    is_namespaced: bool,
    annotations: &'c [(&'static str, String)],
}

impl Change<'_> {
    /// Prints the command or sets the annotations. Without `namespace`, that of the kubeconfig's context applies.
    fn run(&self, args: &PeriodArgs, namespace: Option<&str>, done: impl FnOnce(&str) -> String) -> Outcome {
        if args.dry_run {
            output::data(&format!("{}\n", self.command(namespace)))?;
            return Ok(Exit::Done);
        }
        let access = Access { kubeconfig: args.kubeconfig.clone(), context: args.context.clone() };
        runtime()?.block_on(async {
            let (client, server) = client(&access).await?;
            let api: Api<DynamicObject> = match namespace {
                _ if !self.is_namespaced => Api::all_with(client, &self.resource),
                Some(namespace) => Api::namespaced_with(client, namespace, &self.resource),
                None => Api::default_namespaced_with(client, &self.resource),
            };
            let annotations: serde_json::Map<_, _> =
                self.annotations.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
            let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
            let object = format!("{}/{}", self.kind, self.name);
            let patched = api.patch(self.name, &PatchParams::default(), &patch).await;
            patched.map_err(|error| {
                let problem = Problem::new(format!("{object} could not be annotated in {server}"));
                Stop::fault(problem.why(error.to_string()).next(format!("try: {}", self.command(namespace))))
            })?;
            output::data(&format!("{}\n", done(&object)))?;
            Ok(Exit::Done)
        })
    }

    /// Returns the kubectl command that sets the annotations.
    fn command(&self, namespace: Option<&str>) -> String {
        let namespace = namespace.map(|namespace| format!(" -n {namespace}")).unwrap_or_default();
        let annotations: Vec<_> =
            self.annotations.iter().map(|(key, value)| format!("{key}={}", quoted(value))).collect();
        let (kind, name) = (self.kind, self.name);
        format!("kubectl{namespace} annotate --overwrite {kind} {name} {}", annotations.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_objects_and_durations() {
        for (text, word, name) in
            [("ns/shop", "ns", "shop"), ("pods/etcd-1", "pod", "etcd-1"), ("sts/etcd", "statefulset", "etcd")]
        {
            let object: Overridable = text.parse().unwrap();
            assert_eq!((object.kind.word(), object.name.as_str()), (word, name));
        }
        for wrong in ["shop", "ns/", "ns/A b", "secret/x", "ns/a/b"] {
            assert!(wrong.parse::<Overridable>().is_err(), "{wrong}");
        }
        for text in ["m5", "cluster/m5", "clusters/m5"] {
            assert_eq!(text.parse(), Ok(MemberArg("m5".into())));
        }
        for wrong in ["cluster", "cluster/", "ns/m5", "M 5", ""] {
            assert!(wrong.parse::<MemberArg>().is_err(), "{wrong}");
        }
        assert_eq!("7d".parse(), Ok(Period(Duration::from_secs(7 * 24 * 3600))));
        assert_eq!("90s".parse(), Ok(Period(Duration::from_secs(90))));
        for wrong in ["", "2", "h", "-1h", "2 h", "2w", "2é"] {
            assert!(wrong.parse::<Period>().is_err(), "{wrong}");
        }
    }
}
