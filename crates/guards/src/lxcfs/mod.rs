//! Shows containers their own limits: mounts the files of LXCFS over those of `/proc` that tell of the whole node.
//!
//! Protects programs that size themselves by `/proc/meminfo`, `/proc/cpuinfo` and their like (`free`, `top`, allocators,
//! runtimes older than cgroups) from taking the node for their own. Does not run LXCFS and does not look at nodes, and cannot help
//! programs that ask the kernel by a system call (`nproc`, `sysinfo(2)`, all of musl).
//!
//! It only ever adds: volumes, mounts and one annotation; or in the place of volumes a resource, for which the node's device
//! plugin mounts the files ([`device`]). Where it is asked to, it has pods go to nodes that have LXCFS ([`readiness`]). What it
//! does not know it cannot lose, because the pod is never written again ([`pod`]). A patch applies by construction
//! ([`slot`]).
//!
//! Its stance when blind is *allow*: a pod without the files runs, and has run so before. So is its failurePolicy, Ignore.
//!
//! It looks outward for one thing, the labels of the pod's namespace: whether it opts its pods in, and whether Pod Security
//! would refuse them with hostPath volumes. Where neither matters it does not look at all.

mod addition;
mod config;
mod containers;
mod decide;
mod device;
mod files;
#[cfg(test)]
mod fixture;
mod inject;
mod limits;
mod messages;
mod mount_path;
mod node;
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
use std::time::Instant;

use admission::{BoxFuture, Cause, Fields, Guard, OnUnknown, Request, Ruling, SettlePolicy};

use crate::common::Defaults;
use crate::common::FailurePolicy;
use crate::kind::{Configured, GuardKind, Permission, Permissions, Requirements};
use crate::webhook::WebhookEntry;
use ::config::Section;
use cluster::{Address, Clients, Reader, Resource, cause};

use config::Config;
use decide::Step;

pub use files::LxcfsFile;
pub use node::{DEVICE, NODE_ANNOTATION, NodeSettings, READY_LABEL};

/// The path, the metric label and the key in the configuration.
const NAME: &str = "lxcfs";

/// Five seconds are plenty for a look into the cache, and a slow Durward must not hold up pods that can do without it.
const DEFAULTS: Defaults =
    Defaults { when_unknown: OnUnknown::Allow, failure_policy: FailurePolicy::Ignore, timeout_seconds: 5 };

/// The kind.
#[derive(Debug)]
pub(crate) struct Lxcfs;

// === impl Lxcfs ===

impl GuardKind for Lxcfs {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "Shows containers their own limits in /proc, by mounting the files of LXCFS into pods that ask for it."
    }

    fn page(&self) -> &'static str {
        include_str!("README.md")
    }

    fn read(&self, section: &mut Section<'_>) -> Box<dyn Configured> {
        Box::new(Injector { config: Arc::new(config::read(section, DEFAULTS)) })
    }
}

/// The guard between configuration and service.
struct Injector {
    config: Arc<Config>,
}

// === impl Injector ===

impl Configured for Injector {
    fn webhooks(&self) -> Vec<WebhookEntry> {
        rules::entries(&self.config)
    }

    fn permissions(&self) -> Permissions {
        if !self.config.looks_at_namespaces() {
            return Permissions::default();
        }
        let own = vec![Permission::on("", "namespaces", &["get", "list", "watch"])];
        Permissions { own, ..Permissions::default() }
    }

    fn requirements(&self) -> Requirements {
        if !self.config.looks_at_namespaces() {
            return Requirements::default();
        }
        Requirements { reads_cluster: true, watches: vec![Resource::NAMESPACES], ..Requirements::default() }
    }

    fn build(&self, clients: &Clients) -> Arc<dyn Guard> {
        Arc::new(Door {
            config: Arc::clone(&self.config),
            reader: Arc::clone(&clients.reader),
            fields: Fields::new(&pod::POINTERS),
        })
    }
}

/// The guard at the door.
struct Door {
    config: Arc<Config>,
    reader: Arc<dyn Reader>,
    fields: Fields,
}

// === impl Door ===

