//! The objects of all files: read once, in parallel, and kept as trees with positions.

use std::path::Path as FilePath;
use std::path::PathBuf;
use std::sync::Arc;

use config::{Place, Problem};
use console::input::{self, shown};
use policy::document::{self, Content, Document, DocumentNode};
use policy::field::Path;
use policy::value::{Arena, Value};

use crate::LoadProblem;
use crate::files::{self, InputFile, Use};
use crate::parallel;

/// The API group of policies, their bindings and webhook configurations.
pub const ADMISSION: &str = "admissionregistration.k8s.io";

/// The API group of documents with cases, before the version, and their kind.
const CASES: (&str, &str) = ("durward.dev/", "Cases");

/// The API group of the files that `kustomize build` reads.
const KUSTOMIZE: &str = "kustomize.config.k8s.io";

/// The next step for a template.
const RENDER: &str = "the file looks like a template; render it first: helm template NAME CHART > FILE";

/// Memory of the values of one object, which fit into an evaluation. An API server accepts 3 MiB of text.
const MAX_OBJECT: usize = 64 << 20;

/// A text and its name.
#[derive(Debug)]
pub struct SourceText {
    /// The file as the user named it.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// An object of a file.
#[derive(Debug, Clone)]
pub struct Manifest {
    /// The text that contains the object.
    pub source: Arc<SourceText>,
    /// The object, with its places.
    pub document: Arc<Document>,
    /// The use of its file.
    pub used: Use,
    /// `apiVersion`
    pub api_version: String,
    /// `kind`
    pub kind: String,
    /// Name, or the start of the name that the API server generates.
    pub name: String,
    /// Whether the API server generates the name.
    pub is_generated: bool,
    /// `metadata.namespace`, which can be empty for namespaced objects.
    pub namespace: String,
}

impl Manifest {
    /// Returns the API group, which is empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Returns the version of the API group.
    pub fn version(&self) -> &str {
        self.api_version.split_once('/').map_or(self.api_version.as_str(), |(_, version)| version)
    }

    /// Returns the name, unless the API server generates it.
    pub fn given_name(&self) -> Option<&str> {
        Some(self.name.as_str()).filter(|_| !self.is_generated)
    }

    /// Returns whether the object is of a kind in any version.
    pub fn is(&self, group: &str, kind: &str) -> bool {
        self.kind == kind && self.group() == group
    }

    /// Returns whether the object has cases.
    pub fn has_cases(&self) -> bool {
        are_cases(&self.api_version, &self.kind)
    }

    /// Returns whether the object is a manifest to judge: no policy, binding or webhook configuration, and no cases.
    pub fn is_judged(&self) -> bool {
        self.group() != ADMISSION && !self.has_cases()
    }

