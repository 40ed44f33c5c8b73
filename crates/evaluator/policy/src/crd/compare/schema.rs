//! Compares two schemas: the new one must keep and accept each value that the old one keeps and accepts.
//!
//! It checks that values stay valid, and that fields are not pruned. Within `allOf` and its like, and in the metadata
//! of objects, nothing is pruned, so only the first part remains.
//!
//! A field that a schema does not declare has a schema nevertheless: that of `additionalProperties`, or one that accepts any value, if
//! unknown fields are kept. With these, `additionalProperties` is compared with `properties`, and a field that was kept with one that is
//! declared.

use std::collections::{BTreeSet, HashSet};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use super::change::{Class, CrdChange, SchemaPlace};
use super::{Both, Comparer, checks, types};
use crate::crd::embedded;
use crate::crd::rules::{BUDGET, CompiledRules, has_rules};
use crate::field::{FieldError, Path};
use crate::release::{NEWEST, Release};
use crate::schema::{
    Additional, Schema, SchemaType, ValidationRule, ValueChecks, defaults, list_types, validate,
};
use crate::value::format::quote;
use crate::value::{Arena, Value};

/// Pairs of schemas that the comparison of two CRDs can visit. The largest CRDs have 20,000 schemas. `anyOf` within `anyOf` multiplies them.
pub(super) const MAX_STEPS: usize = 1 << 20;

/// Steps of [`MAX_STEPS`] that each changed default uses, because it is validated with all schemas below it: at most 1,024 defaults are.
const DEFAULT_STEPS: usize = 1 << 10;

/// The time for the rules of a changed default. All defaults together can take 102 s.
const RULES_TIME: Duration = Duration::from_millis(100);

/// Changes that are reported of one version.
const MAX_CHANGES: usize = 1_000;

/// Characters of a rule that are printed.
const MAX_RULE: usize = 200;

/// A field that is kept, whatever its value is.
pub(super) static ANY: LazyLock<Schema> =
    LazyLock::new(|| Schema { preserve: Some(true), nullable: true, ..Schema::default() });

/// A value of any type that keeps no fields, as below `additionalProperties: true`.
static EMPTY: LazyLock<Schema> = LazyLock::new(|| Schema { nullable: true, ..Schema::default() });

static STRING: LazyLock<Schema> =
    LazyLock::new(|| Schema { kind: Some(SchemaType::String), ..Schema::default() });

/// The metadata of every object. The schema of a CRD can restrict the names only.
static METADATA: LazyLock<Schema> = LazyLock::new(|| Schema {
    kind: Some(SchemaType::Object),
    properties: ["generateName", "name"].map(|name| (name.into(), STRING.clone())).into(),
    preserve: Some(true),
    ..Schema::default()
});

/// Facts about the schemas above a pair of schemas.
#[allow(clippy::struct_excessive_bools, reason = "independent facts about a place")]
#[derive(Clone, Copy)]
struct SchemaContext<'c> {
    /// Whether unknown fields are removed here.
    prunes: bool,
    /// Whether the list above keeps unknown fields.
    keeps: Both,
    /// Whether the API server removes a null instead of refusing it.
    removes_null: bool,
    /// Whether this is the metadata of an object.
    is_metadata: bool,
    /// Whether a rule above, which both sides have, can read the value.
    is_read: bool,
    /// Whether a condition above can depend on the value: a rule, `allOf` and its like, an enumeration of objects, or a set.
    is_judged: bool,
    /// Whether the value is within one of an enumeration.
    is_listed: bool,
    /// Whether a condition above can depend on a field that OLD does not declare: `allOf` and its like, or a rule with `dyn` or
    /// a conditional.
    is_seen: bool,
    /// The keys of the list above.
    keys: &'c [Box<str>],
}

impl SchemaContext<'_> {
    /// Returns that of a schema with nothing above it.
    fn top(prunes: bool) -> Self {
        Self {
            prunes,
            keeps: Both::default(),
            removes_null: false,
            is_metadata: false,
            is_read: false,
            is_judged: false,
            is_listed: false,
            is_seen: false,
            keys: &[],
        }
    }
}

