//! `doctor etcd`: ensemble by ensemble, by the very questions that a review asks: who is in it, who leads, what cannot be asked and
//! why, and what would become of each pod's deletion now.
//!
//! The codes of findings are a closed set: the world's causes, for what cannot be asked; `gateway-off`: members tell no more than
//! health and metrics; `quorum`: it is lost, or too few can be counted on; `unfit`, `corrupt`, `stranger`, `absent`: a member, or a
//! pod that is none; `list`: who the members are is not clear; `membership`: it is changing; `alarm`; `lease`: it cannot be noted
//! who leaves; `no-pods`: an entry of the configuration chooses nothing; `overlap`: two choose the same pods; `namespace`: Durward
//! shares its own with the control plane; `break-glass`: the way through in spite of all is open.

mod judge;

use crate::args::ClusterArgs;
use std::path::PathBuf;
use std::time::Instant;

use cluster::writer::Lease;
use futures_util::future::join_all;
use guards::etcd::{Ensemble, Member, Surveyed, Why};
use serde::Serialize;

use super::finding::Finding;
use crate::args::Format;
use crate::ensembles::{self, Eyes};
use crate::exit::{Exit, Outcome};
use crate::fleet::{self, ANSWER_WITHIN};
use crate::output::{self, ProgressLine, Style};
use crate::review::runtime;
use judge::Mends;

/// `doctor etcd`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The configuration file: which ensembles there are
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// Only the ensembles of this namespace; may be given several times
    #[arg(long, short, value_name = "NAMESPACE")]
    pub(crate) namespace: Vec<String>,
    #[command(flatten)]
    pub(crate) world: ClusterArgs,
    /// Text for people or JSON for programs
    #[arg(long, short, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: Format,
}

/// As many ensembles as are told member by member; of more than these, only those that have something to tell.
const WHOLE: usize = 3;

/// Leases that are tried at once.
const AT_ONCE: usize = 16;

/// Something to mend, and in which ensemble.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Found {
    /// None where it is about none of them, or about all.
    #[serde(skip_serializing_if = "Option::is_none")]
    ensemble: Option<String>,
    #[serde(flatten)]
    finding: Finding,
}

impl Found {
    fn in_some(ensemble: Option<&str>, code: &'static str, what: String, why: &str, mend: String) -> Self {
        let finding = Finding { cluster: None, code, what, why: why.to_owned(), mend };
        Self { ensemble: ensemble.map(str::to_owned), finding }
    }

    fn text(&self, style: Style) -> String {
        Finding { cluster: self.ensemble.clone(), ..self.finding.clone() }.text(style)
    }
}

/// What the command tells programs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    /// Every ensemble, with its members.
    ensembles: Vec<Ensemble>,
    /// What is to be mended.
    findings: Vec<Found>,
}

/// `doctor etcd`
pub(super) fn run(args: &Args) -> Outcome {
    runtime()?.block_on(async {
        let eyes = ensembles::open(&args.config, &args.world).await?;
        let told = look(&eyes, &args.namespace).await;
        match args.output {
            Format::Json => output::json(&told)?,
            Format::Text => output::data(&text(&told, Style::stdout()))?,
        }
        Ok(if told.findings.is_empty() { Exit::Done } else { Exit::No })
    })
}

async fn look(eyes: &Eyes, only: &[String]) -> Told {
    let line = ProgressLine::new();
    let progress = |done: usize, of: usize| line.show(&format!("{done} of {of} namespaces were looked into"));
    let surveyed = eyes.survey.look(&eyes.clients, only, &progress).await;
    drop(line);
    let mends = Mends {
        kubectl: fleet::kubectl(&eyes.access),
        config: eyes.config.clone(),
        home: eyes.survey.home().to_owned(),
    };
    let mut findings = judge::all(&surveyed, &mends);
    let is_nothing = surveyed.ensembles.is_empty() && surveyed.empty.is_empty() && surveyed.unseen.is_empty();
    if is_nothing && !only.is_empty() {
        findings.push(judge::nowhere(only));
    }
    findings.extend(eyes.survey.install_namespace().and_then(judge::shared));
    findings.extend(unwritable(eyes, &surveyed, &mends).await);
    Told { ensembles: surveyed.ensembles, findings }
}

