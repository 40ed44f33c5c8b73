//! The objects of all files: read once, in parallel, and kept as JSON. Values are built again when an object is judged, which
//! costs less than the memory of all values.

use std::path::Path as FilePath;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use config::Problem;
use console::input::{self, shown};
use policy::document::{self, Document, Origin, Place};
use policy::field::Path;
use policy::value::{Arena, Value, write_json_up_to};

use crate::files::{File, Use};
use crate::parallel;
use crate::report::{LoadProblem, Position};

/// The API group of policies, their bindings and webhook configurations.
pub(crate) const ADMISSION: &str = "admissionregistration.k8s.io";

/// The API group of documents with cases, before the version, and their kind.
const CASES: (&str, &str) = ("durward.dev/", "Cases");

/// The API group of the files that `kustomize build` reads.
const KUSTOMIZE: &str = "kustomize.config.k8s.io";

/// Largest object in bytes of JSON. An API server accepts 3 MiB. The values of such an object fit into the memory of an evaluation.
const MAX_OBJECT: usize = 8 << 20;

/// Bytes of JSON that the aliases of all files can add to twice the text.
const MAX_REPEATED: usize = 128 << 20;

/// A text and its name.
#[derive(Debug)]
pub(crate) struct Source {
    /// The file as the user named it.
    pub(crate) name: String,
    /// Its text.
    pub(crate) text: String,
}

/// An object of a file.
#[derive(Debug, Clone)]
pub(crate) struct Object {
    pub(crate) source: Arc<Source>,
    pub(crate) origin: Origin,
    pub(crate) used: Use,
    pub(crate) api_version: String,
    pub(crate) kind: String,
    /// Name, or the start of the name that the API server generates.
    pub(crate) name: String,
    pub(crate) is_generated: bool,
    /// `metadata.namespace`, which can be empty for namespaced objects.
    pub(crate) namespace: String,
    /// The whole object.
    pub(crate) json: String,
}

impl Object {
    /// Returns the API group, which is empty for the core group.
    pub(crate) fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Returns the version of the API group.
    pub(crate) fn version(&self) -> &str {
        self.api_version.split_once('/').map_or(self.api_version.as_str(), |(_, version)| version)
    }

    /// Returns whether the object is of a kind in any version.
    pub(crate) fn is(&self, group: &str, kind: &str) -> bool {
        self.kind == kind && self.group() == group
    }

    /// Returns whether the object has cases.
    pub(crate) fn has_cases(&self) -> bool {
        are_cases(&self.api_version, &self.kind)
    }

    /// Returns whether the object is a manifest to judge: no policy, binding or webhook configuration, and no cases.
    pub(crate) fn is_judged(&self) -> bool {
        self.group() != ADMISSION && !self.has_cases()
    }

    /// Returns the place of the object.
    pub(crate) fn position(&self) -> Position {
        self.place_of(&Path::default())
    }

    /// Returns the place of a field, or of the nearest parent that exists.
    pub(crate) fn place_of(&self, path: &Path) -> Position {
        position(&self.source, self.origin.place(&self.source.text, path))
    }

    /// Creates a problem with a field.
    pub(crate) fn problem(&self, path: &Path, message: impl Into<String>) -> LoadProblem {
        LoadProblem {
            position: Some(self.place_of(path)),
            kind: self.kind.clone(),
            name: self.name.clone(),
            field: path.to_string(),
            message: message.into(),
            next: String::new(),
        }
    }

    /// Creates the problem of an object that the input has twice.
    pub(crate) fn duplicate_of(&self, first: &Object) -> LoadProblem {
        let place = first.position();
        let message = format!("the object is in {}:{} too", place.file, place.line);
        LoadProblem {
            next: "remove one of them, or check their directories one by one".to_owned(),
            ..self.problem(&Path::new("metadata").child("name"), message)
        }
    }

    /// Creates the problem of an object without a name.
    pub(crate) fn nameless(&self, next: &str) -> LoadProblem {
        LoadProblem {
            next: next.to_owned(),
            ..self.problem(&Path::new("metadata"), "the object has no name")
        }
    }
}

