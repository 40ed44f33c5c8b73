//! Values: one tree serves as JSON document and as CEL value.
//!
//! A [`Value`] is `Copy`. Everything that it points to lives in an [`Arena`] (or in the policy that produced it). Arena data owns
//! no heap memory, since an arena runs no destructors.

mod arena;
mod compare;
pub(crate) mod format;
mod map;
pub(crate) mod native;
pub(crate) mod number;
mod opaque;
pub(crate) mod quantity;
mod read;
pub(crate) mod sum;
pub(crate) mod typed;
pub(crate) mod work;
mod write;

use std::cmp::Ordering;

pub use arena::{Arena, MAX_BYTES};
pub(crate) use compare::{NotANumber, compare, equal, identical};
pub(crate) use map::order as key_order;
pub use number::Timestamp;
pub use opaque::{Authorizer, Cidr, GroupCheck, Opaque, PathCheck, ResourceCheck, Semver, Url};
pub use read::{ReadError, read_json};
pub use typed::ValueShape;
pub use write::{write_json, write_json_up_to};

/// A JSON or CEL value.
#[derive(Clone, Copy, Debug, Default)]
pub enum Value<'a> {
    /// JSON `null`.
    #[default]
    Null,
    /// A boolean.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer; never read from JSON.
    Uint(u64),
    /// A floating point number.
    Double(f64),
    /// Text.
    String(&'a str),
    /// Bytes; never read from JSON.
    Bytes(&'a [u8]),
    /// A list.
    List(&'a [Value<'a>]),
    /// Two lists that were added. Lists are not copied, since 64 variables could double a list 64 times.
    Concat(&'a Concat<'a>),
    /// A map with string keys, sorted by key.
    Object(&'a [(&'a str, Value<'a>)]),
    /// A map with keys of any type, sorted by key.
    Map(&'a [(Value<'a>, Value<'a>)]),
    /// A point in time.
    Timestamp(Timestamp),
    /// A duration in nanoseconds, as in Go.
    Duration(i64),
    /// A type, by its run-time name.
    Type(&'a str),
    /// An optional value.
    Optional(Option<&'a Value<'a>>),
    /// A value of a Kubernetes library.
    Opaque(&'a Opaque<'a>),
    /// A list or map of a document as its schema declares it, or a value whose conversion needs memory or fails.
    Typed(&'a Value<'a>, &'a ValueShape),
    /// The composed `variables` of a policy. The evaluator resolves its fields.
    Variables,
}

/// A point in time as CEL prints it.
pub fn timestamp_text(time: Timestamp) -> String {
    number::timestamp(time)
}

/// The sum of two lists.
#[derive(Clone, Copy, Debug)]
pub struct Concat<'a> {
    left: Value<'a>,
    right: Value<'a>,
    len: usize,
    depth: u32,
}

/// Sums of lists deeper than this are copied, so that an element is found in bounded time.
const MAX_CONCAT_DEPTH: u32 = 64;

impl<'a> Value<'a> {
    /// Name of the value's type at run time.
    pub fn type_name(&self) -> &'a str {
        match self {
            Value::Null => "null_type",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Uint(_) => "uint",
            Value::Double(_) => "double",
            Value::String(_) => "string",
            Value::Bytes(_) => "bytes",
            Value::List(_) | Value::Concat(_) => "list",
            Value::Object(_) | Value::Map(_) | Value::Variables => "map",
            Value::Timestamp(_) => "google.protobuf.Timestamp",
            Value::Duration(_) => "google.protobuf.Duration",
            Value::Type(_) => "type",
            Value::Optional(_) => "optional_type",
            Value::Opaque(opaque) => opaque.type_name(),
            Value::Typed(..) if self.is_list() => "list",
            Value::Typed(..) if self.entries().is_some() => "map",
            Value::Typed(..) => "error",
        }
    }

    /// The text of a string value.
    pub fn as_str(&self) -> Option<&'a str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The value of a boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(value) => Some(*value),
            _ => None,
        }
    }

    pub(crate) fn is_list(&self) -> bool {
        self.list_len().is_some()
    }

    /// The number of elements of a list.
    pub fn list_len(&self) -> Option<usize> {
        match self {
            Value::List(items) => Some(items.len()),
            Value::Concat(concat) => Some(concat.len),
            Value::Typed(Value::List(items), shape) => shape.items().map(|_| items.len()),
            _ => None,
        }
    }

    /// The element of a list at an index.
    pub fn element(&self, index: usize) -> Option<Value<'a>> {
        let mut list = *self;
        let mut index = index;
        loop {
            match list {
                Value::List(items) => return items.get(index).copied(),
                Value::Typed(Value::List(items), shape) => {
                    return Some(typed::view(items.get(index)?, shape.items()?));
                }
                Value::Concat(concat) => {
                    let left = concat.left.list_len()?;
                    if index < left {
                        list = concat.left;
                    } else {
                        index -= left;
                        list = concat.right;
                    }
                }
                _ => return None,
            }
        }
    }

    /// The elements of a list in order; nothing for other values. In an evaluation they end early at the limit of [`work`].
    pub fn elements(&self) -> Elements<'a> {
        Elements { stack: vec![*self], current: [].iter(), shape: None, is_counted: true }
    }

    /// The elements of a list in order, without a limit, for callers that have one.
    pub(crate) fn all_elements(&self) -> Elements<'a> {
        Elements { stack: vec![*self], current: [].iter(), shape: None, is_counted: false }
    }

    /// Adds two lists. Elements are copied only if the sum is small or deep.
    pub(crate) fn concat(arena: &'a Arena, left: Value<'a>, right: Value<'a>) -> Value<'a> {
        let (Some(left_len), Some(right_len)) = (left.list_len(), right.list_len()) else {
            return Value::Null;
        };
        if right_len == 0 {
            return left;
        }
        if left_len == 0 {
            return right;
        }
        let depth = left.depth().max(right.depth()) + 1;
        let concat = Value::Concat(arena.store(Concat {
            left,
            right,
            len: left_len.saturating_add(right_len),
            depth,
        }));
        if depth > MAX_CONCAT_DEPTH && left_len.saturating_add(right_len) <= 1 << 20 {
            return concat.flatten(arena);
        }
        concat
    }

    fn depth(&self) -> u32 {
        match self {
            Value::Concat(concat) => concat.depth,
            _ => 0,
        }
    }

    /// Copies the elements of a sum of lists into one slice.
    pub(crate) fn flatten(self, arena: &'a Arena) -> Value<'a> {
        match self {
            Value::Concat(sum) => {
                // The list is built before it is copied.
                if !arena.has_room(sum.len.saturating_mul(2 * size_of::<Value<'_>>())) {
                    return Value::List(&[]);
                }
                Value::List(arena.slice(&self.all_elements().collect::<Vec<_>>()))
            }
            other => other,
        }
    }

    /// Number of characters, bytes, elements or entries, as `size()` has it.
    pub(crate) fn size(&self) -> Option<usize> {
        match self {
            Value::String(text) => Some(number::chars(text)),
            Value::Bytes(bytes) => Some(bytes.len()),
            Value::List(_) | Value::Concat(_) => self.list_len(),
            Value::Object(entries) => Some(entries.len()),
            Value::Map(entries) => Some(entries.len()),
            Value::Typed(..) => self.list_len().or_else(|| self.entries().map(|entries| entries.len())),
            Value::Opaque(opaque) => opaque.size(),
            _ => None,
        }
    }

    /// Whether the value is empty or zero, as `optional.ofNonZeroValue` has it.
    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Value::Null => true,
            Value::Bool(value) => !value,
            Value::Int(value) | Value::Duration(value) => *value == 0,
            Value::Uint(value) => *value == 0,
            Value::Double(value) => value.partial_cmp(&0.0) == Some(Ordering::Equal),
            Value::Timestamp(value) => value.seconds == number::YEAR_ONE && value.nanos == 0,
            Value::Optional(_) | Value::Type(_) | Value::Opaque(_) | Value::Variables => false,
            sized => sized.size() == Some(0),
        }
    }
}

/// The elements of a list in order.
pub struct Elements<'a> {
    stack: Vec<Value<'a>>,
    current: std::slice::Iter<'a, Value<'a>>,
    /// The shape of the current elements.
    shape: Option<&'a ValueShape>,
    is_counted: bool,
}

impl<'a> Iterator for Elements<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        loop {
            if let Some(value) = self.current.next() {
                return Some(self.shape.map_or(*value, |shape| typed::view(value, shape)));
            }
            let (list, shape) = match self.stack.pop()? {
                Value::Typed(list, shape) => (*list, Some(shape.items()?)),
                list => (list, None),
            };
            match list {
                Value::List(items) => {
                    if self.is_counted && !work::read(items.len()) {
                        return None;
                    }
                    self.shape = shape;
                    self.current = items.iter();
                }
                Value::Concat(concat) => {
                    self.stack.push(concat.right);
                    self.stack.push(concat.left);
                }
                _ => {}
            }
        }
    }
}
