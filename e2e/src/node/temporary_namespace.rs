//! A namespace on the node, which ends with the case: a node has room for so many pods and no more.

use std::ops::Deref;

use crate::console::print;
use crate::namespace::Namespace;

/// A namespace that is deleted, with all that runs in it, when this is dropped. That nobody waits for.
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