/// Returns whether a document of a version and kind has cases.
fn are_cases(api_version: &str, kind: &str) -> bool {
    let (group, cases) = CASES;
    kind == cases && api_version.starts_with(group)
}

/// Returns the position of a place in a source.
pub(crate) fn position(source: &Source, place: Place) -> Position {
    Position { file: source.name.clone(), line: place.line, column: place.column }
}

/// All objects in the order of files and lines, and the problems of texts that can't be read.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    pub(crate) all: Vec<Object>,
    pub(crate) problems: Vec<LoadProblem>,
}

/// Reads all files.
pub(crate) fn read(files: &[File]) -> Objects {
    let mut objects = Objects::default();
    let repeated = AtomicUsize::new(0);
    let read = parallel::map(files, "reading", Arena::new, |arena, file| {
        let read = read_file(file, arena, &repeated);
        arena.reset();
        read
    });
    for (found, problems) in read {
        objects.all.extend(found);
        objects.problems.extend(problems);
    }
    objects
}

/// Returns the objects of a file and its problems. `repeated` counts the bytes that aliases add in all files.
fn read_file(file: &File, arena: &Arena, repeated: &AtomicUsize) -> (Vec<Object>, Vec<LoadProblem>) {
    let text = match input::text_or_stdin(&file.path, input::LARGE) {
        Ok(text) => text,
        Err(problem) => return (Vec::new(), vec![unplaced(problem)]),
    };
    let source = Arc::new(Source { name: shown(&file.path), text });
    let documents = match document::read(&source.text, arena) {
        Ok(documents) => documents,
        Err(error) => {
            let problem = LoadProblem {
                position: Some(position(&source, error.place)),
                kind: String::new(),
                name: String::new(),
                field: String::new(),
                message: error.message,
                next: error.next,
            };
            return (Vec::new(), vec![problem]);
        }
    };
    let (mut objects, mut problems) = (Vec::with_capacity(documents.len()), Vec::new());
    // A file can be empty, but a pipe is empty if the command before it failed.
    if documents.is_empty() && file.path == FilePath::new("-") {
        let problem = Problem::new("standard input contains no document");
        problems.push(unplaced(problem.next("check the command that should write the manifests")));
    }
    let mut written = 0;
    for document in documents {
        let object = object(&source, document.origin(), document.value(), file.used);
        written += object.json.len();
        let added = object.json.len().min(written.saturating_sub(2 * source.text.len()));
        let is_bounded = repeated.fetch_add(added, Ordering::Relaxed) + added <= MAX_REPEATED;
        if object.json.len() > MAX_OBJECT || !is_bounded {
            problems.push(too_large(object));
            if is_bounded {
                continue;
            }
            break;
        }
        match not_a_single_object(&document).or_else(|| not_an_object(document.value())) {
            None => objects.push(object),
            Some((path, message)) => problems.push(unusable(&object, &path, message, file)),
        }
    }
    (objects, problems)
}

/// Returns the problem of an object that is larger than any API server accepts.
fn too_large(object: Object) -> LoadProblem {
    // The names can be as large.
    let object = Object { kind: String::new(), name: String::new(), ..object };
    let message = "the object, or the text that aliases repeat, is too large";
    LoadProblem {
        next: "split the object, and write values instead of aliases; an API server accepts 3 MiB".to_owned(),
        ..object.problem(&Path::default(), message)
    }
}

/// Returns the problem of a document that is not a Kubernetes object.
fn unusable(object: &Object, path: &Path, message: String, file: &File) -> LoadProblem {
    let name = file.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let (build, leave_out) = match file.used {
        Use::Check => {
            ("kustomize build DIR | durward check -", format!("check its directory with --ignore {name}"))
        }
        Use::Fact => ("kustomize build DIR > FILE", "name the other files: --with FILE".to_owned()),
        Use::Old => ("kustomize build DIR > FILE", "name the other files: --old FILE".to_owned()),
        Use::Other => ("kustomize build DIR > FILE", "name the other files".to_owned()),
    };
    if object.group() == KUSTOMIZE || name.starts_with("kustomization.y") {
        return LoadProblem {
            next: format!("{build}; or {leave_out}"),
            ..object.problem(&Path::default(), "a kustomization is not a cluster object")
        };
    }
    let next = match name {
        "-" => "remove it".to_owned(),
        _ => format!("remove it, or {leave_out}"),
    };
    LoadProblem { next, ..object.problem(path, message) }
}

