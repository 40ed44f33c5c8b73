//! One call of a member's gateway: finds the gateway's prefix and logs in if the member requires it.
//!
//! Facts (measured on 3.4.23 and 3.6.15; prefixes from `embed/serve.go`): the gateway is `/v3` from 3.4 on, `/v3beta` in 3.3
//! and `/v3alpha` in 3.2; unknown paths are 404. The calls that need a login differ by version, and authentication can be
//! switched on and off. Therefore Durward logs in only after a member requires it: `user name is empty` (3) or
//! `invalid auth token` (16, and 2 for alarms in 3.4). After authentication was switched off, 3.4 rejects every token. Tokens
//! expire after five minutes without use.

use std::sync::Arc;
use std::time::Duration;

use admission::Cause;
use hyper::StatusCode;
use hyper::header::HeaderValue;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use super::connection::{self, Connection, Response, Token};
use super::credentials::{Credentials, User, recently};
use super::errors::{LoggedIn, refusal_cause, unexpected_answer};
use crate::cause;
use crate::etcd::Endpoint;
use crate::gateway::{self, GatewayError};
use crate::live::body::BodyReader;
use crate::live::brief;

/// Newest first.
const PREFIXES: [&str; 3] = ["/v3", "/v3beta", "/v3alpha"];

/// How long a missing gateway is remembered.
const NO_GATEWAY_FOR: Duration = Duration::from_secs(60);

/// The pause after a failed login: a member needs 70 ms to check a password (measured).
const LOGIN_BACKOFF: Duration = Duration::from_secs(10);

/// A call that every gateway has.
pub(super) const STATUS: &str = "/maintenance/status";

/// A call that 3.2 lacks.
pub(super) const TRANSFER: &str = "/maintenance/transfer-leadership";

/// A call to one member.
pub(super) struct Call<'c> {
    pub(super) endpoint: &'c Endpoint,
    pub(super) connection: &'c Connection,
    pub(super) credentials: &'c Credentials,
    pub(super) bodies: &'c BodyReader,
}

/// The outcome of a call.
pub(super) enum CallResult {
    /// 200.
    Answered(Response),
    /// The gateway refuses.
    Refused(GatewayError, LoggedIn),
}