/// Whether it can be noted who leaves: tried, and nothing stored. A recording cannot be tried. Leases that cannot be written for the
/// same reason are one finding.
async fn unwritable(eyes: &Eyes, surveyed: &Surveyed, mends: &Mends) -> Option<Found> {
    let writer = eyes.writer.as_ref()?;
    // What cannot be read is told already.
    let readable = surveyed.ensembles.iter().filter(|one| one.lease_unread.is_none());
    let mut leases: Vec<(&str, &str)> =
        readable.filter_map(|one| one.lease.as_deref()?.split_once('/')).collect();
    leases.sort_unstable();
    leases.dedup();
    for some in leases.chunks(AT_ONCE) {
        let tried = some.iter().map(async |(namespace, name)| {
            let lease = Lease { namespace: (*namespace).to_owned(), name: (*name).to_owned() };
            writer.may_write(&lease, Instant::now() + ANSWER_WITHIN).await.err()
        });
        if let Some(why) = join_all(tried).await.into_iter().flatten().next() {
            return Some(judge::unnoted(None, &Why::from(&why), mends));
        }
    }
    None
}

/// For people.
fn text(told: &Told, style: Style) -> String {
    let is_well = |one: &&Ensemble| one.members.iter().all(|member| member.state == "Healthy");
    let well = told.ensembles.iter().filter(is_well).count();
    let mut out = match told.ensembles.len() {
        0 => "no ensemble was found\n".to_owned(),
        1 => format!("{well} of 1 ensemble has all its members healthy\n"),
        all => format!("{well} of {all} ensembles have all their members healthy\n"),
    };
    for finding in &told.findings {
        out.push('\n');
        out.push_str(&finding.text(style));
    }
    let is_whole = |one: &&Ensemble| told.ensembles.len() <= WHOLE || !is_quiet(one);
    for one in told.ensembles.iter().filter(is_whole) {
        out.push('\n');
        out.push_str(&ensemble(one, style));
    }
    let quiet: Vec<&str> =
        told.ensembles.iter().filter(|one| !is_whole(one)).map(|one| one.name.as_str()).collect();
    if !quiet.is_empty() {
        out.push_str("\nall well (--namespace tells more): ");
        out.push_str(&quiet.join(", "));
        out.push('\n');
    }
    if told.findings.is_empty() {
        out.push_str(&style.green("\nnothing to mend\n"));
    }
    out
}

/// Whether there is nothing to tell of it but that it is well.
fn is_quiet(one: &Ensemble) -> bool {
    let deletion = |member: &Member| member.deletion.as_ref().map(|deletion| deletion.verdict);
    one.members.iter().all(|member| member.state == "Healthy" && deletion(member) == Some("allow"))
}

fn ensemble(one: &Ensemble, style: Style) -> String {
    let quorum = match (one.voters, one.quorum) {
        (Some(voters), Some(quorum)) => format!("{} of {voters} healthy, {quorum} are a quorum", one.healthy),
        _ => "who votes is not known".to_owned(),
    };
    let mut lines = vec![format!("{}  {quorum}", style.bold(&one.name))];
    let width = one.members.iter().map(|member| member.name.chars().count()).max().unwrap_or_default();
    for member in &one.members {
        lines.push(row(member, width, style));
        if let Some(deletion) = &member.deletion {
            let verdict = match deletion.verdict {
                "allow" => style.green("may be deleted now"),
                "deny" => style.red("may not be deleted now"),
                _ => style.yellow("whether it may be deleted now is unknown"),
            };
            let why = if deletion.why.is_empty() { String::new() } else { format!(": {}", deletion.why) };
            lines.push(format!("    {verdict}{why}"));
            lines.extend(deletion.warnings.iter().map(|warning| format!("    {}", style.dim(warning))));
        }
    }
    output::lines(lines)
}

fn row(member: &Member, width: usize, style: Style) -> String {
    let term = member.term.map(|term| format!("  term {term}")).unwrap_or_default();
    let lag = member.lag.map(|lag| format!("  {lag} behind")).unwrap_or_default();
    let health = match member.state {
        "Healthy" => style.green(&member.health),
        "Learner" | "Leaving" => style.yellow(&member.health),
        _ => style.red(&member.health),
    };
    format!("  {:width$}  {:8}{term}{lag}  {health}", member.name, member.role)
}
