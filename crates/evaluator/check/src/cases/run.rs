//! Judges cases and compares the verdicts.

use manifests::objects::Manifest;
use policy::kinds::KindResource;

use super::case::PolicyCase;
use crate::basis::Basis;
use crate::changes::{ObjectChange, resolve};
use crate::judge::Worker;
use crate::report::CheckedCase;

/// Judges cases.
pub(crate) fn run(cases: &[PolicyCase], basis: &Basis<'_>) -> Vec<CheckedCase> {
    cases.iter().map(|case| checked(case, basis)).collect()
}

fn checked(case: &PolicyCase, basis: &Basis<'_>) -> CheckedCase {
    let difference = judged(case, basis).unwrap_or_else(Some);
    let passed = difference.is_none();
    let position = if passed { &case.position } else { &case.expect.position };
    let (actual, next) = difference.unwrap_or_default();
    CheckedCase {
        position: position.clone(),
        name: case.name.clone(),
        passed,
        expected: if passed { String::new() } else { case.expect.describe() },
        actual,
        next,
    }
}

/// Judges a case. Returns the actual verdict if it is not the expected one, or why the case can't be judged, and the next step.
fn judged(case: &PolicyCase, basis: &Basis<'_>) -> Result<Option<(String, String)>, (String, String)> {
    let change = change(case, basis)?;
    let namespace = if change.namespace.is_empty() { basis.namespace } else { &change.namespace };
    let user = case.user.as_ref().map(|(name, _)| name.as_str()).or(basis.user);
    let mut store = basis.store.clone();
    if let Some(labels) = &case.namespace_labels {
        store.set_labels(namespace, labels);
    }
    if let Some(params) = &case.params {
        store.set_params(params, basis.kinds, namespace, basis.field_validation).map_err(|problem| {
            (format!("params: {} {:?}: {}", problem.kind, problem.name, problem.message), problem.next)
        })?;
    }
    let grants = case.grants.as_ref().or(basis.grants).map(|grants| grants.clone().for_user(user));
    let groups = case.user.as_ref().map(|(_, groups)| groups.as_slice()).unwrap_or_default();
    let basis = Basis { user, groups, store: &store, grants: grants.as_ref(), validates: false, ..*basis };
    let document = basis.judge(&mut Worker::default(), &change);
    Ok(document.and_then(|document| case.expect.difference(&document)))
}

/// Returns the change that a case is about.
fn change<'c>(case: &'c PolicyCase, basis: &Basis<'_>) -> Result<ObjectChange<'c>, (String, String)> {
    let not_judged = |actual: String, next: &str| Err((actual, next.to_owned()));
    if let Some(policy) = &case.expect.policy
        && !basis.set.names().any(|name| name == policy)
    {
        let near = config::nearest(policy, basis.set.names());
        let next = near
            .map_or("add the policy to PATH or --with".to_owned(), |near| format!("did you mean {near}?"));
        return not_judged(format!("no policy is named {policy}"), &next);
    }
    let resolved = |object| resolve(object, basis.kinds, basis.minor, basis.namespace);
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
        let name = |object: &Manifest| {
            let own = if object.namespace.is_empty() { &namespace } else { &object.namespace };
            let start = if object.is_generated { "generated " } else { "" };
            format!("{} {own}/{start}{}", object.kind, object.name)
        };
        if old.group() != new.group() || name(old) != name(new) {
            let actual = format!("oldObject is {} and object is {}", name(old), name(new));
            return not_judged(actual, "an update keeps the kind, the name and the namespace");
        }
    }
    Ok(ObjectChange {
        new: case.new.as_ref(),
        old: case.old.as_ref(),
        resource: resource.plural.into_owned(),
        namespace,
        subresource: case.subresource.clone(),
    })
}

/// Whether a resource has a subresource with objects of its kind.
fn has_subresource(resource: &KindResource<'_>, subresource: &str) -> bool {
    match subresource {
        "" => true,
        "status" => resource.has_status,
        "ephemeralcontainers" | "resize" => resource.plural == "pods",
        "approval" => resource.plural == "certificatesigningrequests",
        "finalize" => resource.plural == "namespaces",
        _ => false,
    }
}
