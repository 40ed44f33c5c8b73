//! The command line: every command with its flags and an example. What they do is elsewhere, a module for each.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use clap::{ArgGroup, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::fleet::Target;

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "durward",
    version,
    about = "Keeper of the Kubernetes API server's door: one admission webhook server, several guards.",
    after_help = "Try it first:\n  durward demo\n\nThen:\n  durward certs new --service durward.durward-system --out tls\n  durward config defaults > durward.yaml\n  durward config check durward.yaml\n  durward serve --config durward.yaml",
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 110
)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Shows the whole product in a few seconds: a real server on loopback, real reviews over HTTPS
    #[command(after_help = "Example:\n  durward demo --keep")]
    Demo(Demo),
    /// Runs the webhook server
    #[command(
        after_help = "Example:\n  durward serve --config durward.yaml --listen 127.0.0.1:8443 --log-format text\n\nSIGHUP reads the configuration again; SIGTERM drains and leaves; a second SIGTERM leaves at once."
    )]
    Serve(Serve),
    /// Answers admission reviews without a server
    #[command(
        after_help = "Example:\n  durward review examples/reviews/*.json --config examples/durward.yaml --world examples/world -v\n\nExit code: 0 all allowed, 1 something denied, 2 bad input."
    )]
    Review(Review),
    /// Prints pods and workloads as they are after the LXCFS guard
    #[command(
        after_help = "Example:\n  durward inject deployment.yaml --config durward.yaml --namespace-labels team=shop --diff\n\nAn object that does not change stays as it is written. One that does keeps every other byte in JSON; in YAML it is written anew, without its comments."
    )]
    Inject(Inject),
    /// Tells what a deletion would reach in every cluster, and deletes nothing
    #[command(
        after_help = "Examples:\n  kubectl durward impact ns/shop --kubeconfig karmada-admin.config --config durward.yaml\n  durward impact crd/widgets.example.org --config durward.yaml -o json\n  durward impact ns --all\n\nWithout --config the fleet is found out: Karmada's, if its API answers, or else this cluster alone.\n\nExit code: 0 nothing in use, 1 something in use or unknown (nobody answers), 2 bad input."
    )]
    Impact(Impact),
    /// Looks at the live installation and tells what to mend, why, and by which command
    #[command(
        subcommand,
        after_help = "Examples:\n  durward doctor fleet --config durward.yaml\n  durward doctor lxcfs --config durward.yaml\n  kubectl -n durward-system exec deploy/durward -- durward doctor etcd --config /etc/durward/durward.yaml"
    )]
    Doctor(Doctor),
    /// Writes what guards see of the clusters to disk, so that their verdict can be replayed
    #[command(
        after_help = "Examples:\n  durward snapshot --out incident ns/shop --config durward.yaml\n  durward impact ns/shop --world incident --config durward.yaml\n  durward doctor etcd --world incident --config durward.yaml\n\nOf etcd ensembles all are recorded that the file names, whatever is named here.\n\nExit code: 0 everything was read, 1 something could not be (it is in the recording as that), 2 bad input, also a name that does not exist."
    )]
    Snapshot(Snapshot),
    /// Offers the files of LXCFS to the kubelet as a device, for pods that may have no hostPath volume; one on each node
    #[command(
        after_help = "Example:\n  durward lxcfs-device --config durward.yaml\n\nReads guards.lxcfs: root and files. SIGTERM takes the devices away; pods that run keep what they have."
    )]
    LxcfsDevice(LxcfsDevice),
    /// Tells on the Node whether LXCFS serves there, and has it load a new library; one on each node
    #[command(
        after_help = "Example:\n  durward lxcfs-node --config durward.yaml --node $NODE_NAME --library /var/lib/lxcfs-library/liblxcfs.so\n\nReads guards.lxcfs: root, files and nodeReadiness. SIGTERM leaves label and annotation on the Node, since LXCFS goes on; the annotation's time tells how old they are."
    )]
    LxcfsNode(LxcfsNode),
    /// Prints webhook configurations and RBAC for the guards that the file turns on, and with --image what runs Durward
    #[command(
        after_help = "Examples:\n  durward manifests --config durward.yaml | kubectl apply -f -\n  durward manifests --config durward.yaml --image registry.example.com/durward:1 | kubectl apply -f -\n  durward manifests --config durward.yaml --only karmada | kubectl --kubeconfig karmada-admin.config apply -f -\n\nA file whose guards are asked by two API servers, this cluster's and Karmada's, is printed for one at a time: --only cluster, --only karmada."
    )]
    Manifests(Manifests),
    /// Tells about the configuration file
    #[command(subcommand, after_help = "Example:\n  durward config check durward.yaml")]
    Config(Config),
    /// Lists what each guard protects, needs and leaves alone, by default or as a configuration file has it
    #[command(after_help = "Examples:\n  durward guards --config durward.yaml\n  durward guards -o json")]
    Guards(Guards),
    /// Makes and reads certificates
    #[command(
        subcommand,
        after_help = "Example:\n  durward certs new --out certs --service durward.durward-system\n  durward certs show certs"
    )]
    Certs(Certs),
    /// Prints completions for a shell, or for kubectl
    #[command(
        after_help = "Examples:\n  durward completions bash > /etc/bash_completion.d/durward\n  durward completions --kubectl > /usr/local/bin/kubectl_complete-durward && chmod +x /usr/local/bin/kubectl_complete-durward"
    )]
    Completions(Completions),
    /// Prints the manual page, or writes one for each command
    #[command(after_help = "Example:\n  durward man --out /usr/local/share/man/man1")]
    Man(Man),
    /// Tells the version
    #[command(after_help = "Example:\n  durward version -o json")]
    Version(Version),
    /// What kubectl asks for when a person presses Tab
    #[command(name = "__complete", hide = true)]
    Complete(Complete),
}

