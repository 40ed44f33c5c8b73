//! The data that an expression reads: the fields of `object`, for positions in messages, facts of the cluster, and `oldSelf`.

use super::ast::{Expr, ExprKind, Literal};
use super::environment::OLD_SELF;
use super::operators;
use crate::field::{Path, PathStep};

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
    /// Whether the authorizer is asked.
    pub(crate) authorizer: bool,
    /// The part of the request's Namespace that is read.
    pub(crate) namespace: NamespacePart,
    /// Whether the name `oldSelf` occurs, which makes a rule of a CRD a transition rule.
    pub(crate) old_self: bool,
}

/// A part of a Namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NamespacePart {
    #[default]
    Nothing,
    NameAndLabels,
    More,
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

/// The paths of a variable's fields that an expression reads. The empty path is the whole value.
pub(crate) type Selected = Vec<Path>;

/// Collects the fields of a variable that an expression reads.
pub(crate) fn selected(expr: &Expr, variable: &str) -> Selected {
    let mut paths = Vec::new();
    expr.walk_while(&mut |expr| match selection(expr) {
        Some((root, path)) => {
            paths.extend((root == variable).then_some(path));
            false
        }
        None => true,
    });
    paths
}

/// Collects what an expression reads.
pub(crate) fn reads(expr: &Expr) -> Reads {
    let mut found = Reads::default();
    expr.walk_while(&mut |expr| {
        if is_compared_with_null(expr) {
            return false;
        }
        let Some((root, path)) = selection(expr) else { return true };
        match root {
            "object" => found.add(&path),
            "variables" => found.variables.extend(path.first_field().map(str::to_owned)),
            "oldObject" => {}
            "authorizer" => found.authorizer = true,
            "namespaceObject" => {
                let part =
                    if is_name_or_label(&path) { NamespacePart::NameAndLabels } else { NamespacePart::More };
                found.namespace = found.namespace.max(part);
            }
            OLD_SELF => {
                found.old_self = true;
                return false;
            }
            _ => return true,
        }
        found.server_fields |= matches!(root, "object" | "oldObject") && has_server_fields(&path);
        false
    });
    found
}

/// Returns whether an expression only asks whether a request has a Namespace.
fn is_compared_with_null(expr: &Expr) -> bool {
    let ExprKind::Call { function, target: None, args } = &expr.kind else { return false };
    let [left, right] = args.as_slice() else { return false };
    let is_namespace = |expr: &Expr| matches!(&expr.kind, ExprKind::Ident(name) if name == "namespaceObject");
    let is_null = |expr: &Expr| matches!(expr.kind, ExprKind::Literal(Literal::Null));
    matches!(function.as_str(), operators::EQUALS | operators::NOT_EQUALS)
        && (is_namespace(left) && is_null(right) || is_null(left) && is_namespace(right))
}

/// Returns whether a path of a Namespace is its name, its labels or one of them.
fn is_name_or_label(path: &Path) -> bool {
    let mut fields = path.steps().iter().map(|step| match step {
        PathStep::Field(name) => name.as_str(),
        PathStep::Index(_) | PathStep::Key(_) => "",
    });
    fields.next() == Some("metadata") && matches!(fields.next(), Some("name" | "labels"))
}

/// Returns whether a path names a field that the API server sets, or contains them all.
fn has_server_fields(path: &Path) -> bool {
    match path.steps() {
        [] => true,
        [PathStep::Field(metadata)] => metadata == "metadata",
        [PathStep::Field(metadata), PathStep::Field(field), ..] => {
            metadata == "metadata" && SERVER_FIELDS.contains(&field.as_str())
        }
        _ => false,
    }
}

/// The variable and the path of a chain of selections with constant keys.
fn selection(expr: &Expr) -> Option<(&str, Path)> {
    match &expr.kind {
        // A leading dot names the same variable.
        ExprKind::Ident(name) => Some((name.strip_prefix('.').unwrap_or(name), Path::default())),
        ExprKind::Select { operand, field, .. } => {
            let (root, path) = selection(operand)?;
            Some((root, path.child(field)))
        }
        ExprKind::Call { function, target: None, args }
            if matches!(
                function.as_str(),
                operators::INDEX | operators::OPT_INDEX | operators::OPT_SELECT
            ) =>
        {
            let [operand, key] = args.as_slice() else { return None };
            let (root, path) = selection(operand)?;
            match &key.kind {
                ExprKind::Literal(Literal::String(field)) => Some((root, path.child(field))),
                ExprKind::Literal(Literal::Int(index)) => {
                    Some((root, path.index(usize::try_from(*index).ok()?)))
                }
                _ => None,
            }
        }
        _ => None,
    }
}
