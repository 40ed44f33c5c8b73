//! The recorded types of built-in kinds are those of the API server's OpenAPI v3.

use std::collections::{BTreeMap, BTreeSet};

use e2e::prelude::*;

use super::openapi::{self, Schemas, short};

/// The types; the head of the file describes the lines.
const TYPES: &str = include_str!("../../../../crates/evaluator/policy/src/normalize/types.txt");

#[e2e::case]
fn the_recorded_types_are_those_of_the_api_server(context: &TestContext) -> Result<()> {
    let everything = Options::named("types")
        .flag("--runtime-config=api/all=true")
        .flag("--feature-gates=AllAlpha=true,AllBeta=true");
    let cluster = context.own_cluster(&everything)?;
    let documents = openapi::documents(cluster.api(), None)?;
    let recorded = recorded();
    let (mut wrong, mut compared) = (Vec::new(), BTreeSet::new());
    let mut kinds = 0;
    for line in TYPES.lines() {
        let Some(columns) = line.strip_prefix("@\t") else { continue };
        let columns: Vec<&str> = columns.split('\t').collect();
        let [group, version, kind, _] = columns[..] else { bail!("{line}") };
        let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        let schemas = documents.get(&api_version).with_context(|| format!("no document of {api_version}"))?;
        let name = schemas.of_kind(&api_version, kind).with_context(|| format!("no schema: {line}"))?;
        compare(schemas, name, &recorded, &mut compared, &mut wrong);
        kinds += 1;
    }
    ensure!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
    ensure!(kinds > 80 && compared.len() > 550, "{kinds} kinds, {} types", compared.len());
    print(format_args!("{kinds} kinds with {} types", compared.len()));
    Ok(())
}

/// Returns the types of all fields by struct, without pointers.
pub(super) fn recorded() -> BTreeMap<&'static str, BTreeMap<&'static str, String>> {
    let structs = TYPES.lines().filter(|line| !line.starts_with(['#', '@']));
    let field = |token: &'static str| {
        let (name, of) = token.split_once('=')?;
        let of = of.replace('*', "");
        let of = if of.starts_with("uint") { "int32".to_owned() } else { of };
        Some((name.trim_end_matches(['?', '!']), of))
    };
    let read = |line: &'static str| {
        let (name, fields) = line.split_once(' ').unwrap_or((line, ""));
        (name, fields.split(' ').filter_map(field).collect())
    };
    structs.map(read).collect()
}

/// Compares a struct and those that its fields have.
fn compare(
    schemas: &Schemas,
    name: &str,
    recorded: &BTreeMap<&str, BTreeMap<&str, String>>,
    compared: &mut BTreeSet<String>,
    wrong: &mut Vec<String>,
) {
    let of = short(name);
    if !compared.insert(of.clone()) {
        return;
    }
    let Some(fields) = recorded.get(of.as_str()) else {
        wrong.push(format!("{of} is not recorded"));
        return;
    };
    let served: BTreeSet<&str> = schemas.properties(name).into_iter().collect();
    let known: BTreeSet<&str> = fields.keys().copied().collect();
    for field in served.symmetric_difference(&known) {
        wrong.push(format!(
            "{of} {field}: only {}",
            if served.contains(field) { "served" } else { "recorded" }
        ));
    }
    for field in served.intersection(&known) {
        let Some(schema) = schemas.property(name, field) else { continue };
        let is = schemas.type_of(schema);
        // OpenAPI has no integers without a sign, and no fields of a struct without fields.
        let is_empty = is == "any" && recorded.get(fields[field].as_str()).is_some_and(BTreeMap::is_empty);
        if is != fields[field] && !(is == "int64" && fields[field] == "int32") && !is_empty {
            wrong.push(format!("{of} {field}: served {is}, recorded {}", fields[field]));
        }
        let mut below = schema;
        while !below["items"].is_null() || below["additionalProperties"].is_object() {
            below = if below["items"].is_null() { &below["additionalProperties"] } else { &below["items"] };
        }
        if let Some(name) = schemas.struct_of(below) {
            compare(schemas, name, recorded, compared, wrong);
        }
    }
}
