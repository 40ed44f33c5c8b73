//! Writes label and annotation of the Node: after each change, and again every few minutes. Others can remove them, and the time in
//! the annotation shows readers that the agent still runs.
//!
//! The request is a merge patch of these two keys. So it reads nothing of the Node, changes nothing else, never conflicts with the
//! kubelet's heartbeats, and creates no Node.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use config::with_sources;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use lxcfs::{NODE_ANNOTATION, READY_LABEL};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::super::annotation::NodeAnnotation;

/// Time between two writes without a change: 17 small requests a second from 5,000 nodes. `doctor` reports an annotation that
/// missed three of them.
const RENEW_INTERVAL: Duration = Duration::from_secs(300);

/// Timeout of one request. The API server allows itself a minute, which is too long for the label.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The field manager of label and annotation.
const FIELD_MANAGER: &str = "durward-lxcfs-node";

/// Pauses after failures; each doubles the one before.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// Flags for the API server.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct AccessArgs {
    /// Kubeconfig of the cluster (default in a pod: its own cluster)
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Kubeconfig context
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl AccessArgs {
    async fn connect(&self) -> Result<Client, String> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let mut config = match &self.kubeconfig {
            Some(path) => {
                let kubeconfig = Kubeconfig::read_from(path).map_err(|error| with_sources(&error))?;
                Config::from_custom_kubeconfig(kubeconfig, &options)
                    .await
                    .map_err(|error| with_sources(&error))?
            }
            None if self.context.is_some() => {
                Config::from_kubeconfig(&options).await.map_err(|error| with_sources(&error))?
            }
            None => Config::infer().await.map_err(|error| with_sources(&error))?,
        };
        // The writer has its own backoff.
        config.default_retry = false;
        // A credential plugin is a program; starting it blocks.
        let client =
            spawn_blocking(move || Client::try_from(config)).await.map_err(|error| error.to_string())?;
        client.map_err(|error| with_sources(&error))
    }
}

/// The desired state of the Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DesiredNode {
    /// Whether the Node has the label.
    pub(super) is_ready: bool,
    /// The annotation without its time.
    pub(super) report: NodeAnnotation,
}

/// Patches one Node.
pub(super) struct NodeClient {
    access: AccessArgs,
    client: Option<Client>,
    name: String,
    /// Whether the last answer was that the Node does not exist.
    is_missing: bool,
}

impl NodeClient {
    /// Connects at the first write.
    pub(super) fn new(access: AccessArgs, name: &str) -> Self {
        Self { access, client: None, name: name.to_owned(), is_missing: false }
    }

    /// Writes both keys, or removes both without a state.
    async fn write(&mut self, state: Option<&DesiredNode>, now: SystemTime) -> Result<(), String> {
        let label = state.filter(|state| state.is_ready).map(|_| "true");
        let annotation = state.map(|state| state.report.to_text(now));
        let patch = json!({"metadata": {"labels": {READY_LABEL: label}, "annotations": {NODE_ANNOTATION: annotation}}});
        let answer = timeout(REQUEST_TIMEOUT, self.send(&Patch::Merge(patch))).await;
        answer.map_err(|_| format!("no response in {} s", REQUEST_TIMEOUT.as_secs()))?
    }

    async fn send(&mut self, patch: &Patch<Value>) -> Result<(), String> {
        let client = match &self.client {
            Some(client) => client.clone(),
            None => self.client.insert(self.access.connect().await?).clone(),
        };
        let api: Api<Node> = Api::all(client);
        let parameters =
            PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let answer = api.patch_metadata(&self.name, &parameters, patch).await;
        let code = match &answer {
            Err(kube::Error::Api(status)) => Some(status.code),
            _ => None,
        };
        if answer.is_err() && matches!(code, None | Some(401)) {
            // The CA or the token can have changed. The next write reads the files again.
            self.client = None;
        }
        self.is_missing = code == Some(404);
        answer.map(drop).map_err(|error| self.describe(&error))
    }

    fn describe(&self, error: &kube::Error) -> String {
        let kube::Error::Api(status) = error else { return with_sources(error) };
        let (name, message) = (&self.name, &status.message);
        match status.code {
            404 => format!("node {name:?} does not exist: --node must be spec.nodeName"),
            403 => format!(
                "{message}: the service account needs permission to patch nodes (deploy/lxcfs/rbac.yaml), or set nodeAffinity: none"
            ),
            401 => format!("the API server does not accept the credentials (401): {message}"),
            code => format!("the API server returned {code}: {message}"),
        }
    }
}

