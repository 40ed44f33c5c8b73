//! One view of the question, the same for both review versions: who does what to which object.

use std::borrow::Cow;

use crate::fields::Object;
use json::{JsonError, Raw, Scanner, Shape};
use json::{Key, SeenKeys};

/// What is asked of the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// An object is made, or a subresource such as `pods/eviction` is posted to.
    Create,
    /// An object is changed.
    Update,
    /// An object is deleted, alone or in a collection.
    Delete,
    /// A connection is opened (`exec`, `proxy`, …).
    Connect,
}

impl Operation {
    /// The word of the API, in capitals.
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

/// Who asks. Groups and extra stay raw: few guards read them, and an account may be in thousands of groups.
#[derive(Debug, Clone, Default)]
pub struct User<'a> {
    /// The name that authentication gave.
    pub name: Cow<'a, str>,
    /// The user's uid, mostly empty.
    pub uid: Cow<'a, str>,
    pub(crate) groups: Option<Raw<'a>>,
    /// What authenticators add, as sent.
    pub extra: Option<Raw<'a>>,
}

/// The keys of a user.
const USER: [Key; 4] = [
    ("username", "username stands twice in userInfo"),
    ("uid", "uid stands twice in userInfo"),
    ("groups", "groups stands twice in userInfo"),
    ("extra", "extra stands twice in userInfo"),
];

impl<'a> User<'a> {
    /// The groups that the user is in.
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

    /// Whether the user is in the group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups().iter().any(|g| g == group)
    }

    pub(crate) fn decode(scanner: &mut Scanner<'a>) -> Result<Self, JsonError> {
        let mut user = Self::default();
        let mut once = SeenKeys::of(&USER);
        scanner.object(|scanner, key| {
            once.see(&key, scanner)?;
            match key.as_ref() {
                "username" => user.name = scanner.string()?,
                "uid" => user.uid = scanner.string()?,
                "groups" if scanner.peek()? == Shape::Array => {
                    let mut whole = scanner.clone();
                    scanner.array(|scanner, _| scanner.string().map(drop))?;
                    user.groups = Some(whole.upto(scanner));
                }
                "extra" => user.extra = Some(scanner.value()?),
                _ => scanner.pass()?,
            }
            Ok::<(), JsonError>(())
        })?;
        Ok(user)
    }
}

/// The question, as every guard sees it.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// Names this call; goes back with the answer and stands in every log line.
    pub uid: Cow<'a, str>,
    /// What the object is, in the version that the registration asked for.
    pub kind: GroupVersionKind<'a>,
    /// What it is kept as.
    pub resource: GroupVersionResource<'a>,
    /// `eviction`, `scale`, …; empty for the object itself.
    pub subresource: Cow<'a, str>,
    /// What the user sent, where the API server converted it for us.
    pub request_kind: Option<GroupVersionKind<'a>>,
    /// The resource that the user addressed, where it was converted.
    pub request_resource: Option<GroupVersionResource<'a>>,
    /// The subresource that the user addressed, where it was converted.
    pub request_subresource: Cow<'a, str>,
    /// The object's name: the request's, else the old object's (a deletecollection asks once per object and names none),
    /// else the new object's. Empty for a create with `generateName`, and where only a [`doubled`](Object::doubled) object has it.
    pub name: Cow<'a, str>,
    /// The object's namespace; for a Namespace its own name.
    pub namespace: Cow<'a, str>,
    /// What is done.
    pub operation: Operation,
    /// Who does it.
    pub user: User<'a>,
    /// The object as it would be; none for a delete.
    pub object: Option<Object<'a>>,
    /// The object as it is; none for a create.
    pub old_object: Option<Object<'a>>,
    /// `CreateOptions`, `UpdateOptions` or `DeleteOptions`.
    pub options: Option<Raw<'a>>,
    /// Whether nothing will be stored. `kubectl drain --dry-run=server` says so only in the eviction's own delete options:
    /// that counts too.
    pub dry_run: bool,
}

impl Request<'_> {
    /// Whether the request is about the resource itself, not one of its subresources.
    pub fn is_for(&self, group: &str, resource: &str) -> bool {
        self.resource.group == group && self.resource.resource == resource && self.subresource.is_empty()
    }
}
