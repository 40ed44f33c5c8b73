//! Expressions over two objects: `object`, and `by`, which may use it.
//!
//! They have the functions, the types and the cost limit of expressions in admission policies. No other variable exists.

use std::fmt;

use crate::cel::environment::Environment;
use crate::cel::eval::{Activation, EvalInput, Nothing};
use crate::cel::outcome::{EvalContext, EvalResult};
use crate::cel::program::Program;
use crate::cel::reads::Selected;
use crate::cel::types::CelType;
use crate::expression::{EXPRESSION_LIMIT, ExpressionError, Refused, failure, library};
use crate::field::{Path, PathStep};
use crate::release::{NEWEST, Release};
use crate::schema::Schema;
use crate::value::{Arena, Value};

/// One of the two objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// `object`, which is used.
    Object,
    /// `by`, which uses it.
    By,
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Self::Object => OBJECT,
            Self::By => BY,
        }
    }
}

const OBJECT: &str = "object";
const BY: &str = "by";

/// A compiled expression over `object` and perhaps `by`. It has the newest functions, because no API server evaluates it.
pub struct Relation {
    program: Program,
    /// The read fields of `object` and `by`.
    selected: [Selected; 2],
}

impl fmt::Debug for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relation").finish_non_exhaustive()
    }
}

impl Relation {
    /// Compiles an expression over both objects, which must be a bool.
    pub fn condition(source: &str) -> Result<Self, Refused> {
        Self::compile(source, &[OBJECT, BY], &[CelType::Bool])
    }

    /// Compiles an expression over `object` alone, which must be a string.
    pub fn text(source: &str) -> Result<Self, Refused> {
        Self::compile(source, &[OBJECT], &[CelType::String])
    }

    fn compile(source: &str, variables: &[&str], accepted: &'static [CelType]) -> Result<Self, Refused> {
        let release = Release::for_stored(NEWEST);
        let environment = Environment::untyped(&library(release), release, variables);
        let program = Program::compile(source, &environment, accepted)?;
        let selected = [OBJECT, BY].map(|name| Program::selected(source, release, name));
        Ok(Self { program, selected })
    }

    /// Whether the expression reads no other fields of an object than these fields of its metadata.
    pub fn reads_only_metadata(&self, of: Side, fields: &[&str]) -> bool {
        self.selected(of).iter().all(|path| match path.steps() {
            [PathStep::Field(metadata), PathStep::Field(field), ..] => {
                metadata == "metadata" && fields.contains(&field.as_str())
            }
            _ => false,
        })
    }

    /// The read fields of an object that its schema does not have, as `by.spec.x`.
    pub fn unknown_fields(&self, of: Side, schema: &Schema) -> Vec<String> {
        let is_unknown = |path: &&Path| {
            let is_own = matches!(path.first_field(), Some("apiVersion" | "kind" | "metadata"));
            !is_own && !has_field(schema, path.steps())
        };
        self.selected(of).iter().filter(is_unknown).map(|path| format!("{}.{path}", of.name())).collect()
    }

    fn selected(&self, of: Side) -> &Selected {
        let [object, by] = &self.selected;
        match of {
            Side::Object => object,
            Side::By => by,
        }
    }

    /// Evaluates the expression. An error is a text for users.
    pub fn evaluate<'a>(
        &'a self,
        object: Value<'a>,
        by: Option<Value<'a>>,
        arena: &'a Arena,
    ) -> Result<Value<'a>, String> {
        let context = EvalContext { arena, answers: &Nothing, keep_going: &|| true };
        let activation = Pair { object, by };
        let shared = EvalInput { context, activation: &activation };
        self.program.evaluate(EXPRESSION_LIMIT, shared).0.map_err(|fault| match failure(fault) {
            ExpressionError::Error(text) => text,
            ExpressionError::TooExpensive => "it costs more than an expression may".to_owned(),
            ExpressionError::Limit(_) => "it needs more memory or time than an expression has".to_owned(),
            ExpressionError::Unknown(_) => "it reads what is not known".to_owned(),
        })
    }
}

/// Whether values of a schema can have a field.
fn has_field(schema: &Schema, steps: &[PathStep]) -> bool {
    let [step, rest @ ..] = steps else { return true };
    let next = match step {
        PathStep::Field(field) => schema.property(field).or(schema.additional_schema()),
        PathStep::Index(_) | PathStep::Key(_) => schema.items.as_deref(),
    };
    match next {
        Some(next) => has_field(next, rest),
        None => schema.preserves_unknown_fields() || schema.properties.is_empty(),
    }
}

