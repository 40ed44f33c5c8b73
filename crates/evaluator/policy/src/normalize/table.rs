//! The types of the built-in kinds.

use std::collections::HashMap;
use std::sync::LazyLock;

/// Kinds and types; the head of the file describes the lines. `crates/evaluator/policy/tools/types` records it.
pub(super) const TEXT: &str = include_str!("types.txt");

/// Fields that the validation of a running API server demands, and enums that it checks. The head of the file describes the lines.
pub(super) const DEMANDS: &str = include_str!("demands.tsv");

/// The minor version whose types are recorded.
pub const RECORDED: u8 = 35;

static TABLE: LazyLock<Types> = LazyLock::new(|| Types::read(TEXT, DEMANDS));

/// Types of built-in kinds.
#[derive(Debug, Default)]
pub struct Types {
    /// Structs by `group/version/kind`.
    kinds: HashMap<String, usize>,
    /// The type of the metadata of all objects.
    metadata: Option<usize>,
    names: Vec<Box<str>>,
    structs: Vec<Vec<StructField>>,
}

/// A field of a struct.
#[derive(Debug)]
pub(super) struct StructField {
    pub(super) name: Box<str>,
    pub(super) omit: Omit,
    pub(super) of: FieldType,
    pub(super) demand: Demand,
}

/// The demands of the API server's validation on a field.
#[derive(Clone, Debug, Default)]
pub(super) struct Demand {
    /// The text of the error if the field is absent, or if its value is the one that stands for an absent field.
    pub(super) required: Option<Box<str>>,
    /// The values that texts can have; all if there is none.
    pub(super) values: Vec<Box<str>>,
    /// The text of the error about other values, in which % is the value.
    pub(super) unsupported: Box<str>,
    /// Whether nothing below the field was tried.
    pub(super) is_untried: bool,
}

/// Demands by struct and field.
type Demands<'t> = HashMap<(&'t str, &'t str), Demand>;

/// When a field is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Omit {
    Never,
    /// `omitempty`: an empty string, list or map, zero, false, and a pointer to nothing.
    Empty,
    /// `omitzero`, which only times have.
    Zero,
}

/// A type of a value.
#[derive(Debug)]
pub(super) enum FieldType {
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
    Pointer(Box<FieldType>),
    List(Box<FieldType>),
    Map(Box<FieldType>),
    /// A struct by its index.
    Struct(usize),
    /// A schema or another type, in schemas of CRDs.
    SchemaOr(Alternative, usize),
}

/// A type that a field accepts instead of an object schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alternative {
    Bool,
    Schemas,
    Strings,
}

impl Types {
    /// Returns the types of the minor that is recorded.
    pub fn recorded() -> &'static Self {
        &TABLE
    }

    /// Returns whether the fields of a kind are known.
    pub fn has(&self, kind: (&str, &str, &str)) -> bool {
        self.kind(kind).is_some()
    }

    /// Returns the struct of a kind.
    pub(super) fn kind(&self, (group, version, kind): (&str, &str, &str)) -> Option<usize> {
        self.kinds.get(&format!("{group}/{version}/{kind}")).copied()
    }

    /// Returns the struct of the metadata of all objects.
    pub(super) fn metadata(&self) -> Option<usize> {
        self.metadata
    }

    /// Returns the fields of a struct, sorted by name.
    pub(super) fn fields(&self, index: usize) -> &[StructField] {
        self.structs.get(index).map_or(&[], Vec::as_slice)
    }

    /// Returns the name of a struct: `core/v1.PodSpec`.
    pub(super) fn name(&self, index: usize) -> &str {
        self.names.get(index).map_or("", |name| name)
    }

    /// Reads the lines of `types.txt` and `demands.tsv`.
    pub(super) fn read(text: &str, demands: &str) -> Self {
        let demands = read_demands(demands);
        let structs: HashMap<&str, usize> =
            structs(text).enumerate().map(|(index, (name, _))| (name, index)).collect();
        let kinds = text.lines().filter_map(|line| {
            let (kind, of) = line.strip_prefix("@\t")?.rsplit_once('\t')?;
            Some((kind.replace('\t', "/"), *structs.get(of)?))
        });
        let kinds = kinds.collect();
        let metadata = structs.get("meta/v1.ObjectMeta").copied();
        let (mut names, mut types) = (Vec::new(), Vec::new());
        for (name, fields) in self::structs(text) {
            let fields = fields.filter_map(|field| StructField::read(name, field, &structs, &demands));
            types.push(fields.collect());
            names.push(name.into());
        }
        Self { kinds, metadata, names, structs: types }
    }
}

