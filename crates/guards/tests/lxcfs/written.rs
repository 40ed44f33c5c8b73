//! JSON with keys in any order and with duplicate keys.

use serde_json::Value;

/// What a key that is to stand twice is given beside its own value.
pub(crate) const OTHERS: [&str; 7] =
    ["null", "[]", "{}", "7", "\"enabled\"", r#"[{"name":"data","mountPath":"/proc"}]"#, r#"{"name":"app"}"#];

/// A key that stands twice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Double {
    /// Which one, in the order in which they are written.
    pub(crate) key: usize,
    /// Its other value, out of [`OTHERS`].
    pub(crate) other: usize,
    /// Whether that comes first.
    pub(crate) first: bool,
}

/// The value as a text whose keys stand in the order that comes of `order`.
pub(crate) fn written(value: &Value, order: u64, double: Option<Double>) -> String {
    // Any start but zero is a good one.
    let mut writer = Writer { state: order | 1, keys: 0, double, out: String::new() };
    writer.value(value);
    writer.out
}

struct Writer {
    state: u64,
    keys: usize,
    double: Option<Double>,
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
        let twice = self.double.filter(|double| double.key == self.keys);
        self.keys += 1;
        let other = twice.map(|double| (double.first, OTHERS[double.other]));
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

    /// A number below `end` (xorshift64).
    fn below(&mut self, end: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        usize::try_from(self.state % end as u64).unwrap_or_default()
    }
}
