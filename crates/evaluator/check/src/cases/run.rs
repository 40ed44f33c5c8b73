//! Judges cases and compares the verdicts.

use manifests::objects::Object;
use policy::kinds::Resource;

use super::case::Case;
use super::expect::Difference;
use crate::context::Context;
use crate::judge::Worker;
use crate::report::CheckedCase;
use crate::subjects::{Subject, resolve};

/// Judges cases.
pub(crate) fn run(cases: &[Case], context: &Context<'_>) -> Vec<CheckedCase> {
    cases.iter().map(|case| checked(case, context)).collect()
}

fn checked(case: &Case, context: &Context<'_>) -> CheckedCase {
    let result = |difference: Option<Difference>| {
        let passed = difference.is_none();
        let position = if passed { &case.position } else { &case.expect.position };
        let difference = difference.unwrap_or_default();
        CheckedCase {
            position: position.clone(),
            name: case.name.clone(),
            passed,
            expected: difference.expected,
            actual: difference.actual,
            next: difference.next,
        }
    };
    let subject = match subject(case, context) {
        Ok(subject) => subject,
        Err(difference) => return result(Some(difference)),
    };
    let namespace = if subject.namespace.is_empty() { context.namespace } else { &subject.namespace };
    let user = case.user.as_ref();
    let user_name = user.map(|user| user.name.as_str()).or(context.user);
    let mut store = context.store.clone();
    if let Some(labels) = &case.namespace_labels {
        store.set_labels(namespace, labels);
    }
    if let Some(params) = &case.params
        && let Err(problem) = store.set_params(params, context.kinds, namespace, context.field_validation)
    {
        let actual = format!("params: {} {:?}: {}", problem.kind, problem.name, problem.message);
        let expected = case.expect.describe();
        return result(Some(Difference { expected, actual, next: problem.next }));
    }
    let grants = case.grants.as_ref().or(context.grants).map(|grants| grants.clone().for_user(user_name));
    let groups = user.map(|user| user.groups.as_slice()).unwrap_or_default();
    let case_context = Context {
        user: user_name,
        groups,
        store: &store,
        grants: grants.as_ref(),
        validates: false,
        ..*context
    };
    let judged = case_context.judge(&mut Worker::default(), &subject);
    result(judged.and_then(|document| case.expect.difference(&document)))
}

/// Returns the request of a case.
fn subject<'c>(case: &'c Case, context: &Context<'_>) -> Result<Subject<'c>, Difference> {
    let not_judged = |actual: String, next: &str| {
        Err(Difference { expected: case.expect.describe(), actual, next: next.to_owned() })
    };
    if let Some(policy) = &case.expect.policy
        && !context.set.names().any(|name| name == policy)
    {
        let near = config::nearest(policy, context.set.names());
        let next = near
            .map_or("add the policy to PATH or --with".to_owned(), |near| format!("did you mean {near}?"));
        return not_judged(format!("no policy is named {policy}"), &next);
    }
    let resolved = |object| resolve(object, context.kinds, context.minor, context.namespace);
    let found =
        [&case.old, &case.new].into_iter().flatten().try_fold(None, |_, object| resolved(object).map(Some));
    let (resource, namespace) = match found {
        Ok(Some(found)) => found,
        Ok(None) => return not_judged("the case has no object".to_owned(), "write object or oldObject"),
        Err(problem) => return not_judged(problem.message, &problem.next),
    };
    if !has_subresource(&resource, &case.subresource) {
        let actual = format!("{} has no subresource {:?}", resource.plural, case.subresource);
        return not_judged(
            actual,
            "fix its name; subresources with objects of another kind are not supported",
        );
    }
    if let (Some(new), Some(old)) = (&case.new, &case.old) {
        let name = |object: &Object| {
            let own = if object.namespace.is_empty() { &namespace } else { &object.namespace };
            let start = if object.is_generated { "generated " } else { "" };
            format!("{} {own}/{start}{}", object.kind, object.name)
        };
        if old.group() != new.group() || name(old) != name(new) {
            let actual = format!("oldObject is {} and object is {}", name(old), name(new));
            return not_judged(actual, "an update keeps the kind, the name and the namespace");
        }
    }
    Ok(Subject {
        new: case.new.as_ref(),
        old: case.old.as_ref(),
        resource: resource.plural.into_owned(),
        namespace,
        subresource: case.subresource.clone(),
    })
}

/// Whether a resource has a subresource with objects of its kind.
fn has_subresource(resource: &Resource<'_>, subresource: &str) -> bool {
    match subresource {
        "" => true,
        "status" => resource.has_status,
        "ephemeralcontainers" | "resize" => resource.plural == "pods",
        "approval" => resource.plural == "certificatesigningrequests",
        "finalize" => resource.plural == "namespaces",
        _ => false,
    }
}
