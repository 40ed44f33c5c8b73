//! Adds rules to generated schemas. Most of them compile; some read fields that are not declared.

use fastrand::Rng;
use serde_json::{Value as Json, json};

use crate::literals::pick;

/// Adds rules to some of the schemas within a schema. `has_old` says whether its values can have old ones.
pub(crate) fn add_rules(rng: &mut Rng, schema: &mut Json, has_old: bool) {
    if rng.u32(..100) < 20 {
        let rules: Vec<Json> = (0..rng.usize(1..4)).map(|_| rule(rng, schema, has_old)).collect();
        schema["x-kubernetes-validations"] = json!(rules);
    }
    if let Some(properties) = schema["properties"].as_object_mut() {
        properties.values_mut().for_each(|schema| add_rules(rng, schema, has_old));
    }
    let is_map = schema["x-kubernetes-list-type"] == "map";
    for (name, has_old) in [("items", has_old && is_map), ("additionalProperties", has_old)] {
        if schema[name].is_object() {
            add_rules(rng, &mut schema[name], has_old);
        }
    }
    // Indexing adds absent fields as null.
    for name in ["properties", "items", "additionalProperties", "x-kubernetes-list-type"] {
        if schema.get(name).is_some_and(Json::is_null) {
            schema.as_object_mut().expect("a schema").remove(name);
        }
    }
}

/// A rule for the values of a schema.
fn rule(rng: &mut Rng, schema: &Json, has_old: bool) -> Json {
    let has_old = has_old || rng.u32(..50) == 0;
    let mut rule =
        json!({ "rule": condition(rng, schema, "self", if has_old { "oldSelf" } else { "self" }) });
    match rng.u32(..20) {
        5..8 if !has_old => {}
        0 => rule["message"] = json!(pick(rng, &[" is wrong ", "", "wrong"])),
        1 => {
            rule["reason"] =
                json!(pick(rng, &["FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate"]));
        }
        2 => {
            let text =
                pick(rng, &["'is ' + 'wrong'", "' '", "self", "'a\\nb'", "string(1 / 0)", "[oldSelf][1]"]);
            rule["messageExpression"] = json!(text);
        }
        3 | 4 => {
            let name = schema["properties"].as_object().and_then(|fields| fields.keys().next());
            let name = name.map_or("nope", String::as_str);
            rule["fieldPath"] = json!(if rng.bool() { format!(".{name}") } else { format!("['{name}']") });
        }
        5..8 => {
            rule["optionalOldSelf"] = json!(true);
            let text = pick(
                rng,
                &[
                    "!oldSelf.hasValue() || oldSelf.value() == self",
                    "oldSelf.orValue(self) == self",
                    "oldSelf.optMap(x, x == self).orValue(false)",
                    "self == oldSelf.value()",
                ],
            );
            rule["rule"] = json!(text);
            if let Some((name, _)) = field(rng, schema) {
                rule["rule"] = json!(format!("oldSelf.?{name}.hasValue() == has(self.{name})"));
            }
        }
        _ => {}
    }
    rule
}

/// A field that an expression can name, with its schema.
fn field<'s>(rng: &mut Rng, schema: &'s Json) -> Option<(String, &'s Json)> {
    let fields: Vec<_> = schema["properties"].as_object()?.iter().collect();
    let (name, schema) = fields.get(rng.usize(..fields.len().max(1)))?;
    let is_plain = |symbol: char| symbol.is_ascii_alphanumeric() || "-./".contains(symbol);
    if !name.chars().all(is_plain) {
        return None;
    }
    let name = name.replace('-', "__dash__").replace('/', "__slash__");
    // The dots of the other escapes do not come from the name.
    Some((name.replace('.', "__dot__"), schema))
}

