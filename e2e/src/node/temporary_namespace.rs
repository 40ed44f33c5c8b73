//! A namespace on the node that ends with the case, because the number of pods on a node is limited.

use std::ops::Deref;

use crate::console::print;
use crate::namespace::Namespace;

/// A namespace that is deleted, with everything in it, when this is dropped. The deletion is not awaited.
#[derive(Debug)]
#[must_use = "the namespace is deleted when this is dropped"]
pub struct TemporaryNamespace<'a>(pub(super) Namespace<'a>);

impl<'a> Deref for TemporaryNamespace<'a> {
    type Target = Namespace<'a>;

    fn deref(&self) -> &Namespace<'a> {
        &self.0
    }
}

impl Drop for TemporaryNamespace<'_> {
    fn drop(&mut self) {
        let path = format!("/api/v1/namespaces/{}", self.0.name());
        if let Err(error) = self.0.cluster().api().delete(&path).and_then(crate::api::Answer::succeeded) {
            print(format_args!("namespace {} could not be deleted: {error:#}", self.0.name()));
        }
    }
}
