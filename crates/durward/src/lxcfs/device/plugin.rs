//! What the kubelet asks: which devices there are and how they do, and what a container gets that has one.
//!
//! There is nothing behind a device but the right to the files, so there are more of them than containers can be, each as good
//! as the other. All are healthy while LXCFS serves every file that is promised, and none is otherwise: then the scheduler finds
//! no room on this node, and pods wait or go elsewhere. That holds what `nodeReadiness: require` promises, without a label.
//! One look that gets no answer in time is not yet a fault, as [`Watcher`] has it.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::stream;
use guards::lxcfs::OnNode;
use hyper::Request;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use tokio::sync::{Mutex, MutexGuard, watch};

use super::super::watcher::{Finding, Watcher};
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
type Health = Option<String>;

/// The plugin, whatever socket it is asked through.
pub(super) struct Plugin {
    watcher: Mutex<Watcher>,
    health: watch::Sender<Health>,
    devices: u32,
    watching: Arc<AtomicUsize>,
    ends: watch::Receiver<bool>,
}

impl Plugin {
    /// With so many devices; every stream to the kubelet ends when `ends` says so.
    pub(super) async fn new(mut watcher: Watcher, devices: u32, ends: watch::Receiver<bool>) -> Self {
        let health = health(&watcher.look().await.1);
        tell(&health);
        Self {
            watcher: Mutex::new(watcher),
            health: watch::Sender::new(health),
            devices,
            watching: Arc::default(),
            ends,
        }
    }

    /// Looks at LXCFS once, and tells every kubelet that listens if it does otherwise than before.
    pub(super) async fn look(&self) {
        let mut watcher = self.watcher.lock().await;
        watcher.refresh();
        let (_, finding) = watcher.look().await;
        self.note(&finding);
    }

    /// To be called before the watcher is let go, so that what was seen last is told last.
    fn note(&self, finding: &Finding) {
        let health = health(finding);
        self.health.send_if_modified(|known| {
            let is_new = known.is_none() != health.is_none();
            if is_new {
                tell(&health);
            }
            *known = health;
            is_new
        });
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
                Ok(_) => self.well().await.map(|_| Empty {}),
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
        let response = ContainerAllocateResponse { mounts: mounts(self.well().await?.on_node()) };
        tracing::debug!(containers = request.container_requests.len(), "containers get the files");
        Ok(AllocateResponse { container_responses: vec![response; request.container_requests.len()] })
    }

    /// LXCFS serves all that is promised by what the watcher knows now. The pod of a container that is refused fails for good, so
    /// where nothing but time is wrong it is looked once more; only what that says is noted.
    ///
    /// That is as long as three looks take at worst, one under way included: 6 s. The kubelet gives `PreStartContainer` 30 s, and
    /// `Allocate` no limit of time at all (1.35: `ManagerImpl.Allocate` passes `context.TODO()` on), but it waits in its sync
    /// loop, which admits no other pod meanwhile and is not healthy any more after five minutes.
    async fn well(&self) -> Result<MutexGuard<'_, Watcher>, Fault> {
        let mut watcher = self.watcher.lock().await;
        watcher.refresh();
        let (_, mut finding) = watcher.look().await;
        if finding.is_silence() {
            (_, finding) = watcher.look().await;
        }
        self.note(&finding);
        match finding {
            Finding::Well => Ok(watcher),
            Finding::FirstSilence(why) | Finding::Silence(why) | Finding::Ill(why) => Err(Fault::new(
                Code::Unavailable,
                format!("LXCFS does not serve this node: {why}; see: durward doctor lxcfs"),
            )),
        }
    }
}

fn health(finding: &Finding) -> Health {
    finding.fault().map(str::to_owned)
}

