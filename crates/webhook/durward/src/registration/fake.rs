//! An API server for tests, with the objects that Durward's installation reads and writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use hyper::{Method, Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::api::ApiClient;

const PREFIX: &str = "/apis/admissionregistration.k8s.io/v1";

/// The server. Clones share its objects.
#[derive(Clone, Default)]
pub(crate) struct FakeServer(Arc<Mutex<Objects>>);

#[derive(Default)]
struct Objects {
    /// By path.
    objects: BTreeMap<String, Value>,
    /// Names of the entries that the field manager has applied, by path.
    applied: BTreeMap<String, BTreeSet<String>>,
    /// Names of the entries of which another field manager owns a part.
    shared: BTreeSet<String>,
    version: u64,
    writes: Vec<String>,
    /// Methods and the parts of paths that are forbidden.
    forbidden: Vec<(Method, &'static str)>,
    /// Number of patches that another client precedes.
    conflicts: u32,
    /// Whether every request fails.
    is_stopped: bool,
}

/// Returns the path of the validating configuration.
pub(crate) fn validating() -> String {
    format!("{PREFIX}/validatingwebhookconfigurations/durward")
}

/// Returns the path of the mutating configuration.
pub(crate) fn mutating() -> String {
    format!("{PREFIX}/mutatingwebhookconfigurations/durward")
}

/// Returns the path of the native policy of a purpose.
pub(crate) fn policy(purpose: &str) -> String {
    format!("{PREFIX}/validatingadmissionpolicies/durward-{purpose}")
}

/// Returns the path of its binding.
pub(crate) fn binding(purpose: &str) -> String {
    format!("{PREFIX}/validatingadmissionpolicybindings/durward-{purpose}")
}

impl FakeServer {
    fn lock(&self) -> MutexGuard<'_, Objects> {
        self.0.lock().unwrap()
    }

    /// Returns a server with both configurations, labeled and empty, and a Namespace with this uid.
    pub(crate) fn installed(namespace_uid: &str) -> Self {
        let server = Self::default();
        for path in [validating(), mutating()] {
            server.put(
                &path,
                json!({"metadata": {"name": "durward", "uid": "w1", "labels": {"durward.dev/webhooks": "managed"}}}),
            );
        }
        server.put(
            "/api/v1/namespaces/durward-system",
            json!({"metadata": {"name": "durward-system", "uid": namespace_uid}}),
        );
        server
    }

    /// Stores an object.
    pub(crate) fn put(&self, path: &str, object: Value) {
        self.lock().put(path, object);
    }

    /// Returns an object.
    pub(crate) fn object(&self, path: &str) -> Value {
        self.lock().objects.get(path).cloned().unwrap_or_default()
    }

    /// Removes an object.
    pub(crate) fn remove(&self, path: &str) {
        self.lock().objects.remove(path);
    }

    /// Changes an object as another client does.
    pub(crate) fn edit(&self, path: &str, change: impl FnOnce(&mut Value)) {
        let mut object = self.object(path);
        change(&mut object);
        self.put(path, object);
    }

    /// Makes another field manager an owner of a part of an entry, as cainjector is of its caBundle.
    pub(crate) fn share(&self, name: &str) {
        self.lock().shared.insert(name.to_owned());
    }

    /// Forbids a method on paths that contain a text.
    pub(crate) fn forbid(&self, method: Method, part: &'static str) {
        self.lock().forbidden.push((method, part));
    }

    /// Permits everything.
    pub(crate) fn permit(&self) {
        self.lock().forbidden.clear();
    }

    /// Lets every request fail.
    pub(crate) fn stop(&self) {
        self.lock().is_stopped = true;
    }

    /// Answers requests again.
    pub(crate) fn start(&self) {
        self.lock().is_stopped = false;
    }

    /// Lets another client write before each of the next patches.
    pub(crate) fn conflict(&self, times: u32) {
        self.lock().conflicts = times;
    }

    /// Returns the writes so far: method and path.
    pub(crate) fn writes(&self) -> Vec<String> {
        self.lock().writes.clone()
    }

    /// Returns a client.
    pub(crate) fn client(&self) -> ApiClient {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await?;
                let body: Value = serde_json::from_slice(&body).unwrap_or_default();
                let content_type =
                    parts.headers.get("content-type").map_or("", |value| value.to_str().unwrap());
                let path = parts.uri.path();
                let (status, object) = server.lock().answer(&parts.method, path, content_type, &body);
                let answer =
                    Response::builder().status(status).body(Body::from(object.to_string().into_bytes()));
                answer.map_err(|error| kube::Error::Service(error.into()))
            }
        });
        ApiClient::new(Client::new(service, "default"))
    }
}

