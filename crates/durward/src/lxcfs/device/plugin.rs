//! What the kubelet asks: which devices there are and how they do, and what a container gets that has one.
//!
//! There is nothing behind a device but the right to the files, so there are more of them than containers can be, each as good
//! as the other. All are healthy while LXCFS serves every file that is promised, and none is otherwise: then the scheduler finds
//! no room on this node, and pods wait or go elsewhere. That holds what `nodeReadiness: require` promises, without a label.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::stream;
use guards::lxcfs::OnNode;
use hyper::Request;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use tokio::sync::{Mutex, watch};

use super::super::probe::Prober;
use super::super::settings::Settings;
use super::api::{
    AllocateRequest, AllocateResponse, ContainerAllocateResponse, ContainerPreferredAllocationRequest,
    ContainerPreferredAllocationResponse, Device, Empty, HEALTHY, ListAndWatchResponse, Mount, Options,
    PreStartContainerRequest, PreferredAllocationRequest, PreferredAllocationResponse, UNHEALTHY,
};
use super::grpc::{Answer, Code, Fault, failed, many, message, once};
use super::over;

/// What is asked of the kubelet. Not to be asked before each start of a container: a container whose pod has its devices could
/// then not be started again while this process is being replaced, for no reason of its own.
pub(super) const OPTIONS: Options =
    Options { pre_start_required: false, get_preferred_allocation_available: false };

/// How LXCFS does: nothing while it serves all that is promised, otherwise what is wrong.
pub(super) type Health = Option<String>;

/// Eyes on LXCFS that look one at a time.
#[derive(Debug)]
pub(super) struct Watcher {
    proc: PathBuf,
    settings: Settings,
    on_node: OnNode,
    prober: Prober,
}

impl Watcher {
    /// `proc` tells what is mounted.
    pub(super) fn new(proc: &Path, settings: Settings) -> Self {
        let on_node = settings.on_node.clone();
        Self { proc: proc.to_owned(), prober: Prober::new(proc, &on_node.root), on_node, settings }
    }

    /// How LXCFS does now.
    pub(super) async fn look(&mut self) -> Health {
        self.settings.refresh();
        if self.on_node != self.settings.on_node {
            self.on_node = self.settings.on_node.clone();
            self.prober = Prober::new(&self.proc, &self.on_node.root);
        }
        self.prober.look().await.why_ill(&self.on_node)
    }

    /// What a container gets.
    fn mounts(&self) -> Vec<Mount> {
        let mount = |path: &str| Mount {
            container_path: path.to_owned(),
            host_path: format!("{}{path}", self.on_node.root),
            read_only: true,
        };
        self.on_node.files.iter().map(|file| mount(file.path())).collect()
    }
}

/// The plugin, whatever socket it is asked through.
pub(super) struct Plugin {
    pub(super) watcher: Mutex<Watcher>,
    health: watch::Sender<Health>,
    devices: u32,
    watching: Arc<AtomicUsize>,
    ends: watch::Receiver<bool>,
}

impl Plugin {
    /// With so many devices; every stream to the kubelet ends when `ends` says so.
    pub(super) async fn new(mut watcher: Watcher, devices: u32, ends: watch::Receiver<bool>) -> Self {
        let health = watcher.look().await;
        tell(&health);
        Self {
            watcher: Mutex::new(watcher),
            health: watch::Sender::new(health),
            devices,
            watching: Arc::default(),
            ends,
        }
    }

    /// Looks at LXCFS, and tells every kubelet that listens if it does otherwise than before.
    pub(super) async fn look(&self) -> Health {
        let health = self.watcher.lock().await.look().await;
        self.health.send_if_modified(|known| {
            let is_new = known.is_none() != health.is_none();
            if is_new {
                tell(&health);
            }
            known.clone_from(&health);
            is_new
        });
        health
    }

    /// How many streams of devices are open.
    pub(super) fn watching(&self) -> usize {
        self.watching.load(Ordering::Relaxed)
    }

    /// Answers one call.
    pub(super) async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Answer, Infallible> {
        let (head, body) = request.into_parts();
        let is_grpc = head
            .headers
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
        if !is_grpc {
            return Ok(failed(&Fault::new(Code::InvalidArgument, "only gRPC is spoken here")));
        }
        let deed = head.uri.path().strip_prefix("/v1beta1.DevicePlugin/").unwrap_or_default().to_owned();
        Ok(match deed.as_str() {
            "GetDevicePluginOptions" => once(message::<Empty>(body).await.map(|_| OPTIONS)),
            "ListAndWatch" => match message::<Empty>(body).await {
                Ok(_) => self.list_and_watch(),
                Err(fault) => failed(&fault),
            },
            "Allocate" => once(match message(body).await {
                Ok(request) => self.allocate(request).await,
                Err(fault) => Err(fault),
            }),
            "PreStartContainer" => once(match message::<PreStartContainerRequest>(body).await {
                Ok(_) => self.well().await.map(|()| Empty {}),
                Err(fault) => Err(fault),
            }),
            "GetPreferredAllocation" => once(message(body).await.map(preferred)),
            _ => failed(&Fault::new(Code::Unimplemented, format!("there is no {}", head.uri.path()))),
        })
    }

