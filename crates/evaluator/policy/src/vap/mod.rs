//! `ValidatingAdmissionPolicies` and their bindings.
//!
//! A policy is read, checked and compiled once. Each request then passes from `index` to `decision`. The right column is below
//! `pkg/admission/plugin` of `k8s.io/apiserver`, except where it says otherwise.
//!
//! | step | module | API server |
//! |---|---|---|
//! | documents to policies and bindings, with defaults | `read`, `model`, `selector` | `pkg/apis/admissionregistration` of Kubernetes |
//! | checks when they are created | `admit` | `validation/validation.go` there |
//! | expressions to programs | `compiled` | `policy/validating/plugin.go`, `cel/compile.go`, `cel/composition.go` |
//! | policies that can match a resource | `index` | |
//! | one request and all policies | `run` | `policy/validating/dispatcher.go`, `policy/generic/policy_dispatcher.go` |
//! | does a policy or binding match? | `matching` | `policy/matching/matching.go`, `policy/generic/policy_matcher.go` |
//! | the parameters of a binding | `params` | `policy/generic/policy_dispatcher.go` |
//! | one policy, binding and parameter | `evaluate` | `policy/validating/validator.go`, `webhook/matchconditions/matcher.go`, `cel/condition.go` |
//! | the verdict | `decision` | `policy/validating/policy_decision.go`, `policy/validating/dispatcher.go` |

pub mod model;
pub(crate) mod read;
pub mod selector;

pub(crate) mod admit;
pub(crate) mod compiled;

pub(crate) mod index;
pub(crate) mod run;

pub mod matching;
pub(crate) mod params;

pub mod decision;
pub(crate) mod evaluate;
