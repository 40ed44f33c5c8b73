//! Estimated costs of the functions outside of cel-go's base.

use super::{Argument, Estimate, Estimator, NEW_LIST, PATTERN, Size, SizeStep, TRAVERSAL, matches, times};
use crate::cel::ast::{Expr, ExprKind, Literal};
use crate::cel::types::CelType;

/// Length of the longest pattern of a format, and of its name.
const FORMAT_PATTERN: f64 = 128.0;
const FORMAT: u64 = 64;
/// Bytes of an address.
const ADDRESS: u64 = 16;

/// The cost of a call without its arguments, if the function has a cost of its own.
pub(super) fn estimate_call(
    estimator: &Estimator<'_>,
    name: &str,
    overload: &str,
    target: Option<&Argument<'_>>,
    args: &[Argument<'_>],
) -> Option<Estimate> {
    let size = |argument: &Argument<'_>| {
        argument.size.or_else(|| estimator.declared(&argument.path)).unwrap_or(Size::UNKNOWN)
    };
    let plain = |cost| Some(Estimate { cost, size: None });
    let sized = |cost, size| Some(Estimate { cost, size: Some(size) });
    if let Some(estimate) = list_extension(overload, target, args, &size) {
        return Some(estimate);
    }
    match (name, target, args) {
        ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" | "includes", Some(target), _) => {
            let Some(element) = element(target) else {
                let is_list = name == "includes";
                return plain(if is_list { size(target).max } else { size(target).times(TRAVERSAL) });
            };
            let text = match element.of {
                CelType::String | CelType::Bytes => size(&element).times(TRAVERSAL),
                _ => 0,
            };
            plain(size(target).max.saturating_mul(text.saturating_add(1)))
        }
        ("url" | "jsonpatch.escapeKey", _, [text]) => sized(size(text).times(TRAVERSAL), size(text)),
        ("lowerAscii" | "upperAscii" | "substring" | "trim", Some(text), _) => {
            sized(size(text).times(TRAVERSAL), size(text))
        }
        ("replace", Some(text), [old, new, ..]) => {
            let (text, old, new) = (size(text), size(old), size(new));
            sized(text.times(2.0 * TRAVERSAL), replaced(text, old, new))
        }
        ("split", Some(text), _) => {
            let text = size(text);
            let limit = args.get(1).and_then(|limit| integer(limit.expr?));
            let max = limit.map_or(text.max, i64::cast_unsigned);
            sized(text.times(2.0 * TRAVERSAL), Size { min: 0, max })
        }
        ("join", Some(list), _) => {
            let count = size(list);
            let mut text = element(list).map_or(Size::exactly(0), |element| count.multiply(size(&element)));
            if let [separator, ..] = args {
                let separators = Size { min: count.min.saturating_sub(1), max: count.max.saturating_sub(1) };
                text = text.add(size(separator).multiply(separators));
            }
            sized(text.times(TRAVERSAL), text)
        }
        ("find" | "findAll", Some(text), [pattern, ..]) => {
            let text = size(text);
            sized(matches(text, size(pattern)), Size { min: 0, max: text.max })
        }
        ("ip", ..) if overload == "cidr_ip" => plain(1),
        (
            "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver",
            _,
            [text, ..],
        ) => plain(size(text).times(TRAVERSAL)),
        ("ip.isCanonical", _, [text, ..]) => plain(size(text).times(2.0 * TRAVERSAL)),
        ("containsIP", _, [other, ..]) => {
            let text = if overload == "cidr_contains_ip_string" { size(other).times(TRAVERSAL) } else { 0 };
            plain(times(2 * ADDRESS, TRAVERSAL).saturating_add(text))
        }
        ("containsCIDR", _, [other, ..]) => {
            let text = if overload == "cidr_contains_cidr_string" { size(other).times(TRAVERSAL) } else { 0 };
            plain((times(2 * ADDRESS, TRAVERSAL) + times(ADDRESS, TRAVERSAL) + 1).saturating_add(text))
        }
        ("validate", _, [text, ..]) => plain(times(size(text).times(TRAVERSAL), FORMAT_PATTERN * PATTERN)),
        ("_==_", _, [left, right]) if left.of == right.of => match left.of.runtime_name() {
            "net.IP" | "net.CIDR" | "kubernetes.Quantity" | "kubernetes.Semver" => plain(1),
            "kubernetes.NamedFormat" => plain(times(FORMAT, TRAVERSAL)),
            "kubernetes.URL" => plain(times(right.size.map_or(1, |size| size.max), TRAVERSAL)),
            _ => None,
        },
        _ => None,
    }
}

