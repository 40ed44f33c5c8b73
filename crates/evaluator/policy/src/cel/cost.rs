//! Run-time cost of calls, per function and overload, as the API server's estimator and cel-go's tracker have it.

use super::outcome::EvalResult;
use crate::release::Release;
use crate::value::{Opaque, Value, work};

/// How the cost of a call follows from its arguments and result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cost {
    /// A fixed cost.
    Fixed(u64),
    /// A tenth of the size of an argument.
    Traverse(usize),
    /// A tenth of the size of the first argument. Functions outside of cel-go's base see no size in an optional value.
    Read,
    /// A fifth of the size of the first argument.
    TraverseTwice,
    /// A fifth of the size of the result.
    BuildResult,
    /// The size of an argument.
    Size(usize),
    /// A tenth of the smaller of two sizes.
    Compare,
    /// A tenth of the sum of two sizes.
    Concatenate,
    /// String by pattern.
    Regex,
    /// String by substring.
    Contains,
    /// All strings, bytes and elements within a list.
    TraverseAll,
    /// A selector with its requirements.
    Selector,
    /// Two prefixes, and a string that is parsed.
    ContainsIp { text: bool },
    /// Three prefixes and one, and a string that is parsed.
    ContainsCidr { text: bool },
    /// String by the longest pattern of the format.
    Validate,
    /// `slice`, `reverse` and `range` of lists: the size of the result.
    BuildList,
    /// `flatten`: the size of the list by its depth, which wraps in cel-go 0.26 if it is negative.
    Flatten { wraps: bool },
    /// `sets`: each element of one list with each of the other, so many times.
    Sets(u64),
    /// `sort` and `distinct`: each element with each other, of the list or of the keys.
    CompareAll(usize),
}

/// Cost of an authorization check: two fit into an expression.
const CHECK: u64 = 350_000;
/// Cost of a new list.
const NEW_LIST: u64 = 10;

impl Cost {
    /// The cost of a function's overload on a release: 1 if it has no row. `overload` is empty if several are possible. A test of
    /// the library names all overloads that cost 1.
    pub(crate) fn new(function: &str, overload: &str, release: Release) -> Self {
        if let Some(cost) = Self::of_function(function, overload) {
            return cost;
        }
        if let Some(cost) = Self::of_list_extension(overload, release) {
            return cost;
        }
        match overload {
            "starts_with_string" | "ends_with_string" if release.starts_with_costs_by_argument() => {
                Cost::Traverse(1)
            }
            "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string"
            | "strings_quote" | "string_format" => Cost::Traverse(0),
            "in_list" => Cost::Size(1),
            "less_string"
            | "greater_string"
            | "less_equals_string"
            | "greater_equals_string"
            | "less_bytes"
            | "greater_bytes"
            | "less_equals_bytes"
            | "greater_equals_bytes"
            | "equals"
            | "not_equals" => Cost::Compare,
            "add_string" | "add_bytes" => Cost::Concatenate,
            "matches" if release.global_matches_costs_by_pattern() => Cost::Regex,
            "matches_string" => Cost::Regex,
            "contains_string" => Cost::Contains,
            _ => Cost::Fixed(1),
        }
    }

    fn of_function(function: &str, overload: &str) -> Option<Self> {
        Some(match function {
            "check" => Cost::Fixed(CHECK),
            "fieldSelector" | "labelSelector" => Cost::Selector,
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" | "includes" => Cost::TraverseAll,
            "ip" if overload == "cidr_ip" => Cost::Fixed(1),
            "url" | "lowerAscii" | "upperAscii" | "substring" | "trim" | "cidr" | "isIP" | "isCIDR"
            | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver" => Cost::Read,
            "replace" | "split" | "ip.isCanonical" => Cost::TraverseTwice,
            "join" => Cost::BuildResult,
            "find" | "findAll" => Cost::Regex,
            "containsIP" => Cost::ContainsIp { text: overload == "cidr_contains_ip_string" },
            "containsCIDR" => Cost::ContainsCidr { text: overload == "cidr_contains_cidr_string" },
            "validate" => Cost::Validate,
            _ => return None,
        })
    }

    fn of_list_extension(overload: &str, release: Release) -> Option<Self> {
        Some(match overload {
            "list_slice" | "lists_range" | "list_reverse" => Cost::BuildList,
            "list_flatten" | "list_flatten_int" => Cost::Flatten { wraps: release.flatten_cost_wraps() },
            "list_distinct" => Cost::CompareAll(0),
            "list_sets_contains_list" | "list_sets_intersects_list" => Cost::Sets(1),
            "list_sets_equivalent_list" => Cost::Sets(2),
            sort if sort.starts_with("list_") && sort.ends_with("_sort") => Cost::CompareAll(0),
            sort if sort.starts_with("list_") && sort.ends_with("_sortByAssociatedKeys") => {
                Cost::CompareAll(1)
            }
            _ => return None,
        })
    }

