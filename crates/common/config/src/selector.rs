//! Label selectors in a configuration: a text as in `kubectl -l`, or a map with the two keys that Kubernetes has.

use std::str::FromStr;

use kube_core::{Expression, Selector};

use super::names::{self, LABEL_KEY, LABEL_VALUE, label_key, label_value};
use super::section::Section;

/// The description of a selector for users.
const SELECTOR: &str = "label selector as in kubectl, for example app=etcd or app=etcd,tier in (a, b)";

/// The problem of a selector without a label.
const NO_LABEL: &str = "requires no label, so it selects unlabeled objects too";

impl Section<'_> {
    /// Reads a label selector. Returns none if the key is absent or selects by nothing: an empty selector would select
    /// everything, which is never meant.
    pub fn selector(&mut self, key: &'static str, doc: &'static str) -> Option<Selector> {
        let mut found = Selector::default();
        let text = self.parsed_or_section::<Labels, _>(key, SELECTOR, doc, |inner| {
            found = inner.label_selector();
            None
        });
        let selector = text.map_or(found, |Labels(selector)| selector);
        (!selector.selects_all()).then_some(selector)
    }

    /// Reads a selector that must require a label. Returns `None` if the key is absent or its value is a problem.
    pub fn label_requirement(&mut self, key: &'static str, doc: &'static str) -> Option<Selector> {
        let selector = self.selector(key, doc).unwrap_or_default();
        let is_valid = requires_label(&selector);
        // A text with a problem is already reported.
        if self.has(key) && !is_valid && (self.is_map(key) || !selector.selects_all()) {
            let next = "add a label, for example app=etcd, or an expression with In or Exists".to_owned();
            self.problem(key, NO_LABEL, Some(next));
        }
        Some(selector).filter(|_| is_valid)
    }

    /// Reads the two keys of a label selector from this section.
    fn label_selector(&mut self) -> Selector {
        let labels = self.labels("matchLabels", "Labels that must have these values.");
        let labels = labels.into_iter().map(|(key, value)| Expression::Equal(key, value));
        let expressions = self.sections("matchExpressions", "Requirements that must all hold.", expression);
        labels.chain(expressions).collect()
    }
}

fn expression(section: &mut Section<'_>) -> Expression {
    let key = section.required_name("key", LABEL_KEY, "The label.", label_key);
    let words = ["In", "NotIn", "Exists", "DoesNotExist"].map(|word| (word, word));
    let operator = section.choice("operator", "Operator of the comparison.", &words, "In");
    let values = section.names(
        "values",
        LABEL_VALUE,
        "Values to compare with; none for Exists and DoesNotExist.",
        &[],
        label_value,
    );
    // An invalid value is already reported, so it counts here.
    let has_values = section.has("values") && !section.is_empty_list("values");
    let needs_values = matches!(operator, "In" | "NotIn");
    if section.is_written() && needs_values != has_values {
        let text =
            if needs_values { "In and NotIn need values" } else { "Exists and DoesNotExist take no values" };
        section.problem("values", text, None);
    }
    let values = values.into_iter().collect();
    match operator {
        "In" => Expression::In(key, values),
        "NotIn" => Expression::NotIn(key, values),
        "Exists" => Expression::Exists(key),
        _ => Expression::DoesNotExist(key),
    }
}

/// Returns whether the selector leaves out objects without labels.
fn requires_label(selector: &Selector) -> bool {
    let requires =
        |expression| matches!(expression, Expression::In(..) | Expression::Equal(..) | Expression::Exists(_));
    selector.clone().into_iter().any(requires)
}

/// A selector in the form of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Labels(
    /// The selector.
    pub Selector,
);

impl FromStr for Labels {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut all = Vec::new();
        for part in split(text)? {
            all.push(parsed_expression(part.trim())?);
        }
        Ok(Self(all_of(all)))
    }
}

/// Returns the selector of objects that match all expressions. A selector has one value for a label in its map, so a second one
/// becomes an expression.
pub fn all_of(expressions: impl IntoIterator<Item = Expression>) -> Selector {
    let mut all: Vec<Expression> = Vec::new();
    for expression in expressions {
        all.push(match expression {
            Expression::Equal(key, value)
                if all.iter().any(|e| matches!(e, Expression::Equal(k, _) if *k == key)) =>
            {
                Expression::In(key, [value].into())
            }
            other => other,
        });
    }
    all.into_iter().collect()
}

