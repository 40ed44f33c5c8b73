//! The objects of one resource by namespace and name, looked up without allocating.

use std::collections::HashMap;
use std::sync::Arc;

use super::Metadata;

/// Objects of one resource. Objects without a namespace are under the empty name.
#[derive(Debug, Default)]
pub(super) struct Objects {
    namespaces: HashMap<Box<str>, HashMap<Box<str>, Arc<Metadata>>>,
}

impl Objects {
    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<Arc<Metadata>> {
        self.namespaces.get(namespace)?.get(name).cloned()
    }

    /// Adds an object. Returns whether it is the first with its name.
    pub(super) fn insert(&mut self, namespace: &str, name: &str, metadata: impl Into<Arc<Metadata>>) -> bool {
        let names = self.namespaces.entry(namespace.into()).or_default();
        names.insert(name.into(), metadata.into()).is_none()
    }

    pub(super) fn remove(&mut self, namespace: &str, name: &str) {
        if let Some(names) = self.namespaces.get_mut(namespace) {
            names.remove(name);
            if names.is_empty() {
                self.namespaces.remove(namespace);
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.namespaces.values().map(HashMap::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_objects_in_their_own_namespace_only() {
        let mut objects = Objects::default();
        assert!(objects.insert("a", "web", Metadata { deleting: true, ..Metadata::default() }));
        assert!(objects.insert("b", "web", Metadata::default()));
        assert!(!objects.insert("b", "web", Metadata::default()));
        assert!(objects.get("a", "web").unwrap().deleting);
        assert!(objects.get("", "web").is_none());
        assert_eq!(objects.len(), 2);
        objects.remove("a", "web");
        objects.remove("a", "web");
        assert!(objects.get("a", "web").is_none());
        assert_eq!(objects.len(), 1);
    }
}