/// The cost of a function of the lists and sets of cel-go.
fn list_extension(
    overload: &str,
    target: Option<&Argument<'_>>,
    args: &[Argument<'_>],
    size: &dyn Fn(&Argument<'_>) -> Size,
) -> Option<Estimate> {
    let allocated = |factor: f64, size: Size| {
        let cost = size.times(factor).saturating_add(1 + NEW_LIST);
        Some(Estimate { cost, size: Some(size) })
    };
    let number = |argument: &Argument<'_>, default: u64| {
        let value = argument.expr.and_then(integer);
        value.map_or(default, |value| u64::try_from(value).unwrap_or(0))
    };
    let sort = |list: &Argument<'_>| {
        let is_text = overload.starts_with("list_string_") || overload.starts_with("list_bytes_");
        let factor = if is_text { 2.0 + TRAVERSAL } else { 2.0 };
        allocated(factor, size(list).multiply(size(list)))
    };
    match (overload, target, args) {
        (
            "list_sets_contains_list" | "list_sets_intersects_list" | "list_sets_equivalent_list",
            _,
            [left, right],
        ) => {
            let factor = if overload == "list_sets_equivalent_list" { 2.0 } else { 1.0 };
            let cost = size(left).multiply(size(right)).times(factor).saturating_add(1);
            Some(Estimate { cost, size: None })
        }
        ("list_slice", Some(list), [start, end]) => {
            let len = number(end, size(list).max).wrapping_sub(number(start, 0));
            allocated(1.0, Size::exactly(len))
        }
        ("lists_range", None, [count]) => allocated(1.0, Size::exactly(number(count, u64::MAX))),
        ("list_reverse" | "list_flatten", Some(list), []) => allocated(1.0, size(list)),
        ("list_flatten_int", Some(list), [depth]) => allocated(number(depth, u64::MAX) as f64, size(list)),
        ("list_distinct", Some(list), []) => allocated(2.0, size(list).multiply(size(list))),
        (sorts, Some(list), []) if sorts.starts_with("list_") && sorts.ends_with("_sort") => sort(list),
        (sorts, Some(_), [keys]) if sorts.ends_with("_sortByAssociatedKeys") => sort(keys),
        _ => None,
    }
}

/// The elements of a list as an argument.
fn element(list: &Argument<'_>) -> Option<Argument<'static>> {
    let of = (*list.of.parameters().first()?).clone();
    let mut path = list.path.clone();
    if !path.is_empty() {
        path.push(SizeStep::Element);
    }
    Some(Argument { expr: None, of, path, size: None })
}

fn integer(expr: &Expr) -> Option<i64> {
    match expr.kind {
        ExprKind::Literal(Literal::Int(value)) => Some(value),
        _ => None,
    }
}

/// The size of a text after a replacement.
fn replaced(text: Size, old: Size, new: Size) -> Size {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a cast saturates
    let divide = |text: u64, by: u64| (text as f64 / by as f64).ceil() as u64;
    let (most, longest) = if old.min == 0 {
        (text.max.saturating_add(1), text.max)
    } else if new.max <= old.min {
        (0, text.max)
    } else {
        (divide(text.max, old.min), 0)
    };
    let (least, shortest) = if old.max == 0 {
        (text.min.saturating_add(1), text.min)
    } else if old.max <= new.min {
        (0, text.min)
    } else {
        (divide(text.min, old.max), 0)
    };
    let count = Size { min: least, max: most };
    count.multiply(new).add(Size { min: shortest, max: longest })
}