    /// Returns the object as a value, which is complete unless the arena is full.
    pub fn value<'a>(&self, arena: &'a Arena) -> Value<'a> {
        self.document.value(arena)
    }

    /// Returns the place of the object.
    pub fn position(&self) -> Place {
        self.place_of(&Path::default())
    }

    /// Returns the place of a field, or of the nearest parent that exists.
    pub fn place_of(&self, path: &Path) -> Place {
        position(&self.source, self.document.place(path))
    }

    /// Creates a problem with a field.
    pub fn problem(&self, path: &Path, message: impl Into<String>) -> LoadProblem {
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
    pub fn duplicate_of(&self, first: &Manifest) -> LoadProblem {
        let place = first.position();
        let message = format!("the object is in {}:{} too", place.file, place.line);
        LoadProblem {
            next: "remove one of them, or check their directories one by one".to_owned(),
            ..self.problem(&Path::new("metadata").child("name"), message)
        }
    }

    /// Creates the problem of an object without a name.
    pub fn nameless(&self, next: &str) -> LoadProblem {
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
fn position(source: &SourceText, place: document::Position) -> Place {
    Place { file: source.name.clone(), line: place.line, column: place.column }
}

/// Reads the objects of files and directories, and of standard input for `-`, for another command than `check`.
pub fn of_paths(paths: &[PathBuf]) -> (Vec<Manifest>, Vec<Problem>) {
    let (files, unread) = files::find(&[(paths, Use::Other)], &[]);
    let (objects, problems) = read(&files);
    let problems = problems.into_iter().map(LoadProblem::into_problem);
    (objects, unread.into_iter().chain(problems).collect())
}

/// Reads all files. Returns the objects in the order of files and lines, and the problems of texts that can't be read.
pub fn read(files: &[InputFile]) -> (Vec<Manifest>, Vec<LoadProblem>) {
    let read = parallel::map(files, "reading", || (), |(), file| read_file(file));
    let (objects, problems): (Vec<_>, Vec<_>) = read.into_iter().unzip();
    (objects.into_iter().flatten().collect(), problems.into_iter().flatten().collect())
}

/// Returns the objects of a file and its problems.
fn read_file(file: &InputFile) -> (Vec<Manifest>, Vec<LoadProblem>) {
    let text = match input::text_or_stdin(&file.path, input::LARGE) {
        Ok(text) => text,
        Err(problem) => return (Vec::new(), vec![LoadProblem::unplaced(problem)]),
    };
    let source = Arc::new(SourceText { name: shown(&file.path), text });
    let documents = match document::read(&source.text) {
        Ok(documents) => documents,
        Err(error) => {
            let place = position(&source, error.place);
            let next = if source.text.contains("{{") { RENDER.to_owned() } else { error.next };
            let problem = Problem::new(error.message).at(place).next(next);
            return (Vec::new(), vec![LoadProblem::unplaced(problem)]);
        }
    };
    let (mut objects, mut problems) = (Vec::with_capacity(documents.len()), Vec::new());
    // A file can be empty, but a pipe is empty if the command before it failed.
    if documents.is_empty() && file.path == FilePath::new("-") {
        let problem = Problem::new("standard input contains no document");
        problems
            .push(LoadProblem::unplaced(problem.next("check the command that should write the manifests")));
    }
    for document in documents {
        let object = object(&source, document, file.used);
        if object.document.root().size() > MAX_OBJECT {
            problems.push(too_large(object));
            continue;
        }
        match not_a_single_object(&object.document).or_else(|| not_an_object(object.document.root())) {
            None => objects.push(object),
            Some((path, message)) => problems.push(unusable(&object, &path, message, file)),
        }
    }
    (objects, problems)
}

/// Returns the problem of an object that is larger than any API server accepts.
fn too_large(object: Manifest) -> LoadProblem {
    // The names can be as large.
    let object = Manifest { kind: String::new(), name: String::new(), ..object };
    LoadProblem {
        next: "split the object, and write values instead of aliases; an API server accepts 3 MiB".to_owned(),
        ..object.problem(&Path::default(), "the object is too large")
    }
}

/// Returns the problem of a document that is not a Kubernetes object.
fn unusable(object: &Manifest, path: &Path, message: String, file: &InputFile) -> LoadProblem {
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
        "Chart.yaml" | "values.yaml" if file.used == Use::Other => RENDER.to_owned(),
        "-" => "remove it".to_owned(),
        _ => format!("remove it, or {leave_out}"),
    };
    LoadProblem { next, ..object.problem(path, message) }
}

/// Creates the object of a document.
pub fn object(source: &Arc<SourceText>, document: Document, used: Use) -> Manifest {
    let root = document.root();
    let text = |node: Option<&DocumentNode>, field: &str| {
        node.and_then(|node| node.field(field)?.as_text()).unwrap_or_default().to_owned()
    };
    let metadata = root.field("metadata");
    let mut name = text(metadata, "name");
    let is_generated = name.is_empty();
    if is_generated {
        name = text(metadata, "generateName");
    }
    Manifest {
        source: Arc::clone(source),
        used,
        api_version: text(Some(root), "apiVersion"),
        kind: text(Some(root), "kind"),
        name,
        is_generated,
        namespace: text(metadata, "namespace"),
        document: Arc::new(document),
    }
}

/// Returns why a document with items is neither a list nor an object. The reader of documents has taken the items out of lists.
fn not_a_single_object(document: &Document) -> Option<(Path, String)> {
    let root = document.root();
    let Content::List(items) = &root.field("items")?.content else { return None };
    if !document.item().is_empty() {
        return Some((Path::new("items"), "a list in a list is not supported by kubectl".to_owned()));
    }
    let text = |field: &str| root.field(field)?.as_text();
    let message = format!("kubectl knows no list of kind {} in {}", text("kind")?, text("apiVersion")?);
    (!items.is_empty()).then(|| (Path::new("kind"), message))
}

/// Returns why a document is not a Kubernetes object.
pub fn not_an_object(root: &DocumentNode) -> Option<(Path, String)> {
    let Content::Map(_) = root.content else {
        return Some((Path::default(), "a Kubernetes object is a map".to_owned()));
    };
    for field in ["apiVersion", "kind"] {
        match root.field(field).map(|node| (node, node.as_text())) {
            Some((_, Some(text))) if !text.is_empty() => {}
            Some((_, Some(_))) | None => {
                let message = format!("this is not a Kubernetes object: {field} is missing");
                return Some((Path::default(), message));
            }
            Some((_, None)) => return Some((Path::new(field), format!("{field} must be a text"))),
        }
    }
    let text = |field: &str| root.field(field).and_then(DocumentNode::as_text).unwrap_or_default();
    if are_cases(text("apiVersion"), text("kind")) {
        return None;
    }
    if text("apiVersion").split('/').next() == Some(KUSTOMIZE) {
        return Some((Path::new("kind"), format!("{} is not a cluster object", text("kind"))));
    }
    let metadata = match root.field("metadata") {
        None => return Some((Path::default(), "metadata.name is missing".to_owned())),
        Some(metadata) if matches!(metadata.content, Content::Map(_)) => metadata,
        Some(_) => return Some((Path::new("metadata"), "metadata must be a map".to_owned())),
    };
    let is_text = |node: &DocumentNode| matches!(node.content, Content::Text(_) | Content::Null);
    let wrong = ["name", "generateName", "namespace"]
        .into_iter()
        .find(|field| !metadata.field(field).is_none_or(is_text))?;
    Some((Path::new("metadata").child(wrong), format!("{wrong} must be a text in quotes")))
}
