//! The parameters of a binding.

use super::model::{ParamKind, ParamRef};
use crate::facts::{Facts, Lookup, ParamQuery};
use crate::request::AdmissionRequest;
use crate::value::{Arena, Value, read_json};

/// The parameters that a policy is evaluated with, one by one.
#[allow(clippy::large_enum_variant)] // there is one at a time
pub(crate) enum Params<'a> {
    /// No parameters; `params` is null.
    None,
    /// Each of these.
    Each(Vec<Value<'a>>),
    /// Facts are missing.
    Unknown(Lookup),
    /// The binding is misconfigured.
    Error(String),
}

/// Collects the parameters of a binding for a request.
pub(crate) fn collect<'a>(
    kind: Option<&ParamKind>,
    reference: Option<&ParamRef>,
    request: &AdmissionRequest<'_>,
    facts: &Facts,
    arena: &'a Arena,
) -> Params<'a> {
    let (Some(kind), Some(reference)) = (kind, reference) else { return Params::None };
    let namespaced = match facts.param_kinds.get(kind) {
        None | Some(None) => return Params::Unknown(Lookup::ParamKind(kind.clone())),
        Some(Some(namespaced)) => *namespaced,
    };
    let namespace = match (namespaced, reference.namespace.as_str()) {
        (true, "") if request.namespace.is_empty() => {
            let message =
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
            return Params::Error(message.to_owned());
        }
        (true, "") => request.namespace,
        (true, namespace) => namespace,
        (false, "") => "",
        (false, _) => {
            return Params::Error(
                "paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned(),
            );
        }
    };
    let name = (!reference.name.is_empty()).then(|| reference.name.clone());
    let query = ParamQuery { kind: kind.clone(), namespace: namespace.to_owned(), name };
    let texts = match facts.params.get(&query) {
        Some(texts) => texts.as_slice(),
        None if facts.params_are_complete => &[],
        None => return Params::Unknown(Lookup::Params(query)),
    };
    let mut found = Vec::new();
    for text in texts {
        let Ok(value) = read_json(arena.text(text), arena) else {
            return Params::Error("parameters are not valid JSON".to_owned());
        };
        let labels = value.field("metadata").and_then(|metadata| metadata.field("labels"));
        if reference.selector.as_ref().is_none_or(|selector| selector.matches(labels)) {
            found.push(value);
        }
    }
    if found.is_empty() && facts.params_are_partial && query.name.is_none() {
        return Params::Unknown(Lookup::Params(query));
    }
    if found.is_empty() && reference.parameter_not_found_action == "Deny" {
        let message = "no params found for policy binding with `Deny` parameterNotFoundAction";
        return Params::Error(message.to_owned());
    }
    Params::Each(found)
}
