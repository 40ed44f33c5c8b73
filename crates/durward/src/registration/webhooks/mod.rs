//! Keeps Durward's webhook configurations up to date, in every API server that calls a guard.
//!
//! A pass reads the objects, and writes them only if something is missing. Objects are read, not watched: two GETs every few
//! seconds need no cache, and work with permissions for one name. Durward writes only objects that exist and have its label.
//! It creates none, so an administrator can always delete them.
//!
//! | file | contents |
//! |---|---|
//! | `merge.rs` | pure: existing and needed entries in, changes out |
//! | `served.rs` | the guards that all replicas serve |
//! | `pass.rs` | read, merge, write one object |
//! | `inspect.rs` | the state of an object, and problems with their next steps |
//! | `enforcement.rs` | the policies that the API server does not enforce |
//! | `lease.rs` | the replica that can remove entries |
//! | `trust.rs` | the certificates of the caBundle |
//! | `status.rs` | check, metrics, log |

mod enforcement;
mod inspect;
mod lease;
mod merge;
mod pass;
mod served;
mod status;
mod trust;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use admission::{BoxFuture, lock};
use ca::{Registered, RegisteredBundle, Registrations};
use cluster::live::{Access, client};
use config::Problem;
use guards::WebhookType;
use server::{Checks, Metrics, supervise};
use tokio::sync::Notify;

use super::api::ApiClient;
use super::names::{WEBHOOK_TYPES, kind};
use super::targets::{Needs, Target};
use crate::clients::control_planes::ControlPlanes;
use crate::file::{File, Manage, NAME};
use cluster::ApiError;

pub(crate) use merge::is_ours;
pub(crate) use pass::{Object, Owner, problem_of};
#[cfg(test)]
pub(crate) use status::register_metrics;
pub(crate) use trust::CaSource;

use lease::Candidate;
use merge::{Unneeded, ca_bundle};
use pass::OwnerError;
use served::Served;
use status::{Report, Status};

/// Interval of passes. A configuration that another client changed is restored within this time.
pub(crate) const INTERVAL: Duration = Duration::from_secs(5);

/// Time after which the holder of the Lease removes an entry, rule or certificate that its own configuration does not need. An
/// upgrade of all replicas takes less.
const RETENTION: Duration = Duration::from_secs(600);

/// Manages webhook configurations. Clones share the state.
#[derive(Clone)]
pub(crate) struct WebhookManager(Arc<Shared>);

struct Shared {
    needs: Mutex<Arc<Needs>>,
    control_planes: Arc<ControlPlanes>,
    /// The cluster where Durward runs, with its Namespace and the Lease.
    home: Access,
    ca: CaSource,
    interval: Duration,
    wake: Notify,
    clients: Mutex<Vec<(Access, ApiClient)>>,
    status: Status,
}

