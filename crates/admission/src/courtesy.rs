//! What goes beside a verdict: warnings for the person at kubectl, annotations for the audit log. Both are cut and cleaned to
//! what the API server passes on, because what it does not like it drops without a word.
//!
//! Facts: `apiserver/pkg/endpoints/filters/warning.go` (4,096 runes in all; past that each warning is cut to 256 and the rest
//! dropped), `apimachinery/pkg/util/net/http.go` (a warning with a control character is dropped),
//! `apiserver/pkg/admission/attributes.go` (an annotation's key is `<webhook name>/<key>` and must be a qualified name).

use crate::plain::one_line;

/// All warnings of an answer together, in runes.
const WARNINGS_TOTAL: usize = 4096;
/// One warning, once the total is passed.
const WARNING_WHEN_CUT: usize = 256;
/// A qualified name's last part.
const KEY_LENGTH: usize = 63;
/// An audit value has no limit of its own in the API server; this keeps a thousand clusters from filling the audit log.
const VALUE_LENGTH: usize = 10 * 1024;

/// Warnings in the order in which they will be shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Warnings(Vec<String>);

impl Warnings {
    /// Adds a warning: on one line, and only if the same was not said before.
    pub fn push(&mut self, text: impl AsRef<str>) {
        let clean = one_line(text.as_ref());
        if !clean.is_empty() && !self.0.contains(&clean) {
            self.0.push(clean);
        }
    }

    /// Whether nothing is to be said.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As they were added.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// What fits into one answer: everything, or each shortened and the last one telling how many are not shown.
    pub fn fitted(&self) -> Vec<String> {
        let length = |text: &String| text.chars().count();
        if self.0.iter().map(length).sum::<usize>() <= WARNINGS_TOTAL {
            return self.0.clone();
        }
        // Sixteen warnings of 256 runes fill the total exactly, so the sixteenth place is kept for the count.
        let fits = WARNINGS_TOTAL / WARNING_WHEN_CUT;
        let cut = |text: &String| shortened(text, WARNING_WHEN_CUT);
        if self.0.len() <= fits {
            return self.0.iter().map(cut).collect();
        }
        let mut shown: Vec<String> = self.0.iter().take(fits - 1).map(cut).collect();
        shown.push(format!("{} more warnings are not shown", self.0.len() - shown.len()));
        shown
    }
}

/// Annotations for the audit log; a key that was set stays as it was, since the API server keeps the first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Audit(Vec<(String, String)>);

impl Audit {
    /// Sets `key`, cleaned to what a qualified name allows, to `value`, on one line.
    pub fn set(&mut self, key: &str, value: impl AsRef<str>) {
        let key: String = key
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '-' })
            .take(KEY_LENGTH)
            .collect();
        let key = key.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        if !key.is_empty() && !self.0.iter().any(|(set, _)| set == key) {
            self.0.push((key.to_owned(), shortened(&one_line(value.as_ref()), VALUE_LENGTH)));
        }
    }

    /// Key by key, in the order in which they were set.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_one_line_and_said_once() {
        let mut warnings = Warnings::default();
        warnings.push("two\nlines\u{7}");
        warnings.push("two lines");
        warnings.push(" \n ");
        assert_eq!(warnings.fitted(), ["two lines"]);
    }

    #[test]
    fn too_many_warnings_are_cut_and_counted() {
        let mut warnings = Warnings::default();
        for n in 0..40 {
            warnings.push(format!("{n} {}", "é".repeat(200)));
        }
        let fitted = warnings.fitted();
        assert!(fitted.iter().map(|w| w.chars().count()).sum::<usize>() <= WARNINGS_TOTAL);
        assert_eq!(fitted.len(), 16);
        assert_eq!(fitted[15], "25 more warnings are not shown");
    }

    #[test]
    fn one_endless_warning_is_cut_to_what_the_api_server_would_leave() {
        let mut warnings = Warnings::default();
        warnings.push("x".repeat(5000));
        assert_eq!(warnings.fitted()[0].chars().count(), WARNING_WHEN_CUT);
        assert!(warnings.fitted()[0].ends_with('…'));
    }

    #[test]
    fn audit_keys_are_qualified_names_and_the_first_value_stays() {
        let mut audit = Audit::default();
        audit.set("a/b c", "1");
        audit.set("a-b-c", "2");
        audit.set("-_.", "3");
        audit.set(&"k".repeat(80), "4");
        let all: Vec<_> = audit.iter().collect();
        assert_eq!(all[0], ("a-b-c", "1"));
        assert_eq!(all[1].0.len(), KEY_LENGTH);
        let mut forged = Audit::default();
        forged.set("in-use", "m1\nm2\u{1b}[31m\u{202e}");
        assert_eq!(forged.iter().next(), Some(("in-use", "m1 m2 [31m")));
        assert_eq!(all.len(), 2);
    }
}
