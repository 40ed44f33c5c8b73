//! Answers the kubelet's calls: which devices there are, and what a container with a device gets.
//!
//! A device is only the permission to get the files. Therefore there are more devices than a node can have containers, and all
//! are equal. They are healthy while LXCFS serves every configured file; otherwise the scheduler finds no free device on this
//! node, and pods wait or run elsewhere. So pods avoid the node as with `nodeAffinity: required`, without a label.

use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use lxcfs::NodeSettings;
use tokio::sync::{Mutex, MutexGuard, watch};
use tonic::{Request, Response, Status};

use super::super::health::{Health, HealthMonitor};
use super::generated::device_plugin_server::DevicePlugin;
use super::generated::{
    AllocateRequest, AllocateResponse, ContainerAllocateResponse, ContainerPreferredAllocationRequest,
    ContainerPreferredAllocationResponse, Device, DevicePluginOptions, Empty, ListAndWatchResponse, Mount,
    PreStartContainerRequest, PreStartContainerResponse, PreferredAllocationRequest,
    PreferredAllocationResponse,
};

/// The health of a device.
const HEALTHY: &str = "Healthy";
const UNHEALTHY: &str = "Unhealthy";

/// The calls that the kubelet makes. Without `PreStartContainer`, a container that has its device can restart while this process is
/// replaced.
pub(super) const OPTIONS: DevicePluginOptions =
    DevicePluginOptions { pre_start_required: false, get_preferred_allocation_available: false };

/// The device plugin service of this node.
pub(super) struct PluginService {
    monitor: Mutex<HealthMonitor>,
    /// The current problem of LXCFS; none while it is healthy.
    problem: watch::Sender<Option<String>>,
    devices: u32,
    stop: watch::Receiver<bool>,
}

impl PluginService {
    /// Probes LXCFS once. Streams to the kubelet end when `stop` becomes true.
    pub(super) async fn new(mut monitor: HealthMonitor, devices: u32, stop: watch::Receiver<bool>) -> Self {
        let problem = monitor.probe().await.1.problem().map(str::to_owned);
        log_health(problem.as_deref());
        Self { monitor: Mutex::new(monitor), problem: watch::Sender::new(problem), devices, stop }
    }

    /// Probes LXCFS once. Open streams of devices get a change.
    pub(super) async fn probe(&self) {
        let mut monitor = self.monitor.lock().await;
        monitor.refresh();
        let (_, health) = monitor.probe().await;
        self.publish(&health);
    }

    /// Must be called while the monitor is locked, so that the last probe is published last.
    fn publish(&self, health: &Health) {
        let problem = health.problem().map(str::to_owned);
        self.problem.send_if_modified(|known| {
            let is_new = known.is_none() != problem.is_none();
            if is_new {
                log_health(problem.as_deref());
            }
            *known = problem;
            is_new
        });
    }

    /// Returns the number of open streams of devices.
    pub(super) fn open_streams(&self) -> usize {
        self.problem.receiver_count()
    }

    /// Returns the devices now and after every change.
    fn device_lists(&self) -> BoxStream<'static, Result<ListAndWatchResponse, Status>> {
        let (problem, stop, devices) = (self.problem.subscribe(), self.stop.clone(), self.devices);
        let lists =
            stream::unfold((problem, stop, true), move |(mut problem, mut stop, is_first)| async move {
                if !is_first {
                    tokio::select! {
                        biased;
                        () = stopped(&mut stop) => return None,
                        changed = problem.changed() => changed.ok()?,
                    }
                }
                let is_healthy = problem.borrow_and_update().is_none();
                Some((Ok(device_list(devices, is_healthy)), (problem, stop, false)))
            });
        lists.boxed()
    }

    /// Returns the files for each container of the request. LXCFS is probed first: a container with a missing mount source does not
    /// start, and a runtime creates directories in place of missing files.
    async fn files(&self, request: &AllocateRequest) -> Result<AllocateResponse, Status> {
        let containers = request.container_requests.len();
        let response = ContainerAllocateResponse { mounts: mounts(self.healthy_monitor().await?.settings()) };
        tracing::debug!(containers, "allocated devices");
        Ok(AllocateResponse { container_responses: vec![response; containers] })
    }

    /// Probes LXCFS, and returns an error if it does not serve the configured files. The pod of a denied container fails for good,
    /// so after a timeout LXCFS is probed once more, and only the second result counts.
    ///
    /// This takes at most three probes (one may be in flight), 6 s. The kubelet allows 30 s for `PreStartContainer` and has no
    /// timeout for `Allocate` (1.35: `ManagerImpl.Allocate` passes a context without a deadline). But it waits in its sync
    /// loop, which admits no other pod meanwhile, and reports itself as unhealthy after five minutes.
    async fn healthy_monitor(&self) -> Result<MutexGuard<'_, HealthMonitor>, Status> {
        let mut monitor = self.monitor.lock().await;
        monitor.refresh();
        let (_, mut health) = monitor.probe().await;
        if health.is_timeout() {
            (_, health) = monitor.probe().await;
        }
        self.publish(&health);
        match health {
            Health::Healthy => Ok(monitor),
            Health::FirstTimeout(why) | Health::Timeout(why) | Health::Broken(why) => {
                Err(Status::unavailable(format!(
                    "LXCFS does not serve all files on this node: {why}; details: durward doctor lxcfs"
                )))
            }
        }
    }
}

