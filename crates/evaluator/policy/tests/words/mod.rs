//! Error texts for which this crate has its own words, so only their start is compared: syntax errors, failures within the API server, and
//! types and values in the syntax of Go.

/// Starts of texts about a type or a value of Go.
const OF_GO: [&str; 11] = [
    "internal error: ",
    "invalid qualifier type: ",
    "unsupported comprehension range type: ",
    "unsupported conversion to ref.Val: ",
    "invalid data, expected ",
    "Invalid byte formatted string ",
    "Invalid date formatted string ",
    "Invalid date-time formatted string ",
    "Invalid duration ",
    " accessor error: ",
    "parsing time ",
];

const RULE: &str = " evaluating rule: ";
const REFUSED: &str = "compilation failed: ";
const NOT_ITERABLE: &str = "', expected iterable type";

/// The part of an error text that is compared.
pub(crate) fn comparable(text: &str) -> String {
    if let Some((before, error)) = text.split_once(REFUSED)
        && error.contains("Syntax error")
    {
        return format!("{before}{REFUSED}Syntax error");
    }
    if let Some((before, _)) = text.split_once(NOT_ITERABLE)
        && let Some((before, _)) = before.rsplit_once("got '")
    {
        return format!("{before}{NOT_ITERABLE}");
    }
    let first = OF_GO.iter().filter_map(|start| text.find(start).map(|at| at + start.len())).min();
    let Some((start, rest)) = first.map(|end| text.split_at(end)) else { return text.to_owned() };
    let rule = rest.split_once(RULE).map_or(String::new(), |(_, rule)| format!("{RULE}{rule}"));
    format!("{start}{rule}")
}
