//! A label selector in configuration: the same two keys as in Kubernetes.

use admission::{LabelSelector, Requirement, SelectorOperator};

use super::names::{LABEL_KEY, LABEL_VALUE, label_key, label_value};
use super::section::Section;

const OPERATORS: [(&str, SelectorOperator); 4] = [
    ("In", SelectorOperator::In),
    ("NotIn", SelectorOperator::NotIn),
    ("Exists", SelectorOperator::Exists),
    ("DoesNotExist", SelectorOperator::DoesNotExist),
];

impl Section<'_> {
    /// A label selector; none where the key is absent or selects by nothing. An empty selector would select everything, which
    /// nobody means who leaves one empty.
    pub fn selector(&mut self, key: &'static str, doc: &'static str) -> Option<LabelSelector> {
        let selector = self.section(key, doc, read);
        (!selector.is_empty()).then_some(selector)
    }

    /// The two keys of a label selector, which this section is.
    pub fn label_selector(&mut self) -> LabelSelector {
        read(self)
    }
}

fn read(section: &mut Section<'_>) -> LabelSelector {
    LabelSelector {
        match_labels: section.labels("matchLabels", "Labels that must have these values."),
        match_expressions: section.sections(
            "matchExpressions",
            "Requirements that must all hold.",
            requirement,
        ),
    }
}

fn requirement(section: &mut Section<'_>) -> Requirement {
    let key = section.required_name("key", LABEL_KEY, "The label.", label_key);
    let operator = section.choice("operator", "How it is compared.", &OPERATORS, SelectorOperator::In);
    let values =
        section.names("values", LABEL_VALUE, "With what; none for Exists and DoesNotExist.", label_value);
    // A value that is wrong is told already; it is there nevertheless.
    let has_values = section.has("values") && !section.is_empty_list("values");
    let wants_values = matches!(operator, SelectorOperator::In | SelectorOperator::NotIn);
    if section.is_written() && wants_values != has_values {
        let word =
            if wants_values { "In and NotIn need values" } else { "Exists and DoesNotExist take no values" };
        section.problem("values", word, None);
    }
    Requirement { key, operator, values }
}