#[tonic::async_trait]
impl DevicePlugin for PluginService {
    type ListAndWatchStream = BoxStream<'static, Result<ListAndWatchResponse, Status>>;

    async fn get_device_plugin_options(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(OPTIONS))
    }

    async fn list_and_watch(&self, _: Request<Empty>) -> Result<Response<Self::ListAndWatchStream>, Status> {
        Ok(Response::new(self.device_lists()))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        Ok(Response::new(preferred(request.into_inner())))
    }

    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        self.files(request.get_ref()).await.map(Response::new)
    }

    async fn pre_start_container(
        &self,
        _: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        self.healthy_monitor().await.map(|_| Response::new(PreStartContainerResponse {}))
    }
}

/// Returns when the plugin stops.
pub(super) async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

fn mounts(settings: &NodeSettings) -> Vec<Mount> {
    let mount = |path: &str| Mount {
        container_path: path.to_owned(),
        host_path: format!("{}{path}", settings.root),
        read_only: true,
    };
    settings.files.iter().map(|file| mount(file.path())).collect()
}

fn log_health(problem: Option<&str>) {
    match problem {
        None => tracing::info!("LXCFS serves all files, devices are healthy"),
        Some(why) => tracing::warn!(why, "LXCFS does not serve all files, devices are unhealthy"),
    }
}

fn device_list(devices: u32, is_healthy: bool) -> ListAndWatchResponse {
    let health = if is_healthy { HEALTHY } else { UNHEALTHY };
    let device = |number| Device { id: format!("lxcfs-{number}"), health: health.to_owned() };
    ListAndWatchResponse { devices: (0..devices).map(device).collect() }
}

