//! Maps errors that came through Karmada's proxy `clusters/NAME/proxy` to causes.
//!
//! An error can come from the member cluster, from Karmada, or from the control plane. Only its text shows which. The texts
//! below are those of Karmada (`pkg/util/proxy/proxy.go`), of the aggregator and of API servers, as observed; a test contains
//! each. An unknown text is an error of the member cluster.

use hyper::StatusCode;
use serde::Deserialize;

use super::failure::{Details, Failure, Status, brief, is_not_served, message, not_served};
use crate::fleet::Cluster;
use crate::{ApiError, Resource, cause};

const GROUP: &str = "cluster.karmada.io";

/// Texts of Go for a timeout. They are searched first, because they also follow `dial tcp`.
const TIMEOUTS: [&str; 5] = [
    "i/o timeout",
    "context deadline exceeded",
    "TLS handshake timeout",
    "Client.Timeout exceeded",
    "connection timed out",
];

/// The text of a proxy of Kubernetes that found no backend (apimachinery, `proxy/transport.go`). Its Status has a reason.
const NO_BACKEND: &str = "error trying to reach service";

/// Texts of Go for a failed connection.
const CONNECTION_ERRORS: [&str; 15] = [
    "dial tcp",
    "connection refused",
    "connection reset",
    "no route to host",
    "network is unreachable",
    "no such host",
    "broken pipe",
    "x509:",
    "tls:",
    "remote error",
    "http2:",
    "server closed",
    "proxyconnect",
    NO_BACKEND,
    "EOF",
];

/// Whether a 404 means that the member cluster itself does not exist.
pub(super) fn is_gone(of: &Cluster, answer: &Status) -> bool {
    let Cluster::Member(member) = of else { return false };
    names(member, answer)
}

fn names(member: &str, answer: &Status) -> bool {
    let is_member =
        |details: &Details| details.kind == "clusters" && details.group == GROUP && details.name == member;
    answer.kind == "Status" && answer.details.as_ref().is_some_and(is_member)
}

/// Returns the cause of an error other than a certain absence.
pub(super) fn refusal(
    member: &str,
    status: StatusCode,
    body: &[u8],
    verb: &str,
    resource: &Resource,
) -> Failure {
    let parsed = Status::of(body);
    let refusal = ProxyError { member, number: status.as_u16(), status: &parsed, body };
    if refusal.is_unauthorized() {
        return Failure::new(cause::CREDENTIALS, format!("credentials of {member} are refused (401)"));
    }
    match ApiError::of(refusal.number, &parsed.reason) {
        ApiError::Forbidden | ApiError::NotFound if refusal.is_about_secret(resource) => {
            refusal.no_endpoint()
        }
        ApiError::Forbidden => refusal.forbidden(verb, resource),
        ApiError::NotFound if names(member, &parsed) => {
            Failure::new(cause::VANISHED, format!("{member} is not a cluster of the fleet any more"))
        }
        ApiError::NotFound if is_not_served(status, body) => not_served(member, resource),
        ApiError::NotFound => Failure::new(
            cause::GARBAGE,
            format!("{member} answered 404 for another object{}", refusal.words()),
        ),
        ApiError::Expired => {
            Failure::new(cause::BUSY, format!("the continue token has expired in {member} (410)"))
        }
        ApiError::Unavailable if refusal.number < 500 => refusal.busy(),
        ApiError::Unavailable => refusal.failed(),
        ApiError::Credentials | ApiError::Conflict | ApiError::Rejected => {
            let text = format!("{member} answers {}{}", refusal.number, refusal.words());
            Failure::new(cause::REFUSED, text)
        }
    }
}

struct ProxyError<'r> {
    member: &'r str,
    number: u16,
    status: &'r Status,
    body: &'r [u8],
}

