//! The resource version of a manifest, which the API server compares when it writes an object to its storage.
//!
//! A create with a version fails after all policies: `Create` of `pkg/storage/etcd3/store.go` of `k8s.io/apiserver`. A dry run does not
//! write, so it accepts the object. An update with another version than that of the stored object fails before the object is validated:
//! `Update` of `pkg/registry/generic/registry/store.go`. A manifest without a version updates the object whatever its version is, as
//! `kubectl apply` does.

use policy::field::{FieldError, Path};
use policy::value::Value;

use crate::context::{Places, refusal};
use crate::custom::open;
use crate::report::{Finding, Verdict};
use crate::subjects::Subject;

/// The findings about a resource version.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// A denial before the object is validated.
    pub(crate) before: Vec<Finding>,
    /// A denial after all policies.
    pub(crate) after: Vec<Finding>,
    /// A finding that leaves the verdict open.
    pub(crate) undecided: Vec<Finding>,
}

/// Returns the findings about the resource version of a new object.
pub(crate) fn answer(subject: &Subject<'_>, [new, old]: [Value<'_>; 2], places: &Places<'_>) -> Answer {
    let path = Path::new("metadata").child("resourceVersion");
    let version = |object: Value<'_>| {
        let version = object.field("metadata").and_then(|metadata| metadata.field("resourceVersion"));
        version.and_then(|version| version.as_str().map(str::to_owned)).unwrap_or_default()
    };
    let (own, stored) = (version(new), version(old));
    let mut answer = Answer::default();
    if subject.new.is_none() || own.is_empty() || own == stored {
        return answer;
    }
    let denial = |message: String, code, reason: &str, next: &str| Finding {
        verdict: Verdict::Deny,
        message,
        reason: reason.to_owned(),
        code: Some(code),
        next: next.to_owned(),
        ..refusal(places, &FieldError::forbidden(&path, ""))
    };
    let number = own.parse::<u64>();
    match (subject.old, &number) {
        // The API server ignores a version that is not a number, and sets one.
        (None, Ok(0) | Err(_)) => {}
        (None, Ok(_)) => {
            let message = "resourceVersion should not be set on objects to be created".to_owned();
            answer.after.push(denial(message, 500, "", "remove metadata.resourceVersion"));
        }
        (Some(_), Ok(1..)) if !stored.is_empty() => {
            let resource = match places.object.group() {
                "" => subject.resource.clone(),
                group => format!("{}.{group}", subject.resource),
            };
            let message = format!(
                "Operation cannot be fulfilled on {resource} \"{}\": the object has been modified; please apply your changes to the latest version and try again",
                places.object.name
            );
            answer.before.push(denial(
                message,
                409,
                "Conflict",
                "remove metadata.resourceVersion, or read the object again",
            ));
        }
        (Some(_), _) => {
            let message = "the API server compares metadata.resourceVersion with that of the stored object";
            answer.undecided.push(open(places, &path, message.to_owned()));
        }
    }
    answer
}
