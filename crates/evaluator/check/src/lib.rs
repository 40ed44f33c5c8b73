//! Command `check`: evaluates admission policies, schemas of CRDs and the structure of built-in kinds on manifests, without a
//! cluster.
//!
//! A run reads all files, loads policies and facts, pairs each object with its old one, judges each pair, compares the cases, and
//! writes the [`report::CheckReport`].
//! Problems of files do not stop a run, so that users see all of them at once. If a policy is refused, no object is judged,
//! because the verdict would be incomplete.

mod args;
mod basis;
mod built_in;
mod cases;
mod changes;
mod custom;
mod decoded;
mod format;
mod grants;
mod judge;
mod openapi;
mod report;
mod storage;
mod stored;

pub use args::{Args, KubeVersion};

use std::collections::BTreeSet;

use config::Problem;
use console::exit::{Exit, Outcome, Stop};
use console::{input, output};

use manifests::LoadProblem;
use manifests::facts;
use manifests::files::{self, Use};
use manifests::load::{self, LoadOptions, Loaded};
use manifests::objects::{self, Manifest};
use manifests::parallel;

use args::{FailOn, OutputTarget};
use basis::Basis;
use changes::ObjectChange;
use grants::Grants;
use judge::Worker;
use report::{CheckReport, CheckedCase, CheckedDocument, Severity, Totals};

/// `check`
pub fn run(args: &Args) -> Outcome {
    format::validate(&args.output)?;
    let report = check(args)?;
    let default = [OutputTarget::default()];
    let targets = if args.output.is_empty() { &default[..] } else { &args.output[..] };
    for target in targets {
        format::write(&report, args, target)?;
    }
    report.notes.iter().for_each(|note| output::note(format!("note: {}", output::foreign(note))));
    let exit = report.exit_code;
    if report.problems.is_empty() {
        Ok(exit)
    } else {
        Err(Stop { exit, problems: problems(report.problems) })
    }
}

/// Reads, loads and judges everything.
fn check(args: &Args) -> Result<CheckReport, Stop> {
    args.grants.as_deref().map_or(Ok(()), input::check_links)?;
    let grants = args.grants.as_deref().map(Grants::load).transpose()?;
    let grants = grants.map(|grants| grants.for_user(args.user.as_deref()));
    let paths = [(&args.paths[..], Use::Check), (&args.with, Use::Fact), (&args.old, Use::Old)];
    let (files, unread) = files::find(&paths, &args.ignore);
    let (objects, unusable) = objects::read(&files);
    let mut problems: BTreeSet<LoadProblem> = unread.into_iter().map(LoadProblem::unplaced).collect();
    problems.extend(unusable);
    // One of many files can be empty, but if all are, the command that should write them probably failed.
    if problems.is_empty() && !objects.iter().any(|object| object.used == Use::Check) {
        let problem = Problem::new("PATH contains no document");
        problems
            .insert(LoadProblem::unplaced(problem.next("check the command that should write the manifests")));
    }
    let options = LoadOptions {
        minor: args.kube_version.0,
        namespace: args.namespace.clone(),
        unbound: args.unbound,
        field_validation: args.field_validation,
    };
    let built_in = openapi::kinds(&args.openapi, args.kube_version.0)?;
    let loaded = load::load(&objects, built_in, &options);
    problems.extend(loaded.problems.iter().cloned());
    let mut unpaired = Vec::new();
    let (old_kinds, kinds) = (&loaded.old_kinds, &loaded.kinds);
    let minor = args.kube_version.0;
    let changes = changes::pair(&objects, old_kinds, kinds, minor, &args.namespace, &mut unpaired);
    problems.extend(unpaired);
    let basis = loaded.set.as_ref().map(|set| Basis {
        set,
        kinds: &loaded.kinds,
        store: &loaded.store,
        grants: grants.as_ref(),
        user: args.user.as_deref(),
        groups: &[],
        namespace: &args.namespace,
        minor: args.kube_version.0,
        field_validation: args.field_validation,
        validates: true,
    });
    let documents = basis.map_or_else(Vec::new, |basis| judge(&basis, &changes));
    let cases = judge_cases(basis.as_ref(), &objects, &mut problems);
    let mut notes = loaded.notes.clone();
    notes.extend(changes::ignored_namespaces(&changes));
    notes.extend(remarks(&loaded, &documents, &cases, !problems.is_empty()));
    notes.extend(basis.and_then(|basis| built_in::note(&basis, &documents)));
    let totals = totals(&loaded, &documents, &cases, problems.len());
    if args.require_match && totals.matched == 0 && problems.is_empty() {
        notes.push("--require-match sets exit code 2".to_owned());
    }
    let mut report = CheckReport {
        kube_version: args.kube_version.to_string(),
        namespace: args.namespace.clone(),
        notes,
        totals,
        problems: problems.into_iter().collect(),
        documents,
        cases,
        exit_code: Exit::Done,
    };
    report.exit_code = exit_code(args, &report, loaded.set.is_some());
    Ok(report)
}

/// Judges all requests.
fn judge(basis: &Basis<'_>, changes: &[ObjectChange<'_>]) -> Vec<CheckedDocument> {
    let judged =
        parallel::map(changes, "checking", Worker::default, |worker, change| basis.judge(worker, change));
    let mut documents: Vec<CheckedDocument> = judged.into_iter().flatten().collect();
    documents.sort_by(|left, right| left.position.cmp(&right.position));
    documents
}

