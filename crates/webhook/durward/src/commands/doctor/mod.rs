//! Command `doctor`: checks the parts of a running installation, and prints problems with the commands that fix them.
//!
//! Each part reads what a running Durward reads, changes nothing, and returns a [`DoctorReport`]. The parts have their own lists of codes.

mod audit;
mod etcd;
mod finding;
mod fleet;
mod install;
mod lxcfs;
mod pod;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use clap::ValueEnum;
use config::{Problem, time};
use console::exit::{Exit, Outcome, Stop};
use console::output::{self, Format, Style};
use serde::Serialize;

use crate::args::ClusterArgs;
use crate::clients::runtime;
use crate::file::{File, Purpose};
use finding::Finding;
use guards::{Configured, deletion};

/// The time between two reports of `--watch`. `kubectl drain` retries every five seconds.
const WATCH_INTERVAL: Duration = Duration::from_secs(2);

/// `kubectl exec` without a terminal leaves the command behind in the pod when it is interrupted, so it ends by itself.
const WATCH_FOR: Duration = Duration::from_secs(3600);

/// The configuration file in Durward's pod.
const FILE_IN_POD: &str = "/etc/durward/durward.yaml";

/// `doctor`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Part to check [default: all that the configuration turns on]
    #[arg(value_enum)]
    part: Option<DoctorPart>,
    /// Configuration file [default: /etc/durward/durward.yaml, if it exists]
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Run it in Durward's pod in this namespace, by kubectl
    #[arg(long, short, value_name = "NAME", conflicts_with_all = ["config", "snapshot", "local", "audit_log"])]
    namespace: Option<String>,
    /// With etcd: check again every 2 s for an hour, and print each change
    #[arg(long, conflicts_with = "snapshot")]
    watch: bool,
    /// With lxcfs: check the files of this machine instead of a cluster
    #[arg(long, conflicts_with_all = ["kubeconfig", "context", "snapshot"])]
    local: bool,
    /// With audit: audit logs of API servers, or - [default: metrics]
    #[arg(long, value_name = "FILE", num_args = 1..)]
    audit_log: Vec<PathBuf>,
    /// Directory of procfs (for tests)
    #[arg(long, value_name = "DIR", default_value = "/proc", hide = true)]
    proc: PathBuf,
    /// Output format
    #[arg(long, short, value_enum, default_value_t, value_name = "FORMAT")]
    output: Format,
}

/// A part of an installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DoctorPart {
    /// Webhook configurations, native policies, permissions and certificates
    Install,
    /// Access to every member cluster
    Fleet,
    /// Etcd clusters, and whether each pod could be deleted now
    Etcd,
    /// LXCFS on every node, and what pods read there
    Lxcfs,
    /// Denials that audit mode allowed, by caller; never checked by default
    Audit,
}

impl DoctorPart {
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// The report of one part.
#[derive(Serialize)]
#[serde(untagged)]
enum DoctorReport {
    Install(install::InstallReport),
    Fleet(fleet::FleetReport),
    Etcd(etcd::EtcdReport),
    Lxcfs(lxcfs::LxcfsReport),
    Audit(audit::AuditReport),
    /// The part could not be checked.
    Failed {
        findings: Vec<Finding>,
    },
}

impl DoctorReport {
    /// Creates the report of a part that stopped early.
    fn failed(stop: Stop) -> Self {
        let problems = stop.problems.into_iter();
        Self::Failed { findings: problems.map(|problem| finding::of_problem("unchecked", problem)).collect() }
    }

    fn findings(&self) -> &[Finding] {
        match self {
            Self::Install(report) => &report.findings,
            Self::Fleet(report) => &report.findings,
            Self::Etcd(report) => &report.findings,
            Self::Lxcfs(report) => &report.findings,
            Self::Audit(report) => &report.findings,
            Self::Failed { findings } => findings,
        }
    }

    fn exit(&self) -> Exit {
        match self {
            Self::Failed { .. } => Exit::Unknown,
            Self::Audit(report) => report.exit(),
            _ if self.findings().is_empty() => Exit::Done,
            _ => Exit::No,
        }
    }

