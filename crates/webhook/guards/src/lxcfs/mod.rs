//! Shows containers their own limits in `/proc`: mounts files of LXCFS into pods that opt in.
//!
//! Programs that size themselves by `/proc/meminfo` or `/proc/cpuinfo` (`free`, `top`, allocators, older runtimes) see the resources
//! of the node without this guard. The guard does not run LXCFS and does not read nodes. It does not help programs that ask the
//! kernel by a system call (`nproc`, `sysinfo(2)`, all of musl).
//!
//! A patch only adds: volumes, mounts and an annotation, or the extended resource of the device plugin instead of volumes
//! ([`device`]). With `nodeAffinity`, it also selects nodes on which LXCFS is ready ([`readiness`]). The pod is not written again, so
//! unknown fields are kept ([`pod`]). A patch applies by construction ([`slot`]).
//!
//! An Unknown verdict is allowed by default, because a pod also runs without the files. For the same reason, the failurePolicy is
//! Ignore. The guard reads the labels of the pod's namespace, and only if they matter: for the opt-in, an exemption or Pod Security.
//!
//! Files, in the order of a review:
//!
//! | file | purpose |
//! |---|---|
//! | `decide` | decides by the request, or by the labels of the namespace. Pure |
//! | `opt_in`, `skip_reason` | opt-in settings of a pod, and reasons against files |
//! | `pod`, `containers`, `volumes`, `mount_path` | read the pod |
//! | `mount_plan`, `device` | plan what each container gets |
//! | `inject`, `injection`, `readiness`, `slot`, `verify_patch` | write and check the patch |
//! | `messages` | texts |
//! | `config`, `files`, `lxcfs_path`, `rules` | configuration and webhook entries |

mod config;
mod containers;
mod decide;
mod device;
mod files;
#[cfg(test)]
mod fixture;
mod inject;
mod injection;
mod lxcfs_path;
mod messages;
mod mount_path;
mod mount_plan;
mod opt_in;
mod pod;
mod readiness;
mod rules;
mod skip_reason;
mod slot;
#[cfg(debug_assertions)]
mod verify_patch;
mod volumes;

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use admission::{BoxFuture, Cause, Fields, Guard, OnUnknown, Request, Ruling, SettlePolicy};

use crate::common::{Defaults, FailurePolicy, Remark};
use crate::kind::{Configured, GuardKind, Permission, Permissions, Requirements};
use crate::memory::no_memory;
use crate::webhook::WebhookEntry;
use ::config::Section;
use cluster::{Address, Clients, Reader, Resource, cause};

use config::Config;
use decide::FirstStep;

/// The path, the metric label and the configuration key.
const NAME: &str = "lxcfs";

/// Bytes of a pod's parts for each byte of its JSON: entries of maps, at least half full, with names of volumes and mounts.
const PARTS: usize = 8;

/// Five seconds are enough for a read from the cache. A slow Durward must not delay pods that can run without the files.
const DEFAULTS: Defaults = Defaults {
    on_unknown: OnUnknown::Allow,
    failure_policy: Some(FailurePolicy::Ignore),
    timeout_seconds: 5,
    exempt_namespaces: &[],
};

/// The LXCFS guard before it is configured.
#[derive(Debug)]
pub(crate) struct Lxcfs;

impl GuardKind for Lxcfs {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "Mounts LXCFS files into pods that opt in, so that /proc shows the limits of the container."
    }

    fn read(&self, section: &mut Section<'_>, namespace: &str) -> Box<dyn Configured> {
        Box::new(Arc::new(config::read(section, DEFAULTS, namespace)))
    }
}

impl Configured for Arc<Config> {
    fn webhooks(&self) -> Vec<WebhookEntry> {
        rules::entries(self)
    }

    fn permissions(&self) -> Permissions {
        let own = vec![Permission::on("", "namespaces", &["get", "list", "watch"])];
        Permissions { own, ..Permissions::default() }
    }

    fn requirements(&self) -> Requirements {
        Requirements { reads_cluster: true, watches_namespaces: true, ..Requirements::default() }
    }

