//! The recorded Go types of the built-in kinds.

use std::collections::HashMap;
use std::sync::LazyLock;

/// Kinds and types; the head of the file describes the lines. `crates/policy/tools/types` records it.
const TEXT: &str = include_str!("types.txt");

static TABLE: LazyLock<Table> = LazyLock::new(|| Table::read(TEXT));

/// Group, version and kind.
type Kind = (&'static str, &'static str, &'static str);

/// The recorded types.
#[derive(Default)]
pub(super) struct Table {
    kinds: HashMap<Kind, usize>,
    /// The type of the metadata of all objects.
    metadata: Option<usize>,
    names: Vec<&'static str>,
    structs: Vec<Vec<Field>>,
}

/// A field of a struct.
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) omit: Omit,
    pub(super) of: Type,
}

/// When a field is left out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Omit {
    Never,
    /// `omitempty`: an empty string, list or map, zero, false, and a pointer to nothing.
    Empty,
    /// `omitzero`, which only times have.
    Zero,
}

/// A type of a value.
pub(super) enum Type {
    String,
    Bool,
    /// An integer with its smallest and largest value.
    Integer(i64, i64),
    Float,
    Bytes,
    Quantity,
    Time,
    MicroTime,
    Duration,
    IntOrString,
    /// JSON that stays as it is.
    Any,
    Pointer(Box<Type>),
    List(Box<Type>),
    Map(Box<Type>),
    /// A struct by its index.
    Struct(usize),
    /// A schema or another type, in schemas of CRDs.
    SchemaOr(Alternative, usize),
}

/// A type that a field accepts instead of an object schema.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Alternative {
    Bool,
    Schemas,
    Strings,
}

impl Table {
    /// Returns the struct of a kind.
    pub(super) fn kind(group: &str, version: &str, kind: &str) -> Option<usize> {
        TABLE.kinds.get(&(group, version, kind)).copied()
    }

    /// Returns the struct of the metadata of all objects.
    pub(super) fn metadata() -> Option<usize> {
        TABLE.metadata
    }

    /// Returns the fields of a struct, sorted by name.
    pub(super) fn fields(index: usize) -> &'static [Field] {
        TABLE.structs.get(index).map_or(&[], Vec::as_slice)
    }

    /// Returns the name of a struct: `core/v1.PodSpec`.
    pub(super) fn name(index: usize) -> &'static str {
        TABLE.names.get(index).copied().unwrap_or_default()
    }

    fn read(text: &'static str) -> Self {
        let lines = || text.lines().filter(|line| !line.starts_with(['#', '@']));
        let name = |line: &'static str| line.split(' ').next().unwrap_or_default();
        let structs: HashMap<&str, usize> =
            lines().enumerate().map(|(index, line)| (name(line), index)).collect();
        let kinds = text.lines().filter_map(|line| {
            let columns: Vec<&'static str> = line.strip_prefix("@\t")?.split('\t').collect();
            let [group, version, kind, of] = columns[..] else { return None };
            Some(((group, version, kind), *structs.get(of)?))
        });
        let fields = |line: &'static str| {
            line.split(' ').skip(1).filter_map(|field| Field::read(field, &structs)).collect()
        };
        let kinds = kinds.collect();
        let metadata = structs.get("meta/v1.ObjectMeta").copied();
        Self { kinds, metadata, names: lines().map(name).collect(), structs: lines().map(fields).collect() }
    }
}

impl Field {
    fn read(text: &'static str, structs: &HashMap<&str, usize>) -> Option<Self> {
        let (name, of) = text.split_once('=')?;
        let (name, omit) = match (name.strip_suffix('?'), name.strip_suffix('!')) {
            (Some(name), _) => (name, Omit::Empty),
            (_, Some(name)) => (name, Omit::Zero),
            _ => (name, Omit::Never),
        };
        Some(Self { name, omit, of: Type::read(of, structs)? })
    }
}

impl Type {
    fn read(text: &str, structs: &HashMap<&str, usize>) -> Option<Self> {
        const SCHEMA: &str = "apiextensions/v1.JSONSchemaProps";
        for (prefix, build) in
            [("*", Self::Pointer as fn(Box<Self>) -> Self), ("[]", Self::List), ("{}", Self::Map)]
        {
            if let Some(element) = text.strip_prefix(prefix) {
                return Self::read(element, structs).map(|element| build(Box::new(element)));
            }
        }
        let schema_or = |alternative| structs.get(SCHEMA).map(|schema| Self::SchemaOr(alternative, *schema));
        Some(match text {
            "string" => Self::String,
            "bool" => Self::Bool,
            "int64" => Self::Integer(i64::MIN, i64::MAX),
            "int32" => Self::Integer(i32::MIN.into(), i32::MAX.into()),
            "uint32" => Self::Integer(0, u32::MAX.into()),
            "uint16" => Self::Integer(0, u16::MAX.into()),
            "uint8" => Self::Integer(0, u8::MAX.into()),
            "float" => Self::Float,
            "bytes" => Self::Bytes,
            "quantity" => Self::Quantity,
            "time" => Self::Time,
            "microtime" => Self::MicroTime,
            "duration" => Self::Duration,
            "intorstring" => Self::IntOrString,
            "any" => Self::Any,
            "schemaorbool" => return schema_or(Alternative::Bool),
            "schemaorlist" => return schema_or(Alternative::Schemas),
            "schemaorstrings" => return schema_or(Alternative::Strings),
            name => Self::Struct(*structs.get(name)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_read() {
        let kinds = TEXT.lines().filter(|line| line.starts_with('@')).count();
        assert_eq!(TABLE.kinds.len(), kinds);
        let lines = TEXT.lines().filter(|line| !line.starts_with(['#', '@']));
        for (line, fields) in lines.zip(&TABLE.structs) {
            assert_eq!(fields.len(), line.split(' ').count() - 1, "{line}");
            assert!(fields.is_sorted_by(|left, right| left.name < right.name), "{line}");
        }
    }

    #[test]
    fn every_kind_of_the_recorded_minor_has_a_type() {
        for line in include_str!("../kinds/builtin.tsv").lines().filter(|line| !line.starts_with('#')) {
            let columns: Vec<&str> = line.split('\t').collect();
            let [group, version, kind, ..] = columns[..] else { panic!("{line}") };
            let is_served = crate::kinds::lookup(group, version, kind).unwrap().minors.contains(&35);
            assert_eq!(Table::kind(group, version, kind).is_some(), is_served, "{line}");
        }
    }
}
