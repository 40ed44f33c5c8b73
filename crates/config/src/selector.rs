//! Label selectors in a configuration, with the two keys that Kubernetes has.

use kube_core::{Expression, Selector};

use super::names::{LABEL_KEY, LABEL_VALUE, label_key, label_value};
use super::section::Section;

impl Section<'_> {
    /// Reads a label selector. Returns none if the key is absent or selects by nothing: an empty selector would select
    /// everything, which is never meant.
    pub fn selector(&mut self, key: &'static str, doc: &'static str) -> Option<Selector> {
        #[expect(
            clippy::redundant_closure_for_method_calls,
            reason = "the method is not general over the section's lifetime"
        )]
        let selector = self.section(key, doc, |section| section.label_selector());
        (!selector.selects_all()).then_some(selector)
    }

    /// Reads the two keys of a label selector from this section.
    pub fn label_selector(&mut self) -> Selector {
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
pub fn requires_label(selector: &Selector) -> bool {
    let requires =
        |expression| matches!(expression, Expression::In(..) | Expression::Equal(..) | Expression::Exists(_));
    selector.clone().into_iter().any(requires)
}
