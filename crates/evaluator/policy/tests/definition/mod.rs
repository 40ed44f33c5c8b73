//! Answers to CRDs in the form of the Go program of `parity`, for several tests.

use policy::crd::admit;
use policy::field::FieldError;
use policy::normalize::{Types, normalize, normalize_as, with_empty};
use policy::value::{Arena, read_json};
use serde_json::Value as Json;

use crate::words::comparable;

/// The answer to a CRD.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) errors: Vec<String>,
    pub(crate) undecided: Vec<String>,
    pub(crate) warnings: Vec<String>,
}

/// The answer to a CRD that is created, or updated if there is an old one, or the reason why it can't be decoded.
pub(crate) fn admit(crd: &Json, old: Option<&Json>, server: u8) -> Result<Admitted, Vec<String>> {
    let arena = Arena::new();
    let kind = ("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let read = |crd: &Json| read_json(arena.text(&crd.to_string()), &arena).expect("a CRD");
    let new = normalize(kind, read(crd), &arena).map_err(texts)?.object;
    let full = with_empty(kind, read(crd), &arena).map_err(texts)?.object;
    let stored = |old| normalize_as(Types::recorded(), kind, read(old), true, &arena);
    let old = old.map(stored).transpose().map_err(texts)?.map(|old| old.object);
    let found = admit::admit(new, full, old, server, &|| true);
    Ok(Admitted {
        errors: texts(found.errors),
        undecided: texts(found.undecided),
        warnings: shown(&found.warnings),
    })
}

fn texts(errors: impl IntoIterator<Item = FieldError>) -> Vec<String> {
    shown(&errors.into_iter().map(|error| error.to_string()).collect::<Vec<_>>())
}

/// Each text once, in order, without what differs between runs and what `admit` leaves out.
pub(crate) fn shown(texts: &[String]) -> Vec<String> {
    // A list of schemas is refused with another error as well.
    let texts = texts.iter().filter(|text| !text.contains("must only have a single schema if"));
    let mut texts: Vec<String> = texts.map(|text| without_dumps(&without_types(text))).collect();
    texts.sort();
    texts.dedup();
    texts
}

/// A text without the names of types of objects, which are random in the API server.
fn without_types(text: &str) -> String {
    let mut parts = text.split("selfType");
    let first = parts.next().unwrap_or_default().to_owned();
    let is_name = |symbol: char| symbol.is_alphanumeric() || matches!(symbol, '.' | '@' | '_');
    parts.fold(first, |text, part| text + "selfType" + part.trim_start_matches(is_name))
}

/// A text without a whole schema or list of versions in it.
fn without_dumps(text: &str) -> String {
    let text = &comparable(text);
    // The errors of decoders differ.
    if let Some((start, _)) = text.split_once("must result in valid metadata: metadata") {
        return format!("{start}must result in valid metadata: metadata");
    }
    if [": json: cannot unmarshal ", ": parsing time ", ": Invalid type: expected "]
        .iter()
        .any(|part| text.contains(part))
        && let Some((path, _)) = text.split_once(".metadata: Invalid value: ")
    {
        return format!("{path}.metadata: Invalid value: ...");
    }
    for (detail, dump) in [
        (": only [", "{...}"),
        (": must contain unique version names", "[...]"),
        (": must have exactly one version marked as storage version", "[...]"),
    ] {
        if let (Some((path, _)), Some((_, end))) =
            (text.split_once(": Invalid value: "), text.split_once(detail))
        {
            return format!("{path}: Invalid value: {dump}{detail}{end}");
        }
    }
    text.to_owned()
}