/// Text for people or JSON for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs; the fields stay as they are.
    Json,
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum LogFormat {
    /// One JSON object a line.
    #[default]
    Json,
    /// For reading along.
    Text,
}

/// `demo`
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Leave the server running and tell what to try
    #[arg(long)]
    pub(crate) keep: bool,
    /// Only this guard's scenario
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(crate::demo::names()))]
    pub(crate) scenario: Option<String>,
}

/// `serve`
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The configuration file
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: PathBuf,
    #[command(flatten)]
    pub(crate) server: ServerFlags,
    #[command(flatten)]
    pub(crate) world: WorldFlags,
    #[command(flatten)]
    pub(crate) log: LogFlags,
}

/// What is logged, and how.
#[derive(Debug, Clone, Args)]
pub(crate) struct LogFlags {
    /// What is logged: error, warn, info, debug, trace, or per part: info,server=debug
    #[arg(long = "log-level", value_name = "FILTER", default_value = "info")]
    pub(crate) level: String,
    /// How it is logged
    #[arg(long = "log-format", value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) format: LogFormat,
}

/// `lxcfs-device`
#[derive(Debug, Args)]
pub(crate) struct LxcfsDevice {
    /// The configuration file
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// The folder in which the kubelet and its plugins have their sockets
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet/device-plugins")]
    pub(crate) kubelet_dir: PathBuf,
    /// How many containers of this node may have the files at once; more than there can be, or they become a limit
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) devices: u32,
    /// Where mounts and processes are told of; another folder than the kernel's is for tests
    #[arg(long, value_name = "DIR", default_value = "/proc", hide = true)]
    pub(crate) proc: PathBuf,
    #[command(flatten)]
    pub(crate) log: LogFlags,
}

