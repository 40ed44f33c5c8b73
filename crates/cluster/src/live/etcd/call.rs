//! One call of a member's gateway: under which prefix it is, and as whom.
//!
//! Facts (measured on 3.4.23 and 3.6.15; prefixes from `embed/serve.go`): the gateway is `/v3` from 3.4 on, `/v3beta` in 3.3,
//! `/v3alpha` in 3.2; what is not there is 404. Which call needs a login differs by version, and with authentication switched on or
//! off, so nobody logs in before a member asks for it. It asks by `user name is empty` (3) or `invalid auth token` (16, and 2 for
//! alarms in 3.4). 3.4 takes no token after authentication was switched off, not even a good one. Tokens end after five
//! minutes without use.

use std::sync::Arc;
use std::time::Duration;

use admission::Cause;
use hyper::StatusCode;
use hyper::header::HeaderValue;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use super::line::{Line, Said, Token};
use super::refused::{LoggedIn, refused, stranger};
use super::trust::{Keys, User, recently};
use crate::cause;
use crate::etcd::Endpoint;
use crate::gateway::{self, Refusal};
use crate::live::body::Room;
use crate::live::failure::brief;

/// Newest first.
const PREFIXES: [&str; 3] = ["/v3", "/v3beta", "/v3alpha"];

/// A member that had no gateway is taken to have none for so long.
const NONE_FOR: Duration = Duration::from_secs(60);

/// Who was not let in does not try again for so long: a member works for 70 ms on each password, right or wrong (measured).
const NOT_AGAIN_FOR: Duration = Duration::from_secs(10);

/// What every gateway has.
pub(super) const STATUS: &str = "/maintenance/status";

/// What 3.2 has not.
pub(super) const TRANSFER: &str = "/maintenance/transfer-leadership";

/// Calls of one member.
pub(super) struct Call<'c> {
    pub(super) peer: &'c Endpoint,
    pub(super) line: &'c Line,
    pub(super) keys: &'c Keys,
    pub(super) room: &'c Room,
}

/// What a call came to.
pub(super) enum Called {
    /// 200.
    Answered(Said),
    /// The gateway says no, to somebody who is logged in or not.
    Refused(Refusal, LoggedIn),
}

