//! Warnings and audit annotations of a ruling, cleaned and cut to what the API server passes on. It drops the others silently.
//!
//! Facts: warnings have 4,096 runes in all; above that each warning is cut to 256 and the rest dropped
//! (`apiserver/pkg/endpoints/filters/warning.go`). A warning with a control character is dropped
//! (`apimachinery/pkg/util/net/http.go`). The key of an annotation is `<webhook name>/<key>` and must be a qualified name
//! (`apiserver/pkg/admission/attributes.go`).

use crate::text::{one_line, truncate};

/// Limit of all warnings of an answer together, in runes.
const MAX_TOTAL_CHARS: usize = 4096;
/// Limit of each warning if all together exceed [`MAX_TOTAL_CHARS`].
const MAX_CHARS_WHEN_CUT: usize = 256;
/// Limit of the name part of a qualified name.
const MAX_KEY_CHARS: usize = 63;
/// Limit of an annotation's value. The API server has none; this one keeps a thousand clusters from filling the audit log.
const MAX_VALUE_CHARS: usize = 10 * 1024;

/// Warnings for the user, in the order in which clients show them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Warnings(Vec<String>);

impl Warnings {
    /// Adds a warning on one line, unless it is empty or already in the list.
    pub fn push(&mut self, text: impl AsRef<str>) {
        let clean = one_line(text.as_ref());
        if !clean.is_empty() && !self.0.contains(&clean) {
            self.0.push(clean);
        }
    }

    /// Returns whether there are no warnings.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over the warnings in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Returns the warnings that fit into one answer. If they are cut, the last one counts those that are missing.
    pub fn fitted(&self) -> Vec<String> {
        if self.0.iter().map(|text| text.chars().count()).sum::<usize>() <= MAX_TOTAL_CHARS {
            return self.0.clone();
        }
        // Sixteen warnings of 256 runes fill the total exactly, so the sixteenth is the count.
        let max = MAX_TOTAL_CHARS / MAX_CHARS_WHEN_CUT;
        let shown = if self.0.len() <= max { max } else { max - 1 };
        let cut = self.0.iter().take(shown).map(|text| truncate(text, MAX_CHARS_WHEN_CUT).into_owned());
        let missing = self.0.len().saturating_sub(shown);
        cut.chain((missing > 0).then(|| format!("{missing} more warnings are not shown"))).collect()
    }
}

/// Annotations for the audit log. The first value of a key stays, as in the API server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Audit(Vec<(String, String)>);

impl Audit {
    /// Sets `key`, reduced to the characters of a qualified name, to `value` on one line.
    pub fn set(&mut self, key: &str, value: impl AsRef<str>) {
        let key: String = key
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '-' })
            .take(MAX_KEY_CHARS)
            .collect();
        let key = key.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        if !key.is_empty() && !self.0.iter().any(|(set, _)| set == key) {
            let value = truncate(&one_line(value.as_ref()), MAX_VALUE_CHARS).into_owned();
            self.0.push((key.to_owned(), value));
        }
    }

    /// Iterates over keys and values in the order in which they were set.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Returns whether there are no annotations.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn puts_a_warning_on_one_line_and_adds_it_once() {
        let mut warnings = Warnings::default();
        warnings.push("two\nlines\u{7}");
        warnings.push("two lines");
        warnings.push(" \n ");
        assert_eq!(warnings.fitted(), ["two lines"]);
    }

    #[test]
    fn cuts_and_counts_too_many_warnings() {
        let mut warnings = Warnings::default();
        for n in 0..40 {
            warnings.push(format!("{n} {}", "é".repeat(200)));
        }
        let fitted = warnings.fitted();
        assert!(fitted.iter().map(|w| w.chars().count()).sum::<usize>() <= MAX_TOTAL_CHARS);
        assert_eq!(fitted.len(), 16);
        assert_eq!(fitted[15], "25 more warnings are not shown");
    }

    #[test]
    fn cuts_sixteen_long_warnings_without_counting() {
        let mut warnings = Warnings::default();
        for n in 0..16 {
            warnings.push(format!("{n} {}", "x".repeat(300)));
        }
        assert!(warnings.fitted().iter().all(|w| w.chars().count() == MAX_CHARS_WHEN_CUT));
        assert_eq!(warnings.fitted().len(), 16);
    }

    #[test]
    fn cuts_one_long_warning_to_the_limit_of_the_api_server() {
        let mut warnings = Warnings::default();
        warnings.push("x".repeat(5000));
        assert_eq!(warnings.fitted()[0].chars().count(), MAX_CHARS_WHEN_CUT);
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
        assert_eq!(all[1].0.len(), MAX_KEY_CHARS);
        let mut forged = Audit::default();
        forged.set("in-use", "m1\nm2\u{1b}[31m\u{202e}");
        assert_eq!(forged.iter().next(), Some(("in-use", "m1 m2 [31m")));
        assert_eq!(all.len(), 2);
    }
}
