//! The functions, variables and types that an expression can name.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::escape::{RESERVED, escape};
use super::library::Library;
use super::types::CelType;
use crate::release::Release;

/// The fields of a named type.
pub(crate) type StructFields = BTreeMap<String, CelType>;

/// Name of the caller of the request in lookups.
pub(crate) const USER: &str = "request.userInfo";

/// Name of the old object.
pub(crate) const OLD_OBJECT: &str = "oldObject";

/// Name of the value in rules of CRDs.
pub(crate) const SELF: &str = "self";

/// Name of the value before an update in rules of CRDs.
pub(crate) const OLD_SELF: &str = "oldSelf";

/// Name of the type of `variables`.
pub(crate) const VARIABLES_TYPE: &str = "kubernetes.variables";

/// The environment of expressions.
#[derive(Clone)]
pub(crate) struct Environment {
    pub(crate) library: Arc<Library>,
    pub(crate) release: Release,
    pub(crate) variables: HashMap<String, CelType>,
    pub(crate) structs: Arc<HashMap<String, StructFields>>,
}

/// Optional variables of the environment of policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Optional {
    pub(crate) params: bool,
    pub(crate) authorizer: bool,
    /// Whether the policy has variables.
    pub(crate) variables: bool,
}

impl Environment {
    /// The environment of admission policies.
    pub(crate) fn admission(library: &Arc<Library>, release: Release, optional: Optional) -> Self {
        let mut variables = HashMap::from([
            ("object".to_owned(), CelType::Dyn),
            (OLD_OBJECT.to_owned(), CelType::Dyn),
            ("namespaceObject".to_owned(), CelType::structure("kubernetes.Namespace")),
            ("request".to_owned(), CelType::structure("kubernetes.AdmissionRequest")),
        ]);
        if optional.params {
            variables.insert("params".to_owned(), CelType::Dyn);
        }
        if optional.authorizer {
            variables
                .insert("authorizer".to_owned(), CelType::structure("kubernetes.authorization.Authorizer"));
            let check = CelType::structure("kubernetes.authorization.ResourceCheck");
            variables.insert("authorizer.requestResource".to_owned(), check);
        }
        let mut structs = admission_types();
        if optional.variables {
            variables.insert("variables".to_owned(), CelType::structure(VARIABLES_TYPE));
            structs.insert(VARIABLES_TYPE.to_owned(), StructFields::new());
        }
        Self { library: Arc::clone(library), release, variables, structs: Arc::new(structs) }
    }

    /// An environment of values of any type.
    pub(crate) fn untyped(library: &Arc<Library>, release: Release, variables: &[&str]) -> Self {
        let variables = variables.iter().map(|&name| (name.to_owned(), CelType::Dyn)).collect();
        Self { library: Arc::clone(library), release, variables, structs: Arc::default() }
    }

    /// The environment of the rules of a CRD's field. `structs` has the types of all its objects.
    pub(crate) fn rules(
        library: &Arc<Library>,
        release: Release,
        structs: &Arc<HashMap<String, StructFields>>,
    ) -> Self {
        let (library, structs) = (Arc::clone(library), Arc::clone(structs));
        Self { library, release, variables: HashMap::new(), structs }
    }

    /// Declares `self` and `oldSelf`, which is optional if a rule also applies to new values.
    pub(crate) fn declare_self(&mut self, of: &CelType, old_is_optional: bool) {
        let old = if old_is_optional { CelType::optional(of.clone()) } else { of.clone() };
        self.variables.insert(SELF.to_owned(), of.clone());
        self.variables.insert(OLD_SELF.to_owned(), old);
    }

    /// The type that a name denotes as a value: a variable, or a type such as `int`.
    pub(crate) fn identifier(&self, name: &str) -> Option<Identifier> {
        let name = name.strip_prefix('.').unwrap_or(name);
        if let Some(found) = self.variables.get(name) {
            return Some(Identifier::Variable(found.clone()));
        }
        let named = match name {
            "bool" => CelType::Bool,
            "bytes" => CelType::Bytes,
            "double" => CelType::Double,
            "google.protobuf.Duration" => CelType::Duration,
            "int" => CelType::Int,
            "list" => CelType::list(CelType::Dyn),
            "map" => CelType::map(CelType::Dyn, CelType::Dyn),
            "null_type" => CelType::Null,
            "string" => CelType::String,
            "google.protobuf.Timestamp" => CelType::Timestamp,
            "type" => return Some(Identifier::Type(CelType::Type(None))),
            "uint" => CelType::Uint,
            "optional_type" if self.release.optional_type_has_parameter() => CelType::optional(CelType::Dyn),
            "optional_type" => CelType::Opaque("optional_type", Arc::new([])),
            "net.IP" => CelType::Opaque("net.IP", Arc::new([])),
            "net.CIDR" => CelType::Opaque("net.CIDR", Arc::new([])),
            _ if self.structs.contains_key(name) || is_undefined(name) => CelType::structure(name),
            _ => return None,
        };
        Some(Identifier::Type(named))
    }

