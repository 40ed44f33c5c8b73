//! Schemas of CRDs: what the API server does to an object with a schema, one module for each step.
//!
//! | step | module | `k8s.io/apiextensions-apiserver/pkg/apiserver`, or `o` for `k8s.io/kube-openapi/pkg/validation` |
//! |---|---|---|
//! | read a schema | `parse`, `model`, `pattern` | `pkg/apis/apiextensions/v1/types_jsonschema.go` |
//! | check that it is structural | `structural` | `schema/convert.go`, `schema/validation.go`, `schema/complete.go` |
//! | remove unknown fields | `prune` | `schema/pruning/algorithm.go` |
//! | remove nulls | `defaults` | `schema/defaulting/prunenulls.go` |
//! | set defaults | `defaults` | `schema/defaulting/algorithm.go` |
//! | declare types and sizes for rules | `declare`, `sizes` | `k8s.io/apiserver/pkg/cel/common/schemas.go` |
//! | validate | `validate`, `bounds`, `formats`, `address`, `email`, `place` | `o/validate`, `o/strfmt`, `validation/formats.go` |
//! | keep errors of unchanged fields | `correlate` | `validation/ratcheting.go`, `k8s.io/apiserver/pkg/cel/common/equality.go` |
//! | find duplicates in lists | `list_types` | `schema/listtype/validation.go` |
//!
//! The order of the steps, metadata and rules belong to the callers. Errors are in the order of keys, since Go's order is random.

mod address;
mod bounds;
pub(crate) mod correlate;
pub(crate) mod declare;
pub(crate) mod defaults;
mod email;
pub(crate) mod formats;
pub(crate) mod list_types;
mod model;
mod parse;
mod pattern;
pub(crate) mod prune;
pub(crate) mod sizes;
pub(crate) mod structural;
#[cfg(test)]
mod tests;
pub(crate) mod validate;
mod validator;

pub use model::Schema;
pub(crate) use model::{Additional, SchemaType, ValidationRule, ValueChecks};