impl<'c> Comparer<'c> {
    /// Creates a comparison with a new schema at a path. `steps` are those that are left of [`MAX_STEPS`].
    pub(super) fn new(
        base: &'c Path,
        version: &'c str,
        stored_as: Option<&'c str>,
        keeps_all: Both,
        steps: usize,
    ) -> Self {
        Self { base, version, stored_as, keeps_all, steps, changes: Vec::new(), is_probe: false }
    }

    /// Compares the schemas of two versions. Returns all changes and the steps that are left.
    pub(super) fn compare(mut self, old: &Schema, new: &Schema) -> (Vec<CrdChange>, usize) {
        let root = SchemaPlace::root();
        self.node(old, new, &root, SchemaContext::top(true));
        if self.steps == 0 {
            // The limit of changes does not apply to this one.
            self.changes.truncate(MAX_CHANGES - 1);
            self.push(Class::NotCompared, &root, None, "the schemas are too large to compare".to_owned());
        }
        if self.changes.len() == MAX_CHANGES
            && let Some(last) = self.changes.last_mut()
        {
            "more changes are not shown".clone_into(&mut last.detail);
        }
        (self.changes, self.steps)
    }

    /// Adds a change. `keyword` is that of the schema.
    pub(super) fn push(
        &mut self,
        class: Class,
        place: &SchemaPlace<'_>,
        keyword: Option<&str>,
        detail: String,
    ) {
        if self.changes.len() == MAX_CHANGES {
            return;
        }
        let path = place.path(self.base);
        self.changes.push(CrdChange {
            class,
            version: self.version.to_owned(),
            stored_as: self.stored_as.map(str::to_owned),
            field: place.field(),
            path: keyword.map_or_else(|| path.clone(), |keyword| path.child(keyword)),
            detail,
        });
    }

    /// Whether the new schema accepts each value that the old one accepts.
    pub(super) fn accepts(&mut self, old: &Schema, new: &Schema) -> bool {
        let changes = std::mem::take(&mut self.changes);
        let is_probe = std::mem::replace(&mut self.is_probe, true);
        // A place of its own: the root has fields that are always present.
        let root = SchemaPlace::root();
        self.node(old, new, &root.item(), SchemaContext::top(false));
        self.is_probe = is_probe;
        let found = std::mem::replace(&mut self.changes, changes);
        found.is_empty() && self.steps > 0
    }

