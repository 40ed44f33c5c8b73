//! Keeps label and annotation on the Node: written when something has changed, and again every few minutes, since others write
//! there too, and since whoever reads the annotation is to see that somebody still looks.
//!
//! By merge patch of these two keys alone: nothing of the Node is read and nothing else touched, the kubelet's own heartbeats never
//! conflict with it, and a Node that is not there is not made.

use std::time::{Duration, SystemTime};

use cluster::live::{Access, client};
use guards::lxcfs::{NODE_ANNOTATION, READY_LABEL};
use hyper::Request;
use hyper::header::{ACCEPT, CONTENT_TYPE};
use kube::Client;
use serde::de::IgnoredAny;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::super::report::Report;

/// How often the Node is written without a reason: five thousand nodes are 17 small requests a second. `doctor` takes an
/// annotation for old that missed three of them.
const RENEWALS: Duration = Duration::from_secs(300);

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
    /// The annotation, but for its time.
    pub(super) report: Report,
}

/// One Node of an API server.
pub(super) struct Nodes {
    access: Access,
    client: Option<Client>,
    name: String,
    /// Whether the API server said last that there is no such Node.
    is_missing: bool,
}

impl Nodes {
    /// Nothing is connected before there is something to say.
    pub(super) fn of(access: Access, name: &str) -> Self {
        Self { access, client: None, name: name.to_owned(), is_missing: false }
    }

    /// Writes both keys, or takes both off.
    async fn write(&mut self, wanted: Option<&Wanted>, now: SystemTime) -> Result<(), String> {
        let label = wanted.filter(|wanted| wanted.is_ready).map(|_| "true");
        let annotation = wanted.map(|wanted| wanted.report.text(now));
        let patch = json!({"metadata": {"labels": {READY_LABEL: label}, "annotations": {NODE_ANNOTATION: annotation}}});
        let client = if let Some(client) = &self.client {
            client.clone()
        } else {
            let (made, _) = client(&self.access).await.map_err(|problem| problem.to_string())?;
            self.client.insert(made).clone()
        };
        let request = Request::patch(format!("/api/v1/nodes/{}?fieldManager=durward-lxcfs-node", self.name))
            .header(ACCEPT, "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json")
            .header(CONTENT_TYPE, "application/merge-patch+json")
            .body(patch.to_string().into_bytes())
            .map_err(|error| error.to_string())?;
        let answer = timeout(ANSWER_WITHIN, client.request::<IgnoredAny>(request)).await;
        let answer = answer.map_err(|_| format!("no answer in {} s", ANSWER_WITHIN.as_secs()))?;
        if matches!(&answer, Err(error) if !matches!(error, kube::Error::Api(_))) {
            // Another authority or another token may be needed by now, so the next one is made from what lies there then.
            self.client = None;
        }
        self.is_missing = matches!(&answer, Err(kube::Error::Api(status)) if status.code == 404);
        answer.map(drop).map_err(|error| self.why(&error))
    }

