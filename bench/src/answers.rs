//! Compares the answers of two servers before their times are measured.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::Result;

/// Returns the object of a review after the answer's patch.
pub(crate) fn patched(review: &[u8], answer: &[u8]) -> Result<Value> {
    let review: Value = serde_json::from_slice(review)?;
    let mut object = review["request"]["object"].clone();
    let answer: Value = serde_json::from_slice(answer)?;
    let response = &answer["response"];
    if response["allowed"] != Value::Bool(true) || response["uid"] != review["request"]["uid"] {
        return Err(format!("the review is not allowed: {answer}").into());
    }
    if let Some(patch) = response["patch"].as_str() {
        let patch: json_patch::Patch = serde_json::from_slice(&STANDARD.decode(patch)?)?;
        json_patch::patch(&mut object, &patch)?;
    }
    Ok(object)
}

/// Fails unless both answers allow the review with the same object.
pub(crate) fn expect_equal(review: &[u8], ours: &[u8], theirs: &[u8]) -> Result<()> {
    let [ours, theirs] = [patched(review, ours)?, patched(review, theirs)?];
    if ours == theirs {
        return Ok(());
    }
    Err(format!("the answers differ: Durward makes {ours}, the peer makes {theirs}").into())
}

/// Fails unless the answer allows the review without a change.
pub(crate) fn expect_plain(review: &[u8], answer: &[u8]) -> Result<()> {
    let value: Value = serde_json::from_slice(answer)?;
    if value["response"]["patch"].is_null() && patched(review, answer).is_ok() {
        return Ok(());
    }
    Err(format!("the review is not simply allowed: {value}").into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn review() -> Vec<u8> {
        json!({"request": {"uid": "7", "object": {"metadata": {}}}}).to_string().into_bytes()
    }

    fn answer(operations: &Value) -> Vec<u8> {
        let patch = STANDARD.encode(operations.to_string());
        json!({"response": {"uid": "7", "allowed": true, "patch": patch}}).to_string().into_bytes()
    }

    #[test]
    fn two_patches_are_equal_if_they_make_the_same_object() {
        let whole = answer(&json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]));
        let steps = answer(
            &json!([{"op": "add", "path": "/metadata/labels", "value": {}}, {"op": "add", "path": "/metadata/labels/a", "value": "b"}]),
        );
        expect_equal(&review(), &whole, &steps).unwrap();
        let other = answer(&json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "c"}}]));
        assert!(expect_equal(&review(), &whole, &other).is_err());
        assert!(expect_plain(&review(), &whole).is_err());
    }
}