/// Returns a problem of a file that has no position.
pub(crate) fn unplaced(problem: Problem) -> LoadProblem {
    let place =
        problem.place.map(|place| Position { file: place.file, line: place.line, column: place.column });
    LoadProblem {
        position: place,
        kind: String::new(),
        name: String::new(),
        field: String::new(),
        message: match problem.why {
            Some(why) => format!("{}: {why}", problem.what),
            None => problem.what,
        },
        next: problem.next.unwrap_or_default(),
    }
}

pub(super) fn object(source: &Arc<Source>, origin: Origin, value: Value<'_>, used: Use) -> Object {
    let metadata = value.field("metadata").unwrap_or_default();
    let text = |value: Value<'_>, field: &str| {
        value.field(field).and_then(|value| value.as_str()).unwrap_or_default().to_owned()
    };
    let mut name = text(metadata, "name");
    let is_generated = name.is_empty();
    if is_generated {
        name = text(metadata, "generateName");
    }
    Object {
        source: Arc::clone(source),
        origin,
        used,
        api_version: text(value, "apiVersion"),
        kind: text(value, "kind"),
        name,
        is_generated,
        namespace: text(metadata, "namespace"),
        json: write_json_up_to(value, MAX_OBJECT),
    }
}

/// Returns why a document with items is neither a list nor an object. The reader of documents has taken the items out of lists.
fn not_a_single_object(document: &Document<'_>) -> Option<(Path, String)> {
    let Some(Value::List(items)) = document.value().field("items") else { return None };
    if !document.origin().item().is_empty() {
        return Some((Path::new("items"), "a list in a list is not supported by kubectl".to_owned()));
    }
    let text = |field: &str| document.value().field(field).and_then(|value| value.as_str());
    let (version, kind) = (text("apiVersion")?, text("kind")?);
    let message = format!("kubectl knows no list of kind {kind} in {version}");
    (!items.is_empty()).then(|| (Path::new("kind"), message))
}

/// Returns why a document is not a Kubernetes object.
pub(super) fn not_an_object(value: Value<'_>) -> Option<(Path, String)> {
    let Value::Object(_) = value else {
        return Some((Path::default(), "a Kubernetes object is a map".to_owned()));
    };
    for field in ["apiVersion", "kind"] {
        match value.field(field) {
            Some(Value::String(text)) if !text.is_empty() => {}
            Some(Value::String(_)) | None => {
                return Some((
                    Path::default(),
                    format!("this is not a Kubernetes object: {field} is missing"),
                ));
            }
            Some(_) => return Some((Path::new(field), format!("{field} must be a text"))),
        }
    }
    let text = |field: &str| value.field(field).and_then(|value| value.as_str()).unwrap_or_default();
    if are_cases(text("apiVersion"), text("kind")) {
        return None;
    }
    if text("apiVersion").split('/').next() == Some(KUSTOMIZE) {
        return Some((Path::new("kind"), format!("{} is not a cluster object", text("kind"))));
    }
    let metadata = value.field("metadata");
    if !matches!(metadata, Some(Value::Object(_))) {
        return Some(match metadata {
            None => (Path::default(), "metadata.name is missing".to_owned()),
            Some(_) => (Path::new("metadata"), "metadata must be a map".to_owned()),
        });
    }
    for field in ["name", "generateName", "namespace"] {
        let value = metadata.and_then(|metadata| metadata.field(field)).unwrap_or_default();
        if !matches!(value, Value::String(_) | Value::Null) {
            return Some((Path::new("metadata").child(field), format!("{field} must be a text in quotes")));
        }
    }
    None
}
