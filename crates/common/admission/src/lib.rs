//! Admission reviews as values: decode the request, rule, settle, encode the answer.
//!
//! This crate is pure, except for [`mod@file`]: no I/O, no runtime, no clock. HTTP is in `server`, the guards are in `guards`.
//! The types follow what kube-apiserver sends and accepts (`staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook`). The
//! documentation of an item mentions differences from the API reference.
//!
//! ```
//! use admission::{Answer, Fields, Ruling, SettlePolicy, decode, encode, settle};
//!
//! let body = br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{
//!     "uid":"7","operation":"CREATE","kind":{"group":"","version":"v1","kind":"Pod"},
//!     "resource":{"group":"","version":"v1","resource":"pods"},"userInfo":{},"object":{"metadata":{"name":"web"}}}}"#;
//! let review = decode(body, &Fields::none())?;
//! assert_eq!(review.request.name, "web");
//!
//! let settled = settle(&review.request, Ruling::allow(), &SettlePolicy::deny_unknown());
//! assert!(matches!(settled.answer, Answer::Allow));
//! assert!(encode(&review, &settled).starts_with(br#"{"apiVersion":"admission.k8s.io/v1""#));
//! # Ok::<(), admission::Malformed>(())
//! ```

pub mod budget;
mod decode_error;
mod denial;
mod envelope;
mod fields;
pub mod file;
mod glob;
mod guard;
mod keys;
mod lock;
mod names;
mod patch;
mod reply;
mod request;
mod settle;
pub mod text;
mod verdict;
mod warnings;

pub use denial::{Code, Denial, DenialCause};
pub use envelope::{ApiVersion, Malformed, Review, decode};
pub use fields::{Fields, MAX_FIELDS, ReviewedObject};
pub use glob::Glob;
pub use guard::{BoxFuture, Guard};
pub use json::{JsonError, Raw, Scanner, Shape};
pub use lock::lock;
pub use patch::{Patch, Pointer};
pub use reply::encode;
pub use request::{GroupVersionKind, GroupVersionResource, Operation, Request, User};
pub use settle::{Mode, OnUnknown, SettlePolicy, Settled, settle};
pub use text::one_line;
pub use verdict::{
    Answer, Cause, OVERRIDE, PolicyEvaluation, PolicyOutcome, Ruling, SKIPPED, UNREVIEWED, Verdict,
};
pub use warnings::{Audit, Warnings};