    fn node(&mut self, old: &Schema, new: &Schema, place: &SchemaPlace<'_>, context: SchemaContext<'_>) {
        self.steps = self.steps.saturating_sub(1);
        if self.steps == 0 || std::ptr::eq(old, new) || (self.is_probe && !self.changes.is_empty()) {
            return;
        }
        // A field that is added to the model must be added to the comparison, or to this list with a reason.
        let Schema {
            kind: _,
            properties: _,
            additional: _,
            items: _,
            default: _,
            nullable: _,
            preserve: _,
            is_int_or_string: _,
            is_embedded_resource: _,
            list_type: _,
            map_keys: _,
            map_type: _,
            checks: _,
            rules: _,
            // A structural schema has none.
            unsupported: _,
            has_empty_reference: _,
            // They refuse no values.
            empty: _,
            // These are for readers.
            has_title: _,
            has_description: _,
        } = new;
        let keeps = Both {
            old: self.keeps_all.old || context.keeps.old || old.preserves_unknown_fields(),
            new: self.keeps_all.new || context.keeps.new || new.preserves_unknown_fields(),
        };
        let (old_types, new_types) =
            (Self::types(old, self.keeps_all.old, &context), Self::types(new, self.keeps_all.new, &context));
        let missing = old_types & !new_types;
        if missing & !types::NULL != 0 {
            let detail = format!("{} was valid, now it must be {}", names(old_types), names(new_types));
            self.push(Class::TypeTightened, place, Some("type"), detail);
            if old_types == types::ALL || old_types & new_types & !types::NULL == 0 {
                return;
            }
        } else if missing != 0 {
            self.nullable(new, place, &context);
        }
        if old_types & types::OBJECT != 0 && new.is_embedded_resource && !old.is_embedded_resource {
            let detail = "the value must be an object with apiVersion, kind and valid metadata".to_owned();
            self.push(Class::TypeTightened, place, Some("x-kubernetes-embedded-resource"), detail);
        }
        let is_read = self.rules(old, new, place) || context.is_read;
        if is_read {
            self.declared(old, new, place);
        }
        self.list_type(old, new, place, old_types);
        checks::compare(self, old, new, old_types, place);
        let below = SchemaContext {
            is_read,
            is_judged: context.is_judged || judges(new),
            is_listed: context.is_listed
                || new.checks.as_ref().is_some_and(|checks| !checks.values.is_empty()),
            is_seen: context.is_seen || can_depend_on_undeclared(new),
            removes_null: false,
            is_metadata: false,
            keys: &[],
            ..context
        };
        if old_types & new_types & types::OBJECT != 0 {
            let below = SchemaContext { keeps, is_metadata: context.is_metadata, ..below };
            self.fields(old, new, place, below, context.keys);
        }
        if old_types & new_types & types::LIST != 0 {
            let undeclared =
                |keeps: bool| -> &'static Schema { if keeps || !context.prunes { &ANY } else { &EMPTY } };
            let items = place.item();
            if old.items.is_some() || new.items.is_some() {
                let old_items = old.items.as_deref().unwrap_or_else(|| undeclared(keeps.old));
                let new_items = new.items.as_deref().unwrap_or_else(|| undeclared(keeps.new));
                self.default_of_null(old_items, new_items, &items);
                let below = SchemaContext { keeps, keys: &new.map_keys, ..below };
                self.node(old_items, new_items, &items, below);
            } else if context.prunes && keeps.old && !keeps.new {
                // Lists within lists have no end.
                self.removed(&items.entry());
            }
        }
    }

    /// The types of values that a schema accepts.
    fn types(schema: &Schema, keeps_all: bool, context: &SchemaContext<'_>) -> u8 {
        let types = if schema.is_int_or_string {
            types::INTEGER | types::STRING
        } else {
            match &schema.kind {
                None => types::ALL & !types::NULL,
                Some(SchemaType::Object) => types::OBJECT,
                Some(SchemaType::Array) => types::LIST,
                Some(SchemaType::String) => types::STRING,
                Some(SchemaType::Integer) => types::INTEGER,
                Some(SchemaType::Number) => types::INTEGER | types::FRACTION,
                Some(SchemaType::Boolean) => types::BOOLEAN,
                Some(SchemaType::Other(_)) => 0,
            }
        };
        let is_removed = context.removes_null && context.prunes && !keeps_all;
        let has_type = schema.is_int_or_string || schema.kind.is_some();
        let null = if schema.nullable || (!has_type && !is_removed) { types::NULL } else { 0 };
        types | null
    }

    fn nullable(&mut self, new: &Schema, place: &SchemaPlace<'_>, context: &SchemaContext<'_>) {
        let is_removed = context.removes_null && context.prunes && !self.keeps_all.new;
        let detail = match (is_removed, &new.default) {
            (true, Some(_)) => "the API server replaces null with the default",
            (true, None) => "the API server removes null",
            (false, _) => "null is not valid any more",
        };
        self.push(Class::NullableRemoved, place, Some("nullable"), detail.to_owned());
    }

