//! Admission reviews as values: decode the question, rule, settle, encode the answer.
//!
//! Everything here is pure: no I/O, no runtime, no clock. The HTTP side lives in `server`, what guards look at in `guards`.
//! The types follow what kube-apiserver really sends and accepts (`staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook`),
//! not only what the API reference says; where that matters the item says so.
//!
//! ```
//! use admission::{Answer, Fields, Ruling, Stance, decode, encode, settle};
//!
//! let body = br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{
//!     "uid":"7","operation":"CREATE","kind":{"group":"","version":"v1","kind":"Pod"},
//!     "resource":{"group":"","version":"v1","resource":"pods"},"userInfo":{},"object":{"metadata":{"name":"web"}}}}"#;
//! let review = decode(body, &Fields::none())?;
//! assert_eq!(review.request.name, "web");
//!
//! let settled = settle(&review.request, Ruling::allow(), &Stance::deny_when_unknown());
//! assert!(matches!(settled.answer, Answer::Allow));
//! assert!(encode(&review, &settled).starts_with(br#"{"apiVersion":"admission.k8s.io/v1""#));
//! # Ok::<(), admission::Malformed>(())
//! ```

mod courtesy;
mod envelope;
mod fields;
mod glob;
mod guard;
mod patch;
mod plain;
mod reply;
mod request;
mod settle;
mod verdict;
mod webhook;

pub use courtesy::{Audit, Warnings};
pub use envelope::{ApiVersion, Malformed, Review, decode};
pub use fields::{Fields, MAX_FIELDS, Object};
pub use glob::Glob;
pub use guard::{BoxFuture, Guard};
pub use json::{JsonError, Raw, Scanner, Shape};
pub use patch::{Patch, Pointer};
pub use plain::one_line;
pub use reply::encode;
pub use request::{GroupVersionKind, GroupVersionResource, Operation, Request, User};
pub use settle::{Mode, OnUnknown, SettlePolicy, Settled, settle};
pub use verdict::{Answer, Cause, Code, Denial, DenialCause, Ruling, SKIPPED, Verdict};
pub use webhook::{
    FailurePolicy, LabelSelector, MatchCondition, Reinvocation, Requirement, Rule, Scope, SelectorOperator,
    SideEffects, WebhookEntry, WebhookType,
};
