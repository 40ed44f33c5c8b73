//! What a member's "no" means. The sentences are etcd's own (`api/v3rpc/rpctypes/error.go`), the same in every version; the HTTP
//! status is not.

use admission::Cause;
use hyper::StatusCode;

use crate::cause;
use crate::gateway::Refusal;
use crate::live::failure::brief;

/// Who asked.
#[derive(Debug, Default)]
pub(super) struct LoggedIn {
    /// Nobody, where none.
    pub(super) user: Option<String>,
    /// Whether somebody is configured who could.
    pub(super) has_login: bool,
}

/// The numbers of gRPC.
const DEADLINE: i64 = 4;
const DENIED: i64 = 7;
const EXHAUSTED: i64 = 8;
const UNIMPLEMENTED: i64 = 12;
const UNAVAILABLE: i64 = 14;
const UNAUTHENTICATED: i64 = 16;

impl Refusal {
    fn says(&self, text: &str) -> bool {
        self.message.contains(text)
    }

    /// It asks who asks.
    pub(super) fn is_nobody(&self) -> bool {
        self.says("user name is empty")
    }

    /// What it knows of who asks is not so any more.
    pub(super) fn is_stale(&self) -> bool {
        self.code == Some(UNAUTHENTICATED)
            || self.says("invalid auth token")
            || self.says("revision of auth store is old")
    }

    pub(super) fn is_denied(&self) -> bool {
        self.code == Some(DENIED) || self.says("permission denied")
    }

    /// User or password are wrong.
    pub(super) fn is_not_let_in(&self) -> bool {
        self.says("authentication failed")
    }

    pub(super) fn is_without_authentication(&self) -> bool {
        self.says("authentication is not enabled")
    }

    pub(super) fn is_not_leader(&self) -> bool {
        self.says("etcdserver: not leader")
    }

    pub(super) fn is_bad_target(&self) -> bool {
        self.says("bad leader transferee")
    }

    /// 3.4 says of alarms `context deadline exceeded` under 2, which is no number for it.
    fn is_without_quorum(&self) -> bool {
        self.code == Some(DEADLINE)
            || ["no leader", "timed out", "deadline exceeded"].iter().any(|text| self.says(text))
    }

    pub(super) fn is_unknown_call(&self) -> bool {
        self.code == Some(UNIMPLEMENTED)
    }
}

/// The cause, whose text is the end of a sentence about the member.
pub(super) fn refused(refusal: &Refusal, who: &LoggedIn) -> Cause {
    let told = brief(&refusal.message);
    let code = refusal.code.unwrap_or_default();
    let (cause, text) = if refusal.is_nobody() && !who.has_login {
        (cause::CREDENTIALS, "it has authentication on, and no user is configured (client.auth)".to_owned())
    } else if refusal.is_nobody() || refusal.is_stale() {
        (cause::CREDENTIALS, format!("it does not accept who is logged in ({told})"))
    } else if refusal.is_denied() {
        let user = who
            .user
            .as_deref()
            .map_or_else(|| "who asks".to_owned(), |user| format!("user {:?}", brief(user)));
        (cause::CREDENTIALS, format!("{user} has no permission for it ({told})"))
    } else if refusal.is_not_let_in() {
        let user = brief(who.user.as_deref().unwrap_or_default());
        (cause::CREDENTIALS, format!("user {user:?} or its password is not accepted"))
    } else if refusal.says("not supported for learner") {
        (cause::UNSUPPORTED, "a learner does not answer that".to_owned())
    } else if refusal.is_unknown_call() || refusal.says("not capable") {
        (cause::UNSUPPORTED, format!("this version of etcd cannot do that ({told})"))
    } else if refusal.is_without_quorum() {
        (cause::NO_QUORUM, format!("it cannot have others agree ({told})"))
    } else if code == EXHAUSTED || code == UNAVAILABLE || refusal.says("too many requests") {
        (cause::BUSY, format!("it cannot answer now ({told})"))
    } else {
        (cause::REFUSED, format!("it answers: {told} ({code})"))
    };
    Cause::new(cause, text)
}

/// An answer that is neither 200 nor the gateway's.
pub(super) fn stranger(status: StatusCode, body: &[u8]) -> Cause {
    let number = status.as_u16();
    let begins = String::from_utf8_lossy(body.get(..80).unwrap_or(body)).into_owned();
    let begins = brief(begins.trim());
    if begins.contains("HTTP request to an HTTPS server") {
        return Cause::new(cause::TLS, "it speaks TLS, and plain HTTP is configured (client.tls)");
    }
    let (code, text) = match number {
        300..=399 => (cause::NOT_ETCD, format!("what answers there is not etcd: it redirects ({number})")),
        429 | 500..=599 => (cause::BUSY, format!("it cannot answer now ({number}: {begins:?})")),
        _ => (cause::NOT_ETCD, format!("what answers there is not etcd ({number}: {begins:?})")),
    };
    Cause::new(code, text)
}