    /// A rule that does not change sees other values if the declared type changes.
    fn declared(&mut self, old: &Schema, new: &Schema, place: &SchemaPlace<'_>) {
        fn seen(schema: &Schema) -> (Option<&SchemaType>, bool, Option<&str>, bool, bool) {
            let format = schema.checks.as_ref().and_then(|checks| checks.format.as_deref());
            let format =
                format.filter(|format| matches!(*format, "byte" | "date" | "date-time" | "duration"));
            let is_map = schema.additional_schema().is_some() && schema.properties.is_empty();
            (schema.kind.as_ref(), schema.is_int_or_string, format, is_map, schema.is_embedded_resource)
        }
        if seen(old) != seen(new) {
            let detail = "a rule can read this value, whose type or format has changed".to_owned();
            self.push(Class::NotCompared, place, Some("type"), detail);
        }
    }

    fn list_type(&mut self, old: &Schema, new: &Schema, place: &SchemaPlace<'_>, old_types: u8) {
        let keys = |schema: &Schema| schema.map_keys.iter().cloned().collect::<BTreeSet<_>>();
        let list = |schema: &Schema| schema.list_type.as_deref().unwrap_or("atomic").to_owned();
        if old_types & types::LIST != 0 {
            let (before, after) = (list(old), list(new));
            if before != after {
                let detail = format!("the list type was {before}, now it is {after}");
                self.push(Class::ListTypeChanged, place, Some("x-kubernetes-list-type"), detail);
            } else if keys(old) != keys(new) {
                let shown = |schema: &Schema| schema.map_keys.join(", ");
                let detail = format!("the keys were {}, now they are {}", shown(old), shown(new));
                self.push(Class::ListTypeChanged, place, Some("x-kubernetes-list-map-keys"), detail);
            }
        }
        let map = |schema: &Schema| schema.map_type.as_deref().unwrap_or("granular").to_owned();
        let (before, after) = (map(old), map(new));
        if old_types & types::OBJECT != 0 && before != after {
            let detail = format!("the map type was {before}, now it is {after}");
            self.push(Class::ListTypeChanged, place, Some("x-kubernetes-map-type"), detail);
        }
    }

    /// Compares the rules. Returns whether both schemas have one of them.
    fn rules(&mut self, old: &Schema, new: &Schema, place: &SchemaPlace<'_>) -> bool {
        let known: HashSet<(&str, bool)> = old.rules.iter().map(identity).collect();
        let (same, other): (Vec<_>, Vec<_>) =
            new.rules.iter().partition(|rule| known.contains(&identity(rule)));
        for rule in other {
            let text: String = rule.rule.trim().chars().take(MAX_RULE).collect();
            let detail = format!("objects must satisfy {}", quote(&text));
            self.push(Class::RuleAdded, place, Some("x-kubernetes-validations"), detail);
        }
        !same.is_empty()
    }

    /// Compares the fields of objects. `keys` are those of the list that the object is in.
    fn fields(
        &mut self,
        old: &Schema,
        new: &Schema,
        place: &SchemaPlace<'_>,
        context: SchemaContext<'_>,
        keys: &[Box<str>],
    ) {
        let is_resource = Both {
            old: place.is_root() || old.is_embedded_resource,
            new: place.is_root() || new.is_embedded_resource,
        };
        let declared = old.properties.iter().chain(&new.properties).map(|(name, _)| &**name);
        let implied =
            ["apiVersion", "kind", "metadata"].into_iter().filter(|_| is_resource.old || is_resource.new);
        let names: BTreeSet<&str> = declared.chain(implied).collect();
        let counts = new
            .checks
            .as_ref()
            .is_some_and(|checks| checks.max_properties.is_some() || checks.min_properties.is_some());
        let is_name = |name: &str| context.is_metadata && matches!(name, "name" | "generateName");
        for name in names {
            if is_meta(name) && is_resource.new && !is_resource.old {
                // The object must be a resource, which is reported already.
                continue;
            }
            let is_meta_old = is_resource.old && is_meta(name);
            let is_meta_new = is_resource.new && is_meta(name);
            let place = place.property(name);
            let before = field(old, name, context.keeps.old || !context.prunes, is_meta_old || is_name(name));
            let after = field(new, name, context.keeps.new || !context.prunes, is_meta_new || is_name(name));
            let is_key = keys.iter().any(|key| **key == *name);
            let is_judged = context.is_judged || counts || is_key;
            match (before, after) {
                (Some(before), Some(after)) => {
                    if before.default != after.default {
                        self.default(
                            after,
                            is_judged.then_some("a rule or another condition of the schema"),
                            &place,
                        );
                    }
                    let prunes = context.prunes && !is_meta_new;
                    let below = SchemaContext {
                        prunes,
                        keeps: Both::default(),
                        removes_null: true,
                        is_metadata: is_meta_new && name == "metadata",
                        ..context
                    };
                    self.node(before, after, &place, below);
                }
                (Some(_), None) => self.removed(&place),
                (None, Some(after)) if after.default.is_some() => {
                    let is_seen = counts || context.is_listed || context.is_seen;
                    self.default(after, is_seen.then_some("a condition of the schema"), &place);
                }
                (None, _) => {}
            }
        }
        let before = rest(old, context.keeps.old || !context.prunes);
        let after = rest(new, context.keeps.new || !context.prunes);
        match (before, after) {
            (Some(before), Some(after)) => {
                let below = SchemaContext {
                    keeps: Both::default(),
                    removes_null: true,
                    is_metadata: false,
                    ..context
                };
                self.default_of_null(before, after, &place.entry());
                self.node(before, after, &place.entry(), below);
            }
            (Some(_), None) => self.removed(&place.entry()),
            (None, _) => {}
        }
        self.required(old, new, place, is_resource.old);
    }

