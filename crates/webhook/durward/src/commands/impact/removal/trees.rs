//! Compares two trees of manifests: which objects does the second one no longer have?
//!
//! An object is the same if group, kind, namespace and name are the same. A tool that prunes deletes the others, unless an annotation
//! of that tool keeps them.

use std::collections::HashMap;
use std::path::{Path as FilePath, PathBuf};

use config::Problem;
use console::input::shown;
use manifests::objects::{self, Manifest};
use policy::document::{Content, DocumentNode};
use policy::field::Path;

use super::report::{KeptObject, ObjectName, RemovalReport, RemovedObject};

/// Compares the trees, or returns what is wrong with them. The removed objects of the report are not judged yet. Without `of_any_kind`,
/// they are those that can take others along.
pub(super) fn compare(
    old: &PathBuf,
    new: &PathBuf,
    of_any_kind: bool,
) -> Result<RemovalReport, Vec<Problem>> {
    let stdin = FilePath::new("-");
    if old == stdin && new == stdin {
        return Err(vec![
            Problem::new("OLD and NEW are both standard input").next("use a file for one of them"),
        ]);
    }
    let mut problems = Vec::new();
    let (before, after) = (read(old, &mut problems), read(new, &mut problems));
    if before.is_empty() && problems.is_empty() {
        let problem = Problem::new(format!("{} contains no object", shown(old)));
        problems.push(problem.next("check the command that renders it"));
    }
    let (_, after) = (names(&before, &mut problems), names(&after, &mut problems));
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut report = RemovalReport::default();
    for manifest in &before {
        let object = name(manifest);
        if manifest.is_generated {
            report.generated += 1;
        } else if after.contains_key(&object) {
            // The new tree has it.
        } else if let Some(by) = kept_by(|key| annotation(manifest, key), By::Prune) {
            report.kept.push(KeptObject { object, by });
        } else if of_any_kind || object.takes_along() {
            let (place, note) = (Some(manifest.position()), note(manifest));
            report.removed.push(RemovedObject { object, place, note, ..RemovedObject::default() });
        } else {
            *report.others.entry(object.kind).or_default() += 1;
        }
    }
    Ok(report)
}

fn read(path: &PathBuf, problems: &mut Vec<Problem>) -> Vec<Manifest> {
    let (manifests, unread) = objects::of_paths(std::slice::from_ref(path));
    problems.extend(unread);
    problems.extend(manifests.iter().filter_map(not_rendered));
    manifests
}

/// Returns the names in a tree, and reports those that are there twice.
fn names<'m>(tree: &'m [Manifest], problems: &mut Vec<Problem>) -> HashMap<ObjectName, &'m Manifest> {
    let mut names: HashMap<ObjectName, &Manifest> = HashMap::new();
    for manifest in tree.iter().filter(|manifest| !manifest.is_generated) {
        if let Some(first) = names.get(&name(manifest)) {
            problems.push(manifest.duplicate_of(first).into_problem());
        } else {
            names.insert(name(manifest), manifest);
        }
    }
    names
}

/// Returns the name of an object. Namespaces and CRDs have no namespace, also if a tool writes one.
fn name(manifest: &Manifest) -> ObjectName {
    let mut object = ObjectName {
        group: manifest.group().to_owned(),
        kind: manifest.kind.clone(),
        namespace: manifest.namespace.clone(),
        name: manifest.name.clone(),
    };
    if object.deletion_kind().is_some() {
        object.namespace.clear();
    }
    object
}

/// Reports a name that a template still has to fill.
fn not_rendered(manifest: &Manifest) -> Option<Problem> {
    let fields = [("name", &manifest.name), ("namespace", &manifest.namespace)];
    let (field, text) = fields.into_iter().find(|(_, text)| text.contains("{{") || text.contains("${"))?;
    let path = Path::new("metadata").child(field);
    let problem = manifest.problem(&path, format!("{text:?} is not rendered")).into_problem();
    let file = shown(FilePath::new(&manifest.position().file));
    Some(problem.next(format!(
        "compare rendered manifests, not {file}: helm template, kustomize build, or flux envsubst"
    )))
}

fn annotation(manifest: &Manifest, key: &str) -> Option<String> {
    let annotations = manifest.document.root().field("metadata")?.field("annotations")?;
    let Content::Map(_) = annotations.content else { return None };
    annotations.field(key).and_then(DocumentNode::as_text).map(str::to_owned)
}

/// Why a tool would delete an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// Its manifest is gone.
    Prune,
    /// Argo CD's Application is gone.
    Application,
}

/// Returns the annotation that keeps an object. Helm's annotation keeps it from Argo CD only if its Application goes, and from Helm.
pub(super) fn kept_by(annotation: impl Fn(&str) -> Option<String>, by: By) -> Option<String> {
    const ARGO_CD: &str = "argocd.argoproj.io/sync-options";
    let (option, key, value) = match by {
        By::Prune => ("Prune=false", "kustomize.toolkit.fluxcd.io/prune", "disabled"),
        By::Application => ("Delete=false", HELM, KEEP),
    };
    let has_option = |text: String| text.split(',').any(|one| one.trim() == option);
    if annotation(ARGO_CD).is_some_and(has_option) {
        return Some(format!("{ARGO_CD}: {option}"));
    }
    (annotation(key).as_deref() == Some(value)).then(|| format!("{key}: {value}"))
}

const HELM: &str = "helm.sh/resource-policy";
const KEEP: &str = "keep";

/// Returns what Helm does with an object that Argo CD would prune.
fn note(manifest: &Manifest) -> Option<&'static str> {
    let is_kept = annotation(manifest, HELM).as_deref() == Some(KEEP);
    is_kept.then_some("Helm keeps it (helm.sh/resource-policy: keep), and Argo CD prunes it")
}
