//! The resource version of a manifest, which the API server compares when it writes an object to its storage.
//!
//! A create with a version fails after all policies: `Create` of `pkg/storage/etcd3/store.go` of `k8s.io/apiserver`. A dry run does not
//! write, so it accepts the object. An update with another version than that of the stored object fails before the object is validated:
//! `Update` of `pkg/registry/generic/registry/store.go`. A manifest without a version updates the object whatever its version is, as
//! `kubectl apply` does.

use policy::field::{FieldError, Path};
use policy::value::Value;

use manifests::objects::Manifest;

use crate::basis::refusal;
use crate::changes::ObjectChange;
use crate::custom::open;
use crate::report::{DocumentFinding, Severity};

/// Returns the finding about the resource version of a new object: one that comes before the object is validated, or one after all policies.
pub(crate) fn check(
    change: &ObjectChange<'_>,
    [new, old]: [Value<'_>; 2],
    object: &Manifest,
) -> [Option<DocumentFinding>; 2] {
    let path = Path::new("metadata").child("resourceVersion");
    let version = |object: Value<'_>| {
        let version = object.field("metadata").and_then(|metadata| metadata.field("resourceVersion"));
        version.and_then(|version| version.as_str().map(str::to_owned)).unwrap_or_default()
    };
    let (own, stored) = (version(new), version(old));
    if change.new.is_none() || own.is_empty() || own == stored {
        return [None, None];
    }
    let denial = |message: String, code, reason: &str, next: &str| DocumentFinding {
        verdict: Severity::Deny,
        message,
        reason: reason.to_owned(),
        code: Some(code),
        next: next.to_owned(),
        ..refusal(object, &FieldError::forbidden(&path, ""))
    };
    let number = own.parse::<u64>();
    match (change.old, &number) {
        // The API server ignores a version that is not a number, and sets one.
        (None, Ok(0) | Err(_)) => [None, None],
        (None, Ok(_)) => {
            let message = "resourceVersion should not be set on objects to be created".to_owned();
            [None, Some(denial(message, 500, "", "remove metadata.resourceVersion"))]
        }
        (Some(_), Ok(1..)) if !stored.is_empty() => {
            let resource = match object.group() {
                "" => change.resource.clone(),
                group => format!("{}.{group}", change.resource),
            };
            let message = format!(
                "Operation cannot be fulfilled on {resource} \"{}\": the object has been modified; please apply your changes to the latest version and try again",
                object.name
            );
            let next = "remove metadata.resourceVersion, or read the object again";
            [Some(denial(message, 409, "Conflict", next)), None]
        }
        (Some(_), _) => {
            let message = "the API server compares metadata.resourceVersion with that of the stored object";
            [Some(open(object, &path, message.to_owned())), None]
        }
    }
}
