//! The Secret with the CA of self-managed certificates, in the cluster where Durward runs.
//!
//! Durward reads and updates one Secret by name, and creates none, so it needs no permission to create Secrets. It writes only a
//! Secret with its label: one without it belongs to another program.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use admission::text::excerpt;
use admission::{BoxFuture, lock};
use ca::{Store, StoreError, StoreFault, StoreResult, Stored};
use cluster::{ApiError, live};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::fmt::rfc2822;
use kube::api::{GetParams, PostParams, Request};
use kube::client::Body;
use kube::core::Status;
use kube::{Api, Client};
use tokio::time::timeout;

/// Name of the Secret of the CA, in Durward's namespace.
pub(crate) const SECRET: &str = "durward-ca";

/// Label of the Secret that Durward writes.
pub(crate) const LABEL: (&str, &str) = ("durward.dev/ca", "managed");

/// Timeout of one request. The next pass tries again.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The Secret in an API server.
pub(crate) struct SecretStore {
    client: Client,
    server: String,
    namespace: String,
    name: String,
    place: String,
    /// The command that grants the permissions.
    grant_command: String,
    /// The object that was read last, which a write changes.
    last: Mutex<Option<Secret>>,
}

impl SecretStore {
    /// Creates the store. `server` is the URL of the API server, for messages, and so is `grant_command`.
    pub(crate) fn new(
        client: Client,
        server: String,
        (namespace, name): (&str, &str),
        grant_command: String,
    ) -> Self {
        Self {
            client,
            server,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            place: format!("Secret {namespace}/{name}"),
            grant_command,
            last: Mutex::default(),
        }
    }

    async fn get(&self) -> Result<Stored, StoreError> {
        // kube's `Api` returns no headers, and the CA needs the time of the API server.
        let sent = async {
            let request = Request::new(format!("/api/v1/namespaces/{}/secrets", self.namespace));
            let request =
                request.get(&self.name, &GetParams::default()).map_err(kube::Error::BuildRequest)?;
            let response = self.client.send(request.map(Body::from)).await?;
            let date = response.headers().get(hyper::header::DATE).and_then(|date| date.to_str().ok());
            let date = date.and_then(|date| rfc2822::parse(date).ok()).map(|date| date.timestamp().into());
            let code = response.status().as_u16();
            let body = response.into_body().collect_bytes().await?;
            if code == 200 {
                return Ok((body, date));
            }
            let status: Status = serde_json::from_slice(&body).unwrap_or_default();
            Err(kube::Error::Api(Box::new(Status { code, ..status })))
        };
        let (body, server_time) = self.answered("get", sent).await?;
        let secret = self.parse(&body)?;
        let version = secret.metadata.resource_version.clone().unwrap_or_default();
        let stored = Stored { data: data_of(&secret), version, server_time };
        *lock(&self.last) = Some(secret);
        Ok(stored)
    }

    async fn put(&self, version: &str, data: &BTreeMap<String, Vec<u8>>) -> Result<StoreResult, StoreError> {
        let last = lock(&self.last).clone();
        let is_current = |secret: &Secret| secret.metadata.resource_version.as_deref() == Some(version);
        let Some(mut secret) = last.filter(is_current) else { return Ok(StoreResult::Conflict) };
        secret.data =
            Some(data.iter().map(|(key, value)| (key.clone(), ByteString(value.clone()))).collect());
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let parameters = PostParams { field_manager: Some("durward".to_owned()), ..PostParams::default() };
        match self.answered("update", live::write(&api, &secret, &parameters)).await? {
            live::Written::Done => Ok(StoreResult::Done),
            live::Written::Conflict => Ok(StoreResult::Conflict),
        }
    }

