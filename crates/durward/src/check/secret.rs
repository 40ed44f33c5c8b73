//! Secrets: the API server moves `stringData` to `data` before policies see the object.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use policy::value::{Arena, Value};

/// Returns a Secret with its `stringData` in `data`. A key in both has the value of `stringData`.
pub(super) fn with_data<'a>(secret: Value<'a>, arena: &'a Arena) -> Value<'a> {
    let (Value::Object(fields), Some(Value::Object(texts))) = (secret, secret.field("stringData")) else {
        return secret;
    };
    let mut data = match secret.field("data") {
        Some(Value::Object(data)) => data.to_vec(),
        _ => Vec::new(),
    };
    for (key, value) in texts {
        let text = value.as_str().unwrap_or_default();
        data.push((*key, Value::String(arena.text(&STANDARD.encode(text)))));
    }
    let mut kept: Vec<(&str, Value<'a>)> =
        fields.iter().copied().filter(|(field, _)| *field != "stringData").collect();
    kept.push(("data", arena.object(&data)));
    arena.object(&kept)
}

#[cfg(test)]
mod tests {
    use policy::value::{read_json, write_json};

    use super::*;

    #[test]
    fn texts_replace_data() {
        let arena = Arena::new();
        let converted = |text: &'static str| write_json(with_data(read_json(text, &arena).unwrap(), &arena));
        assert_eq!(
            converted(r#"{"data":{"a":"eA==","b":"eQ=="},"kind":"Secret","stringData":{"a":"b"}}"#),
            r#"{"data":{"a":"Yg==","b":"eQ=="},"kind":"Secret"}"#
        );
        assert_eq!(converted(r#"{"kind":"Secret"}"#), r#"{"kind":"Secret"}"#);
    }
}
