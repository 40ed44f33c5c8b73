//! The API server's answer to a custom resource before it evaluates policies: errors of metadata, schema and rules.

use std::time::Instant;

use policy::crd::object::{Change, Judgement, validate};
use policy::crd::{Crd, Version};
use policy::facts::{Limit, Lookup};
use policy::field::{ErrorKind, FieldError, Path};
use policy::request::Request;
use policy::value::{Arena, Value};

use crate::context::{Context, MAX_TIME, Places, describe, refusal, shown};
use crate::report::{Finding, Verdict};
use crate::subjects::Subject;

const ASK_SERVER: &str =
    "let an API server decide: kubectl apply --dry-run=server; or accept this: --allow-unknown";
const PRUNED: &str = "required but not declared: the API server prunes it. Declare it in the schema of the CRD, or set x-kubernetes-preserve-unknown-fields: true there";

/// Findings about a request.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// Denials and warnings.
    pub(crate) findings: Vec<Finding>,
    /// Findings that leave the verdict open, unless something else denies the request.
    pub(crate) undecided: Vec<Finding>,
}

/// Returns the answer to a create or an update whose object could be decoded. `pruned` are the fields that its kind does not have.
pub(crate) fn answer(
    context: &Context<'_>,
    subject: &Subject<'_>,
    request: &Request<'_>,
    (crd, version): (&Crd, &Version),
    pruned: &[Path],
    places: &Places<'_>,
    arena: &Arena,
) -> Answer {
    if arena.is_full() {
        return missing(places, &Lookup::Limit(Limit::Memory));
    }
    if request.old_object_is_unknown {
        return missing(places, &Lookup::OldObject);
    }
    let change = Change {
        new: request.object,
        old: subject.old.map(|_| request.old_object),
        namespaced: crd.namespaced,
        server: context.minor,
    };
    let end = Instant::now() + MAX_TIME;
    let Judgement { errors, undecided: unknown, warnings, unchanged } =
        validate(version, &change, arena, &|| Instant::now() < end);
    if arena.is_full() {
        return missing(places, &Lookup::Limit(Limit::Memory));
    }
    let pruned: Vec<String> = pruned.iter().map(ToString::to_string).collect();
    let denial = |error: &FieldError| {
        let is_pruned = error.kind == ErrorKind::Required && pruned.contains(&error.path.to_string());
        let next = if is_pruned { PRUNED } else { "" };
        Finding { next: next.to_owned(), ..invalid(places, error) }
    };
    let mut findings = shown(&errors, denial);
    findings.extend(warnings.into_iter().map(|message| Finding {
        verdict: Verdict::Warn,
        message,
        reason: String::new(),
        code: None,
        ..refusal(places, &FieldError::forbidden(&Path::new("metadata").child("finalizers"), ""))
    }));
    findings.extend(shown(&unchanged, |error| Finding {
        verdict: Verdict::Warn,
        reason: String::new(),
        code: None,
        ..invalid(places, error)
    }));
    let text = |error: &FieldError| {
        if error.path.is_empty() { error.body.clone() } else { error.to_string() }
    };
    let undecided = shown(&unknown, |error| open(places, &error.path, text(error)));
    Answer { findings, undecided }
}

/// Returns an old object in the version of the new one: its fields are those of that version.
pub(crate) fn converted<'a>(
    custom: Option<(&'a Crd, &'a Version)>,
    old: Value<'a>,
    arena: &'a Arena,
) -> Value<'a> {
    let Some((crd, version)) = custom else { return old };
    let decoded = policy::crd::object::decode(version, (&crd.group, &crd.kind), old, true, arena);
    decoded.map_or(old, |decoded| decoded.object)
}

fn missing(places: &Places<'_>, lookup: &Lookup) -> Answer {
    let (message, next) = describe(lookup);
    let finding = Finding { next, ..open(places, &Path::default(), message) };
    Answer { undecided: vec![finding], ..Answer::default() }
}

/// Returns a denial by the schema.
pub(crate) fn invalid(places: &Places<'_>, error: &FieldError) -> Finding {
    Finding {
        verdict: Verdict::Deny,
        message: error.to_string(),
        reason: "Invalid".to_owned(),
        code: Some(422),
        ..refusal(places, error)
    }
}

/// Returns a finding that leaves the verdict open.
pub(crate) fn open(places: &Places<'_>, path: &Path, message: String) -> Finding {
    Finding {
        verdict: Verdict::Unknown,
        message,
        reason: String::new(),
        code: None,
        next: ASK_SERVER.to_owned(),
        ..refusal(places, &FieldError::forbidden(path, ""))
    }
}
