//! Custom resources as the API server treats them.
//!
//! | module | contents | `k8s.io/apiextensions-apiserver` |
//! |---|---|---|
//! | `model` | a CRD in the versions `v1` and `v1beta1` | `pkg/apis/apiextensions/{v1,v1beta1}` |
//! | `admit` | the checks of a CRD at its creation and update | `pkg/apis/apiextensions/validation` |
//! | `object` | all steps of a create and an update, in their order | `pkg/apiserver/customresource_handler.go`, `pkg/registry/customresource` |
//! | `rules` | the rules of `x-kubernetes-validations` | `pkg/apiserver/schema/cel` |
//! | `convert`, `convert_schema` | a CRD of `v1beta1` in `v1` | `pkg/apis/apiextensions/v1/conversion.go` |
//! | `compare` | the changes between two versions of a CRD that can break an existing object | none |
//! | `replay` | an existing object, written again after its CRD has changed | `pkg/registry/customresource`, `pkg/apiserver/customresource_handler.go` |
//! | `embedded` | metadata of objects within objects | `pkg/apiserver/schema/objectmeta` |

pub mod admit;
pub mod compare;
pub mod convert;
mod convert_schema;
mod embedded;
mod model;
pub mod object;
pub mod replay;
pub mod rules;
mod scale;

pub use model::{Crd, Scale, Version};
