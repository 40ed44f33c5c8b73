//! The rules of `x-kubernetes-validations`, `pkg/apiserver/schema/cel` of `k8s.io/apiextensions-apiserver`.
//!
//! | step | module | upstream |
//! |---|---|---|
//! | compile the rules of a schema | this one | `compilation.go`, `NewValidator` of `validation.go` |
//! | read a `fieldPath` | `field_path` | `ValidFieldPath` of `validation.go` |
//! | check the keywords and rules of a CRD | `admit` | `pkg/apis/apiextensions/validation` |
//! | find bounds that make a rule cheap enough | `hint` | |
//! | evaluate the rules of an object | `evaluate` | `Validate` of `validation.go` |
//!
//! Types and shapes come from [`schema::declare`](crate::schema::declare). The rules of a field are compiled with its type as `self`.
//! A structural schema has no rules within `allOf` and its like.

mod admit;
mod evaluate;
pub(super) mod field_path;
mod hint;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

pub(super) use admit::{RuleOptions, check};
pub(super) use evaluate::{BUDGET, RuleInput};

use crate::cel::environment::{Environment, StructFields};
use crate::cel::escape::escape;
use crate::cel::program::{Accepted, CompileError, Program};
use crate::cel::types::CelType;
use crate::expression::library;
use crate::field::{FieldError, Path};
use crate::release::Release;
use crate::schema::declare::{declare, shape};
use crate::schema::{Schema, ValidationRule};
use crate::value::ValueShape;
use crate::value::format::go_json;

const BOOL: Accepted = &[CelType::Bool];
const STRING: Accepted = &[CelType::String];

/// Name of the type of the whole object. The API server adds a random number.
const ROOT_TYPE: &str = "selfType0";

/// The compiled rules of a schema.
pub struct CompiledRules {
    root: Option<RuleNode>,
    shape: ValueShape,
    release: Release,
}

/// The rules of a field and of the fields within.
struct RuleNode {
    rules: Vec<CompiledRule>,
    /// The shape of the node's values, if the parent's shape has another one for it. This is the case for the metadata of embedded
    /// objects. The API server compiles their rules with the fields of all objects, and evaluates them with the fields of the schema.
    shape: Option<ValueShape>,
    /// The type of the schema, which some errors print.
    type_name: Box<str>,
    /// Whether a rule reads `oldSelf`. Without one, messages can't read it either.
    uses_old: bool,
    /// Rules of additional properties.
    values: Option<Box<RuleNode>>,
    properties: Vec<(Box<str>, RuleNode)>,
    items: Option<Box<RuleNode>>,
}

struct CompiledRule {
    /// The position in the schema.
    index: usize,
    program: Program,
    message: Option<Program>,
    /// The message expression.
    message_source: String,
    /// The message of the rule, or the rule: errors name it so.
    label: String,
    has_message: bool,
    reason: Option<String>,
    /// The path of `fieldPath`, if it is valid.
    field: Option<Path>,
    old_is_optional: bool,
}

impl CompiledRules {
    /// Compiles the rules of a structural schema of a CRD. The errors are those of the API server when the CRD is created, below an empty
    /// path.
    pub fn new(schema: &Schema, release: Release) -> Result<Self, Vec<FieldError>> {
        let (compiled, errors) = Self::of(schema, true, release);
        if errors.is_empty() { Ok(compiled) } else { Err(errors) }
    }

    /// Compiles the rules of a schema within a CRD. Returns the errors of those that don't compile as well.
    pub(super) fn of(schema: &Schema, is_resource: bool, release: Release) -> (Self, Vec<FieldError>) {
        let shape = shape(schema, is_resource, release);
        let mut compiled = Self { root: None, shape, release };
        if !has_rules(schema) {
            return (compiled, Vec::new());
        }
        let mut compiler = RuleCompiler::new(release, &Arc::default());
        let of = compiler.declare(&compiled.shape, ROOT_TYPE);
        compiled.root = compiler.node(schema, of.as_ref(), &Path::default());
        (compiled, compiler.errors)
    }
}

/// The rules of a schema, compiled for the release that asked last.
#[derive(Default)]
pub(super) struct RulesCache(Mutex<Option<(Release, CachedRules)>>);

