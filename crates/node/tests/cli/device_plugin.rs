//! `device-plugin`, with a test kubelet: it serves `Registration`, treats the directory as a kubelet does, and calls back.
//!
//! The messages are defined a second time, so that an error in the binary's definitions shows.

use std::convert::Infallible;
use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

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
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;

use crate::harness::{Agent, Node, TIMEOUT};

const SOCKET: &str = "durward-lxcfs.sock";

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

fn frame(message: &[u8]) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(message.len()).unwrap());
    bytes.put_slice(message);
    bytes.freeze()
}

/// A kubelet that runs until it is dropped.
struct Kubelet {
    registrations: UnboundedReceiver<Register>,
    task: JoinHandle<()>,
}

impl Kubelet {
    /// Removes every socket in the directory and creates `kubelet.sock`. Rejects the first registrations.
    fn start(directory: &Path, rejections: u32) -> Self {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_socket() {
                fs::remove_file(entry.path()).unwrap();
            }
        }
        let listener = UnixListener::bind(directory.join("kubelet.sock")).unwrap();
        let (sender, registrations) = unbounded_channel();
        let rejections = Arc::new(Mutex::new(rejections));
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (sender, rejections) = (sender.clone(), Arc::clone(&rejections));
                let service = service_fn(move |request: Request<Incoming>| {
                    let (sender, rejections) = (sender.clone(), Arc::clone(&rejections));
                    async move {
                        assert_eq!(request.uri().path(), "/v1beta1.Registration/Register");
                        assert_eq!(request.headers()["content-type"], "application/grpc");
                        let body = request.into_body().collect().await.unwrap().to_bytes();
                        sender.send(Register::decode(&body[5..]).unwrap()).unwrap();
                        let mut rejections = rejections.lock().unwrap();
                        let is_rejected = *rejections > 0;
                        *rejections = rejections.saturating_sub(1);
                        let mut trailers = HeaderMap::new();
                        let status = if is_rejected { "2" } else { "0" };
                        trailers.insert("grpc-status", status.parse().unwrap());
                        trailers.insert("grpc-message", "not%20now".parse().unwrap());
                        let frames = [Frame::data(frame(&[])), Frame::trailers(trailers)];
                        let frames = futures_util::stream::iter(frames.map(Ok::<_, Infallible>));
                        Ok::<_, Infallible>(Response::new(StreamBody::new(frames)))
                    }
                });
                tokio::spawn(
                    http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        Self { registrations, task }
    }

