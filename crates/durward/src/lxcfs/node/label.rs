//! Keeps label and annotation on the Node: written when something has changed, and looked at now and then, since others write
//! there too.
//!
//! By merge patch of these two keys alone: whatever else stands on the Node is not read and not touched, the kubelet's own
//! heartbeats never conflict with it, and a Node that is not there is not made.

use std::collections::BTreeMap;
use std::time::Duration;

use guards::lxcfs::{NODE_ANNOTATION, READY_LABEL};
use guards::world::live::{Access, client};
use hyper::Request;
use hyper::header::{ACCEPT, CONTENT_TYPE};
use kube::Client;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// How often the Node is read without a reason: five thousand nodes are 17 small requests a second.
const LOOKS: Duration = Duration::from_secs(300);

/// One request: the API server takes a minute for a slow one, and the label must follow.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// After a failure, doubled with each one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What the Node should say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Whether pods that need the files may come.
    pub(super) is_ready: bool,
    /// The annotation.
    pub(super) report: String,
}

/// What the Node says: label and annotation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Says {
    label: Option<String>,
    annotation: Option<String>,
}

impl Says {
    fn as_wanted(wanted: Option<&Wanted>) -> Self {
        Self {
            label: wanted.filter(|wanted| wanted.is_ready).map(|_| "true".to_owned()),
            annotation: wanted.map(|wanted| wanted.report.clone()),
        }
    }
}

/// As much of a Node as matters.
#[derive(Debug, Deserialize)]
struct Node {
    metadata: Metadata,
}

#[derive(Debug, Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Metadata {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

impl From<Node> for Says {
    fn from(Node { metadata: Metadata { mut labels, mut annotations } }: Node) -> Self {
        Self { label: labels.remove(READY_LABEL), annotation: annotations.remove(NODE_ANNOTATION) }
    }
}

/// One Node of an API server.
pub(super) struct Nodes {
    access: Access,
    client: Option<Client>,
    name: String,
}

impl Nodes {
    /// Nothing is connected before there is something to say.
    pub(super) fn of(access: Access, name: &str) -> Self {
        Self { access, client: None, name: name.to_owned() }
    }

    async fn read(&mut self) -> Result<Says, String> {
        self.ask("GET", "", Vec::new()).await
    }

    async fn write(&mut self, says: &Says) -> Result<Says, String> {
        let patch = json!({"metadata": {
            "labels": {READY_LABEL: says.label}, "annotations": {NODE_ANNOTATION: says.annotation},
        }});
        self.ask("PATCH", "?fieldManager=durward-lxcfs-node", patch.to_string().into_bytes()).await
    }

    async fn ask(&mut self, method: &str, query: &str, body: Vec<u8>) -> Result<Says, String> {
        let client = if let Some(client) = &self.client {
            client.clone()
        } else {
            let (made, _) = client(&self.access).await.map_err(|problem| problem.to_string())?;
            self.client.insert(made).clone()
        };
        let request = Request::builder()
            .method(method)
            .uri(format!("/api/v1/nodes/{}{query}", self.name))
            .header(ACCEPT, "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json")
            .header(CONTENT_TYPE, "application/merge-patch+json")
            .body(body)
            .map_err(|error| error.to_string())?;
        let answer = timeout(ANSWER_WITHIN, client.request::<Node>(request)).await;
        let answer = answer.map_err(|_| format!("no answer in {} s", ANSWER_WITHIN.as_secs()))?;
        answer.map(Says::from).map_err(|error| self.why(method, &error))
    }

    fn why(&self, method: &str, error: &kube::Error) -> String {
        let kube::Error::Api(status) = error else {
            let mut text = error.to_string();
            let mut source = std::error::Error::source(error);
            while let Some(inner) = source {
                text = format!("{text}: {inner}");
                source = inner.source();
            }
            return text;
        };
        let name = &self.name;
        match status.code {
            404 => format!("there is no node {name:?}: --node must be spec.nodeName"),
            403 => format!(
                "it is not permitted to {} nodes: the service account needs get and patch on nodes, or set nodeReadiness: ignore",
                method.to_lowercase()
            ),
            code => format!("the API server answers {code}: {}", status.message),
        }
    }
}