/// Writes the desired state to the Node until the sender is dropped, and then leaves the last state there. Sends no request before
/// the first state. Returns false if the Node may have the label in the end although it must not.
pub(super) async fn run_writer(
    mut client: NodeClient,
    mut receiver: watch::Receiver<Option<DesiredNode>>,
    clock: fn() -> SystemTime,
) -> bool {
    // The state on the Node; none if it is unknown or due to be renewed.
    let mut written = None;
    let mut logged_label = None;
    let mut is_started = false;
    let mut failures = 0_u32;
    loop {
        let is_last = receiver.has_changed().is_err();
        let state = receiver.borrow_and_update().clone();
        let is_ready = state.as_ref().is_some_and(|state| state.is_ready);
        is_started |= state.is_some();
        let result = if is_started && written.as_ref() != Some(&state) {
            client.write(state.as_ref(), clock()).await
        } else {
            Ok(())
        };
        match &result {
            Ok(()) => {
                failures = 0;
                if is_started && logged_label.replace(is_ready) != Some(is_ready) {
                    let label = if is_ready { "true" } else { "none" };
                    tracing::info!(node = client.name, label, "wrote label {READY_LABEL}");
                }
                written = Some(state);
            }
            Err(why) => {
                failures += 1;
                written = None;
                if failures.is_power_of_two() || is_last {
                    tracing::warn!(
                        node = client.name,
                        why,
                        failures,
                        "could not write label and annotation of the node"
                    );
                }
            }
        }
        if is_last {
            let is_right = result.is_ok() || is_ready || client.is_missing;
            if !is_right {
                let fix = format!("kubectl label node {} {READY_LABEL}-", client.name);
                tracing::error!(node = client.name, fix, "the label can still be on the node");
            }
            return is_right;
        }
        let pause = match failures {
            0 => RENEW_INTERVAL,
            _ => FIRST_BACKOFF.saturating_mul(1 << (failures - 1).min(6)).min(MAX_BACKOFF),
        };
        tokio::select! {
            _ = receiver.changed() => {
                // The state can change at every probe; a failing API server gets at most one request a second.
                if failures > 0 { sleep(FIRST_BACKOFF).await; }
            }
            () = sleep(pause) => written = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, Full};
    use hyper::body::Bytes;
    use hyper::{Request, Response};
    use kube::client::Body;
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A Node, and the requests for it.
    #[derive(Default)]
    struct FakeNode {
        node: Value,
        requests: Vec<String>,
        error_code: Option<u16>,
    }

    type Fake = Arc<Mutex<FakeNode>>;

    fn fake(node: Value) -> (Fake, NodeClient) {
        let fake = Arc::new(Mutex::new(FakeNode { node, ..FakeNode::default() }));
        let shared = Arc::clone(&fake);
        let service = tower::service_fn(move |request: Request<Body>| {
            let held = Arc::clone(&shared);
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
                let mut held = held.lock().unwrap();
                held.requests.push(format!("{} {}", parts.method, parts.uri));
                if let Some(code) = held.error_code {
                    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "code": code});
                    let response = Response::builder().status(code);
                    return Ok::<_, String>(
                        response.body(Full::new(Bytes::from(status.to_string()))).unwrap(),
                    );
                }
                if !body.is_empty() {
                    json_patch::merge(&mut held.node, &serde_json::from_slice(&body).unwrap());
                }
                Ok(Response::new(Full::new(Bytes::from(held.node.to_string()))))
            }
        });
        let client = NodeClient {
            access: AccessArgs::default(),
            client: Some(Client::new(service, "default")),
            name: "n1".to_owned(),
            is_missing: false,
        };
        (fake, client)
    }

    fn ready() -> DesiredNode {
        DesiredNode {
            is_ready: true,
            report: NodeAnnotation { root: "/l".to_owned(), ..NodeAnnotation::default() },
        }
    }

    fn not_ready() -> DesiredNode {
        DesiredNode { is_ready: false, ..ready() }
    }

    /// Waits until all tasks are idle: the clock is paused.
    async fn settled() {
        sleep(Duration::from_millis(1)).await;
    }

    fn other_keys() -> Value {
        json!({"metadata": {"name": "n1", "labels": {"a": "b"}, "annotations": {"c": "d"}}})
    }

    /// Returns the time of day of the paused clock.
    fn clock() -> SystemTime {
        // Each test has its own thread and clock.
        thread_local! { static START: tokio::time::Instant = tokio::time::Instant::now(); }
        SystemTime::UNIX_EPOCH + START.with(tokio::time::Instant::elapsed)
    }

    fn labels(held: &Fake) -> Value {
        held.lock().unwrap().node["metadata"]["labels"].clone()
    }

    fn report(held: &Fake) -> NodeAnnotation {
        let node = &held.lock().unwrap().node;
        serde_json::from_str(node["metadata"]["annotations"][NODE_ANNOTATION].as_str().unwrap()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn writes_changes_and_leaves_the_last_state_at_the_end() {
        for (last, label) in
            [(ready(), json!({"a": "b", READY_LABEL: "true"})), (not_ready(), json!({"a": "b"}))]
        {
            let (held, client) = fake(other_keys());
            let (sender, receiver) = watch::channel(None);
            let writer = tokio::spawn(run_writer(client, receiver, clock));
            settled().await;
            assert!(held.lock().unwrap().requests.is_empty(), "there is no state yet");
            sender.send_replace(Some(ready()));
            settled().await;
            assert_eq!(labels(&held), json!({"a": "b", READY_LABEL: "true"}));
            sender.send_replace(Some(not_ready()));
            settled().await;
            assert_eq!(labels(&held), json!({"a": "b"}));
            assert_eq!(report(&held).root, "/l");
            sender.send_replace(Some(last));
            settled().await;
            let requests = held.lock().unwrap().requests.clone();
            assert!(
                requests.iter().all(|one| one == "PATCH /api/v1/nodes/n1?&fieldManager=durward-lxcfs-node")
            );
            drop(sender);
            assert!(writer.await.unwrap());
            assert_eq!((labels(&held), report(&held).root), (label, "/l".to_owned()));
            assert_eq!(held.lock().unwrap().requests, requests, "stopping writes nothing");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn removes_label_and_annotation_without_a_state() {
        let (held, client) = fake(other_keys());
        let (sender, receiver) = watch::channel(Some(ready()));
        let _writer = tokio::spawn(run_writer(client, receiver, clock));
        settled().await;
        sender.send_replace(None);
        settled().await;
        assert_eq!(held.lock().unwrap().node, other_keys());
    }

    #[tokio::test(start_paused = true)]
    async fn renews_the_time_and_restores_a_label_that_was_removed() {
        let (held, client) = fake(other_keys());
        let (sender, receiver) = watch::channel(Some(ready()));
        let _writer = tokio::spawn(run_writer(client, receiver, clock));
        settled().await;
        let first = report(&held);
        held.lock().unwrap().node = other_keys();
        sleep(RENEW_INTERVAL).await;
        settled().await;
        assert_eq!(labels(&held)[READY_LABEL], "true");
        let second = report(&held);
        let now = clock();
        let ages = (first.age(now).unwrap().as_secs(), second.age(now).unwrap().as_secs());
        assert!((300..=301).contains(&ages.0) && ages.1 <= 1, "{ages:?}");
        assert_eq!(held.lock().unwrap().requests.len(), 2);
        drop(sender);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failing_api_server_gets_fewer_requests_and_the_state_when_it_works_again() {
        let (held, client) = fake(other_keys());
        held.lock().unwrap().error_code = Some(503);
        let (sender, receiver) = watch::channel(Some(ready()));
        let _writer = tokio::spawn(run_writer(client, receiver, clock));
        sleep(Duration::from_secs(600)).await;
        let requests = held.lock().unwrap().requests.len();
        assert!((12..=20).contains(&requests), "{requests}");
        held.lock().unwrap().error_code = None;
        sleep(MAX_BACKOFF).await;
        settled().await;
        assert_eq!(held.lock().unwrap().node["metadata"]["labels"][READY_LABEL], "true");
        drop(sender);
    }

    #[tokio::test(start_paused = true)]
    async fn stops_while_the_api_server_fails_and_returns_whether_the_label_is_right() {
        // A missing Node has no label.
        for (last, code, is_right) in
            [(ready(), 403, true), (not_ready(), 403, false), (not_ready(), 404, true)]
        {
            let (held, client) = fake(other_keys());
            held.lock().unwrap().error_code = Some(code);
            let (sender, receiver) = watch::channel(Some(ready()));
            let writer = tokio::spawn(run_writer(client, receiver, clock));
            settled().await;
            sender.send_replace(Some(last));
            drop(sender);
            assert_eq!(writer.await.unwrap(), is_right);
        }
    }

    #[tokio::test]
    async fn describes_how_to_fix_an_error() {
        for (code, expected) in
            [(403, "needs permission to patch nodes"), (404, "spec.nodeName"), (500, "returned 500: no")]
        {
            let (held, mut client) = fake(other_keys());
            held.lock().unwrap().error_code = Some(code);
            let why = client.write(None, SystemTime::UNIX_EPOCH).await.unwrap_err();
            assert!(why.contains(expected), "{why}");
        }
    }
}