/// Returns the required devices, filled up with any others.
fn preferred(request: PreferredAllocationRequest) -> PreferredAllocationResponse {
    let choose = |container: ContainerPreferredAllocationRequest| {
        let size = usize::try_from(container.allocation_size).unwrap_or_default();
        let mut ids = container.must_include_device_i_ds;
        let others: Vec<_> =
            container.available_device_i_ds.into_iter().filter(|id| !ids.contains(id)).collect();
        let missing = size.saturating_sub(ids.len());
        ids.extend(others.into_iter().take(missing));
        ContainerPreferredAllocationResponse { device_i_ds: ids }
    };
    PreferredAllocationResponse {
        container_responses: request.container_requests.into_iter().map(choose).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::pin::pin;
    use std::sync::mpsc::Sender;

    use futures_util::poll;
    use lxcfs::LxcfsFile;
    use tempfile::TempDir;

    use super::super::super::health::tests::{after_timeouts, hold_clock, monitor};
    use super::super::super::probe::READ_TIMEOUT;
    use super::super::super::probe::tests::{answer, root, silence};
    use super::super::generated::ContainerAllocateRequest;
    use super::*;

    /// Creates a healthy service, and holds the clock.
    async fn service(root: &TempDir) -> (PluginService, Sender<()>) {
        let clock = hold_clock();
        let service = PluginService::new(monitor(root), 1, watch::channel(false).1).await;
        assert_eq!(*service.problem.borrow(), None);
        (service, clock)
    }

    fn one_container() -> AllocateRequest {
        AllocateRequest { container_requests: vec![ContainerAllocateRequest::default()] }
    }

    #[tokio::test(start_paused = true)]
    async fn devices_stay_healthy_on_one_timeout_and_become_unhealthy_on_the_second() {
        let root = root();
        let (service, _clock) = service(&root).await;
        let mut stream = service.problem.subscribe();
        silence(&root, LxcfsFile::Stat);
        after_timeouts(1, service.probe()).await;
        assert!(!stream.has_changed().unwrap() && service.problem.borrow().is_none());
        after_timeouts(1, service.probe()).await;
        assert!(stream.has_changed().unwrap());
        let problem = stream.borrow_and_update().clone().unwrap();
        assert!(problem.contains("does not answer"), "{problem}");
        answer(&root, LxcfsFile::Stat);
        service.probe().await;
        assert!(stream.has_changed().unwrap() && service.problem.borrow().is_none());
        silence(&root, LxcfsFile::Stat);
        after_timeouts(1, service.probe()).await;
        assert!(service.problem.borrow().is_none(), "the timeouts are not consecutive");
    }

    #[tokio::test(start_paused = true)]
    async fn other_problems_make_devices_unhealthy_and_deny_containers_at_once() {
        let root = root();
        let (service, _clock) = service(&root).await;
        fs::remove_file(root.path().join("proc/stat")).unwrap();
        service.probe().await;
        assert!(service.problem.borrow().as_deref().unwrap().contains("does not exist"));
        let status = service.files(&one_container()).await.unwrap_err();
        assert!(status.message().contains("/proc/stat does not exist"), "{status}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_container_gets_the_files_after_one_timeout() {
        let root = root();
        let (service, _clock) = service(&root).await;
        let stream = service.problem.subscribe();
        silence(&root, LxcfsFile::Stat);
        let request = one_container();
        let allocated = {
            let mut call = pin!(service.files(&request));
            assert!(poll!(&mut call).is_pending());
            tokio::time::advance(READ_TIMEOUT).await;
            assert!(poll!(&mut call).is_pending(), "the second probe");
            answer(&root, LxcfsFile::Stat);
            call.await.unwrap()
        };
        assert_eq!(allocated.container_responses[0].mounts.len(), LxcfsFile::DEFAULT.len());
        assert!(!stream.has_changed().unwrap(), "the kubelet gets no change");
    }

    #[tokio::test(start_paused = true)]
    async fn a_container_is_denied_after_two_timeouts() {
        let root = root();
        let (service, _clock) = service(&root).await;
        silence(&root, LxcfsFile::Stat);
        let start = tokio::time::Instant::now();
        let status = after_timeouts(2, service.files(&one_container())).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::Unavailable);
        assert!(status.message().contains("does not answer"), "{status}");
        assert_eq!(start.elapsed(), 2 * READ_TIMEOUT, "two probes");
        assert!(service.problem.borrow().is_some(), "two consecutive timeouts");
    }

    #[tokio::test]
    async fn counts_open_streams() {
        let root = root();
        let service = PluginService::new(monitor(&root), 1, watch::channel(false).1).await;
        assert_eq!(service.open_streams(), 0);
        let lists = service.device_lists();
        assert_eq!(service.open_streams(), 1);
        drop(lists);
        assert_eq!(service.open_streams(), 0);
    }

    #[test]
    fn devices_have_distinct_names_and_the_same_health() {
        let ListAndWatchResponse { devices } = device_list(1000, false);
        let names: std::collections::BTreeSet<_> = devices.iter().map(|device| &device.id).collect();
        assert_eq!(names.len(), 1000);
        assert!(devices.iter().all(|device| device.health == "Unhealthy" && device.id.len() <= 63));
        assert!(device_list(1, true).devices.iter().all(|device| device.health == "Healthy"));
    }

    #[test]
    fn prefers_the_required_devices() {
        let ids = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for (available, must_include, size, expected) in [
            ("a b c", "c", 2, "c a"),
            ("a b", "", 1, "a"),
            ("a", "", -1, ""),
            ("a", "", 5, "a"),
            ("a b", "a", 1, "a"),
        ] {
            let container = ContainerPreferredAllocationRequest {
                available_device_i_ds: ids(available),
                must_include_device_i_ds: ids(must_include),
                allocation_size: size,
            };
            let response = preferred(PreferredAllocationRequest { container_requests: vec![container] });
            assert_eq!(response.container_responses[0].device_i_ds, ids(expected));
        }
    }
}