    fn why(&self, error: &kube::Error) -> String {
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
                "{}: the service account needs patch on nodes (deploy/lxcfs/rbac.yaml), or set nodeReadiness: ignore",
                status.message
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

/// Keeps what is wanted on the Node until nobody can want anything any more; then whatever was wanted last stays there. As long as
/// nothing has ever been wanted, the API server is left alone. False if the label may be there in the end and should not be.
pub(super) async fn keep(
    mut nodes: Nodes,
    mut wanted: watch::Receiver<Option<Wanted>>,
    clock: fn() -> SystemTime,
) -> bool {
    // What was written, and need not be written again yet.
    let mut says = None;
    let mut label = None;
    let mut has_told = false;
    let mut failures = 0_u32;
    loop {
        let is_last = wanted.has_changed().is_err();
        let want = wanted.borrow_and_update().clone();
        let is_ready = want.as_ref().is_some_and(|want| want.is_ready);
        has_told |= want.is_some();
        let kept = if has_told && says.as_ref() != Some(&want) {
            nodes.write(want.as_ref(), clock()).await
        } else {
            Ok(())
        };
        match &kept {
            Ok(()) => {
                failures = 0;
                if has_told && label.replace(is_ready) != Some(is_ready) {
                    let label = if is_ready { "true" } else { "none" };
                    tracing::info!(node = nodes.name, label, "{READY_LABEL} is written");
                }
                says = Some(want);
            }
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
            // Nothing stands on a Node that is not there.
            let is_well = kept.is_ok() || is_ready || nodes.is_missing;
            if !is_well {
                let mend = format!("kubectl label node {} {READY_LABEL}-", nodes.name);
                tracing::error!(node = nodes.name, mend, "the label may still be there");
            }
            return is_well;
        }
        let pause = match failures {
            0 => RENEWALS,
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
            is_missing: false,
        };
        (fake, nodes)
    }

    fn ready() -> Wanted {
        Wanted { is_ready: true, report: Report { root: "/l".to_owned(), ..Report::default() } }
    }

    fn ill() -> Wanted {
        Wanted { is_ready: false, ..ready() }
    }

    /// Until nobody has anything to do: the clock is paused.
    async fn settled() {
        sleep(Duration::from_millis(1)).await;
    }

    fn others() -> Value {
        json!({"metadata": {"name": "n1", "labels": {"a": "b"}, "annotations": {"c": "d"}}})
    }

    /// The paused clock's time of day.
    fn clock() -> SystemTime {
        // Each test has a thread and a clock of its own.
        thread_local! { static BEGAN: tokio::time::Instant = tokio::time::Instant::now(); }
        SystemTime::UNIX_EPOCH + BEGAN.with(tokio::time::Instant::elapsed)
    }

    fn labels(held: &Fake) -> Value {
        held.lock().unwrap().node["metadata"]["labels"].clone()
    }

    fn report(held: &Fake) -> Report {
        let node = &held.lock().unwrap().node;
        serde_json::from_str(node["metadata"]["annotations"][NODE_ANNOTATION].as_str().unwrap()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn the_node_is_written_when_something_changed_and_left_as_it_is_at_the_end() {
        for (last, label) in [(ready(), json!({"a": "b", READY_LABEL: "true"})), (ill(), json!({"a": "b"}))] {
            let (held, nodes) = fake(others());
            let (tell, wanted) = watch::channel(None);
            let keeper = tokio::spawn(keep(nodes, wanted, clock));
            settled().await;
            assert!(held.lock().unwrap().asked.is_empty(), "nobody wants anything yet");
            tell.send_replace(Some(ready()));
            settled().await;
            assert_eq!(labels(&held), json!({"a": "b", READY_LABEL: "true"}));
            tell.send_replace(Some(ill()));
            settled().await;
            assert_eq!(labels(&held), json!({"a": "b"}));
            assert_eq!(report(&held).root, "/l");
            tell.send_replace(Some(last));
            settled().await;
            let asked = held.lock().unwrap().asked.clone();
            assert!(asked.iter().all(|one| one == "PATCH /api/v1/nodes/n1?fieldManager=durward-lxcfs-node"));
            drop(tell);
            assert!(keeper.await.unwrap());
            assert_eq!((labels(&held), report(&held).root), (label, "/l".to_owned()));
            assert_eq!(held.lock().unwrap().asked, asked, "the end itself writes nothing");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_wants_any_more_is_taken_off() {
        let (held, nodes) = fake(others());
        let (tell, wanted) = watch::channel(Some(ready()));
        let _keeper = tokio::spawn(keep(nodes, wanted, clock));
        settled().await;
        tell.send_replace(None);
        settled().await;
        assert_eq!(held.lock().unwrap().node, others());
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_is_renewed_and_what_somebody_took_away_is_put_back_with_it() {
        let (held, nodes) = fake(others());
        let (tell, wanted) = watch::channel(Some(ready()));
        let _keeper = tokio::spawn(keep(nodes, wanted, clock));
        settled().await;
        let first = report(&held);
        held.lock().unwrap().node = others();
        sleep(RENEWALS).await;
        settled().await;
        assert_eq!(labels(&held)[READY_LABEL], "true");
        let second = report(&held);
        let now = clock();
        let ages = (first.age(now).unwrap().as_secs(), second.age(now).unwrap().as_secs());
        assert!((300..=301).contains(&ages.0) && ages.1 <= 1, "{ages:?}");
        assert_eq!(held.lock().unwrap().asked.len(), 2);
        drop(tell);
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_refuses_is_asked_ever_less_often_and_told_when_it_is_back() {
        let (held, nodes) = fake(others());
        held.lock().unwrap().refuses = Some(503);
        let (tell, wanted) = watch::channel(Some(ready()));
        let _keeper = tokio::spawn(keep(nodes, wanted, clock));
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
    async fn the_end_comes_even_where_nobody_answers_and_tells_whether_the_label_may_be_wrong() {
        // On a Node that is not there no label is left.
        for (last, code, is_well) in [(ready(), 403, true), (ill(), 403, false), (ill(), 404, true)] {
            let (held, nodes) = fake(others());
            held.lock().unwrap().refuses = Some(code);
            let (tell, wanted) = watch::channel(Some(ready()));
            let keeper = tokio::spawn(keep(nodes, wanted, clock));
            settled().await;
            tell.send_replace(Some(last));
            drop(tell);
            assert_eq!(keeper.await.unwrap(), is_well);
        }
    }

    #[tokio::test]
    async fn a_refusal_says_what_to_do() {
        for (code, expected) in
            [(403, "needs patch on nodes"), (404, "spec.nodeName"), (500, "answers 500: no")]
        {
            let (held, mut nodes) = fake(others());
            held.lock().unwrap().refuses = Some(code);
            let why = nodes.write(None, SystemTime::UNIX_EPOCH).await.unwrap_err();
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
