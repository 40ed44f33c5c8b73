//! A label selector as kubectl takes it behind `-l` (`app=etcd,tier in (a, b),!old`), or as objects of Kubernetes have it.

use std::str::FromStr;

use admission::{LabelSelector, Requirement, SelectorOperator};

use ::config::{Section, names};

/// What kubectl's `-l` takes, for people.
const SELECTOR: &str = "label selector as kubectl takes it, as app=etcd or app=etcd,tier in (a, b); or a map: {matchLabels: {app: etcd}}";

/// Reads a selector in either form; none where the key is absent, or where what stands there is wrong, which is reported.
pub(super) fn read(section: &mut Section<'_>, key: &'static str, doc: &'static str) -> Option<LabelSelector> {
    let mut found = LabelSelector::default();
    let text = section.parsed_or_section::<Labels, _>(key, SELECTOR, doc, |inner| {
        found = inner.label_selector();
        None
    });
    if let Some(Labels(selector)) = text {
        return Some(selector);
    }
    if section.is_map(key) && !asks(&found) {
        let next = "add matchLabels, or an expression with In or Exists".to_owned();
        section.problem(key, NOBODY, Some(next));
    }
    Some(found).filter(asks)
}

/// The same as kubectl takes it.
pub(super) fn told(selector: &LabelSelector) -> String {
    let labels = selector.match_labels.iter().map(|(key, value)| format!("{key}={value}"));
    let expressions = selector.match_expressions.iter().map(|Requirement { key, operator, values }| {
        let values = values.join(",");
        match operator {
            SelectorOperator::In => format!("{key} in ({values})"),
            SelectorOperator::NotIn => format!("{key} notin ({values})"),
            SelectorOperator::Exists => key.clone(),
            SelectorOperator::DoesNotExist => format!("!{key}"),
        }
    });
    labels.chain(expressions).collect::<Vec<_>>().join(",")
}

/// Why a selector is refused.
const NOBODY: &str = "asks for no label, so it chooses what nobody labelled too";

/// Whether it asks for a label.
fn asks(selector: &LabelSelector) -> bool {
    let asks = |r: &Requirement| matches!(r.operator, SelectorOperator::In | SelectorOperator::Exists);
    !selector.match_labels.is_empty() || selector.match_expressions.iter().any(asks)
}

/// A selector that was written as one text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Labels(pub(super) LabelSelector);

impl FromStr for Labels {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut selector = LabelSelector::default();
        for part in split(text)? {
            let requirement = requirement(part.trim())?;
            names::label_key(&requirement.key).map_err(|why| format!("{:?} {why}", requirement.key))?;
            for value in &requirement.values {
                names::label_value(value).map_err(|why| format!("{value:?} {why}"))?;
            }
            let plain = requirement.operator == SelectorOperator::In && requirement.values.len() == 1;
            match requirement.values.first() {
                Some(value) if plain && !selector.match_labels.contains_key(&requirement.key) => {
                    selector.match_labels.insert(requirement.key, value.clone());
                }
                _ => selector.match_expressions.push(requirement),
            }
        }
        if !asks(&selector) {
            return Err(NOBODY.to_owned());
        }
        Ok(Self(selector))
    }
}

/// At the commas that are not within parentheses.
fn split(text: &str) -> Result<Vec<&str>, String> {
    let (mut parts, mut start, mut is_within) = (Vec::new(), 0, false);
    for (at, char) in text.char_indices() {
        match char {
            '(' if !is_within => is_within = true,
            ')' if is_within => is_within = false,
            '(' | ')' => return Err("has a parenthesis too many".to_owned()),
            ',' if !is_within => {
                parts.push(text.get(start..at).unwrap_or_default());
                start = at + 1;
            }
            _ => {}
        }
    }
    if is_within {
        return Err("has a parenthesis that is not closed".to_owned());
    }
    parts.push(text.get(start..).unwrap_or_default());
    Ok(parts)
}

