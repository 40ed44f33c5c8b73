//! Command `check`: says what the API server would say of manifests, without a cluster.
#![allow(dead_code, reason = "the command is not complete yet")]

pub(crate) mod report;
