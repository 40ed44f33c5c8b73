//! Authorization checks. Their answers are facts, so an unanswered check is unknown.

use super::Library;
use crate::cel::outcome::{EvalContext, EvalResult, NoValue, Query, Unknown, no_such_overload};
use crate::value::{Authorizer, GroupCheck, Opaque, PathCheck, ResourceCheck, Value};

/// Declares the functions of authorization.
pub(super) fn declare(library: &mut Library) {
    library.add("authorizer_path", "(Authorizer).path(string): PathCheck", |context, args| match args {
        [Value::Opaque(Opaque::Authorizer(authorizer)), Value::String(path)] => {
            if path.trim().is_empty() {
                return context.error("path must not be empty");
            }
            Ok(store(context, Opaque::PathCheck(PathCheck { authorizer: *authorizer, path })))
        }
        _ => Err(no_such_overload()),
    });
    library.add("authorizer_group", "(Authorizer).group(string): GroupCheck", |context, args| match args {
        [Value::Opaque(Opaque::Authorizer(authorizer)), Value::String(group)] => {
            Ok(store(context, Opaque::GroupCheck(GroupCheck { authorizer: *authorizer, group })))
        }
        _ => Err(no_such_overload()),
    });
    library.add_variadic(
        "authorizer_serviceaccount",
        "(Authorizer).serviceAccount(string, string): Authorizer",
        service_account,
    );
    library.add("groupcheck_resource", "(GroupCheck).resource(string): ResourceCheck", |context, args| {
        match args {
            [Value::Opaque(Opaque::GroupCheck(group)), Value::String(resource)] => {
                if resource.trim().is_empty() {
                    return context.error("resource must not be empty");
                }
                let check = ResourceCheck {
                    group: *group,
                    resource,
                    subresource: "",
                    namespace: "",
                    name: "",
                    field_selector: "",
                    label_selector: "",
                };
                Ok(store(context, Opaque::ResourceCheck(check)))
            }
            _ => Err(no_such_overload()),
        }
    });
    library.add(
        "resourcecheck_subresource",
        "(ResourceCheck).subresource(string): ResourceCheck",
        |context, args| narrow(context, args, |check, text| ResourceCheck { subresource: text, ..check }),
    );
    library.add(
        "resourcecheck_namespace",
        "(ResourceCheck).namespace(string): ResourceCheck",
        |context, args| narrow(context, args, |check, text| ResourceCheck { namespace: text, ..check }),
    );
    library.add("resourcecheck_name", "(ResourceCheck).name(string): ResourceCheck", |context, args| {
        narrow(context, args, |check, text| ResourceCheck { name: text, ..check })
    });
    library.add("pathcheck_check", "(PathCheck).check(string): Decision", check);
    library.add("resourcecheck_check", "(ResourceCheck).check(string): Decision", check);
    library.add("decision_errored", "(Decision).errored(): bool", |_, args| match args {
        [Value::Opaque(Opaque::Decision { error, .. })] => Ok(Value::Bool(error.is_some())),
        _ => Err(no_such_overload()),
    });
    library.add("decision_error", "(Decision).error(): string", |_, args| match args {
        [Value::Opaque(Opaque::Decision { error, .. })] => Ok(Value::String(error.unwrap_or(""))),
        _ => Err(no_such_overload()),
    });
    library.add("decision_allowed", "(Decision).allowed(): bool", |_, args| match args {
        [Value::Opaque(Opaque::Decision { allowed, .. })] => Ok(Value::Bool(*allowed)),
        _ => Err(no_such_overload()),
    });
    library.add("decision_reason", "(Decision).reason(): string", |_, args| match args {
        [Value::Opaque(Opaque::Decision { reason, .. })] => Ok(Value::String(reason)),
        _ => Err(no_such_overload()),
    });
}

/// Declares the selectors.
pub(super) fn declare_selectors(library: &mut Library) {
    library.add(
        "authorizer_fieldselector",
        "(ResourceCheck).fieldSelector(string): ResourceCheck",
        |context, args| narrow(context, args, |check, text| ResourceCheck { field_selector: text, ..check }),
    );
    library.add(
        "authorizer_labelselector",
        "(ResourceCheck).labelSelector(string): ResourceCheck",
        |context, args| narrow(context, args, |check, text| ResourceCheck { label_selector: text, ..check }),
    );
}

fn store<'a>(context: &EvalContext<'a>, opaque: Opaque<'a>) -> Value<'a> {
    Value::Opaque(context.arena.store(opaque))
}

fn service_account<'a>(context: &EvalContext<'a>, args: &[Value<'a>]) -> EvalResult<'a> {
    let [Value::Opaque(Opaque::Authorizer(_)), Value::String(namespace), Value::String(name)] = args else {
        return Err(no_such_overload());
    };
    let problems = super::formats::subdomain(name);
    if !problems.is_empty() {
        return context.error("Invalid service account name");
    }
    let problems = super::formats::label(namespace);
    if !problems.is_empty() {
        return context.error("Invalid service account namespace");
    }
    Ok(store(context, Opaque::Authorizer(Authorizer { service_account: Some((namespace, name)) })))
}

fn narrow<'a>(
    context: &EvalContext<'a>,
    args: &[Value<'a>],
    with: fn(ResourceCheck<'a>, &'a str) -> ResourceCheck<'a>,
) -> EvalResult<'a> {
    match args {
        [Value::Opaque(Opaque::ResourceCheck(check)), Value::String(text)] => {
            Ok(store(context, Opaque::ResourceCheck(with(*check, text))))
        }
        _ => Err(no_such_overload()),
    }
}

fn check<'a>(context: &EvalContext<'a>, args: &[Value<'a>]) -> EvalResult<'a> {
    let query = match args {
        [Value::Opaque(Opaque::ResourceCheck(check)), Value::String(verb)] => Query::Resource(*check, verb),
        [Value::Opaque(Opaque::PathCheck(check)), Value::String(verb)] => Query::Path(*check, verb),
        _ => return Err(no_such_overload()),
    };
    match context.answers.decision(&query) {
        Some(decision) => {
            let opaque = Opaque::Decision {
                allowed: decision.allowed,
                reason: context.arena.text(&decision.reason),
                error: decision.error.as_deref().map(|error| context.arena.text(error)),
            };
            Ok(store(context, opaque))
        }
        None => Err(NoValue::Unknown(context.arena.store(Unknown { query, next: None }))),
    }
}
