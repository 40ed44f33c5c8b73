//! The file `ruling.yaml` of a case: the verdict, reason codes, patch and texts that the guard must return.
//!
//! ```yaml
//! verdict: unknown
//! answer: deny with 403
//! causes: [timeout]                 # codes, in the order of the ruling
//! message: [m5, requestTimeout]     # a list: the text contains each of these words
//! details:
//! - Unknown m5: []                  # an empty list: any text
//! audit:
//! - not-seen: m5                    # one string: exactly this text
//! ```

use std::fmt::Write as _;

use admission::{Answer, Settled};
use serde::Deserialize;
use serde_json::Value;

/// The ruling that a guard returned, or that a case expects.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Ruling {
    verdict: String,
    answer: String,
    causes: Vec<String>,
    message: Option<Text>,
    details: Vec<Entry>,
    warnings: Vec<Text>,
    audit: Vec<Entry>,
    patch: Vec<Text>,
}

/// A text: all of it, or words that it must contain.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
enum Text {
    Exact(String),
    Words(Vec<String>),
}

/// A text with its key: an audit annotation, or a detail of a denial under `REASON FIELD`.
type Entry = std::collections::BTreeMap<String, Text>;

impl Ruling {
    /// Returns what came out of a review, each text exactly.
    pub(crate) fn of(settled: &Settled) -> Self {
        let entry = |key: String, text: &str| Entry::from([(key, Text::Exact(text.to_owned()))]);
        let mut ruling = Self {
            verdict: settled.verdict.to_owned(),
            causes: settled.causes.iter().map(|cause| cause.code.to_owned()).collect(),
            warnings: settled.warnings.fitted().into_iter().map(Text::Exact).collect(),
            audit: settled.audit.iter().map(|(key, value)| entry(key.to_owned(), value)).collect(),
            ..Self::default()
        };
        match &settled.answer {
            Answer::Allow => "allow".clone_into(&mut ruling.answer),
            Answer::Mutate(patch) => {
                "allow, changed".clone_into(&mut ruling.answer);
                let operations: Vec<Value> = serde_json::from_slice(patch.as_json()).unwrap_or_default();
                ruling.patch = operations.iter().map(|operation| Text::Exact(line(operation))).collect();
            }
            Answer::Deny(denial) => {
                ruling.answer = format!("deny with {}", denial.code.number());
                ruling.message = Some(Text::Exact(denial.message.clone()));
                let details = denial.causes.iter();
                let key = |reason: &str, field: &str| format!("{reason} {field}").trim().to_owned();
                ruling.details = details.map(|d| entry(key(&d.reason, &d.field), &d.message)).collect();
            }
        }
        ruling
    }

    /// Returns how an actual ruling differs from this one.
    pub(crate) fn differences(&self, actual: &Self) -> Vec<String> {
        let mut found = Vec::new();
        let mut compare = |what: &str, expected: &[Text], actual: &[Text]| {
            if expected.len() != actual.len() {
                found.push(format!("{what}: {} expected, {} came", expected.len(), actual.len()));
            }
            for (expected, actual) in expected.iter().zip(actual) {
                if !expected.accepts(actual) {
                    found.push(format!("{what}: expected {}, came {}", expected.written(), actual.written()));
                }
            }
        };
        let exact =
            |texts: &[&String]| texts.iter().map(|&text| Text::Exact(text.clone())).collect::<Vec<_>>();
        let codes = |ruling: &Self| exact(&ruling.causes.iter().collect::<Vec<_>>());
        compare("verdict", &exact(&[&self.verdict]), &exact(&[&actual.verdict]));
        compare("answer", &exact(&[&self.answer]), &exact(&[&actual.answer]));
        compare("causes", &codes(self), &codes(actual));
        compare("message", self.message.as_slice(), actual.message.as_slice());
        compare("warnings", &self.warnings, &actual.warnings);
        compare("patch", &self.patch, &actual.patch);
        for (what, expected, actual) in
            [("details", &self.details, &actual.details), ("audit", &self.audit, &actual.audit)]
        {
            let keys = |all: &[Entry]| all.iter().flat_map(|entry| entry.keys().cloned()).collect::<Vec<_>>();
            let texts =
                |all: &[Entry]| all.iter().flat_map(|entry| entry.values().cloned()).collect::<Vec<_>>();
            let (expected_keys, actual_keys) = (keys(expected), keys(actual));
            compare(
                what,
                &exact(&expected_keys.iter().collect::<Vec<_>>()),
                &exact(&actual_keys.iter().collect::<Vec<_>>()),
            );
            compare(what, &texts(expected), &texts(actual));
        }
        found
    }

    /// Returns this ruling with lists of words where `before` has lists: those that still occur.
    pub(crate) fn loosened(mut self, before: &Self) -> Self {
        let loosen = |text: &mut Text, before: Option<&Text>| {
            if let (Text::Exact(whole), Some(Text::Words(words))) = (&*text, before) {
                let kept = words.iter().filter(|word| whole.contains(word.as_str())).cloned().collect();
                *text = Text::Words(kept);
            }
        };
        if let Some(message) = &mut self.message {
            loosen(message, before.message.as_ref());
        }
        for (texts, before) in [(&mut self.warnings, &before.warnings), (&mut self.patch, &before.patch)] {
            texts.iter_mut().enumerate().for_each(|(at, text)| loosen(text, before.get(at)));
        }
        for (entries, before) in [(&mut self.details, &before.details), (&mut self.audit, &before.audit)] {
            for (key, text) in entries.iter_mut().flatten() {
                loosen(text, before.iter().find_map(|entry| entry.get(key)));
            }
        }
        self
    }

    /// Returns the ruling as YAML, one text a line.
    pub(crate) fn to_yaml(&self) -> String {
        let mut out = format!("verdict: {}\nanswer: {}\n", self.verdict, self.answer);
        // Writing to a String cannot fail.
        if !self.causes.is_empty() {
            let _ = writeln!(out, "causes: [{}]", self.causes.join(", "));
        }
        if let Some(message) = &self.message {
            let _ = writeln!(out, "message: {}", message.written());
        }
        let mut list = |name: &str, lines: Vec<String>| {
            if !lines.is_empty() {
                let _ = writeln!(out, "{name}:\n- {}", lines.join("\n- "));
            }
        };
        let entries = |all: &[Entry]| {
            let lines = all.iter().flatten().map(|(key, text)| format!("{key}: {}", text.written()));
            lines.collect::<Vec<_>>()
        };
        list("details", entries(&self.details));
        list("warnings", self.warnings.iter().map(Text::written).collect());
        list("audit", entries(&self.audit));
        list("patch", self.patch.iter().map(Text::written).collect());
        out
    }
}

impl Text {
    fn accepts(&self, actual: &Self) -> bool {
        match (self, actual) {
            (Self::Words(words), Self::Exact(text)) => words.iter().all(|word| text.contains(word.as_str())),
            _ => self == actual,
        }
    }

    fn written(&self) -> String {
        let quoted = |text: &String| Value::from(text.as_str()).to_string();
        match self {
            Self::Exact(text) => quoted(text),
            Self::Words(words) => format!("[{}]", words.iter().map(quoted).collect::<Vec<_>>().join(", ")),
        }
    }
}

/// Writes a patch operation on one line: `add /metadata/annotations {"a":"b"}`.
fn line(operation: &Value) -> String {
    let word = |key: &str| operation[key].as_str().unwrap_or_default();
    format!("{} {} {}", word("op"), word("path"), operation["value"])
}