/// Whether a text may be the name of a node, and so stand in a path.
pub(super) fn is_name(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    let is_edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.len() <= 253 && text.chars().all(is_plain) && text.starts_with(is_edge) && text.ends_with(is_edge)
}

/// Keeps what is wanted on the Node until nobody can want anything any more; then whatever was wanted last is tried once. As
/// long as nothing has ever been wanted, the API server is left alone. Whether the Node says in the end what was wanted last.
pub(super) async fn keep(mut nodes: Nodes, mut wanted: watch::Receiver<Option<Wanted>>) -> bool {
    let mut says = None;
    let mut has_told = false;
    let mut failures = 0_u32;
    loop {
        let is_last = wanted.has_changed().is_err();
        let want = wanted.borrow_and_update().clone();
        has_told |= want.is_some();
        let kept = if has_told { set(&mut nodes, &mut says, want.as_ref()).await } else { Ok(()) };
        match &kept {
            Ok(()) => failures = 0,
            Err(why) => {
                failures += 1;
                // What is there is not known for certain any more.
                says = None;
                if failures.is_power_of_two() || is_last {
                    tracing::warn!(
                        node = nodes.name,
                        why,
                        failures,
                        "the node cannot be told how LXCFS does"
                    );
                }
            }
        }
        if is_last {
            if kept.is_err() {
                let mend = format!("kubectl label node {} {READY_LABEL}-", nodes.name);
                tracing::error!(node = nodes.name, mend, "the label may still be there");
            }
            return kept.is_ok();
        }
        let pause = match failures {
            0 => LOOKS,
            _ => FIRST_PAUSE.saturating_mul(1 << (failures - 1).min(6)).min(LONGEST_PAUSE),
        };
        tokio::select! {
            _ = wanted.changed() => {
                // What changes every moment while nobody answers is not asked for every moment.
                if failures > 0 { sleep(FIRST_PAUSE).await; }
            }
            () = sleep(pause) => says = None,
        }
    }
}

