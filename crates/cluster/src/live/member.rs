//! What a refusal means that came through `clusters/NAME/proxy`: it may be the member's, Karmada's on the way to it, or the
//! control plane's.
//!
//! Who speaks is told by the answer alone, so the words below are those of Karmada (`pkg/util/proxy/proxy.go`), of the
//! aggregator before it and of API servers, as they were seen; the tests hold each. Whatever is not known is a refusal too.

use hyper::StatusCode;
use serde::Deserialize;

use super::answer::{is_not_served, not_served};
use super::failure::{Failure, Status, brief, said};
use crate::fleet::Cluster;
use crate::{Resource, cause};

const GROUP: &str = "cluster.karmada.io";

/// Words of Go's network and TLS for no answer in time. Looked for first: they stand behind `dial tcp` too.
const LATE: [&str; 5] = [
    "i/o timeout",
    "context deadline exceeded",
    "TLS handshake timeout",
    "Client.Timeout exceeded",
    "connection timed out",
];

/// A proxy of Kubernetes' own that met nobody (apimachinery, `proxy/transport.go`): its Status has a reason.
const REACHING: &str = "error trying to reach service";

/// And for no connection.
const UNREACHED: [&str; 15] = [
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
    REACHING,
    "EOF",
];

/// Whether a 404 says that the member itself is not there.
pub(super) fn is_gone(of: &Cluster, body: &[u8]) -> bool {
    let Cluster::Member(member) = of else { return false };
    names(member, body)
}

fn names(member: &str, body: &[u8]) -> bool {
    let Ok(Status { kind, details: Some(details), .. }) = serde_json::from_slice(body) else { return false };
    kind == "Status" && details.kind == "clusters" && details.group == GROUP && details.name == member
}

/// The cause of an answer other than 200 and than a certain absence.
pub(super) fn refusal(
    member: &str,
    status: StatusCode,
    body: &[u8],
    verb: &str,
    resource: &Resource,
) -> Failure {
    let told: Status = serde_json::from_slice(body).unwrap_or_default();
    let refusal = Refusal { member, number: status.as_u16(), told: &told, body };
    if refusal.is_unauthorized() {
        return Failure::new(cause::CREDENTIALS, format!("credentials of {member} are refused (401)"));
    }
    match refusal.number {
        403 | 404 if refusal.is_about_secret(resource) => refusal.no_endpoint(),
        403 => refusal.forbidden(verb, resource),
        404 if names(member, body) => {
            Failure::new(cause::VANISHED, format!("{member} is not a cluster of the fleet any more"))
        }
        404 if is_not_served(status, body) => not_served(member, resource),
        404 => Failure::new(
            cause::GARBAGE,
            format!("{member} answers 404, and not about what was asked{}", refusal.words()),
        ),
        410 => Failure::new(cause::BUSY, format!("{member} has forgotten where the page before ended (410)")),
        429 => refusal.busy(),
        500..=599 => refusal.failed(),
        number => Failure::new(cause::REFUSED, format!("{member} answers {number}{}", refusal.words())),
    }
}

struct Refusal<'r> {
    member: &'r str,
    number: u16,
    told: &'r Status,
    body: &'r [u8],
}

impl Refusal<'_> {
    fn is_status(&self) -> bool {
        self.told.kind == "Status"
    }

    /// What stands in a Status, or in place of one.
    fn text(&self) -> String {
        if self.is_status() {
            return self.told.message.clone();
        }
        // Enough for every word that is looked for; a login page is longer.
        let beginning = self.body.get(..1024).unwrap_or(self.body);
        String::from_utf8_lossy(beginning).trim().to_owned()
    }

    fn words(&self) -> String {
        if self.is_status() {
            return said(self.told);
        }
        let text = self.text();
        if text.is_empty() { String::new() } else { format!(": {}", brief(&text)) }
    }

    /// 401, and the bare word that stands for it where a proxy on the way gives it another number.
    fn is_unauthorized(&self) -> bool {
        self.number == 401 || self.text() == "Unauthorized"
    }

    fn forbidden(&self, verb: &str, resource: &Resource) -> Failure {
        let (member, text) = (self.member, self.text());
        let details = self.told.details.as_ref();
        let names_member = details.is_some_and(|details| {
            details.kind == "clusters" && details.group == GROUP && details.name == member
        });
        let text = if text.contains("cannot impersonate") {
            format!(
                "Karmada may not impersonate Durward's user in {member}: bind that user by a ClusterRoleBinding, not a RoleBinding, to a ClusterRole with verb get on clusters/proxy, and Karmada writes the permission into {member} ({})",
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

    /// Whether it is about a Secret, which was not asked for: the one with the member's credentials. Karmada's proxy passes on
    /// what it was told when it read that.
    fn is_about_secret(&self, resource: &Resource) -> bool {
        let details = self.told.details.as_ref();
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

    /// 5xx: no endpoint, no connection, or one that cannot answer.
    fn failed(&self) -> Failure {
        let (member, text) = (self.member, self.text());
        let has = |words: &[&str]| words.iter().any(|&word| text.contains(word));
        // The last one is misspelt in Karmada.
        if has(&[
            "API endpoint of cluster",
            "impersonatorSecretRef of cluster",
            "impresonateToken for cluster",
        ]) {
            return self.no_endpoint();
        }
        // A webhook or a backend that the member's own API server did not reach: the member is there.
        let is_behind = has(&["conversion webhook", "failed calling webhook", "etcdserver"]);
        // An API server's own trouble has a reason; what Karmada's proxy met on the way has none.
        let is_on_the_way = !self.is_status() || self.told.reason.is_empty() || has(&[REACHING]);
        if is_behind || !is_on_the_way {
            return self.busy();
        }
        let way = if self.is_status() { "from Karmada to" } else { "on the way to" };
        if has(&LATE) {
            return Failure::new(
                cause::TIMEOUT,
                format!("no answer in time {way} {member}: {}", brief(&text)),
            );
        }
        if has(&UNREACHED) {
            return Failure::new(
                cause::UNREACHABLE,
                format!("no connection {way} {member}: {}", brief(&text)),
            );
        }
        self.busy()
    }
}

/// The Secret whose token Karmada shows to the member, out of the whole Cluster: the one for impersonation, which its proxy
/// uses.
pub(super) fn secret_of(cluster: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Whole {
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
    let Whole { spec } = serde_json::from_slice(cluster).ok()?;
    let Reference { namespace, name } = spec.impersonator_secret_ref.or(spec.secret_ref)?;
    Some(brief(&format!("{namespace}/{name}")))
}
