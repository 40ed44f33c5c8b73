//! Label selectors.

use crate::cel::library::formats;
use crate::field::{FieldError, Path};
use crate::release::Release;
use crate::value::Value;

/// Label that every Namespace has: its name.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// A label selector. Without requirements it matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    /// `matchLabels`
    pub match_labels: Vec<(String, String)>,
    /// `matchExpressions`
    pub match_expressions: Vec<Requirement>,
}

/// A requirement of a selector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requirement {
    /// The label.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// The values for `In` and `NotIn`.
    pub values: Vec<String>,
}

impl LabelSelector {
    /// Whether the selector has no requirement.
    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }

    /// Whether labels match. Labels that are no map count as none.
    pub fn matches(&self, labels: Option<Value<'_>>) -> bool {
        let label = |key: &str| labels.and_then(|labels| labels.field(key)).and_then(|value| value.as_str());
        self.match_labels.iter().all(|(key, value)| label(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| {
                let found = label(&requirement.key);
                let listed =
                    || found.is_some_and(|found| requirement.values.iter().any(|value| value == found));
                match requirement.operator.as_str() {
                    "In" => listed(),
                    "NotIn" => !listed(),
                    "Exists" => found.is_some(),
                    "DoesNotExist" => found.is_none(),
                    _ => false,
                }
            })
    }

    /// Whether a Namespace matches of which only the name is known. The API server sets the name as a label.
    pub(crate) fn matches_name(&self, name: &str) -> Option<bool> {
        let (own_labels, labels): (Vec<_>, Vec<_>) =
            self.match_labels.iter().cloned().partition(|(key, _)| key == NAME_LABEL);
        let (own_expressions, expressions): (Vec<_>, Vec<_>) =
            self.match_expressions.iter().cloned().partition(|requirement| requirement.key == NAME_LABEL);
        let own = Self { match_labels: own_labels, match_expressions: own_expressions };
        if !own.matches(Some(Value::Object(&[(NAME_LABEL, Value::String(name))]))) {
            return Some(false);
        }
        (labels.is_empty() && expressions.is_empty()).then_some(true)
    }

    /// The selector as the API server checks it.
    pub(crate) fn validate(&self, path: &Path, release: Release, errors: &mut Vec<FieldError>) {
        let labels = path.child("matchLabels");
        for (key, value) in &self.match_labels {
            for problem in formats::qualified_name(key, release.has_new_label_texts()) {
                errors.push(FieldError::invalid(&labels, key, &problem));
            }
            for problem in formats::label_value(value, release.has_new_label_texts()) {
                errors.push(FieldError::invalid(&labels, value, &problem));
            }
        }
        for (index, requirement) in self.match_expressions.iter().enumerate() {
            requirement.validate(&path.child("matchExpressions").index(index), release, errors);
        }
    }
}

impl Requirement {
    fn validate(&self, path: &Path, release: Release, errors: &mut Vec<FieldError>) {
        match self.operator.as_str() {
            "In" | "NotIn" if self.values.is_empty() => {
                let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.push(FieldError::required(&path.child("values"), detail));
            }
            "Exists" | "DoesNotExist" if !self.values.is_empty() => {
                // The text is Kubernetes' own.
                let detail =
                    ["may", "not be specified when `operator` is 'Exists' or 'DoesNotExist'"].join(" ");
                errors.push(FieldError::forbidden(&path.child("values"), &detail));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.push(FieldError::invalid(
                &path.child("operator"),
                other,
                "not a valid selector operator",
            )),
        }
        for problem in formats::qualified_name(&self.key, release.has_new_label_texts()) {
            errors.push(FieldError::invalid(&path.child("key"), &self.key, &problem));
        }
        for (index, value) in self.values.iter().enumerate() {
            for problem in formats::label_value(value, release.has_new_label_texts()) {
                errors.push(FieldError::invalid(&path.child("values").index(index), value, &problem));
            }
        }
    }
}
