//! `AdmissionReview` v1 and v1beta1, decoded in one pass over the body. Objects stay raw; of them only the wanted
//! [`Fields`] are looked at.
//!
//! A key of the envelope that stands twice is refused, because the question itself would be in doubt; one within an object puts
//! only that object in doubt ([`Object::doubled`]).
//!
//! The two versions have the same request. API server 1.35 still sends v1beta1 to webhooks whose `admissionReviewVersions`
//! ask for it; the answer must name the version of the question.

use std::borrow::Cow;

use crate::fields::{Fields, OWN_DRY_RUN, OWN_NAME, Object};
use crate::request::{GroupVersionKind, GroupVersionResource, Operation, Request, User};
use json::{JsonError, Raw, Scanner, Shape};
use json::{Key, SeenKeys};

/// Which version of the review was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiVersion {
    /// `admission.k8s.io/v1`
    V1,
    /// `admission.k8s.io/v1beta1`
    V1beta1,
}

impl ApiVersion {
    /// As it stands in `apiVersion`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "admission.k8s.io/v1",
            Self::V1beta1 => "admission.k8s.io/v1beta1",
        }
    }
}

/// A decoded review.
#[derive(Debug, Clone)]
pub struct Review<'a> {
    /// The version of the question, and so of the answer.
    pub api_version: ApiVersion,
    /// The question.
    pub request: Request<'a>,
}

/// Why a body is not a review. The text is the answer's body: it reaches the person through the API server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The body is not UTF-8.
    #[error("the body is not UTF-8 (line {line}, column {column})")]
    NotUtf8 {
        /// Counted from 1.
        line: usize,
        /// In bytes, counted from 1.
        column: usize,
    },
    /// The body is not JSON, or a field of the envelope has the wrong type.
    #[error("the body is not an AdmissionReview in JSON: {what} (line {line}, column {column})")]
    NotJson {
        /// What was expected.
        what: &'static str,
        /// Counted from 1.
        line: usize,
        /// In bytes, counted from 1.
        column: usize,
    },
    /// `kind` is something else.
    #[error("the body is a {kind:?}, not an AdmissionReview (line 1, column 1)")]
    NotAReview {
        /// What `kind` says.
        kind: String,
    },
    /// `apiVersion` is not one that is spoken here.
    #[error(
        "AdmissionReview version {got:?} is not spoken here, only admission.k8s.io/v1 and v1beta1 (line 1, column 1)"
    )]
    WrongVersion {
        /// What `apiVersion` says.
        got: String,
    },
    /// There is no `request`.
    #[error("the AdmissionReview has no request (line 1, column 1)")]
    NoRequest,
    /// The request lacks something without which it cannot be answered.
    #[error("the request has no {field} (line 1, column 1)")]
    Missing {
        /// Its key.
        field: &'static str,
    },
}

/// Decodes `body`, filling the fields that `wanted` names in object and old object.
pub fn decode<'a>(body: &'a [u8], wanted: &Fields) -> Result<Review<'a>, Malformed> {
    let text = std::str::from_utf8(body).map_err(|error| {
        let (line, column) = position(body, error.valid_up_to());
        Malformed::NotUtf8 { line, column }
    })?;
    let not_json = |error: JsonError| {
        let (line, column) = position(body, error.at);
        Malformed::NotJson { what: error.what, line, column }
    };
    let mut scanner = Scanner::new(text);
    let mut review = Parts::default();
    review.decode(&mut scanner, wanted).map_err(not_json)?;
    scanner.end().map_err(not_json)?;
    review.finish()
}

/// The keys of the envelope.
const REVIEW: [Key; 3] = [
    ("request", "request stands twice"),
    ("kind", "kind stands twice"),
    ("apiVersion", "apiVersion stands twice"),
];