/// The texts are words of Karmada 1.16: pkg/util/proxy/proxy.go (lines 65, 74, 173), and of Kubernetes:
/// apiserver/pkg/endpoints/handlers/responsewriters/errors.go, `forbiddenMessage`.
impl ProxyError<'_> {
    fn is_status(&self) -> bool {
        self.status.kind == "Status"
    }

    /// The message of the Status, or the beginning of the body if it is not a Status.
    fn text(&self) -> String {
        if self.is_status() {
            return self.status.message.clone();
        }
        // It contains every text that is searched for; a login page is longer.
        let beginning = self.body.get(..1024).unwrap_or(self.body);
        String::from_utf8_lossy(beginning).trim().to_owned()
    }

    fn words(&self) -> String {
        if self.is_status() {
            return message(&self.status.message);
        }
        let text = self.text();
        if text.is_empty() { String::new() } else { format!(": {}", brief(&text)) }
    }

    /// 401, or the bare text that some proxies send with another status.
    fn is_unauthorized(&self) -> bool {
        self.number == 401 || self.text() == "Unauthorized"
    }

    fn forbidden(&self, verb: &str, resource: &Resource) -> Failure {
        let (member, text) = (self.member, self.text());
        let details = self.status.details.as_ref();
        let names_member = details.is_some_and(|details| {
            details.kind == "clusters" && details.group == GROUP && details.name == member
        });
        let text = if text.contains("cannot impersonate") {
            let user = details.filter(|details| details.kind == "users" && !details.name.is_empty());
            let user =
                user.map_or_else(|| "Durward's user".to_owned(), |user| format!("user {:?}", user.name));
            format!(
                "Karmada isn't allowed to impersonate {user} in {member}; bind this user with a ClusterRoleBinding (not a RoleBinding) to a ClusterRole with verb get on clusters/proxy ({})",
                brief(&text)
            )
        } else if names_member || text.contains("clusters/proxy") {
            format!(
                "Durward is not permitted to reach {member} (RBAC on the control plane: verb get on clusters/proxy in {GROUP})"
            )
        } else {
            format!(
                "Durward is not permitted to {verb} {resource} in {member} (RBAC in {member}: verb {verb})"
            )
        };
        Failure::new(cause::FORBIDDEN, text)
    }

    /// Whether it is about a Secret that was not requested: the one with the member cluster's credentials. Karmada's proxy
    /// passes on the error of reading it.
    fn is_about_secret(&self, resource: &Resource) -> bool {
        let details = self.status.details.as_ref();
        *resource != Resource::SECRETS
            && details.is_some_and(|details| details.kind == "secrets" && details.group.is_empty())
    }

    fn no_endpoint(&self) -> Failure {
        let text = format!("{} has no address or no credentials in Karmada{}", self.member, self.words());
        Failure::new(cause::NO_ENDPOINT, text)
    }

    fn busy(&self) -> Failure {
        let text = format!("{} cannot answer now ({}{})", self.member, self.number, self.words());
        Failure::new(cause::BUSY, text)
    }

    /// 5xx: no endpoint, no connection, or an overloaded server.
    fn failed(&self) -> Failure {
        let (member, text) = (self.member, self.text());
        let has = |words: &[&str]| words.iter().any(|&word| text.contains(word));
        // The last one is misspelled in Karmada.
        if has(&[
            "API endpoint of cluster",
            "impersonatorSecretRef of cluster",
            "impresonateToken for cluster",
        ]) {
            return self.no_endpoint();
        }
        // The member cluster answers, but its API server did not reach a webhook or backend.
        let is_behind_member = has(&["conversion webhook", "failed calling webhook", "etcdserver"]);
        // Errors of an API server have a reason; those of Karmada's proxy have none.
        let is_of_proxy = !self.is_status() || self.status.reason.is_empty() || has(&[NO_BACKEND]);
        if is_behind_member || !is_of_proxy {
            return self.busy();
        }
        let way = if self.is_status() { "from Karmada to" } else { "on the way to" };
        if has(&TIMEOUTS) {
            return Failure::new(
                cause::TIMEOUT,
                format!("no answer in time {way} {member}: {}", brief(&text)),
            );
        }
        if has(&CONNECTION_ERRORS) {
            return Failure::new(
                cause::UNREACHABLE,
                format!("no connection {way} {member}: {}", brief(&text)),
            );
        }
        self.busy()
    }
}

/// Returns the Secret whose token Karmada's proxy sends to the member cluster, from the whole Cluster object.
pub(super) fn secret_of(cluster: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct WholeCluster {
        spec: Spec,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Spec {
        secret_ref: Option<Reference>,
        impersonator_secret_ref: Option<Reference>,
    }
    #[derive(Deserialize)]
    struct Reference {
        namespace: String,
        name: String,
    }
    let WholeCluster { spec } = serde_json::from_slice(cluster).ok()?;
    let Reference { namespace, name } = spec.impersonator_secret_ref.or(spec.secret_ref)?;
    Some(brief(&format!("{namespace}/{name}")))
}
