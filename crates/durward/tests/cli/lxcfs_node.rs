//! `lxcfs-node` beside an API server of our own that has one Node.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{House, Serving};
use crate::lxcfs::{mount, remove, root, write};

const LABEL: &str = "durward.dev/lxcfs-ready";
const ANNOTATION: &str = "durward.dev/lxcfs-node";

/// The Node, and each request that was made.
#[derive(Default)]
struct Held {
    node: Value,
    asked: Vec<String>,
}

/// An API server; it ends with the tests.
struct Api {
    address: SocketAddr,
    held: Arc<Mutex<Held>>,
}

impl Api {
    fn start() -> Self {
        let node = json!({"metadata": {"name": "n1", "labels": {"kept": "yes"}}});
        let held = Arc::new(Mutex::new(Held { node, asked: Vec::new() }));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::clone(&held);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let held = Arc::clone(&shared);
                thread::spawn(move || answer(stream.unwrap(), &held));
            }
        });
        Self { address, held }
    }

    fn metadata(&self) -> Value {
        self.held.lock().unwrap().node["metadata"].clone()
    }

    fn asked(&self) -> Vec<String> {
        self.held.lock().unwrap().asked.clone()
    }
}

/// One request; the connection ends with it.
fn answer(mut stream: TcpStream, held: &Mutex<Held>) {
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    let (top, mut body) = loop {
        let count = stream.read(&mut buffer).unwrap();
        if count == 0 {
            return;
        }
        text.extend_from_slice(&buffer[..count]);
        if let Some(at) = text.windows(4).position(|four| four == b"\r\n\r\n") {
            break (String::from_utf8(text[..at].to_vec()).unwrap(), text[at + 4..].to_vec());
        }
    };
    let length = top.to_ascii_lowercase().lines().find_map(|line| {
        line.strip_prefix("content-length: ").map(|length| length.trim().parse::<usize>().unwrap())
    });
    while body.len() < length.unwrap_or_default() {
        let count = stream.read(&mut buffer).unwrap();
        body.extend_from_slice(&buffer[..count]);
    }
    let line = top.lines().next().unwrap().trim_end_matches(" HTTP/1.1").to_owned();
    let mut known = held.lock().unwrap();
    if line.starts_with("PATCH") {
        assert!(top.to_ascii_lowercase().contains("content-type: application/merge-patch+json"), "{top}");
        json_patch::merge(&mut known.node, &serde_json::from_slice(&body).unwrap());
    }
    known.asked.push(line);
    let text = known.node.to_string();
    let begin = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
    let _ = write!(stream, "{begin}\r\ncontent-length: {}\r\n\r\n{text}", text.len());
}

/// A house with LXCFS's files and a way to the API server.
fn house(api: &Api, lxcfs: &str) -> (House, std::path::PathBuf) {
    let house = House::new();
    let root = root(house.path());
    house.configure(&format!("  lxcfs: {{root: {}, {lxcfs}}}\n", root.display()));
    house.write(
        "kubeconfig",
        &format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: \"http://{}\"}}}}]\n\
             users: [{{name: u, user: {{}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n",
            api.address
        ),
    );
    (house, root)
}

fn node(house: &House) -> Serving {
    let arguments = [
        "lxcfs-node",
        "--config",
        "durward.yaml",
        "--proc",
        "proc",
        "--node",
        "n1",
        "--kubeconfig",
        "kubeconfig",
        "--runc",
        "/nowhere",
        "--pid-file",
        "/nowhere",
        "--library",
        "none.so",
    ];
    Serving::begun(house.path(), &arguments)
}

