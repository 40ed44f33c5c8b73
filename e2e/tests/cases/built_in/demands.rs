//! The demands of an API server on fields, from its answers to changed objects.

use std::collections::{BTreeMap, BTreeSet};

use e2e::api::Answer;
use e2e::binaries::Binary;
use e2e::prelude::*;

use super::causes;
use super::mutants::{Change, Mutant};
use super::openapi::Schemas;
use super::types;

/// The text of an error about an absent field, if the API server has no text that is the same in all objects.
pub(super) const ABSENT: &str = "Required value";

/// The head of `demands.tsv`.
const HEAD: &str = "\
# Fields of Kubernetes VERSION without which an API server refuses an object, and enums whose other values it refuses. A line has a
# type, a field, and one of: `required` and the text of the error; `enum`, the values and the text, in which % is the value;
# `untried` for a field below which nothing was tried. `DURWARD_BLESS=1 make e2e TEST=built_in::` writes this file.
";

/// A mutant and the answer to it.
type Try<'t> = (&'t Mutant, &'t Answer);

/// Returns the lines of `demands.tsv`. A demand is one that each object confirms: it was refused because of the field. `entered` are
/// the fields with structs in the objects.
pub(super) fn demanded(
    mutants: &[Mutant],
    entered: &BTreeSet<(String, String)>,
    answers: &[Answer],
    documents: &BTreeMap<String, Schemas>,
) -> Result<String> {
    let mut tried: BTreeMap<(&(String, String), bool), Vec<Try<'_>>> = BTreeMap::new();
    for (mutant, answer) in mutants.iter().zip(answers) {
        if matches!(mutant.change, Change::Required | Change::Enum) {
            tried.entry((&mutant.field, mutant.change == Change::Enum)).or_default().push((mutant, answer));
        }
    }
    let (mut lines, mut types) = (BTreeSet::new(), BTreeSet::new());
    for (((of, field), is_enum), tries) in tried {
        if !tries.iter().all(is_refused) {
            continue;
        }
        types.insert(of.as_str());
        let text = common(&tries);
        lines.insert(if is_enum {
            let values = documents.values().find_map(|schemas| schemas.values_of(of, field));
            let values = values.with_context(|| format!("no enum of {of} {field}"))?.join(",");
            format!("{of}\t{field}\tenum\t{values}\t{}", text.unwrap_or_default())
        } else {
            format!("{of}\t{field}\trequired\t{}", text.unwrap_or_else(|| ABSENT.to_owned()))
        });
    }
    lines.extend(untried(&types, entered));
    let version = Binary::ApiServer.version()?;
    let head = HEAD.replace("VERSION", version.trim_start_matches('v'));
    Ok(head + &lines.into_iter().collect::<Vec<_>>().join("\n") + "\n")
}

/// Returns whether the API server refused an object because of the field, of a field in it, or of the object that contains it.
fn is_refused((mutant, answer): &Try<'_>) -> bool {
    let path = without_indexes(&mutant.path);
    let parent = path.rsplit_once('.').map_or("", |(parent, _)| parent);
    let is_about = |field: &str| {
        let field = without_indexes(field);
        field == path || field.starts_with(&format!("{path}.")) || (field == parent && !field.is_empty())
    };
    answer.status == 422 && causes(answer).iter().any(|(field, _)| is_about(field))
}

/// Returns the first text about the field itself that all answers have. % stands for the value.
fn common(tries: &[Try<'_>]) -> Option<String> {
    let texts = |(mutant, answer): &Try<'_>| -> Vec<String> {
        let own = causes(answer).into_iter().filter(|(field, _)| *field == mutant.path);
        let value = format!("{:?}", mutant.value);
        let is_enum = mutant.change == Change::Enum;
        own.map(|(_, text)| if is_enum { text.replace(&value, "%") } else { text }).collect()
    };
    let all: Vec<Vec<String>> = tries.iter().map(texts).collect();
    let is_common = |text: &&String| all.iter().all(|texts| texts.contains(text));
    all.first()?.iter().find(is_common).cloned()
}

/// Returns the lines of fields that lead to types with demands and were not in an object.
fn untried(demanding: &BTreeSet<&str>, entered: &BTreeSet<(String, String)>) -> Vec<String> {
    let all = types::recorded();
    let of = |of: &str| of.trim_start_matches(['[', ']', '{', '}']).to_owned();
    let mut leading: BTreeSet<String> = demanding.iter().map(|of| (*of).to_owned()).collect();
    loop {
        let leads = |fields: &BTreeMap<&str, String>| {
            fields.iter().any(|(name, is)| *name != "metadata" && leading.contains(&of(is)))
        };
        let more: Vec<String> = all
            .iter()
            .filter(|(name, fields)| !leading.contains(**name) && leads(fields))
            .map(|(name, _)| (*name).to_owned())
            .collect();
        if more.is_empty() {
            break;
        }
        leading.extend(more);
    }
    let mut lines = Vec::new();
    for (name, fields) in &all {
        for (field, is) in fields.iter().filter(|(field, _)| !["metadata", "status"].contains(field)) {
            let is_entered = entered.contains(&((*name).to_owned(), (*field).to_owned()));
            if leading.contains(&of(is)) && !is_entered {
                lines.push(format!("{name}\t{field}\tuntried\t"));
            }
        }
    }
    lines
}

fn without_indexes(path: &str) -> String {
    let mut plain = String::new();
    for part in path.split('[') {
        plain += if plain.is_empty() { part } else { part.split_once(']').map_or("", |(_, rest)| rest) };
    }
    plain
}