    /// Reports a default that is new, changed or removed. `reader` is what can depend on it. The API server checked
    /// only the default itself. It did not add the defaults of the fields below, and did not look for duplicates in lists. It skipped
    /// defaults below `additionalProperties`.
    fn default(&mut self, schema: &Schema, reader: Option<&str>, place: &SchemaPlace<'_>) {
        self.steps = self.steps.saturating_sub(DEFAULT_STEPS);
        let arena = Arena::new();
        let invalid = schema.default.as_ref().and_then(|default| {
            let value = defaults::set(default.value(&arena), schema, &arena);
            first_error(value, schema, &arena)
        });
        let detail = match (invalid, reader) {
            _ if arena.is_full() => {
                "the default is new or has changed, and it is too large to check".to_owned()
            }
            (Some(error), _) => format!("the default is new or has changed, and it is not valid: {error}"),
            (None, Some(reader)) => {
                format!("the default is new or has changed, and {reader} can depend on it")
            }
            (None, None) => return,
        };
        self.push(Class::NotCompared, place, Some("default"), detail);
    }

    /// Reports a changed or removed default of list elements or map values. The API server replaced null with the old default. A new
    /// default without an old one breaks nothing, because null was not valid before.
    fn default_of_null(&mut self, old: &Schema, new: &Schema, place: &SchemaPlace<'_>) {
        if old.default.is_some() && old.default != new.default {
            let detail =
                "the default was changed or removed: the API server replaced null with the old default"
                    .to_owned();
            self.push(Class::NotCompared, place, Some("default"), detail);
        }
    }

    fn removed(&mut self, place: &SchemaPlace<'_>) {
        let detail = "not declared any more: the API server removes it from objects".to_owned();
        self.push(Class::FieldRemoved, place, None, detail);
    }

    /// Compares the required fields. The API server sets a default before it validates, also when it reads a stored object.
    fn required(&mut self, old: &Schema, new: &Schema, place: &SchemaPlace<'_>, is_resource: bool) {
        let default = |schema: &Schema, name: &str| {
            schema.property(name).is_some_and(|schema| schema.default.is_some())
        };
        let known: HashSet<&str> = required(old).iter().map(|name| &**name).collect();
        for name in required(new) {
            if default(new, name) || (is_resource && is_meta(name)) {
                continue;
            }
            let detail = match (known.contains(&**name), default(old, name)) {
                (true, false) => continue,
                (true, true) => "still required, and its default was removed",
                (false, _) => "required, and it can be absent",
            };
            self.push(Class::RequiredAdded, &place.property(name), None, detail.to_owned());
        }
    }
}