/// The keys of the request.
const REQUEST: [Key; 15] = [
    ("uid", "uid stands twice in the request"),
    ("kind", "kind stands twice in the request"),
    ("resource", "resource stands twice in the request"),
    ("subResource", "subResource stands twice in the request"),
    ("requestKind", "requestKind stands twice in the request"),
    ("requestResource", "requestResource stands twice in the request"),
    ("requestSubResource", "requestSubResource stands twice in the request"),
    ("name", "name stands twice in the request"),
    ("namespace", "namespace stands twice in the request"),
    ("operation", "operation stands twice in the request"),
    ("userInfo", "userInfo stands twice in the request"),
    ("object", "object stands twice in the request"),
    ("oldObject", "oldObject stands twice in the request"),
    ("options", "options stands twice in the request"),
    ("dryRun", "dryRun stands twice in the request"),
];

/// The keys of `kind` and `requestKind`.
const KIND: [Key; 3] = [GROUP, VERSION, ("kind", "kind stands twice in a kind")];
/// The keys of `resource` and `requestResource`.
const RESOURCE: [Key; 3] = [GROUP, VERSION, ("resource", "resource stands twice in a resource")];
const GROUP: Key = ("group", "group stands twice");
const VERSION: Key = ("version", "version stands twice");

/// The envelope while it is read; keys may come in any order.
#[derive(Default)]
struct Parts<'a> {
    api_version: Option<Cow<'a, str>>,
    kind: Option<Cow<'a, str>>,
    request: Option<Asked<'a>>,
}

impl<'a> Parts<'a> {
    fn decode(&mut self, scanner: &mut Scanner<'a>, wanted: &Fields) -> Result<(), JsonError> {
        let mut once = SeenKeys::of(&REVIEW);
        scanner.object(|scanner, key| {
            once.see(&key, scanner)?;
            match key.as_ref() {
                "apiVersion" => self.api_version = Some(scanner.string()?),
                "kind" => self.kind = Some(scanner.string()?),
                "request" if scanner.peek()? == Shape::Null => scanner.pass()?,
                "request" => self.request = Some(Asked::decode(scanner, wanted)?),
                _ => scanner.pass()?,
            }
            Ok(())
        })
    }

    fn finish(self) -> Result<Review<'a>, Malformed> {
        let kind = self.kind.unwrap_or_default();
        if kind != "AdmissionReview" {
            return Err(Malformed::NotAReview { kind: shortened(&kind) });
        }
        let api_version = match self.api_version.as_deref() {
            Some("admission.k8s.io/v1") => ApiVersion::V1,
            Some("admission.k8s.io/v1beta1") => ApiVersion::V1beta1,
            other => return Err(Malformed::WrongVersion { got: shortened(other.unwrap_or_default()) }),
        };
        let request = self.request.ok_or(Malformed::NoRequest)?.finish()?;
        Ok(Review { api_version, request })
    }
}

/// The request while it is read.
#[derive(Default)]
struct Asked<'a> {
    uid: Cow<'a, str>,
    kind: GroupVersionKind<'a>,
    resource: GroupVersionResource<'a>,
    subresource: Cow<'a, str>,
    request_kind: Option<GroupVersionKind<'a>>,
    request_resource: Option<GroupVersionResource<'a>>,
    request_subresource: Cow<'a, str>,
    name: Cow<'a, str>,
    namespace: Cow<'a, str>,
    operation: Option<Operation>,
    user: User<'a>,
    object: Option<Object<'a>>,
    old_object: Option<Object<'a>>,
    options: Option<Raw<'a>>,
    dry_run: bool,
}

impl<'a> Asked<'a> {
    fn decode(scanner: &mut Scanner<'a>, wanted: &Fields) -> Result<Self, JsonError> {
        let mut asked = Self::default();
        let mut once = SeenKeys::of(&REQUEST);
        scanner.object(|scanner, key| {
            once.see(&key, scanner)?;
            asked.field(scanner, &key, wanted)
        })?;
        Ok(asked)
    }

