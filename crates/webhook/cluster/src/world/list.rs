//! A List in memory. It proves absence only within its scope: its namespaces, names and field selector.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::{Labels, SelectorExt as _};

use super::selector::Selector;
use crate::Metadata;
use crate::fleet::{ListQuery, Object, Part};

/// The objects of one resource in one cluster, to the last page.
#[derive(Debug, Clone)]
pub struct ObjectList {
    /// Which objects it contains.
    pub scope: Scope,
    /// By namespace and name.
    objects: BTreeMap<String, BTreeMap<String, Entry>>,
}

/// Which objects the List contains.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// Whether its items are whole objects.
    pub is_whole: bool,
    /// The field selector of the List; empty for all objects.
    pub fields: String,
    /// Only these namespaces.
    pub namespaces: Option<BTreeSet<String>>,
    /// Only these names.
    pub names: Option<BTreeSet<String>>,
}

/// A recorded object. Its metadata is shared, so that callers need no copy.
#[derive(Debug, Clone)]
struct Entry {
    metadata: Arc<Metadata>,
    rest: Object,
}

impl Entry {
    fn object(&self, part: Part) -> Object {
        let mut object = Object { metadata: Metadata::clone(&self.metadata), ..self.rest.clone() };
        if part == Part::Metadata {
            object.raw = None;
        }
        object
    }
}

impl ObjectList {
    /// Creates an empty List.
    pub fn new(scope: Scope) -> Self {
        Self { scope, objects: BTreeMap::new() }
    }

    /// Returns whether it is the first object with this name.
    pub fn insert(&mut self, mut object: Object) -> bool {
        let metadata = Arc::new(std::mem::take(&mut object.metadata));
        let (namespace, name) = (object.namespace.clone(), object.name.clone());
        let names = self.objects.entry(namespace).or_default();
        names.insert(name, Entry { metadata, rest: object }).is_none()
    }

    /// Returns the objects, sorted by namespace and name.
    pub fn iter(&self) -> impl Iterator<Item = Object> {
        let part = if self.scope.is_whole { Part::Whole } else { Part::Metadata };
        self.objects.values().flat_map(BTreeMap::values).map(move |entry| entry.object(part))
    }

    /// Returns the number of objects.
    #[allow(clippy::len_without_is_empty, reason = "no caller needs it")]
    pub fn len(&self) -> usize {
        self.objects.values().map(BTreeMap::len).sum()
    }

    /// Returns the metadata of an object. The error says why the List does not answer.
    pub(super) fn metadata(&self, namespace: &str, name: &str) -> Result<Option<Arc<Metadata>>, String> {
        Ok(self.entry(namespace, name)?.map(|entry| Arc::clone(&entry.metadata)))
    }

    /// Returns an object. The error says why the List does not answer.
    pub(super) fn object(&self, namespace: &str, name: &str, part: Part) -> Result<Option<Object>, String> {
        let entry = self.entry(namespace, name)?;
        if entry.is_some() {
            self.scope.check_part(part)?;
        }
        Ok(entry.map(|entry| entry.object(part)))
    }

    fn entry(&self, namespace: &str, name: &str) -> Result<Option<&Entry>, String> {
        if let Some(entry) = self.objects.get(namespace).and_then(|names| names.get(name)) {
            return Ok(Some(entry));
        }
        self.scope.check_namespace(namespace)?;
        if !self.scope.fields.is_empty() {
            return Err(format!("only objects that match {:?} were recorded", self.scope.fields));
        }
        if self.scope.names.as_ref().is_some_and(|names| !names.contains(name)) {
            return Err("only other names were recorded".to_owned());
        }
        Ok(None)
    }

    /// Returns all objects of a query as one page. The error says why the List does not answer.
    pub(super) fn objects(&self, query: &ListQuery<'_>) -> Result<Vec<Object>, String> {
        let scope = &self.scope;
        scope.check_part(query.part)?;
        scope.check_namespace(query.namespace)?;
        if scope.names.is_some() {
            return Err("only some names were recorded".to_owned());
        }
        let is_selected = scope.fields == query.field_selector;
        let selector = Selector::parse(if is_selected { "" } else { query.field_selector })?;
        if !is_selected && !scope.fields.is_empty() {
            return Err(format!("only objects that match {:?} were recorded", scope.fields));
        }
        if !scope.is_whole && !selector.is_of_metadata() {
            return Err(format!(
                "only metadata was recorded, which does not contain {:?}",
                query.field_selector
            ));
        }
        // The empty text selects every object.
        let labels = match query.label_selector {
            "" => Labels(::config::Selector::default()),
            text => text.parse()?,
        };
        let mut objects = Vec::new();
        for (namespace, names) in &self.objects {
            if !query.namespace.is_empty() && namespace != query.namespace {
                continue;
            }
            for entry in names.values() {
                if labels.0.matches(&entry.metadata.labels) && selector.holds(&entry.rest)? {
                    objects.push(entry.object(query.part));
                }
            }
        }
        Ok(objects)
    }
}

impl Scope {
    fn check_part(&self, part: Part) -> Result<(), String> {
        if part == Part::Whole && !self.is_whole {
            return Err("only metadata was recorded".to_owned());
        }
        Ok(())
    }

    /// An empty namespace means all namespaces, and cluster-wide objects.
    fn check_namespace(&self, namespace: &str) -> Result<(), String> {
        match &self.namespaces {
            Some(namespaces) if !namespaces.contains(namespace) => {
                Err("only other namespaces were recorded".to_owned())
            }
            _ => Ok(()),
        }
    }
}
