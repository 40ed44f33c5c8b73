//! Functions of strings: those of the base library and cel-go's extension in version 2.

use super::{Implementation, Library, format};
use crate::cel::outcome::{EvalContext, EvalResult, no_such_overload};
use crate::value::{Value, format as text_of};

/// Declares the string functions of the base library.
pub(super) fn declare_base(library: &mut Library) {
    library.add("contains_string", "(string).contains(string): bool", |_, args| test(args, str::contains));
    library.add("ends_with_string", "(string).endsWith(string): bool", |_, args| test(args, str::ends_with));
    library.add("starts_with_string", "(string).startsWith(string): bool", |_, args| {
        test(args, str::starts_with)
    });
    for name in ["contains", "endsWith", "startsWith"] {
        library.unguarded(name);
    }
    library.add_singleton(
        "matches",
        &[("matches", "matches(string, string): bool"), ("matches_string", "(string).matches(string): bool")],
        super::regex::matches,
        |value| matches!(value, Value::String(_)),
    );
}

/// Declares the extension.
pub(super) fn declare(library: &mut Library) {
    library.add("string_char_at_int", "(string).charAt(int): string", char_at);
    library.add("string_index_of_string", "(string).indexOf(string): int", index_of);
    library.add("string_last_index_of_string", "(string).lastIndexOf(string): int", last_index_of);
    let is_bounded = library.release.index_of_empty_string_is_bounded();
    let (index_from, last_index_from): (Implementation, Implementation) = if is_bounded {
        (
            |context, args| clamped(context, args).unwrap_or_else(|| index_of(context, args)),
            |context, args| clamped(context, args).unwrap_or_else(|| last_index_of(context, args)),
        )
    } else {
        (index_of, last_index_of)
    };
    library.add_variadic("string_index_of_string_int", "(string).indexOf(string, int): int", index_from);
    library.add_variadic(
        "string_last_index_of_string_int",
        "(string).lastIndexOf(string, int): int",
        last_index_from,
    );
    library.add("string_lower_ascii", "(string).lowerAscii(): string", |context, args| {
        map(context, args, str::to_ascii_lowercase)
    });
    library.add_variadic("string_replace_string_string", "(string).replace(string, string): string", replace);
    library.add_variadic(
        "string_replace_string_string_int",
        "(string).replace(string, string, int): string",
        replace,
    );
    library.add("string_split_string", "(string).split(string): list(string)", split);
    library.add_variadic("string_split_string_int", "(string).split(string, int): list(string)", split);
    library.add("string_substring_int", "(string).substring(int): string", substring);
    library.add_variadic("string_substring_int_int", "(string).substring(int, int): string", substring);
    library.add("string_trim", "(string).trim(): string", |context, args| {
        map(context, args, |text| trim(text).to_owned())
    });
    library.add("string_upper_ascii", "(string).upperAscii(): string", |context, args| {
        map(context, args, str::to_ascii_uppercase)
    });
    library.add_variadic("string_format", "(string).format(list(dyn)): string", |context, args| match args {
        [Value::String(text), list] if list.is_list() => {
            match format::format(text, &list.elements().collect::<Vec<_>>()) {
                Ok(text) => Ok(context.text(&text)),
                Err(message) => context.error(&message),
            }
        }
        _ => Err(no_such_overload()),
    });
    library.add("strings_quote", "strings.quote(string): string", |context, args| map(context, args, quote));
    library.add("list_join", "(list(string)).join(): string", join);
    library.add("list_join_string", "(list(string)).join(string): string", join);
}

fn test<'a>(args: &[Value<'a>], test: impl Fn(&'a str, &'a str) -> bool) -> EvalResult<'a> {
    match args {
        [Value::String(text), Value::String(part)] => Ok(Value::Bool(test(text, part))),
        _ => Err(no_such_overload()),
    }
}

fn map<'a>(context: &EvalContext<'a>, args: &[Value<'a>], map: impl Fn(&str) -> String) -> EvalResult<'a> {
    match args {
        [Value::String(text)] => {
            // A quoted text can be twice as long.
            context.reserve(text.len().saturating_mul(4))?;
            Ok(context.text(&map(text)))
        }
        _ => Err(no_such_overload()),
    }
}

/// White space as `strings.TrimSpace` of Go has it.
fn trim(text: &str) -> &str {
    text.trim_matches(char::is_whitespace)
}

fn out_of_range<'a>(context: &EvalContext<'a>, index: i64) -> EvalResult<'a> {
    context.error(&format!("index out of range: {index}"))
}