/// Compiled rules, or why they don't compile.
type CachedRules = Arc<Result<CompiledRules, Vec<FieldError>>>;

impl RulesCache {
    /// Returns the compiled rules of the schema that this cache belongs to.
    pub(super) fn get(&self, schema: &Schema, release: Release) -> CachedRules {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Some((of, rules)) if *of == release => Arc::clone(rules),
            _ => {
                let rules = Arc::new(CompiledRules::new(schema, release));
                *known = Some((release, Arc::clone(&rules)));
                rules
            }
        }
    }
}

impl fmt::Debug for RulesCache {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Cache")
    }
}

/// Whether a schema has rules.
pub(super) fn has_rules(schema: &Schema) -> bool {
    !schema.rules.is_empty()
        || schema.items.as_deref().is_some_and(has_rules)
        || schema.additional_schema().is_some_and(has_rules)
        || schema.properties.iter().any(|(_, schema)| has_rules(schema))
}

/// Expressions of a CRD before an update. They can use all functions of the server, and new ones only those of the minor before.
#[derive(Debug, Default)]
pub(super) struct StoredRules {
    rules: HashSet<String>,
    messages: HashSet<String>,
}

impl StoredRules {
    /// Adds the expressions of rules.
    pub(super) fn add(&mut self, rules: &[ValidationRule], release: Release) {
        for rule in rules {
            self.rules.insert(rule.rule.clone());
            if !rule.message_expression.is_empty() {
                let message =
                    if release.knows_stored_messages() { &rule.message_expression } else { &rule.rule };
                self.messages.insert(message.clone());
            }
        }
    }
}

struct RuleCompiler {
    release: Release,
    stored: Arc<StoredRules>,
    /// The types of all objects of the schema.
    structs: Arc<HashMap<String, StructFields>>,
    errors: Vec<FieldError>,
}

impl RuleCompiler {
    fn new(release: Release, stored: &Arc<StoredRules>) -> Self {
        Self { release, stored: Arc::clone(stored), structs: Arc::default(), errors: Vec::new() }
    }

    /// The environments of a rule and of its message expression. `of` is the type of `self`.
    fn environments(&self, rule: &ValidationRule, of: &CelType) -> [Environment; 2] {
        let is_stored =
            [self.stored.rules.contains(&rule.rule), self.stored.messages.contains(&rule.message_expression)];
        is_stored.map(|is_stored| {
            let release = if is_stored { Release::for_stored(self.release.server) } else { self.release };
            let mut environment = Environment::rules(&library(release), release, &self.structs);
            environment.declare_self(of, rule.optional_old_self == Some(true));
            environment
        })
    }

    fn declare(&mut self, shape: &ValueShape, name: &str) -> Option<CelType> {
        declare(shape, name, Arc::make_mut(&mut self.structs))
    }

    /// Compiles the rules of a schema. `of` is the type of its values.
    fn node(&mut self, schema: &Schema, of: Option<&CelType>, path: &Path) -> Option<RuleNode> {
        let rules = self.rules(schema, of, path);
        let element = child_type(of);
        let child = |compiler: &mut Self, schema: Option<&Schema>, field: &str| {
            compiler.node(schema?, element.as_ref(), &path.child(field)).map(Box::new)
        };
        let items = child(self, schema.items.as_deref(), "items");
        let values = child(self, schema.additional_schema(), "additionalProperties");
        let mut properties = Vec::new();
        for (name, property) in &schema.properties {
            let Some(of) = self.property_type(name, property, of) else { continue };
            let path = path.child("properties").key(name);
            if let Some(mut node) = self.node(property, Some(&of), &path) {
                if schema.is_embedded_resource && &**name == "metadata" {
                    node.shape = Some(shape(property, false, self.release));
                }
                properties.push((name.clone(), node));
            }
        }
        let is_empty = rules.is_empty() && values.is_none() && properties.is_empty() && items.is_none();
        let uses_old = rules.iter().any(|rule| rule.program.reads.old_self);
        let type_name = schema.type_name().into();
        (!is_empty).then_some(RuleNode { rules, shape: None, type_name, uses_old, values, properties, items })
    }