    async fn answered<T>(
        &self,
        verb: &str,
        sent: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, StoreError> {
        match timeout(REQUEST_TIMEOUT, sent).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(kube::Error::Api(status))) => Err(self.refused(verb, &status)),
            Ok(Err(error)) => Err(self.unreachable(verb, &error)),
            Err(_) => {
                let why = format!("no answer within {} s", REQUEST_TIMEOUT.as_secs());
                Err(self.unreachable(verb, &why))
            }
        }
    }

    /// Parses the Secret, and checks that it belongs to Durward.
    fn parse(&self, body: &[u8]) -> Result<Secret, StoreError> {
        let secret: Secret = serde_json::from_slice(body).map_err(|error| self.unreachable("get", &error))?;
        let label = secret.metadata.labels.as_ref().and_then(|labels| labels.get(LABEL.0));
        if label.is_some_and(|value| value == LABEL.1) {
            return Ok(secret);
        }
        let (name, namespace, (key, value)) = (&self.name, &self.namespace, LABEL);
        Err(error(
            StoreFault::Foreign,
            format!("{} has no label {key}={value}, so Durward does not use it", self.place),
            format!("if it is for Durward, run: kubectl -n {namespace} label secret {name} {key}={value}"),
        ))
    }

    fn refused(&self, verb: &str, status: &Status) -> StoreError {
        let kind = ApiError::of(status.code, &status.reason);
        let message = match status.message.as_str() {
            "" => format!("status {}", status.code),
            message => excerpt(message, 300),
        };
        let (place, server) = (&self.place, &self.server);
        let (name, namespace, (key, value)) = (&self.name, &self.namespace, LABEL);
        match kind {
            ApiError::Forbidden => error(
                StoreFault::Forbidden,
                format!("Durward isn't allowed to {verb} {place}: {message}"),
                self.grant_command.clone(),
            ),
            ApiError::NotFound => error(
                StoreFault::Missing,
                format!("{place} does not exist: {message}"),
                format!(
                    "create it empty: kubectl -n {namespace} create secret generic {name} && kubectl -n {namespace} label secret {name} {key}={value}"
                ),
            ),
            ApiError::Conflict | ApiError::Expired | ApiError::Rejected => error(
                StoreFault::Invalid,
                format!("{server} rejected the {verb} of {place}: {message}"),
                format!("look at it: kubectl -n {namespace} get secret {name} -o yaml"),
            ),
            ApiError::Credentials | ApiError::Unavailable => self.unreachable(verb, &message),
        }
    }

    fn unreachable(&self, verb: &str, why: &dyn std::fmt::Display) -> StoreError {
        error(
            StoreFault::Unreachable,
            format!("{} can't be reached for the {verb} at {}: {why}", self.place, self.server),
            "check the API server and the credentials of Durward: kubectl get --raw /readyz".to_owned(),
        )
    }
}

fn error(reason: StoreFault, text: String, next: String) -> StoreError {
    StoreError { reason, text, next }
}

fn data_of(secret: &Secret) -> BTreeMap<String, Vec<u8>> {
    let data = secret.data.iter().flatten();
    data.map(|(key, value)| (key.clone(), value.0.clone())).collect()
}

impl Store for SecretStore {
    fn place(&self) -> &str {
        &self.place
    }

    fn reset_command(&self) -> String {
        format!(
            "kubectl -n {} patch secret {} --type=json -p '[{{\"op\":\"remove\",\"path\":\"/data\"}}]'",
            self.namespace, self.name
        )
    }