/// `lxcfs-node`
#[derive(Debug, Args)]
pub(crate) struct LxcfsNode {
    /// The configuration file
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// The name of this node: in a pod, its spec.nodeName
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    pub(crate) node: String,
    /// A library that LXCFS is to load anew whenever another one lies there
    #[arg(long, value_name = "FILE")]
    pub(crate) library: Option<PathBuf>,
    /// Where LXCFS has written its process number; where it is not, the process is found by its name and by root
    #[arg(long, value_name = "FILE", default_value = crate::lxcfs::PID_FILE)]
    pub(crate) pid_file: PathBuf,
    /// The runc that starts containers on this node, to ask it for its version
    #[arg(long, value_name = "PROGRAM", default_value = "runc")]
    pub(crate) runc: PathBuf,
    /// The cluster that the node belongs to; within a pod its own cluster needs no flag
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Another context of that kubeconfig than its current one
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Where mounts and processes are told of; another folder than the kernel's is for tests
    #[arg(long, value_name = "DIR", default_value = "/proc", hide = true)]
    pub(crate) proc: PathBuf,
    #[command(flatten)]
    pub(crate) log: LogFlags,
}

/// Flags that override the `server` section of the file.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ServerFlags {
    /// Where the API server calls, over TLS; port 0 takes any free one
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
    /// Where /livez, /readyz and /metrics are
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) admin: Option<SocketAddr>,
    /// Where the log level is changed; loopback only
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) local: Option<SocketAddr>,
    /// The serving certificate, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Its key, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
}

/// Which world the guards look at.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct WorldFlags {
    /// The cluster to look at; within a pod its own cluster needs no flag
    #[arg(long, value_name = "FILE", conflicts_with = "world")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Another context of that kubeconfig, or of the file's, than its current one
    #[arg(long, value_name = "NAME", conflicts_with = "world")]
    pub(crate) context: Option<String>,
    /// A world on disk instead of a cluster
    #[arg(long, value_name = "DIR")]
    pub(crate) world: Option<PathBuf>,
}

/// `review`
#[derive(Debug, Args)]
pub(crate) struct Review {
    /// Files with reviews, JSON or YAML, many per file; - is standard input, as is no file at all
    #[arg(value_name = "FILE|-")]
    pub(crate) files: Vec<PathBuf>,
    /// The configuration file
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// A world on disk for the guards to look at
    #[arg(long, value_name = "DIR")]
    pub(crate) world: Option<PathBuf>,
    /// The guard to ask; otherwise those whose webhook rules and namespaceSelector fit the review
    #[arg(long, value_name = "NAME")]
    pub(crate) guard: Option<String>,
    /// Text for people or JSON for programs
    #[arg(long, short, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: Format,
    /// Tell the way it took: guard, rule, stance, time
    #[arg(long, short)]
    pub(crate) verbose: bool,
    /// Print the object as it is after the patch
    #[arg(long)]
    pub(crate) show_patch: bool,
}

/// `inject`
#[derive(Debug, Args)]
pub(crate) struct Inject {
    /// A file with pods, workloads or Lists, JSON or YAML; - is standard input, as is no file at all
    #[arg(value_name = "FILE|-", default_value = "-")]
    pub(crate) file: PathBuf,
    /// The configuration file
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// Print what changes instead of the objects
    #[arg(long)]
    pub(crate) diff: bool,
    /// The namespace of objects that name none
    #[arg(long, short, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// The labels of that namespace, key=value,…; "" for none. Without it, or --world, the labels are unknown
    #[arg(long, value_name = "LABELS", conflicts_with = "world")]
    pub(crate) namespace_labels: Option<String>,
    /// A world on disk that knows the namespaces
    #[arg(long, value_name = "DIR")]
    pub(crate) world: Option<PathBuf>,
}

/// `impact`
#[derive(Debug, Args)]
pub(crate) struct Impact {
    /// What would be deleted; with --all a kind without a name, or nothing
    #[arg(value_name = "ns/NAME|crd/NAME")]
    pub(crate) targets: Vec<Target>,
    /// All namespaces and definitions of the control plane, or all of the kind that is named
    #[arg(long)]
    pub(crate) all: bool,
    /// The configuration file: what its deletion guard would find
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) world: WorldFlags,
    /// Text for people or JSON for programs
    #[arg(long, short, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: Format,
}

