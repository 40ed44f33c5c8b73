//! Decodes `AdmissionReview` v1 and v1beta1 in one pass over the body. Objects stay raw, except for their [`Fields`].
//!
//! A duplicate key of the envelope is an error, because the request would be ambiguous. One within an object makes only that
//! object ambiguous ([`ReviewedObject::duplicate_key`]).
//!
//! Both versions have the same request. API server 1.35 still sends v1beta1 to webhooks that ask for it in
//! `admissionReviewVersions`. The answer must have the version of the request.

use std::borrow::Cow;

use crate::budget::ReviewMemory;
use crate::decode_error::DecodeError;
use crate::fields::{Fields, OWN_DRY_RUN, OWN_NAME, OWN_NAMESPACE, OWN_UID, ReviewedObject};
use crate::keys::{self, keys};
use crate::names;
use crate::request::{GroupVersionKind, GroupVersionResource, Operation, Request, User};
use crate::text::truncate;
use json::{JsonError, Raw, Scanner, Shape};

/// The version of a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiVersion {
    /// `admission.k8s.io/v1`
    V1,
    /// `admission.k8s.io/v1beta1`
    V1beta1,
}

impl ApiVersion {
    /// Returns the value of `apiVersion`.
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
    /// The version, which the answer must have too.
    pub api_version: ApiVersion,
    /// The request.
    pub request: Request<'a>,
}

/// Error: a body is not a review. The API server shows the text to the user.
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
        /// The error.
        what: String,
        /// Counted from 1.
        line: usize,
        /// In bytes, counted from 1.
        column: usize,
    },
    /// `kind` is not `AdmissionReview`.
    #[error("the body is a {kind:?}, not an AdmissionReview (line 1, column 1)")]
    NotAReview {
        /// The value of `kind`.
        kind: String,
    },
    /// `apiVersion` is not supported.
    #[error(
        "AdmissionReview version {got:?} is not supported; use admission.k8s.io/v1 or v1beta1 (line 1, column 1)"
    )]
    WrongVersion {
        /// The value of `apiVersion`.
        got: String,
    },
    /// `request` is missing.
    #[error("the AdmissionReview has no request (line 1, column 1)")]
    NoRequest,
    /// A required field of the request is missing.
    #[error("the request has no {field} (line 1, column 1)")]
    Missing {
        /// Its key.
        field: &'static str,
    },
    /// A name or uid that no object of Kubernetes has.
    #[error("the {field} {why} (line 1, column 1)")]
    InvalidName {
        /// The field.
        field: &'static str,
        /// What is wrong with its value.
        why: &'static str,
    },
}

/// Decodes `body`, and fills the `wanted` fields of object and old object.
pub fn decode<'a>(body: &'a [u8], wanted: &Fields) -> Result<Review<'a>, Malformed> {
    let text = std::str::from_utf8(body).map_err(|error| {
        let (line, column) = position(body, error.valid_up_to());
        Malformed::NotUtf8 { line, column }
    })?;
    let not_json = |error: DecodeError| {
        let (at, what) = match error {
            DecodeError::Json(error) => (error.at, error.what.to_owned()),
            DecodeError::DuplicateKey { at, key, object } => {
                (at, format!("{key} is a duplicate key{object}"))
            }
        };
        let (line, column) = position(body, at);
        Malformed::NotJson { what, line, column }
    };
    let mut scanner = Scanner::new(text);
    let mut review = PartialReview::default();
    review.decode(&mut scanner, wanted).map_err(not_json)?;
    scanner.end().map_err(|error| not_json(error.into()))?;
    review.finish()
}

/// Limit of foreign text in an error.
const MAX_TEXT_CHARS: usize = 80;

keys! {
    ReviewKey, "" { ApiVersion = "apiVersion", Kind = "kind", Request = "request" }
}

keys! {
    RequestKey, " in the request" {
        Uid = "uid",
        Kind = "kind",
        Resource = "resource",
        Subresource = "subResource",
        RequestKind = "requestKind",
        RequestResource = "requestResource",
        RequestSubresource = "requestSubResource",
        Name = "name",
        Namespace = "namespace",
        Operation = "operation",
        UserInfo = "userInfo",
        Object = "object",
        OldObject = "oldObject",
        Options = "options",
        DryRun = "dryRun",
    }
}