/// What a container gets.
fn mounts(on_node: &OnNode) -> Vec<Mount> {
    let mount = |path: &str| Mount {
        container_path: path.to_owned(),
        host_path: format!("{}{path}", on_node.root),
        read_only: true,
    };
    on_node.files.iter().map(|file| mount(file.path())).collect()
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
    use std::fs;
    use std::pin::pin;
    use std::sync::mpsc::Sender;

    use futures_util::poll;
    use guards::lxcfs::File;
    use tempfile::TempDir;

    use super::super::super::probe::WITHIN;
    use super::super::super::probe::tests::{answer, root, silence};
    use super::super::super::watcher::tests::{hold_the_clock, late, watcher};
    use super::super::api::ContainerAllocateRequest;
    use super::*;

    /// A plugin that is well, and the hold on its clock.
    async fn plugin(root: &TempDir) -> (Plugin, Sender<()>) {
        let clock = hold_the_clock();
        // Nobody says that it ends.
        let plugin = Plugin::new(watcher(root), 1, watch::channel(false).1).await;
        assert_eq!(*plugin.health.borrow(), None);
        (plugin, clock)
    }

    fn one() -> AllocateRequest {
        AllocateRequest { container_requests: vec![ContainerAllocateRequest::default()] }
    }

    #[tokio::test(start_paused = true)]
    async fn silence_for_once_leaves_the_devices_healthy_and_twice_in_a_row_does_not() {
        let root = root();
        let (plugin, _clock) = plugin(&root).await;
        let mut told = plugin.health.subscribe();
        silence(&root, File::Stat);
        late(1, plugin.look()).await;
        assert!(!told.has_changed().unwrap() && plugin.health.borrow().is_none());
        late(1, plugin.look()).await;
        assert!(told.has_changed().unwrap());
        let why = told.borrow_and_update().clone().unwrap();
        assert!(why.contains("does not answer"), "{why}");
        answer(&root, File::Stat);
        plugin.look().await;
        assert!(told.has_changed().unwrap() && plugin.health.borrow().is_none());
        silence(&root, File::Stat);
        late(1, plugin.look()).await;
        assert!(plugin.health.borrow().is_none(), "not in a row");
    }

    #[tokio::test(start_paused = true)]
    async fn every_other_fault_takes_the_devices_and_refuses_containers_at_once() {
        let root = root();
        let (plugin, _clock) = plugin(&root).await;
        fs::remove_file(root.path().join("proc/stat")).unwrap();
        plugin.look().await;
        assert!(plugin.health.borrow().as_deref().unwrap().contains("is not there"));
        let fault = plugin.allocate(one()).await.unwrap_err();
        assert!(fault.text.contains("/proc/stat is not there"), "{fault}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_container_gets_the_files_where_one_look_was_late() {
        let root = root();
        let (plugin, _clock) = plugin(&root).await;
        let told = plugin.health.subscribe();
        silence(&root, File::Stat);
        let allocated = {
            let mut allocating = pin!(plugin.allocate(one()));
            assert!(poll!(&mut allocating).is_pending());
            tokio::time::advance(WITHIN).await;
            assert!(poll!(&mut allocating).is_pending(), "looks once more");
            answer(&root, File::Stat);
            allocating.await.unwrap()
        };
        assert_eq!(allocated.container_responses[0].mounts.len(), File::DEFAULT.len());
        assert!(!told.has_changed().unwrap(), "no kubelet heard of it");
    }

    #[tokio::test(start_paused = true)]
    async fn a_container_is_refused_where_two_looks_were_late() {
        let root = root();
        let (plugin, _clock) = plugin(&root).await;
        silence(&root, File::Stat);
        let began = tokio::time::Instant::now();
        let fault = late(2, plugin.allocate(one())).await.unwrap_err();
        assert_eq!(fault.code, Code::Unavailable as u32);
        assert!(fault.text.contains("does not answer"), "{fault}");
        assert_eq!(began.elapsed(), 2 * WITHIN, "two looks and no more");
        assert!(plugin.health.borrow().is_some(), "two in a row");
    }

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
