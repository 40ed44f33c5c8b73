//! One call to a member, with a login if the member requires it.
//!
//! The calls that need a login differ by version, and authentication can be switched on and off. Logging in needs a quorum, which a
//! status must not. Therefore Durward logs in only after a member requires it: `user name is empty` or `invalid auth token`. After
//! authentication was switched off, 3.4 rejects every token. Tokens expire after five minutes without use.

use std::sync::Arc;
use std::time::Duration;

use admission::Cause;
use prost::Message;
use tokio::time::Instant;
use tonic::metadata::MetadataValue;

use super::connection::{MemberConnection, Token};
use super::credentials::{Credentials, User, recently};
use super::errors::{CallError, LoggedIn};
use super::generated::{AuthenticateRequest, AuthenticateResponse};
use crate::cause;
use crate::etcd::Endpoint;
use crate::live::body::BodyReader;
use crate::live::brief;

/// The pause after a failed login: a member needs 70 ms to check a password (measured).
const LOGIN_BACKOFF: Duration = Duration::from_secs(10);

/// A call to one member.
#[derive(Clone, Copy)]
pub(super) struct Call<'c> {
    pub(super) endpoint: &'c Endpoint,
    pub(super) connection: &'c MemberConnection,
    pub(super) credentials: &'c Credentials,
    pub(super) bodies: &'c BodyReader,
    /// Whether it logs in if the member requires a user. If not, a member that does so has refused.
    pub(super) may_log_in: bool,
}

impl Call<'_> {
    /// Sends a message, and logs in if the member requires it.
    pub(super) async fn send<Q, R>(&self, path: &'static str, message: Q) -> Result<R, CallError>
    where
        Q: Message + Clone + 'static,
        R: Message + Default + 'static,
    {
        let mut token = self.token();
        let mut has_logged_in = false;
        loop {
            let answer = self.connection.send(path, message.clone(), token.as_ref(), self.bodies).await;
            let Err(CallError::Refused(mut refusal)) = answer else { return answer };
            let is_wanted =
                refusal.has_stale_token() || (refusal.needs_user() && token.is_none() && self.may_log_in);
            let Some(login) = self.endpoint.client.login.as_ref().filter(|_| is_wanted && !has_logged_in)
            else {
                if let Some(token) = &token {
                    refusal.redact(token.text.to_str().unwrap_or_default(), "[token]");
                }
                let user = token.map(|token| token.of.name.clone());
                refusal.login = LoggedIn { user, has_login: self.endpoint.client.login.is_some() };
                return Err(CallError::Refused(refusal));
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
        let request = AuthenticateRequest { name: user.name.clone(), password: user.password.clone() };
        let answer =
            self.connection.send("/etcdserverpb.Auth/Authenticate", request, None, self.bodies).await;
        let answer: AuthenticateResponse = match answer {
            Ok(answer) => answer,
            Err(CallError::Failed(why)) => return Err(why),
            Err(CallError::Refused(refusal)) if refusal.has_no_authentication() => return Ok(None),
            Err(CallError::Refused(mut refusal)) => {
                refusal.login = LoggedIn { user: Some(user.name.clone()), has_login: true };
                let why = refusal.cause();
                if refusal.is_login_failure() {
                    self.connection.known().failed_login = Some((user, Instant::now(), why.clone()));
                    return Err(why);
                }
                // The refusal's text may contain the password that was just sent.
                let text = format!("login of user {:?} failed ({:?})", brief(&user.name), refusal.code);
                return Err(Cause::new(why.code, text));
            }
        };
        let token = MetadataValue::try_from(&answer.token).ok().filter(|token| !token.is_empty());
        let mut text = token.ok_or_else(|| Cause::new(cause::GARBAGE, "it returned no token at login"))?;
        text.set_sensitive(true);
        let token = Token { of: user, text };
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
}
