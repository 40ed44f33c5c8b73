//! Patterns with `*`, for users, groups and namespaces in the configuration.

use std::fmt;

/// A pattern in which `*` matches any number of characters. Other characters match themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob(String);

impl Glob {
    /// Creates a pattern. Every text is valid.
    pub fn new(pattern: impl Into<String>) -> Self {
        Self(pattern.into())
    }

    /// Returns whether the whole text matches.
    pub fn matches(&self, text: &str) -> bool {
        let mut parts = self.0.split('*');
        let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
        let Some(last) = parts.next_back() else { return rest.is_empty() };
        for part in parts {
            let Some(found) = rest.find(part) else { return false };
            rest = rest.get(found + part.len()..).unwrap_or_default();
        }
        rest.ends_with(last)
    }
}

impl From<&str> for Glob {
    fn from(pattern: &str) -> Self {
        Self::new(pattern)
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_matches_any_number_of_characters() {
        for (pattern, text, fits) in [
            ("shop", "shop", true),
            ("shop", "shops", false),
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("karmada-es-*", "karmada-es-m1", true),
            ("karmada-es-*", "karmada-e", false),
            ("system:serviceaccount:*:deployer", "system:serviceaccount:ci:deployer", true),
            ("*a*a", "a", false),
            ("*a*a", "xaya", true),
            ("ab*ba", "aba", false),
            ("a**c", "abc", true),
        ] {
            assert_eq!(Glob::new(pattern).matches(text), fits, "{pattern} {text}");
        }
    }
}