/// The state of the task. It is lost when the task restarts.
struct Memory {
    candidate: Candidate,
    /// By API server and kind.
    unneeded: HashMap<String, Unneeded>,
    /// By API server.
    served: HashMap<String, Served>,
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
            interval: INTERVAL,
            wake: Notify::new(),
            clients: Mutex::default(),
            status: Status::new(checks, metrics),
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
        let mut memory = Memory {
            candidate: Candidate::new(lease::identity()),
            unneeded: HashMap::new(),
            served: HashMap::new(),
        };
        loop {
            if self.is_active() {
                self.pass(&mut memory, Instant::now()).await;
            } else {
                self.status.unmanaged();
            }
            // Either way another pass is due.
            let _ = tokio::time::timeout(self.interval, self.wake.notified()).await;
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

    /// Makes a pass over all objects.
    async fn pass(&self, memory: &mut Memory, now: Instant) {
        let needs = self.needs();
        let mut report = Report::default();
        let is_all = needs.manage == Manage::All;
        let is_holder = is_all && self.hold(memory, &needs, &mut report, now).await;
        for target in &needs.targets {
            let client = match self.client(&target.access).await {
                Ok(client) => client,
                Err(problem) => {
                    report.add_unreachable(target.label(), problem);
                    continue;
                }
            };
            let owner =
                if is_all { self.owner(&client, target, &needs, &mut report).await } else { Owner::Unknown };
            let served = memory.served.entry(format!("{:?}", target.access)).or_default();
            if !served.is_known {
                self.find_served(served, target, &client).await;
            }
            let delay = needs.new_guard_delay;
            let addable = target.entries.each_ref().map(|entries| served.addable(entries, delay, now));
            for ((webhook_type, entries), addable) in
                WEBHOOK_TYPES.into_iter().zip(&target.entries).zip(&addable)
            {
                let object = Object {
                    needs: &needs,
                    target,
                    webhook_type,
                    entries,
                    addable,
                    client: &client,
                    ca: &self.ca,
                    owner: &owner,
                    is_holder,
                };
                let unneeded = memory.unneeded(&target.access, webhook_type);
                let passed = object.pass(unneeded, now).await;
                self.status.add(&mut report, target.label(), webhook_type, passed);
            }
        }
        self.status.publish(&report);
    }

    /// Reads which guards have entries.
    async fn find_served(&self, served: &mut Served, target: &Target, client: &ApiClient) {
        let mut found = Vec::new();
        // Durward has no permission to read a kind that no guard needs.
        let needed =
            WEBHOOK_TYPES.into_iter().zip(&target.entries).filter(|(_, entries)| !entries.is_empty());
        for (webhook_type, _) in needed {
            // The pass reports a failure.
            let Ok(configuration) = target.configuration(client, webhook_type).await else { return };
            found.extend(configuration.into_iter().flat_map(|found| found.webhooks));
        }
        served.start(&found, &target.entries.concat());
    }

    /// Returns whether this replica holds the Lease. Without the Lease entries are added, and none is removed.
    async fn hold(&self, memory: &mut Memory, needs: &Needs, report: &mut Report, now: Instant) -> bool {
        let held = match self.client(&self.home).await {
            Ok(client) => memory.candidate.hold(&client, &needs.namespace, now).await.map_err(|fault| {
                self.status.count_failure(fault.kind);
                match needs.targets.first() {
                    _ if fault.kind == ApiError::NotFound => {
                        let next =
                            format!("create the namespace: kubectl create namespace {}", needs.namespace);
                        Problem::new(fault.text).next(next)
                    }
                    Some(target) => problem_of(&fault, &target.home(), &needs.manifests),
                    None => Problem::new(fault.text),
                }
            }),
            Err(problem) => Err(problem),
        };
        let (is_holder, problem) = match held {
            Ok(is_holder) => (is_holder, None),
            Err(problem) => {
                let why = "Durward removes no webhook entries that are not needed any more";
                let next = problem.next.unwrap_or_default();
                let what = problem.why.map_or(problem.what.clone(), |why| format!("{}: {why}", problem.what));
                (false, Some(Problem::new(what).why(why).next(next)))
            }
        };
        report.add("lease", problem);
        is_holder
    }

    async fn owner(&self, client: &ApiClient, target: &Target, needs: &Needs, report: &mut Report) -> Owner {
        // A failure is reported already, because the Lease is there too.
        let Ok(home) = self.client(&self.home).await else { return Owner::Unknown };
        match Owner::find(&home, client, &needs.namespace).await {
            Ok(owner) => {
                report.add("namespace", None);
                owner
            }
            Err(OwnerError { fault, is_home }) => {
                self.status.count_failure(fault.kind);
                let place = if is_home { target.home() } else { target.clone() };
                report.add("namespace", Some(problem_of(&fault, &place, &needs.manifests)));
                Owner::Unknown
            }
        }
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
                bundles.extend(entries.filter(is_ours).map(|entry| RegisteredBundle {
                    place: format!("webhook {} of {} {NAME}", merge::name(&entry), kind(webhook_type)),
                    pem: ca_bundle(&entry),
                    apply_command: target.apply("webhooks", &needs.manifests),
                }));
            }
        }
        Ok(bundles)
    }
}

impl Memory {
    fn unneeded(&mut self, access: &Access, webhook_type: WebhookType) -> &mut Unneeded {
        let key = format!("{} {access:?}", kind(webhook_type));
        self.unneeded.entry(key).or_insert_with(|| Unneeded::new(RETENTION))
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
