//! Keeps Durward's webhook configurations and native policies up to date, in every API server that calls a guard.
//!
//! Every ready replica reads the objects at start, after a reload, when the CA changes, and every minute. It applies its entries by
//! server-side apply if they differ. It writes only configurations that exist and have Durward's label, and creates none, so an
//! administrator can always delete them. Replicas with different configurations overwrite each other until all have the same.
//!
//! | file | contents |
//! |---|---|
//! | `compare.rs` | pure: existing and needed entries |
//! | `object.rs` | reads and writes one webhook configuration |
//! | `inspect.rs` | the state of an object, and problems with their next steps |
//! | `enforcement.rs` | the policies of the guard `resources` that the API server does not enforce |
//! | `native.rs` | the native policies |
//! | `trust.rs` | the certificates of the caBundle |
//! | `status.rs` | check, metrics, log |

mod compare;
mod enforcement;
mod inspect;
mod native;
mod object;
mod status;
mod trust;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use admission::{BoxFuture, lock};
use ca::{Registered, RegisteredBundle, Registrations};
use cluster::live::{Access, client};
use config::Problem;
use guards::WebhookType;
use server::{Checks, Metrics, supervise};
use tokio::sync::Notify;

use super::api::ApiClient;
use super::names::{WEBHOOK_TYPES, kind};
use super::targets::{Needs, RegistrationTarget};
use crate::clients::control_planes::ControlPlanes;
use crate::file::{File, Manage, NAME};

pub(crate) use native::NativePolicies;
pub(crate) use object::{WebhookObject, code, problem_of};
#[cfg(test)]
pub(crate) use status::register_metrics;
pub(crate) use trust::CaSource;

use compare::{ca_bundle, is_ours};
use native::KnownPolicies;
use object::{Applied, Owner};
use status::{PassReport, PassStatus};

/// Interval of passes.
const INTERVAL: Duration = Duration::from_secs(60);

/// Time until the next pass after a problem, for example until a missing object is created.
const RETRY: Duration = Duration::from_secs(5);

/// Time until the next pass of a server that is not ready yet.
const STARTING: Duration = Duration::from_secs(2);

/// Manages webhook configurations. Clones share the state.
#[derive(Clone)]
pub(crate) struct WebhookManager(Arc<Shared>);

struct Shared {
    needs: Mutex<Arc<Needs>>,
    control_planes: Arc<ControlPlanes>,
    /// The cluster where Durward runs, with its Namespace.
    home: Access,
    ca: CaSource,
    wake: Notify,
    clients: Mutex<Vec<(Access, ApiClient)>>,
    status: PassStatus,
}

/// The state of the task. It is lost when the task restarts.
#[derive(Default)]
struct PassMemory {
    /// The webhook configurations that can have entries of this process, with the last apply of each. By kind and API server.
    objects: HashMap<String, Option<Applied>>,
    /// By API server.
    native: HashMap<String, KnownPolicies>,
}

impl WebhookManager {
    /// Creates a manager, or `None` if no API server is connected.
    pub(crate) fn new(
        file: &File,
        control_planes: &Arc<ControlPlanes>,
        home: Access,
        ca: CaSource,
        (checks, metrics): (Checks, &Metrics),
    ) -> Option<Self> {
        let needs = Needs::of(file, control_planes)?;
        let manager = Self(Arc::new(Shared {
            needs: Mutex::new(Arc::new(needs)),
            control_planes: Arc::clone(control_planes),
            home,
            ca,
            wake: Notify::new(),
            clients: Mutex::default(),
            status: PassStatus::new(checks, metrics),
        }));
        if manager.0.is_active() {
            manager.0.status.expect();
        }
        Some(manager)
    }

    /// Uses another file from now on.
    pub(crate) fn configure(&self, file: &File) {
        let Some(needs) = Needs::of(file, &self.0.control_planes) else { return };
        *lock(&self.0.needs) = Arc::new(needs);
        self.0.wake.notify_one();
    }

    /// Makes passes until it is dropped.
    pub(crate) async fn run(self, metrics: Metrics) {
        supervise("webhooks", metrics, move || {
            let shared = Arc::clone(&self.0);
            async move { shared.run().await }
        })
        .await;
    }
}

impl Shared {
    fn needs(&self) -> Arc<Needs> {
        Arc::clone(&lock(&self.needs))
    }

    /// Returns whether passes are needed: to write, or to know whether the API servers trust a self-managed certificate and enforce the
    /// policies.
    fn is_active(&self) -> bool {
        let needs = self.needs();
        let has_policies = needs.targets.iter().any(|target| !target.policies.is_empty());
        needs.manage != Manage::None || matches!(self.ca, CaSource::SelfManaged(_)) || has_policies
    }

    async fn run(&self) {
        let mut memory = PassMemory::default();
        loop {
            let pause = if self.is_active() {
                self.pass(&mut memory).await
            } else {
                self.status.unmanaged();
                INTERVAL
            };
            // Either way another pass is due.
            let _ = tokio::time::timeout(pause, self.wake.notified()).await;
        }
    }

