//! The documents of a YAML text, by its lines.

/// Splits a text into its documents at the `---` lines, so that an unchanged document keeps its text. A document that holds only
/// comments is joined with the next one. Returns `None` if lines alone don't show the boundaries.
pub(super) fn split(text: &str) -> Option<Vec<String>> {
    let (mut parts, mut part, mut is_empty) = (Vec::new(), String::new(), true);
    for line in text.split_inclusive('\n') {
        if line.starts_with("...") || line.starts_with('%') {
            return None;
        }
        if line.starts_with("---") {
            let rest = line.trim_start_matches('-').trim();
            if !rest.is_empty() && !rest.starts_with('#') {
                return None;
            }
            if !is_empty {
                parts.push(std::mem::take(&mut part));
            } else if !part.trim().is_empty() {
                part.push_str(line);
            }
            is_empty = true;
            continue;
        }
        is_empty &= line.trim().is_empty() || line.trim_start().starts_with('#');
        part.push_str(line);
    }
    if !is_empty {
        parts.push(part);
    }
    Some(parts)
}

/// Returns whether a text contains a comment. A `#` inside a string counts too: the caller only prints a note.
pub(super) fn has_comment(text: &str) -> bool {
    text.lines().any(|line| line.trim_start().starts_with('#') || line.contains(" #"))
}

#[cfg(test)]
mod tests {
    use console::yaml::write;
    use serde_json::Value;

    #[test]
    fn every_string_reads_back_as_the_same_string() {
        let texts = [
            "",
            "a",
            "yes",
            "On",
            "0644",
            "1",
            "1.5",
            "1e3",
            "0x1f",
            ".5",
            "-",
            "- a",
            "a: b",
            "a:",
            "a #b",
            "#a",
            "null",
            "~",
            "2001-01-01",
            "12:30",
            "{a}",
            "[a]",
            "*a",
            "&a",
            "!a",
            "|",
            ">",
            "%a",
            "@a",
            "`a`",
            "'a'",
            "\"a\"",
            "a\nb",
            "a\nb\n",
            "a\n\nb",
            "a\n\n",
            " a",
            "a ",
            "\ta",
            "\t\n",
            "a\n\t\n",
            "a\tb",
            "a\rb",
            "a\u{7f}",
            "a\u{85}b",
            "a\u{2028}b",
            "é",
            "😀",
            "a\n b\n",
            "\n",
            "<<",
            "256Mi",
            "100m",
            "1M",
            "m",
            "0b1",
            "=",
            "a\\b",
            "a, b",
            "durward.dev/lxcfs",
            "x\n\ty",
            "k8s.io/a: b\nc",
            "\u{feff}",
            "a\u{0}b",
        ];
        for text in texts {
            for tree in
                [Value::from(text), serde_json::json!({"k": [text]}), serde_json::json!({text: {"k": text}})]
            {
                let yaml = write(&tree).unwrap();
                let read = policy::document::read_stream(&yaml).unwrap_or_else(|e| panic!("{e}\n{yaml}"));
                let back: Vec<Value> =
                    read.documents.iter().map(|(node, _)| super::super::to_json(node)).collect();
                assert_eq!(back, [tree], "{yaml}");
            }
        }
    }

    #[test]
    fn writes_as_kubectl_does() {
        let json = r#"{"kind":"Pod","spec":{"containers":[{"name":"a","args":["x",[1,2]],"env":[]},{}],"x":{}},"s":"a\nb"}"#;
        assert_eq!(
            write(&serde_json::from_str::<Value>(json).unwrap()).unwrap(),
            "kind: Pod\nspec:\n  containers:\n  - name: a\n    args:\n    - x\n    - - 1\n      - 2\n    env: []\n  - {}\n  x: {}\ns: |-\n  a\n  b\n"
        );
    }
}