impl Objects {
    fn put(&mut self, path: &str, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.objects.insert(path.to_owned(), object);
    }

    fn answer(
        &mut self,
        method: &Method,
        path: &str,
        content_type: &str,
        body: &Value,
    ) -> (StatusCode, Value) {
        if self.is_stopped {
            return failed(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable");
        }
        let is_forbidden = |(forbidden, part): &(Method, &str)| forbidden == method && path.contains(part);
        if self.forbidden.iter().any(is_forbidden) {
            return failed(StatusCode::FORBIDDEN, "Forbidden");
        }
        if *method != Method::GET {
            self.writes.push(format!("{method} {path}"));
        }
        let is_apply = content_type == "application/apply-patch+yaml";
        let found = self.objects.get(path).cloned();
        // An apply creates a missing object, but not with a uid.
        let Some(object) = found.or_else(|| {
            (is_apply && body["metadata"]["uid"].is_null()).then(|| json!({"metadata": {"uid": "new"}}))
        }) else {
            let is_conflict = is_apply && *method == Method::PATCH;
            return if is_conflict {
                failed(StatusCode::CONFLICT, "Conflict")
            } else {
                failed(StatusCode::NOT_FOUND, "NotFound")
            };
        };
        if *method == Method::GET {
            return (StatusCode::OK, object);
        }
        if *method == Method::DELETE {
            self.objects.remove(path);
            return (StatusCode::OK, object);
        }
        if self.conflicts > 0 {
            self.conflicts -= 1;
            self.put(path, object.clone());
        }
        let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
        if !version(body).is_null() && version(body) != version(&self.objects[path]) {
            return failed(StatusCode::CONFLICT, "Conflict");
        }
        // Without both, an apply of an old state could create an object that was deleted, or remove a newer CA.
        let is_configuration = is_apply && path.contains("webhookconfigurations");
        assert!(
            !is_configuration || (!version(body).is_null() && !body["metadata"]["uid"].is_null()),
            "{body}"
        );
        let mut next = object.clone();
        if !is_apply {
            json_patch::merge(&mut next, body);
        } else if path.contains("validatingadmissionpolic") {
            next["metadata"]["name"] = body["metadata"]["name"].clone();
            next["metadata"]["labels"] = body["metadata"]["labels"].clone();
            next["metadata"]["ownerReferences"] = body["metadata"]["ownerReferences"].clone();
            next["spec"] = body["spec"].clone();
        } else if !self.apply(path, &mut next, body) {
            return failed(StatusCode::UNPROCESSABLE_ENTITY, "Invalid");
        }
        // A write that changes nothing keeps the version.
        if next != object || !self.objects.contains_key(path) {
            self.put(path, next);
        }
        (StatusCode::OK, self.objects[path].clone())
    }

    /// Server-side apply, as far as these objects need it: entries are merged by name, and an entry that is not applied any more
    /// is removed. Match conditions of others stay. Returns false if the part that another field manager owns would stay of a removed
    /// entry, which is invalid.
    fn apply(&mut self, path: &str, object: &mut Value, body: &Value) -> bool {
        let entries = |object: &Value| object["webhooks"].as_array().cloned().unwrap_or_default();
        let name = |entry: &Value| entry["name"].as_str().unwrap().to_owned();
        let new: BTreeSet<_> = entries(body).iter().map(name).collect();
        let before = self.applied.insert(path.to_owned(), new.clone()).unwrap_or_default();
        if before.difference(&new).any(|removed| self.shared.contains(removed)) {
            return false;
        }
        let mut webhooks: Vec<Value> = entries(object);
        webhooks.retain(|entry| new.contains(&name(entry)) || !before.contains(&name(entry)));
        for applied in entries(body) {
            let Some(entry) = webhooks.iter_mut().find(|entry| name(entry) == name(&applied)) else {
                webhooks.push(applied);
                continue;
            };
            let conditions = |entry: &Value| entry["matchConditions"].as_array().cloned().unwrap_or_default();
            let mut merged = conditions(&applied);
            merged.extend(conditions(entry).into_iter().filter(|one| !conditions(&applied).contains(one)));
            *entry = applied;
            entry["matchConditions"] = merged.into();
        }
        object["webhooks"] = webhooks.into();
        object["metadata"]["ownerReferences"] = body["metadata"]["ownerReferences"].clone();
        true
    }
}

fn failed(code: StatusCode, reason: &str) -> (StatusCode, Value) {
    let message = format!("answer {reason} of the test");
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "message": message, "reason": reason, "code": code.as_u16(),
    });
    (code, status)
}
