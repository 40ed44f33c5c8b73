//! Custom resources as the API server treats them.
//!
//! | module | contents | `k8s.io/apiextensions-apiserver` |
//! |---|---|---|
//! | `model` | a CRD in the versions `v1` and `v1beta1` | `pkg/apis/apiextensions/{v1,v1beta1}` |
//! | `object` | all steps of a create and an update, in their order | `pkg/apiserver/customresource_handler.go`, `pkg/registry/customresource` |
//! | `rules` | the rules of `x-kubernetes-validations` | `pkg/apiserver/schema/cel` |
//! | `embedded` | metadata of objects within objects | `pkg/apiserver/schema/objectmeta` |

mod embedded;
mod model;
pub mod object;
pub mod rules;
mod scale;

pub use model::{Crd, Scale, Version};
