//! `doctor etcd`: ensemble by ensemble, by the very questions that a review asks: who is in it, who leads, what cannot be asked and
//! why, and what would become of each pod's deletion now.
//!
//! The codes of findings are a closed set: the world's causes, for what cannot be asked; `gateway-off`: members tell no more than
//! health and metrics; `quorum`: it is lost, or too few can be counted on; `unfit`, `corrupt`, `stranger`, `absent`: a member, or a
//! pod that is none; `list`: who the members are is not clear; `membership`: it is changing; `alarm`; `lease`: it cannot be noted
//! who leaves; `no-pods`: an entry of the configuration chooses nothing; `break-glass`: the way through in spite of all is open.

mod judge;

use std::time::Instant;

use guards::etcd::{Ensemble, Member, Surveyed};
use guards::hands::Lease;
use serde::Serialize;

use super::finding::Finding;
use crate::cli::{DoctorEtcd, Format};
use crate::ensembles::{self, Eyes};
use crate::exit::{Exit, Outcome};
use crate::fleet::{self, ANSWER_WITHIN};
use crate::output::{self, Live, Style};
use crate::review::runtime;
use judge::Mends;

/// Tried in place of an ensemble's own Lease, which may not be there yet. RBAC cannot tell them apart either.
const TRIAL: &str = "durward-etcd.doctor";

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
pub(super) fn run(args: &DoctorEtcd) -> Outcome {
    runtime()?.block_on(async {
        let eyes = ensembles::open(&args.config, &args.world).await?;
        let told = look(&eyes).await;
        match args.output {
            Format::Json => output::json(&told)?,
            Format::Text => output::data(&text(&told, Style::of_stdout()))?,
        }
        Ok(if told.findings.is_empty() { Exit::Done } else { Exit::No })
    })
}

async fn look(eyes: &Eyes) -> Told {
    let line = Live::on_terminal();
    let progress = |done: usize, of: usize| line.show(&format!("{done} of {of} namespaces were looked into"));
    let surveyed = eyes.survey.look(eyes.world.as_ref(), &progress).await;
    drop(line);
    let mends = Mends { kubectl: fleet::kubectl(&eyes.access), config: eyes.config.clone() };
    let mut findings = judge::all(&surveyed, &mends);
    findings.extend(unwritable(eyes, &surveyed, &mends).await);
    Told { ensembles: surveyed.ensembles, findings }
}

/// Whether it can be noted who leaves: tried, and nothing stored. A recording cannot be tried.
async fn unwritable(eyes: &Eyes, surveyed: &Surveyed, mends: &Mends) -> Option<Found> {
    let (hands, namespace) = (eyes.hands.as_ref()?, eyes.survey.install_namespace()?);
    // Told already.
    if surveyed.ensembles.iter().any(|one| one.lease_unread.is_some()) {
        return None;
    }
    let lease = Lease { namespace: namespace.to_owned(), name: TRIAL.to_owned() };
    let why = hands.may_write(&lease, Instant::now() + ANSWER_WITHIN).await.err()?;
    Some(judge::unnoted(None, &why.text, mends))
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
    for one in &told.ensembles {
        out.push('\n');
        out.push_str(&ensemble(one, style));
    }
    for finding in &told.findings {
        out.push('\n');
        out.push_str(&finding.text(style));
    }
    if told.findings.is_empty() {
        out.push_str(&style.green("\nnothing to mend\n"));
    }
    out
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
