//! `ValidatingAdmissionPolicies` and their bindings.

pub(crate) mod admit;
pub(crate) mod compiled;
pub mod decision;
pub(crate) mod evaluate;
pub(crate) mod index;
pub(crate) mod matching;
pub mod model;
pub(crate) mod params;
pub(crate) mod read;
pub(crate) mod run;
pub mod selector;