#[test]
fn the_node_says_that_lxcfs_serves_for_as_long_as_it_does_and_goes_on_saying_so_when_only_we_end() {
    let api = Api::start();
    let (house, root) = house(&api, "nodeReadiness: require");
    let mut running = node(&house);
    running.wait_until("the label is there", || api.metadata()["labels"][LABEL] == "true");
    let report: Value =
        serde_json::from_str(api.metadata()["annotations"][ANNOTATION].as_str().unwrap()).unwrap();
    assert_eq!(report["root"], root.to_str().unwrap());
    assert_eq!(
        (&report["files"]["meminfo"], &report["files"]["slabinfo"]),
        (&json!("served"), &json!("served"))
    );
    assert_eq!((report.get("version"), report.get("library")), (None, None));
    assert!(report["time"].as_str().unwrap().starts_with("20"), "{report}");
    remove(&root, "/proc/uptime");
    running.wait_until("the label is gone", || api.metadata()["labels"] == json!({"kept": "yes"}));
    let report = api.metadata()["annotations"][ANNOTATION].as_str().unwrap().to_owned();
    assert!(report.contains("\"uptime\":\"missing\""), "{report}");
    write(&root, "/proc/uptime", "1.0 1.0\n");
    running.wait_until("the label is back", || api.metadata()["labels"][LABEL] == "true");
    mount(house.path(), "ext4");
    running.wait_until("the label is gone again", || api.metadata()["labels"] == json!({"kept": "yes"}));
    mount(house.path(), "fuse.lxcfs");
    running.wait_until("the label is back again", || api.metadata()["labels"][LABEL] == "true");
    let before = api.metadata();
    running.signal(Signal::TERM);
    assert_eq!(running.wait().code(), Some(0));
    assert_eq!(api.metadata(), before, "the end changes nothing");
    assert_eq!(before["labels"], json!({"kept": "yes", LABEL: "true"}));
    let asked = api.asked();
    assert!(asked.iter().all(|line| line.starts_with("PATCH /api/v1/nodes/n1?")), "{asked:?}");
    assert_eq!(asked.len(), 5, "{asked:?}");
}

#[test]
fn without_node_readiness_the_api_server_is_asked_nothing() {
    let api = Api::start();
    let (house, root) = house(&api, "nodeReadiness: ignore");
    let mut running = node(&house);
    running.wait_for_log(|line| line["message"] == "LXCFS serves every file that pods are promised");
    remove(&root, "/proc/uptime");
    running.wait_for_log(|line| line["message"] == "LXCFS does not serve what pods are promised");
    running.signal(Signal::TERM);
    assert_eq!(running.wait().code(), Some(0));
    assert_eq!(api.asked(), [""; 0]);
}

#[test]
fn a_label_that_could_not_be_taken_off_is_told_with_the_command_that_does() {
    let api = Api::start();
    let (house, root) = house(&api, "nodeReadiness: prefer");
    remove(&root, "/proc/uptime");
    house.write(
        "kubeconfig",
        &std::fs::read_to_string(house.path().join("kubeconfig"))
            .unwrap()
            .replace(&api.address.port().to_string(), "1"),
    );
    let mut running = node(&house);
    running.wait_for_log(|line| line["message"] == "the node cannot be told how LXCFS does");
    running.signal(Signal::TERM);
    assert_eq!(running.wait().code(), Some(1));
    let told = running.wait_for_log(|line| line["level"] == "ERROR");
    assert_eq!(told["mend"], "kubectl label node n1 durward.dev/lxcfs-ready-");
}

#[test]
fn bad_input_is_told_before_anything_is_begun() {
    let house = House::new();
    for (arguments, expected) in [
        (&["lxcfs-node", "--config", "durward.yaml", "--node", "a/b"][..], "is no name of a node"),
        (&["lxcfs-node", "--config", "durward.yaml"], "--node"),
        (&["lxcfs-node", "--config", "none.yaml", "--node", "n1"], "none.yaml"),
        (&["lxcfs-device", "--config", "durward.yaml", "--devices", "0"], "0"),
    ] {
        let run = house.run(arguments);
        assert_eq!(run.code, 2, "{}", run.err);
        assert!(run.err.contains(expected), "{arguments:?}: {}", run.err);
    }
    house.configure("  deletion: {}\n");
    let run = house.run(&["lxcfs-device", "--config", "durward.yaml"]);
    assert_eq!(run.code, 2);
    assert!(run.err.contains("the lxcfs guard is not on"), "{}", run.err);
}