fn requirement(part: &str) -> Result<Requirement, String> {
    let of = |key: &str, operator, values: Vec<String>| Requirement {
        key: key.trim().to_owned(),
        operator,
        values,
    };
    if part.is_empty() {
        return Err("has an empty part".to_owned());
    }
    if let Some(rest) = part.strip_suffix(')') {
        let (before, values) = rest.split_once('(').unwrap_or((rest, ""));
        let mut words = before.split_whitespace();
        let operator = match (words.next(), words.next(), words.next()) {
            (Some(key), Some("in"), None) => Some((key, SelectorOperator::In)),
            (Some(key), Some("notin"), None) => Some((key, SelectorOperator::NotIn)),
            _ => None,
        };
        let (key, operator) = operator.ok_or_else(|| format!("{part:?} is no part of a selector"))?;
        let values = values.split(',').map(|value| value.trim().to_owned()).collect();
        return Ok(of(key, operator, values));
    }
    if let Some((key, value)) = part.split_once("!=") {
        return Ok(of(key, SelectorOperator::NotIn, vec![value.trim().to_owned()]));
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return Ok(of(key, SelectorOperator::In, vec![value.trim().to_owned()]));
    }
    Ok(match part.strip_prefix('!') {
        Some(key) => of(key, SelectorOperator::DoesNotExist, Vec::new()),
        None => of(part, SelectorOperator::Exists, Vec::new()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_that_kubectl_takes_is_taken() {
        let Labels(selector) =
            "app=etcd, tier in (a, b),env notin (dev),x!=y,z==1,seen,!gone".parse().unwrap();
        let labels = |pairs: &'static [(&'static str, &'static str)]| {
            move |key: &str| pairs.iter().find(|(k, _)| *k == key).map(|(_, v)| *v)
        };
        assert_eq!(selector.match_labels.len(), 2);
        assert!(selector.matches(labels(&[("app", "etcd"), ("tier", "b"), ("z", "1"), ("seen", "")])));
        for other in [
            &[("app", "web"), ("tier", "b"), ("z", "1"), ("seen", "")][..],
            &[("app", "etcd"), ("tier", "c"), ("z", "1"), ("seen", "")],
            &[("app", "etcd"), ("tier", "b"), ("z", "1"), ("seen", ""), ("env", "dev")],
            &[("app", "etcd"), ("tier", "b"), ("z", "1"), ("seen", ""), ("x", "y")],
            &[("app", "etcd"), ("tier", "b"), ("z", "1")],
            &[("app", "etcd"), ("tier", "b"), ("z", "1"), ("seen", ""), ("gone", "")],
        ] {
            let label = |key: &str| other.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
            assert!(!selector.matches(label), "{other:?}");
        }
        // Twice the same key is a contradiction, and stays one.
        let Labels(both) = "a=b,a=c".parse().unwrap();
        assert!(!both.matches(|_| Some("b")) && !both.matches(|_| Some("c")));
    }

    #[test]
    fn what_is_told_can_be_read_again() {
        let Labels(selector) = "app=etcd,tier in (a, b),env notin (dev),seen,!gone".parse().unwrap();
        let told = told(&selector);
        assert_eq!(told, "app=etcd,tier in (a,b),env notin (dev),seen,!gone");
        assert_eq!(told.parse::<Labels>().unwrap(), Labels(selector));
    }

    #[test]
    fn what_is_no_selector_is_refused_with_its_reason() {
        for (text, why) in [
            ("", "empty part"),
            ("a=b,", "empty part"),
            ("a in (b", "not closed"),
            ("a in b)", "too many"),
            ("a within (b)", "no part of a selector"),
            ("a b", "label key"),
            ("a=b c", "label value"),
            ("!a", "asks for no label"),
            ("a!=b", "asks for no label"),
        ] {
            let told = text.parse::<Labels>().unwrap_err();
            assert!(told.contains(why), "{text}: {told}");
        }
    }
}