/// A condition on an expression whose values have a schema, and on the one before an update.
fn condition(rng: &mut Rng, schema: &Json, this: &str, old: &str) -> String {
    let templates: &[&str] = match schema["type"].as_str() {
        Some("string") => match schema["format"].as_str() {
            Some("date-time" | "date") => &[
                "THIS > timestamp('2020-01-01T00:00:00Z')",
                "THIS.getFullYear() == 2024",
                "THIS == OLD",
                "string(THIS) != 'x'",
            ],
            Some("duration") => {
                &["THIS > duration('1h')", "THIS.getSeconds() < 100", "THIS != OLD", "string(THIS) == '1s'"]
            }
            Some("byte") => &["THIS.size() > 1", "THIS == OLD", "THIS == b'abc'", "string(THIS) != ''"],
            _ => &[
                "THIS != 'x'",
                "THIS.size() < 2",
                "THIS == OLD",
                "THIS != OLD",
                "THIS.startsWith('a')",
                "THIS <= 'b'",
                "THIS.matches('^[a-z]*$')",
                "THIS in ['a', 'b', '']",
                "THIS.contains('é')",
                "THIS + 'a' != 'ba'",
                "THIS.lowerAscii() == THIS",
                "int(THIS) > 1",
                "quantity(THIS).isGreaterThan(quantity('1'))",
                "isIP(THIS) || isURL(THIS)",
                "THIS.split('a').size() < 2",
                "[THIS, OLD].isSorted()",
            ],
        },
        Some("integer") => &[
            "THIS > 1",
            "THIS % 2 == 0",
            "THIS != OLD",
            "THIS in [1, 2, 5]",
            "10 / THIS > 1",
            "THIS <= OLD",
            "THIS < 2.5",
            "string(THIS) == '3'",
        ],
        Some("number") => &[
            "THIS > 1.0",
            "THIS == 2.5",
            "THIS != OLD",
            "double(int(THIS)) == THIS",
            "THIS < 3",
            "type(THIS) == double",
        ],
        Some("boolean") => &["THIS", "!THIS", "THIS == OLD", "THIS || OLD"],
        Some("array") => &[
            "THIS.size() < 2",
            "THIS == OLD",
            "THIS.all(x, ITEM)",
            "THIS.exists(x, ITEM)",
            "THIS.exists_one(x, ITEM)",
            "THIS.filter(x, ITEM).size() > 0",
            "THIS[1] == THIS[0]",
            "THIS.all(x, x == THIS[0])",
            "(THIS + OLD) == THIS",
            "(THIS + OLD).size() < 3",
            "OLD.all(x, x in THIS)",
            "THIS + THIS == THIS",
            "THIS.map(x, x).size() == THIS.size()",
            "dyn(THIS) == 1",
            "THIS.all(i, x, i == 0 || x != THIS[0])",
            "(THIS + OLD).all(x, ITEM)",
            "(THIS + THIS)[THIS.size()] == OLD[0]",
            "THIS in [OLD] || [THIS] != [OLD]",
            "(OLD + THIS.filter(x, ITEM)) != OLD + THIS",
        ],
        Some("object") if schema["additionalProperties"].is_object() => &[
            "THIS.size() < 2",
            "THIS.all(k, k != 'a')",
            "'a' in THIS",
            "THIS['a'] == THIS['k.l']",
            "THIS == OLD",
            "THIS.exists(k, k in OLD && THIS[k] == OLD[k])",
            "THIS.all(k, has(OLD.a) || k > 'a')",
            "THIS.transformList(k, v, k).size() > 1",
        ],
        Some("object") => return of_object(rng, schema, this, old),
        _ if schema["x-kubernetes-int-or-string"] == true => &[
            "type(THIS) == int",
            "THIS == 5",
            "type(THIS) == string ? THIS.endsWith('%') : THIS > 3",
            "THIS == OLD",
            "string(THIS) != 'x'",
            "THIS > 3",
            "THIS + 1 == 6",
        ],
        _ => &["THIS == OLD", "true"],
    };
    let template = pick(rng, templates);
    let item = if template.contains("ITEM") && rng.u32(..4) > 0 {
        condition(rng, &schema["items"], "x", "x")
    } else {
        "x == x".to_owned()
    };
    template.replace("ITEM", &item).replace("THIS", this).replace("OLD", old)
}

fn of_object(rng: &mut Rng, schema: &Json, this: &str, old: &str) -> String {
    let Some((name, field)) = field(rng, schema).filter(|_| rng.u32(..8) > 0) else {
        return pick(
            rng,
            &["THIS == OLD", "THIS != OLD", "has(THIS.nope)", "THIS == null || true", "THIS in [OLD]"],
        )
        .replace("THIS", this)
        .replace("OLD", old);
    };
    let (this, old) = (format!("{this}.{name}"), format!("{old}.{name}"));
    match rng.u32(..8) {
        0 => format!("has({this})"),
        1 => format!("{this} == {old}"),
        2 => format!("has({this}) == has({old})"),
        3 => format!("!has({this}) || {this} != {old}"),
        4 => condition(rng, field, &this, &old),
        5 => format!("[{this}].exists(x, {})", condition(rng, field, "x", &old)),
        _ => format!("!has({this}) || {}", condition(rng, field, &this, &old)),
    }
}