/// `snapshot`
#[derive(Debug, Args)]
pub(crate) struct Snapshot {
    /// What would be deleted; without any, all namespaces and definitions of the control plane
    #[arg(value_name = "ns/NAME|crd/NAME")]
    pub(crate) targets: Vec<Target>,
    /// The folder to write; must not be there, or be empty
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// The configuration file: what its guards read
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) world: WorldFlags,
}

/// `doctor`
#[derive(Debug, Subcommand)]
pub(crate) enum Doctor {
    /// Every cluster of the fleet: whether it can be read, and what stands in the way of the next deletion
    #[command(
        after_help = "Example:\n  durward doctor fleet --config durward.yaml\n\nAsk as Durward does: with its kubeconfig, or in its pod. Without --config the fleet is found out, as with impact, and what a file would say (groups, acknowledgements) is not looked at.\n\nExit code: 0 all well, 1 something to mend, 2 bad input."
    )]
    Fleet(DoctorFleet),
    /// Every node: whether LXCFS serves there what pods are promised, what a pod would see, and what stands in the way
    #[command(
        after_help = "Examples:\n  durward doctor lxcfs --config durward.yaml\n  durward doctor lxcfs --here\n\nWithout --config the guard's defaults are held against what is seen.\n\nExit code: 0 all well, 1 something to mend, 2 bad input."
    )]
    Lxcfs(DoctorLxcfs),
    /// Every etcd ensemble: its members, who leads, what cannot be asked and why, and what would become of each pod's deletion now
    #[command(
        after_help = "Example:\n  kubectl -n durward-system exec deploy/durward -- durward doctor etcd --config /etc/durward/durward.yaml\n\nAsk as Durward does: in its pod, from where members' addresses can be reached; elsewhere every member is silent. Whether Leases may be written is tried with dryRun=All. Nothing is changed.\n\nExit code: 0 all well, 1 something to mend, 2 bad input."
    )]
    Etcd(DoctorEtcd),
}

/// `doctor etcd`
#[derive(Debug, Args)]
pub(crate) struct DoctorEtcd {
    /// The configuration file: which ensembles there are
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// Only the ensembles of this namespace; may be given several times
    #[arg(long, short, value_name = "NAMESPACE")]
    pub(crate) namespace: Vec<String>,
    #[command(flatten)]
    pub(crate) world: WorldFlags,
    /// Text for people or JSON for programs
    #[arg(long, short, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: Format,
}

/// `doctor lxcfs`
#[derive(Debug, Args)]
pub(crate) struct DoctorLxcfs {
    /// The configuration file
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Look at the files of the machine that this runs on, and at no cluster
    #[arg(long, conflicts_with_all = ["kubeconfig", "context", "world"])]
    pub(crate) here: bool,
    /// Where mounts and processes are told of; another folder than the kernel's is for tests
    #[arg(long, value_name = "DIR", default_value = "/proc", hide = true)]
    pub(crate) proc: PathBuf,
    #[command(flatten)]
    pub(crate) world: WorldFlags,
    /// Text for people or JSON for programs
    #[arg(long, short, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: Format,
}

/// `doctor fleet`
#[derive(Debug, Args)]
pub(crate) struct DoctorFleet {
    /// The configuration file: whose fleet, groups and acknowledgements are looked at
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) world: WorldFlags,
    /// Text for people or JSON for programs
    #[arg(long, short, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: Format,
}