fn char_at<'a>(context: &EvalContext<'a>, args: &[Value<'a>]) -> EvalResult<'a> {
    let [Value::String(text), Value::Int(index)] = args else { return Err(no_such_overload()) };
    let count = text.chars().count();
    match usize::try_from(*index) {
        Ok(index) if index == count => Ok(Value::String("")),
        Ok(index) if index < count => {
            let character: String = text.chars().skip(index).take(1).collect();
            Ok(context.text(&character))
        }
        _ => out_of_range(context, *index),
    }
}

/// The place of an empty string at an offset.
fn clamped<'a>(context: &EvalContext<'a>, args: &[Value<'a>]) -> Option<EvalResult<'a>> {
    match args {
        [Value::String(text), Value::String(""), Value::Int(offset)] => Some(if *offset < 0 {
            out_of_range(context, *offset)
        } else {
            let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
            Ok(Value::Int((*offset).min(length)))
        }),
        _ => None,
    }
}

fn index_of<'a>(context: &EvalContext<'a>, args: &[Value<'a>]) -> EvalResult<'a> {
    let (text, part, offset) = match args {
        [Value::String(text), Value::String(part)] => (text, part, 0),
        [Value::String(text), Value::String(part), Value::Int(offset)] => (text, part, *offset),
        _ => return Err(no_such_overload()),
    };
    if part.is_empty() {
        return Ok(Value::Int(offset));
    }
    let Ok(start) = usize::try_from(offset) else { return out_of_range(context, offset) };
    let Some((byte, _)) = text.char_indices().nth(start) else { return Ok(Value::Int(-1)) };
    let found = text.get(byte..).and_then(|rest| rest.find(part)).and_then(|at| text.get(..byte + at));
    Ok(Value::Int(found.map_or(-1, |before| i64::try_from(before.chars().count()).unwrap_or(-1))))
}

fn last_index_of<'a>(context: &EvalContext<'a>, args: &[Value<'a>]) -> EvalResult<'a> {
    let (text, part, offset) = match args {
        [Value::String(text), Value::String(part)] => (text, part, None),
        [Value::String(text), Value::String(part), Value::Int(offset)] => (text, part, Some(*offset)),
        _ => return Err(no_such_overload()),
    };
    let count = text.chars().count();
    let length = i64::try_from(count).unwrap_or(i64::MAX);
    let offset = match offset {
        None if part.is_empty() => return Ok(Value::Int(length)),
        None if text.len() < part.len() => return Ok(Value::Int(-1)),
        None => length - 1,
        Some(offset) if part.is_empty() => return Ok(Value::Int(offset)),
        Some(offset) => offset,
    };
    if offset < 0 {
        return out_of_range(context, offset);
    }
    if offset >= length {
        return Ok(Value::Int(-1));
    }
    let start = offset.min(length - i64::try_from(part.chars().count()).unwrap_or(i64::MAX));
    let count = usize::try_from(start).map_or(0, |start| start + 1);
    let starts: Vec<usize> = text.char_indices().map(|(byte, _)| byte).take(count).collect();
    let found = starts.iter().rposition(|byte| text.get(*byte..).is_some_and(|rest| rest.starts_with(*part)));
    Ok(Value::Int(found.and_then(|index| i64::try_from(index).ok()).unwrap_or(-1)))
}

fn replace<'a>(context: &EvalContext<'a>, args: &[Value<'a>]) -> EvalResult<'a> {
    let (text, from, to, limit) = match args {
        [Value::String(text), Value::String(from), Value::String(to)] => (text, from, to, -1),
        [Value::String(text), Value::String(from), Value::String(to), Value::Int(limit)] => {
            (text, from, to, *limit)
        }
        _ => return Err(no_such_overload()),
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let count = text.matches(from).take(limit).count();
    context.reserve(text.len().saturating_add(count.saturating_mul(to.len())).saturating_mul(2))?;
    let replaced = text.replacen(from, to, limit);
    Ok(context.text(&replaced))
}

fn split<'a>(context: &EvalContext<'a>, args: &[Value<'a>]) -> EvalResult<'a> {
    let (text, separator, limit) = match args {
        [Value::String(text), Value::String(separator)] => (*text, *separator, -1),
        [Value::String(text), Value::String(separator), Value::Int(limit)] => (*text, *separator, *limit),
        _ => return Err(no_such_overload()),
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let count = if separator.is_empty() { text.len() } else { text.matches(separator).count() + 1 };
    context.reserve(count.min(limit).saturating_mul(3 * size_of::<Value<'_>>()))?;
    let parts: Vec<Value<'a>> = if limit == 0 {
        Vec::new()
    } else if separator.is_empty() {
        characters(text, limit).into_iter().map(Value::String).collect()
    } else {
        text.splitn(limit, separator).map(Value::String).collect()
    };
    Ok(context.list(&parts))
}

/// Single characters; the last part has the rest.
fn characters(text: &str, limit: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if parts.len() + 1 == limit {
            break;
        }
        let (part, after) = rest.split_at(first.len_utf8());
        parts.push(part);
        rest = after;
    }
    if !rest.is_empty() {
        parts.push(rest);
    }
    parts
}

fn substring<'a>(context: &EvalContext<'a>, args: &[Value<'a>]) -> EvalResult<'a> {
    let (text, start, end) = match args {
        [Value::String(text), Value::Int(start)] => (*text, *start, None),
        [Value::String(text), Value::Int(start), Value::Int(end)] => (*text, *start, Some(*end)),
        _ => return Err(no_such_overload()),
    };
    if let Some(end) = end
        && start > end
    {
        return context.error(&format!("invalid substring range. start: {start}, end: {end}"));
    }
    let byte = |index: i64| {
        let index = usize::try_from(index).ok()?;
        text.char_indices().map(|(byte, _)| byte).chain([text.len()]).nth(index)
    };
    let Some(from) = byte(start) else { return out_of_range(context, start) };
    let to = match end {
        None => text.len(),
        Some(end) => match byte(end) {
            Some(to) => to,
            None => return out_of_range(context, end),
        },
    };
    Ok(Value::String(text.get(from..to).unwrap_or_default()))
}

fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

fn join<'a>(context: &EvalContext<'a>, args: &[Value<'a>]) -> EvalResult<'a> {
    let (list, separator) = match args {
        [list] => (list, ""),
        [list, Value::String(separator)] => (list, *separator),
        _ => return Err(no_such_overload()),
    };
    let mut joined = String::new();
    for (index, element) in list.elements().enumerate() {
        if index > 0 {
            joined.push_str(separator);
        }
        match element {
            Value::String(text) => {
                // With the separator before the next element.
                let len = joined.len().saturating_add(text.len()).saturating_add(separator.len());
                context.reserve(len.saturating_mul(2))?;
                joined.push_str(text);
            }
            other => return context.error(&format!("join: invalid input: {}", text_of::plain(&other))),
        }
    }
    Ok(context.text(&joined))
}