keys! {
    KindKey, " in a kind" { Group = "group", Version = "version", Kind = "kind" }
}

keys! {
    ResourceKey, " in a resource" { Group = "group", Version = "version", Resource = "resource" }
}

/// The envelope while it is decoded. Keys can have any order.
#[derive(Default)]
struct PartialReview<'a> {
    api_version: Option<Cow<'a, str>>,
    kind: Option<Cow<'a, str>>,
    request: Option<PartialRequest<'a>>,
}

impl<'a> PartialReview<'a> {
    fn decode(&mut self, scanner: &mut Scanner<'a>, wanted: &Fields) -> Result<(), DecodeError> {
        keys::read(scanner, |scanner, key| {
            match key {
                ReviewKey::ApiVersion => self.api_version = Some(scanner.string()?),
                ReviewKey::Kind => self.kind = Some(scanner.string()?),
                ReviewKey::Request if scanner.peek()? == Shape::Null => scanner.skip()?,
                ReviewKey::Request => {
                    let request = self.request.insert(PartialRequest::default());
                    keys::read(scanner, |scanner, key| request.field(scanner, key, wanted))?;
                }
            }
            Ok(())
        })
    }

    fn finish(self) -> Result<Review<'a>, Malformed> {
        let kind = self.kind.unwrap_or_default();
        if kind != "AdmissionReview" {
            return Err(Malformed::NotAReview { kind: truncate(&kind, MAX_TEXT_CHARS).into_owned() });
        }
        let api_version = match self.api_version.as_deref() {
            Some("admission.k8s.io/v1") => ApiVersion::V1,
            Some("admission.k8s.io/v1beta1") => ApiVersion::V1beta1,
            other => {
                return Err(Malformed::WrongVersion {
                    got: truncate(other.unwrap_or_default(), MAX_TEXT_CHARS).into_owned(),
                });
            }
        };
        let request = self.request.ok_or(Malformed::NoRequest)?.finish()?;
        Ok(Review { api_version, request })
    }
}

/// The request while it is decoded.
#[derive(Default)]
struct PartialRequest<'a> {
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
    object: Option<ReviewedObject<'a>>,
    old_object: Option<ReviewedObject<'a>>,
    options: Option<Raw<'a>>,
    dry_run: bool,
}