    /// Now, and at every change.
    fn list_and_watch(&self) -> Answer {
        let open = Open::begin(&self.watching);
        let (health, ends, devices) = (self.health.subscribe(), self.ends.clone(), self.devices);
        let messages = stream::unfold(
            (open, health, ends, true),
            move |(open, mut health, mut ends, is_first)| async move {
                if !is_first {
                    tokio::select! {
                        biased;
                        () = over(&mut ends) => return None,
                        changed = health.changed() => changed.ok()?,
                    }
                }
                let is_healthy = health.borrow_and_update().is_none();
                Some((list(devices, is_healthy), (open, health, ends, false)))
            },
        );
        many(messages)
    }

    /// The files, for each container that is asked for. LXCFS is looked at first: a container that is mounted what is not there
    /// does not start, and a runtime makes directories in the place of missing files.
    async fn allocate(&self, request: AllocateRequest) -> Result<AllocateResponse, Fault> {
        self.well().await?;
        let response = ContainerAllocateResponse { mounts: self.watcher.lock().await.mounts() };
        tracing::debug!(containers = request.container_requests.len(), "containers get the files");
        Ok(AllocateResponse { container_responses: vec![response; request.container_requests.len()] })
    }

    async fn well(&self) -> Result<(), Fault> {
        match self.look().await {
            None => Ok(()),
            Some(why) => Err(Fault::new(
                Code::Unavailable,
                format!("LXCFS does not serve this node: {why}; see: durward doctor lxcfs"),
            )),
        }
    }
}

fn tell(health: &Health) {
    match health {
        None => tracing::info!("LXCFS serves every file that pods are promised: devices are healthy"),
        Some(why) => tracing::warn!(why, "LXCFS does not serve what pods are promised: no device is healthy"),
    }
}

fn list(devices: u32, is_healthy: bool) -> ListAndWatchResponse {
    let health = if is_healthy { HEALTHY } else { UNHEALTHY };
    let device = |number| Device { id: format!("lxcfs-{number}"), health: health.to_owned() };
    ListAndWatchResponse { devices: (0..devices).map(device).collect() }
}

/// Any will do: first those that must be, then as many others as are wanted.
fn preferred(request: PreferredAllocationRequest) -> PreferredAllocationResponse {
    let of = |one: ContainerPreferredAllocationRequest| {
        let size = usize::try_from(one.size).unwrap_or_default();
        let mut ids = one.must_include;
        for id in one.available {
            if ids.len() >= size {
                break;
            }
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        ContainerPreferredAllocationResponse { ids }
    };
    PreferredAllocationResponse {
        container_responses: request.container_requests.into_iter().map(of).collect(),
    }
}

/// Counts a stream for as long as it is open.
struct Open(Arc<AtomicUsize>);

impl Open {
    fn begin(counter: &Arc<AtomicUsize>) -> Self {
        counter.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(counter))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_device_has_a_name_of_its_own_and_all_do_alike() {
        let ListAndWatchResponse { devices } = list(1000, false);
        let names: std::collections::BTreeSet<_> = devices.iter().map(|device| &device.id).collect();
        assert_eq!(names.len(), 1000);
        assert!(devices.iter().all(|device| device.health == "Unhealthy" && device.id.len() <= 63));
        assert!(list(1, true).devices.iter().all(|device| device.health == "Healthy"));
    }

    #[test]
    fn those_that_must_be_are_among_the_preferred() {
        let ids = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for (available, must, size, expected) in [
            ("a b c", "c", 2, "c a"),
            ("a b", "", 1, "a"),
            ("a", "", -1, ""),
            ("a", "", 5, "a"),
            ("a b", "a", 1, "a"),
        ] {
            let one = ContainerPreferredAllocationRequest {
                available: ids(available),
                must_include: ids(must),
                size,
            };
            let response = preferred(PreferredAllocationRequest { container_requests: vec![one] });
            assert_eq!(response.container_responses[0].ids, ids(expected));
        }
    }
}
