//! A client of the API server that returns status, warnings and body of each answer.
//!
//! It does not retry, and a refusal is an answer rather than an error, because a test that counts failed calls must see
//! each of them. Calls block; a test that wants several at once has threads. Objects are untyped, because tests compare
//! what the API server sends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use http::{HeaderMap, Method, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;
use tokio::runtime::Runtime;

/// The API server ends a request after a minute. One that is frozen must not block the run.
const ANSWERED_WITHIN: Duration = Duration::from_secs(120);

/// A client of one API server for one user.
#[derive(Clone)]
pub struct Api {
    client: kube::Client,
    runtime: Arc<Runtime>,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Api")
    }
}

impl Api {
    /// Makes a client from a kubeconfig. It connects with its first call.
    pub fn new(runtime: &Arc<Runtime>, kubeconfig: &Value) -> Result<Self> {
        let kubeconfig: Kubeconfig =
            serde_json::from_value(kubeconfig.clone()).context("not a kubeconfig")?;
        let client = runtime.block_on(async {
            let mut config =
                kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
            config.default_retry = false;
            anyhow::Ok(kube::Client::try_from(config)?)
        })?;
        Ok(Self { client, runtime: Arc::clone(runtime) })
    }

    /// Sends a GET.
    pub fn get(&self, path: &str) -> Result<Answer> {
        self.call(Method::GET, path, "application/json", None)
    }

    /// Sends a POST to a collection. Query parameters such as `?dryRun=All` are part of the path.
    pub fn create(&self, path: &str, object: &Value) -> Result<Answer> {
        self.call(Method::POST, path, "application/json", Some(object))
    }

    /// Sends a PUT.
    pub fn replace(&self, path: &str, object: &Value) -> Result<Answer> {
        self.call(Method::PUT, path, "application/json", Some(object))
    }

    /// Sends a merge patch.
    pub fn merge(&self, path: &str, changes: &Value) -> Result<Answer> {
        self.call(Method::PATCH, path, "application/merge-patch+json", Some(changes))
    }

    /// Sends a server-side apply of this field manager.
    pub fn apply(&self, path: &str, manager: &str, object: &Value) -> Result<Answer> {
        let mark = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{mark}fieldManager={manager}");
        self.call(Method::PATCH, &path, "application/apply-patch+yaml", Some(object))
    }

    /// Sends a DELETE.
    pub fn delete(&self, path: &str) -> Result<Answer> {
        self.call(Method::DELETE, path, "application/json", None)
    }

    /// Sends a DELETE with `DeleteOptions`.
    pub fn delete_with(&self, path: &str, options: &Value) -> Result<Answer> {
        self.call(Method::DELETE, path, "application/json", Some(options))
    }

    /// Sends a GET and returns a text that is not JSON, such as `/metrics`.
    pub fn text(&self, path: &str) -> Result<String> {
        let (status, _, body) = self.exchange(Method::GET, path, "application/json", None)?;
        let text = String::from_utf8_lossy(&body).into_owned();
        if status >= 300 {
            bail!("GET {path}: {status}: {text}");
        }
        Ok(text)
    }

    fn call(&self, method: Method, path: &str, content: &str, body: Option<&Value>) -> Result<Answer> {
        let began = Instant::now();
        let what = format!("{method} {path}");
        let (status, headers, bytes) = self.exchange(method, path, content, body)?;
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        Ok(Answer { what, status, warnings: warnings(&headers), body, took: began.elapsed() })
    }

    fn exchange(
        &self,
        method: Method,
        path: &str,
        content: &str,
        body: Option<&Value>,
    ) -> Result<(u16, HeaderMap, Vec<u8>)> {
        let what = format!("{method} {path}");
        let bytes = body.map(serde_json::to_vec).transpose()?.unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content)
            .header("accept", "application/json, */*")
            .body(Body::from(bytes))?;
        let exchange = async {
            let response = self.client.send(request).await?;
            let (head, body) = response.into_parts();
            let body = body.collect().await?.to_bytes().to_vec();
            anyhow::Ok((head.status.as_u16(), head.headers, body))
        };
        self.runtime
            .block_on(async { tokio::time::timeout(ANSWERED_WITHIN, exchange).await? })
            .with_context(|| format!("{what}: no answer"))
    }
}

/// An answer of the API server.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Method and path, for errors.
    pub what: String,
    /// The HTTP status.
    pub status: u16,
    /// The texts of its `Warning` headers, in order.
    pub warnings: Vec<String>,
    /// The object or the Status.
    pub body: Value,
    /// The time from the first byte sent to the last byte received.
    pub took: Duration,
}

impl Answer {
    /// Returns whether the status is below 300.
    pub fn is_success(&self) -> bool {
        self.status < 300
    }

    /// Returns the message of a Status, or an empty text.
    pub fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }

    /// Returns itself on success, else an error with the message.
    pub fn succeeded(self) -> Result<Self> {
        if self.is_success() {
            return Ok(self);
        }
        let said = if self.message().is_empty() { self.body.to_string() } else { self.message().to_owned() };
        bail!("{}: {}: {said}", self.what, self.status)
    }
}

fn warnings(headers: &HeaderMap) -> Vec<String> {
    headers.get_all("warning").iter().filter_map(|value| value.to_str().ok()).map(warning_text).collect()
}

/// Returns the text of `299 - "text"` (RFC 7234 5.5), a quoted string with backslash escapes. Returns a header of
/// another form unchanged.
fn warning_text(header: &str) -> String {
    let Some((_, quoted)) = header.split_once('"') else { return header.to_owned() };
    let mut text = String::new();
    let mut rest = quoted.chars();
    while let Some(next) = rest.next() {
        match next {
            '"' => break,
            '\\' => text.extend(rest.next()),
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::warning_text;

    #[test]
    fn reads_the_text_of_a_warning_header() {
        assert_eq!(warning_text(r#"299 - "pod \"web\" is not \\ mounted""#), r#"pod "web" is not \ mounted"#);
    }

    #[test]
    fn keeps_a_warning_of_another_form_whole() {
        assert_eq!(warning_text("odd"), "odd");
    }
}
