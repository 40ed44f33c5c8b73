//! Names of properties as CEL identifiers, `pkg/cel/escaping.go` of `k8s.io/apiserver`.

use std::borrow::Cow;

/// Words that CEL reserves.
pub(crate) const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Characters and their names in an identifier.
const ESCAPES: [(&str, &str); 4] = [("__", "underscores"), (".", "dot"), ("-", "dash"), ("/", "slash")];

/// The identifier of a property, or `None` if it can't have one.
pub(crate) fn escape(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let mut escaped = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(character) = rest.chars().next() {
        if let Some((text, word)) = ESCAPES.iter().find(|(text, _)| rest.starts_with(text)) {
            escaped.extend(["__", word, "__"]);
            rest = rest.strip_prefix(text)?;
            continue;
        }
        if !character.is_ascii_alphanumeric() && character != '_' {
            return None;
        }
        escaped.push(character);
        rest = rest.get(character.len_utf8()..)?;
    }
    Some(escaped)
}

/// The property of an identifier, or `None` if an escape is unknown.
pub(crate) fn unescape(identifier: &str) -> Option<Cow<'_, str>> {
    if !identifier.contains("__") {
        return Some(Cow::Borrowed(identifier));
    }
    let mut name = String::with_capacity(identifier.len());
    let mut rest = identifier;
    while let Some(character) = rest.chars().next() {
        match escaped_word(rest) {
            None => {
                name.push(character);
                rest = rest.get(character.len_utf8()..)?;
            }
            Some(word) => {
                if let Some((text, _)) = ESCAPES.iter().find(|(_, known)| *known == word) {
                    name.push_str(text);
                } else if RESERVED.contains(&word) && word.len() + 4 == identifier.len() {
                    name.push_str(word);
                } else {
                    return None;
                }
                rest = rest.get(word.len() + 4..)?;
            }
        }
    }
    Some(Cow::Owned(name))
}

/// The word of an escape that a text starts with.
fn escaped_word(text: &str) -> Option<&str> {
    let after = text.strip_prefix("__")?;
    let (word, rest) = after.split_at(after.find('_')?);
    (!word.is_empty() && rest.starts_with("__")).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_names_as_the_api_server() {
        for (name, escaped) in [
            ("foo", Some("foo")),
            ("namespace", Some("__namespace__")),
            ("foo-bar", Some("foo__dash__bar")),
            ("a.b/c", Some("a__dot__b__slash__c")),
            ("__underscores__", Some("__underscores__underscores__underscores__")),
            ("___", Some("__underscores___")),
            ("a_b", Some("a_b")),
            ("$ref", None),
            ("1a", None),
            ("", None),
            ("ä", None),
        ] {
            assert_eq!(escape(name).as_deref(), escaped, "{name}");
            if let Some(escaped) = escaped {
                assert_eq!(unescape(escaped).as_deref(), Some(name));
            }
        }
    }

    #[test]
    fn refuses_identifiers_with_unknown_escapes() {
        for (identifier, name) in [
            ("a__b__c", None),
            ("a__in__", None),
            ("__in__", Some("in")),
            ("___dot__", Some("_.")),
            ("a__dot", Some("a__dot")),
        ] {
            assert_eq!(unescape(identifier).as_deref(), name, "{identifier}");
        }
    }
}