    async fn registered(&mut self) -> Register {
        tokio::time::timeout(TIMEOUT, self.registrations.recv()).await.unwrap().unwrap()
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A connection of the kubelet to the plugin.
struct Plugin(SendRequest<Full<Bytes>>);

impl Plugin {
    async fn connect(directory: &Path) -> Self {
        let stream = UnixStream::connect(directory.join(SOCKET)).await.unwrap();
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self(sender)
    }

    async fn send(&mut self, method: &str, message: &[u8]) -> Response<Incoming> {
        let request = Request::post(format!("http://localhost/v1beta1.DevicePlugin/{method}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Full::new(frame(message)))
            .unwrap();
        self.0.send_request(request).await.unwrap()
    }

    /// Returns the answer, or code and message of an error.
    async fn call<M: Message + Default>(
        &mut self,
        method: &str,
        message: &impl Message,
    ) -> Result<M, (String, String)> {
        let answer = self.send(method, &message.encode_to_vec()).await;
        let text = |headers: &HeaderMap, name: &str| {
            headers.get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
        };
        let head = answer.headers().clone();
        let body = answer.into_body().collect().await.unwrap();
        let end = body.trailers().cloned().unwrap_or(head);
        if text(&end, "grpc-status") != "0" {
            return Err((text(&end, "grpc-status"), text(&end, "grpc-message").replace("%20", " ")));
        }
        Ok(M::decode(&body.to_bytes()[5..]).unwrap())
    }

    async fn watch(&mut self) -> Watch {
        Watch { body: self.send("ListAndWatch", &[]).await.into_body(), bytes: BytesMut::new() }
    }
}

/// The stream of devices.
struct Watch {
    body: Incoming,
    bytes: BytesMut,
}

impl Watch {
    /// Returns the next list, or none after the stream ended with success.
    async fn next(&mut self) -> Option<Vec<Device>> {
        loop {
            if let Some(head) = self.bytes.get(..5) {
                let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
                if self.bytes.len() >= 5 + length {
                    let message = self.bytes.split_to(5 + length);
                    return Some(Devices::decode(&message[5..]).unwrap().devices);
                }
            }
            let frame = tokio::time::timeout(TIMEOUT, self.body.frame()).await.unwrap()?.unwrap();
            match frame.into_data() {
                Ok(data) => self.bytes.extend_from_slice(&data),
                Err(frame) => {
                    assert_eq!(frame.into_trailers().unwrap()["grpc-status"], "0");
                    return None;
                }
            }
        }
    }

    /// Returns number and health of the devices in the next list.
    async fn health(&mut self) -> (usize, String) {
        let devices = self.next().await.unwrap();
        let health = devices[0].health.clone();
        assert!(devices.iter().all(|device| device.health == health));
        (devices.len(), health)
    }
}

/// A node with the kubelet's directory, and a runtime for the test kubelet.
struct Fixture {
    node: Node,
    sockets: PathBuf,
    runtime: Runtime,
}

impl Fixture {
    fn new() -> Self {
        let node = Node::new("mountMethod: devicePlugin");
        let sockets = node.path().join("device-plugins");
        fs::create_dir(&sockets).unwrap();
        Self { node, sockets, runtime: Runtime::new().unwrap() }
    }

    fn start(&self) -> Agent {
        self.start_with("")
    }

    /// Starts the plugin with more flags.
    fn start_with(&self, flags: &str) -> Agent {
        let line = "device-plugin --config durward.yaml --proc proc --kubelet-dir device-plugins --probe-interval-ms 50";
        self.node.start(&line.split_whitespace().chain(flags.split_whitespace()).collect::<Vec<_>>())
    }
}

#[test]
fn registers_the_devices_and_gives_containers_the_files() {
    let fixture = Fixture::new();
    fixture.runtime.block_on(async {
        let mut kubelet = Kubelet::start(&fixture.sockets, 0);
        let _agent = fixture.start();
        let registration = kubelet.registered().await;
        assert_eq!(
            (
                registration.version.as_str(),
                registration.endpoint.as_str(),
                registration.resource_name.as_str()
            ),
            ("v1beta1", SOCKET, "durward.dev/lxcfs")
        );
        let mut plugin = Plugin::connect(&fixture.sockets).await;
        let options = plugin.call::<Register>("GetDevicePluginOptions", &Devices::default()).await.unwrap();
        assert_eq!(options, Register::default(), "no call before a start, and no preference");
        assert_eq!(plugin.watch().await.health().await, (1000, "Healthy".to_owned()));
        let request = Allocate { containers: vec![Ids { ids: vec!["lxcfs-7".to_owned()] }, Ids::default()] };
        let allocated = plugin.call::<Allocated>("Allocate", &request).await.unwrap();
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
            assert_eq!(mount.host_path, format!("{}{}", fixture.node.root().display(), mount.container_path));
        }
        plugin.call::<Devices>("PreStartContainer", &Ids::default()).await.unwrap();
        let (code, _) = plugin.call::<Devices>("Borrow", &Ids::default()).await.unwrap_err();
        assert_eq!(code, "12", "an unknown method");
    });
}

#[test]
fn a_missing_file_makes_every_device_unhealthy_until_it_is_back() {
    let fixture = Fixture::new();
    fixture.runtime.block_on(async {
        let mut kubelet = Kubelet::start(&fixture.sockets, 0);
        let _agent = fixture.start();
        kubelet.registered().await;
        let mut plugin = Plugin::connect(&fixture.sockets).await;
        let mut watch = plugin.watch().await;
        assert_eq!(watch.health().await.1, "Healthy");
        fixture.node.remove_file("/proc/swaps");
        assert_eq!(watch.health().await.1, "Unhealthy");
        for method in ["Allocate", "PreStartContainer"] {
            let (code, message) = plugin.call::<Devices>(method, &Allocate::default()).await.unwrap_err();
            assert_eq!(code, "14");
            assert!(message.contains("/proc/swaps does not exist"), "{message}");
            assert!(message.contains("durward doctor lxcfs"), "{message}");
        }
        fixture.node.write_file("/proc/swaps", "Filename\tType\n");
        assert_eq!(watch.health().await.1, "Healthy");
        fixture.node.mount("ext4");
        assert_eq!(watch.health().await.1, "Unhealthy", "the files are not LXCFS's");
    });
}

#[test]
fn registers_again_when_the_kubelet_restarts_and_replaces_a_stale_socket() {
    let fixture = Fixture::new();
    // The socket of a process that exited.
    drop(StdListener::bind(fixture.sockets.join(SOCKET)).unwrap());
    fixture.runtime.block_on(async {
        let agent = fixture.start();
        agent.wait_for_message("; waiting");
        for rejections in [0, 1, 0] {
            let mut kubelet = Kubelet::start(&fixture.sockets, rejections);
            for _ in 0..=rejections {
                kubelet.registered().await;
            }
            let mut plugin = Plugin::connect(&fixture.sockets).await;
            assert_eq!(plugin.watch().await.health().await.1, "Healthy");
        }
        agent.wait_for_message("not now (gRPC code 2)");
    });
}

#[test]
fn registers_again_when_the_kubelet_lost_the_stream() {
    let fixture = Fixture::new();
    fixture.runtime.block_on(async {
        let mut kubelet = Kubelet::start(&fixture.sockets, 0);
        let _agent = fixture.start_with("--watch-timeout-ms 600");
        kubelet.registered().await;
        let mut plugin = Plugin::connect(&fixture.sockets).await;
        let mut watch = plugin.watch().await;
        watch.health().await;
        // A busy machine can exceed the timeout before the stream. With a stream, the plugin doesn't register.
        while kubelet.registrations.try_recv().is_ok() {}
        drop((watch, plugin));
        kubelet.registered().await;
    });
}

#[test]
fn ends_the_stream_and_removes_the_socket_when_it_stops() {
    let fixture = Fixture::new();
    fixture.runtime.block_on(async {
        let mut kubelet = Kubelet::start(&fixture.sockets, 0);
        let mut agent = fixture.start();
        kubelet.registered().await;
        let mut plugin = Plugin::connect(&fixture.sockets).await;
        let mut watch = plugin.watch().await;
        watch.health().await;
        let stopped = tokio::task::spawn_blocking(move || agent.stop());
        assert_eq!(watch.next().await, None);
        assert_eq!(stopped.await.unwrap().code(), Some(0));
        assert!(!fixture.sockets.join(SOCKET).exists());
    });
}

#[test]
fn keeps_a_file_that_is_not_a_socket() {
    let fixture = Fixture::new();
    fs::write(fixture.sockets.join(SOCKET), "precious").unwrap();
    let mut agent = fixture.start();
    agent.wait_for_message("is not a socket");
    assert_eq!(agent.stop().code(), Some(0));
    assert_eq!(fs::read_to_string(fixture.sockets.join(SOCKET)).unwrap(), "precious");
}

#[test]
fn logs_an_error_with_the_flag_if_the_directory_does_not_exist() {
    let fixture = Fixture::new();
    fs::remove_dir(&fixture.sockets).unwrap();
    let agent = fixture.start();
    let line = agent.wait_for_log(|line| line["level"] == "ERROR");
    assert!(line["message"].as_str().unwrap().contains("--kubelet-dir"), "{line}");
}

#[test]
fn follows_a_change_of_the_configuration() {
    let fixture = Fixture::new();
    fixture.runtime.block_on(async {
        let mut kubelet = Kubelet::start(&fixture.sockets, 0);
        let agent = fixture.start();
        kubelet.registered().await;
        fixture.node.configure("mountMethod: devicePlugin, files: [uptime]");
        agent.wait_for_message("configuration reloaded");
        let mut plugin = Plugin::connect(&fixture.sockets).await;
        let request = Allocate { containers: vec![Ids::default()] };
        let allocated = plugin.call::<Allocated>("Allocate", &request).await.unwrap();
        assert_eq!(allocated.containers[0].mounts.len(), 1);
    });
}
