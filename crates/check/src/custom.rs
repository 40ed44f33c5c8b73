//! The API server's answer to a custom resource before it evaluates policies: errors of metadata and schema.

use policy::crd::object::{Change, Judgement, validate};
use policy::crd::{Crd, Unevaluated, Version};
use policy::facts::{Limit, Lookup};
use policy::field::{ErrorKind, FieldError, Path};
use policy::normalize::is_typed;
use policy::request::Request;
use policy::value::{Arena, Value, read_json};

use crate::judge::{Context, Places, describe, refusal, shown};
use crate::report::{Finding, Verdict};
use crate::subjects::Subject;

/// A CRD and one of its versions.
pub(crate) type Custom<'k> = Option<(&'k Crd, &'k Version)>;

/// Rules that a finding names. Others are counted.
const SHOWN_RULES: usize = 3;

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

/// Returns the answer to a request whose object could be decoded. `pruned` are the fields that its kind does not have.
pub(crate) fn answer(
    context: &Context<'_>,
    subject: &Subject<'_>,
    request: &Request<'_>,
    custom: Custom<'_>,
    pruned: &[Path],
    places: &Places<'_>,
    arena: &Arena,
) -> Answer {
    if subject.new.is_none() {
        return Answer::default();
    }
    let Some((crd, version)) = custom else { return unknown_type(places) };
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
    let Judgement { errors, undecided: unknown, warnings, rules } = validate(version, &change);
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
    let text = |error: &FieldError| {
        if error.path.is_empty() { error.body.clone() } else { error.to_string() }
    };
    let mut undecided: Vec<Finding> = shown(&unknown, |error| open(places, &error.path, text(error)));
    undecided.extend(unevaluated(places, &rules));
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

/// Returns the findings for an object that has no CRD in the input.
fn unknown_type(places: &Places<'_>) -> Answer {
    let object = places.object;
    if object.is("apiextensions.k8s.io", "CustomResourceDefinition") {
        return definition(places);
    }
    if is_typed((object.group(), object.version(), &object.kind)) {
        return Answer::default();
    }
    let message =
        format!("the schema of {} is not evaluated, so the API server could refuse the object", object.kind);
    Answer { undecided: vec![open(places, &Path::default(), message)], ..Answer::default() }
}

/// Returns the findings for a CRD. Its schemas must be structural, and nothing else is checked.
fn definition(places: &Places<'_>) -> Answer {
    let arena = Arena::new();
    let crd = read_json(&places.object.json, &arena).ok().and_then(|value| Crd::read(value).ok());
    let errors = crd.map(|crd| crd.schema_errors()).unwrap_or_default();
    let finding = |(place, error): &(Path, FieldError)| Finding {
        field: place.to_string(),
        position: places.place_of(place),
        ..invalid(places, error)
    };
    let message =
        "only the structure of the schemas in the CRD is checked, so the API server could refuse the CRD";
    Answer {
        findings: shown(&errors, finding),
        undecided: vec![open(places, &Path::default(), message.to_owned())],
    }
}

/// Returns the finding for rules that are not evaluated.
fn unevaluated(places: &Places<'_>, rules: &[Unevaluated]) -> Option<Finding> {
    let first = rules.first()?;
    let shown: Vec<String> = rules
        .iter()
        .take(SHOWN_RULES)
        .map(|rule| match rule.path.to_string() {
            path if path.is_empty() => rule.rule.clone(),
            path => format!("{path}: {}", rule.rule),
        })
        .collect();
    let more = match rules.len().saturating_sub(SHOWN_RULES) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let message = format!(
        "rules of the schema (x-kubernetes-validations) are not evaluated: {}{more}",
        shown.join("; ")
    );
    Some(open(places, &first.path, message))
}

fn missing(places: &Places<'_>, lookup: &Lookup) -> Answer {
    let (message, next) = describe(lookup);
    let finding = Finding { next, ..open(places, &Path::default(), message) };
    Answer { undecided: vec![finding], ..Answer::default() }
}

/// Returns a denial by the schema.
fn invalid(places: &Places<'_>, error: &FieldError) -> Finding {
    Finding {
        verdict: Verdict::Deny,
        message: error.to_string(),
        reason: "Invalid".to_owned(),
        code: Some(422),
        ..refusal(places, error)
    }
}

/// Returns a finding that leaves the verdict open.
fn open(places: &Places<'_>, path: &Path, message: String) -> Finding {
    Finding {
        verdict: Verdict::Unknown,
        message,
        reason: String::new(),
        code: None,
        next: ASK_SERVER.to_owned(),
        ..refusal(places, &FieldError::forbidden(path, ""))
    }
}
