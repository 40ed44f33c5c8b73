//! Writes JSON with keys in any order and with a duplicate key.

use serde_json::Value;

/// Other values of a duplicate key.
pub(crate) const OTHER_VALUES: [&str; 7] =
    ["null", "[]", "{}", "7", "\"enabled\"", r#"[{"name":"data","mountPath":"/proc"}]"#, r#"{"name":"app"}"#];

/// A duplicate key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DuplicateKey {
    /// The index of the key, in the order of writing.
    pub(crate) key: usize,
    /// The index of its other value in [`OTHER_VALUES`].
    pub(crate) other: usize,
    /// Whether the other value is first.
    pub(crate) first: bool,
}

/// Returns the value as text. The order of keys depends on `order`.
pub(crate) fn write(value: &Value, order: u64, duplicate_key: Option<DuplicateKey>) -> String {
    // The state must not be zero.
    let mut writer = Writer { state: order | 1, keys: 0, duplicate_key, out: String::new() };
    writer.value(value);
    writer.out
}

struct Writer {
    state: u64,
    keys: usize,
    duplicate_key: Option<DuplicateKey>,
    out: String,
}

impl Writer {
    fn value(&mut self, value: &Value) {
        match value {
            Value::Object(map) => {
                let mut entries: Vec<_> = map.iter().collect();
                for last in (1..entries.len()).rev() {
                    let other = self.below(last + 1);
                    entries.swap(last, other);
                }
                self.out.push('{');
                for (place, (key, value)) in entries.into_iter().enumerate() {
                    self.comma(place);
                    self.entry(key, value);
                }
                self.out.push('}');
            }
            Value::Array(list) => {
                self.out.push('[');
                for (place, value) in list.iter().enumerate() {
                    self.comma(place);
                    self.value(value);
                }
                self.out.push(']');
            }
            leaf => self.out.push_str(&leaf.to_string()),
        }
    }

    fn entry(&mut self, key: &str, value: &Value) {
        let key = Value::from(key).to_string();
        let twice = self.duplicate_key.filter(|duplicate_key| duplicate_key.key == self.keys);
        self.keys += 1;
        let other = twice.map(|duplicate_key| (duplicate_key.first, OTHER_VALUES[duplicate_key.other]));
        if let Some((true, other)) = other {
            self.out.extend([&key, ":", other, ","]);
        }
        self.out.extend([&key, ":"]);
        self.value(value);
        if let Some((false, other)) = other {
            self.out.extend([",", &key, ":", other]);
        }
    }

    fn comma(&mut self, place: usize) {
        if place > 0 {
            self.out.push(',');
        }
    }

    /// Returns a number below `end` (xorshift64).
    fn below(&mut self, end: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        usize::try_from(self.state % end as u64).unwrap_or_default()
    }
}