impl Call<'_> {
    /// Sends a call, and logs in if the member requires it.
    pub(super) async fn call(&self, path: &str, body: &str) -> Result<CallResult, Cause> {
        self.call_as(path, body, true).await
    }

    /// Sends a call. Without `may_log_in`, a member that requires a user has refused.
    pub(super) async fn call_as(
        &self,
        path: &str,
        body: &str,
        may_log_in: bool,
    ) -> Result<CallResult, Cause> {
        let mut token = self.token();
        let mut has_logged_in = false;
        loop {
            let answer = self.with_prefix(path, body, token.as_ref().map(|token| &token.text)).await?;
            if answer.status == StatusCode::OK {
                return Ok(CallResult::Answered(answer));
            }
            let Some(mut refusal) = GatewayError::read(&answer.body) else {
                return Err(unexpected_answer(
                    answer.status,
                    redact(&answer.body, token.as_ref()).as_bytes(),
                ));
            };
            refusal.message = redact(refusal.message.as_bytes(), token.as_ref());
            let is_wanted =
                refusal.has_stale_token() || (refusal.needs_user() && token.is_none() && may_log_in);
            let Some(login) = self.endpoint.client.login.as_ref().filter(|_| is_wanted && !has_logged_in)
            else {
                let user = token.map(|token| token.of.name.clone());
                let has_login = self.endpoint.client.login.is_some();
                return Ok(CallResult::Refused(refusal, LoggedIn { user, has_login }));
            };
            has_logged_in = true;
            self.check_may_send_password()?;
            let user = self.credentials.user(login, recently()).await?;
            token = self.log_in(user, token).await?;
        }
    }

    /// Returns the token of the present login.
    fn token(&self) -> Option<Token> {
        self.connection.known().token.clone().filter(|_| self.endpoint.client.login.is_some())
    }

    /// Returns a new token, or `None` if authentication is off. Concurrent calls share the login.
    async fn log_in(&self, user: Arc<User>, stale: Option<Token>) -> Result<Option<Token>, Cause> {
        let _guard = self.connection.login.lock().await;
        let known = self.connection.known().token.clone();
        if let Some(known) = known
            && Arc::ptr_eq(&known.of, &user)
            && stale.as_ref().is_none_or(|stale| stale.text != known.text)
        {
            return Ok(Some(known));
        }
        if let Some((failed, at, why)) = &self.connection.known().failed_login
            && Arc::ptr_eq(failed, &user)
            && at.elapsed() < LOGIN_BACKOFF
        {
            return Err(why.clone());
        }
        self.connection.known().token = None;
        // JSON escapes the password.
        let body = json!({"name": user.name, "password": user.password}).to_string();
        let answer = self.with_prefix("/auth/authenticate", &body, None).await?;
        if answer.status != StatusCode::OK {
            let Some(refusal) = GatewayError::read(&answer.body) else {
                return Err(without_text(
                    &unexpected_answer(answer.status, &answer.body),
                    answer.status,
                    &user,
                ));
            };
            if refusal.has_no_authentication() {
                return Ok(None);
            }
            let logged_in = LoggedIn { user: Some(user.name.clone()), has_login: true };
            let why = refusal_cause(&refusal, &logged_in);
            let why = if refusal.is_login_failure() { why } else { without_text(&why, answer.status, &user) };
            if refusal.is_login_failure() {
                self.connection.known().failed_login = Some((user, Instant::now(), why.clone()));
            }
            return Err(why);
        }
        let token = token_of(&answer.body).map(|text| Token { of: user, text });
        let token = token.ok_or_else(|| Cause::new(cause::GARBAGE, "it returned no token at login"))?;
        self.connection.known().token = Some(token.clone());
        Ok(Some(token))
    }

    /// Checks that the password may be sent: over TLS, or if the configuration allows plain HTTP.
    fn check_may_send_password(&self) -> Result<(), Cause> {
        if self.endpoint.client.tls.is_some() || self.endpoint.client.open {
            return Ok(());
        }
        let text = "it requires a user, and Durward sends no password over plain HTTP (client.tls, client.auth.allowUnverified)";
        Err(Cause::new(cause::CREDENTIALS, text))
    }

    /// Sends a call with the known prefix, or tries each.
    async fn with_prefix(
        &self,
        path: &str,
        body: &str,
        token: Option<&HeaderValue>,
    ) -> Result<Response, Cause> {
        if path == TRANSFER {
            return self.transfer(body, token).await;
        }
        if let Some(prefix) = self.known_prefix()? {
            let answer = self.connection.post(&format!("{prefix}{path}"), body, token, self.bodies).await?;
            if answer.status != StatusCode::NOT_FOUND {
                return Ok(answer);
            }
            self.connection.known().prefix = None;
        }
        for prefix in PREFIXES {
            let answer = self.connection.post(&format!("{prefix}{path}"), body, token, self.bodies).await?;
            if answer.status == StatusCode::NOT_FOUND {
                continue;
            }
            // Another program may answer.
            if answer.status == StatusCode::OK || GatewayError::read(&answer.body).is_some() {
                self.connection.known().prefix = Some(prefix);
            }
            return Ok(answer);
        }
        Err(self.no_gateway().await)
    }

    fn known_prefix(&self) -> Result<Option<&'static str>, Cause> {
        let mut known = self.connection.known();
        match known.no_gateway_at {
            Some(at) if at.elapsed() < NO_GATEWAY_FOR => return Err(gateway_off()),
            Some(_) => known.no_gateway_at = None,
            None => {}
        }
        Ok(known.prefix)
    }

    /// Sends the call that some gateways lack: a 404 does not mean that the prefix is wrong.
    async fn transfer(&self, body: &str, token: Option<&HeaderValue>) -> Result<Response, Cause> {
        let prefix = Box::pin(self.prefix()).await?;
        let answer = self.connection.post(&format!("{prefix}{TRANSFER}"), body, token, self.bodies).await?;
        if answer.status == StatusCode::NOT_FOUND {
            let text = "this version of etcd does not support leadership transfer";
            return Err(Cause::new(cause::UNSUPPORTED, text));
        }
        Ok(answer)
    }

    /// Finds the prefix by a call that every gateway has.
    async fn prefix(&self) -> Result<&'static str, Cause> {
        if let Some(prefix) = self.known_prefix()? {
            return Ok(prefix);
        }
        let answer = self.with_prefix(STATUS, "{}", None).await?;
        let prefix = self.connection.known().prefix;
        prefix.ok_or_else(|| unexpected_answer(answer.status, &answer.body))
    }

    /// Returns the cause if no prefix has a gateway: whether it is etcd at all.
    async fn no_gateway(&self) -> Cause {
        let answer = match self.connection.get("/version", connection::LIMIT, self.bodies).await {
            Ok(answer) => answer,
            Err(why) => return why,
        };
        if answer.status == StatusCode::OK && gateway::version_of(&answer.body).is_some() {
            let mut known = self.connection.known();
            known.no_gateway_at = Some(Instant::now());
            return gateway_off();
        }
        Cause::new(cause::NOT_ETCD, "another program answers there, not etcd (404)")
    }
}

/// Replaces the text of a failed login, which may contain the password that was just sent.
fn without_text(why: &Cause, status: StatusCode, user: &User) -> Cause {
    let text = format!("login of user {:?} failed ({})", brief(&user.name), status.as_u16());
    Cause::new(why.code, text)
}

/// Removes the token that was just sent from a text.
fn redact(answer: &[u8], token: Option<&Token>) -> String {
    let answer = String::from_utf8_lossy(answer);
    match token.and_then(|token| token.text.to_str().ok()) {
        Some(token) => answer.replace(token, "[token]"),
        None => answer.into_owned(),
    }
}

fn gateway_off() -> Cause {
    Cause::new(cause::GATEWAY_OFF, "it has no JSON gateway on this port (--enable-grpc-gateway)")
}

fn token_of(body: &[u8]) -> Option<HeaderValue> {
    #[derive(Deserialize)]
    struct Wire {
        token: String,
    }
    let wire: Wire = serde_json::from_slice(body).ok()?;
    let mut token = HeaderValue::from_str(&wire.token).ok().filter(|token| !token.is_empty())?;
    token.set_sensitive(true);
    Some(token)
}
