//! The resource version of a manifest, which the API server compares when it writes an object to its storage.
//!
//! A create with a version fails after all policies: `Create` of `pkg/storage/etcd3/store.go` of `k8s.io/apiserver`. A dry run does not
//! write, so it accepts the object. An update with another version than that of the stored object fails before the object is validated:
//! `Update` of `pkg/registry/generic/registry/store.go`. A manifest without a version updates the object whatever its version is, as
//! `kubectl apply` does.

use policy::field::{FieldError, Path};
use policy::value::Value;

use manifests::objects::Object;

use crate::context::refusal;
use crate::custom::open;
use crate::report::{Finding, Verdict};
use crate::subjects::Subject;

/// The step of the request in which the API server compares the version.
pub(crate) enum Step {
    /// Before the object is validated.
    Update,
    /// After all policies.
    Create,
}

/// Returns the finding about the resource version of a new object.
pub(crate) fn check(
    subject: &Subject<'_>,
    [new, old]: [Value<'_>; 2],
    object: &Object,
) -> Option<(Step, Finding)> {
    let path = Path::new("metadata").child("resourceVersion");
    let version = |object: Value<'_>| {
        let version = object.field("metadata").and_then(|metadata| metadata.field("resourceVersion"));
        version.and_then(|version| version.as_str().map(str::to_owned)).unwrap_or_default()
    };
    let (own, stored) = (version(new), version(old));
    if subject.new.is_none() || own.is_empty() || own == stored {
        return None;
    }
    let denial = |message: String, code, reason: &str, next: &str| Finding {
        verdict: Verdict::Deny,
        message,
        reason: reason.to_owned(),
        code: Some(code),
        next: next.to_owned(),
        ..refusal(object, &FieldError::forbidden(&path, ""))
    };
    let number = own.parse::<u64>();
    match (subject.old, &number) {
        // The API server ignores a version that is not a number, and sets one.
        (None, Ok(0) | Err(_)) => None,
        (None, Ok(_)) => {
            let message = "resourceVersion should not be set on objects to be created".to_owned();
            Some((Step::Create, denial(message, 500, "", "remove metadata.resourceVersion")))
        }
        (Some(_), Ok(1..)) if !stored.is_empty() => {
            let resource = match object.group() {
                "" => subject.resource.clone(),
                group => format!("{}.{group}", subject.resource),
            };
            let message = format!(
                "Operation cannot be fulfilled on {resource} \"{}\": the object has been modified; please apply your changes to the latest version and try again",
                object.name
            );
            let next = "remove metadata.resourceVersion, or read the object again";
            Some((Step::Update, denial(message, 409, "Conflict", next)))
        }
        (Some(_), _) => {
            let message = "the API server compares metadata.resourceVersion with that of the stored object";
            Some((Step::Update, open(object, &path, message.to_owned())))
        }
    }
}