/// `manifests`
#[derive(Debug, Args)]
pub(crate) struct Manifests {
    /// The configuration file
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// Only these parts: several, with commas, are added up; karmada or cluster cuts them to that API server
    #[arg(long, value_enum, value_name = "PART", value_delimiter = ',')]
    pub(crate) only: Vec<Part>,
    /// Also what runs Durward itself, with this image: Deployment, Service and what belongs to them
    #[arg(long, value_name = "IMAGE")]
    pub(crate) image: Option<String>,
    /// How many of it run
    #[arg(long, value_name = "NUMBER", default_value_t = 2, requires = "image", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) replicas: u32,
    /// The Secret with its certificate, tls.crt, and key, tls.key
    #[arg(long, value_name = "NAME", default_value = "durward-tls", requires = "image")]
    pub(crate) tls_secret: String,
    /// How important its pods are to the cluster; "" for no more than others
    #[arg(long, value_name = "NAME", default_value = "system-cluster-critical", requires = "image")]
    pub(crate) priority_class: String,
}

/// What `manifests` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// The webhook configurations.
    Registration,
    /// Who Durward is, and what it may do where it is asked.
    Rbac,
    /// What it may do in the members of the fleet; for Karmada with the policy that brings it there.
    Members,
    /// All that goes to the Karmada API server.
    Karmada,
    /// All that goes to the cluster in which Durward runs.
    Cluster,
    /// What runs Durward there: needs --image.
    Workload,
}

/// `config`
#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Prints the JSON schema of the configuration file, for editors
    #[command(after_help = "Example:\n  durward config schema > durward.schema.json")]
    Schema,
    /// Tells every problem of a configuration file at once
    #[command(after_help = "Example:\n  durward config check durward.yaml")]
    Check {
        /// The configuration file
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Prints every key with its default and what it does
    #[command(after_help = "Example:\n  durward config defaults > durward.yaml")]
    Defaults,
}

/// `guards`
#[derive(Debug, Args)]
pub(crate) struct Guards {
    /// The configuration file: only the guards that it turns on, as it has them
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Text for people or JSON for programs
    #[arg(long, short, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: Format,
}

/// `certs`
#[derive(Debug, Subcommand)]
pub(crate) enum Certs {
    /// Makes an authority and a serving certificate
    #[command(
        after_help = "Example:\n  durward certs new --out certs --service durward.durward-system --address 10.0.0.7\n\nWrites ca.crt, ca.key, tls.crt, tls.key. Keep ca.key where the server does not see it."
    )]
    New(CertsNew),
    /// Tells what certificates hold, whether they fit together, and when they end
    #[command(
        after_help = "Examples:\n  durward certs show certs\n  kubectl get mutatingwebhookconfiguration durward -o yaml | durward certs show -\n\nExit code: 0 all well, 1 expired or do not fit, 2 bad input."
    )]
    Show(CertsShow),
}

/// `certs new`
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("names").required(true).multiple(true).args(["service", "name", "address"]))]
pub(crate) struct CertsNew {
    /// The folder to write to; made if it is not there
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// A Service as NAME.NAMESPACE: all names that clients in a cluster call it by
    #[arg(long, value_name = "NAME.NAMESPACE")]
    pub(crate) service: Vec<String>,
    /// A DNS name
    #[arg(long, value_name = "DNS")]
    pub(crate) name: Vec<String>,
    /// An IP address
    #[arg(long, value_name = "IP")]
    pub(crate) address: Vec<IpAddr>,
    /// How long the serving certificate lasts; the authority lasts ten times as long
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub(crate) days: u32,
    /// A folder with ca.crt and ca.key to sign with, instead of a new authority
    #[arg(long, value_name = "DIR")]
    pub(crate) ca: Option<PathBuf>,
    /// Replace files that stand there already
    #[arg(long)]
    pub(crate) force: bool,
}

/// `certs show`
#[derive(Debug, Args)]
pub(crate) struct CertsShow {
    /// PEM files, folders of them, or webhook configurations in YAML or JSON; - is standard input
    #[arg(value_name = "FILE|DIR|-", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Text for people or JSON for programs
    #[arg(long, short, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: Format,
}

/// `completions`
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum, required_unless_present = "kubectl")]
    pub(crate) shell: Option<Shell>,
    /// The script by which `kubectl durward` completes; it must be called kubectl_complete-durward and stand in the PATH
    #[arg(long, conflicts_with = "shell")]
    pub(crate) kubectl: bool,
}

