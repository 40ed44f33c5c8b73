//! `lxcfs-device` beside a kubelet of our own: a server of `Registration` that does with the folder what a kubelet does, and calls
//! back. Its messages are typed here once more, so that a slip in the binary's is seen.

use std::convert::Infallible;
use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper::header::HeaderMap;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use rustix::process::Signal;
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;

use crate::harness::{House, Serving};
use crate::lxcfs::{mount, remove, root, write};

const PATIENCE: Duration = Duration::from_secs(30);
const OURS: &str = "durward-lxcfs.sock";

#[derive(Clone, PartialEq, Message)]
struct Register {
    #[prost(string, tag = "1")]
    version: String,
    #[prost(string, tag = "2")]
    endpoint: String,
    #[prost(string, tag = "3")]
    resource_name: String,
}

#[derive(Clone, PartialEq, Message)]
struct Devices {
    #[prost(message, repeated, tag = "1")]
    devices: Vec<Device>,
}

#[derive(Clone, PartialEq, Message)]
struct Device {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(string, tag = "2")]
    health: String,
}

#[derive(Clone, PartialEq, Message)]
struct Allocate {
    #[prost(message, repeated, tag = "1")]
    containers: Vec<Ids>,
}

#[derive(Clone, PartialEq, Message)]
struct Ids {
    #[prost(string, repeated, tag = "1")]
    ids: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Allocated {
    #[prost(message, repeated, tag = "1")]
    containers: Vec<Container>,
}

#[derive(Clone, PartialEq, Message)]
struct Container {
    #[prost(message, repeated, tag = "2")]
    mounts: Vec<Mount>,
}

#[derive(Clone, PartialEq, Message)]
struct Mount {
    #[prost(string, tag = "1")]
    container_path: String,
    #[prost(string, tag = "2")]
    host_path: String,
    #[prost(bool, tag = "3")]
    read_only: bool,
}

fn framed(message: &[u8]) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(message.len()).unwrap());
    bytes.put_slice(message);
    bytes.freeze()
}

/// A kubelet until it is dropped.
struct Kubelet {
    registrations: UnboundedReceiver<Register>,
    serving: JoinHandle<()>,
}

impl Kubelet {
    /// As a kubelet starts: every socket in the folder is removed, and its own is made anew.
    fn start(folder: &Path, refusals: u32) -> Self {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_socket() {
                fs::remove_file(entry.path()).unwrap();
            }
        }
        let listener = UnixListener::bind(folder.join("kubelet.sock")).unwrap();
        let (tell, registrations) = unbounded_channel();
        let refusals = Arc::new(Mutex::new(refusals));
        let serving = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (tell, refusals) = (tell.clone(), Arc::clone(&refusals));
                let service = service_fn(move |request: Request<Incoming>| {
                    let (tell, refusals) = (tell.clone(), Arc::clone(&refusals));
                    async move {
                        assert_eq!(request.uri().path(), "/v1beta1.Registration/Register");
                        assert_eq!(request.headers()["content-type"], "application/grpc");
                        let body = request.into_body().collect().await.unwrap().to_bytes();
                        tell.send(Register::decode(&body[5..]).unwrap()).unwrap();
                        let mut refusals = refusals.lock().unwrap();
                        let is_refused = *refusals > 0;
                        *refusals = refusals.saturating_sub(1);
                        let mut trailers = HeaderMap::new();
                        let status = if is_refused { "2" } else { "0" };
                        trailers.insert("grpc-status", status.parse().unwrap());
                        trailers.insert("grpc-message", "not%20now".parse().unwrap());
                        let frames = [Frame::data(framed(&[])), Frame::trailers(trailers)];
                        let frames = futures_util::stream::iter(frames.map(Ok::<_, Infallible>));
                        Ok::<_, Infallible>(Response::new(StreamBody::new(frames)))
                    }
                });
                tokio::spawn(
                    http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        Self { registrations, serving }
    }