    /// Returns the type of a field of a named type, or `None` if the type has no fields. From Kubernetes 1.32 on, a reserved word also
    /// finds the field with its escaped name: `namespace` finds `__namespace__`.
    #[allow(clippy::option_option)] // a type without fields is not the same as an absent field
    pub(crate) fn field(&self, structure: &str, field: &str) -> Option<Option<&CelType>> {
        let fields = self.structs.get(structure)?;
        let by_escaped_name = || {
            let is_word = self.release.finds_reserved_fields() && RESERVED.contains(&field);
            is_word.then(|| fields.get(&escape(field)?)).flatten()
        };
        Some(fields.get(field).or_else(by_escaped_name))
    }
}

/// Types that the checker knows, but that no value can have: naming one is an error of the program.
pub(crate) fn is_undefined(name: &str) -> bool {
    let message = name.trim_start_matches("google.protobuf.");
    matches!(name, "duration" | "timestamp")
        || (message.len() < name.len()
            && matches!(
                message,
                "Any"
                    | "BoolValue"
                    | "BytesValue"
                    | "DoubleValue"
                    | "FloatValue"
                    | "Int32Value"
                    | "Int64Value"
                    | "ListValue"
                    | "StringValue"
                    | "Struct"
                    | "UInt32Value"
                    | "UInt64Value"
                    | "Value"
                    | "Empty"
            ))
}

/// A resolved name.
pub(crate) enum Identifier {
    Variable(CelType),
    Type(CelType),
}

fn admission_types() -> HashMap<String, StructFields> {
    let structure = |name: &str| CelType::structure(&format!("kubernetes.{name}"));
    let text = || CelType::String;
    let texts = || CelType::list(CelType::String);
    let labels = || CelType::map(CelType::String, CelType::String);
    let table: Vec<(&str, Vec<(&str, CelType)>)> = vec![
        ("GroupVersionKind", vec![("group", text()), ("version", text()), ("kind", text())]),
        ("GroupVersionResource", vec![("group", text()), ("version", text()), ("resource", text())]),
        (
            "UserInfo",
            vec![
                ("username", text()),
                ("uid", text()),
                ("groups", texts()),
                ("extra", CelType::map(CelType::String, texts())),
            ],
        ),
        (
            "AdmissionRequest",
            vec![
                ("kind", structure("GroupVersionKind")),
                ("resource", structure("GroupVersionResource")),
                ("subResource", text()),
                ("requestKind", structure("GroupVersionKind")),
                ("requestResource", structure("GroupVersionResource")),
                ("requestSubResource", text()),
                ("name", text()),
                ("namespace", text()),
                ("operation", text()),
                ("userInfo", structure("UserInfo")),
                ("dryRun", CelType::Bool),
                ("options", CelType::Dyn),
            ],
        ),
        ("NamespaceSpec", vec![("finalizers", texts())]),
        (
            "NamespaceCondition",
            vec![
                ("status", text()),
                ("type", text()),
                ("lastTransitionTime", CelType::Timestamp),
                ("message", text()),
                ("reason", text()),
            ],
        ),
        (
            "NamespaceStatus",
            vec![("conditions", CelType::list(structure("NamespaceCondition"))), ("phase", text())],
        ),
        (
            "NamespaceMetadata",
            vec![
                ("name", text()),
                ("generateName", text()),
                ("namespace", text()),
                ("labels", labels()),
                ("annotations", labels()),
                ("UID", text()),
                ("creationTimestamp", CelType::Timestamp),
                ("deletionGracePeriodSeconds", CelType::Int),
                ("deletionTimestamp", CelType::Timestamp),
                ("generation", CelType::Int),
                ("resourceVersion", text()),
                ("finalizers", texts()),
            ],
        ),
        (
            "Namespace",
            vec![
                ("metadata", structure("NamespaceMetadata")),
                ("spec", structure("NamespaceSpec")),
                ("status", structure("NamespaceStatus")),
            ],
        ),
    ];
    table
        .into_iter()
        .map(|(name, fields)| {
            let fields = fields.into_iter().map(|(field, type_)| (field.to_owned(), type_)).collect();
            (format!("kubernetes.{name}"), fields)
        })
        .collect()
}
