//! Encodes the answer: always HTTP 200, the same uid and version, the patch in base64.
//!
//! Fact: `apiserver/pkg/admission/plugin/webhook/request/admissionreview.go` rejects a v1 answer with another uid or version, a
//! patch without patchType, and a patchType without patch. `kube::core::admission` is not used, because it writes the patch as an
//! array of numbers and a denial without code and reason.

use base64::Engine as _;
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};

use crate::denial::Denial;
use crate::envelope::Review;
use crate::settle::Settled;
use crate::verdict::Answer;
use crate::warnings::Audit;

/// Encodes the answer to a review.
pub fn encode(review: &Review<'_>, settled: &Settled) -> Vec<u8> {
    let request = &review.request;
    let response = Response {
        uid: &request.uid,
        allowed: !matches!(settled.answer, Answer::Deny(_)),
        status: match &settled.answer {
            Answer::Deny(denial) => Some(DenialStatus::new(denial, request)),
            Answer::Allow | Answer::Mutate(_) => None,
        },
        warnings: settled.warnings.fitted(),
        audit_annotations: &settled.audit,
    };
    let patch = match &settled.answer {
        Answer::Mutate(patch) => patch.as_json(),
        Answer::Allow | Answer::Deny(_) => &[],
    };
    let length = base64::encoded_len(patch.len(), true).unwrap_or_default();
    let mut body = Vec::with_capacity(HEAD + length);
    let version = review.api_version.as_str();
    for text in [r#"{"apiVersion":""#, version, r#"","kind":"AdmissionReview","response":"#] {
        body.extend_from_slice(text.as_bytes());
    }
    // Writing strings and numbers to memory cannot fail.
    let _ = serde_json::to_writer(&mut body, &response);
    if length > 0 {
        add_patch(&mut body, patch, length);
    }
    body.push(b'}');
    body
}

/// Bytes of an answer without a patch, if it has no texts.
const HEAD: usize = 256;

/// Encodes base64 with the vector instructions that the processor has.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
static BASE64: std::sync::LazyLock<base64::engine::Simd> =
    std::sync::LazyLock::new(|| base64::engine::Simd::standard(base64::engine::general_purpose::PAD));
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
use base64::engine::general_purpose::STANDARD as BASE64;

/// Appends the patch as the last fields of the response, with its `length` in base64. It is most of the answer and needs no
/// escapes, so it is encoded in place.
fn add_patch(body: &mut Vec<u8>, patch: &[u8], length: usize) {
    // Without the closing brace of the response, so that fields can follow.
    body.pop();
    body.extend_from_slice(br#","patchType":"JSONPatch","patch":""#);
    let start = body.len();
    body.resize(start + length, 0);
    let _ = BASE64.encode_slice(patch, body.get_mut(start..).unwrap_or_default());
    body.extend_from_slice(br#""}"#);
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<DenialStatus<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "Audit::is_empty", serialize_with = "audit_map")]
    audit_annotations: &'a Audit,
}

// serde passes a reference to the borrowed field.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn audit_map<S: Serializer>(audit: &&Audit, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    for (key, value) in audit.iter() {
        map.serialize_entry(key, value)?;
    }
    map.end()
}

// The field is named by the API.
#[allow(clippy::struct_field_names)]
#[derive(Serialize)]
struct DenialStatus<'a> {
    status: &'static str,
    code: u16,
    reason: &'static str,
    message: &'a str,
    details: DenialDetails<'a>,
}

#[derive(Serialize)]
struct DenialDetails<'a> {
    name: &'a str,
    group: &'a str,
    kind: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    causes: Vec<CauseOut<'a>>,
}

#[derive(Serialize)]
struct CauseOut<'a> {
    reason: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    field: &'a str,
}

impl<'a> DenialStatus<'a> {
    fn new(denial: &'a Denial, request: &'a crate::Request<'_>) -> Self {
        let causes = denial.causes.iter();
        Self {
            status: "Failure",
            code: denial.code.number(),
            reason: denial.code.reason(),
            message: &denial.message,
            details: DenialDetails {
                name: &request.name,
                group: &request.resource.group,
                // In a Status of the API server, this is the resource.
                kind: &request.resource.resource,
                causes: causes
                    .map(|c| CauseOut { reason: &c.reason, message: &c.message, field: &c.field })
                    .collect(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;
    use serde_json::{Value, json};

    use super::*;
    use crate::{Denial, DenialCause, Fields, Patch, Pointer, Ruling, SettlePolicy, Verdict, decode, settle};

    fn answered(version: &str, ruling: Ruling) -> Value {
        let body = format!(
            r#"{{"apiVersion":"admission.k8s.io/{version}","kind":"AdmissionReview","request":{{"uid":"u-1","operation":"DELETE","name":"shop","resource":{{"group":"","version":"v1","resource":"namespaces"}}}}}}"#
        );
        let review = decode(body.as_bytes(), &Fields::none()).unwrap();
        let settled = settle(&review.request, ruling, &SettlePolicy::deny_unknown());
        serde_json::from_slice(&encode(&review, &settled)).unwrap()
    }

    #[test]
    fn an_allow_has_only_uid_and_version() {
        for version in ["v1", "v1beta1"] {
            assert_eq!(
                answered(version, Ruling::allow()),
                json!({"apiVersion": format!("admission.k8s.io/{version}"), "kind": "AdmissionReview", "response": {"uid": "u-1", "allowed": true}})
            );
        }
    }

    #[test]
    fn a_patch_is_base64_and_has_its_type() {
        let mut patch = Patch::new();
        patch.add(&Pointer::root().key("a"), &"b").unwrap();
        let answer = answered("v1", Ruling::new(Verdict::Mutate(patch)));
        let patch = STANDARD.decode(answer["response"]["patch"].as_str().unwrap()).unwrap();
        assert_eq!(patch, br#"[{"op":"add","path":"/a","value":"b"}]"#);
        assert_eq!(answer["response"]["patchType"], "JSONPatch");
        assert_eq!(answer["response"]["allowed"], true);
    }

    #[test]
    fn a_denial_has_code_reason_message_and_causes() {
        let mut denial = Denial::forbidden("in use\nsecond line");
        denial.causes.push(DenialCause {
            reason: "InUse".into(),
            message: "3 pods".into(),
            field: "m1".into(),
        });
        let answer = answered("v1", Ruling::deny(denial).warn("w").audit("clusters", "m1"));
        assert_eq!(
            answer["response"],
            json!({"uid": "u-1", "allowed": false, "warnings": ["w"], "auditAnnotations": {"clusters": "m1"},
                "status": {"status": "Failure", "code": 403, "reason": "Forbidden", "message": "in use\nsecond line",
                    "details": {"name": "shop", "group": "", "kind": "namespaces",
                        "causes": [{"reason": "InUse", "message": "3 pods", "field": "m1"}]}}})
        );
    }
}