/// Returns the structs of a text with their fields.
pub(super) fn structs(text: &str) -> impl Iterator<Item = (&str, std::str::Split<'_, char>)> {
    text.lines().filter(|line| !line.starts_with(['#', '@'])).map(|line| {
        let mut words = line.split(' ');
        (words.next().unwrap_or_default(), words)
    })
}

/// Returns the columns of each line: the struct, the field, the demand, and its content in one or two columns.
pub(super) fn demands(text: &str) -> impl Iterator<Item = [&str; 5]> {
    text.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let mut columns = line.split('\t');
        std::array::from_fn(|_| columns.next().unwrap_or_default())
    })
}

fn read_demands(text: &str) -> Demands<'_> {
    let mut read = Demands::new();
    for [of, field, demand, content, text] in demands(text) {
        let known = read.entry((of, field)).or_default();
        match demand {
            "required" => known.required = Some(content.into()),
            "enum" => {
                known.values = content.split(',').map(Box::from).collect();
                known.unsupported = text.into();
            }
            _ => known.is_untried = true,
        }
    }
    read
}

impl StructField {
    fn read(of: &str, text: &str, structs: &HashMap<&str, usize>, demands: &Demands<'_>) -> Option<Self> {
        let (name, value) = text.split_once('=')?;
        let (name, omit) = match (name.strip_suffix('?'), name.strip_suffix('!')) {
            (Some(name), _) => (name, Omit::Empty),
            (_, Some(name)) => (name, Omit::Zero),
            _ => (name, Omit::Never),
        };
        let demand = demands.get(&(of, name)).cloned().unwrap_or_default();
        Some(Self { name: name.into(), omit, of: FieldType::read(value, structs)?, demand })
    }
}

impl FieldType {
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
        for ((name, fields), read) in structs(TEXT).zip(&TABLE.structs) {
            assert_eq!(read.len(), fields.count(), "{name}");
            assert!(read.is_sorted_by(|left, right| left.name < right.name), "{name}");
        }
        assert!(TEXT.lines().next().unwrap().contains(&format!("Kubernetes 1.{RECORDED}.")));
    }

    #[test]
    fn every_demand_is_one_of_a_known_field() {
        let demands_of = |field: &StructField| {
            let Demand { required, values, is_untried, .. } = &field.demand;
            [required.is_some(), !values.is_empty(), *is_untried].into_iter().map(usize::from).sum::<usize>()
        };
        let found: usize = TABLE.structs.iter().flatten().map(demands_of).sum();
        assert_eq!(found, demands(DEMANDS).count());
        assert!(found > 250, "{found}");
    }

    #[test]
    fn every_kind_of_the_recorded_minor_has_a_type() {
        for line in include_str!("../kinds/builtin.tsv").lines().filter(|line| !line.starts_with('#')) {
            let columns: Vec<&str> = line.split('\t').collect();
            let [group, version, kind, ..] = columns[..] else { panic!("{line}") };
            let is_served = crate::kinds::lookup(group, version, kind).unwrap().minors.contains(&RECORDED);
            assert_eq!(TABLE.has((group, version, kind)), is_served, "{line}");
        }
    }
}