/// The two objects of an evaluation.
struct Pair<'a> {
    object: Value<'a>,
    by: Option<Value<'a>>,
}

impl<'a> Activation<'a> for Pair<'a> {
    fn root(&self, name: &str) -> Option<EvalResult<'a>> {
        match name {
            OBJECT => Some(Ok(self.object)),
            BY => self.by.map(Ok),
            _ => None,
        }
    }

    fn variable(&self, _: &str) -> Option<EvalResult<'a>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::read_json;

    #[test]
    fn compares_two_objects() {
        let source = "by.spec.?name.orValue('') == object.metadata.name";
        let relation = Relation::condition(source).unwrap();
        for (by, expected) in [(r#"{"spec":{"name":"a"}}"#, true), (r#"{"spec":{}}"#, false)] {
            let arena = Arena::new();
            let object = read_json(r#"{"metadata":{"name":"a"}}"#, &arena).unwrap();
            let by = read_json(by, &arena).unwrap();
            assert!(
                matches!(relation.evaluate(object, Some(by), &arena), Ok(Value::Bool(value)) if value == expected)
            );
        }
    }

    #[test]
    fn a_missing_field_is_an_error() {
        let relation = Relation::condition("by.spec.name == object.metadata.name").unwrap();
        let arena = Arena::new();
        let object = read_json(r#"{"metadata":{"name":"a"}}"#, &arena).unwrap();
        let error = relation.evaluate(object, Some(object), &arena).unwrap_err();
        assert_eq!(error, "no such key: spec");
    }

    #[test]
    fn other_variables_and_types_are_refused_with_their_place() {
        let refused = |source| Relation::condition(source).err().unwrap();
        assert!(refused("oldObject == by").message.contains("undeclared reference to 'oldObject'"));
        assert!(refused("by.metadata.name").message.contains("must evaluate to bool"));
        let places = refused("by.metadata.name == 'a' &&\n 1 + 'a' == 2").places;
        assert_eq!((places[0].0, places[0].1), (2, 4));
        assert!(Relation::text("by.metadata.name").is_err());
        assert!(Relation::text("'a=' + object.metadata.name").is_ok());
    }

    #[test]
    fn names_fields_that_a_schema_does_not_have() {
        let arena = Arena::new();
        let schema = read_json(
            r#"{"type":"object","properties":{"spec":{"type":"object","properties":{
                "name":{"type":"string"},"any":{"type":"object","x-kubernetes-preserve-unknown-fields":true},
                "refs":{"type":"array","items":{"type":"object","properties":{"name":{"type":"string"}}}}}}}}"#,
            &arena,
        );
        let schema = Schema::parse(schema.unwrap(), &Path::default()).unwrap();
        for (source, expected) in [
            ("by.spec.name == object.metadata.name", None),
            ("by.spec.any.x == 1 && by.metadata.labels.a == 'b'", None),
            ("by.spec.refs[0].name == 'a'", None),
            ("by.spec.?nam.orValue('') == 'a'", Some("by.spec.nam")),
            ("by.spec.refs[0].nam == 'a'", Some("by.spec.refs[0].nam")),
            ("by.status.x == 'a'", Some("by.status.x")),
        ] {
            let relation = Relation::condition(source).unwrap();
            assert_eq!(
                relation.unknown_fields(Side::By, &schema).first().map(String::as_str),
                expected,
                "{source}"
            );
        }
    }

    #[test]
    fn knows_whether_metadata_is_enough() {
        for (source, of_object, of_by) in [
            ("by.metadata.name == object.metadata.name", true, true),
            ("by.metadata.?labels[?'app'].orValue('') == object.spec.app", false, true),
            ("by.metadata.ownerReferences.exists(o, o.name == object.metadata.name)", true, false),
            ("has(by.spec)", true, false),
            ("by == object", false, false),
            ("[by].exists(x, x.metadata.name == 'a')", true, false),
            ("by[object.metadata.name] == 1", true, false),
            ("true", true, true),
        ] {
            let relation = Relation::condition(source).unwrap();
            let fields = ["name", "labels"];
            assert_eq!(relation.reads_only_metadata(Side::Object, &fields), of_object, "{source}");
            assert_eq!(relation.reads_only_metadata(Side::By, &fields), of_by, "{source}");
        }
    }
}