    async fn registered(&mut self) -> Register {
        tokio::time::timeout(PATIENCE, self.registrations.recv()).await.unwrap().unwrap()
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// The kubelet's way to the plugin.
struct Plugin(SendRequest<Full<Bytes>>);

impl Plugin {
    async fn dial(folder: &Path) -> Self {
        let stream = UnixStream::connect(folder.join(OURS)).await.unwrap();
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self(sender)
    }

    async fn ask(&mut self, method: &str, message: &[u8]) -> Response<Incoming> {
        let request = Request::post(format!("http://localhost/v1beta1.DevicePlugin/{method}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Full::new(framed(message)))
            .unwrap();
        self.0.send_request(request).await.unwrap()
    }

    /// The answer, or the code and the text of a refusal.
    async fn call<M: Message + Default>(
        &mut self,
        method: &str,
        message: &impl Message,
    ) -> Result<M, (String, String)> {
        let answer = self.ask(method, &message.encode_to_vec()).await;
        let text = |headers: &HeaderMap, name: &str| {
            headers.get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
        };
        let head = answer.headers().clone();
        let body = answer.into_body().collect().await.unwrap();
        let end = body.trailers().cloned().unwrap_or(head);
        if text(&end, "grpc-status") != "0" {
            return Err((text(&end, "grpc-status"), text(&end, "grpc-message")));
        }
        Ok(M::decode(&body.to_bytes()[5..]).unwrap())
    }

    async fn watch(&mut self) -> Watch {
        Watch { body: self.ask("ListAndWatch", &[]).await.into_body(), bytes: BytesMut::new() }
    }
}

/// The stream of devices.
struct Watch {
    body: Incoming,
    bytes: BytesMut,
}

impl Watch {
    /// The next list; none where the stream has ended, which it must do well.
    async fn next(&mut self) -> Option<Vec<Device>> {
        loop {
            if let Some(head) = self.bytes.get(..5) {
                let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
                if self.bytes.len() >= 5 + length {
                    let message = self.bytes.split_to(5 + length);
                    return Some(Devices::decode(&message[5..]).unwrap().devices);
                }
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await.unwrap()?.unwrap();
            match frame.into_data() {
                Ok(data) => self.bytes.extend_from_slice(&data),
                Err(frame) => {
                    assert_eq!(frame.into_trailers().unwrap()["grpc-status"], "0");
                    return None;
                }
            }
        }
    }

    /// How all devices of the next list are; all are alike.
    async fn health(&mut self) -> (usize, String) {
        let devices = self.next().await.unwrap();
        let health = devices[0].health.clone();
        assert!(devices.iter().all(|device| device.health == health));
        (devices.len(), health)
    }
}

/// A folder with LXCFS's files, a folder of the kubelet, and a configuration.
struct Node {
    house: House,
    root: PathBuf,
    sockets: PathBuf,
    runtime: Runtime,
}

impl Node {
    fn new() -> Self {
        let house = House::new();
        let root = root(house.path());
        house.configure(&format!("  lxcfs: {{root: {}, backend: device}}\n", root.display()));
        let sockets = house.path().join("device-plugins");
        fs::create_dir(&sockets).unwrap();
        Self { house, root, sockets, runtime: Runtime::new().unwrap() }
    }

    fn plugin(&self) -> Serving {
        let folder = self.sockets.to_str().unwrap();
        let arguments =
            ["lxcfs-device", "--config", "durward.yaml", "--proc", "proc", "--kubelet-dir", folder];
        Serving::begun(self.house.path(), &arguments)
    }
}

#[test]
fn the_kubelet_is_told_of_the_devices_and_a_container_gets_the_files() {
    let node = Node::new();
    node.runtime.block_on(async {
        let mut kubelet = Kubelet::start(&node.sockets, 0);
        let _running = node.plugin();
        let told = kubelet.registered().await;
        assert_eq!(
            (told.version.as_str(), told.endpoint.as_str(), told.resource_name.as_str()),
            ("v1beta1", OURS, "durward.dev/lxcfs")
        );
        let mut plugin = Plugin::dial(&node.sockets).await;
        let options = plugin.call::<Register>("GetDevicePluginOptions", &Devices::default()).await.unwrap();
        assert_eq!(options, Register::default(), "nothing before a start, and no preference");
        assert_eq!(plugin.watch().await.health().await, (1000, "Healthy".to_owned()));
        let asked = Allocate { containers: vec![Ids { ids: vec!["lxcfs-7".to_owned()] }, Ids::default()] };
        let allocated = plugin.call::<Allocated>("Allocate", &asked).await.unwrap();
        assert_eq!(allocated.containers.len(), 2);
        let mounts: Vec<_> =
            allocated.containers[1].mounts.iter().map(|mount| mount.container_path.as_str()).collect();
        assert_eq!(
            mounts,
            [
                "/proc/cpuinfo",
                "/proc/meminfo",
                "/proc/diskstats",
                "/proc/stat",
                "/proc/swaps",
                "/proc/uptime"
            ]
        );
        for mount in &allocated.containers[0].mounts {
            assert!(mount.read_only);
            assert_eq!(mount.host_path, format!("{}{}", node.root.display(), mount.container_path));
        }
        plugin.call::<Devices>("PreStartContainer", &Ids::default()).await.unwrap();
        let (code, text) = plugin.call::<Devices>("Borrow", &Ids::default()).await.unwrap_err();
        assert_eq!((code.as_str(), text.as_str()), ("12", "there is no /v1beta1.DevicePlugin/Borrow"));
    });
}

#[test]
fn a_file_that_goes_takes_every_device_along_and_brings_them_back() {
    let node = Node::new();
    node.runtime.block_on(async {
        let mut kubelet = Kubelet::start(&node.sockets, 0);
        let _running = node.plugin();
        kubelet.registered().await;
        let mut plugin = Plugin::dial(&node.sockets).await;
        let mut watch = plugin.watch().await;
        assert_eq!(watch.health().await.1, "Healthy");
        remove(&node.root, "/proc/swaps");
        assert_eq!(watch.health().await.1, "Unhealthy");
        for method in ["Allocate", "PreStartContainer"] {
            let (code, text) = plugin.call::<Devices>(method, &Allocate::default()).await.unwrap_err();
            assert_eq!(code, "14");
            assert!(
                text.contains("/proc/swaps is not there") && text.contains("durward doctor lxcfs"),
                "{text}"
            );
        }
        write(&node.root, "/proc/swaps", "Filename\tType\n");
        assert_eq!(watch.health().await.1, "Healthy");
        mount(node.house.path(), "ext4");
        assert_eq!(watch.health().await.1, "Unhealthy", "these are not LXCFS's");
    });
}

#[test]
fn a_kubelet_that_starts_anew_is_told_again_and_a_socket_of_nobody_is_taken_away() {
    let node = Node::new();
    // Left by a process that is gone.
    drop(StdListener::bind(node.sockets.join(OURS)).unwrap());
    node.runtime.block_on(async {
        let running = node.plugin();
        running.wait_for_log(|line| {
            line["message"].as_str().is_some_and(|text| text.contains("waiting for it"))
        });
        for refusals in [0, 1, 0] {
            let mut kubelet = Kubelet::start(&node.sockets, refusals);
            for _ in 0..=refusals {
                kubelet.registered().await;
            }
            let mut plugin = Plugin::dial(&node.sockets).await;
            assert_eq!(plugin.watch().await.health().await.1, "Healthy");
        }
        running.wait_for_log(|line| {
            line["message"].as_str().is_some_and(|text| text.contains("not now (gRPC code 2)"))
        });
    });
}

#[test]
fn a_kubelet_that_has_lost_the_stream_is_told_again() {
    let node = Node::new();
    node.runtime.block_on(async {
        let mut kubelet = Kubelet::start(&node.sockets, 0);
        let _running = node.plugin();
        kubelet.registered().await;
        let mut plugin = Plugin::dial(&node.sockets).await;
        let mut watch = plugin.watch().await;
        watch.health().await;
        drop((watch, plugin));
        kubelet.registered().await;
    });
}

#[test]
fn asked_to_stop_it_ends_the_stream_well_and_takes_its_socket_along() {
    let node = Node::new();
    node.runtime.block_on(async {
        let mut kubelet = Kubelet::start(&node.sockets, 0);
        let mut running = node.plugin();
        kubelet.registered().await;
        let mut plugin = Plugin::dial(&node.sockets).await;
        let mut watch = plugin.watch().await;
        watch.health().await;
        running.signal(Signal::TERM);
        assert_eq!(watch.next().await, None);
        assert_eq!(running.wait().code(), Some(0));
        assert!(!node.sockets.join(OURS).exists());
    });
}

#[test]
fn what_is_no_socket_is_left_where_it_stands() {
    let node = Node::new();
    fs::write(node.sockets.join(OURS), "precious").unwrap();
    let mut running = node.plugin();
    running.wait_for_log(|line| {
        line["message"].as_str().is_some_and(|text| text.contains("something that is no socket"))
    });
    running.signal(Signal::TERM);
    assert_eq!(running.wait().code(), Some(0));
    assert_eq!(fs::read_to_string(node.sockets.join(OURS)).unwrap(), "precious");
}

#[test]
fn where_no_kubelet_has_its_folder_an_error_names_the_flag() {
    let node = Node::new();
    fs::remove_dir(&node.sockets).unwrap();
    let running = node.plugin();
    let told = running.wait_for_log(|line| line["level"] == "ERROR");
    assert!(told["message"].as_str().unwrap().contains("--kubelet-dir"), "{told}");
}

#[test]
fn a_change_of_the_configuration_is_followed() {
    let node = Node::new();
    node.runtime.block_on(async {
        let mut kubelet = Kubelet::start(&node.sockets, 0);
        let running = node.plugin();
        kubelet.registered().await;
        let root = node.root.display();
        node.house.configure(&format!("  lxcfs: {{root: {root}, backend: device, files: [uptime]}}\n"));
        running
            .wait_for_log(|line| line["message"].as_str().is_some_and(|text| text.contains("has changed")));
        let mut plugin = Plugin::dial(&node.sockets).await;
        let asked = Allocate { containers: vec![Ids::default()] };
        let allocated = plugin.call::<Allocated>("Allocate", &asked).await.unwrap();
        assert_eq!(allocated.containers[0].mounts.len(), 1);
    });
}