    /// The cost of `!=`, which has no exception for Kubernetes types.
    pub(crate) fn of_inequality(args: &[EvalResult<'_>]) -> u64 {
        let smaller = args.iter().map(size).min().unwrap_or(1);
        ceil(smaller as f64 * 0.1)
    }

    /// The cost of a call with these arguments and this result.
    pub(crate) fn of_call<'a>(self, args: &[EvalResult<'a>], result: &EvalResult<'a>) -> u64 {
        let size_at = |index: usize| args.get(index).map_or(1, size);
        let plain_size_at = |index: usize| args.get(index).map_or(1, plain_size);
        match self {
            Cost::Fixed(cost) => cost,
            Cost::Traverse(index) => ceil(size_at(index) as f64 * 0.1),
            Cost::Read => ceil(plain_size_at(0) as f64 * 0.1),
            Cost::TraverseTwice => ceil(plain_size_at(0) as f64 * 2.0 * 0.1),
            Cost::BuildResult => ceil(size(result) as f64 * 2.0 * 0.1),
            Cost::Size(index) => size_at(index),
            Cost::Compare => equality(args, size_at(0).min(size_at(1))),
            Cost::Concatenate => ceil((size_at(0).saturating_add(size_at(1))) as f64 * 0.1),
            Cost::Regex => {
                ceil((1.0 + size_at(0) as f64) * 0.1).saturating_mul(ceil(size_at(1) as f64 * 0.25))
            }
            Cost::Contains => ceil(size_at(0) as f64 * 0.1).saturating_mul(ceil(size_at(1) as f64 * 0.1)),
            Cost::TraverseAll => match args.first() {
                Some(Ok(value)) => work::apart(|| traversal(value)),
                _ => 1,
            },
            Cost::Selector => {
                let requirements = ceil(size_at(1) as f64 * 0.5);
                NEW_LIST + ceil(size_at(1) as f64 * 0.1) + requirements.saturating_mul(50)
            }
            Cost::ContainsIp { text } => {
                let base = ceil((plain_size_at(0) * 2) as f64 * 0.1);
                base + if text { ceil(plain_size_at(1) as f64 * 0.1) } else { 0 }
            }
            Cost::ContainsCidr { text } => {
                let size = plain_size_at(0);
                let base = ceil((size * 2) as f64 * 0.1) + ceil(size as f64 * 0.1) + 1;
                base + if text { ceil(plain_size_at(1) as f64 * 0.1) } else { 0 }
            }
            Cost::Validate => match args.first() {
                Some(Ok(Value::Opaque(Opaque::Format(name)))) => {
                    let pattern = super::library::formats::max_regex_size(name);
                    ceil((1.0 + size_at(1) as f64) * 0.1).saturating_mul(ceil(pattern as f64 * 0.25))
                }
                _ => 1,
            },
            Cost::BuildList => size(result) + 1 + NEW_LIST,
            Cost::Flatten { wraps } => {
                let depth = match args.get(1) {
                    Some(Ok(Value::Int(depth))) => *depth,
                    _ => 1,
                };
                let visited = if depth < 0 && !wraps {
                    plain_size_at(0)
                } else {
                    truncate(plain_size_at(0) as f64 * depth as f64)
                };
                visited.wrapping_add(1 + NEW_LIST)
            }
            Cost::Sets(factor) => {
                1 + plain_size_at(0).saturating_mul(plain_size_at(1)).saturating_mul(factor)
            }
            Cost::CompareAll(index) => compare_all(args.get(index)),
        }
    }
}

/// Equality of Kubernetes types costs 1, whatever their size is.
fn equality(args: &[EvalResult<'_>], size: u64) -> u64 {
    match args.first() {
        Some(Ok(Value::Opaque(_))) => 1,
        _ => ceil(size as f64 * 0.1),
    }
}

fn compare_all(list: Option<&EvalResult<'_>>) -> u64 {
    let Some(Ok(list)) = list else { return 1 };
    let size = list.size().unwrap_or(0) as u64;
    let factor = match list.element(0) {
        Some(Value::String(_) | Value::Bytes(_)) => 2.1,
        _ => 2.0,
    };
    truncate(size.saturating_mul(size) as f64 * factor) + 1 + NEW_LIST
}

/// Size of a value for costs: that of an optional's value, and 1 for values without size.
fn size(outcome: &EvalResult<'_>) -> u64 {
    let mut value = match outcome {
        Ok(value) => *value,
        Err(_) => return 1,
    };
    while let Value::Optional(Some(inner)) = value {
        value = *inner;
    }
    value.size().map_or(1, |size| size as u64)
}

/// Size of a value for the costs of functions outside of cel-go's base.
fn plain_size(outcome: &EvalResult<'_>) -> u64 {
    match outcome {
        Ok(Value::Optional(_)) => 1,
        other => size(other),
    }
}

/// Cost of visiting a value with all that is in it.
fn traversal(value: &Value<'_>) -> u64 {
    match value {
        Value::String(text) => truncate(text.len() as f64 * 0.1),
        Value::Bytes(bytes) => truncate(bytes.len() as f64 * 0.1),
        value if value.is_list() => {
            value.elements().fold(0, |sum: u64, element| sum.saturating_add(traversal(&element)))
        }
        value => value.entries().map_or(1, |entries| {
            entries.iter().fold(0, |sum: u64, (key, value)| {
                sum.saturating_add(traversal(&key)).saturating_add(traversal(&value))
            })
        }),
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // sizes are small and not negative
fn ceil(cost: f64) -> u64 {
    cost.ceil() as u64
}

/// A number without sign as Go makes it on amd64: one of 2^64 or more becomes 2^63, and a negative one wraps.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // each cast is in its range
fn truncate(cost: f64) -> u64 {
    const TOO_LARGE: f64 = 18_446_744_073_709_551_616.0;
    if cost >= TOO_LARGE {
        1 << 63
    } else if cost < 0.0 {
        (cost as i64).cast_unsigned()
    } else {
        cost as u64
    }
}