/// Writes what is wanted where the Node says anything else.
async fn set(nodes: &mut Nodes, says: &mut Option<Says>, want: Option<&Wanted>) -> Result<(), String> {
    let wanted = Says::as_wanted(want);
    let now = match says.take() {
        Some(known) => known,
        None => nodes.read().await?,
    };
    if now == wanted {
        *says = Some(now);
        return Ok(());
    }
    let label = wanted.label.as_deref().unwrap_or("none");
    let written = nodes.write(&wanted).await?;
    if written.label != now.label {
        tracing::info!(node = nodes.name, label, "{READY_LABEL} is written");
    }
    *says = Some(written);
    Ok(())
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, Full};
    use hyper::Response;
    use hyper::body::Bytes;
    use kube::client::Body;
    use serde_json::Value;
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A Node, and what was asked of it.
    #[derive(Default)]
    struct Held {
        node: Value,
        asked: Vec<String>,
        refuses: Option<u16>,
    }

    type Fake = Arc<Mutex<Held>>;

    fn fake(node: Value) -> (Fake, Nodes) {
        let fake = Arc::new(Mutex::new(Held { node, ..Held::default() }));
        let shared = Arc::clone(&fake);
        let service = tower::service_fn(move |request: Request<Body>| {
            let held = Arc::clone(&shared);
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
                let mut held = held.lock().unwrap();
                held.asked.push(format!("{} {}", parts.method, parts.uri));
                if let Some(code) = held.refuses {
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
        let nodes = Nodes {
            access: Access::default(),
            client: Some(Client::new(service, "default")),
            name: "n1".to_owned(),
        };
        (fake, nodes)
    }

    fn ready() -> Wanted {
        Wanted { is_ready: true, report: "{}".to_owned() }
    }

    /// Until nobody has anything to do: the clock is paused.
    async fn settled() {
        sleep(Duration::from_millis(1)).await;
    }

    fn others() -> Value {
        json!({"metadata": {"name": "n1", "labels": {"a": "b"}, "annotations": {"c": "d"}}})
    }

    #[tokio::test(start_paused = true)]
    async fn the_node_is_written_when_something_changed_and_left_as_it_was_at_the_end() {
        let (held, nodes) = fake(others());
        let (tell, wanted) = watch::channel(None);
        let keeper = tokio::spawn(keep(nodes, wanted));
        settled().await;
        assert!(held.lock().unwrap().asked.is_empty(), "nobody wants anything yet");
        tell.send_replace(Some(ready()));
        settled().await;
        let labels = || held.lock().unwrap().node["metadata"]["labels"].clone();
        assert_eq!(labels(), json!({"a": "b", READY_LABEL: "true"}));
        tell.send_replace(Some(Wanted { is_ready: false, report: "{\"x\":1}".to_owned() }));
        settled().await;
        assert_eq!(labels(), json!({"a": "b"}));
        assert_eq!(held.lock().unwrap().node["metadata"]["annotations"][NODE_ANNOTATION], "{\"x\":1}");
        let written = "PATCH /api/v1/nodes/n1?fieldManager=durward-lxcfs-node";
        assert_eq!(held.lock().unwrap().asked, ["GET /api/v1/nodes/n1", written, written]);
        tell.send_replace(None);
        drop(tell);
        assert!(keeper.await.unwrap());
        assert_eq!(held.lock().unwrap().node, others());
    }

    #[tokio::test(start_paused = true)]
    async fn what_somebody_took_away_is_put_back_at_the_next_look() {
        let (held, nodes) = fake(others());
        let (tell, wanted) = watch::channel(Some(ready()));
        let _keeper = tokio::spawn(keep(nodes, wanted));
        settled().await;
        held.lock().unwrap().node = others();
        sleep(LOOKS).await;
        settled().await;
        let held = held.lock().unwrap();
        assert_eq!(held.node["metadata"]["labels"][READY_LABEL], "true");
        assert_eq!(held.asked.len(), 4, "{:?}", held.asked);
        drop(tell);
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_refuses_is_asked_ever_less_often_and_told_when_it_is_back() {
        let (held, nodes) = fake(others());
        held.lock().unwrap().refuses = Some(503);
        let (tell, wanted) = watch::channel(Some(ready()));
        let _keeper = tokio::spawn(keep(nodes, wanted));
        sleep(Duration::from_secs(600)).await;
        let asked = held.lock().unwrap().asked.len();
        assert!((12..=20).contains(&asked), "{asked}");
        held.lock().unwrap().refuses = None;
        sleep(LONGEST_PAUSE).await;
        settled().await;
        assert_eq!(held.lock().unwrap().node["metadata"]["labels"][READY_LABEL], "true");
        drop(tell);
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_comes_even_where_nobody_answers() {
        let (held, nodes) = fake(others());
        held.lock().unwrap().refuses = Some(403);
        let (tell, wanted) = watch::channel(Some(ready()));
        let keeper = tokio::spawn(keep(nodes, wanted));
        settled().await;
        tell.send_replace(None);
        drop(tell);
        assert!(!keeper.await.unwrap(), "it was not taken off");
    }

    #[tokio::test]
    async fn a_refusal_says_what_to_do() {
        for (code, expected) in
            [(403, "get and patch on nodes"), (404, "spec.nodeName"), (500, "answers 500: no")]
        {
            let (held, mut nodes) = fake(others());
            held.lock().unwrap().refuses = Some(code);
            let why = nodes.read().await.unwrap_err();
            assert!(why.contains(expected), "{why}");
        }
    }

    #[test]
    fn only_what_may_be_a_name_gets_into_a_path() {
        for (name, expected) in [
            ("n1", true),
            ("ip-10-0-0-1.ec2.internal", true),
            ("", false),
            ("../pods", false),
            ("a/b", false),
            ("N", false),
            ("a-", false),
        ] {
            assert_eq!(is_name(name), expected, "{name}");
        }
    }
}