impl Call<'_> {
    /// Calls what every gateway has, and logs in if the member wants that.
    pub(super) async fn call(&self, path: &str, body: &str) -> Result<Called, Cause> {
        self.call_as(path, body, true).await
    }

    /// The same; without `may_log_in` a member that asks who asks has refused.
    pub(super) async fn call_as(&self, path: &str, body: &str, may_log_in: bool) -> Result<Called, Cause> {
        let mut token = self.token();
        let mut was_asked_to = false;
        loop {
            let said = self.under_prefix(path, body, token.as_ref().map(|token| &token.text)).await?;
            if said.status == StatusCode::OK {
                return Ok(Called::Answered(said));
            }
            let Some(mut refusal) = Refusal::read(&said.body) else {
                return Err(stranger(said.status, without(&said.body, token.as_ref()).as_bytes()));
            };
            refusal.message = without(refusal.message.as_bytes(), token.as_ref());
            let is_wanted = refusal.is_stale() || (refusal.is_nobody() && token.is_none() && may_log_in);
            let Some(login) = self.peer.client.login.as_ref().filter(|_| is_wanted && !was_asked_to) else {
                let user = token.map(|token| token.of.name.clone());
                let has_login = self.peer.client.login.is_some();
                return Ok(Called::Refused(refusal, LoggedIn { user, has_login }));
            };
            was_asked_to = true;
            self.check_may_show()?;
            let user = self.keys.user(login, recently()).await?;
            token = self.log_in(user, token).await?;
        }
    }

    /// The token of who is logged in, if it is one of the user that is configured now.
    fn token(&self) -> Option<Token> {
        self.line.known().token.clone().filter(|_| self.peer.client.login.is_some())
    }

    /// A new token; none where authentication is off. Who comes meanwhile gets the same.
    async fn log_in(&self, user: Arc<User>, stale: Option<Token>) -> Result<Option<Token>, Cause> {
        let _turn = self.line.login.lock().await;
        let known = self.line.known().token.clone();
        if let Some(known) = known
            && Arc::ptr_eq(&known.of, &user)
            && stale.as_ref().is_none_or(|stale| stale.text != known.text)
        {
            return Ok(Some(known));
        }
        if let Some((who, at, why)) = &self.line.known().not_let_in
            && Arc::ptr_eq(who, &user)
            && at.elapsed() < NOT_AGAIN_FOR
        {
            return Err(why.clone());
        }
        self.line.known().token = None;
        // A password in JSON is text like any other: what has a meaning in it is escaped.
        let body = json!({"name": user.name, "password": user.password}).to_string();
        let said = self.under_prefix("/auth/authenticate", &body, None).await?;
        if said.status != StatusCode::OK {
            let Some(refusal) = Refusal::read(&said.body) else {
                return Err(wordless(&stranger(said.status, &said.body), said.status, &user));
            };
            if refusal.is_without_authentication() {
                return Ok(None);
            }
            let logged_in = LoggedIn { user: Some(user.name.clone()), has_login: true };
            let why = refused(&refusal, &logged_in);
            let why = if refusal.is_not_let_in() { why } else { wordless(&why, said.status, &user) };
            if refusal.is_not_let_in() {
                self.line.known().not_let_in = Some((user, Instant::now(), why.clone()));
            }
            return Err(why);
        }
        let token = token_of(&said.body).map(|text| Token { of: user, text });
        let token = token.ok_or_else(|| Cause::new(cause::GARBAGE, "it gives no token to who logs in"))?;
        self.line.known().token = Some(token.clone());
        Ok(Some(token))
    }

    /// A password goes to who has proven who it is, or wherever the configuration lets it.
    fn check_may_show(&self) -> Result<(), Cause> {
        if self.peer.client.tls.is_some() || self.peer.client.open {
            return Ok(());
        }
        let text = "it wants a user, and a password does not go over plain HTTP (client.tls, or client.auth.insecure)";
        Err(Cause::new(cause::CREDENTIALS, text))
    }

    /// Under the prefix that is known, or under each.
    async fn under_prefix(&self, path: &str, body: &str, token: Option<&HeaderValue>) -> Result<Said, Cause> {
        if path == TRANSFER {
            return self.transfer(body, token).await;
        }
        if let Some(prefix) = self.known_prefix()? {
            let said = self.line.post(&format!("{prefix}{path}"), body, token, self.room).await?;
            if said.status != StatusCode::NOT_FOUND {
                return Ok(said);
            }
            self.line.known().prefix = None;
        }
        for prefix in PREFIXES {
            let said = self.line.post(&format!("{prefix}{path}"), body, token, self.room).await?;
            if said.status == StatusCode::NOT_FOUND {
                continue;
            }
            // Whatever else answers need not be a gateway.
            if said.status == StatusCode::OK || Refusal::read(&said.body).is_some() {
                self.line.known().prefix = Some(prefix);
            }
            return Ok(said);
        }
        Err(self.without_gateway().await)
    }

    fn known_prefix(&self) -> Result<Option<&'static str>, Cause> {
        let mut known = self.line.known();
        match known.had_none {
            Some(at) if at.elapsed() < NONE_FOR => return Err(gateway_off()),
            Some(_) => known.had_none = None,
            None => {}
        }
        Ok(known.prefix)
    }

    /// The one call that a gateway may be without: that it is not there says nothing of the prefix.
    async fn transfer(&self, body: &str, token: Option<&HeaderValue>) -> Result<Said, Cause> {
        let prefix = Box::pin(self.prefix()).await?;
        let said = self.line.post(&format!("{prefix}{TRANSFER}"), body, token, self.room).await?;
        if said.status == StatusCode::NOT_FOUND {
            let text = "this version of etcd cannot be asked to hand over";
            return Err(Cause::new(cause::UNSUPPORTED, text));
        }
        Ok(said)
    }

    /// The prefix of the gateway, found by asking what every one has.
    async fn prefix(&self) -> Result<&'static str, Cause> {
        if let Some(prefix) = self.known_prefix()? {
            return Ok(prefix);
        }
        let said = self.under_prefix(STATUS, "{}", None).await?;
        let prefix = self.line.known().prefix;
        prefix.ok_or_else(|| stranger(said.status, &said.body))
    }

    /// Nothing of a gateway is there: whether it is etcd at all.
    async fn without_gateway(&self) -> Cause {
        let said = match self.line.get("/version", super::line::LIMIT, self.room).await {
            Ok(said) => said,
            Err(why) => return why,
        };
        if said.status == StatusCode::OK && gateway::version_of(&said.body).is_some() {
            let mut known = self.line.known();
            known.had_none = Some(Instant::now());
            return gateway_off();
        }
        Cause::new(cause::NOT_ETCD, "what answers there is not etcd: it knows none of its paths (404)")
    }
}

/// A cause without the words of whoever answers a login: it has just heard the password, and may repeat it.
fn wordless(why: &Cause, status: StatusCode, user: &User) -> Cause {
    let text = format!("user {:?} could not be logged in ({})", brief(&user.name), status.as_u16());
    Cause::new(why.code, text)
}

/// What somebody says without the token that it has just been shown, and may repeat.
fn without(said: &[u8], token: Option<&Token>) -> String {
    let said = String::from_utf8_lossy(said);
    match token.and_then(|token| token.text.to_str().ok()) {
        Some(token) => said.replace(token, "[token]"),
        None => said.into_owned(),
    }
}

fn gateway_off() -> Cause {
    Cause::new(
        cause::GATEWAY_OFF,
        "it has no JSON gateway there: it is switched off (--enable-grpc-gateway), or on another port",
    )
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