/// `man`
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Write a page for each command into this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

/// `version`
#[derive(Debug, Args)]
pub(crate) struct Version {
    /// Text for people or JSON for programs
    #[arg(long, short, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: Format,
}

/// `__complete`
#[derive(Debug, Args)]
pub(crate) struct Complete {
    /// The words so far, the last one unfinished.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<String>,
}

/// Reads a command line, program name first.
pub(crate) fn parse(line: &[OsString]) -> Result<Cli, clap::Error> {
    let command = unbroken(command(line.first().map_or(Path::new("durward"), Path::new)));
    let matches = command.try_get_matches_from(line)?;
    Cli::from_arg_matches(&matches)
}

/// Stands for a space at which the parser may not break a line. What renders its words puts spaces back: [`rendered`].
const HELD: char = '\u{a0}';

/// The same parser, whose help leaves the lines of examples whole: one that is broken cannot be copied.
fn unbroken(command: clap::Command) -> clap::Command {
    let held = command.get_after_help().map(|help| {
        let text = help.to_string();
        let lines: Vec<_> = text
            .split('\n')
            .map(|line| if line.starts_with("  ") { line.replace(' ', "\u{a0}") } else { line.to_owned() })
            .collect();
        lines.join("\n")
    });
    let command = match held {
        Some(held) => command.after_help(held),
        None => command,
    };
    command.mut_subcommands(unbroken)
}

/// What the parser says, as it is told.
pub(crate) fn rendered(text: &str) -> String {
    text.replace(HELD, " ")
}

/// The variable of the environment that stands for a flag of what was called, written as the parser writes it: `--node <NAME>`.
pub(crate) fn variable(called: &str, flag: &str) -> Option<String> {
    let mut root = command(Path::new("durward"));
    root.build();
    let mut at = &root;
    for word in called.split(' ') {
        at = at.find_subcommand(word).unwrap_or(at);
    }
    let argument = at.get_arguments().find(|argument| argument.to_string() == flag)?;
    Some(argument.get_env()?.to_string_lossy().into_owned())
}

/// What a line calls, as far as it names commands that there are: `durward doctor fleet`. Flags stand behind the command.
pub(crate) fn called(line: &[OsString]) -> String {
    let root = command(line.first().map_or(Path::new("durward"), Path::new));
    let mut called = root.get_bin_name().unwrap_or("durward").to_owned();
    let mut at = &root;
    for word in line.get(1..).unwrap_or_default() {
        let Some(inner) = at.find_subcommand(word) else { break };
        called = format!("{called} {}", inner.get_name());
        at = inner;
    }
    called
}

/// The parser, speaking of itself by the name that it was called by: `kubectl-durward` is `kubectl durward` to its user.
pub(crate) fn command(program: &Path) -> clap::Command {
    let plugin = program.file_stem().is_some_and(|name| name == "kubectl-durward");
    Cli::command().bin_name(if plugin { "kubectl durward" } else { "durward" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parser_is_sound() {
        command(Path::new("durward")).debug_assert();
    }

    #[test]
    fn an_example_is_never_broken_into_lines() {
        fn check(line: &[&str], command: &clap::Command) {
            let asked: Vec<_> = line.iter().chain(&["--help"]).map(Into::into).collect();
            let told = rendered(&parse(&asked).unwrap_err().render().to_string());
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for example in help.lines().filter(|line| line.starts_with("  ")) {
                assert!(told.lines().any(|line| line == example), "{example}\nis not whole in\n{told}");
            }
            for inner in command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
                check(&[line, &[inner.get_name()]].concat(), inner);
            }
        }
        check(&["durward"], &command(Path::new("durward")));
    }

    #[test]
    fn every_command_has_an_example() {
        fn check(command: &clap::Command) {
            for inner in command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
                let help = inner.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.contains("Example"), "{} has no example", inner.get_name());
                check(inner);
            }
        }
        check(&command(Path::new("durward")));
    }
}