    fn field(&mut self, scanner: &mut Scanner<'a>, key: &str, wanted: &Fields) -> Result<(), JsonError> {
        if scanner.peek()? == Shape::Null {
            return scanner.pass();
        }
        match key {
            "uid" => self.uid = scanner.string()?,
            "kind" => self.kind = group_version_kind(scanner)?,
            "resource" => self.resource = group_version_resource(scanner)?,
            "subResource" => self.subresource = scanner.string()?,
            "requestKind" => self.request_kind = Some(group_version_kind(scanner)?),
            "requestResource" => self.request_resource = Some(group_version_resource(scanner)?),
            "requestSubResource" => self.request_subresource = scanner.string()?,
            "name" => self.name = scanner.string()?,
            "namespace" => self.namespace = scanner.string()?,
            "operation" => {
                let at = scanner.offset();
                let operation = Operation::from_word(&scanner.string()?);
                let what = "operation is none of CREATE, UPDATE, DELETE, CONNECT";
                self.operation = Some(operation.ok_or(JsonError { at, what })?);
            }
            "userInfo" => self.user = User::decode(scanner)?,
            "object" => self.object = wanted.capture(scanner)?,
            "oldObject" => self.old_object = wanted.capture(scanner)?,
            "options" => self.options = Some(scanner.value()?),
            "dryRun" => match scanner.peek()? {
                Shape::Bool => self.dry_run = scanner.value()?.is_true(),
                _ => {
                    return Err(JsonError { at: scanner.offset(), what: "dryRun is neither true nor false" });
                }
            },
            _ => scanner.pass()?,
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Request<'a>, Malformed> {
        if self.uid.is_empty() {
            return Err(Malformed::Missing { field: "uid" });
        }
        let operation = self.operation.ok_or(Malformed::Missing { field: "operation" })?;
        if self.name.is_empty() {
            let named = |object: Option<Object<'a>>| object.and_then(|o| o.own(OWN_NAME)).and_then(Raw::text);
            self.name = named(self.old_object).or_else(|| named(self.object)).unwrap_or_default();
        }
        if self.resource.group.is_empty()
            && self.resource.resource == "namespaces"
            && self.namespace.is_empty()
        {
            self.namespace = self.name.clone();
        }
        let dry_run = self.dry_run || self.evicts_dry();
        Ok(Request {
            uid: self.uid,
            kind: self.kind,
            resource: self.resource,
            subresource: self.subresource,
            request_kind: self.request_kind,
            request_resource: self.request_resource,
            request_subresource: self.request_subresource,
            name: self.name,
            namespace: self.namespace,
            operation,
            user: self.user,
            object: self.object,
            old_object: self.old_object,
            options: self.options,
            dry_run,
        })
    }

    /// An eviction carries its delete options in the object; any entry of `dryRun` there (the API knows only `All`) counts.
    fn evicts_dry(&self) -> bool {
        self.subresource == "eviction"
            && self.object.and_then(|object| object.own(OWN_DRY_RUN)).is_some_and(|list| {
                list.shape() == Shape::Array
                    && list.parse::<Vec<Cow<'_, str>>>().map_or(true, |all| !all.is_empty())
            })
    }
}

fn group_version_kind<'a>(scanner: &mut Scanner<'a>) -> Result<GroupVersionKind<'a>, JsonError> {
    let [group, version, kind] = three(scanner, &KIND)?;
    Ok(GroupVersionKind { group, version, kind })
}

fn group_version_resource<'a>(scanner: &mut Scanner<'a>) -> Result<GroupVersionResource<'a>, JsonError> {
    let [group, version, resource] = three(scanner, &RESOURCE)?;
    Ok(GroupVersionResource { group, version, resource })
}

/// The values of three keys, in the order in which the keys are listed.
fn three<'a>(scanner: &mut Scanner<'a>, keys: &'static [Key; 3]) -> Result<[Cow<'a, str>; 3], JsonError> {
    let mut values = <[Cow<'a, str>; 3]>::default();
    let mut once = SeenKeys::of(keys);
    scanner.object(|scanner, key| {
        once.see(&key, scanner)?;
        match keys.iter().zip(&mut values).find(|((name, _), _)| *name == key) {
            Some((_, value)) => *value = scanner.string()?,
            None => scanner.pass()?,
        }
        Ok::<(), JsonError>(())
    })?;
    Ok(values)
}

/// Line and column, in bytes, both from 1.
fn position(body: &[u8], at: usize) -> (usize, usize) {
    let before = body.get(..at).unwrap_or(body);
    let mut lines = before.split(|&b| b == b'\n');
    let column = 1 + lines.next_back().map_or(0, <[u8]>::len);
    (lines.count() + 1, column)
}

/// A foreign text in an error message: no longer than a line.
fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests;