    /// Returns a client of an API server, which is created once.
    async fn client(&self, access: &Access) -> Result<ApiClient, Problem> {
        let known = |shared: &Self| {
            let clients = lock(&shared.clients);
            clients.iter().find(|(known, _)| known == access).map(|(_, client)| client.clone())
        };
        if let Some(client) = known(self) {
            return Ok(client);
        }
        let (client, _) = client(access).await?;
        let client = ApiClient::new(client);
        let mut clients = lock(&self.clients);
        clients.push((access.clone(), client.clone()));
        Ok(client)
    }

    /// Makes a pass over all objects, and returns the time until the next one.
    async fn pass(&self, memory: &mut PassMemory) -> Duration {
        let needs = self.needs();
        let mut report = PassReport::default();
        let is_writer = self.status.is_ready();
        for target in &needs.targets {
            match self.client(&target.access).await {
                Ok(client) => {
                    self.pass_target(memory, (&needs, target), &client, is_writer, &mut report).await;
                }
                Err(problem) => report.add(&[("unreachable", problem)], true),
            }
        }
        let is_waiting = report.is_waiting;
        self.status.publish(report);
        match (is_writer, is_waiting) {
            (false, _) => STARTING,
            (true, true) => RETRY,
            (true, false) => INTERVAL,
        }
    }

    async fn pass_target(
        &self,
        memory: &mut PassMemory,
        (needs, target): (&Needs, &RegistrationTarget),
        client: &ApiClient,
        is_writer: bool,
        report: &mut PassReport,
    ) {
        let is_all = needs.manage == Manage::All;
        let owner = if is_all && is_writer {
            self.owner(client, target, needs, report).await
        } else {
            Owner::Unknown
        };
        let is_self_managed = matches!(self.ca, CaSource::SelfManaged(_));
        for (webhook_type, entries) in WEBHOOK_TYPES.into_iter().zip(&target.entries) {
            let key = format!("{} {:?}", kind(webhook_type), target.access);
            // Durward has no permission to read a kind that no guard needs. It reads one that was needed once more, to remove its entries.
            let mut last = match memory.objects.remove(&key) {
                Some(last) => last,
                None if entries.is_empty() => continue,
                None => None,
            };
            let ca = &self.ca;
            let object = WebhookObject { needs, target, webhook_type, entries, client, ca };
            let state = object.pass(is_writer.then_some(&owner), &mut last).await;
            self.status.add(report, (target.label(), webhook_type), &state, is_self_managed);
            let is_removed = entries.is_empty() && is_writer && state.problems.is_empty();
            if !is_removed {
                memory.objects.insert(key, last);
            }
            if let Some(uid) = state.uid.filter(|_| is_all && webhook_type == WebhookType::Validating) {
                let known = memory.native.entry(format!("{:?}", target.access)).or_default();
                let native = NativePolicies { needs, target, client };
                let state = native.pass(&uid, is_writer, known).await;
                self.status.add_native(report, target.label(), &state);
            }
        }
    }

    async fn owner(
        &self,
        client: &ApiClient,
        target: &RegistrationTarget,
        needs: &Needs,
        report: &mut PassReport,
    ) -> Owner {
        let found = match self.client(&self.home).await {
            Ok(home) => Owner::find(&home, client, &needs.namespace).await,
            Err(problem) => {
                report.add(&[("unreachable", problem)], false);
                return Owner::Unknown;
            }
        };
        found.unwrap_or_else(|(fault, is_home)| {
            self.status.count_failure(fault.kind);
            let place = if is_home { target.home() } else { target.clone() };
            report.add(&[(code(&fault), problem_of(&fault, &place, &needs.manifests))], false);
            Owner::Unknown
        })
    }

    async fn registered(&self) -> Result<Vec<RegisteredBundle>, Problem> {
        let needs = self.needs();
        let mut bundles = Vec::new();
        for target in &needs.targets {
            let client = self.client(&target.access).await?;
            // Durward has no permission to read a kind that no guard needs.
            let needed = WEBHOOK_TYPES.into_iter().zip(&target.entries);
            for (webhook_type, _) in needed.filter(|(_, entries)| !entries.is_empty()) {
                let found = client.configuration(webhook_type).await;
                let found = found.map_err(|fault| problem_of(&fault, target, &needs.manifests))?;
                let entries = found.into_iter().flat_map(|found| found.webhooks);
                let needed = target.entries.concat();
                let ours = entries.filter(|entry| is_ours(entry, &needed));
                bundles.extend(ours.map(|entry| RegisteredBundle {
                    place: format!("webhook {} of {} {NAME}", compare::name(&entry), kind(webhook_type)),
                    pem: ca_bundle(&entry),
                    apply_command: target.apply("webhooks", &needs.manifests),
                }));
            }
        }
        Ok(bundles)
    }
}

impl Registrations for WebhookManager {
    fn publish(&self) -> BoxFuture<'_, ()> {
        self.0.wake.notify_one();
        Box::pin(std::future::ready(()))
    }

    fn read(&self) -> BoxFuture<'_, Registered> {
        Box::pin(async {
            match self.0.registered().await {
                Ok(bundles) => Registered::Bundles(bundles),
                Err(problem) => Registered::Unknown(problem.to_string()),
            }
        })
    }
}

#[cfg(test)]
mod tests;