/// Judges the cases of all documents that have some. Without a basis, it only reads them.
fn judge_cases(
    basis: Option<&Basis<'_>>,
    objects: &[Manifest],
    problems: &mut BTreeSet<LoadProblem>,
) -> Vec<CheckedCase> {
    let mut checked = Vec::new();
    for document in objects.iter().filter(|object| object.used == Use::Check && object.has_cases()) {
        match (cases::read(document), basis) {
            (Err(found), _) => problems.extend(found),
            (Ok(_), None) => {}
            (Ok(cases), Some(basis)) => checked.extend(cases::run(&cases, basis)),
        }
    }
    checked.sort();
    checked
}

/// Returns the notes about the whole run.
fn remarks(
    loaded: &Loaded,
    documents: &[CheckedDocument],
    cases: &[CheckedCase],
    has_problems: bool,
) -> Vec<String> {
    let mut notes = Vec::new();
    if documents.iter().any(|document| document.lacks_server_fields) {
        notes.push(
            "a policy reads fields that the API server sets: in a create, generation and managedFields are absent, and uid and \
                 creationTimestamp are absent unless the file has them. In an update or a deletion, they come from the files"
                .to_owned(),
        );
    }
    if loaded.set.is_some()
        && (cases.is_empty() || !documents.is_empty())
        && !documents.iter().any(is_matched)
    {
        let is_checked = documents.iter().any(|document| document.schema_checked || document.structure_only);
        match (loaded.policies, is_checked) {
            (0, true) => {}
            // A problem says why the document can't be checked.
            (0, false) if has_problems => {}
            (0, false) => notes.push("nothing was judged: there is no policy".to_owned()),
            (_, true) => notes.push("no policy was evaluated: no policy matches any document".to_owned()),
            (_, false) => notes.push("nothing was judged: no policy matches any document".to_owned()),
        }
    }
    let unchecked = |document| [unchecked_version(loaded, document), unchecked_definition(document)];
    notes.extend(documents.iter().flat_map(unchecked).flatten().collect::<BTreeSet<_>>());
    notes
}

/// Returns the note about what is not checked of a CRD.
fn unchecked_definition(document: &CheckedDocument) -> Option<String> {
    let is_checked = document.kind == "CustomResourceDefinition" && document.schema_checked;
    is_checked.then(|| {
        "not checked of CRDs: whether the cluster has other CRDs with their names, whether their conversion webhooks answer, and the objects that are stored"
            .to_owned()
    })
}

/// Returns the note about other versions of an object than that of the manifest.
fn unchecked_version(loaded: &Loaded, document: &CheckedDocument) -> Option<String> {
    let (group, version) = facts::group_version(&document.api_version);
    let (crd, version) =
        loaded.kinds.crd(group, version, &document.kind).filter(|_| document.schema_checked)?;
    let stored = crd.versions.iter().find(|version| version.storage)?;
    if stored.name == version.name {
        return None;
    }
    let how = if crd.is_converted_by_webhook { " by a webhook" } else { "" };
    Some(format!(
        "{} is checked as {} only: its conversion{how} to {}, which is stored, is not checked",
        document.kind, version.name, stored.name
    ))
}

fn totals(loaded: &Loaded, documents: &[CheckedDocument], cases: &[CheckedCase], problems: usize) -> Totals {
    let with = |verdicts: &[Severity]| {
        let has = |document: &&CheckedDocument| {
            document.findings.iter().any(|finding| verdicts.contains(&finding.verdict))
        };
        documents.iter().filter(has).count()
    };
    let findings = |verdict: Severity| {
        documents
            .iter()
            .flat_map(|document| &document.findings)
            .filter(|finding| finding.verdict == verdict)
            .count()
    };
    Totals {
        policies: loaded.policies,
        bindings: loaded.bindings,
        documents: documents.len(),
        matched: documents.iter().filter(|document| is_matched(document)).count(),
        denied: with(&[Severity::Deny, Severity::Error]),
        unknown: with(&[Severity::Unknown]),
        warnings: findings(Severity::Warn),
        audits: findings(Severity::Audit),
        problems,
        cases: cases.len(),
        failed_cases: cases.iter().filter(|case| !case.passed).count(),
    }
}

/// Returns whether a policy judged the document, or would with more facts.
fn is_matched(document: &CheckedDocument) -> bool {
    !document.policies.is_empty() || document.findings.iter().any(|finding| !finding.policy.is_empty())
}

/// Returns the exit code: bad input outranks violations, and violations outrank missing facts.
fn exit_code(args: &Args, report: &CheckReport, is_loaded: bool) -> Exit {
    let totals = &report.totals;
    let fails = match args.fail_on {
        FailOn::Deny => totals.denied > 0,
        FailOn::Warn => totals.denied + totals.warnings > 0,
        FailOn::Audit => totals.denied + totals.warnings + totals.audits > 0,
    };
    if !is_loaded || totals.problems > 0 || (args.require_match && totals.matched == 0) {
        Exit::Bad
    } else if fails || totals.failed_cases > 0 {
        Exit::No
    } else if totals.unknown > 0 && !args.allow_unknown {
        Exit::Unknown
    } else {
        Exit::Done
    }
}

/// Returns problems as all commands print them.
fn problems(problems: Vec<LoadProblem>) -> Vec<Problem> {
    problems.into_iter().map(LoadProblem::into_problem).collect()
}
