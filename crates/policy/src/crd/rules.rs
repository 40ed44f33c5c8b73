//! The rules of `x-kubernetes-validations` that apply to an object. They are not evaluated yet, so they leave the verdict open.

use crate::field::Path;
use crate::schema::{Checks, Rule, Schema};
use crate::value::Value;

/// A rule that was not evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unevaluated {
    /// The field that has the rule.
    pub path: Path,
    /// The rule.
    pub rule: String,
}

/// Returns whether a schema has rules. As in the API server, those within `allOf` and its like don't count alone.
pub(super) fn has_rules(schema: &Schema) -> bool {
    !schema.rules.is_empty()
        || schema.items.as_ref().is_some_and(|schema| has_rules(schema))
        || schema.additional_schema().is_some_and(has_rules)
        || schema.properties.iter().any(|(_, schema)| has_rules(schema))
}

/// Returns the rules of the fields that an object has. Each rule is returned once, with the first field that it applies to.
pub(super) fn applying(object: Value<'_>, schema: &Schema) -> Vec<Unevaluated> {
    let mut found = Found { seen: Vec::new(), rules: Vec::new() };
    found.value(object, schema, &Path::default());
    found.rules
}

struct Found<'s> {
    seen: Vec<&'s Rule>,
    rules: Vec<Unevaluated>,
}

impl<'s> Found<'s> {
    fn value(&mut self, value: Value<'_>, schema: &'s Schema, path: &Path) {
        // The API server skips the rules of a null.
        if matches!(value, Value::Null) {
            return;
        }
        for rule in &schema.rules {
            if !self.seen.iter().any(|seen| std::ptr::eq(*seen, rule)) {
                self.seen.push(rule);
                self.rules.push(Unevaluated { path: path.clone(), rule: rule.rule.trim().to_owned() });
            }
        }
        if let Some(checks) = &schema.checks {
            for schema in alternatives(checks) {
                self.value(value, schema, path);
            }
        }
        match value {
            Value::Object(entries) => {
                for (name, value) in entries {
                    if let Some(schema) = schema.property(name) {
                        self.value(*value, schema, &path.child(name));
                    } else if let Some(schema) = schema.additional_schema() {
                        self.value(*value, schema, &path.key(name));
                    }
                }
            }
            Value::List(items) => {
                let Some(schema) = &schema.items else { return };
                for (index, item) in items.iter().enumerate() {
                    self.value(*item, schema, &path.index(index));
                }
            }
            _ => {}
        }
    }
}

/// The schemas within `allOf` and its like.
fn alternatives(checks: &Checks) -> impl Iterator<Item = &Schema> {
    checks.all_of.iter().chain(&checks.any_of).chain(&checks.one_of).chain(&checks.not)
}
