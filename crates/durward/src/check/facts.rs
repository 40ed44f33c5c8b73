//! Facts that policies ask for, from the objects of the command line. A fact that was not given stays unknown.

use std::collections::{BTreeMap, HashMap};

use policy::facts::{Facts, Lookup, ParamQuery};
use policy::kinds::Kinds;
use policy::value::{Arena, Value, write_json};
use policy::vap::model::ParamKind;

use super::cases::Case;
use super::grants::Grants;
use super::judge::as_stored;
use super::objects::Object;

/// Label that the API server sets on each Namespace.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// The facts of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Store {
    /// Namespaces as JSON.
    namespaces: HashMap<String, String>,
    /// Objects that can be parameters: by API version and kind, namespace, then name.
    params: HashMap<(String, String), BTreeMap<String, BTreeMap<String, String>>>,
    /// Whether there are no other parameters.
    has_all_params: bool,
    grants: Option<Grants>,
}

impl Store {
    /// Creates a store of objects. `param_kinds` are the kinds of parameters, and `namespace` is that of objects that name none.
    pub(crate) fn new<'o>(
        objects: impl Iterator<Item = &'o Object>,
        kinds: &Kinds,
        param_kinds: &[ParamKind],
        namespace: &str,
        grants: Option<Grants>,
    ) -> Self {
        let mut store = Self { grants, ..Self::default() };
        let mut arena = Arena::new();
        for object in objects {
            if object.is("", "Namespace") {
                store.namespaces.insert(object.name.clone(), namespace_json(object, &arena));
                arena.reset();
            }
            let key = (object.api_version.clone(), object.kind.clone());
            if !param_kinds.iter().any(|kind| kind.api_version == key.0 && kind.kind == key.1) {
                continue;
            }
            let namespaced = kinds
                .lookup(object.group(), object.version(), &object.kind)
                .is_some_and(|resource| resource.namespaced);
            let own = match (namespaced, object.namespace.as_str()) {
                (false, _) => "",
                (true, "") => namespace,
                (true, own) => own,
            };
            let in_namespace = store.params.entry(key).or_default().entry(own.to_owned()).or_default();
            in_namespace.insert(object.name.clone(), stored_json(object, &arena));
            arena.reset();
        }
        store
    }

    /// Returns the facts of a case, in which those of the case replace those of the run. `namespace` is that of its object.
    pub(crate) fn for_case(&self, case: &Case, kinds: &Kinds, namespace: &str) -> Self {
        let mut store = self.clone();
        if let Some(labels) = &case.namespace_labels {
            let mut labels = labels.clone();
            labels.insert(NAME_LABEL.to_owned(), namespace.to_owned());
            let object = serde_json::json!({"metadata": {"name": namespace, "labels": labels}});
            store.namespaces.insert(namespace.to_owned(), object.to_string());
        }
        if let Some(params) = &case.params {
            let kind = |object: &Object| ParamKind {
                api_version: object.api_version.clone(),
                kind: object.kind.clone(),
            };
            let param_kinds: Vec<ParamKind> = params.iter().map(kind).collect();
            store.params = Self::new(params.iter(), kinds, &param_kinds, namespace, None).params;
            store.has_all_params = true;
        }
        if case.grants.is_some() {
            store.grants.clone_from(&case.grants);
        }
        store
    }

    /// Returns the facts for requests of a user, who has the grants of the service account of this name.
    #[must_use]
    pub(crate) fn for_user(mut self, user: Option<&str>) -> Self {
        self.grants = self.grants.map(|grants| grants.for_user(user));
        self
    }

    /// Adds the answer to a lookup. Returns whether there is one.
    pub(crate) fn answer(&self, lookup: &Lookup, kinds: &Kinds, facts: &mut Facts) -> bool {
        match lookup {
            Lookup::Namespace(name) => match self.namespaces.get(name) {
                Some(json) => facts.namespaces.insert(name.clone(), Some(json.clone())).is_none(),
                None => false,
            },
            Lookup::ParamKind(kind) => match is_namespaced(kinds, kind) {
                Some(namespaced) => facts.param_kinds.insert(kind.clone(), Some(namespaced)).is_none(),
                None => false,
            },
            Lookup::Params(query) => match self.params(query) {
                Some(params) => facts.params.insert(query.clone(), params).is_none(),
                None => false,
            },
            Lookup::Check(check) => match &self.grants {
                Some(grants) => facts.decisions.insert(check.clone(), grants.decide(check)).is_none(),
                None => false,
            },
            Lookup::User | Lookup::Conversion { .. } => false,
        }
    }

    /// Returns the parameters of a query. If a namespace has parameters of the kind, they are all that it has.
    fn params(&self, query: &ParamQuery) -> Option<Vec<String>> {
        let key = (query.kind.api_version.clone(), query.kind.kind.clone());
        let named = self.params.get(&key).and_then(|namespaces| namespaces.get(&query.namespace));
        let found = named.and_then(|named| match &query.name {
            Some(name) => Some(vec![named.get(name)?.clone()]),
            None => Some(named.values().cloned().collect()),
        });
        if self.has_all_params { Some(found.unwrap_or_default()) } else { found }
    }
}

/// Returns an object in the form that policies see. One that can't be decoded is reported when it is checked.
fn stored_json(object: &Object, arena: &Arena) -> String {
    match as_stored(object, arena) {
        Ok(value) => write_json(value),
        Err(_) => object.json.clone(),
    }
}

/// Returns whether a kind of parameters is namespaced, if it is known.
pub(crate) fn is_namespaced(kinds: &Kinds, kind: &ParamKind) -> Option<bool> {
    let (group, version) = kind.api_version.split_once('/').unwrap_or(("", &kind.api_version));
    Some(kinds.lookup(group, version, &kind.kind)?.namespaced)
}

/// Returns a Namespace with the label that the API server sets.
fn namespace_json(object: &Object, arena: &Arena) -> String {
    match as_stored(object, arena) {
        Ok(value) => write_json(with_name_label(value, &object.name, arena)),
        Err(_) => object.json.clone(),
    }
}

/// Sets the label with the name of a Namespace.
pub(crate) fn with_name_label<'a>(namespace: Value<'a>, name: &str, arena: &'a Arena) -> Value<'a> {
    let metadata = namespace.field("metadata").unwrap_or_default();
    let labels = metadata.field("labels").unwrap_or_default();
    let labels = with_field(labels, NAME_LABEL, Value::String(arena.text(name)), arena);
    with_field(namespace, "metadata", with_field(metadata, "labels", labels, arena), arena)
}

/// Returns an object with a field set. A value that is not an object counts as an empty one.
pub(crate) fn with_field<'a>(
    object: Value<'a>,
    field: &'static str,
    value: Value<'a>,
    arena: &'a Arena,
) -> Value<'a> {
    let entries = if let Value::Object(entries) = object { entries } else { &[] };
    let mut entries = entries.to_vec();
    match entries.binary_search_by(|(key, _)| (*key).cmp(field)) {
        Ok(at) => {
            if let Some(entry) = entries.get_mut(at) {
                entry.1 = value;
            }
        }
        Err(at) => entries.insert(at, (field, value)),
    }
    arena.object(&entries)
}