    fn exempts_all(&self) -> Option<&'static str> {
        self.common_config.exempt.exempts_all()
    }

    fn remarks(&self, _now: SystemTime) -> Vec<Remark> {
        self.common_config.webhook_note().into_iter().collect()
    }

    fn build(&self, clients: &Clients) -> Vec<Arc<dyn Guard>> {
        vec![Arc::new(LxcfsGuard {
            config: Arc::clone(self),
            reader: Arc::clone(&clients.reader),
            fields: Fields::new(&pod::PodField::POINTERS),
        })]
    }
}

/// The LXCFS guard.
struct LxcfsGuard {
    config: Arc<Config>,
    reader: Arc<dyn Reader>,
    fields: Fields,
}

impl Guard for LxcfsGuard {
    fn name(&self) -> &'static str {
        NAME
    }

    fn fields(&self) -> &Fields {
        &self.fields
    }

    fn settle_policy(&self) -> &SettlePolicy {
        &self.config.common_config.settle_policy
    }

    fn review<'a>(&'a self, request: &'a Request<'a>, deadline: Instant) -> BoxFuture<'a, Ruling> {
        Box::pin(async move {
            if let Err(cause) = charge(request) {
                return unknown(cause.code, &cause.text);
            }
            let pending = match decide::decide(&self.config, request) {
                FirstStep::Decided(ruling) => return ruling,
                FirstStep::NeedsNamespace(pending) => pending,
            };
            let name = request.namespace.as_ref();
            let address = Address { resource: &Resource::NAMESPACES, namespace: "", name };
            let mut result = self.reader.get(address, deadline).await;
            // Stale labels are rare, so most reviews cost no request.
            if matches!(&result, Ok(Some(namespace)) if pending.is_newer_than(&namespace.labels)) {
                result = self.reader.get_uncached(address, deadline).await;
            }
            match result {
                Ok(Some(namespace)) => {
                    decide::decide_with_namespace(&self.config, &pending, &namespace.labels)
                }
                // The API server accepts no pod in a missing namespace, so Durward reads another cluster.
                Ok(None) => {
                    unknown(cause::REFUSED, &format!("namespace {:?} does not exist", pod::shortened(name)))
                }
                Err(cause) => unknown(cause.code, &cause.text),
            }
        })
    }
}

/// Reserves memory for the parts of the pod, before and after the request. Names and paths are copied only if JSON escapes them.
fn charge(request: &Request<'_>) -> Result<(), Cause> {
    let objects = [&request.object, &request.old_object].into_iter().flatten();
    let bytes: usize = objects.map(|object| object.raw().get().len()).sum();
    request.memory.charge(PARTS * bytes).map_err(no_memory)
}

fn unknown(code: &'static str, reason: &str) -> Ruling {
    Ruling::unknown(Cause::new(code, format!("no LXCFS files added: {reason}")))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use admission::Verdict;
    use cluster::testing::FakeWorld;
    use serde_json::json;

    use super::fixture::{config, with_request};
    use super::*;

    #[test]
    fn reads_uncached_labels_only_if_the_cached_ones_are_stale() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let reads = ["(local): cached namespaces shop", "(local): namespaces shop"];
        for (annotation, label, expected) in [
            ("enabled", None, 1),
            ("enabled", Some("enabled"), 1),
            ("disabled", None, 0),
            ("", Some("enabled"), 1),
            ("", None, 2),
            ("", Some("disabled"), 2),
        ] {
            let labels = label.map_or(json!({}), |label| json!({opt_in::SWITCH: label}));
            let world = FakeWorld::default().with(|content| {
                content.insert("namespaces.v1", json!({"metadata": {"name": "shop", "labels": labels}}));
            });
            let guard = Arc::new(config("{}")).build(&world.clients()).remove(0);
            let annotations =
                if annotation.is_empty() { json!({}) } else { json!({opt_in::SWITCH: annotation}) };
            let pod = json!({"metadata": {"annotations": annotations}, "spec": {"containers": []}});
            let deadline = Instant::now() + Duration::from_secs(5);
            let review = |request: &Request<'_>| runtime.block_on(guard.review(request, deadline));
            assert!(!matches!(with_request(&pod, |_| {}, review).verdict, Verdict::Unknown(_)));
            assert_eq!(world.requests(), reads[..expected], "{annotation:?} {label:?}");
        }
    }
}