    fn read(&self) -> BoxFuture<'_, Result<Stored, StoreError>> {
        Box::pin(self.get())
    }

    fn write<'a>(
        &'a self,
        version: &'a str,
        data: &'a BTreeMap<String, Vec<u8>>,
    ) -> BoxFuture<'a, Result<StoreResult, StoreError>> {
        Box::pin(self.put(version, data))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;
    use std::time::SystemTime;

    use serde_json::{Value, json};

    use super::*;

    type Answers = Arc<Mutex<VecDeque<(u16, Value)>>>;

    /// Returns a store whose API server gives these answers, and the requests that it gets.
    fn store(answers: Vec<(u16, Value)>) -> (SecretStore, Arc<Mutex<Vec<String>>>) {
        let answers: Answers = Arc::new(Mutex::new(answers.into()));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        let service = tower::service_fn(move |request: hyper::Request<Body>| {
            let (answers, seen) = (Arc::clone(&answers), Arc::clone(&seen));
            async move {
                let line = format!("{} {}", request.method(), request.uri().path());
                let body = request.into_body().collect_bytes().await.unwrap();
                seen.lock().unwrap().push(format!("{line} {}", String::from_utf8_lossy(&body)));
                let (status, body) = answers.lock().unwrap().pop_front().unwrap();
                let response = hyper::Response::builder().status(status);
                let response = response.header("date", "Sun, 22 Nov 2026 20:43:02 GMT");
                response.body(Body::from(body.to_string().into_bytes()))
            }
        });
        let client = Client::new(service, "default");
        let name = ("durward-system", "durward-ca");
        (SecretStore::new(client, "https://api:6443".to_owned(), name, "GRANT".to_owned()), requests)
    }

    fn secret(labels: &Value, data: &Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": data,
            "metadata": {"name": "durward-ca", "namespace": "durward-system", "resourceVersion": "7", "labels": labels},
        })
    }

    fn status(code: u16, message: &str) -> (u16, Value) {
        (code, json!({"kind": "Status", "apiVersion": "v1", "code": code, "message": message}))
    }

    #[tokio::test]
    async fn reads_the_data_its_version_and_the_clock_of_the_api_server() {
        let (store, _) = store(vec![
            (200, secret(&json!({"durward.dev/ca": "managed"}), &json!({"ca.crt": "YQ=="}))),
            (200, secret(&json!({"durward.dev/ca": "managed"}), &Value::Null)),
        ]);
        let stored = store.read().await.unwrap();
        assert_eq!(stored.data, BTreeMap::from([("ca.crt".to_owned(), b"a".to_vec())]));
        assert_eq!(stored.version, "7");
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_380_182);
        assert_eq!(stored.server_time, Some(time));
        assert!(store.read().await.unwrap().data.is_empty(), "the chart creates it without data");
    }

    #[tokio::test]
    async fn updates_the_version_that_was_read_and_reports_a_conflict() {
        let ours = secret(&json!({"durward.dev/ca": "managed", "team": "a"}), &Value::Null);
        let (store, requests) =
            store(vec![(200, ours.clone()), (200, ours), status(409, "the object has been modified")]);
        let data = BTreeMap::from([("ca.crt".to_owned(), b"a".to_vec())]);
        assert_eq!(store.write("7", &data).await, Ok(StoreResult::Conflict), "it was not read yet");
        store.read().await.unwrap();
        assert_eq!(store.write("7", &data).await, Ok(StoreResult::Done));
        assert_eq!(store.write("7", &data).await, Ok(StoreResult::Conflict));
        assert_eq!(store.write("6", &data).await, Ok(StoreResult::Conflict), "another version was read");
        let requests = requests.lock().unwrap();
        assert_eq!(requests.len(), 3);
        let put = "PUT /api/v1/namespaces/durward-system/secrets/durward-ca ";
        let sent: Value = serde_json::from_str(requests[1].strip_prefix(put).unwrap()).unwrap();
        assert_eq!(sent["data"], json!({"ca.crt": "YQ=="}));
        assert_eq!(sent["metadata"]["resourceVersion"], "7");
        assert_eq!(sent["metadata"]["labels"]["team"], "a", "other fields are kept");
    }

    #[tokio::test]
    async fn names_the_reason_and_the_fix_of_each_failure() {
        let forbidden = "secrets \"durward-ca\" is forbidden: User \"durward\" cannot get resource";
        for (answer, reason, expected) in [
            (
                (200, secret(&json!({"app": "x"}), &Value::Null)),
                StoreFault::Foreign,
                vec![
                    "Secret durward-system/durward-ca has no label durward.dev/ca=managed",
                    "kubectl -n durward-system label secret durward-ca durward.dev/ca=managed",
                ],
            ),
            (
                status(403, forbidden),
                StoreFault::Forbidden,
                vec!["isn't allowed to get Secret durward-system/durward-ca", forbidden, "next: GRANT"],
            ),
            (
                status(404, "secrets \"durward-ca\" not found"),
                StoreFault::Missing,
                vec![
                    "does not exist",
                    "kubectl -n durward-system create secret generic durward-ca && kubectl",
                ],
            ),
            (status(503, "etcd is down"), StoreFault::Unreachable, vec!["https://api:6443", "etcd is down"]),
            (status(401, "Unauthorized"), StoreFault::Unreachable, vec!["Unauthorized", "credentials"]),
            ((200, json!("no object")), StoreFault::Unreachable, vec!["can't be reached"]),
        ] {
            let (store, _) = store(vec![answer]);
            let error = store.read().await.unwrap_err();
            assert_eq!(error.reason, reason, "{error}");
            for part in expected {
                assert!(error.to_string().contains(part), "{error} does not contain {part}");
            }
        }
    }

    #[tokio::test]
    async fn names_the_missing_verb_of_a_write() {
        let ours = secret(&json!({"durward.dev/ca": "managed"}), &Value::Null);
        let (store, _) =
            store(vec![(200, ours.clone()), status(403, "no"), (200, ours), status(422, "immutable")]);
        store.read().await.unwrap();
        let error = store.write("7", &BTreeMap::new()).await.unwrap_err();
        assert!(
            error.text.starts_with("Durward isn't allowed to update Secret durward-system/durward-ca"),
            "{error}"
        );
        store.read().await.unwrap();
        let error = store.write("7", &BTreeMap::new()).await.unwrap_err();
        assert_eq!(error.reason, StoreFault::Invalid, "{error}");
        assert!(store.reset_command().ends_with("'[{\"op\":\"remove\",\"path\":\"/data\"}]'"));
    }

    #[tokio::test(start_paused = true)]
    async fn does_not_wait_forever_for_an_answer() {
        let service = tower::service_fn(|_: hyper::Request<Body>| {
            std::future::pending::<Result<hyper::Response<Body>, std::convert::Infallible>>()
        });
        let client = Client::new(service, "default");
        let store = SecretStore::new(client, "https://api".to_owned(), ("n", "s"), String::new());
        let error = store.read().await.unwrap_err();
        assert!(error.text.contains("no answer within 10 s"), "{error}");
    }
}