fn required(schema: &Schema) -> &[Box<str>] {
    schema.checks.as_ref().map(|checks| checks.required.as_slice()).unwrap_or_default()
}

/// The parts of a rule that decide about objects.
fn identity(rule: &ValidationRule) -> (&str, bool) {
    (rule.rule.trim(), rule.optional_old_self == Some(true))
}

/// Returns whether a condition of a new schema can depend on a field that the old schema does not declare.
fn can_depend_on_undeclared(schema: &Schema) -> bool {
    schema.checks.as_deref().is_some_and(ValueChecks::has_junctors)
        // A conditional can turn an object into a dynamic value as well.
        || schema.rules.iter().any(|rule| rule.rule.contains("dyn") || rule.rule.contains('?'))
}

/// Returns the first error of a default: from its schema, its list types or its rules. `value` has the defaults of its fields.
fn first_error<'a>(value: Value<'a>, schema: &Schema, arena: &'a Arena) -> Option<FieldError> {
    let release = Release::for_stored(NEWEST);
    let path = Path::default();
    let mut found = validate::default(value, schema, &path, release);
    let mut errors = list_types::validate(value, schema, &path);
    errors.append(&mut found.errors);
    errors.append(&mut found.undecided);
    match embedded::decode(value, schema, arena) {
        Ok((value, _)) => embedded::validate(value, schema, &path, release, &mut errors),
        Err(fields) => errors.extend(fields.into_iter().flat_map(|field| field.errors)),
    }
    if errors.is_empty() && has_rules(schema) {
        let (rules, refused) = CompiledRules::of(schema, schema.is_embedded_resource, release);
        let end = Instant::now() + RULES_TIME;
        let (mut judged, _) = rules.run(BUDGET, schema, (value, None), arena, &|| Instant::now() < end);
        errors.extend(refused);
        errors.append(&mut judged.errors);
        errors.append(&mut judged.undecided);
    }
    errors.into_iter().next()
}

/// Whether a schema can refuse a value because of a field within.
fn judges(schema: &Schema) -> bool {
    !schema.rules.is_empty()
        || schema.list_type.as_deref() == Some("set")
        || schema
            .checks
            .as_deref()
            .is_some_and(|checks| checks.has_junctors() || checks.unique_items || !checks.values.is_empty())
}

/// Whether a field belongs to every object.
fn is_meta(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}

/// The schema of a field, or `None` if the API server removes the field. Fields of every object need no declaration.
fn field<'s>(schema: &'s Schema, name: &str, keeps: bool, is_meta: bool) -> Option<&'s Schema> {
    if let Some(property) = schema.property(name) {
        return Some(property);
    }
    if is_meta {
        return Some(if name == "metadata" { &METADATA } else { &STRING });
    }
    rest(schema, keeps)
}

/// The schema of the fields that are not declared by name.
fn rest(schema: &Schema, keeps: bool) -> Option<&Schema> {
    match &schema.additional {
        Some(Additional::Schema(schema)) => Some(schema),
        Some(Additional::Allowed(true)) => Some(&EMPTY),
        Some(Additional::Allowed(false)) => None,
        None => keeps.then_some(&*ANY),
    }
}

/// The names of types, for texts.
fn names(set: u8) -> String {
    if set & !types::NULL == types::ALL & !types::NULL {
        return "any value".to_owned();
    }
    let all = [
        (types::BOOLEAN, "boolean"),
        (types::FRACTION, "number"),
        (types::INTEGER, "integer"),
        (types::STRING, "string"),
        (types::LIST, "array"),
        (types::OBJECT, "object"),
    ];
    let is_named = |of: u8| set & of != 0 && !(of == types::INTEGER && set & types::FRACTION != 0);
    let named: Vec<&str> = all.into_iter().filter(|(of, _)| is_named(*of)).map(|(_, name)| name).collect();
    if named.is_empty() { "null".to_owned() } else { named.join(" or ") }
}