impl Guard for Door {
    fn name(&self) -> &'static str {
        NAME
    }

    fn fields(&self) -> &Fields {
        &self.fields
    }

    fn settle_policy(&self) -> &SettlePolicy {
        &self.config.common_config.settle_policy
    }

    fn logs_every_ruling(&self) -> bool {
        false
    }

    fn review<'a>(&'a self, request: &'a Request<'a>, deadline: Instant) -> BoxFuture<'a, Ruling> {
        Box::pin(async move {
            let opened = match decide::open(&self.config, request) {
                Step::Rule(ruling) => return ruling,
                Step::Ask(opened) => opened,
            };
            let name = request.namespace.as_ref();
            let address = Address { resource: &Resource::NAMESPACES, namespace: "", name };
            let mut answer = self.reader.get(address, deadline).await;
            // Such labels are certain to be out of date, or have changed this moment. Rarely: no cost on the common way.
            if matches!(&answer, Ok(Some(namespace)) if opened.contradicts(&namespace.labels)) {
                answer = self.reader.get_uncached(address, deadline).await;
            }
            match answer {
                Ok(Some(namespace)) => decide::close(&self.config, &opened, &namespace.labels),
                // The API server lets no pod into a namespace that is not there, so somebody looked elsewhere.
                Ok(None) => unknown(
                    cause::REFUSED,
                    &format!("namespace {:?} does not exist", opt_in::shortened(name)),
                ),
                Err(cause) => unknown(cause.code, &cause.text),
            }
        })
    }
}

fn unknown(code: &'static str, why: &str) -> Ruling {
    Ruling::unknown(Cause::new(code, format!("lxcfs adds no files to the pod: {why}")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::future::ready;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use admission::Verdict;
    use serde_json::json;

    use super::fixture::{config, with_request};
    use super::*;
    use cluster::{Metadata, MetadataResult};

    /// A world in which every namespace has these labels, and which counts how often it is looked into and asked.
    struct Counting {
        labels: BTreeMap<String, String>,
        looks: AtomicUsize,
        questions: AtomicUsize,
    }

    impl Counting {
        fn answer(&self, counter: &AtomicUsize) -> BoxFuture<'_, MetadataResult> {
            counter.fetch_add(1, Ordering::Relaxed);
            let labels = self.labels.clone();
            Box::pin(ready(Ok(Some(Arc::new(Metadata { labels, ..Metadata::default() })))))
        }
    }

    impl Reader for Counting {
        fn get<'a>(&'a self, _: Address<'a>, _: Instant) -> BoxFuture<'a, MetadataResult> {
            self.answer(&self.looks)
        }

        fn get_uncached<'a>(&'a self, _: Address<'a>, _: Instant) -> BoxFuture<'a, MetadataResult> {
            self.answer(&self.questions)
        }
    }

    #[test]
    fn namespaces_are_read_only_where_their_labels_matter() {
        for (yaml, expected) in [
            ("{}", true),
            ("optIn: {namespaceLabel: false}", true),
            ("backend: auto\noptIn: {namespaceLabel: false}", true),
            ("backend: device", true),
            ("backend: device\noptIn: {namespaceLabel: false}", false),
            (
                "backend: device\noptIn: {namespaceLabel: false}\nexempt: {namespaceSelector: {matchLabels: {a: b}}}",
                true,
            ),
        ] {
            let injector = Injector { config: Arc::new(config(yaml)) };
            let reads = (!injector.permissions().own.is_empty(), !injector.requirements().watches.is_empty());
            assert_eq!(reads, (expected, expected), "{yaml}");
        }
    }

    #[test]
    fn the_api_server_is_asked_past_the_memory_only_where_memory_cannot_be_right() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for (annotation, label, expected) in [
            ("enabled", None, (1, 0)),
            ("enabled", Some("enabled"), (1, 0)),
            ("disabled", None, (0, 0)),
            ("", Some("enabled"), (1, 0)),
            ("", None, (1, 1)),
            ("", Some("disabled"), (1, 1)),
        ] {
            let labels =
                label.map(|label| (opt_in::SWITCH.to_owned(), label.to_owned())).into_iter().collect();
            let world =
                Arc::new(Counting { labels, looks: AtomicUsize::new(0), questions: AtomicUsize::new(0) });
            let injector = Injector { config: Arc::new(config("{}")) };
            let clients = Clients::reader_only(Arc::<Counting>::clone(&world));
            let guard = injector.build(&clients);
            let annotations =
                if annotation.is_empty() { json!({}) } else { json!({opt_in::SWITCH: annotation}) };
            let pod = json!({"metadata": {"annotations": annotations}, "spec": {"containers": []}});
            let deadline = Instant::now() + Duration::from_secs(5);
            let review = |request: &Request<'_>| runtime.block_on(guard.review(request, deadline));
            assert!(!matches!(with_request(&pod, |_| {}, review).verdict, Verdict::Unknown(_)));
            let asked = (world.looks.load(Ordering::Relaxed), world.questions.load(Ordering::Relaxed));
            assert_eq!(asked, expected, "{annotation:?} {label:?}");
        }
    }
}