    /// The type of a property. One whose name can't be an identifier gets a type of its own.
    fn property_type(&mut self, name: &str, schema: &Schema, of: Option<&CelType>) -> Option<CelType> {
        let Some(field) = escape(name) else {
            let name = format!("{ROOT_TYPE}.@{}", self.structs.len());
            return self.declare(&shape(schema, schema.is_embedded_resource, self.release), &name);
        };
        match of {
            Some(CelType::Struct(of)) => self.structs.get(&**of)?.get(&field).cloned(),
            _ => None,
        }
    }

    fn rules(&mut self, schema: &Schema, of: Option<&CelType>, path: &Path) -> Vec<CompiledRule> {
        if schema.rules.is_empty() {
            return Vec::new();
        }
        let path = path.child("x-kubernetes-validations");
        let Some(of) = of else {
            let detail = "internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations";
            self.errors.push(FieldError::internal(&path, detail));
            return Vec::new();
        };
        let mut compiled = Vec::new();
        for (index, rule) in schema.rules.iter().enumerate() {
            if rule.rule.trim().is_empty() {
                continue;
            }
            let old_is_optional = rule.optional_old_self == Some(true);
            let [environment, of_message] = self.environments(rule, of);
            let path = path.index(index);
            let program = Program::compile(&rule.rule, &environment, BOOL);
            let program = self.checked(program, rule, &path.child("rule"), |error| match error {
                CompileError::Output(_) => "cel expression must evaluate to a bool".to_owned(),
                error => error.message(),
            });
            let Some(program) = program else { continue };
            let message = (!rule.message_expression.is_empty())
                .then(|| Program::compile(&rule.message_expression, &of_message, STRING))
                .and_then(|message| {
                    self.checked(message, rule, &path.child("messageExpression"), |error| match error {
                        CompileError::Output(_) => "messageExpression must evaluate to a string".to_owned(),
                        CompileError::Instantiation(text) => {
                            format!("messageExpression instantiation failed: {text}")
                        }
                        CompileError::Problems { .. } => format!("messageExpression {}", error.message()),
                    })
                });
            let has_message = !rule.message.is_empty();
            compiled.push(CompiledRule {
                index,
                program,
                message,
                message_source: rule.message_expression.clone(),
                label: if has_message { rule.message.trim() } else { rule.rule.trim() }.to_owned(),
                has_message,
                reason: rule.reason.clone(),
                field: field_path::parse(&rule.field_path, schema).ok().filter(|path| !path.is_empty()),
                old_is_optional,
            });
        }
        compiled
    }

    /// Keeps the error of a compilation.
    fn checked(
        &mut self,
        program: Result<Program, CompileError>,
        rule: &ValidationRule,
        path: &Path,
        text: impl FnOnce(&CompileError) -> String,
    ) -> Option<Program> {
        match program {
            Ok(program) => Some(program),
            Err(error) => {
                let shown = shown_rule(rule);
                let places = error.places();
                self.errors
                    .push(FieldError { places, ..FieldError::invalid_json(path, &shown, &text(&error)) });
                None
            }
        }
    }
}

/// The type of elements, or of the values of a map.
fn child_type(of: Option<&CelType>) -> Option<CelType> {
    match of? {
        CelType::List(element) => Some((**element).clone()),
        CelType::Map(entry) => Some(entry.1.clone()),
        _ => None,
    }
}

/// A rule in an error, as JSON. API servers before 1.34 print it in the syntax of Go.
fn shown_rule(rule: &ValidationRule) -> String {
    let text = |text: &str| go_json(crate::value::Value::String(text));
    format!(
        r#"{{"Rule":{},"Message":{},"MessageExpression":{},"Reason":{},"FieldPath":{},"OptionalOldSelf":{}}}"#,
        text(&rule.rule),
        text(&rule.message),
        text(&rule.message_expression),
        rule.reason.as_deref().map_or_else(|| "null".to_owned(), text),
        text(&rule.field_path),
        rule.optional_old_self.map_or_else(|| "null".to_owned(), |value| value.to_string()),
    )
}
