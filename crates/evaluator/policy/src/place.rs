//! The place of a value, as the API server's validation names it.

use std::fmt;

use crate::field::Path;

/// A path that grows without allocation.
#[derive(Clone, Copy)]
pub(crate) struct Place<'p> {
    above: Option<&'p Place<'p>>,
    step: Step<'p>,
}

#[derive(Clone, Copy)]
enum Step<'p> {
    Root,
    Property(&'p str),
    /// A field that `additionalProperties` describes. A root has a dot before it.
    Entry(&'p str),
    Index(usize),
    /// An entry of a map, which rules name by its key.
    Key(&'p str),
}

impl<'p> Place<'p> {
    pub(crate) fn root() -> Self {
        Self { above: None, step: Step::Root }
    }

    pub(crate) fn property(&'p self, name: &'p str) -> Self {
        Self { above: Some(self), step: Step::Property(name) }
    }

    pub(crate) fn entry(&'p self, name: &'p str) -> Self {
        Self { above: Some(self), step: Step::Entry(name) }
    }

    pub(crate) fn index(&'p self, index: usize) -> Self {
        Self { above: Some(self), step: Step::Index(index) }
    }

    pub(crate) fn key(&'p self, name: &'p str) -> Self {
        Self { above: Some(self), step: Step::Key(name) }
    }

    pub(crate) fn is_root(&self) -> bool {
        matches!(self.step, Step::Root)
    }

    /// The path below a base. The API server adds the whole name as one field.
    pub(crate) fn path(&self, base: &Path) -> Path {
        let Some(above) = self.above else { return base.clone() };
        let path = above.path(base);
        match self.step {
            Step::Root => path,
            Step::Property(name) | Step::Entry(name) => path.child(name),
            Step::Index(index) if above.is_root() && !base.is_empty() => path.child(&format!("[{index}]")),
            Step::Index(index) => path.index(index),
            Step::Key(name) => path.key(name),
        }
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(above) = self.above {
            above.fmt(formatter)?;
        }
        match self.step {
            Step::Root => Ok(()),
            Step::Property(name) if self.above.is_some_and(Place::is_root) => formatter.write_str(name),
            Step::Property(name) | Step::Entry(name) => write!(formatter, ".{name}"),
            Step::Index(index) => write!(formatter, "[{index}]"),
            Step::Key(name) => write!(formatter, "[{name}]"),
        }
    }
}
