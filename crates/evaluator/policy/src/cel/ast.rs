//! The syntax tree of an expression.
//!
//! Every node has an id, which the checker uses to record types and overloads, and the offset in code points that cel-go prints
//! in errors about the node.

/// A node.
#[derive(Clone, Debug)]
pub(crate) struct Expr {
    pub(crate) id: usize,
    pub(crate) offset: usize,
    pub(crate) kind: ExprKind,
}

/// The forms of a node.
#[derive(Clone, Debug)]
pub(crate) enum ExprKind {
    /// The place of a syntax error.
    Unspecified,
    Literal(Literal),
    Ident(String),
    Select {
        operand: Box<Expr>,
        field: String,
        test_only: bool,
    },
    Call {
        function: String,
        target: Option<Box<Expr>>,
        args: Vec<Expr>,
    },
    List {
        elements: Vec<Expr>,
        optional: Vec<bool>,
    },
    Map(Vec<MapEntry>),
    Struct {
        name: String,
        /// The values of the fields.
        fields: Vec<Expr>,
    },
    Comprehension(Box<Comprehension>),
}

/// A constant.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(String),
    Bytes(Vec<u8>),
}

/// An entry of a map.
#[derive(Clone, Debug)]
pub(crate) struct MapEntry {
    pub(crate) key: Expr,
    pub(crate) value: Expr,
    pub(crate) optional: bool,
}

/// A loop: the form of `all`, `exists`, `map` and the other macros.
#[derive(Clone, Debug)]
pub(crate) struct Comprehension {
    pub(crate) range: Expr,
    pub(crate) variable: String,
    pub(crate) second_variable: Option<String>,
    pub(crate) accumulator: String,
    pub(crate) init: Expr,
    pub(crate) condition: Expr,
    pub(crate) step: Expr,
    pub(crate) result: Expr,
}

impl Expr {
    /// The dotted name that an expression of identifiers and selections spells.
    pub(crate) fn qualified_name(&self) -> Option<String> {
        match &self.kind {
            ExprKind::Ident(name) => Some(name.clone()),
            ExprKind::Select { operand, field, test_only: false } => {
                Some(format!("{}.{field}", operand.qualified_name()?))
            }
            _ => None,
        }
    }

    /// Calls `visit` for every node, parents first.
    pub(crate) fn walk<'e>(&'e self, visit: &mut dyn FnMut(&'e Expr)) {
        self.walk_while(&mut |expr| {
            visit(expr);
            true
        });
    }

    /// Calls `visit` for nodes, parents first. If it returns false, the node's children are left out.
    pub(crate) fn walk_while<'e>(&'e self, visit: &mut dyn FnMut(&'e Expr) -> bool) {
        if !visit(self) {
            return;
        }
        match &self.kind {
            ExprKind::Unspecified | ExprKind::Literal(_) | ExprKind::Ident(_) => {}
            ExprKind::Select { operand, .. } => operand.walk_while(visit),
            ExprKind::Call { target, args, .. } => {
                if let Some(target) = target {
                    target.walk_while(visit);
                }
                for arg in args {
                    arg.walk_while(visit);
                }
            }
            ExprKind::List { elements, .. } => elements.iter().for_each(|element| element.walk_while(visit)),
            ExprKind::Map(entries) => {
                for entry in entries {
                    entry.key.walk_while(visit);
                    entry.value.walk_while(visit);
                }
            }
            ExprKind::Struct { fields, .. } => fields.iter().for_each(|value| value.walk_while(visit)),
            ExprKind::Comprehension(comprehension) => {
                for child in [
                    &comprehension.range,
                    &comprehension.init,
                    &comprehension.condition,
                    &comprehension.step,
                    &comprehension.result,
                ] {
                    child.walk_while(visit);
                }
            }
        }
    }
}
