//! Manifests of files and directories, for other commands: read as `check` reads them, with the same limits and problems.

use std::path::PathBuf;

use config::{Place, Problem};
use policy::field::Path;

use crate::context::Places;
use crate::files::{self, Use};
use crate::objects::{self, Object};
use crate::report::{LoadProblem, Position};

/// An object of a file.
pub struct Manifest(Object);

/// Reads the objects of files and directories, and of standard input for `-`.
pub fn read(paths: &[PathBuf]) -> (Vec<Manifest>, Vec<Problem>) {
    let (files, unread) = files::find(&[(paths, Use::Other)], &[]);
    let read = objects::read(&files);
    let problems = read.problems.into_iter().map(LoadProblem::into_problem);
    (read.all.into_iter().map(Manifest).collect(), unread.into_iter().chain(problems).collect())
}

impl Manifest {
    /// Returns whether the object is of a kind, in any version.
    pub fn is(&self, group: &str, kind: &str) -> bool {
        self.0.is(group, kind)
    }

    /// Returns `apiVersion`.
    pub fn api_version(&self) -> &str {
        &self.0.api_version
    }

    /// Returns the version of the API group.
    pub fn version(&self) -> &str {
        self.0.version()
    }

    /// Returns the kind.
    pub fn kind(&self) -> &str {
        &self.0.kind
    }

    /// Returns the namespace, which can be empty for namespaced objects.
    pub fn namespace(&self) -> &str {
        &self.0.namespace
    }

    /// Returns the name, or `None` if the API server would generate one.
    pub fn name(&self) -> Option<&str> {
        Some(self.0.name.as_str()).filter(|_| !self.0.is_generated)
    }

    /// Returns the whole object.
    pub fn json(&self) -> &str {
        &self.0.json
    }

    /// Returns the place of a field, or of its nearest parent that exists.
    pub fn place(&self, path: &Path) -> Place {
        place(self.0.place_of(path))
    }

    /// Returns the places of fields, or of their nearest parents that exist.
    pub fn places(&self, paths: &[&Path]) -> Vec<Place> {
        let places = Places::new(&self.0);
        paths.iter().map(|path| place(places.place_of(path))).collect()
    }

    /// Creates a problem with a field.
    pub fn problem(&self, path: &Path, message: impl Into<String>) -> Problem {
        self.0.problem(path, message).into_problem()
    }
}

fn place(position: Position) -> Place {
    Place { file: position.file, line: position.line, column: position.column }
}