/// Splits a text at the commas outside parentheses.
fn split(text: &str) -> Result<Vec<&str>, String> {
    let (mut parts, mut start, mut is_within) = (Vec::new(), 0, false);
    for (at, char) in text.char_indices() {
        match char {
            '(' if !is_within => is_within = true,
            ')' if is_within => is_within = false,
            '(' | ')' => return Err("has an unmatched parenthesis".to_owned()),
            ',' if !is_within => {
                parts.push(text.get(start..at).unwrap_or_default());
                start = at + 1;
            }
            _ => {}
        }
    }
    if is_within {
        return Err("has an unclosed parenthesis".to_owned());
    }
    parts.push(text.get(start..).unwrap_or_default());
    Ok(parts)
}

fn parsed_expression(part: &str) -> Result<Expression, String> {
    if part.is_empty() {
        return Err("has an empty part".to_owned());
    }
    if let Some(rest) = part.strip_suffix(')') {
        let (before, values) = rest.split_once('(').unwrap_or((rest, ""));
        let values = values.split(',').map(value).collect::<Result<_, _>>();
        let mut words = before.split_whitespace();
        return match (words.next(), words.next(), words.next()) {
            (Some(name), Some("in"), None) => Ok(Expression::In(key(name)?, values?)),
            (Some(name), Some("notin"), None) => Ok(Expression::NotIn(key(name)?, values?)),
            _ => Err(format!("{part:?} is not part of a selector")),
        };
    }
    if let Some((name, text)) = part.split_once("!=") {
        return Ok(Expression::NotEqual(key(name)?, value(text)?));
    }
    if let Some((name, text)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return Ok(Expression::Equal(key(name)?, value(text)?));
    }
    match part.strip_prefix('!') {
        Some(name) => Ok(Expression::DoesNotExist(key(name)?)),
        None => Ok(Expression::Exists(key(part)?)),
    }
}

fn key(text: &str) -> Result<String, String> {
    let text = text.trim();
    names::label_key(text).map_err(|why| format!("{text:?} {why}"))?;
    Ok(text.to_owned())
}

fn value(text: &str) -> Result<String, String> {
    let text = text.trim();
    names::label_value(text).map_err(|why| format!("{text:?} {why}"))?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kube_core::SelectorExt as _;

    use super::*;

    #[test]
    fn parses_every_form_of_kubectl() {
        let Labels(selector) =
            "app=etcd, tier in (a, b),env notin (dev),x!=y,z==1,seen,!gone".parse().unwrap();
        let labels = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        assert!(selector.matches(&labels(&[("app", "etcd"), ("tier", "b"), ("z", "1"), ("seen", "")])));
        for other in [
            &[("app", "web"), ("tier", "b"), ("z", "1"), ("seen", "")][..],
            &[("app", "etcd"), ("tier", "c"), ("z", "1"), ("seen", "")],
            &[("app", "etcd"), ("tier", "b"), ("z", "1"), ("seen", ""), ("env", "dev")],
            &[("app", "etcd"), ("tier", "b"), ("z", "1"), ("seen", ""), ("x", "y")],
            &[("app", "etcd"), ("tier", "b"), ("z", "1")],
            &[("app", "etcd"), ("tier", "b"), ("z", "1"), ("seen", ""), ("gone", "")],
        ] {
            assert!(!selector.matches(&labels(other)), "{other:?}");
        }
        // A key with two values matches nothing.
        let Labels(both) = "a=b,a=c".parse().unwrap();
        assert!(!both.matches(&labels(&[("a", "b")])) && !both.matches(&labels(&[("a", "c")])));
        assert_eq!(both.to_string(), "a=b,a in (c)");
    }

    #[test]
    fn the_text_of_a_selector_can_be_parsed_again() {
        let Labels(selector) = "app=etcd,tier in (a, b),env notin (dev),seen,!gone".parse().unwrap();
        let text = selector.to_string();
        assert_eq!(text, "app=etcd,tier in (a,b),env notin (dev),seen,!gone");
        assert_eq!(text.parse::<Labels>().unwrap(), Labels(selector));
    }

    #[test]
    fn rejects_texts_that_are_not_selectors() {
        for (text, why) in [
            ("", "empty part"),
            ("a=b,", "empty part"),
            ("a in (b", "unclosed"),
            ("a in b)", "unmatched"),
            ("a within (b)", "not part of a selector"),
            ("a b", "label key"),
            ("a=b c", "label value"),
        ] {
            let error = text.parse::<Labels>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
