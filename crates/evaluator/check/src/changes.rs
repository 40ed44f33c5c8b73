//! The changes that a run stands for: objects before and after a request, paired by group, kind, namespace and name.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use admission::Operation;
use policy::field::Path;
use policy::kinds::{KindResource, Kinds};

use manifests::LoadProblem;
use manifests::files::Use;
use manifests::kind::{unknown_kind, unserved_kind};
use manifests::objects::Manifest;

/// An object before and after a request.
#[derive(Debug, Clone)]
pub(crate) struct ObjectChange<'o> {
    /// The object, unless it is deleted.
    pub(crate) new: Option<&'o Manifest>,
    /// The object before the change, unless it is created.
    pub(crate) old: Option<&'o Manifest>,
    /// The resource, such as `deployments`.
    pub(crate) resource: String,
    /// The subresource, or empty.
    pub(crate) subresource: String,
    /// The namespace, or empty for cluster-scoped objects.
    pub(crate) namespace: String,
}

impl<'o> ObjectChange<'o> {
    /// Returns the object that the request is about.
    pub(crate) fn object(&self) -> Option<&'o Manifest> {
        self.new.or(self.old)
    }

    /// Returns the operation of the request.
    pub(crate) fn operation(&self) -> Operation {
        match (self.new, self.old) {
            (Some(_), Some(_)) => Operation::Update,
            (None, Some(_)) => Operation::Delete,
            _ => Operation::Create,
        }
    }
}

/// Group, kind, namespace and name.
type ChangeKey<'o> = (&'o str, &'o str, String, &'o str);

/// Returns all changes in the order of the objects, deletions last. `old_kinds` are those of objects before the change, and
/// `namespace` is that of objects that name none.
pub(crate) fn pair<'o>(
    objects: &'o [Manifest],
    old_kinds: &Kinds,
    kinds: &Kinds,
    minor: u8,
    namespace: &str,
    problems: &mut Vec<LoadProblem>,
) -> Vec<ObjectChange<'o>> {
    let mut old: BTreeMap<ChangeKey<'o>, ObjectChange<'o>> = BTreeMap::new();
    let mut changes = Vec::new();
    let mut seen: BTreeMap<ChangeKey<'o>, &Manifest> = BTreeMap::new();
    for (used, kinds) in [(Use::Old, old_kinds), (Use::Check, kinds)] {
        for object in objects.iter().filter(|object| object.used == used && object.is_judged()) {
            let (resource, own) = match resolve(object, kinds, minor, namespace) {
                Ok(found) => found,
                Err(problem) => {
                    problems.push(*problem);
                    continue;
                }
            };
            // The API server generates a new name each time.
            if object.is_generated && used == Use::Old {
                continue;
            }
            let key: ChangeKey<'o> =
                (object.group(), object.kind.as_str(), own.clone(), object.name.as_str());
            let resource = resource.plural.into_owned();
            let mut change =
                ObjectChange { new: None, old: None, resource, subresource: String::new(), namespace: own };
            if used == Use::Old {
                change.old = Some(object);
                match old.entry(key) {
                    Entry::Vacant(entry) => {
                        entry.insert(change);
                    }
                    Entry::Occupied(entry) => {
                        problems.extend(entry.get().old.map(|first| object.duplicate_of(first)));
                    }
                }
                continue;
            }
            if !object.is_generated
                && let Some(first) = seen.insert(key.clone(), object)
            {
                problems.push(object.duplicate_of(first));
                continue;
            }
            change.new = Some(object);
            if !object.is_generated {
                change.old = old.remove(&key).and_then(|before| before.old);
            }
            changes.push(change);
        }
    }
    changes.extend(old.into_values());
    changes
}

/// Returns the notes about new cluster-scoped objects with a namespace.
pub(crate) fn ignored_namespaces(changes: &[ObjectChange<'_>]) -> Vec<String> {
    let new = changes.iter().filter_map(|change| Some((change.new?, &change.namespace)));
    let ignored = new.filter(|(object, namespace)| namespace.is_empty() && !object.namespace.is_empty());
    let note = |(object, _): (&Manifest, &String)| {
        let place = object.place_of(&Path::new("metadata").child("namespace"));
        format!(
            "{}:{}: the API server ignores metadata.namespace of {} \"{}\", which is cluster-scoped",
            place.file, place.line, object.kind, object.name
        )
    };
    ignored.map(note).collect()
}

/// Returns the resource and the namespace of an object, or the reason for which no request is possible. `namespace` is that of
/// objects that name none.
pub(crate) fn resolve<'k>(
    object: &Manifest,
    kinds: &'k Kinds,
    minor: u8,
    namespace: &str,
) -> Result<(KindResource<'k>, String), Box<LoadProblem>> {
    let Some(resource) = kinds.lookup(object.group(), object.version(), &object.kind) else {
        return Err(unknown_kind(object, kinds, minor).into());
    };
    if !resource.minors.contains(&minor) {
        return Err(unserved_kind(object, &resource.minors, minor).into());
    }
    // The API server ignores the namespace of a cluster-scoped object.
    let own = match (resource.namespaced, object.namespace.as_str()) {
        (false, _) => "",
        (true, "") => namespace,
        (true, own) => own,
    };
    if object.name.is_empty() {
        return Err(object.nameless("set metadata.name or metadata.generateName").into());
    }
    Ok((resource, own.to_owned()))
}
