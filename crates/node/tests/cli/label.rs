//! `label`, with a test API server that has one Node.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use crate::harness::{Agent, Node};

const LABEL: &str = "durward.dev/lxcfs-ready";
const ANNOTATION: &str = "durward.dev/lxcfs-node";

/// The Node and all requests.
#[derive(Default)]
struct State {
    node: Value,
    requests: Vec<String>,
}

/// An API server; its threads end with the test process.
struct ApiServer {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl ApiServer {
    fn start() -> Self {
        let node = json!({"metadata": {"name": "n1", "labels": {"kept": "yes"}}});
        let state = Arc::new(Mutex::new(State { node, requests: Vec::new() }));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let state = Arc::clone(&shared);
                thread::spawn(move || answer(stream.unwrap(), &state));
            }
        });
        Self { address, state }
    }

    fn metadata(&self) -> Value {
        self.state.lock().unwrap().node["metadata"].clone()
    }

    fn requests(&self) -> Vec<String> {
        self.state.lock().unwrap().requests.clone()
    }
}

/// Answers one request and closes the connection.
fn answer(mut stream: TcpStream, state: &Mutex<State>) {
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
    let mut state = state.lock().unwrap();
    if line.starts_with("PATCH") {
        assert!(top.to_ascii_lowercase().contains("content-type: application/merge-patch+json"), "{top}");
        json_patch::merge(&mut state.node, &serde_json::from_slice(&body).unwrap());
    }
    state.requests.push(line);
    let text = state.node.to_string();
    let begin = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
    let _ = write!(stream, "{begin}\r\ncontent-length: {}\r\n\r\n{text}", text.len());
}

/// Creates a node and a kubeconfig for the API server.
fn node(api: &ApiServer, options: &str) -> Node {
    let node = Node::new(options);
    node.write("kubeconfig", &kubeconfig(api.address.port()));
    node
}

fn kubeconfig(port: u16) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: \"http://127.0.0.1:{port}\"}}}}]\n\
         users: [{{name: u, user: {{}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n",
    )
}

fn start(node: &Node) -> Agent {
    let line = "label --config durward.yaml --proc proc --node n1 --kubeconfig kubeconfig \
                --probe-interval-ms 50";
    node.start(&line.split_whitespace().collect::<Vec<_>>())
}

#[test]
fn labels_the_node_while_lxcfs_serves_and_keeps_the_label_when_the_agent_stops() {
    let api = ApiServer::start();
    let node = node(&api, "nodeAffinity: required");
    let mut agent = start(&node);
    agent.wait_until("the label is set", || api.metadata()["labels"][LABEL] == "true");
    let report: Value =
        serde_json::from_str(api.metadata()["annotations"][ANNOTATION].as_str().unwrap()).unwrap();
    assert_eq!(report["root"], node.root().to_str().unwrap());
    assert_eq!(
        (&report["files"]["meminfo"], &report["files"]["slabinfo"]),
        (&json!("served"), &json!("served"))
    );
    assert!(report["time"].as_str().unwrap().starts_with("20"), "{report}");
    node.remove_file("/proc/uptime");
    agent.wait_until("the label is removed", || api.metadata()["labels"] == json!({"kept": "yes"}));
    let report = api.metadata()["annotations"][ANNOTATION].as_str().unwrap().to_owned();
    assert!(report.contains("\"uptime\":\"missing\""), "{report}");
    node.write_file("/proc/uptime", "1.0 1.0\n");
    agent.wait_until("the label is set again", || api.metadata()["labels"][LABEL] == "true");
    node.mount("ext4");
    agent.wait_until("the label is removed again", || api.metadata()["labels"] == json!({"kept": "yes"}));
    node.mount("fuse.lxcfs");
    agent.wait_until("the label is set a third time", || api.metadata()["labels"][LABEL] == "true");
    let before = api.metadata();
    assert_eq!(agent.stop().code(), Some(0));
    assert_eq!(api.metadata(), before, "stopping changes nothing");
    assert_eq!(before["labels"], json!({"kept": "yes", LABEL: "true"}));
    let requests = api.requests();
    assert!(requests.iter().all(|line| line.starts_with("PATCH /api/v1/nodes/n1?")), "{requests:?}");
    assert_eq!(requests.len(), 5, "{requests:?}");
}

#[test]
fn sends_no_request_without_node_readiness() {
    let api = ApiServer::start();
    let node = node(&api, "nodeAffinity: none");
    let mut agent = start(&node);
    agent.wait_for_message("LXCFS serves all files");
    node.remove_file("/proc/uptime");
    agent.wait_for_message("LXCFS does not serve all files");
    assert_eq!(agent.stop().code(), Some(0));
    assert_eq!(api.requests(), [""; 0]);
}

#[test]
fn logs_the_command_that_removes_a_label_that_it_could_not_remove() {
    let api = ApiServer::start();
    let node = node(&api, "nodeAffinity: preferred");
    node.remove_file("/proc/uptime");
    node.write("kubeconfig", &kubeconfig(1));
    let mut agent = start(&node);
    agent.wait_for_message("could not write label and annotation");
    assert_eq!(agent.stop().code(), Some(1));
    let line = agent.wait_for_log(|line| line["level"] == "ERROR");
    assert_eq!(line["fix"], "kubectl label node n1 durward.dev/lxcfs-ready-");
}

#[test]
fn rejects_bad_input_before_it_starts() {
    let node = Node::new("");
    for (line, expected) in [
        ("label --config durward.yaml --node a/b", "is not a node name"),
        ("label --config durward.yaml", "--node"),
        ("label --config none.yaml --node n1", "none.yaml"),
        ("label --config durward.yaml --node n1 --log-level inof", "inof"),
        ("device-plugin --config durward.yaml --devices 0", "0"),
    ] {
        let (code, error) = node.run(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(code, 2, "{error}");
        assert!(error.contains(expected), "{line}: {error}");
    }
    node.write(
        "durward.yaml",
        "apiVersion: durward.dev/v1alpha1\nkind: Configuration\nguards: {deletion: {}}\n",
    );
    let (code, error) = node.run(&["device-plugin", "--config", "durward.yaml"]);
    assert_eq!(code, 2);
    assert!(error.contains("the lxcfs guard is off"), "{error}");
}

#[test]
fn removed_flags_are_refused_with_the_successor() {
    let node = Node::new("");
    for (flag, words) in [("--library", "drain the node"), ("--pid-file", "reads only the files")] {
        let (code, error) = node.run(&["label", "--config", "durward.yaml", "--node", "n1", flag, "/x"]);
        assert_eq!(code, 2, "{error}");
        assert!(error.contains("was removed") && error.contains(words), "{error}");
    }
}
