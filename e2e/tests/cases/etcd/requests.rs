//! Requests that remove pods of etcd.

use e2e::api::Answer;
use e2e::etcd_cluster::pods::Pods;
use e2e::prelude::*;

use crate::cases::attempt::{Attempt, ETCD};

/// A kind of request that removes a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Removal {
    Delete,
    /// An Eviction of policy/v1.
    Evict,
    /// An Eviction of policy/v1beta1, as older clients send it.
    EvictBeta,
}

impl Removal {
    pub(super) const ALL: [Self; 3] = [Self::Delete, Self::Evict, Self::EvictBeta];

    fn send_with(self, api: &Api, pods: &Pods<'_>, name: &str, options: &Value) -> Result<Attempt> {
        let answer = match self.eviction(name, options) {
            None => api.delete_with(&pods.path(name), options)?,
            Some(eviction) => api.create(&format!("{}/eviction", pods.path(name)), &eviction)?,
        };
        Ok(attempt(answer))
    }

    fn eviction(self, name: &str, options: &Value) -> Option<Value> {
        let version = match self {
            Self::Delete => return None,
            Self::Evict => "policy/v1",
            Self::EvictBeta => "policy/v1beta1",
        };
        let metadata = json!({"name": name});
        Some(json!({
            "apiVersion": version, "kind": "Eviction", "metadata": metadata, "deleteOptions": options,
        }))
    }

    pub(super) fn send(self, api: &Api, pods: &Pods<'_>, name: &str) -> Result<Attempt> {
        self.send_with(api, pods, name, &json!({}))
    }

    /// Sends the request with a grace period in seconds.
    pub(super) fn send_with_grace(
        self,
        api: &Api,
        pods: &Pods<'_>,
        name: &str,
        seconds: u32,
    ) -> Result<Attempt> {
        self.send_with(api, pods, name, &json!({"gracePeriodSeconds": seconds}))
    }

    /// Sends it as a dry run without a grace period.
    pub(super) fn dry_run_without_grace(self, api: &Api, pods: &Pods<'_>, name: &str) -> Result<Attempt> {
        self.send_with(api, pods, name, &json!({"gracePeriodSeconds": 0, "dryRun": ["All"]}))
    }

    /// Sends it with `dryRun` in the URL. A deletion then has no body, because the API server ignores the URL if it has
    /// options in the body.
    pub(super) fn dry_run(self, api: &Api, pods: &Pods<'_>, name: &str) -> Result<Attempt> {
        let path = pods.path(name);
        let answer = match self.eviction(name, &json!({})) {
            None => api.delete(&format!("{path}?dryRun=All"))?,
            Some(eviction) => api.create(&format!("{path}/eviction?dryRun=All"), &eviction)?,
        };
        Ok(attempt(answer))
    }

    /// Sends it with `dryRun` in the options, as `kubectl drain --dry-run=server` does.
    pub(super) fn dry_run_by_options(self, api: &Api, pods: &Pods<'_>, name: &str) -> Result<Attempt> {
        self.send_with(api, pods, name, &json!({"dryRun": ["All"]}))
    }
}

pub(in crate::cases) fn delete(pods: &Pods<'_>, name: &str) -> Result<Attempt> {
    Removal::Delete.send(pods.namespace().cluster().api(), pods, name)
}

pub(in crate::cases) fn evict(pods: &Pods<'_>, name: &str) -> Result<Attempt> {
    Removal::Evict.send(pods.namespace().cluster().api(), pods, name)
}

pub(in crate::cases) fn dry_run(pods: &Pods<'_>, name: &str) -> Result<Attempt> {
    Removal::Delete.dry_run(pods.namespace().cluster().api(), pods, name)
}

/// Returns the response to another request that the etcd guard reviews.
pub(in crate::cases) fn attempt(answer: Answer) -> Attempt {
    Attempt::new(answer, &ETCD)
}
