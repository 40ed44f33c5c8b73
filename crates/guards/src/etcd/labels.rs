//! Label selectors as text (`app=etcd,tier in (a, b),!old`, as in `kubectl -l`) or as a map, as in objects of Kubernetes.

use std::str::FromStr;

use ::config::{Expression, Section, Selector, names, requires_label};

/// The description of a selector for users.
const SELECTOR: &str = "label selector as in kubectl, for example app=etcd or app=etcd,tier in (a, b); or a map: {matchLabels: {app: etcd}}";

/// Reads a selector in either form. Returns `None` if the key is absent or its value is a problem.
pub(super) fn read(section: &mut Section<'_>, key: &'static str, doc: &'static str) -> Option<Selector> {
    let mut found = Selector::default();
    let text = section.parsed_or_section::<Labels, _>(key, SELECTOR, doc, |inner| {
        found = inner.label_selector();
        None
    });
    if let Some(Labels(selector)) = text {
        return Some(selector);
    }
    if section.is_map(key) && !requires_label(&found) {
        let next = "add matchLabels, or an expression with In or Exists".to_owned();
        section.problem(key, NO_LABEL, Some(next));
    }
    Some(found).filter(requires_label)
}

/// The problem of a selector without a label.
const NO_LABEL: &str = "requires no label, so it selects unlabeled objects too";

/// A selector in the form of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Labels(pub(super) Selector);

impl FromStr for Labels {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut all = Vec::new();
        for part in split(text)? {
            all.push(expression(part.trim())?);
        }
        let selector = all_of(all);
        if !requires_label(&selector) {
            return Err(NO_LABEL.to_owned());
        }
        Ok(Self(selector))
    }
}

/// Returns the selector of objects that match all expressions. A selector has one value for a label in its map, so a second one
/// becomes an expression.
pub(super) fn all_of(expressions: impl IntoIterator<Item = Expression>) -> Selector {
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

fn expression(part: &str) -> Result<Expression, String> {
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

    use ::config::SelectorExt as _;

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
            ("!a", "requires no label"),
            ("a!=b", "requires no label"),
        ] {
            let error = text.parse::<Labels>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