    fn text(&self, style: Style) -> String {
        let mut out = match self {
            Self::Install(report) => report.text(style),
            Self::Fleet(report) => report.text(style),
            Self::Etcd(report) => report.text(style),
            Self::Lxcfs(report) => report.text(style),
            Self::Audit(report) => return report.text(style),
            Self::Failed { findings } => finding::text(findings, style),
        };
        if self.findings().is_empty() {
            out.push_str(&style.green("no problems found\n"));
        }
        out
    }
}

/// `doctor`
pub(crate) fn run(args: &Args) -> Outcome {
    if args.watch && args.part != Some(DoctorPart::Etcd) {
        return Err(Problem::new("--watch repeats the part etcd only")
            .next("durward doctor etcd --watch")
            .into());
    }
    if let Some(namespace) = &args.namespace {
        return pod::run(args, namespace);
    }
    let in_pod = Path::new(FILE_IN_POD);
    let path = args.config.as_deref().or_else(|| in_pod.exists().then_some(in_pod));
    let file = path.map(|path| File::load(path, Purpose::Guards)).transpose()?;
    if !args.audit_log.is_empty() && args.part != Some(DoctorPart::Audit) {
        let problem = Problem::new("--audit-log is only for the part audit");
        return Err(problem.next("durward doctor audit --audit-log FILE").into());
    }
    if args.local {
        return match args.part {
            Some(DoctorPart::Lxcfs) => {
                runtime()?.block_on(lxcfs::run_local(&args.proc, args.output, file.as_ref()))
            }
            _ => Err(Problem::new("--local checks LXCFS only").next("durward doctor lxcfs --local").into()),
        };
    }
    runtime()?.block_on(async {
        match args.part {
            Some(part) if args.watch => watch(args, part, file.as_ref()).await,
            Some(part) => one(args, part, file.as_ref()).await,
            None => all(args, file.as_ref()).await,
        }
    })
}

async fn one(args: &Args, part: DoctorPart, file: Option<&File>) -> Outcome {
    let report = examine(args, part, file).await?;
    output::report(args.output, &report, DoctorReport::text)?;
    Ok(exit(&[(part.name(), report)]))
}

/// Repeats a part for an hour, and prints each report that differs from the one before.
async fn watch(args: &Args, part: DoctorPart, file: Option<&File>) -> Outcome {
    let (began, mut before) = (Instant::now(), None);
    while began.elapsed() < WATCH_FOR {
        let report = examine(args, part, file).await.unwrap_or_else(DoctorReport::failed);
        let text = report.text(Style::stdout());
        if before.as_ref() != Some(&text) {
            output::note(format!("--- {}", time::format(SystemTime::now())));
            output::report(args.output, &report, DoctorReport::text)?;
            before = Some(text);
        }
        tokio::time::sleep(WATCH_INTERVAL).await;
    }
    Ok(Exit::Done)
}

async fn all(args: &Args, file: Option<&File>) -> Outcome {
    let parts = parts(args, file);
    if parts.is_empty() {
        let problem = Problem::new("the configuration turns on no part that a snapshot contains");
        return Err(problem.next("leave out --snapshot").into());
    }
    let mut reports = Vec::new();
    for part in parts {
        // Durward's account isn't allowed to list nodes.
        if part == DoctorPart::Lxcfs && args.config.is_none() {
            output::note(
                "note: lxcfs is not checked in the pod: use your kubeconfig, and durward doctor lxcfs",
            );
            continue;
        }
        reports.push((part.name(), examine(args, part, file).await.unwrap_or_else(DoctorReport::failed)));
    }
    let by_part = Reports(reports);
    output::report(args.output, &by_part, Reports::text)?;
    Ok(exit(&by_part.0))
}

/// The exit code is 3 if a part could not be checked.
fn exit(reports: &[(String, DoctorReport)]) -> Exit {
    let exits = || reports.iter().map(|(_, report)| report.exit());
    [Exit::Unknown, Exit::No].into_iter().find(|exit| exits().any(|one| one == *exit)).unwrap_or(Exit::Done)
}

/// Returns the parts that a configuration turns on. Without one, only a fleet can be found. A snapshot has no webhook
/// configurations.
fn parts(args: &Args, file: Option<&File>) -> Vec<DoctorPart> {
    let Some(file) = file else { return vec![DoctorPart::Fleet] };
    let is_on = |part: &DoctorPart| match part {
        DoctorPart::Install => args.cluster.snapshot.is_none(),
        DoctorPart::Fleet => has(file, |guard| deletion::survey(guard).is_some()),
        DoctorPart::Etcd => has(file, |guard| guards::etcd::survey(guard).is_some()),
        DoctorPart::Lxcfs => file.guard("lxcfs").is_some(),
        // It is about a decision, and reports no defects.
        DoctorPart::Audit => false,
    };
    DoctorPart::value_variants().iter().copied().filter(is_on).collect()
}

fn has(file: &File, is_wanted: impl Fn(&dyn Configured) -> bool) -> bool {
    file.guards.iter().any(|guard| is_wanted(guard.configured.as_ref()))
}

async fn examine(args: &Args, part: DoctorPart, file: Option<&File>) -> Result<DoctorReport, Stop> {
    let needed = || {
        file.ok_or_else(|| {
            let next = format!("durward doctor {} --config FILE", part.name());
            Stop::from(
                Problem::new(format!("the part {} needs the configuration file", part.name())).next(next),
            )
        })
    };
    Ok(match part {
        DoctorPart::Install => DoctorReport::Install(install::examine(needed()?, &args.cluster).await?),
        DoctorPart::Fleet => {
            DoctorReport::Fleet(fleet::examine(file.map(|file| &*file.path), &args.cluster).await?)
        }
        DoctorPart::Etcd => DoctorReport::Etcd(etcd::examine(needed()?, &args.cluster).await?),
        DoctorPart::Lxcfs => DoctorReport::Lxcfs(lxcfs::examine(file, &args.cluster).await?),
        DoctorPart::Audit if args.audit_log.is_empty() => {
            DoctorReport::Audit(audit::read_metrics(needed()?, &args.cluster).await?)
        }
        DoctorPart::Audit => DoctorReport::Audit(audit::read_logs(&args.audit_log, file)?),
    })
}

/// The reports of several parts, by name.
struct Reports(Vec<(String, DoctorReport)>);

impl Serialize for Reports {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(part, report)| (part, report)))
    }
}

impl Reports {
    /// Formats the state of each part, then each part.
    fn text(&self, style: Style) -> String {
        let mut out = String::new();
        for (part, report) in &self.0 {
            let state = match (report, report.findings().len()) {
                (DoctorReport::Failed { .. }, _) => style.red("could not be checked"),
                (_, 0) => style.green("ok"),
                (_, 1) => style.red("1 problem"),
                (_, many) => style.red(&format!("{many} problems")),
            };
            // Writing to a `String` can't fail.
            let _ = writeln!(out, "{part:8} {state}");
        }
        for (part, report) in &self.0 {
            let _ = write!(out, "\n{}\n{}", style.bold(part), report.text(style));
        }
        out
    }
}
