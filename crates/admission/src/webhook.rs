//! What a guard wants to be asked: one entry of a webhook configuration, without the address, which is the installation's.
//!
//! The types are written out as `admissionregistration.k8s.io/v1` has them, so that `manifests` prints them as they are.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Whether the entry stands in a mutating or a validating configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WebhookType {
    /// May change the object; called one after another, before the others.
    Mutating,
    /// May only refuse; called all at once.
    Validating,
}

/// One entry of a webhook configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookEntry {
    /// Which of the two configurations it belongs to.
    pub webhook_type: WebhookType,
    /// The entry's first label; the domain is added by whoever prints it.
    pub name: String,
    /// What is asked about.
    pub rules: Vec<Rule>,
    /// Which namespaces.
    pub namespace_selector: LabelSelector,
    /// Which objects.
    pub object_selector: LabelSelector,
    /// CEL that must all hold. `object` is null on a DELETE: use `oldObject` there.
    pub match_conditions: Vec<MatchCondition>,
    /// What happens when no answer comes.
    pub failure_policy: FailurePolicy,
    /// Whether a review leaves traces.
    pub side_effects: SideEffects,
    /// How long the API server waits, 1 to 30 seconds.
    pub timeout_seconds: u8,
    /// Whether a mutating entry is asked again after a later one changed the object.
    pub reinvocation: Reinvocation,
    /// Which review versions it takes, best first.
    pub review_versions: Vec<String>,
}

/// Operations on resources.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    /// `CREATE`, `UPDATE`, `DELETE`, `CONNECT`.
    pub operations: Vec<String>,
    /// Groups; empty string for the core group.
    pub api_groups: Vec<String>,
    /// Versions.
    pub api_versions: Vec<String>,
    /// Resources, `pods` or `pods/eviction`.
    pub resources: Vec<String>,
    /// Namespaced, cluster-wide or both.
    pub scope: Scope,
}

/// Where the resources of a rule live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Scope {
    /// Only in namespaces.
    Namespaced,
    /// Only outside of them.
    Cluster,
    /// Both.
    #[serde(rename = "*")]
    All,
}

/// A label selector; empty matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// Labels that must have these values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Requirements that must all hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<Requirement>,
}

impl LabelSelector {
    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }

    /// The same selector with one more requirement.
    #[must_use]
    pub fn and(mut self, key: &str, operator: SelectorOperator, values: &[&str]) -> Self {
        let values = values.iter().map(|&v| v.to_owned()).collect();
        self.match_expressions.push(Requirement { key: key.to_owned(), operator, values });
        self
    }

    /// Whether an object with labels read through `label` is selected.
    pub fn matches<'l>(&self, label: impl Fn(&str) -> Option<&'l str>) -> bool {
        self.match_labels.iter().all(|(key, value)| label(key) == Some(value))
            && self.match_expressions.iter().all(|r| r.holds(label(&r.key)))
    }
}

/// One requirement of a label selector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requirement {
    /// The label.
    pub key: String,
    /// How it is compared.
    pub operator: SelectorOperator,
    /// With what; empty for `Exists` and `DoesNotExist`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

impl Requirement {
    fn holds(&self, value: Option<&str>) -> bool {
        let listed = value.is_some_and(|value| self.values.iter().any(|v| v == value));
        match self.operator {
            SelectorOperator::In => listed,
            SelectorOperator::NotIn => !listed,
            SelectorOperator::Exists => value.is_some(),
            SelectorOperator::DoesNotExist => value.is_none(),
        }
    }
}

/// How a label is compared. A label that is absent satisfies `NotIn` and `DoesNotExist`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SelectorOperator {
    /// One of the values.
    In,
    /// None of the values, or absent.
    NotIn,
    /// Present.
    Exists,
    /// Absent.
    DoesNotExist,
}

/// A CEL expression that must hold for the webhook to be called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MatchCondition {
    /// A qualified name, unique in its entry.
    pub name: String,
    /// The expression.
    pub expression: String,
}

/// What happens to the request when the webhook does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum FailurePolicy {
    /// It is refused.
    Fail,
    /// It passes.
    Ignore,
}

/// Whether a review leaves traces outside; a dry run is refused by the API server unless it is one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum SideEffects {
    /// Never.
    None,
    /// Only when it is no dry run.
    NoneOnDryRun,
}

/// Whether a mutating webhook is called again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Reinvocation {
    /// Once is enough.
    Never,
    /// Again, if a later webhook changed the object.
    IfNeeded,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_match_as_the_api_server_matches() {
        let selector = LabelSelector::default()
            .and("tier", SelectorOperator::In, &["a", "b"])
            .and("off", SelectorOperator::NotIn, &["yes"])
            .and("seen", SelectorOperator::Exists, &[])
            .and("gone", SelectorOperator::DoesNotExist, &[]);
        let labels = |pairs: &'static [(&'static str, &'static str)]| {
            move |key: &str| pairs.iter().find(|(k, _)| *k == key).map(|(_, v)| *v)
        };
        assert!(selector.matches(labels(&[("tier", "a"), ("seen", "")])));
        assert!(!selector.matches(labels(&[("tier", "c"), ("seen", "")])));
        assert!(!selector.matches(labels(&[("tier", "a")])));
        assert!(!selector.matches(labels(&[("tier", "a"), ("seen", ""), ("off", "yes")])));
        assert!(!selector.matches(labels(&[("tier", "a"), ("seen", ""), ("gone", "1")])));
        assert!(LabelSelector::default().matches(labels(&[])));
    }

    #[test]
    fn is_written_as_the_api_has_it() {
        let rule = Rule {
            operations: vec!["CREATE".into()],
            api_groups: vec![String::new()],
            api_versions: vec!["v1".into()],
            resources: vec!["pods".into()],
            scope: Scope::All,
        };
        assert_eq!(
            serde_json::to_string(&rule).unwrap(),
            r#"{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"],"scope":"*"}"#
        );
    }
}
