//! The fields of `object` that an expression reads, for positions in messages, and whether it reads `oldSelf`.

use super::ast::{Expr, Kind, Literal};
use super::environment::OLD_SELF;
use super::operators;
use crate::field::{Path, Step};

/// Metadata that the API server sets.
const SERVER_FIELDS: [&str; 4] = ["uid", "creationTimestamp", "generation", "managedFields"];

/// The fields and variables that an expression reads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reads {
    /// The longest path that all read fields of `object` have in common; absent if no field is read.
    pub(crate) object: Option<Path>,
    /// Names of the policy's variables.
    pub(crate) variables: Vec<String>,
    /// Whether a field that the API server sets is read, or all metadata.
    pub(crate) server_fields: bool,
    /// Whether the name `oldSelf` occurs, which makes a rule of a CRD a transition rule.
    pub(crate) old_self: bool,
}

impl Reads {
    /// Adds a field.
    pub(crate) fn add(&mut self, path: &Path) {
        self.object = Some(match &self.object {
            Some(known) => known.common(path),
            None => path.clone(),
        });
    }
}

/// Collects what an expression reads.
pub(crate) fn reads(expr: &Expr) -> Reads {
    let mut found = Reads::default();
    expr.walk_while(&mut |expr| {
        let Some((root, path)) = selection(expr) else { return true };
        match root {
            "object" => found.add(&path),
            "variables" => found.variables.extend(path.first_field().map(str::to_owned)),
            "oldObject" => {}
            OLD_SELF => {
                found.old_self = true;
                return false;
            }
            _ => return true,
        }
        found.server_fields |= root != "variables" && has_server_fields(&path);
        false
    });
    found
}

/// Returns whether a path names a field that the API server sets, or contains them all.
fn has_server_fields(path: &Path) -> bool {
    match path.steps() {
        [] => true,
        [Step::Field(metadata)] => metadata == "metadata",
        [Step::Field(metadata), Step::Field(field), ..] => {
            metadata == "metadata" && SERVER_FIELDS.contains(&field.as_str())
        }
        _ => false,
    }
}

/// The variable and the path of a chain of selections with constant keys.
fn selection(expr: &Expr) -> Option<(&str, Path)> {
    match &expr.kind {
        Kind::Ident(name) => Some((name, Path::default())),
        Kind::Select { operand, field, .. } => {
            let (root, path) = selection(operand)?;
            Some((root, path.child(field)))
        }
        Kind::Call { function, target: None, args }
            if matches!(
                function.as_str(),
                operators::INDEX | operators::OPT_INDEX | operators::OPT_SELECT
            ) =>
        {
            let [operand, key] = args.as_slice() else { return None };
            let (root, path) = selection(operand)?;
            match &key.kind {
                Kind::Literal(Literal::String(field)) => Some((root, path.child(field))),
                Kind::Literal(Literal::Int(index)) => Some((root, path.index(usize::try_from(*index).ok()?))),
                _ => None,
            }
        }
        _ => None,
    }
}
