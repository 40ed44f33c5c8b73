//! Defaults in the schema of a CRD, `pkg/apiserver/schema/defaulting/validation.go` of `k8s.io/apiextensions-apiserver`.
//!
//! A default must be valid for its own schema: types, embedded objects, and rules. Rules see it twice: as an update that changes nothing,
//! and as a new value. A default within metadata is checked in an object around it. Defaults within `additionalProperties` are not checked.

use crate::crd::embedded::{self, Undecodable};
use crate::crd::rules;
use crate::crd::rules::CompiledRules;
use crate::field::{FieldError, Path, PathStep, Validated};
use crate::release::Release;
use crate::schema::{Schema, prune, validate};
use crate::value::{Arena, Value, identical};

/// Returns the errors of all defaults. `must_be_pruned` says whether unknown fields in them are errors.
pub(super) fn check(
    schema: &Schema,
    path: &Path,
    must_be_pruned: bool,
    release: Release,
    keep_going: &dyn Fn() -> bool,
) -> Validated {
    let root = Schema { is_embedded_resource: true, ..schema.clone() };
    let mut checker = DefaultChecker {
        release: Release::for_stored(release.server),
        must_be_pruned,
        budget: rules::BUDGET,
        keep_going,
        found: Validated::default(),
    };
    let around = Around { root: &root, steps: Vec::new(), in_meta: false };
    // The end of the budget is an error of its own.
    let _ = checker.schema(&root, &around, path);
    checker.found
}

/// The object around a schema.
struct Around<'s> {
    /// The schema of the nearest resource.
    root: &'s Schema,
    /// The fields from there to the schema. An element of a list has none.
    steps: Vec<Option<&'s str>>,
    in_meta: bool,
}

struct DefaultChecker<'k> {
    release: Release,
    must_be_pruned: bool,
    /// Cost that is left for the rules of all defaults.
    budget: u64,
    keep_going: &'k dyn Fn() -> bool,
    found: Validated,
}

/// No more defaults are checked.
struct DefaultsEnd;

