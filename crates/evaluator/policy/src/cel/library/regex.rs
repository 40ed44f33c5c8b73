//! Functions of regular expressions.

use super::Library;
use crate::cel::outcome::{Cancel, EvalContext, EvalResult, Limit, NoValue, no_such_overload};
use crate::cel::re2;
use crate::value::{Value, native};

/// Declares the functions of Kubernetes; `matches` belongs to the base library.
pub(super) fn declare(library: &mut Library) {
    library.add("string_find_string", "(string).find(string): string", find);
    library.add("string_find_all_string", "(string).findAll(string): list(string)", find_all);
    library.add_variadic(
        "string_find_all_string_int",
        "(string).findAll(string, int): list(string)",
        find_all,
    );
}

/// Why a pattern has no compiled form.
pub(crate) enum PatternError {
    /// The pattern is invalid, with Go's text.
    Invalid(String),
    /// The compiled form is larger than this library allows. Go's limits are others.
    TooLarge,
}

/// Compiles a pattern of RE2.
pub(crate) fn compile(pattern: &str) -> Result<::regex::Regex, PatternError> {
    let translated = re2::translate(pattern).map_err(|error| PatternError::Invalid(error.to_string()))?;
    ::regex::RegexBuilder::new(&translated).build().map_err(|_| PatternError::TooLarge)
}

/// Bytes that matches can scan before the next check whether to go on. Each search can read the text to its end and return a short
/// match, so the time is proportional to the square of the length.
const MAX_SCANNED: usize = 1 << 20;

/// The fault of a pattern that is too large.
const TOO_LARGE: NoValue<'static> = NoValue::Cancelled(Cancel::Limit(Limit::Regex));

/// `matches`
pub(super) fn matches<'a>(context: &EvalContext<'a>, args: &[Value<'a>]) -> EvalResult<'a> {
    let [Value::String(_), Value::String(pattern)] = args else { return Err(no_such_overload()) };
    match compile(pattern) {
        Ok(regex) => with_compiled(context, "matches", &regex, args),
        Err(PatternError::Invalid(message)) => context.error(&message),
        Err(PatternError::TooLarge) => Err(TOO_LARGE),
    }
}

fn find<'a>(context: &EvalContext<'a>, args: &[Value<'a>]) -> EvalResult<'a> {
    compile_and_call(context, "find", args)
}

fn find_all<'a>(context: &EvalContext<'a>, args: &[Value<'a>]) -> EvalResult<'a> {
    compile_and_call(context, "findAll", args)
}

fn compile_and_call<'a>(context: &EvalContext<'a>, function: &str, args: &[Value<'a>]) -> EvalResult<'a> {
    let Some(Value::String(pattern)) = args.get(1) else { return Err(no_such_overload()) };
    match compile(pattern) {
        Ok(regex) => with_compiled(context, function, &regex, args),
        Err(PatternError::Invalid(message)) => context.error(&format!("Illegal regex: {message}")),
        Err(PatternError::TooLarge) => Err(TOO_LARGE),
    }
}

/// Text in bytes that every pattern can search.
const SHORT: usize = 4 << 10;

/// Product of the bytes of a text and of a compiled pattern. A search can visit each state at each byte and can't be interrupted. At
/// this limit it takes a few seconds.
const MAX_SEARCH: u64 = 1 << 36;

/// Returns whether a search ends in bounded time.
pub(crate) fn is_searchable(regex: &::regex::Regex, text: &str) -> bool {
    if text.len() <= SHORT {
        return true;
    }
    let limit = usize::try_from(MAX_SEARCH / text.len() as u64).unwrap_or(usize::MAX);
    ::regex::RegexBuilder::new(regex.as_str()).size_limit(limit).build().is_ok()
}

/// Calls a function with its compiled pattern.
pub(crate) fn with_compiled<'a>(
    context: &EvalContext<'a>,
    function: &str,
    regex: &::regex::Regex,
    args: &[Value<'a>],
) -> EvalResult<'a> {
    // The compiled form takes every value whose plain form is a string.
    let Some(text) = args.first().and_then(native::text) else { return Err(no_such_overload()) };
    if !is_searchable(regex, text) {
        return Err(TOO_LARGE);
    }
    match function {
        "matches" => Ok(Value::Bool(regex.is_match(text))),
        "find" => Ok(Value::String(regex.find(text).map_or("", |found| found.as_str()))),
        _ => {
            let limit = match args.get(2) {
                None => usize::MAX,
                Some(Value::Int(limit)) => usize::try_from(*limit).unwrap_or(usize::MAX),
                Some(_) => return Err(no_such_overload()),
            };
            let mut found: Vec<Value<'a>> = Vec::new();
            let mut scanned = 0_usize;
            for part in regex.find_iter(text).take(limit) {
                scanned = scanned.saturating_add(text.len() - part.start());
                if scanned > MAX_SCANNED {
                    scanned = 0;
                    if !(context.keep_going)() {
                        return Err(NoValue::Cancelled(Cancel::Limit(Limit::Time)));
                    }
                }
                context.reserve((found.len() + 1).saturating_mul(3 * size_of::<Value<'_>>()))?;
                found.push(Value::String(part.as_str()));
            }
            Ok(context.list(&found))
        }
    }
}
