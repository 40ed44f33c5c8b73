//! Problems of kinds.

use std::ops::RangeInclusive;

use policy::field::Path;
use policy::kinds::{Kinds, is_built_in};

use crate::LoadProblem;
use crate::objects::Manifest;

/// Returns whether an object is a CRD.
pub fn is_crd(object: &Manifest) -> bool {
    object.is("apiextensions.k8s.io", "CustomResourceDefinition")
}

/// Returns the problem with a kind that an API server of a minor does not serve.
pub fn unserved_kind(object: &Manifest, minors: &RangeInclusive<u8>, minor: u8) -> LoadProblem {
    let (message, next) = unserved(&object.api_version, &object.kind, minors, minor);
    LoadProblem { next, ..object.problem(&Path::new("apiVersion"), message) }
}

/// Returns the message about a kind that a minor does not serve, and the next step.
pub fn unserved(api_version: &str, kind: &str, minors: &RangeInclusive<u8>, minor: u8) -> (String, String) {
    let message = format!("Kubernetes 1.{minor} does not serve {kind} in {api_version}");
    let next = if *minors.start() > minor {
        format!("served from Kubernetes 1.{} on: --kube-version 1.{}", minors.start(), minors.start())
    } else {
        format!("served up to Kubernetes 1.{}; use a newer apiVersion", minors.end())
    };
    (message, next)
}

/// Returns the problem with a kind that is not known. No CRD can define kinds of a built-in group.
pub fn unknown_kind(object: &Manifest, kinds: &Kinds, minor: u8) -> LoadProblem {
    let message = format!("unknown kind {} in {}", object.kind, object.api_version);
    let of_group = kinds.of_group(object.group(), minor);
    let near = config::nearest(&object.kind, of_group.iter().copied());
    let mut known = kinds.like(&object.kind, minor);
    if known.is_empty() {
        known.extend(near.map(str::to_owned));
    }
    let suggestion = match &known[..] {
        [] => None,
        known => Some(format!("did you mean {}?", known.join(", "))),
    };
    if is_crd(object) && object.version() == "v1beta1" {
        let next = "convert the CRD to v1: durward convert crd FILE".to_owned();
        return LoadProblem { next, ..object.problem(&Path::new("kind"), message) };
    }
    let next = match (suggestion, is_built_in(object.group())) {
        (Some(suggestion), true) => suggestion,
        (None, true) => {
            format!("fix apiVersion or kind; Kubernetes 1.{minor} has no such kind in this group")
        }
        (Some(suggestion), false) => format!("{suggestion} Otherwise add its CRD with --with"),
        (None, false) => "add its CRD with --with".to_owned(),
    };
    LoadProblem { next, ..object.problem(&Path::new("kind"), message) }
}