impl<'a> PartialRequest<'a> {
    fn field(
        &mut self,
        scanner: &mut Scanner<'a>,
        key: RequestKey,
        wanted: &Fields,
    ) -> Result<(), DecodeError> {
        if scanner.peek()? == Shape::Null {
            return Ok(scanner.skip()?);
        }
        match key {
            RequestKey::Uid => self.uid = scanner.string()?,
            RequestKey::Kind => self.kind = group_version_kind(scanner)?,
            RequestKey::Resource => self.resource = group_version_resource(scanner)?,
            RequestKey::Subresource => self.subresource = scanner.string()?,
            RequestKey::RequestKind => self.request_kind = Some(group_version_kind(scanner)?),
            RequestKey::RequestResource => self.request_resource = Some(group_version_resource(scanner)?),
            RequestKey::RequestSubresource => self.request_subresource = scanner.string()?,
            RequestKey::Name => self.name = scanner.string()?,
            RequestKey::Namespace => self.namespace = scanner.string()?,
            RequestKey::Operation => {
                let at = scanner.offset();
                let operation = Operation::from_word(&scanner.string()?);
                let what = "operation must be CREATE, UPDATE, DELETE or CONNECT";
                self.operation = Some(operation.ok_or(JsonError { at, what })?);
            }
            RequestKey::UserInfo => self.user = User::decode(scanner)?,
            RequestKey::Object => wanted.capture(scanner, &mut self.object)?,
            RequestKey::OldObject => wanted.capture(scanner, &mut self.old_object)?,
            RequestKey::Options => self.options = Some(scanner.value()?),
            RequestKey::DryRun => {
                if scanner.peek()? == Shape::Bool {
                    self.dry_run = scanner.value()?.is_true();
                } else {
                    let what = "dryRun must be true or false";
                    return Err(JsonError { at: scanner.offset(), what }.into());
                }
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Request<'a>, Malformed> {
        if self.uid.is_empty() {
            return Err(Malformed::Missing { field: "uid" });
        }
        let operation = self.operation.ok_or(Malformed::Missing { field: "operation" })?;
        // No rule of a guard matches a request without a resource, so it would be allowed.
        if self.resource.resource.is_empty() {
            return Err(Malformed::Missing { field: "resource" });
        }
        self.check_names()?;
        let sent_name = self.name.clone();
        if self.name.is_empty() {
            let objects = [&self.old_object, &self.object].into_iter().flatten();
            let mut names = objects.filter_map(|object| object.own(OWN_NAME)?.text());
            self.name = names.next().unwrap_or_default();
        }
        if self.resource.group.is_empty()
            && self.resource.resource == "namespaces"
            && self.namespace.is_empty()
        {
            self.namespace.clone_from(&self.name);
        }
        let dry_run = self.dry_run || self.is_dry_eviction();
        Ok(Request {
            uid: self.uid,
            kind: self.kind,
            resource: self.resource,
            subresource: self.subresource,
            request_kind: self.request_kind,
            request_resource: self.request_resource,
            request_subresource: self.request_subresource,
            name: self.name,
            sent_name,
            namespace: self.namespace,
            operation,
            user: self.user,
            object: self.object,
            old_object: self.old_object,
            options: self.options,
            dry_run,
            memory: ReviewMemory::default(),
        })
    }

    /// Refuses names and uids that no object has, for all guards: they become keys of maps, parts of paths and of messages.
    fn check_names(&self) -> Result<(), Malformed> {
        let invalid = |field, why| Malformed::InvalidName { field, why };
        let own =
            |object: &ReviewedObject<'a>, index| object.own(index).and_then(Raw::text).unwrap_or_default();
        let is_dns = names::DNS_GROUPS.contains(&self.resource.group.as_ref());
        let check = if is_dns { names::check_dns } else { names::check };
        names::check_uid(&self.uid).map_err(|why| invalid("uid of the request", why))?;
        check(&self.name).map_err(|why| invalid("name of the request", why))?;
        names::check_dns(&self.namespace).map_err(|why| invalid("namespace of the request", why))?;
        for object in [&self.object, &self.old_object].into_iter().flatten() {
            check(&own(object, OWN_NAME)).map_err(|why| invalid("name of the object", why))?;
            names::check_dns(&own(object, OWN_NAMESPACE))
                .map_err(|why| invalid("namespace of the object", why))?;
            names::check_uid(&own(object, OWN_UID)).map_err(|why| invalid("uid of the object", why))?;
        }
        Ok(())
    }

    /// Returns whether this is a dry run of an eviction, whose delete options are in the object. Any entry of `dryRun` counts; the
    /// API has only `All`.
    fn is_dry_eviction(&self) -> bool {
        self.subresource == "eviction"
            && self.object.as_ref().and_then(|object| object.own(OWN_DRY_RUN)).is_some_and(|list| {
                list.shape() == Shape::Array
                    && list.parse::<Vec<Cow<'_, str>>>().map_or(true, |all| !all.is_empty())
            })
    }
}

fn group_version_kind<'a>(scanner: &mut Scanner<'a>) -> Result<GroupVersionKind<'a>, DecodeError> {
    let mut kind = GroupVersionKind::default();
    keys::read(scanner, |scanner, key| {
        let part = match key {
            KindKey::Group => &mut kind.group,
            KindKey::Version => &mut kind.version,
            KindKey::Kind => &mut kind.kind,
        };
        *part = scanner.string()?;
        Ok(())
    })?;
    Ok(kind)
}

fn group_version_resource<'a>(scanner: &mut Scanner<'a>) -> Result<GroupVersionResource<'a>, DecodeError> {
    let mut resource = GroupVersionResource::default();
    keys::read(scanner, |scanner, key| {
        let part = match key {
            ResourceKey::Group => &mut resource.group,
            ResourceKey::Version => &mut resource.version,
            ResourceKey::Resource => &mut resource.resource,
        };
        *part = scanner.string()?;
        Ok(())
    })?;
    Ok(resource)
}

/// Returns line and column, in bytes and counted from 1.
fn position(body: &[u8], at: usize) -> (usize, usize) {
    let before = body.get(..at).unwrap_or(body);
    let mut lines = before.split(|&b| b == b'\n');
    let column = 1 + lines.next_back().map_or(0, <[u8]>::len);
    (lines.count() + 1, column)
}

#[cfg(test)]
mod tests;
