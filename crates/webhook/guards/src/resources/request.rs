//! The request as policies see it. The API server builds the variable `request` of its own policies from the same fields.

use admission::{GroupVersionKind, GroupVersionResource, Raw, Request, ReviewedObject};
use cluster::Metadata;
use policy::request::{Addressed, GroupVersion, RequestUser};
use policy::value::{Arena, ReadError, Value, read_json};
use serde_json::json;

/// Bytes of values for each byte of a request. A list of numbers of one digit, which is the densest JSON, needs 36 while it is read
/// and 12 then.
const VALUES: usize = 40;

/// Bytes for the values of expressions, in addition.
const EXPRESSIONS: usize = 16 << 20;

/// Error: a request can't be read.
#[derive(Debug)]
pub(super) struct UnreadRequest {
    /// The reason.
    pub(super) error: ReadError,
    /// Whether it is the new object.
    pub(super) is_object: bool,
}

impl From<ReadError> for UnreadRequest {
    fn from(error: ReadError) -> Self {
        Self { error, is_object: false }
    }
}

/// Creates the memory for the values of a request. It is charged to the review.
pub(super) fn arena(request: &Request<'_>) -> Arena {
    let objects = [&request.object, &request.old_object].into_iter().flatten().map(ReviewedObject::raw);
    let all = objects.chain(request.options).chain(request.user.extra);
    let bytes: usize = all.map(|raw| raw.get().len()).sum();
    let memory = request.memory.clone();
    Arena::charged(EXPRESSIONS + VALUES * bytes, move |bytes| memory.charge(bytes).is_ok())
}

/// Converts a request. The objects are the API server's own JSON, so they have the form that policies see. The name and the labels
/// of the Namespace are known.
pub(super) fn convert<'a>(
    request: &'a Request<'a>,
    namespace: Option<&Metadata>,
    arena: &'a Arena,
) -> Result<policy::request::AdmissionRequest<'a>, UnreadRequest> {
    let read = |raw: Option<Raw<'a>>| raw.map_or(Ok(Value::Null), |raw| read_json(raw.get(), arena));
    let object = read(request.object.map(|object: ReviewedObject<'a>| object.raw()));
    let object = object.map_err(|error| UnreadRequest { error, is_object: true })?;
    let groups: Vec<&str> = request.user.groups().iter().map(|group| arena.text(group)).collect();
    let (kind, resource) = (kind(&request.kind), resource(&request.resource));
    let addressed = match (&request.request_kind, &request.request_resource) {
        (Some(kind), Some(resource)) => {
            Some(Addressed { kind: self::kind(kind), resource: self::resource(resource) })
        }
        _ => None,
    };
    let namespace = namespace.map(|namespace| {
        let object = json!({"metadata": {"name": request.namespace, "labels": namespace.labels}});
        read_json(arena.text(&object.to_string()), arena)
    });
    Ok(policy::request::AdmissionRequest {
        operation: request.operation.as_str(),
        kind,
        resource,
        addressed,
        subresource: &request.subresource,
        name: &request.sent_name,
        namespace: &request.namespace,
        namespace_object: namespace.transpose()?,
        user: RequestUser {
            name: &request.user.name,
            uid: &request.user.uid,
            groups: arena.texts(&groups),
            extra: read(request.user.extra)?,
        },
        dry_run: request.dry_run,
        options: read(request.options)?,
        object,
        old_object: read(request.old_object.map(|object: ReviewedObject<'a>| object.raw()))?,
        ..policy::request::AdmissionRequest::default()
    })
}

fn kind<'a>(kind: &'a GroupVersionKind<'a>) -> GroupVersion<'a> {
    GroupVersion { group: &kind.group, version: &kind.version, name: &kind.kind }
}

fn resource<'a>(resource: &'a GroupVersionResource<'a>) -> GroupVersion<'a> {
    GroupVersion { group: &resource.group, version: &resource.version, name: &resource.resource }
}
