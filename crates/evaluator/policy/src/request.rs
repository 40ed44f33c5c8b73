//! The request that policies judge, in the API server's terms.

use crate::facts::Facts;
use crate::value::{Arena, Value, read_json};

/// An admission request.
#[derive(Clone, Copy, Debug, Default)]
pub struct AdmissionRequest<'a> {
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub operation: &'a str,
    /// Group, version and kind of the object.
    pub kind: GroupVersion<'a>,
    /// Group, version and resource.
    pub resource: GroupVersion<'a>,
    /// Kind and resource that the user addressed, if the API server has converted the object to another version.
    pub addressed: Option<Addressed<'a>>,
    /// Subresource, or empty.
    pub subresource: &'a str,
    /// Name, or empty if the API server will generate it.
    pub name: &'a str,
    /// Namespace, or empty. For a Namespace, its own name.
    pub namespace: &'a str,
    /// The Namespace, if the caller has read it. Otherwise it is one of the facts.
    pub namespace_object: Option<Value<'a>>,
    /// The caller.
    pub user: RequestUser<'a>,
    /// Whether the caller is unknown. An expression that reads `request.userInfo` is then unknown.
    pub user_is_unknown: bool,
    /// Whether the request is a dry run.
    pub dry_run: bool,
    /// The options of the operation, or null.
    pub options: Value<'a>,
    /// The object, or null.
    pub object: Value<'a>,
    /// The object before the request, or null.
    pub old_object: Value<'a>,
    /// Whether the old object has another version than the object. Selectors read its labels; an expression that reads it is
    /// unknown.
    pub old_object_is_unknown: bool,
}

/// A group and version, with a kind or resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GroupVersion<'a> {
    /// Group.
    pub group: &'a str,
    /// Version.
    pub version: &'a str,
    /// Kind or resource.
    pub name: &'a str,
}

/// The kind and the resource that the user addressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addressed<'a> {
    /// Group, version and kind.
    pub kind: GroupVersion<'a>,
    /// Group, version and resource.
    pub resource: GroupVersion<'a>,
}

/// The caller of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestUser<'a> {
    /// Name.
    pub name: &'a str,
    /// UID.
    pub uid: &'a str,
    /// Groups.
    pub groups: &'a [&'a str],
    /// Extra fields: a map of lists, or null.
    pub extra: Value<'a>,
}

impl<'a> AdmissionRequest<'a> {
    /// The resource that the user addressed.
    pub(crate) fn addressed(&self) -> &GroupVersion<'a> {
        self.addressed.as_ref().map_or(&self.resource, |addressed| &addressed.resource)
    }

    /// The Namespace of the request: absent if it is unknown, and none if it does not exist.
    pub(crate) fn known_namespace(
        &self,
        facts: &Facts,
        arena: &'a Arena,
    ) -> Option<Result<Option<Value<'a>>, String>> {
        if let Some(namespace) = self.namespace_object {
            return Some(Ok(Some(namespace)));
        }
        let known = facts.namespaces.get(self.namespace)?;
        Some(match known {
            None => Ok(None),
            Some(text) => read_json(arena.text(text), arena).map(Some).map_err(|error| error.to_string()),
        })
    }

    /// Whether the request is about a Namespace object.
    pub(crate) fn is_namespace(&self) -> bool {
        self.kind == GroupVersion { group: "", version: "v1", name: "Namespace" }
    }

    /// The variable `request`. Empty fields are absent, as in the JSON form of the API server's type.
    pub(crate) fn variable(&self, arena: &'a Arena) -> Value<'a> {
        let text = Value::String;
        let object = |entries: &[(&'a str, Value<'a>)]| {
            let mut kept: Vec<(&'a str, Value<'a>)> = entries.to_vec();
            kept.sort_by(|left, right| left.0.cmp(right.0));
            Value::Object(arena.slice(&kept))
        };
        let named = |gv: &GroupVersion<'a>, field: &'a str| {
            object(&[("group", text(gv.group)), ("version", text(gv.version)), (field, text(gv.name))])
        };
        let mut user = Vec::new();
        for (field, value) in [("username", self.user.name), ("uid", self.user.uid)] {
            if !value.is_empty() {
                user.push((field, text(value)));
            }
        }
        if !self.user.groups.is_empty() {
            let groups: Vec<Value<'a>> = self.user.groups.iter().map(|group| text(group)).collect();
            user.push(("groups", Value::List(arena.slice(&groups))));
        }
        if self.user.extra.entries().is_some_and(|entries| entries.len() > 0) {
            user.push(("extra", self.user.extra));
        }
        let (kind, resource) = (named(&self.kind, "kind"), named(&self.resource, "resource"));
        let addressed = self
            .addressed
            .map(|addressed| (named(&addressed.kind, "kind"), named(&addressed.resource, "resource")));
        let (request_kind, request_resource) = addressed.unwrap_or((kind, resource));
        let mut fields = vec![
            ("uid", text("")),
            ("kind", kind),
            ("resource", resource),
            ("requestKind", request_kind),
            ("requestResource", request_resource),
            ("operation", text(self.operation)),
            ("userInfo", object(&user)),
            ("object", Value::Null),
            ("oldObject", Value::Null),
            ("dryRun", Value::Bool(self.dry_run)),
            ("options", self.options),
        ];
        for (field, value) in [
            ("subResource", self.subresource),
            ("requestSubResource", self.subresource),
            ("name", self.name),
            ("namespace", self.namespace),
        ] {
            if !value.is_empty() {
                fields.push((field, text(value)));
            }
        }
        object(&fields)
    }

    /// The name of the object in messages: its name, or the start of a name that will be generated.
    pub fn object_name(&self) -> &'a str {
        if !self.name.is_empty() {
            return self.name;
        }
        let metadata = self.object.field("metadata").unwrap_or_default();
        let text = |field: &str| {
            metadata.field(field).and_then(|value| value.as_str()).filter(|text| !text.is_empty())
        };
        text("name").or_else(|| text("generateName")).unwrap_or("Unknown")
    }

    /// `pods`, or `deployments.apps` with a group.
    pub fn group_resource(&self) -> String {
        if self.resource.group.is_empty() {
            self.resource.name.to_owned()
        } else {
            format!("{}.{}", self.resource.name, self.resource.group)
        }
    }
}

/// The variable `namespaceObject`: the fields of a Namespace that policies see.
pub(crate) fn namespace_object<'a>(namespace: Value<'a>, arena: &'a Arena) -> Value<'a> {
    const METADATA: [&str; 12] = [
        "annotations",
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generateName",
        "generation",
        "labels",
        "name",
        "namespace",
        "resourceVersion",
        "uid",
    ];
    let metadata = namespace.field("metadata").unwrap_or_default();
    let kept: Vec<(&'a str, Value<'a>)> =
        METADATA.iter().filter_map(|field| Some((*field, metadata.field(field)?))).collect();
    let part = |field: &str| match namespace.field(field) {
        Some(value @ Value::Object(_)) => value,
        _ => Value::Object(&[]),
    };
    let fields =
        [("metadata", Value::Object(arena.slice(&kept))), ("spec", part("spec")), ("status", part("status"))];
    Value::Object(arena.slice(&fields))
}
