//! The admission request, the same for both versions of `AdmissionReview`.

use std::borrow::Cow;

use crate::budget::ReviewMemory;
use crate::decode_error::DecodeError;
use crate::fields::ReviewedObject;
use crate::keys::{self, keys};
use json::{JsonError, Raw, Scanner, Shape};

/// The operation of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// An object is created, or a subresource such as `pods/eviction`.
    Create,
    /// An object is changed.
    Update,
    /// An object is deleted, alone or in a collection.
    Delete,
    /// A connection is opened (`exec`, `proxy`, …).
    Connect,
}

impl Operation {
    /// Returns the word of the API, in capitals.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }

    pub(crate) fn from_word(word: &str) -> Option<Self> {
        [Self::Create, Self::Update, Self::Delete, Self::Connect].into_iter().find(|o| o.as_str() == word)
    }
}

/// Group, version and kind of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupVersionKind<'a> {
    /// Empty for the core group.
    pub group: Cow<'a, str>,
    /// For instance `v1`.
    pub version: Cow<'a, str>,
    /// For instance `Pod`.
    pub kind: Cow<'a, str>,
}

/// Group, version and resource of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupVersionResource<'a> {
    /// Empty for the core group.
    pub group: Cow<'a, str>,
    /// For instance `v1`.
    pub version: Cow<'a, str>,
    /// For instance `pods`.
    pub resource: Cow<'a, str>,
}

/// Limit of a user's groups, so that a list of them needs little memory.
const MAX_GROUPS: usize = 10_000;

/// The user of a request. Groups and extra stay raw: few guards read them, and a user can be in thousands of groups.
#[derive(Debug, Clone, Default)]
pub struct User<'a> {
    /// The name from authentication.
    pub name: Cow<'a, str>,
    /// The user's uid, mostly empty.
    pub uid: Cow<'a, str>,
    pub(crate) groups: Option<Raw<'a>>,
    /// Data that authenticators add, as sent.
    pub extra: Option<Raw<'a>>,
}

keys! {
    UserKey, " in userInfo" { Name = "username", Uid = "uid", Groups = "groups", Extra = "extra" }
}

impl<'a> User<'a> {
    /// Returns the groups of the user.
    pub fn groups(&self) -> Vec<Cow<'a, str>> {
        let mut groups = Vec::new();
        if let Some(raw) = self.groups {
            // Decoding has checked that this is an array of strings.
            let _: Result<(), JsonError> = raw.scan().array(|scanner, _| {
                groups.push(scanner.string()?);
                Ok(())
            });
        }
        groups
    }

    /// Returns whether the user is in the group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups().iter().any(|g| g == group)
    }

    pub(crate) fn decode(scanner: &mut Scanner<'a>) -> Result<Self, DecodeError> {
        let mut user = Self::default();
        keys::read(scanner, |scanner, key| {
            match key {
                UserKey::Name => user.name = scanner.string()?,
                UserKey::Uid => user.uid = scanner.string()?,
                UserKey::Groups if scanner.peek()? == Shape::Array => {
                    let mut whole = scanner.clone();
                    scanner.array(|scanner, index| {
                        let at = scanner.offset();
                        let too_many = JsonError { at, what: "the user is in more than 10,000 groups" };
                        if index < MAX_GROUPS { scanner.string().map(drop) } else { Err(too_many) }
                    })?;
                    user.groups = Some(whole.value_until(scanner));
                }
                UserKey::Groups => scanner.skip()?,
                UserKey::Extra => user.extra = Some(scanner.value()?),
            }
            Ok(())
        })?;
        Ok(user)
    }
}

/// A request.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// Identifies the call. It is in the answer and in every log line.
    pub uid: Cow<'a, str>,
    /// Kind of the object, in the version of the webhook rule.
    pub kind: GroupVersionKind<'a>,
    /// Resource of the object.
    pub resource: GroupVersionResource<'a>,
    /// `eviction`, `scale`, …; empty for the object itself.
    pub subresource: Cow<'a, str>,
    /// Kind that the user sent, if the API server converted it.
    pub request_kind: Option<GroupVersionKind<'a>>,
    /// Resource that the user addressed, if it was converted.
    pub request_resource: Option<GroupVersionResource<'a>>,
    /// Subresource that the user addressed, if it was converted.
    pub request_subresource: Cow<'a, str>,
    /// The object's name: from the request, the old object (deletecollection sends a request without a name for each object), or
    /// the new object. Empty for a create with `generateName`, and if only an object with a [duplicate
    /// key](ReviewedObject::duplicate_key) has it.
    pub name: Cow<'a, str>,
    /// The name in the request itself. Rules of policies read this name.
    pub sent_name: Cow<'a, str>,
    /// The object's namespace; for a Namespace its own name.
    pub namespace: Cow<'a, str>,
    /// The operation.
    pub operation: Operation,
    /// The user.
    pub user: User<'a>,
    /// The new object; none for a delete.
    pub object: Option<ReviewedObject<'a>>,
    /// The existing object; none for a create.
    pub old_object: Option<ReviewedObject<'a>>,
    /// `CreateOptions`, `UpdateOptions` or `DeleteOptions`.
    pub options: Option<Raw<'a>>,
    /// Whether this is a dry run. `kubectl drain --dry-run=server` sets it only in the eviction's delete options, which count too.
    pub dry_run: bool,
    /// The memory of the review. The server sets it.
    pub memory: ReviewMemory,
}

impl Request<'_> {
    /// Returns whether the request is for the resource itself, not for a subresource.
    pub fn is_for(&self, group: &str, resource: &str) -> bool {
        self.resource.group == group && self.resource.resource == resource && self.subresource.is_empty()
    }
}