impl DefaultChecker<'_> {
    fn schema(&mut self, schema: &Schema, around: &Around<'_>, path: &Path) -> Result<(), DefaultsEnd> {
        let own;
        let around = if schema.is_embedded_resource {
            own = Around { root: schema, steps: Vec::new(), in_meta: false };
            &own
        } else {
            around
        };
        self.default(schema, around, path)?;
        let inner = |step, in_meta| {
            let steps = around.steps.iter().copied().chain([step]).collect();
            Around { root: around.root, steps, in_meta }
        };
        if let Some(items) = schema.items.as_deref() {
            self.schema(items, &inner(None, around.in_meta), &path.child("items"))?;
        }
        for (name, property) in &schema.properties {
            let is_meta =
                schema.is_embedded_resource && matches!(&**name, "metadata" | "apiVersion" | "kind");
            let around = inner(Some(&**name), around.in_meta || is_meta);
            self.schema(property, &around, &path.child("properties").key(name))?;
        }
        Ok(())
    }

    fn default(&mut self, schema: &Schema, around: &Around<'_>, path: &Path) -> Result<(), DefaultsEnd> {
        let Some(default) = &schema.default else { return Ok(()) };
        let path = path.child("default");
        let arena = Arena::new();
        let value = default.value(&arena);
        let decoded = if around.in_meta {
            self.in_meta(value, around, &path, &arena).then_some(value)
        } else {
            self.alone(value, schema, &path, &arena)
        };
        let Some(value) = decoded else { return Ok(()) };
        let found = validate::default(value, schema, &path, self.release);
        self.found.undecided.extend(found.undecided);
        if !found.errors.is_empty() {
            self.found.errors.extend(found.errors);
            return Ok(());
        }
        // The rules of the root are those of a resource.
        self.rules(schema, std::ptr::eq(schema, around.root), value, &path)
    }

    /// Checks a default by itself. Returns it without unknown metadata, if the next steps follow.
    fn alone<'a>(
        &mut self,
        value: Value<'a>,
        schema: &Schema,
        path: &Path,
        arena: &'a Arena,
    ) -> Option<Value<'a>> {
        if self.must_be_pruned {
            let (pruned, _) = prune::prune(value, schema, schema.is_embedded_resource, arena);
            if !identical(pruned, value, &mut || true) {
                let detail = "must not have unknown fields";
                self.found.errors.push(FieldError::invalid_value(path, value, detail));
            }
        }
        match embedded::decode(value, schema, arena) {
            Ok((value, _)) => {
                let before = self.found.errors.len();
                embedded::validate(value, schema, path, self.release, &mut self.found.errors);
                (self.found.errors.len() == before).then_some(value)
            }
            Err(fields) => {
                let error = fields.first().map(Undecodable::in_default);
                let below = error.map(|error| FieldError { path: path.join(&error.path), ..error });
                self.found.errors.extend(below);
                None
            }
        }
    }

    /// Checks a default within metadata in an object that has only it. Returns whether the next steps follow.
    fn in_meta<'a>(&mut self, value: Value<'a>, around: &Around<'_>, path: &Path, arena: &'a Arena) -> bool {
        let object = around.steps.iter().rev().fold(value, |value, step| match step {
            Some(name) => arena.object(&[(arena.text(name), value)]),
            None => Value::List(arena.slice(&[value])),
        });
        let Value::Object(fields) = object else { return true };
        let mut fields = fields.to_vec();
        for (name, text) in [("kind", "Validation"), ("apiVersion", "validation/v1")] {
            if object.field(name).is_none() {
                fields.push((name, Value::String(text)));
            }
        }
        let object = arena.object(&fields);
        let why = match embedded::decode(object, around.root, arena) {
            Err(fields) => fields.first().map(|field| field.in_default().to_string()),
            Ok((object, _)) => {
                let mut errors = Vec::new();
                embedded::validate(object, around.root, &Path::default(), self.release, &mut errors);
                aggregate(&errors)
            }
        };
        let Some(why) = why else { return true };
        let detail = format!("must result in valid metadata: {why}");
        self.found.errors.push(FieldError::invalid_value(path, value, &detail));
        false
    }

    fn rules(
        &mut self,
        schema: &Schema,
        is_resource: bool,
        value: Value<'_>,
        path: &Path,
    ) -> Result<(), DefaultsEnd> {
        if !rules::has_rules(schema) {
            return Ok(());
        }
        let (compiled, errors) = CompiledRules::of(schema, is_resource, self.release);
        // Rules that don't compile are errors of their own. Without a message expression, an error has the rule.
        let is_message = |error: &FieldError| {
            error.path.steps().last() == Some(&PathStep::Field("messageExpression".to_owned()))
        };
        if !errors.iter().all(is_message) {
            return Ok(());
        }
        let arena = Arena::new();
        let (first, left) = compiled.run(self.budget, schema, (value, Some(value)), &arena, self.keep_going);
        let mut least = left;
        let mut found = vec![first];
        if found.iter().all(|judged| judged.errors.is_empty()) {
            let (second, left) = compiled.run(self.budget, schema, (value, None), &arena, self.keep_going);
            least = least.and_then(|least| Some(least.min(left?)));
            found.push(second);
        }
        for judged in found {
            let below =
                |error: FieldError| FieldError { path: path.join(&error.path), is_unnamed: false, ..error };
            self.found.errors.extend(judged.errors.into_iter().map(below));
            self.found.undecided.extend(judged.undecided.into_iter().map(below));
        }
        self.budget = least.ok_or(DefaultsEnd)?;
        Ok(())
    }
}

/// The text of several errors in one.
fn aggregate(errors: &[FieldError]) -> Option<String> {
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    match texts.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        several => Some(format!("[{}]", several.join(", "))),
    }
}
