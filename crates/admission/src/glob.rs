//! Names with `*`: what configuration lists of users, groups and namespaces are made of.

use std::fmt;

/// A pattern in which `*` stands for any run of characters, the empty one too. Everything else is meant literally.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob(String);

impl Glob {
    /// Every text is a pattern.
    pub fn new(pattern: impl Into<String>) -> Self {
        Self(pattern.into())
    }

    /// Whether the whole of `text` fits.
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

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_run() {
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
