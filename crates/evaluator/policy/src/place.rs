//! The place of a value, as the API server's validation names it.

use std::fmt;

use crate::field::Path;

/// A path that grows without allocation.
#[derive(Clone, Copy)]
pub(crate) struct ValuePlace<'p> {
    above: Option<&'p ValuePlace<'p>>,
    step: PlaceStep<'p>,
}

#[derive(Clone, Copy)]
enum PlaceStep<'p> {
    Root,
    Property(&'p str),
    /// A field that `additionalProperties` describes. A root has a dot before it.
    Entry(&'p str),
    Index(usize),
    /// An entry of a map, which rules name by its key.
    Key(&'p str),
}

impl<'p> ValuePlace<'p> {
    pub(crate) fn root() -> Self {
        Self { above: None, step: PlaceStep::Root }
    }

    pub(crate) fn property(&'p self, name: &'p str) -> Self {
        Self { above: Some(self), step: PlaceStep::Property(name) }
    }

    pub(crate) fn entry(&'p self, name: &'p str) -> Self {
        Self { above: Some(self), step: PlaceStep::Entry(name) }
    }

    pub(crate) fn index(&'p self, index: usize) -> Self {
        Self { above: Some(self), step: PlaceStep::Index(index) }
    }

    pub(crate) fn key(&'p self, name: &'p str) -> Self {
        Self { above: Some(self), step: PlaceStep::Key(name) }
    }

    pub(crate) fn is_root(&self) -> bool {
        matches!(self.step, PlaceStep::Root)
    }

    /// The path below a base. The API server adds the whole name as one field.
    pub(crate) fn path(&self, base: &Path) -> Path {
        let Some(above) = self.above else { return base.clone() };
        let path = above.path(base);
        match self.step {
            PlaceStep::Root => path,
            PlaceStep::Property(name) | PlaceStep::Entry(name) => path.child(name),
            PlaceStep::Index(index) if above.is_root() && !base.is_empty() => {
                path.child(&format!("[{index}]"))
            }
            PlaceStep::Index(index) => path.index(index),
            PlaceStep::Key(name) => path.key(name),
        }
    }
}

impl fmt::Display for ValuePlace<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(above) = self.above {
            above.fmt(formatter)?;
        }
        match self.step {
            PlaceStep::Root => Ok(()),
            PlaceStep::Property(name) if self.above.is_some_and(ValuePlace::is_root) => {
                formatter.write_str(name)
            }
            PlaceStep::Property(name) | PlaceStep::Entry(name) => write!(formatter, ".{name}"),
            PlaceStep::Index(index) => write!(formatter, "[{index}]"),
            PlaceStep::Key(name) => write!(formatter, "[{name}]"),
        }
    }
}
